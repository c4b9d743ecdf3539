"""A step of a scheme that draws whole epochs: cohorts, noise, records, crashes."""

import collections

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.mechanisms import AdaptiveClipping, Sparsification
from fedprivacy.training import FederatedAveraging, logistic
from tests.systems.averaging.test_loop import fed_smp, small

pytestmark = pytest.mark.usefixtures("one_thread", "narrowest")
NOISE = fp.Gaussian(noise_multiplier=1.5, clip_norm=0.5, unit="client")
SCHEMES = [fp.RandomAllocation(4, take=2), fp.RandomAllocation(3), fp.Shuffled(3)]


def loop(scheme=SCHEMES[0], perturbation=NOISE, **options):
    options = {"local_steps": 1, "batch_size": 4, "expected_cohort": 3} | options
    return FederatedAveraging(
        model=logistic(3, 2), scheme=scheme, perturbation=perturbation, **options
    )


def ledger(path, **facts):
    facts = {"unit": "client", "adjacency": "zero_out"} | facts
    return fp.Ledger.create(path, **facts)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_step_is_an_epoch_and_one_line(tmp_path, scheme):
    cohorts, data = [], small(clients=6)

    def silent(cohort):
        cohorts.append(list(cohort))
        return ()

    path = tmp_path / "run.ledger"
    with ledger(path) as book:
        state = loop(scheme).init()
        for epoch in range(2):
            state, info = loop(scheme).step(state, data, ledger=book, dropout=silent)
            assert (state.round, info.round, info.noise_std) == (epoch + 1, epoch, 0.75)
        book.close()
    length, take = scheme.rounds_per_epoch, getattr(scheme, "take", 1)
    assert len(cohorts) == 2 * length
    for drawn in (cohorts[:length], cohorts[length:]):
        times = collections.Counter(client for cohort in drawn for client in cohort)
        assert times == {client: take for client in range(6)}
        assert all(len(set(cohort)) == len(cohort) for cohort in drawn)
    assert cohorts[:length] != cohorts[length:]
    assert info.cohort == info.arrived == 6 * take
    assert info.denominator == 3
    found = fp.account(path, delta=1e-5)
    planned = fp.epsilon(NOISE.sampled(scheme) * 2, delta=1e-5, adjacency="zero_out")
    assert (found.lower, found.upper) == (planned.lower, planned.upper)
    holds = fp.audit(path, claim=(planned.upper, 1e-5))
    assert holds.verdict == "HOLDS", holds.reasons
    assert fp.audit(path, claim=(0.9 * planned.lower, 1e-5)).verdict == "FAILS"


def test_every_round_has_new_noise():
    """Without updates a parameter moves by independent noise of the stated size."""
    data = small(clients=6)
    scheme = fp.RandomAllocation(200, take=3)
    started = loop(scheme, learning_rate=1e-30, server_learning_rate=3.0)
    before = started.init()
    after, _ = started.step(before, data)
    moved = (after.parameters - before.parameters).numpy()
    # The sum of 200 draws of std 0.75; 8 coordinates: 6 stds are passed with chance 2e-8.
    assert np.abs(moved).max() < 6.0 * 0.75 * 200**0.5
    assert np.abs(moved).max() > 0.1 * 0.75 * 200**0.5


def test_an_epoch_that_breaks_off_is_counted(tmp_path):
    path, calls = tmp_path / "run.ledger", []

    def breaks(cohort):
        calls.append(cohort)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ()

    run, data = loop(), small(clients=6)
    start = run.init()
    with ledger(path) as book, pytest.raises(KeyboardInterrupt):
        run.step(start, data, ledger=book, dropout=breaks)
    one, two = (
        fp.epsilon(NOISE.sampled(run.scheme) * n, delta=1e-5, adjacency="zero_out").upper
        for n in (1, 2)
    )
    assert fp.account(path, delta=1e-5).upper == one
    # The epoch is not continued: another one is drawn and paid for.
    with fp.Ledger.open(path, resume=True) as book:
        run.step(start, data, ledger=book)
    assert fp.account(path, delta=1e-5).upper == two


def test_a_budget_counts_epochs():
    one = fp.epsilon(NOISE.sampled(SCHEMES[0]), delta=1e-5, adjacency="zero_out").upper
    budget = fp.Budget(one + 1e-6, 1e-5, adjacency="zero_out")
    run, data = loop(), small(clients=6)
    state, _ = run.step(run.init(), data, budget=budget)
    with pytest.raises(fp.errors.BudgetExhausted):
        run.step(state, data, budget=budget)


def test_rates_are_given_for_every_round():
    run = loop(server_rates=(1.0,) * 7)
    state, _ = run.step(run.init(), small(clients=6))
    with pytest.raises(fp.ParameterError, match="server_rates"):
        run.step(state, small(clients=6))


@pytest.mark.parametrize("scheme", SCHEMES[1:], ids=str)
def test_without_privacy(scheme):
    run, data = loop(scheme, None), small(clients=6)
    state, info = run.step(run.init(), data)
    assert (state.round, info.noise_std, info.cohort) == (1, 0.0, 6)


@pytest.mark.parametrize(
    ("perturbation", "sparsification", "name"),
    [
        (AdaptiveClipping(noise_multiplier=1.0, clip_norm=0.5), None, "clip norm"),
        (fed_smp(kept=8, topped_up=True), None, "shares"),
        (None, Sparsification(kept=4, dimension=8), "all coordinates"),
    ],
    ids=str,
)
def test_what_one_line_cannot_record(perturbation, sparsification, name):
    with pytest.raises(fp.ParameterError, match=name):
        loop(perturbation=perturbation, sparsification=sparsification)
