"""The noisy sum of a cohort in cells of a plane: errors, limits, orientations."""

import math

import mpmath
import numpy as np
import pytest

from fedprivacy.loss import CohortSum, Gdp, Side
from fedprivacy.loss.curves import cohort_sum
from fedprivacy.loss.curves.cohort_sum import mixed, outcomes

LOSSES = np.array([-2.0, -0.5, 0.0, 0.5, 2.0, 5.0])
THERE = ((0.25, 0, 2), (0.25, 1, 1), (0.5, 0, 0))
GONE = ((0.5, 0, 2), (0.5, 0, 0))


def profile(curve, side):
    tails = curve.tails(LOSSES, side)
    return np.exp(tails.p_above) - np.exp(LOSSES + tails.q_above)


def test_one_mean_against_another_is_a_gaussian_pair():
    curve = CohortSum(0.5, ((1.0, 1, 3),), ((1.0, 0, 3),), 0.6, 0.8)
    exact = profile(Gdp(2.0), Side.DOWN)
    assert (profile(curve, Side.DOWN) <= exact + 1e-12).all()
    assert profile(curve, Side.DOWN) == pytest.approx(exact, rel=2e-3, abs=1e-6)
    # Both means move across u by as much as along it, so the plane shows the diagonal.
    curve = CohortSum(1.0, ((1.0, 1, 1),), ((1.0, 0, 0),), 0.0, 1.0)
    exact = profile(Gdp(math.sqrt(2.0)), Side.DOWN)
    assert (profile(curve, Side.DOWN) <= exact + 1e-12).all()
    assert profile(curve, Side.DOWN) == pytest.approx(exact, rel=0.02, abs=1e-6)


@pytest.mark.parametrize(("back", "across"), [(1.0, 0.0), (0.6, 0.8), (0.0, 1.0)])
def test_rounding_leaves_a_gap_between_the_sides(back, across):
    curve = CohortSum(1.0, THERE, GONE, back, across)
    for one in (curve, curve.swap()):
        low, high = (profile(one, side) for side in (Side.DOWN, Side.UP))
        assert (low <= high).all()
        assert high == pytest.approx(low, abs=1e-8)
    assert curve.swap().swap() == curve
    law = curve._cells(Side.DOWN)
    assert law.p.sum() < 1.0 < law.q.sum()


def test_no_part_along_the_line_is_lost_in_the_plane():
    """The sum along u is a function of the outcome in the plane."""
    for back, across in ((0.6, 0.8), (0.28, 0.96)):
        plane, line = (CohortSum(1.0, THERE, GONE, back, part) for part in (across, 0.0))
        assert (profile(plane, Side.DOWN) >= profile(line, Side.DOWN) - 1e-3).all()


def test_masses_of_cells_are_within_their_error():
    """Cells far from all means as well, against 40 digits."""
    members, std, back, across = ((0.25, 1, 40), (0.75, 0, 7)), 0.3, 0.6, 0.8
    centres = cohort_sum._centres(std, members, back, across)
    fine = cohort_sum._fine(centres)
    edges = [cohort_sum._edges(places, fine) for places in centres]
    found = mixed(members, centres, edges).reshape(len(edges[0]) - 1, -1)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    reach = max(map(cohort_sum._reach, centres))
    off = cohort_sum._ROUNDED + cohort_sum._PLACED * reach
    rows, columns = np.nonzero(found > 1e-250)
    with mpmath.workdps(40):
        for k in range(0, len(rows), len(rows) // 40):
            a, b = int(rows[k]), int(columns[k])
            exact = mpmath.mpf(0)
            for weight, i, j in members:
                part = mpmath.mpf(weight)
                exactly = (
                    (mpmath.mpf(i) - mpmath.mpf(3) / 5 * j) / mpmath.mpf(std),
                    mpmath.mpf(4) / 5 * j / mpmath.mpf(std),
                )
                for at, ends, cell in zip(exactly, edges, (a, b), strict=True):
                    near, far = (mpmath.mpf(float(end)) - at for end in ends[cell : cell + 2])
                    if near > 0:
                        near, far = -far, -near
                    part *= mpmath.ncdf(far) - mpmath.ncdf(near)
                exact += part
            assert abs(found[a, b] / exact - 1) < off


def test_too_many_cells_or_members_are_not_served():
    few = ((0.5, 0, 3), (0.5, 1, 2))
    assert CohortSum.serves(1.0, few, 0.6, 0.8)
    assert CohortSum.serves(1e-3, few, 1.0, 0.0)
    assert not CohortSum.serves(1e-3, few, 0.6, 0.8)
    assert not CohortSum.serves(1e-8, few, 1.0, 0.0)
    assert not CohortSum.serves(1.0, few * 2000, 0.6, 0.8)
    assert not CohortSum.serves(1.0, (), 0.6, 0.8)


def test_cells_can_be_few():
    p, q = outcomes(1.0, (THERE, GONE), 0.0, 0.0, 2.0)
    assert len(p) == len(q) < 60
    assert p.sum() == pytest.approx(1.0, abs=1e-14)
