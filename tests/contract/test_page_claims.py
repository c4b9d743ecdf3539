"""Statements of the docs about samplers, clipping and rounds, checked in the code."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import training

ASK = {"delta": 1e-5, "adjacency": "replace_one"}


def upper(run, **changed):
    return fp.epsilon(run, **{**ASK, **changed}).upper


def records(sizes=(4, 4)):
    count = sum(sizes)
    rows = np.split(np.arange(count), np.cumsum(sizes)[:-1])
    features = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    return training.FederatedData(
        features=features, labels=torch.arange(count) % 2, clients=tuple(rows), num_classes=2
    )


def posterior(sizes=(4, 4), **changed):
    given = {"model": training.SoftmaxRegression(2, 2), "clip_norm": 0.5}
    return training.Posterior(data=records(sizes), **{**given, **changed})


def langevin(target=None, **changed):
    given = {"target": target or posterior(), "step_size": 1e-3, "local_steps": 2, "seed": 0}
    return training.LangevinSampling(**{**given, **changed})


def hamiltonian(kind=training.HamiltonianSampling, **changed):
    given = {"target": posterior(), "step_size": 0.05, "leapfrog_steps": 1, "seed": 0}
    return kind(**{**given, **changed})


# ---- docs/samplers.md, "What is counted"


@pytest.mark.parametrize("chains", [2, 5])
def test_so_many_chains_on_the_same_data_cost_so_many_compositions(chains):
    assert upper(langevin(chains=chains).run(3)) == upper(langevin().run(3 * chains))


def test_gradients_of_two_records_are_twice_the_clip_norm_apart():
    assert posterior().sensitivity == 1.0
    stated = posterior(clip_norm=None, own_sensitivity=1.0)
    assert stated.sensitivity == 1.0
    assert upper(langevin(stated).run(2)) == upper(langevin().run(2))
    # Twice the clip norm is half the noise.
    louder = langevin(posterior(clip_norm=1.0), step_size=0.25e-3)
    assert upper(louder.run(2)) == pytest.approx(upper(langevin().run(2)), rel=1e-3)


def test_at_correlation_one_epsilon_is_infinite_and_a_budget_refuses_the_first_round():
    shared = langevin(correlation=1.0)
    assert math.isinf(upper(shared.run(1)))
    budget = fp.Budget(epsilon=1e6, **ASK)
    start = shared.init()
    with pytest.raises(
        fp.errors.BudgetExhausted, match="exceeds the budget, so it was not released"
    ):
        shared.step(start, budget=budget)
    assert budget.spent() is None


@pytest.mark.parametrize("correlation", [0.3, 0.8])
def test_noise_that_counts_is_the_share_that_is_not_common(correlation):
    """1 - rho^2 of the variance in FA-LD: as much as at a temperature lower by it."""
    own = 1.0 - correlation**2
    found = upper(langevin(correlation=correlation).run(2))
    cooler = upper(langevin(temperature=own).run(2))
    assert found == pytest.approx(cooler, rel=1e-9)
    assert found > upper(langevin().run(2))


def queried(times):
    """Epsilon of so many queries of a gradient with noise of five sensitivities."""
    run = fp.Gaussian(noise_multiplier=5.0) * times
    return fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper


def test_momentum_counts_with_one_leapfrog_step_and_with_more_on_the_first_gradient_alone():
    assert math.isfinite(upper(hamiltonian().run(2)))
    with pytest.raises(fp.errors.UnsupportedCombination, match="noise on every gradient: gradien"):
        upper(hamiltonian(leapfrog_steps=2).run(2))
    noisy = {"leapfrog_steps": 2, "gradient_noise_multiplier": 5.0}
    # Of a momentum that all know 2 K - 1 queries of each trajectory are left.
    bare = upper(hamiltonian(**noisy, correlation=1.0).run(2))
    assert bare == pytest.approx(queried(2 * 3), rel=1e-9)
    # One's own hides the first of each at most: the others have their own noise only.
    assert queried(2 * 2) <= upper(hamiltonian(**noisy).run(2)) < bare


def test_de_biased_trajectories_are_a_query_more_and_need_noise_on_gradients():
    plain, more = (
        hamiltonian(kind, leapfrog_steps=2, gradient_noise_multiplier=5.0, correlation=1.0)
        for kind in (training.HamiltonianSampling, training.DebiasedSampling)
    )
    assert upper(plain.run(1)) == pytest.approx(queried(3), rel=1e-9)
    assert upper(more.run(1)) == pytest.approx(queried(4), rel=1e-9)
    assert math.isinf(upper(hamiltonian(training.DebiasedSampling).run(1)))
    told = [loop.step(loop.init())[1].upload_bytes for loop in (plain, more)]
    assert told[1] == 2 * told[0]


def test_a_batch_is_accounted_with_the_fraction_that_is_really_used():
    """A third of four records is two records: half."""
    third, half = (langevin(batch_fraction=share) for share in (1 / 3, 0.5))
    assert upper(third.run(2)) == upper(half.run(2)) != upper(langevin().run(2))
    assert any("2 of 4" in note or "0.5" in note for note in third.notes), third.notes


def test_of_unlike_clients_the_worst_counts():
    """The client of the larger share draws less noise."""
    even, uneven = posterior((4, 4)), posterior((2, 6))
    run = langevin(uneven).run(2)
    assert upper(run) > upper(langevin(even).run(2))
    alike = replace(even, weights=(0.75, 0.25))
    assert upper(langevin(alike).run(2)) >= upper(langevin(even).run(2))


# ---- docs/training.md


def test_bits_of_an_adaptive_norm_cost_half_a_percent_of_the_updates_noise():
    noise = fp.AdaptiveClipping(noise_multiplier=1.0, clip_norm=0.1, quantile=0.5, unit="client")
    ratio = 1.0 / math.sqrt(1.0 - noise.bits_share)
    assert round(100 * (ratio - 1.0), 1) == 0.5
    assert noise.update_multiplier == pytest.approx(ratio, rel=1e-6)
    plain = fp.Gaussian(noise_multiplier=1.0, unit="client")
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    assert fp.epsilon(noise * 3, **ask).upper == fp.epsilon(plain * 3, **ask).upper


def averaging(**changed):
    given = {
        "model": training.logistic(2, 2),
        "scheme": fp.Everyone(),
        "local_steps": 2,
        "perturbation": fp.Gaussian(noise_multiplier=1.0, unit="client"),
        "seed": 0,
    }
    return training.FederatedAveraging(**{**given, **changed})


@pytest.mark.parametrize(
    "changed",
    [{"proximal": 0.1}, {"momentum": 0.5}, {"local_steps": 9}, {"learning_rate": 0.5}],
    ids=str,
)
def test_local_work_is_nothing_to_the_account(changed):
    plain, other = averaging(), averaging(**changed)
    assert plain.round_mechanism == other.round_mechanism
    own = records()
    moved = [loop.step(loop.init(), own)[0].parameters for loop in (plain, other)]
    assert not torch.equal(*moved)


def test_nothing_of_a_round_without_a_perturbation_is_private(tmp_path):
    loop = averaging(perturbation=None)
    assert loop.round_mechanism is None
    _, info = loop.step(loop.init(), records())
    assert (info.noise_std, info.cohort, info.arrived, info.refused) == (0.0, 2, 2, 0)
    ledger = fp.Ledger.create(tmp_path / "a", unit="client", adjacency="zero_out")
    with ledger, pytest.raises(fp.ParameterError, match="ledger must be None without"):
        loop.step(loop.init(), records(), ledger=ledger)


def test_a_run_with_no_round_left_changes_nothing_and_spends_nothing(tmp_path):
    loop, path = averaging(), tmp_path / "run.pt"
    first = training.train(loop, records(), rounds=2, checkpoint=path)
    budget = fp.Budget(epsilon=50.0, delta=1e-5, adjacency="zero_out")
    again = training.train(loop, records(), rounds=2, checkpoint=path, budget=budget)
    assert not again.history and again.state.round == 2 and budget.spent() is None
    assert torch.equal(first.state.parameters, again.state.parameters)
    # What the two have cost no budget knows, and no ledger.
    with pytest.raises(fp.ParameterError, match="ledger must be given with a budget"):
        training.train(loop, records(), rounds=3, checkpoint=path, budget=budget)
