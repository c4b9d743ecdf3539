"""Curves known only by others: groups of different rounds, and choices of dominating pairs."""

import math
import time

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS, PldAccountant
from fedprivacy.loss import (
    Allocated,
    Bracketed,
    Composed,
    Fold,
    GaussianMix,
    Gdp,
    LeastOf,
    Side,
    compose,
)
from fedprivacy.loss.curves.allocation import with_few_bits
from fedprivacy.loss.curves.between import MOST, fewer, readings
from fedprivacy.loss.strategies import direct
from tests import truth

EPSILONS = np.array([0.0, 0.01, 0.1, 0.5, 1.0])


def epochs(count):
    return [(Allocated(0.5 + 0.5 * k / count, 3 + k * 7 % 40), 1 + k % 3) for k in range(count)]


def test_few_epochs_stay_as_they_are():
    parts = epochs(MOST)
    assert fewer(parts) == parts
    assert set(compose(parts).parts) == set(parts)


def test_groups_hold_every_epoch_between_their_ends():
    parts = epochs(10 * MOST)
    found = fewer(parts)
    assert len(found) == MOST and sum(n for _, n in found) == sum(n for _, n in parts)
    for epoch, _ in parts:
        holding = [
            curve
            for curve, _ in found
            if curve.below.mu <= epoch.mu <= curve.above.mu
            and curve.above.rounds <= epoch.rounds <= curve.below.rounds
        ]
        assert holding


@pytest.mark.parametrize("mu", [0.0, 7.0])
def test_epochs_that_hardly_differ_are_grouped_too(mu):
    parts = []
    for _ in range(MOST + 1):
        parts.append((Allocated(mu, 50), 1))
        mu = math.nextafter(mu, 9.0)
    found = fewer(parts)
    assert len(found) == MOST and sum(n for _, n in found) == MOST + 1


@pytest.mark.parametrize("turned", [False, True])
def test_a_bracket_lies_on_both_sides_of_the_epoch(turned):
    inner, bracket = Allocated(0.7, 20), Bracketed(Allocated(0.75, 18), Allocated(0.66, 23))
    if turned:
        inner, bracket = inner.swap(), bracket.swap()
    below, low = (direct.delta(one, EPSILONS, Side.DOWN) for one in (bracket, inner))
    high, above = (direct.delta(one, EPSILONS, Side.UP) for one in (inner, bracket))
    assert np.all(below <= low) and np.all(high <= above)
    assert np.any(below < low) and np.any(high < above)
    assert bracket.moments().log_moment(2.0) >= inner.moments().log_moment(2.0)
    assert bracket.support().largest.high == math.inf


def test_rounds_of_few_bits_err_to_their_side():
    for rounds in (1, 5, 1023, 10**6 + 1, 2**40 + 1):
        fewer_rounds, more = (with_few_bits(rounds, side, 10) for side in (Side.UP, Side.DOWN))
        assert fewer_rounds <= rounds <= more <= rounds * (1.0 + 2.0**-9)
        assert all(n / (n & -n) < 2**10 for n in (fewer_rounds, more))


def test_a_long_epoch_lies_between_a_shorter_and_a_longer_one():
    """Above 2^14 rounds laws are coarse and the number of rounds is rounded: both are on a side."""
    long = Allocated(1.0, 20_001)
    ends = [direct.epsilon(long, 1e-6, side) for side in (Side.DOWN, Side.UP)]
    shorter, longer = (Allocated(1.0, n) for n in (16_384, 40_000))
    assert ends[0] <= ends[1] <= 1.3 * ends[0]
    assert ends[1] <= direct.epsilon(shorter, 1e-6, Side.UP)
    assert ends[0] >= direct.epsilon(longer, 1e-6, Side.DOWN)


@pytest.mark.slow
def test_two_thousand_different_epochs_take_seconds():
    account = PldAccountant()
    for k in range(2000):
        epoch = fp.RandomAllocation(45 + k * 7919 % 450)
        step = fp.Gaussian(noise_multiplier=0.8 + 0.8 * k / 2000).sampled(epoch)
        account.compose(step.privacy_loss("add_remove"))
    begun = time.process_time()
    bound = account.epsilon(1e-5)
    assert time.process_time() - begun < 10.0
    assert 0.0 < bound.lower < bound.upper < math.inf
    assert isinstance(account.loss.curve, Composed)


def drawn(draws, z, population=1000):
    return fp.Gaussian(noise_multiplier=z).sampled(fp.WithReplacement(draws, population=population))


@pytest.mark.parametrize(
    "draws, population, z, rounds, adjacency, attained, most",
    [
        pytest.param(10, 1000, 1.0, 100, "replace_one", 9.580, 9.753, marks=pytest.mark.slow),
        (10, 1000, 1.4, 180, "replace_one", 3.518, 3.700),
        (10, 1000, 1.4, 180, "zero_out", 2.957, 3.583),
        # Much noise: an observer of the number of draws learns less.
        (10, 100, 10.0, 100, "replace_one", 0.762, 0.847),
        (20, 1000, 5.0, 200, "zero_out", 0.219, 0.266),
    ],
)
def test_the_less_of_two_dominating_pairs_counts(
    draws, population, z, rounds, adjacency, attained, most
):
    found = fp.epsilon(drawn(draws, z, population) * rounds, delta=1e-5, adjacency=adjacency)
    assert attained <= found.lower <= found.upper <= most


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_long_laws_have_no_pair_by_way_of_none(adjacency):
    """Of draws by the billion each point of the mixtures took seconds."""
    short, long = (drawn(draws, 1.0).privacy_loss(adjacency).curve for draws in (1000, 4000))
    assert len(short.curves) == 2 and len(long.curves) == 1
    assert not isinstance(drawn(10**6, 1.0).privacy_loss(adjacency).curve, LeastOf)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("name", ["pld", "rdp", "advanced"])
def test_no_accountant_says_more_than_of_either_pair(name):
    run = (drawn(10, 1.0) * 20).privacy_loss("replace_one")
    found = []
    for curve in (run.curve, *readings(run.curve)):
        account = ACCOUNTANTS[name]()
        part, count = curve.parts[0]
        one = drawn(10, 1.0).privacy_loss("replace_one")
        account.compose(fp.PrivacyLoss(part, one.facts), count)
        found.append(account.epsilon(1e-5).upper)
    assert found[0] == pytest.approx(min(found[1:]), rel=1e-9)
    assert found[1] > 1.1 * found[2]


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5, 4.0])
@pytest.mark.parametrize("held, q, z", [(1, 0.2, 1.0), (3, 0.1, 1.5), (6, 0.5, 4.0)])
def test_records_drawn_apart_and_replaced_lose_what_their_mixtures_do(held, q, z, epsilon):
    weights = [mpmath.binomial(held, s) * mpf(q) ** s * (1 - mpf(q)) ** (held - s)
               for s in range(held + 1)]  # fmt: skip
    here, there = (
        truth.mixture(*((w, side * s / mpf(z)) for s, w in enumerate(weights))) for side in (1, -1)
    )
    value = truth.mixture_delta((here, there), mpf(epsilon))
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=held)
    found = fp.delta(run, epsilon=epsilon, adjacency="replace_one")
    assert found.lower <= value <= found.upper
    assert found.upper - found.lower <= 1e-9 * found.upper + 1e-15


def test_a_run_has_one_reading_for_each_choice():
    pair = LeastOf((Gdp(1.0), GaussianMix(1.0, ((0.5, 0.0), (0.5, 1.0)), ((1.0, 0.0),))))
    other = Fold(Gdp(0.5), Gdp(0.5))
    run = compose([(pair, 3), (other, 2)])
    assert [type(one) for one in readings(run)] == [Composed, Composed]
    first, second = ({type(part) for part, _ in one.parts} for one in readings(run))
    assert first == {Gdp, Fold} and second == {GaussianMix, Fold}
    assert readings(other) == (other,)
    assert readings(pair.swap()) == tuple(one.swap() for one in pair.curves)


def test_a_profile_and_a_trade_off_curve_take_the_less_too():
    run = drawn(4, 1.0) * 5
    epsilons = [2.0, 4.0]
    profile = fp.profile(run, epsilons=epsilons, adjacency="replace_one")
    for epsilon, low, high in zip(epsilons, profile.lower, profile.upper, strict=True):
        alone = fp.delta(run, epsilon=epsilon, adjacency="replace_one")
        assert alone.lower <= high and low <= alone.upper
    loss = run.privacy_loss("replace_one")
    account = ACCOUNTANTS["pld"]().compose(fp.PrivacyLoss(readings(loss.curve)[0], loss.facts))
    assert profile.upper[-1] < 0.5 * account.delta(4.0).upper


def test_an_account_of_two_pairs_is_saved_and_taken_up():
    account = ACCOUNTANTS["pld"]().compose(drawn(2, 4.0).privacy_loss("replace_one"), 10)
    again = ACCOUNTANTS["pld"]().restore(account.state())
    assert again.epsilon(1e-5).upper == account.epsilon(1e-5).upper


@pytest.mark.parametrize("z", [1e-3, 1.0])
def test_who_is_always_drawn_as_often_is_told_exactly(z):
    """A unit in every draw moves the sum by a known number of norms."""
    alone = drawn(3, z, population=1)
    step = fp.Gaussian(noise_multiplier=z, unit="record")
    every = step.sampled(fp.FixedSize(3, population=7), held=7)
    for run in (alone * 2, every * 2):
        found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
        exact = fp.epsilon(
            fp.Gaussian(noise_multiplier=z / 3.0) * 2, delta=1e-5, adjacency="zero_out"
        )
        assert exact.lower * (1 - 1e-9) <= found.lower <= found.upper <= exact.upper * (1 + 1e-9)
