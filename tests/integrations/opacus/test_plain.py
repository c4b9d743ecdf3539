"""The Opacus accountant for code that passes only noise and a rate."""

import math
import warnings

import pytest

import fedprivacy as fp

opacus = pytest.importorskip("opacus")

from opacus.accountants import IAccountant, RDPAccountant  # noqa: E402
from opacus.accountants import utils as theirs  # noqa: E402

from fedprivacy.integrations.opacus import (  # noqa: E402
    PoissonAccountant,
    get_noise_multiplier,
)

RUN = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.01)) * 100
BUDGET = {"target_epsilon": 2.0, "target_delta": 1e-5, "sample_rate": 0.01}


def stepped(times=100, **settings):
    account = PoissonAccountant(**settings)
    for _ in range(times):
        account.step(noise_multiplier=1.0, sample_rate=0.01)
    return account


def test_it_has_their_interface_and_the_certified_number():
    account = stepped()
    assert isinstance(account, IAccountant) and len(account) == 100
    assert account.history == [(1.0, 0.01, 100)]
    wanted = fp.epsilon(RUN, delta=1e-5, adjacency="add_remove")
    assert account.get_epsilon(1e-5) == account.bound(1e-5).upper == wanted.upper
    own = RDPAccountant()
    own.history = list(account.history)
    assert wanted.upper < own.get_epsilon(1e-5)
    # Settings of their accountants are accepted.
    assert account.get_epsilon(delta=1e-5, alphas=[2.0]) == wanted.upper


def test_another_relation_is_another_number():
    assert stepped(adjacency="replace_one").get_epsilon(1e-5) > stepped().get_epsilon(1e-5)
    with pytest.raises(fp.ParameterError):
        PoissonAccountant("neighbours")


def test_their_engine_hook_counts_its_steps():
    account = PoissonAccountant()
    hook = account.get_optimizer_hook_fn(0.01)

    class Optimizer:
        noise_multiplier = 2.0
        accumulated_iterations = 1

    hook(Optimizer())
    assert account.history == [(2.0, 0.01, 1)]


def test_no_step_is_free_and_no_noise_is_everything():
    account = PoissonAccountant()
    assert account.get_epsilon(1e-5) == 0.0
    with pytest.raises(ValueError, match="history"):
        account.bound(1e-5)
    account.step(noise_multiplier=0.0, sample_rate=1.0)
    assert account.get_epsilon(1e-5) == math.inf


def test_a_state_continues():
    again = PoissonAccountant()
    again.load_state_dict(stepped().state_dict())
    again.step(noise_multiplier=1.0, sample_rate=0.01)
    assert again.history == [(1.0, 0.01, 101)]


@pytest.mark.parametrize(
    "state",
    [
        {},
        RDPAccountant().state_dict(),
        {"mechanism": "fedprivacy-poisson", "history": 3},
        {"mechanism": "fedprivacy-poisson", "history": [(1.0, 0.01)]},
        {"mechanism": "fedprivacy-poisson", "history": [(1.0, 2.0, 5)]},
        {"mechanism": "fedprivacy-poisson", "history": [(1.0, 0.1, 0)]},
    ],
)
def test_a_wrong_state_changes_nothing(state):
    account = stepped()
    with pytest.raises(ValueError):
        account.load_state_dict(state)
    assert account.history == [(1.0, 0.01, 100)]


@pytest.mark.parametrize("size", [{"epochs": 10}, {"steps": 1_000}])
def test_noise_for_a_budget_meets_it_with_less_than_theirs(size):
    found = get_noise_multiplier(**BUDGET, **size)
    run = fp.Gaussian(noise_multiplier=found).sampled(fp.Poisson(0.01)) * 1_000
    spent = fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper
    assert 1.98 <= spent <= 2.0
    with warnings.catch_warnings():
        # Their search passes the largest of their orders.
        warnings.simplefilter("ignore", UserWarning)
        assert found < theirs.get_noise_multiplier(**BUDGET, **size)


def test_an_incomplete_epoch_counts():
    found = get_noise_multiplier(**{**BUDGET, "sample_rate": 0.3}, epochs=1)
    run = fp.Gaussian(noise_multiplier=found).sampled(fp.Poisson(0.3)) * 4
    assert fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper <= 2.0


@pytest.mark.parametrize(
    "wrong", [{}, {"steps": 10, "epochs": 1}, {"steps": 0}, {"steps": 5, "epsilon_tolerance": 0.0}]
)
def test_wrong_settings_are_value_errors(wrong):
    with pytest.raises(ValueError):
        get_noise_multiplier(**BUDGET, **wrong)
