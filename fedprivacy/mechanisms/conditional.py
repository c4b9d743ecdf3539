"""Rounds drawn in secret with correlated noise, row by row: conditional composition.

Given the rows before, the probability that a unit was drawn for round j is at most a number p_ij,
except for pasts of small total probability. So row i loses at most as much as a sum of C_ij drawn
independently with probabilities p_ij (one of an epoch, if a unit has one round in it). The rows
compose, and the small probability is revealed. Source: Choquette-Choo, Ganesh, Steinke and Thakurta
(2024), restated and proved as Theorem H of docs/theory/correlated_noise.md, for any C by its
absolute values (Theorem A), and as Theorem I for other draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from ..loss import Atoms, Curve, compose
from ..rounding import TENS, rounded_down
from .shifted import moved_up, sums_above

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
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


@dataclass(frozen=True)
class Repeated:
    """A unit takes part in a round with a probability, unless it did in the rounds just before.

    Args:
        probability: q, above 0 and below 1.
        separation: b, the fewest rounds from one participation to the next; 1 is Poisson sampling.
    """

    probability: float
    separation: int = 1

    @property
    def together(self) -> int:
        """Number of consecutive rounds of which at most one is counted."""
        return 1

    def chances(self, matrix: Array, rows: Rows, multiplier: float, unlikely: float) -> Array:
        """Return bounds p_ij on probabilities given likely pasts; see ``_chances``."""
        lengths = _rows_before(matrix**2, rows)
        company = _company(matrix[: rows[-1]], self._log_means, unlikely)
        log_odds = _reach(unlikely) * np.sqrt(lengths) / multiplier + company / multiplier**2
        # Subtract half a square, rounded down.
        log_odds = (log_odds - 0.5 * lengths / multiplier**2 * (1.0 - 1e-9)) * _UP
        # If no earlier row depends on a round, its probability is the prior one.
        log_odds = np.where(lengths > 0.0, np.maximum(log_odds, 0.0), 0.0)
        # In a round's place the unit may be left out of all rounds that it blocks.
        blocked = self.separation * math.log1p(-self.probability) * _UP
        log_odds += math.log(self.probability) - blocked
        # Log-odds up to some thousands have a smaller error than the added margin.
        return np.asarray(np.minimum(expit(log_odds) * _UP, 1.0))

    def _log_means(self, products: Array) -> Array:
        """Return the log-mean of the exponential of a unit's sum, or more, shape (n,)."""
        return np.asarray(np.log1p(self.probability * np.expm1(products)).sum(axis=1))


@dataclass(frozen=True)
class OnceAnEpoch:
    """A unit takes part in one round of every epoch, drawn uniformly and anew.

    Args:
        places: b, rounds of an epoch; it divides the number of rounds.
    """

    places: int

    @property
    def together(self) -> int:
        """Number of consecutive rounds of which at most one is counted."""
        return self.places

    def chances(self, matrix: Array, rows: Rows, multiplier: float, unlikely: float) -> Array:
        """Return bounds p_ij on probabilities given likely pasts; see ``_chances``."""
        mean = self._means(matrix)
        lengths = _rows_before(matrix**2, rows)
        spread = _rows_before((matrix - mean) ** 2, rows)
        before = matrix[: rows[-1]]
        # In other epochs the unit may be where the mean of this epoch's columns counts most.
        met = self._blocks(mean[: len(before), :: self.places].T @ before).max(axis=2)
        np.fill_diagonal(met, 0.0)
        company = _company(before, self._log_means, unlikely)
        company += np.repeat(met.sum(axis=1), self.places) * _UP
        log_share = _reach(unlikely) * np.sqrt(spread) / multiplier + company / multiplier**2
        log_share += 0.5 * (self._means(lengths) * _UP - lengths * (1.0 - 1e-9)) / multiplier**2
        # Differences of columns and of squares err by a few units of the terms.
        size = _reach(unlikely) * np.sqrt(lengths) / multiplier + lengths / multiplier**2
        log_share = np.maximum(log_share, 0.0) * _UP + 1e-12 * (1.0 + size)
        return np.asarray(np.minimum(np.exp(np.minimum(log_share, 700.0)) / self.places, 1.0))

    def _blocks(self, values: Array) -> Array:
        return values.reshape(len(values), -1, self.places)

    def _means(self, values: Array) -> Array:
        """Return every entry's mean over the rounds of its epoch."""
        return np.repeat(self._blocks(values).mean(axis=2), self.places, axis=1)

    def _log_means(self, products: Array) -> Array:
        """Return the log-mean of the exponential of a unit's sum, or more, shape (n,)."""
        return np.asarray(np.log1p(self._blocks(np.expm1(products)).mean(axis=2)).sum(axis=1))


Draw = Repeated | OnceAnEpoch


def rows_of(matrix: Array, draw: Draw, multiplier: float, unlikely: float = UNLIKELY) -> Parts:
    """Return the curves of rows for likely pasts, with the number of rows of each.

    Args:
        matrix: |C|, shape (m, n), rows in any order that does not depend on data.
        draw: how a unit's rounds are drawn.
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
        chances = _chances(matrix, few, draw, multiplier, unlikely)
        sums = [
            sums_above(steps[i], own, draw.together) for i, own in zip(few, chances, strict=True)
        ]
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
    matrix: Array, rows: Rows, draw: Draw, multiplier: float, unlikely: float = UNLIKELY
) -> Array:
    """Return bounds p_ij on probabilities given likely pasts, shape (rows, n)."""
    # Two events for every entry: its weighted noise is large, or its weighted company is large.
    each = unlikely / (2.0 * max(int((matrix > 0.0).sum()), 1))
    return draw.chances(matrix, rows, multiplier, each)


def _reach(unlikely: float) -> float:
    """Return a number that a standard normal one exceeds with probability at most ``unlikely``."""
    return -float(ndtri(unlikely)) * _UP


def _rows_before(values: Array, rows: Rows) -> Array:
    """Return the sums over the rows before each of some rows, all terms of one sign."""
    # A difference of sums would lose small values after a large row.
    return np.asarray(np.vstack([np.zeros_like(values[:1]), np.cumsum(values, axis=0)[:-1]])[rows])


def _company(before: Array, log_means: Callable[[Array], Array], unlikely: float) -> Array:
    """Return for every round a bound on the sum over drawn rounds j' of <c_j, c_j'>.

    The sum exceeds it with probability at most ``unlikely``. By Chernoff any tilt gives a bound, so
    the best of a few tilts is valid.

    Args:
        before: rows before, shape (i, n).
        log_means: of a draw: products of every round with all rounds -> the log-mean of the
            exponential of the sum over drawn rounds, or more.
        unlikely: probability that the sum exceeds its bound, for each round.
    """
    products = before.T @ before * (1.0 + len(before) * 4e-16)
    largest = np.maximum(products.max(axis=1, initial=0.0), 1e-300)
    best = products.sum(axis=1)
    for tilt in np.geomspace(0.25, 64.0, 20):
        tilts = tilt / largest
        logs = log_means(products * tilts[:, None])
        best = np.minimum(best, (logs - math.log(unlikely)) / tilts)
    return np.asarray(best * _UP)
