"""Poisson sampling of rounds with correlated noise, row by row: conditional composition.

Given the rows before, the probability that a unit was drawn for round j is at most a number p_ij,
except for pasts of small total probability. So row i loses at most as much as a sum of C_ij drawn
independently with probabilities p_ij. The rows compose, and the small probability is revealed.
Source: Choquette-Choo, Ganesh, Steinke and Thakurta (2024), restated and proved as Theorem H of
docs/theory/correlated_noise.md, for any C by its absolute values (Theorem A).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from ..loss import Atoms, Curve, compose
from ..rounding import TENS, rounded_down
from .shifted import moved_up, sums_above

Array = NDArray[np.float64]
UNLIKELY = 1e-13
"""Total probability of the excluded pasts; it is added to delta."""

MOST_ROUNDS = 512
"""Most rounds with separate rows; more take too long."""

_BLOCKS = 12
"""Number of blocks of rows; each row counts as the worst of its block."""
_FINE = 256
"""Entries are rounded up to multiples of the largest entry divided by this number."""
_UP = 1.0 + 1e-9
_ORDERS = (1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 32.0, 64.0, 128.0)
_CELLS = 2048
_FARTHEST = 350.0
"""Largest half reach of a grid: the exponential of the full reach is still a double."""

Parts = list[tuple[Curve, int]]


def rows_of(
    matrix: Array, probability: float, multiplier: float, unlikely: float = UNLIKELY
) -> Parts:
    """Return the curves of rows for likely pasts, with the number of rows of each.

    Args:
        matrix: |C|, shape (m, n), rows in any order that does not depend on data.
        probability: q, of every unit in every round, above 0 and below 1.
        multiplier: noise multiplier z.
        unlikely: total probability of the excluded pasts.
    """
    unit = float(matrix.max()) / _FINE
    # Keep a quotient that is an integer up to rounding; ``moved_up`` covers the error.
    steps = np.ceil(rounded_down(matrix / unit, TENS)).astype(np.int64)
    # Every nonzero entry counts, however small.
    steps = np.maximum(steps, matrix > 0.0)
    parts: Parts = []
    for few in np.array_split(np.arange(len(matrix)), min(_BLOCKS, len(matrix))):
        chances = _chances(matrix, few, probability, multiplier, unlikely)
        sums = [sums_above(steps[i], own) for i, own in zip(few, chances, strict=True)]
        # The larger of two tails at every point is the tail of a law above both.
        above = np.zeros(max(map(len, sums)))
        for one in sums:
            above[: len(one)] = np.maximum(above[: len(one)], one)
        largest = int(steps[few].sum(axis=1).max())
        parts.append((moved_up(above, largest, unit / multiplier), len(few)))
    return parts


def revealed(parts: Parts) -> float:
    """Return the probability of full revelation that pays for unlikely pasts.

    A bound that holds except for a probability d in either orientation dominates once d / (1 - TV)
    is revealed. The reason is that 1 - delta >= 1 - TV is left at every epsilon >= 0. Also 1 - TV
    >= exp(-KL) / 2 (Bretagnolle and Huber 1979), and the divergence of order 2 is at least KL. If
    rows lose very much, the result can be 1 or above, and it gives no bound.
    """
    divergence = sum(count * curve.moments().log_moment(2.0) for curve, count in parts)
    return 2.0 * UNLIKELY * math.exp(min(divergence, 700.0)) * _UP


def unless_unlikely(parts: Parts, mass: float) -> Curve:
    """Return the composed rows, with full revelation at a probability below 1; see ``revealed``."""
    return compose([*parts, (Atoms(((0.0, 1.0 - mass),), infinite=mass, vanishing=mass), 1)])


def rough_epsilon_of_rows(parts: Parts) -> float:
    """Return an approximate epsilon at delta = 1e-5 to choose among curves; it is not certified."""
    moments = _by_moments(parts)
    reach = 2.0 * min(moments, _FARTHEST)
    edges = np.linspace(-reach, reach, _CELLS + 1)
    spectrum = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
    for curve, count in parts:
        # Masses of cells, the one around loss 0 first. The last cell holds everything beyond.
        beyond = np.exp(curve.tails(edges).p_above)
        beyond[0], beyond[-1] = 1.0, 0.0
        spectrum *= np.fft.rfft(np.roll(-np.diff(beyond), -_CELLS // 2)) ** count
    masses = np.roll(np.fft.irfft(spectrum, _CELLS), _CELLS // 2)
    losses = 0.5 * (edges[1:] + edges[:-1])
    above = np.cumsum(masses[::-1])[::-1]
    other = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
    found = float(edges[int(np.argmax(above - np.exp(losses) * other <= 1e-5))])
    # Mass beyond the grid is in its last cell.
    return found if found < 0.99 * reach else moments


def _by_moments(parts: Parts) -> float:
    costs = (
        (sum(count * curve.moments().log_moment(order) for curve, count in parts) + math.log(1e5))
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
    """Return bounds p_ij on probabilities given likely pasts, shape (rows, n)."""
    drawn = matrix > 0.0
    # Two events for every entry: its weighted noise is large, or its weighted company is large.
    each = unlikely / (2.0 * max(int(drawn.sum()), 1))
    reach = -float(ndtri(each)) * _UP
    squares = matrix**2
    # Sum the rows before, without a difference that would lose small values after a large row.
    lengths = np.vstack([np.zeros_like(squares[:1]), np.cumsum(squares, axis=0)[:-1]])[rows]
    company = _company(matrix[: rows[-1]], probability, each)
    log_odds = reach * np.sqrt(lengths) / multiplier + company / multiplier**2
    # Subtract half a square, rounded down.
    log_odds = (log_odds - 0.5 * lengths / multiplier**2 * (1.0 - 1e-9)) * _UP
    # If no earlier row depends on a round, its probability is the prior one.
    log_odds = np.where(lengths > 0.0, np.maximum(log_odds, 0.0), 0.0)
    log_odds += math.log(probability) - math.log1p(-probability)
    # Log-odds up to some thousands have a smaller error than the added margin.
    return np.asarray(np.minimum(expit(log_odds) * _UP, 1.0))


def _company(before: Array, probability: float, unlikely: float) -> Array:
    """Return for every round a bound on the sum over drawn rounds j' of <c_j, c_j'>.

    The sum exceeds it with probability at most ``unlikely``. By Chernoff any tilt gives a bound, so
    the best of a few tilts is valid.

    Args:
        before: rows before, shape (i, n).
        probability: of every round.
        unlikely: probability that the sum exceeds its bound, for each round.
    """
    products = before.T @ before * (1.0 + len(before) * 4e-16)
    largest = np.maximum(products.max(axis=1, initial=0.0), 1e-300)
    best = products.sum(axis=1)
    for tilt in np.geomspace(0.25, 64.0, 20):
        tilts = tilt / largest
        logs = np.log1p(probability * np.expm1(products * tilts[:, None])).sum(axis=1)
        best = np.minimum(best, (logs - math.log(unlikely)) / tilts)
    return np.asarray(best * _UP)
