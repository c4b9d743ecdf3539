"""Upper bounds on random sums, and Gaussians shifted by them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..loss import Curve, GaussianMix, Gdp
from ..rounding import THOUSANDS, UNIT, rounded_up

Array = NDArray[np.float64]
_RARE = 1e-6
_DROPPED = 1e-18
_CUT = 1e-40
"""Probabilities below this are dropped; their sum stays below ``_DROPPED``."""


def shifts(values: Array, weights: Array) -> Curve:
    """Return the mixture of N(value, 1) against N(0, 1)."""
    held = weights > 0.0
    pairs = tuple(zip(weights[held].tolist(), values[held].tolist(), strict=True))
    if len(pairs) == 1:
        return Gdp(pairs[0][1])
    return GaussianMix(1.0, pairs, ((1.0, 0.0),))


def sums_above(steps: NDArray[np.int64], chances: Array) -> Array:
    """Return bounds on P(sum >= k), k = 0, 1, ..., of integers included at random.

    The last bound is below ``_DROPPED``, and bounds every tail beyond.

    Args:
        steps: shape (n,), each at least 0.
        chances: probability that each is part of the sum, shape (n,).
    """
    law = np.ones(1)
    for step, chance in zip(steps, chances, strict=True):
        if not step:
            continue
        longer = np.zeros(len(law) + step)
        longer[: len(law)] = (1.0 - chance) * law
        longer[step:] += chance * law
        law = longer[: max(int(np.flatnonzero(longer > _CUT)[-1]) + 1, 1)]
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    # No signs: an entry rounds four times per step, a tail once for each entry in its sum.
    above *= 1.0 + (4.0 * len(steps) + len(law)) * UNIT
    # An entry is dropped at most once. Add the mass of all entries to every tail.
    above = np.minimum(above + _CUT * (int(steps.sum()) + 1), 1.0)
    above[0] = 1.0
    return np.asarray(above)


def moved_up(above: Array, largest: int, unit: float, points: int = 64) -> Curve:
    """Return the mixture of Gaussians shifted by a sum, or by more, against no shift.

    A shift that is stochastically larger loses more (Lemma G).

    Args:
        above: bounds on P(sum >= k), from ``sums_above``.
        largest: largest possible sum.
        unit: shift of one integer step, in standard deviations.
        points: approximate number of different shifts.
    """
    top = int(np.argmax(above < _DROPPED))
    at = np.arange(top)
    wide = max(1, top // points)
    # Use fewer shifts where they hardly count. A shift of 0 stays 0.
    step = np.where(above[:top] < _RARE, 8 * wide, wide)
    at = -(-at // step) * step
    at = np.maximum.accumulate(at)
    # Mass beyond the table, or dropped from it, moves to the largest possible sum.
    beyond = float(above[top]) if top <= largest else 0.0
    weights = np.append(above[:top] - np.append(above[1:top], beyond), beyond)
    moves, index = np.unique(np.append(at, max(largest, int(at[-1]))), return_inverse=True)
    counts = np.bincount(index, weights)
    values = np.asarray(rounded_up(moves * unit, THOUSANDS), dtype=np.float64)
    return shifts(values, counts / counts.sum())
