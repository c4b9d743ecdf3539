"""Poisson sampling of rounds whose noise is correlated, row after row: conditional composition.

Given the rows before, a unit's chance of having been drawn for round j is at most a number p_ij,
unless the past is of a kind that comes with little probability. So row i loses at most what a sum
of C_ij does that are drawn independently with chances p_ij, the rows compose, and the little
probability is revealed. Choquette-Choo, Ganesh, Steinke and Thakurta (2024), restated and proved as
Theorem H of docs/theory/correlated_noise.md, for any C by its absolute values (Theorem A).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from ..loss import Atoms, Curve, compose
from ..rounding import TENS
from .shifted import moved_up, sums_above

Array = NDArray[np.float64]
UNLIKELY = 1e-13
"""Probability of pasts that are not counted on, all together; it is added to delta."""

MOST_ROUNDS = 512
"""Rounds for which rows are told apart; more take long."""

_BLOCKS = 12
"""Rows are taken together in so many blocks, each row as the worst of its block."""
_FINE = 256
"""Parts of the largest entry that entries are rounded up to."""
_UP = 1.0 + 1e-9
_ORDERS = (1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 32.0, 64.0, 128.0)
_CELLS = 2048
_FARTHEST = 350.0
"""Half of a grid's reach at most: the exponential of all of it still is a double."""

Parts = list[tuple[Curve, int]]


def rows_of(
    matrix: Array, probability: float, multiplier: float, unlikely: float = UNLIKELY
) -> Parts:
    """Return what rows lose as long as the past is likely, with how many rows lose it.

    Args:
        matrix: |C|, shape (m, n), rows in any order that does not depend on data.
        probability: q, of every unit in every round, above 0 and below 1.
        multiplier: noise multiplier z.
        unlikely: probability of pasts that are not counted on, all together.
    """
    unit = float(matrix.max()) / _FINE
    # A quotient that is whole but for rounding stays what it is; ``moved_up`` pays.
    steps = np.ceil(matrix / unit * (1.0 - TENS)).astype(np.int64)
    # However small: no entry counts for nothing.
    steps = np.maximum(steps, matrix > 0.0)
    parts: Parts = []
    for few in np.array_split(np.arange(len(matrix)), min(_BLOCKS, len(matrix))):
        chances = _chances(matrix, few, probability, multiplier, unlikely)
        sums = [sums_above(steps[i], own) for i, own in zip(few, chances, strict=True)]
        # The larger of two tails at every place is the tail of a law above both.
        above = np.zeros(max(map(len, sums)))
        for one in sums:
            above[: len(one)] = np.maximum(above[: len(one)], one)
        largest = int(steps[few].sum(axis=1).max())
        parts.append((moved_up(above, largest, unit / multiplier), len(few)))
    return parts


def revealed(parts: Parts) -> float:
    """Return with what probability all is to be revealed, so that unlikely pasts are paid for.

    What holds but for a probability d in either orientation is dominated once d / (1 - TV) is
    revealed, since 1 - delta >= 1 - TV is left at every epsilon >= 0; 1 - TV >= exp(-KL) / 2
    (Bretagnolle and Huber 1979), and order 2's divergence is at least KL. At 1 or above, as where
    rows lose very much, nothing is left to be said.
    """
    divergence = sum(count * curve.log_moment(2.0) for curve, count in parts)
    return 2.0 * UNLIKELY * math.exp(min(divergence, 700.0)) * _UP


def unless_unlikely(parts: Parts, told: float) -> Curve:
    """Return rows composed, and all revealed with a probability below 1; see ``revealed``."""
    return compose([*parts, (Atoms(((0.0, 1.0 - told),), infinite=told, vanishing=told), 1)])


def rough_epsilon_of_rows(parts: Parts) -> float:
    """Return about the epsilon at delta = 1e-5, to choose among curves; it certifies nothing."""
    moments = _by_moments(parts)
    reach = 2.0 * min(moments, _FARTHEST)
    edges = np.linspace(-reach, reach, _CELLS + 1)
    spectrum = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
    for curve, count in parts:
        # Masses of cells, that around loss 0 first; what is beyond the last is in the last.
        beyond = np.exp(curve.tails(edges).p_above)
        beyond[0], beyond[-1] = 1.0, 0.0
        spectrum *= np.fft.rfft(np.roll(-np.diff(beyond), -_CELLS // 2)) ** count
    masses = np.roll(np.fft.irfft(spectrum, _CELLS), _CELLS // 2)
    losses = 0.5 * (edges[1:] + edges[:-1])
    above = np.cumsum(masses[::-1])[::-1]
    other = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
    found = float(edges[int(np.argmax(above - np.exp(losses) * other <= 1e-5))])
    # Beyond the grid all is in its last cell.
    return found if found < 0.99 * reach else moments


def _by_moments(parts: Parts) -> float:
    costs = (
        (sum(count * curve.log_moment(order) for curve, count in parts) + math.log(1e5))
        / (order - 1.0)
        for order in _ORDERS
    )
    return min(costs)


def _chances(
    matrix: Array,
    rows: NDArray[np.int64],
    probability: float,
    multiplier: float,
    unlikely: float = UNLIKELY,
) -> Array:
    """Return bounds p_ij on chances given likely pasts, shape (rows, n)."""
    drawn = matrix > 0.0
    # Two events for every entry: its weighted noise is large, or its weighted company is.
    each = unlikely / (2.0 * max(int(drawn.sum()), 1))
    reach = -float(ndtri(each)) * _UP
    squares = matrix**2
    # Of the rows before, never by a difference: small ones would be lost behind a large row.
    lengths = np.vstack([np.zeros_like(squares[:1]), np.cumsum(squares, axis=0)[:-1]])[rows]
    company = _company(matrix[: rows[-1]], probability, each)
    log_odds = reach * np.sqrt(lengths) / multiplier + company / multiplier**2
    # Less half a square, at least what it surely is.
    log_odds = (log_odds - 0.5 * lengths / multiplier**2 * (1.0 - 1e-9)) * _UP
    # Nothing before says anything of a round: its chance is as drawn.
    log_odds = np.where(lengths > 0.0, np.maximum(log_odds, 0.0), 0.0)
    log_odds += math.log(probability) - math.log1p(-probability)
    # A log-odds of at most some thousands is off by less than what is added.
    return np.asarray(np.minimum(expit(log_odds) * _UP, 1.0))


def _company(before: Array, probability: float, unlikely: float) -> Array:
    """Return for every round what sum over rounds drawn of <c_j, c_j'> it exceeds so unlikely.

    Chernoff: any tilt gives a bound, so the best of a few is one.

    Args:
        before: rows before, shape (i, n).
        probability: of every round.
        unlikely: probability that the sum exceeds its bound, of each.
    """
    products = before.T @ before * (1.0 + len(before) * 4e-16)
    largest = np.maximum(products.max(axis=1, initial=0.0), 1e-300)
    best = products.sum(axis=1)
    for tilt in np.geomspace(0.25, 64.0, 20):
        tilts = tilt / largest
        logs = np.log1p(probability * np.expm1(products * tilts[:, None])).sum(axis=1)
        best = np.minimum(best, (logs - math.log(unlikely)) / tilts)
    return np.asarray(best * _UP)
