"""Binomial sums of rounds with two losses, against exact fractions and a plain lattice."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

import fedprivacy as fp
from fedprivacy.loss import Gdp
from fedprivacy.loss.curves.composed import compose
from fedprivacy.loss.curves.discrete import Atoms
from fedprivacy.loss.curves.lattice import Side
from fedprivacy.loss.strategies.two_losses import MOST_ROUNDS, TwoLossSums, serves


def pair(p: float, q: float, swapped: bool = False) -> Atoms:
    """Return a pair with P-mass p and Q-mass q of its larger loss."""
    points = ((math.log((1 - p) / (1 - q)), 1 - p), (math.log(p / q), p))
    return Atoms(points, swapped=swapped)


def exact(one: Atoms, rounds: int, epsilon: float) -> mpmath.mpf:
    """Return the profile of the pair as it is stated, in high precision."""
    with mpmath.workdps(60):
        law = [(mpmath.mpf(loss), mpmath.mpf(mass)) for loss, mass in one.points]
        if one.swapped:
            law = [(-loss, mass * mpmath.exp(-loss)) for loss, mass in law]
        (low, r), (high, p) = sorted(law)
        found = mpmath.mpf(0)
        for k in range(rounds + 1):
            loss = k * high + (rounds - k) * low
            if loss > epsilon:
                mass = mpmath.binomial(rounds, k) * p**k * r ** (rounds - k)
                found += mass * (1 - mpmath.exp(epsilon - loss))
        return found


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("p", "q"), [(0.9, 0.2), (0.55, 0.5), (0.3, 1e-3), (0.999, 0.4)])
@pytest.mark.parametrize("rounds", [2, 17, 300])
def test_sums_hold_the_exact_profile_closely(p, q, rounds, swapped):
    one = pair(p, q, swapped)
    run = compose([(one, rounds)])
    assert serves(run)
    below, above = (TwoLossSums(run, side) for side in (Side.DOWN, Side.UP))
    top = rounds * max(abs(loss) for loss, _ in one.points)
    for epsilon in (0.0, 0.1, 0.3 * top, 0.7 * top, 0.999 * top):
        truth = min(exact(one, rounds, epsilon), mpmath.mpf(1))
        low, high = below.delta(epsilon), above.delta(epsilon)
        assert low <= truth <= high
        assert high - low <= 1e-10 * truth + 2e-300
        if 1e-290 < low < high < 1.0:
            ends = below.epsilon(float(truth)), above.epsilon(float(truth))
            assert ends[0] <= epsilon + 1e-12 * top and ends[1] >= epsilon - 1e-12 * top
            assert ends[1] - ends[0] <= 1e-6 * (1.0 + epsilon)


def test_every_sum_of_two_fair_rounds_is_a_fraction():
    run = compose([(pair(0.75, 0.25), 2)])
    truth = Fraction(9, 16) - Fraction(1, 16)
    assert TwoLossSums(run, Side.DOWN).delta(0.0) <= truth <= TwoLossSums(run, Side.UP).delta(0.0)


def test_ends_at_hand():
    run = compose([(pair(0.75, 0.25), 3)])
    up = TwoLossSums(run, Side.UP)
    assert up.epsilon(1.0) == 0.0
    assert up.epsilon(1e-12) <= 3 * math.log(3.0) * (1 + 1e-12)
    # Masses that underflow are not nothing.
    assert TwoLossSums(compose([(pair(1e-3, 1e-9), 200)]), Side.UP).delta(2_500.0) > 0.0


def test_other_runs_are_not_served():
    two, three = (
        pair(0.9, 0.2),
        Atoms(((-1.0, 0.2), (0.0, 1 - 0.2 - 0.2 * math.e), (1.0, 0.2 * math.e))),
    )
    assert not serves(two) and not serves(Gdp(1.0))
    for run in ([(two, 2), (pair(0.8, 0.2), 2)], [(three, 5)], [(two, MOST_ROUNDS + 1)]):
        assert not serves(compose(run))
    revealed = Atoms(
        ((-0.1, 0.4), (0.2, 0.5)),
        infinite=0.1,
        vanishing=1 - 0.4 * math.exp(0.1) - 0.5 * math.exp(-0.2),
    )
    assert not serves(compose([(revealed, 5)]))


@pytest.mark.parametrize(("chance", "rounds"), [(0.05, 2701), (0.36, 81), (0.9, 5)])
def test_randomised_responses_are_answered_far_within_the_tolerance(chance, rounds):
    run = fp.RandomizedResponse(chance=chance, answers=10).sampled(fp.Everyone()) * rounds
    found = fp.epsilon(run, delta=1e-9, adjacency="zero_out")
    assert found.upper - found.lower <= 1e-8 * found.upper
    other = fp.delta(run, epsilon=0.9 * found.lower, adjacency="zero_out")
    assert 1e-9 <= other.lower <= other.upper <= other.lower * (1 + 1e-6)
