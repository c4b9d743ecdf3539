"""Families: a few members give the moments of all rounds, within the stated errors."""

import functools

import numpy as np
import pytest

from fedprivacy.loss import Gdp, Sampled
from fedprivacy.loss.curves.composed import ComposedMoments
from fedprivacy.loss.moments.contour import Contour
from fedprivacy.loss.moments.families import Grid
from fedprivacy.loss.strategies.inversion import epsilon_interval

KINDS = {
    "weak": (0.2, 0.6, 0.05),
    "usual": (0.55, 1.25, 0.01),
    "strong": (1.0, 2.0, 0.2),
    "narrow": (0.9, 0.901, 0.02),
}


@functools.cache
def run(kind, count=300):
    """Return the composition of rounds that all differ, some of them run twice."""
    low, high, q = KINDS[kind]
    mu = np.linspace(low, high, count)
    return tuple((Sampled(Gdp(float(m)), q), 1 + k % 2) for k, m in enumerate(mu))


def moments(kind, swapped):
    parts = run(kind)
    turned = [(one.swap() if swapped else one, n) for one, n in parts]
    return ComposedMoments([(one.moments(), n) for one, n in turned])


EVERY = [(kind, swapped) for kind in KINDS for swapped in (False, True)]
STEPS = {"weak": 0.03, "usual": 0.02, "strong": 0.05, "narrow": 0.0001}


@pytest.mark.parametrize("kind, swapped", EVERY)
@pytest.mark.parametrize("tilt", [0.4, 2.0, 3.0])
def test_members_hold_the_moments_of_all_rounds(kind, swapped, tilt):
    whole = moments(kind, swapped)
    few = whole.between(STEPS[kind])
    line = Contour(tilt, 0.4, 40)
    exact, found = whole.spectrum(line), few.spectrum(line)
    unit = np.exp(found.log_size - exact.log_size)
    apart = np.abs(found.values * unit - exact.values)
    assert np.all(apart <= (found.error + found.excess) * unit + exact.error)
    # The members are those of a law that dominates: on the real axis it errs to one side.
    assert found.values[0].real * unit >= exact.values[0].real - exact.error[0]
    assert few.log_moment(1.0 + tilt) >= whole.spectrum(Contour(tilt, 0.0, 1)).log_moment - 1e-9


@pytest.mark.parametrize("kind", ["usual", "strong"])
def test_the_distance_to_the_dominating_law_is_needed(kind):
    whole, line = moments(kind, False), Contour(2.0, 0.4, 40)
    exact, found = whole.spectrum(line), whole.between(STEPS[kind]).spectrum(line)
    unit = np.exp(found.log_size - exact.log_size)
    apart = np.abs(found.values * unit - exact.values)
    assert np.any(apart > found.error * unit + exact.error)
    assert np.all(found.excess >= 0.0)


@pytest.mark.parametrize("kind, swapped", EVERY)
@pytest.mark.parametrize("tilt", [0.4, 5.0])
def test_the_product_stays_below_the_bound_on_its_fall(kind, swapped, tilt):
    whole = moments(kind, swapped)
    heights = np.linspace(0.0, 30.0, 61)
    bound = whole.between(STEPS[kind]).decay(tilt, heights).log_rest
    exact = whole.spectrum(Contour(tilt, 0.5, 61))
    with np.errstate(divide="ignore"):
        size = exact.log_size + np.log(np.maximum(np.abs(exact.values) - exact.error, 0.0))
    # The bound at a height holds above it too.
    assert np.all(np.maximum.accumulate(size[::-1])[::-1] <= bound)
    assert bound[-1] < bound[0] - 1.0


@pytest.mark.parametrize("kind", ["weak", "usual", "strong"])
def test_cumulants_are_those_of_all_rounds_to_a_few_digits(kind):
    whole = moments(kind, False)
    few = whole.between(STEPS[kind]).cumulants(2.0)
    exact = np.sum([np.array(one.cumulants(2.0)) * n for one, n in whole.parts], axis=0)
    assert np.array(few) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
def test_epsilon_meets_every_tolerance(tolerance):
    curve = composed("usual", 800)
    low, high = epsilon_interval(curve, 1e-5, tolerance)
    exact = epsilon_interval(curve, 1e-5, 1e-9)
    assert low <= exact[0] + 1e-9
    assert exact[1] - 1e-9 <= high
    assert high - low <= tolerance


@functools.cache
def composed(kind, count):
    from fedprivacy.loss import Composed

    return Composed(run(kind, count))


def test_few_or_equal_or_far_rounds_have_no_members():
    some = np.linspace(0.5, 1.0, 300)
    assert Grid.of(some, np.ones(300), 0.5, 0.03) is not None
    assert Grid.of(some[:255], np.ones(255), 0.5, 0.03) is None
    assert Grid.of(np.full(300, 0.5), np.ones(300), 0.5, 0.03) is None
    assert Grid.of(30.0 * some, np.ones(300), 0.5, 0.03) is None
    # As many members as rounds would take longer than the rounds.
    assert Grid.of(some, np.ones(300), 0.5, 0.001) is None


def test_cells_hold_all_rounds():
    shifts = np.concatenate([np.linspace(0.3, 0.5, 400), np.linspace(1.5, 2.0, 100)])
    counts = 1.0 + np.arange(500) % 3
    grid = Grid.of(shifts, counts, 0.5, 0.05)
    assert grid.weights.sum() == pytest.approx(counts.sum())
    assert grid.cells.number.sum() == counts.sum()
    # No member is computed for the shifts that no round has.
    assert not np.any((grid.shifts > 0.6) & (grid.shifts < 1.4))
    # The mean shift is nearly that of the members.
    assert grid.weights @ grid.shifts == pytest.approx(counts @ shifts, rel=1e-3)
