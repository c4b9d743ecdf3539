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


def sums_above(steps: NDArray[np.int64], chances: Array, together: int = 1) -> Array:
    """Return bounds on P(sum >= k), k = 0, 1, ..., of integers included at random.

    The last bound is below ``_DROPPED``, and bounds every tail beyond.

    Args:
        steps: shape (n,), each at least 0.
        chances: bound on the probability that each is part of the sum, shape (n,).
        together: at most one of this many consecutive integers is included; groups are independent.
    """
    law = np.ones(1)
    for first in np.unique(np.flatnonzero(steps) // together) * together:
        law = _with_one_of(law, steps[first : first + together], chances[first : first + together])
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    # No signs: an entry rounds four times per step, a tail once for each entry in its sum.
    above *= 1.0 + (4.0 * len(steps) + len(law)) * UNIT
    # An entry is dropped at most once. Add the mass of all entries to every tail.
    above = np.minimum(above + _CUT * (int(steps.sum()) + 1), 1.0)
    above[0] = 1.0
    return np.asarray(above)


def _with_one_of(law: Array, steps: NDArray[np.int64], chances: Array) -> Array:
    """Return the law of a sum with one more integer or none, the largest as likely as may be."""
    longer = np.zeros(len(law) + int(steps.max()))
    rest = 1.0
    for k in np.argsort(-steps, kind="stable")[: np.count_nonzero(steps)]:
        chance = min(float(chances[k]), rest)
        rest -= chance
        longer[steps[k] : steps[k] + len(law)] += chance * law
    longer[: len(law)] += rest * law
    return longer[: max(int(np.flatnonzero(longer > _CUT)[-1]) + 1, 1)]


def spaced_sums(steps: NDArray[np.int64], probability: float, separation: int) -> Array:
    """Return P(sum >= k) of integers included with one probability, ``separation`` apart or more.

    Less may be returned: probabilities below ``_CUT`` are dropped.
    """
    free = [np.zeros(1) for _ in range(len(steps) + separation)]
    free[0] = np.ones(1)
    for i, step in enumerate(steps):
        # The law of the sum if the unit may take part in this round.
        law = free[i][: int(np.flatnonzero(free[i] > _CUT).max(initial=0)) + 1]
        free[i + 1] = _added(free[i + 1], (1.0 - probability) * law, 0)
        free[i + separation] = _added(free[i + separation], probability * law, int(step))
        # Free the memory of a law that is not used again.
        free[i] = np.zeros(0)
    law = np.zeros(1)
    for one in free[len(steps) :]:
        law = _added(law, one, 0)
    return np.append(np.cumsum(law[::-1])[::-1], 0.0)


def _added(law: Array, other: Array, moved: int) -> Array:
    """Return the sum of two laws, the second one moved up."""
    total = np.zeros(max(len(law), len(other) + moved))
    total[: len(law)] += law
    total[moved : moved + len(other)] += other
    return total


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


def moved_down(above: Array, unit: float, points: int = 256) -> Curve:
    """Return the mixture of Gaussians shifted by a sum, or by less, against no shift.

    A shift that is stochastically smaller loses less (Lemma G).

    Args:
        above: P(sum >= k), k = 0, 1, ..., with relative errors below 1e-9, and 1e-30 too much.
        unit: shift of one integer step, in standard deviations.
        points: approximate number of different shifts.
    """
    below = np.maximum(above * (1.0 - 1e-9) - 1e-30, 0.0)
    below[0] = 1.0
    wide = max(1, int(np.argmax(below < _DROPPED)) // points)
    moves, index = np.unique(np.arange(len(below)) // wide * wide, return_inverse=True)
    weights: Array = np.asarray(np.bincount(index, below - np.append(below[1:], 0.0)), np.float64)
    values: Array = np.asarray(moves * unit * (1.0 - THOUSANDS), np.float64)
    return shifts(values, weights)
