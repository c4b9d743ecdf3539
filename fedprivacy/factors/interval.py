"""Certified sensitivities: change of the encoded sum by a unit, for its worst pattern.

C has a row for every release and a column for every round. A unit adds vectors of norm at most 1 in
the rounds S. So C X changes by sqrt(sum over i, j in S of G_ij <x_i, x_j>), G = C'C, for any
dimension of the vectors. With G >= 0 the maximum is at equal vectors: |C 1_S|. With signs it is at
most sqrt(sum of |G_ij|), and at least |C s| for any signs s on S. Sums of products are rounded
outwards: ``lower <= truth <= upper``. Proofs: docs/theory/correlated_noise.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..rounding import HALF_SPACING

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Lower and upper end of an interval that contains a number."""

    lower: float
    upper: float


def outward(low_square: float, high_square: float, terms: float) -> Interval:
    """Return square roots of two sums, moved outwards by the error of ``terms`` roundings."""
    # Sixteen more for the root, the products and this line itself.
    slack = (terms + 16.0) * HALF_SPACING
    # A root halves a relative error, so twice the slack is more than enough.
    lower = math.sqrt(max(low_square, 0.0)) * (1.0 - 2.0 * slack)
    return Interval(max(lower, 0.0), math.sqrt(max(high_square, 0.0)) * (1.0 + 2.0 * slack))


def comb_square(coefficients: Array, gap: int, most: int) -> float:
    """Return |sum of columns 0, gap, 2 gap, ...|^2 of a lower-triangular Toeplitz matrix.

    Args:
        coefficients: the first column, shape (n,).
        gap: b.
        most: number of columns.
    """
    return float(np.sum(comb(coefficients, gap, most) ** 2))


def comb(coefficients: Array, gap: int, most: int) -> Array:
    """Return the sum of columns 0, gap, 2 gap, ... of a lower-triangular Toeplitz matrix."""
    rounds = len(coefficients)
    count = min(most, -(-rounds // gap))
    # Running sums along the comb need n additions; column by column needs n k.
    if gap * count >= rounds and count > 1:
        padded = np.zeros(gap * count)
        padded[:rounds] = coefficients
        return np.cumsum(padded.reshape(count, gap), axis=0).reshape(-1)[:rounds]
    return _window(coefficients, gap, count)


def _window(coefficients: Array, gap: int, count: int) -> Array:
    """Return the sum of ``count`` columns, by doubling: from sums of 1, 2, 4, ... columns.

    It never subtracts, because a difference of running sums would lose digits. It is for fewer
    columns than would fit.
    """
    rounds, placed, size = len(coefficients), 0, 1
    total, block = np.zeros(rounds), coefficients
    while placed < count:
        if count & size:
            total[placed * gap :] += block[: rounds - placed * gap]
            placed += size
        if placed < count:
            block = block.copy()
            block[size * gap :] += block[: rounds - size * gap].copy()
            size *= 2
    return total


def toeplitz(coefficients: Array, gap: int, most: int, error: float) -> Interval:
    """Return the sensitivity of a lower-triangular Toeplitz matrix.

    For decreasing and non-negative coefficients the worst pattern is 0, b, 2 b, ... (Kalinin and
    Lampert 2024, Theorem 2). For others, the upper end uses the least decreasing sequence above
    their absolute values. The lower end uses one pattern and one column.

    Args:
        coefficients: the first column as computed, shape (n,).
        gap: b, the fewest rounds between participations.
        most: k, the largest number of participations.
        error: relative error of each coefficient.
    """
    above = np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]
    # A square doubles its coefficient's error. Sums along rows and columns round once a term.
    spread = 2.0 * error / HALF_SPACING + len(coefficients) + most
    single = float(np.sum(coefficients**2))
    # One participation is a pattern too.
    low = max(comb_square(coefficients, gap, most), single)
    if np.any(coefficients < 0.0):
        # Sums with cancellation lose relative precision. One column, a sum of squares, does not.
        low = single
    return outward(low, comb_square(above, gap, most), spread)


def disjoint(coefficients: Array, gap: int, most: int, error: float) -> Interval:
    """Return the sensitivity if a unit's columns share no row: sqrt(k) times that of one column.

    Args:
        coefficients: the first column, of at most ``gap`` bands, any signs.
        gap: b.
        most: k.
        error: relative error of each coefficient.
    """
    rounds = len(coefficients)
    # Later columns are shorter, and participation r is in round r b at the earliest.
    heads = np.cumsum(coefficients**2)
    total = float(np.sum(heads[rounds - 1 - gap * np.arange(most)]))
    return outward(total, total, 2.0 * error / HALF_SPACING + rounds + most)


def columns(matrix: Array, gap: int, most: int, together: bool) -> Interval:
    """Return the sensitivity of any matrix.

    For fixed epochs with G >= 0 and no limit below the number of epochs it is exact
    (Choquette-Choo, McMahan, Rush and Thakurta 2023). Otherwise the upper end comes from a dynamic
    programme. A unit of pattern S changes C X by sum_{i in S} sum_{j in S} |G_ij|. The inner sum is
    at most that of the best pattern through i. The outer sum is at most that of the best pattern of
    these values. The lower end is the best pattern found.

    Args:
        matrix: C, shape (m, n).
        gap: b.
        most: k.
        together: whether rounds are exactly ``gap`` apart, or a multiple of ``gap``.
    """
    gram = matrix.T @ matrix
    # A product of m terms has a rounding error of about m HALF_SPACING times the absolute sum.
    loss = len(matrix) * HALF_SPACING * (np.abs(matrix).T @ np.abs(matrix))
    # Twice, because the bound itself was computed with rounding.
    high = np.abs(gram) + 2.0 * loss
    terms = float(len(matrix) + 2 * most * most + 8)
    classes = [np.arange(j, len(gram), gap) for j in range(gap)] if together else None
    if classes is None:
        upper = float(_best_sums(_row_sums(high, gap, most)[None, :], gap, most)[0])
        return outward(_found(matrix, gap, most), upper, terms)
    upper, lower = 0.0, 0.0
    for rows in classes:
        part = high[np.ix_(rows, rows)]
        # The best rows, each with its best columns: at least every pattern of the class.
        kept = np.sort(part, axis=1)[:, ::-1][:, :most].sum(axis=1)
        upper = max(upper, float(np.sort(kept)[::-1][:most].sum()))
        # Any signs on any pattern give a lower bound.
        lower = max(lower, _signed_square(matrix[:, rows[:most]]))
    return outward(lower, upper, terms)


def _signed_square(chosen: Array) -> float:
    """Return a value of |C s|^2 for chosen columns, with signs s chosen one by one."""
    total = np.zeros(len(chosen))
    size = 0.0
    for column in chosen.T:
        # Take the sign that makes the sum longer. A poor choice only widens the interval.
        total = total + column if float(total @ column) >= 0.0 else total - column
        size += float(np.linalg.norm(column))
    # Rounding errors scale with the terms, not with their sum.
    norm = float(np.linalg.norm(total)) - len(chosen.T) * HALF_SPACING * 2.0 * size
    return max(norm, 0.0) ** 2


def _row_sums(gram: Array, gap: int, most: int) -> Array:
    """Return for every round i a bound on sum_j gram_ij over patterns through i."""
    rounds = len(gram)
    # Rounds closer than the gap exclude each other; the diagonal is added separately.
    near = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds))) < gap
    others = np.where(near, 0.0, gram)
    return np.diag(gram) + _best_sums(others, gap, most - 1)


def _best_sums(weights: Array, gap: int, most: int) -> Array:
    """Return, for every row of weights, its largest sum over a pattern of at most ``most``."""
    count, rounds = weights.shape
    if most <= 0:
        return np.zeros(count)
    best = np.zeros((rounds + 1, count))
    for _ in range(most):
        following = np.zeros((rounds + 1, count))
        for i in range(1, rounds + 1):
            # The best of one participation fewer, earlier by at least the gap.
            taken = weights[:, i - 1] + best[max(i - gap, 0)]
            np.maximum(following[i - 1], taken, out=following[i])
        # No room for more: further passes change nothing.
        if np.array_equal(following, best):
            break
        best = following
    return np.asarray(best[-1])


def _found(matrix: Array, gap: int, most: int) -> float:
    """Return the largest |C s|^2 over patterns of equal steps."""
    rounds = matrix.shape[1]
    best = 0.0
    # A lower end may miss patterns, so few starts are enough. One participation uses all starts.
    for start in range(rounds if most == 1 else min(rounds, 4 * gap)):
        best = max(best, _signed_square(matrix[:, start::gap][:, :most]))
    return best
