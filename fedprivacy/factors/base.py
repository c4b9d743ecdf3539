"""What a factor is: the matrix C whose inverse makes one round's noise out of all rounds' draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsv

from ..errors import MODERATE, refuse
from ..rounding import HALF_SPACING, SPACING
from .interval import Array, Interval, columns, disjoint, toeplitz
from .participation import Participation

DENSE_ROUNDS = 4096
"""Most rounds of which a dense matrix is made."""
MOST_PRODUCTS = 500_000_000
"""Bands times rounds of a series that is inverted."""
ROWS = 256
"""Of a series that are inverted at once."""


@dataclass(frozen=True)
class Recurrence:
    """How the noise e of a round follows from a memory of the rounds before.

    The memory is ``slots`` vectors s. With z the round's own draw, e = m + z / diagonal,
    m = weights . s. Then the slots are either moved back by one, e (or e - m, where ``inputs``)
    coming first, or, with ``decays``, each becomes decay * s + e.

    Args:
        weights: shape (slots,).
        decays: shape (slots,); None where the memory is a window.
        inputs: whether the window is of draws z, else of the noise e.
        diagonal: of C, in this row.
    """

    weights: Array
    decays: Array | None = None
    inputs: bool = False
    diagonal: float = 1.0


class Factor(ABC):
    """A lower-triangular matrix C with a positive diagonal, of as many rounds as are asked for.

    A run adds C^-1 z to its rounds' sums, z with independent entries of one std. That is a function
    of C x + z, whose loss is one Gaussian's: std over ``sensitivity``.
    """

    @abstractmethod
    def matrix(self, rounds: int) -> Array:
        """Return C, shape (rounds, rounds); of a tree, (nodes, rounds).

        Raises:
            ParameterError: it would not fit in memory, or the factor has another size.
        """

    def magnitudes(self, rounds: int) -> Array:
        """Return the entries' absolute values, rounded up; the shape is that of ``matrix``."""
        return np.abs(self.matrix(rounds))

    @abstractmethod
    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return certified ends of max |C X| over patterns and contributions of norm at most 1."""

    @abstractmethod
    def noise_matrix(self, rounds: int) -> Array:
        """Return what the draws are multiplied by, shape (rounds, draws): C^-1, or a tree's."""

    def check(self, rounds: int, participation: Participation) -> None:  # noqa: B027
        """Raise ParameterError where the factor cannot serve such a run."""

    def leading(self, rows: int, rounds: int) -> Factor:
        """Return the factor of the first ``rows`` rounds of ``rounds``: the leading block of C."""
        del rows, rounds
        return self

    def block(self, rounds: int) -> int:
        """Return after how many rounds the noise begins anew: all of them."""
        return rounds

    def slots(self, rounds: int) -> int:
        """Return how many vectors of the model's size a run keeps."""
        return rounds

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return how row ``row`` of the noise is made."""
        raise NotImplementedError


def check_dense(rounds: int, what: str) -> None:
    """Refuse a dense matrix that does not fit."""
    if rounds > DENSE_ROUNDS:
        gigabytes = 8e-9 * rounds * rounds
        refuse(
            "rounds",
            rounds,
            f"be at most {DENSE_ROUNDS} for {what}: its dense matrix takes {gigabytes:.3g} GB",
            "use Banded, BufferedToeplitz, BandedInverse or Tree",
        )


class ToeplitzFactor(Factor):
    """A factor whose entry in row i and column j depends on i - j alone."""

    @abstractmethod
    def coefficients(self, rounds: int) -> Array:
        """Return the first column of C, shape (rounds,)."""

    @abstractmethod
    def inverse(self, rounds: int) -> Array:
        """Return the first column of C^-1, shape (rounds,)."""

    def error(self, rounds: int) -> float:
        """Return a bound on the relative error of each of ``coefficients``."""
        # A running product of n quotients rounds twice at each; the rest is slack.
        return 4.0 * rounds * HALF_SPACING

    def width(self, rounds: int) -> int:
        """Return how many coefficients may not be 0."""
        return rounds

    def matrix(self, rounds: int) -> Array:
        """Return C."""
        check_dense(rounds, type(self).__name__)
        return lower_toeplitz(self.coefficients(rounds))

    def magnitudes(self, rounds: int) -> Array:
        """Return the entries' absolute values, with what coefficients may be off by."""
        return np.abs(self.matrix(rounds)) * (1.0 + self.error(rounds) + SPACING)

    def noise_matrix(self, rounds: int) -> Array:
        """Return C^-1."""
        check_dense(rounds, type(self).__name__)
        return lower_toeplitz(self.inverse(rounds))

    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return it by the theorem that fits: disjoint columns, or decreasing coefficients.

        Fixed epochs are among the patterns of the minimum separation, whose worst one, 0, b, 2 b,
        ..., is a pattern of fixed epochs.
        """
        found = self.coefficients(rounds)
        gap, most = participation.gap(rounds), participation.most(rounds)
        # One participation, or fewer bands than the gap: no two columns of a unit share a row.
        if most == 1 or self.width(rounds) <= gap:
            return disjoint(found, gap, most, self.error(rounds))
        return toeplitz(found, gap, most, self.error(rounds))


class DenseFactor(Factor):
    """A factor that is held as a matrix."""

    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return it by ``columns``."""
        gap, most = participation.gap(rounds), participation.most(rounds)
        return columns(self.matrix(rounds), gap, most, participation.together)


def lower_toeplitz(column: Array) -> Array:
    """Return the lower-triangular Toeplitz matrix with this first column."""
    rounds = len(column)
    # Windows over one padded vector are views; only the answer is copied.
    padded = np.concatenate([np.zeros(rounds - 1), column])
    rows = np.lib.stride_tricks.sliding_window_view(padded, rounds)
    return np.ascontiguousarray(rows[:, ::-1])


def inverse_series(column: Array, rounds: int) -> Array:
    """Return the first coefficients of 1 over a power series with constant term above 0.

    By forward substitution, some rows at a time: a coefficient is rounded as in a plain loop, at
    most once a product, once a sum and once by the constant term.

    Raises:
        ParameterError: more products than take a second.
    """
    width = min(len(column), rounds) - 1
    if width * rounds > MOST_PRODUCTS:
        rule = f"be at most {1 + MOST_PRODUCTS // rounds} over {rounds} rounds: it costs a second"
        refuse("bands", width + 1, rule, "SquareRootToeplitz() is the limit of many bands")
    rows = min(rounds, ROWS)
    padded = np.concatenate([column[: width + 1], np.zeros(rows)])
    here = lower_toeplitz(padded[:rows])
    # What the rounds before add to each of some rows: row i sees them through entries i + 1 on.
    before = np.lib.stride_tricks.sliding_window_view(padded, width)[1 : rows + 1, ::-1].copy()
    found = np.zeros(width + rounds)
    for start in range(0, rounds, rows):
        count = min(rows, rounds - start)
        right = -(before[:count] @ found[start : start + width])
        right[0] += start == 0
        found[width + start : width + start + count] = dtrsv(here[:count, :count].T, right, trans=1)
    return found[width:]


def as_numbers(**named: Any) -> tuple[float, ...]:
    """Check one ``name=numbers`` and return them as finite floats."""
    # Whatever holds numbers: arrays, lists of numpy scalars, records read from JSON.
    ((name, values),) = named.items()
    try:
        found = tuple(float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        refuse(name, values, "be a sequence of numbers")
    if not found or not np.all(np.isfinite(found)):
        refuse(name, values, "be finite numbers, at least one")
    if max(map(abs, found)) > MODERATE[1]:
        refuse(name, max(map(abs, found)), f"be at most {MODERATE[1]:g} in size")
    return found
