"""Many different epochs of random allocation: each lies between the two that stand for it."""

import math
import time

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.loss import Allocated, Bracketed, Composed, Side, compose
from fedprivacy.loss.curves.allocation import with_few_bits
from fedprivacy.loss.curves.between import MOST, fewer
from fedprivacy.loss.strategies import direct

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
