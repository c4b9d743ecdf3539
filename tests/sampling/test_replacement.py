"""Sampling with replacement: its law, its pairs by enumeration, its ends in many digits."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.loss import LeastOf, Side
from fedprivacy.loss.strategies import direct
from tests import truth

UP, DOWN = Side.UP, Side.DOWN


def exact(draws, p, digits=60):
    """Return {times: probability}, all that is not below 1e-45, by log-gamma in many digits."""
    with mpmath.workdps(digits):
        mode, found = min(int((draws + 1) * p), draws), {}
        for times in (range(mode, draws + 1), range(mode - 1, -1, -1)):
            for s in times:
                choose = mpmath.loggamma(draws + 1) - mpmath.loggamma(s + 1)
                choose -= mpmath.loggamma(draws - s + 1)
                power = s * mpmath.log(mpf(p)) + (draws - s) * mpmath.log1p(-mpf(p))
                found[s] = mpmath.exp(choose + power)
                if found[s] < mpf(10) ** -45:
                    break
        return found


@pytest.mark.parametrize(
    "draws, p, z, epsilon",
    [
        (10**4, 1e-4, 1.0, 4.0),
        (10**5, 1e-5, 1.0, 1.0),
        (10**5, 3e-5, 3.0, 1.0),
        (10**6, 1e-6, 3.0, 1.0),
        (10**6, 2e-6, 1.0, 4.0),
        (3, 0.4, 0.7, 2.0),
        (300, 0.9, 400.0, 0.1),
    ],
)
@pytest.mark.parametrize("adjacency, moves", [("zero_out", 1), ("replace_one", 2)])
def test_the_servers_round_lies_between_its_ends(draws, p, z, epsilon, adjacency, moves):
    weights = exact(draws, p)
    value = sum(
        w * truth.gaussian_delta(epsilon, moves * s / mpf(z)) for s, w in weights.items() if s
    )
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.WithReplacement(draws, probability=p))
    bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency, observer="server")
    assert bound.lower <= value <= bound.upper
    assert bound.upper - bound.lower <= 1e-10 * value


@pytest.mark.parametrize("draws, p, delta", [(100, 1e-4, 1e-31), (100, 1e-4, 1e-29)])
def test_rare_draws_are_not_shown_by_what_is_attained(draws, p, delta):
    """Rounded up, they once made a lower end of 5127."""
    weights = exact(draws, p)
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.WithReplacement(draws, probability=p))
    low = fp.epsilon(run, delta=delta, adjacency="zero_out", observer="server").lower
    value = sum(w * truth.gaussian_delta(low, s) for s, w in weights.items() if s)
    assert value >= delta
    assert fp.delta(run, epsilon=low, adjacency="zero_out", observer="server").lower <= value


def up_profile(weights, q, z, a):
    """H_a of one round of zero_out, present against absent, a >= 1."""
    total = mpf(0)
    for s, w in weights.items():
        if s:
            p = truth.mixture((1 - q, -s / mpf(z)), (q, s / mpf(z)))
            r = truth.mixture((1 - q, -s / mpf(z)), (q, 0))
            total += w / q * truth.mixture_delta((p, r), mpmath.log(a))
    return total


def by_way_of_none(weights, z, there, back, epsilon):
    """Delta of the draws moving the sum by ``there`` against them moving it ``back``."""
    p, q = (
        truth.mixture(*((w, move * s / mpf(z)) for s, w in weights.items()))
        for move in (there, -back)
    )
    return truth.mixture_delta((p, q), mpf(epsilon))


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("draws, p, z", [(3, 1 / 30, 4.0), (5, 0.05, 1.5), (4, 0.6, 2.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.6, 2.0])
def test_one_zero_out_round_has_the_profile_of_theorem_t5(draws, p, z, epsilon):
    weights = exact(draws, p)
    q = 1 - weights[0]
    inner = mpmath.log(1 + mpmath.expm1(mpf(epsilon)) / q)
    down = sum(w * truth.gaussian_delta(inner, s / mpf(z)) for s, w in weights.items() if s)
    up = min(
        up_profile(weights, q, z, mpmath.exp(epsilon)), by_way_of_none(weights, z, 2, 1, epsilon)
    )
    value = max(up, min(down, by_way_of_none(weights, z, 1, 2, epsilon)))
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.WithReplacement(draws, probability=p))
    loss = run.privacy_loss("zero_out")
    older = replace(loss, curve=LeastOf(loss.curve.curves))
    low, high = ACCOUNTANTS["pld"]().compose(older).delta(epsilon).resolution
    assert low <= value <= high
    assert high - low <= 1e-9 * high + 1e-15
    # Draws inside draws lose less (T19), but for the chords of a discrete pair.
    assert fp.delta(run, epsilon=epsilon, adjacency="zero_out").upper <= value * (1 + 1e-4)


GRID = np.concatenate([[-np.inf], np.linspace(-16.0, 16.0, 6401), [np.inf]])
EPSILONS = np.array([-3.0, -1.0, -0.3, -0.05, 0.0, 0.05, 0.3, 1.0, 2.5, 5.0])


def masses(sends, draws, z):
    """Masses of cells under one round: everybody in ``sends`` is equally likely in every draw."""
    sums = {}
    for drawn in itertools.product(sends, repeat=draws):
        total = round(sum(drawn), 12)
        sums[total] = sums.get(total, 0.0) + len(sends) ** -draws
    return sum(w * cells((GRID - at) / z) for at, w in sums.items())


def cells(x):
    """Normal masses between consecutive points, each from its smaller tail."""
    return np.where(x[1:] <= 0.0, np.diff(ndtr(x)), -np.diff(ndtr(-x)))


def hockey_stick(p, q, epsilon):
    """A lower end of H_a of what the cells are of: merging outcomes loses."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.fast_cells(8)
@pytest.mark.parametrize("draws, others", [(1, 2), (2, 1), (2, 2), (3, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize("z", [0.7, 2.0])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_no_tiny_population_loses_more(draws, others, z, adjacency):
    """All data sets with values in {-1, -.4, 0, .5, 1}, every epsilon, both orders."""
    scheme = fp.WithReplacement(draws, population=others + 1)
    curve = fp.Gaussian(noise_multiplier=z).sampled(scheme).privacy_loss(adjacency).curve
    tops = [direct.delta(turned, EPSILONS, UP) for turned in (curve, curve.swap())]
    values, best = (-1.0, -0.4, 0.0, 0.5, 1.0), 0.0
    for rest in itertools.combinations_with_replacement(values, others):
        laws = {x: masses((x, *rest), draws, z) for x in values}
        pairs = [(1.0, 0.0), (-0.4, 0.0)] if adjacency == "zero_out" else [(1.0, -1.0), (0.5, -0.4)]
        for x, other in pairs:
            for one, two, top in ((x, other, tops[0]), (other, x, tops[1])):
                found = [hockey_stick(laws[one], laws[two], e) for e in EPSILONS]
                assert (np.array(found) <= top + 1e-15).all()
                best = max(best, found[4] / top[4])
    assert best > 0.5


def test_without_anybody_else_there_is_no_round_to_compare_with():
    step = fp.Gaussian(noise_multiplier=1.0)
    alone = step.sampled(fp.WithReplacement(3, population=1))
    with pytest.raises(
        fp.UnsupportedCombination, match="WithReplacement can draw only this unit, got"
    ):
        fp.epsilon(alone, delta=1e-5, adjacency="add_remove")
    for adjacency in ("zero_out", "replace_one"):
        found = fp.epsilon(alone, delta=1e-5, adjacency=adjacency)
        plain = fp.Gaussian(noise_multiplier=1 / 3).sampled(fp.Everyone())
        assert found.lower <= fp.epsilon(plain, delta=1e-5, adjacency=adjacency).upper
        assert found.upper >= fp.epsilon(plain, delta=1e-5, adjacency=adjacency).lower
        assert found.upper - found.lower <= 1e-3
