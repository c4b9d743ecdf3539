"""Sums over many nodes at many heights are within the rounding that is claimed for them."""

import math

import numpy as np
import pytest

from fedprivacy.loss.moments import contour as lines
from fedprivacy.loss.moments.contour import Contour, NoMoments, summing, transform, turned
from fedprivacy.rounding import UNIT

CASES = [(3000, 2000, 1.0), (20_000, 512, 5.0), (5000, 1025, 1e-4), (9000, 700, 300.0)]


def nodes(count, reach, seed):
    """Weights that add up to 1, and losses: some tiny, some far beyond the period, some equal."""
    generator = np.random.default_rng(seed)
    weights = generator.exponential(size=count) ** 3
    loss = reach * generator.standard_cauchy(count).clip(-50.0, 50.0)
    loss[: count // 3] *= 1e-7
    loss[-count // 5 :] = reach
    return weights / weights.sum(), loss


def exactly(weights, loss, heights, less):
    """The sums at some heights, each real and imaginary part by fsum of terms of 80 bits."""
    found = []
    for height in heights:
        angle = np.longdouble(height) * loss.astype(np.longdouble)
        real = -2 * np.sin(angle / 2) ** 2 if less else np.cos(angle)
        parts = [weights * real, weights * np.sin(angle)]
        found.append(complex(*(math.fsum(map(float, part)) for part in parts)))
    return np.array(found)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize(("count", "size", "reach"), CASES)
def test_both_ways_are_within_their_rounding(count, size, reach, monkeypatch):
    weights, loss = nodes(count, reach, size)
    line = Contour(1.0, 0.7 / reach, size)
    at = np.array([0, 1, 2, 7, size // 2, size - 2, size - 1])
    phases = 6 * UNIT * line.heights()[at] * float(weights @ np.abs(loss))
    for direct in (1 << 40, 1):
        monkeypatch.setattr(lines, "_DIRECT", direct)
        for less, ask in ((False, transform), (True, turned)):
            values, off = ask(weights, loss, line)
            apart = np.abs(values[at] - exactly(weights, loss, line.heights()[at], less))
            allowed = off[at] if less else off
            assert np.all(apart <= allowed + phases)
            assert np.all(np.asarray(allowed) <= 50 * summing(count) + 4 * UNIT * count)


@pytest.mark.parametrize(("count", "size", "reach"), CASES)
def test_turned_sums_are_small_where_losses_are(count, size, reach, monkeypatch):
    monkeypatch.setattr(lines, "_DIRECT", 1)
    weights, loss = nodes(count, reach, size)
    line = Contour(1.0, 1e-9 / reach, size)
    heights = line.heights()
    values, off = turned(weights, loss, line)
    most = heights * float(weights @ np.abs(loss))
    assert np.all(off <= 1e-9 * most + 1e-30)
    assert np.all(np.abs(values) <= most * (1 + 1e-9) + 1e-30)


def test_more_terms_of_the_series_are_not_needed(monkeypatch):
    monkeypatch.setattr(lines, "_DIRECT", 1)
    weights, loss = nodes(4000, 1.0, 0)
    line = Contour(1.0, 0.3, 1024)
    asked = transform(weights, loss, line)[0]
    monkeypatch.setattr(lines, "_TERMS", 17)
    assert np.max(np.abs(transform(weights, loss, line)[0] - asked)) < 1e-15
    monkeypatch.setattr(lines, "_TERMS", 7)
    assert np.max(np.abs(transform(weights, loss, line)[0] - asked)) > 1e-13


def test_a_mixture_whose_weight_vanishes_beside_another_has_no_line():
    from fedprivacy.loss.moments.spectrum import Cumulants, mix_cumulants

    with pytest.raises(NoMoments):
        mix_cumulants([(0.0, Cumulants(1e6, 0.0, 1.0)), (1.0, Cumulants(0.0, 0.0, 1.0))])
