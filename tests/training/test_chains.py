"""Tests of ``fedprivacy.training.chains``."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, Diverged
from fedprivacy.evidence.repricing import run_of
from fedprivacy.training import SoftmaxRegression, load, train
from tests.systems.fa_ld.test_loop import (
    epsilon,
    gaussian,
    hamiltonian,
    langevin,
    ledger_at,
    posterior,
)

DELTA = 1e-5
pytestmark = pytest.mark.usefixtures("one_thread")
UNEQUAL = np.array([1.0, 2.0, 3.0, 2.0, 1.0, 3.0]) / 12.0
MODEL = SoftmaxRegression(4, 3)


def gradient(local):
    """The whole gradient of clients at work, at their points."""
    own, public = local.parts(local.points, 1.0)
    return own + public * local.points


# Gradients


def by_torch(parameters, inputs, labels):
    scores = MODEL.logits(parameters, inputs)
    return -functional.cross_entropy(scores, labels, reduction="none")


def test_functions_of_the_clients_add_up():
    target_ = posterior(clip_norm=None, prior_precision=2.0, weights=[0.2, 0.5, 0.3])
    at = torch.randn(MODEL.dimension, generator=torch.Generator().manual_seed(1))
    local = target_.local(np.arange(3)[None], at[None], 1.0, np.random.default_rng(0))
    average = (torch.from_numpy(target_.shares) @ gradient(local)[0]).float()
    inputs, labels = target_.data.features, target_.data.labels
    point_ = at.clone().requires_grad_()
    whole = by_torch(point_, inputs, labels).sum() - point_.square().sum()
    assert torch.allclose(average, -torch.autograd.grad(whole, point_)[0], rtol=1e-4, atol=1e-4)


# What a round costs


def test_rounds_say_what_every_client_does():
    kinds = langevin().round_mechanism.mechanisms
    assert [k.weight for k in kinds] == pytest.approx([1 / 12, 2 / 12, 3 / 12])
    first = langevin(averaging="I", cohort=4).round_mechanism.mechanisms[0]
    assert first.scheme == fp.Poisson(-math.expm1(4 * math.log1p(-1 / 12)))
    second = langevin(gaussian(), averaging="II", cohort=4).round_mechanism
    assert second.scheme == fp.FixedSize(4, 6) and second.inner.steps == 3
    long = hamiltonian(gaussian(), gradient_noise_multiplier=2.0).round_mechanism
    assert (long.leapfrog_steps, long.iterations, long.gradient_sensitivity) == (3, 2, 1.0)
    assert langevin(gaussian(sensitivity=None)).round_mechanism is None
    assert langevin(posterior()).round_mechanism.mechanisms[0].gradient_sensitivity == 1.0


def test_chains_on_the_same_data_add_up(tmp_path):
    one, four = langevin(step_size=1e-3), langevin(step_size=1e-3, chains=4)
    assert four.run(3) == one.run(12)
    assert epsilon(four.run(3)).upper == epsilon(one.run(12)).upper > epsilon(one.run(3)).upper
    limit = epsilon(one.run(12)).upper * 1.001
    for loop, fits in ((one, 12), (four, 3)):
        budget = fp.Budget(limit, DELTA, adjacency="replace_one")
        with pytest.raises(BudgetExhausted):
            train(loop, loop.target, rounds=20, budget=budget)
        assert sum(budget.spending.rounds.values()) == fits
    with ledger_at(tmp_path / "run.ledger") as ledger:
        train(four, four.target, rounds=3, ledger=ledger)
        assert run_of(ledger.rounds) == one.run(12)


def test_cohorts_of_chains_are_drawn_apart():
    loop = langevin(gaussian(), averaging="II", cohort=2, chains=400)
    seats = loop._seats(0, None)
    assert len({tuple(sorted(row)) for row in seats.clients.tolist()}) == 15
    assert all(len(set(row)) == 2 for row in seats.clients.tolist())


def test_a_client_drawn_twice_runs_once():
    loop = langevin(averaging="I", cohort=9, chains=300)
    seats = loop._seats(0, None)
    assert np.allclose(seats.shares.sum(axis=1), 1.0)
    for clients, shares in zip(seats.clients[:50], seats.shares[:50], strict=True):
        for client in set(clients.tolist()):
            mine = shares[clients == client]
            assert np.count_nonzero(mine) == 1
            assert mine.max() == pytest.approx(np.sum(clients == client) / 9)
    counts = np.array([np.sum(seats.clients == c) for c in range(6)]) / seats.clients.size
    errors = (counts - UNEQUAL) / np.sqrt(UNEQUAL * (1 - UNEQUAL) / seats.clients.size)
    assert np.abs(errors).max() < 6.5


# Chains that go wrong, runs that stop


def test_a_diverging_chain_stops_the_run_and_stays_spent(tmp_path):
    loop = langevin(step_size=5.0, local_steps=40, chains=2)
    path, checkpoint = tmp_path / "run.ledger", tmp_path / "state.pt"
    released = []
    with (
        ledger_at(path) as ledger,
        pytest.raises(Diverged, match=r"2 of 2 chains.*smaller step size"),
    ):
        train(
            loop,
            loop.target,
            rounds=50,
            ledger=ledger,
            checkpoint=checkpoint,
            on_release=released.append,
        )
    read = fp.Ledger.open(path)
    assert len(released) < read.spent_rounds == len(released) + 1 < 50
    assert read.rounds[-1].done is None and read.rounds[-1].aborted is None
    kept = load(checkpoint, loop.init())
    assert kept.round == len(released) and bool(torch.isfinite(kept.positions).all())


def test_clients_that_do_not_answer(tmp_path):
    loop = langevin(gaussian(UNEQUAL), correlation=1.0, step_size=1e-9)
    far = replace(loop, start=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    state, info = far.step(far.init(), dropout=lambda cohort: cohort[:4])
    assert (info.cohort, info.arrived, info.aborted) == (6, 2, False)
    assert torch.allclose(state.positions[0], far.start, atol=1e-3)
    with ledger_at(tmp_path / "run.ledger") as ledger:
        state, info = far.step(far.init(), ledger=ledger, dropout=lambda cohort: cohort)
        assert info.aborted and ledger.spent_rounds == 1 and state.round == 1
        assert torch.equal(state.positions, far.init().positions)
