"""Staircases below densities of losses: every bound on the fall of moments holds."""

import math
import random

import numpy as np
import pytest

from fedprivacy.loss import Fold, Gdp, Sampled
from fedprivacy.loss.curves.composed import ComposedMoments
from fedprivacy.loss.moments import staircase
from fedprivacy.loss.moments.batched_rounds import Bundle
from fedprivacy.loss.moments.contour import Contour


def sampled(rng):
    """Return a random sampled Gaussian curve in a random orientation."""
    curve = Sampled(Gdp(math.exp(rng.uniform(-2, 1.2))), math.exp(rng.uniform(-6, -0.4)))
    return curve if rng.random() < 0.5 else curve.swap()


def folded(rng):
    """Return a random fold, whose loss is 0 with some probability."""
    up = Sampled(Gdp(math.exp(rng.uniform(-1, 1.2))), math.exp(rng.uniform(-4, -0.4)))
    return Fold(up, up)


def worst(parts, tilt, heights, found):
    """Return the largest excess of log |A| over the bounds, on 400 heights above the first."""
    line = Contour(tilt, float(heights[-1]) / 400, 401)
    spectrum = ComposedMoments(parts).spectrum(line)
    atom = 0.0 if found.log_atom == -math.inf else spectrum.atom
    size = np.abs(spectrum.values - atom) - spectrum.error
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(size > 0.0, spectrum.log_size + np.log(size), -np.inf)
    at = np.searchsorted(heights, line.heights(), side="right") - 1
    inside = at >= 0
    return float(np.max(logs[inside] - found.log_rest[at[inside]]))


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("make", [sampled, folded])
@pytest.mark.parametrize("count", [30, 300])
@pytest.mark.parametrize("seed", range(3))
def test_no_moment_of_many_rounds_exceeds_its_bound(make, count, seed):
    """Row by row (30 rounds) and for many rows at once (300)."""
    rng = random.Random(seed)
    parts = [(make(rng).moments(), rng.choice((1, 1, 2, 5))) for _ in range(count)]
    tilt = math.exp(rng.uniform(-1, 2))
    moments = ComposedMoments(parts)
    deviation = math.sqrt(moments.cumulants(tilt).variance)
    heights = np.geomspace(0.5, 40.0, 24) / deviation
    found = moments.decay(tilt, heights)
    assert worst(parts, tilt, heights, found) <= 1e-9
    # The bound is of use: it falls.
    assert found.log_rest[-1] < found.log_rest[0] - 1.0


@pytest.mark.parametrize("seed", range(20))
def test_every_row_falls_no_faster_than_its_moment(seed):
    """Slabs of a batch are below the density of each pair on its own."""
    rng = random.Random(100 + seed)
    curves = [sampled(rng) for _ in range(8)]
    tilt = math.exp(rng.uniform(-1, 2))
    heights = np.geomspace(0.05, 50.0, 12)
    bundle = Bundle([(curve.moments(), 1) for curve in curves])
    rows = bundle._falling(Contour(tilt, 0.0, 1))
    assert rows
    for some in rows:
        lost = staircase.lost(some.mass, some.width, heights)
        assert (lost >= 0.0).all() and (np.diff(lost) >= -1e-12).all()
        # Slabs hold no more than the mass, and a good part of it.
        total = some.mass.sum(axis=-1)
        assert (total <= 1.0 + 1e-9).all() and total.max() > 0.3


def test_a_hill_lies_below_its_stairs():
    """The slabs of a hill add up to at most the stairs, level by level."""
    rng = np.random.default_rng(3)
    height = rng.random((50, 16)) * (rng.random((50, 16)) < 0.8)
    width = rng.random((50, 16))
    mass, wide = staircase.hills(height, width)
    assert (mass >= 0.0).all() and (wide > 0.0).all()
    assert (mass.sum(axis=1) <= (height * width).sum(axis=1) + 1e-12).all()
    # A staircase that only falls is its own hill.
    falling = -np.sort(-height, axis=1)
    mass, _ = staircase.hills(falling, width)
    assert mass.sum(axis=1) == pytest.approx((falling * width).sum(axis=1))


def test_every_likely_value_of_a_loss_has_its_hill():
    """Two hills apart, and a third on the slope of one, are cut without a rest."""
    height = np.array([[0.0, 2.0, 5.0, 3.0, 0.0, 1.0, 4.0, 2.0, 3.0, 0.0]])
    width = np.linspace(0.1, 1.0, 10)[None, :]
    mass, wide = staircase.hills(height, width)
    assert mass.sum() == pytest.approx(float((height * width).sum()))
    assert wide[mass > 0.0].max() <= width[0, 5:9].sum() + 1e-12


def test_joined_slabs_lose_no_more():
    """Slabs of many laws, added by width, give at most the sum of what each gives."""
    rng = np.random.default_rng(4)
    masses, widths = rng.random((30, 9)), np.exp(rng.uniform(-12, 3, (30, 9)))
    masses[0], widths[1] = 0.0, 0.0
    heights = np.geomspace(1e-3, 1e3, 30)
    exact = staircase.lost(masses, widths, heights).sum(axis=0)
    mass, width = staircase.joined([masses[:10], masses[10:]], [widths[:10], widths[10:]])
    joined = staircase.lost(mass, width, heights)
    assert (joined <= exact).all() and joined == pytest.approx(exact, rel=0.03)


def test_bounds_of_rows_whose_ends_overflow_say_nothing():
    """A tilt without finite ends gives slabs without mass, never NaN."""
    pair = Sampled(Gdp(1.0), 0.1).moments().lone_pair()
    p, q = (
        tuple((np.full((1, 1), w), np.full((1, 1), m)) for w, m in side)
        for side in (pair.p, pair.q)
    )
    ends = np.full((1, 1), -np.inf), np.full((1, 1), np.inf)
    with np.errstate(all="ignore"):
        mass, width = staircase.batched_slabs(p, q, ends, 1.0, np.zeros((1, 1)))
    assert (mass == 0.0).all() and np.isfinite(width).all()
