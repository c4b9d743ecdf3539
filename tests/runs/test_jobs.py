"""Tests of ``fedprivacy.runs.jobs``."""

import pytest

from fedprivacy import factors
from fedprivacy.errors import ParameterError
from fedprivacy.runs.methods import METHODS
from fedprivacy.sampling import FixedSize, Poisson, WithReplacement
from fedprivacy.training import digits, train
from tests.mechanisms.test_adaptive import DATA

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.runs.jobs import job

CLIENTS, DELTA = 20, 1e-5


@pytest.mark.parametrize("name", ["missing", "absent", "colluding"])
def test_a_job_without_shares_refuses_who_may_be_away(name):
    given_ = {"clip_quantile": 0.5, "strategy": "fixed", "cohort": 10, name: 1}
    with pytest.raises(ParameterError, match=f"{name} must be 0 with clip_quantile"):
        job("dp-fedavg", data=DATA, model="logistic", local_steps=1, rounds=2, **given_)


def test_a_tree_is_trained_with_no_buffers():
    assert job("dp-ftrl", rounds=4, buffers=0).factor == factors.Tree()
    with pytest.raises(ParameterError, match="or replace_one, since the removal of a client"):
        job("dp-ftrl", rounds=4).public("add_remove")


def test_named_data_are_split_as_asked():
    task = job("dp-fedavg", clients=50, classes_per_client=2)
    assert task.data.population == 50
    assert all(len(torch.unique(task.data.labels[rows])) <= 4 for rows in task.data.clients)
    assert task.loop(1.0, 0).scheme == fp.Poisson(1.0)
    assert job("fa-ld").data.data.population == 10 == job("fed-plt").data.agents
    assert job("fa-ld", clients=7).data.data.population == 7


pytestmark = pytest.mark.usefixtures("one_thread")


# Settings that work


def test_the_digits_preset_learns():
    task = job("fedavg")
    averaging = task.loop(None, 0)
    state = train(averaging, task.data, rounds=task.rounds).state
    accuracy, loss = averaging.evaluate(state, task.data)
    assert accuracy >= 0.9 and 0 < loss < 1
    for name, method in METHODS.items():
        if method.unit == "client":
            one = job(name).loop(1.5, 0)
            assert (one.round_mechanism is None) == (not method.private)
    with pytest.raises(ParameterError, match="method must be one of"):
        job("magic")
    with pytest.raises(ParameterError, match="noise_multiplier must"):
        job("dp-fedavg").loop(None, 0)


def test_a_preset_runs_both_strategies_both_rates_and_full_participation():
    data = digits(clients=400)
    given = {"cohort": 20, "learning_rate": 0.5, "server_learning_rate": 1.5}
    drawn = {
        "poisson": Poisson(20 / 400),
        "with-replacement": WithReplacement(20, population=400),
        "fixed": FixedSize(20, population=400),
        1: WithReplacement(20, population=400),
        2: FixedSize(20, population=400),
    }
    for strategy, scheme in drawn.items():
        more = {"strategy": strategy, "local_steps": 3, "batch_size": 2}
        averaging = job("dp-fedavg", data, **given, **more).loop(1.0, 0)
        assert averaging.scheme == scheme and averaging.perturbation.cohort == 20
        assert averaging.perturbation.topped_up == (strategy == "poisson")
        assert (averaging.learning_rate, averaging.server_learning_rate) == (0.5, 1.5)
        assert (averaging.optimiser.steps, averaging.optimiser.epochs) == (3, None)
        _, info = averaging.step(averaging.init(), data)
        assert strategy == "poisson" or info.cohort == 20
    for given in ({"strategy": "fixed", "cohort": 400}, {"strategy": "everyone"}):
        assert job("fedavg", data, **given).loop(None, None).scheme.rate == 1.0
    for change, message in (
        ({"strategy": 3}, "strategy must be one of 'poisson', 'fixed'"),
        ({"cohort": 401}, "cohort must be at most the number of clients, 400"),
        ({"cohort": 401, "strategy": 2}, "cohort must be at most"),
        ({"cohort": 0}, "cohort must"),
        ({"server_learning_rate": 0.0}, "server_learning_rate must"),
    ):
        with pytest.raises(ParameterError, match=message):
            job("fedavg", **change)
