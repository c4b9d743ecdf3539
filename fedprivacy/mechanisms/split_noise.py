"""Rounds drawn in secret with correlated noise: every bin of rounds gets a share of the noise.

Rounds are cut into bins. Row i of the run is a sum over the bins, and its noise is a sum of
independent parts, one for each bin, whose variances are shares of the row's. So the run is a
function of the bins' releases, and these compose. A bin is one Gaussian mechanism, and a unit takes
part in it with a bounded probability, whatever it did before. Source: Theorem J of
docs/theory/correlated_noise.md, with its proof.
"""

from __future__ import annotations

import math
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedCombination
from ..loss import Curve, Gdp, Sampled
from ..rounding import SPACING, TENS, rounded_up
from .draws import Parts, epsilon_by_moments
from .shifted import moved_up, sums_above

Array = NDArray[np.float64]
MOST_ENTRIES = 500_000
"""Most entries of a matrix above 0; more take seconds."""
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_CORRECTIONS = 12
_FEW = 3
"""Number of corrections before widths are chosen."""
_KEPT = 3
"""Number of widths that are kept: the best one depends on delta."""
_LEAST = 1e-100
"""Entries above 0 count as at least this part of the largest, so that no square underflows."""


def is_small(matrix: Array) -> bool:
    """Return whether the noise can be split in reasonable time."""
    return int(np.count_nonzero(matrix)) <= MOST_ENTRIES


def bins_of_rounds(
    matrix: Array, probability: float, separation: int, multiplier: float
) -> list[Parts]:
    """Return curves that dominate a run, with their counts; none if the matrix is too large.

    Of all widths those are taken that lose least by Renyi divergences, where one round of a bin
    counts.

    Args:
        matrix: |C|, shape (m, n).
        probability: q, the chance of a round that is not too close to another one, below 1.
        separation: b, the fewest rounds from one participation to the next. A bin has at most b
            rounds, or any number if b = 1.
        multiplier: noise multiplier z.
    """
    if not is_small(matrix):
        return []
    rounds = matrix.shape[1]

    def shift(width: int, corrections: int) -> float:
        length = math.sqrt(float(_Entries(matrix, width).squares(corrections)[1].max()))
        return float(rounded_up(length / multiplier, _error(matrix)))

    def once(width: int, moved: float) -> Parts:
        # The unit takes part in one of W rounds, or in none.
        drawn = rounded_up(-math.expm1(width * math.log1p(-probability)), TENS)
        one: Curve = Gdp(moved)
        return [(Sampled(one, drawn) if drawn < 1.0 else one, -(-rounds // width))]

    def parts(width: int) -> Parts:
        moved = shift(width, _CORRECTIONS)
        if width <= separation:
            return once(width, moved)
        above = sums_above(np.ones(width, dtype=np.int64), np.full(width, probability))
        return [(moved_up(above, width, moved), -(-rounds // width))]

    most = rounds if separation == 1 else min(separation, rounds)
    widths = (width for width in _WIDTHS if width <= most)
    best = nsmallest(_KEPT, widths, key=lambda w: epsilon_by_moments(once(w, shift(w, _FEW))))
    # Single rounds are best for small losses, where Renyi divergences are a poor guide.
    return [parts(width) for width in dict.fromkeys([*best, 1])]


def longest(matrix: Array) -> float:
    """Return the length of the longest column if every column has a share of the noise.

    Args:
        matrix: |C|, shape (m, n).

    Raises:
        UnsupportedCombination: the matrix is too large.
    """
    if not is_small(matrix):
        raise UnsupportedCombination(
            f"noise is split among the rounds of a group for at most {MOST_ENTRIES} entries of the "
            f"factor, got {np.count_nonzero(matrix)}; use Banded(p) with p <= b, or more groups"
        )
    square = float(_Entries(matrix, 1).squares(_CORRECTIONS)[1].max())
    return rounded_up(math.sqrt(square), _error(matrix))


def kernel_of_epochs(matrix: Array, places: int, multiplier: float) -> Array | None:
    """Return a kernel that dominates those of all epochs, shape (places, places).

    Args:
        matrix: |C|, shape (m, n).
        places: rounds of an epoch, a bin; a unit takes part in one.
        multiplier: noise multiplier z.

    Returns:
        None if the matrix is too large.
    """
    if not is_small(matrix):
        return None
    entries, apart = _Entries(matrix, places), np.zeros_like(matrix)
    apart[entries.rows, entries.columns] = np.sqrt(entries.squares(_CORRECTIONS)[0]) / multiplier
    epochs = apart.reshape(len(apart), -1, places).transpose(1, 2, 0)
    gram = (epochs @ epochs.transpose(0, 2, 1)).max(axis=0)
    return np.asarray(rounded_up(gram, _error(matrix)))


class _Entries:
    """The entries of |C| above 0, in bins of consecutive columns."""

    def __init__(self, matrix: Array, width: int) -> None:
        self.rows, self.columns = np.nonzero(matrix)
        self._size = matrix.shape[1]
        self._squares = np.maximum(matrix[self.rows, self.columns], _LEAST * matrix.max()) ** 2
        # Entries come row by row: those of one bin in one row are consecutive.
        place = self.rows * self._size + self.columns // width
        self._starts = np.flatnonzero(np.diff(place, prepend=-1))
        self._counts = np.diff(np.append(self._starts, len(place)))
        lines = self.rows[self._starts]
        self._firsts = np.flatnonzero(np.diff(lines, prepend=-1))
        self._bins = np.diff(np.append(self._firsts, len(lines)))

    def squares(self, corrections: int) -> tuple[Array, Array]:
        """Return squares of entries over their bin's share of the row, and their sums by column.

        The shares make the largest sum small. They need no proof: any shares are valid.

        Returns:
            shapes (entries,) and (n,).
        """
        weights, found, sums = np.ones(self._size), self._squares, np.full(self._size, math.inf)
        for _ in range(corrections):
            # Shares in proportion to these roots have the least weighted sum (Cauchy, Schwarz).
            weighted = self._squares * weights[self.columns]
            roots = np.sqrt(np.add.reduceat(weighted, self._starts))
            totals = np.repeat(np.add.reduceat(roots, self._firsts), self._bins)
            each = self._squares * np.repeat(totals / roots, self._counts)
            total = np.bincount(self.columns, each, minlength=self._size)
            if total.max() < sums.max():
                found, sums = each, total
            weights = np.maximum(weights * (total / total.max()) ** 4, 1e-6)
        return found, sums


def _error(matrix: Array) -> float:
    """Return the relative error of sums over a column: all terms have one sign."""
    return 4.0 * (sum(matrix.shape) + 16.0) * SPACING
