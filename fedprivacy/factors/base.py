"""Base classes of factors: the matrix C whose inverse makes each round's noise from all draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import MODERATE, refuse
from ..rounding import HALF_SPACING, SPACING
from .interval import Array, Interval, columns, disjoint, toeplitz
from .participation import Participation

DENSE_ROUNDS = 4096
"""Most rounds for a dense matrix."""
MOST_PRODUCTS = 500_000_000
"""Largest product of bands and rounds when a series is inverted."""
ROWS = 256
"""Rows of a series that are inverted at once."""


@dataclass(frozen=True)
class Recurrence:
    """How the noise e of a round follows from a memory of the rounds before.

    The memory is ``slots`` vectors s. Let z be the round's own draw. Then e = m + z / diagonal,
    with m = weights . s. Without ``decays`` the slots then move back by one, and e (or e - m, with
    ``inputs``) becomes the first. With ``decays`` each slot becomes decay * s + e.

    Args:
        weights: shape (slots,).
        decays: shape (slots,); None if the memory is a window.
        inputs: whether the window holds draws z; otherwise it holds the noise e.
        diagonal: of C, in this row.
    """

    weights: Array
    decays: Array | None = None
    inputs: bool = False
    diagonal: float = 1.0


class Factor(ABC):
    """A lower-triangular matrix C with a positive diagonal, for any number of rounds.

    A run adds C^-1 z to its rounds' sums. z has independent entries of one std. This is a function
    of C x + z, which has the loss of one Gaussian: std over ``sensitivity``.
    """

    @abstractmethod
    def matrix(self, rounds: int) -> Array:
        """Return C, shape (rounds, rounds); for a tree, (nodes, rounds).

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
        """Return the matrix applied to the draws, shape (rounds, draws): C^-1, or a tree's."""

    def check(self, rounds: int, participation: Participation) -> None:  # noqa: B027
        """Raise ParameterError if the factor does not fit the run."""

    def leading(self, rows: int, rounds: int) -> Factor:
        """Return the factor of the first ``rows`` rounds of ``rounds``: the leading block of C."""
        del rows, rounds
        return self

    def block(self, rounds: int) -> int:
        """Return the number of rounds until the noise restarts; here, all rounds."""
        return rounds

    def slots(self, rounds: int) -> int:
        """Return the number of model-sized vectors that a run keeps."""
        return rounds

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return the recurrence for row ``row`` of the noise."""
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
    """A factor whose entry in row i and column j depends only on i - j."""

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
        """Return the number of coefficients that may be nonzero."""
        return rounds

    def matrix(self, rounds: int) -> Array:
        """Return C."""
        check_dense(rounds, type(self).__name__)
        return lower_toeplitz(self.coefficients(rounds))

    def magnitudes(self, rounds: int) -> Array:
        """Return the entries' absolute values plus the error bound of the coefficients."""
        return np.abs(self.matrix(rounds)) * (1.0 + self.error(rounds) + SPACING)

    def noise_matrix(self, rounds: int) -> Array:
        """Return C^-1."""
        check_dense(rounds, type(self).__name__)
        return lower_toeplitz(self.inverse(rounds))

    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return the sensitivity by the theorem for disjoint columns or decreasing coefficients.

        Patterns of fixed epochs also have the minimum separation. The worst pattern of that rule,
        0, b, 2 b, ..., is a pattern of fixed epochs.
        """
        found = self.coefficients(rounds)
        gap, most = participation.gap(rounds), participation.most(rounds)
        # One participation, or bands up to the gap: no two columns of a unit share a row.
        if most == 1 or self.width(rounds) <= gap:
            return disjoint(found, gap, most, self.error(rounds))
        return toeplitz(found, gap, most, self.error(rounds))


class DenseFactor(Factor):
    """A factor held as a matrix."""

    def sensitivity(self, rounds: int, participation: Participation) -> Interval:
        """Return the sensitivity by ``columns``."""
        gap, most = participation.gap(rounds), participation.most(rounds)
        return columns(self.matrix(rounds), gap, most, participation.together)


def lower_toeplitz(column: Array) -> Array:
    """Return the lower-triangular Toeplitz matrix with this first column."""
    rounds = len(column)
    # Windows over one padded vector are views; only the result is copied.
    padded = np.concatenate([np.zeros(rounds - 1), column])
    rows = np.lib.stride_tricks.sliding_window_view(padded, rounds)
    return np.ascontiguousarray(rows[:, ::-1])


def inverse_series(column: Array, rounds: int) -> Array:
    """Return the first coefficients of 1 over a power series with constant term above 0.

    It uses forward substitution on blocks of rows. A coefficient is rounded as in a plain loop: at
    most once per product, once per sum and once by the constant term.

    Raises:
        ParameterError: more products than fit in about a second.
    """
    # Few programs need this, and the import takes as long as ten of our modules.
    from scipy.linalg.blas import dtrsv

    width = min(len(column), rounds) - 1
    if width * rounds > MOST_PRODUCTS:
        rule = (
            f"be at most {1 + MOST_PRODUCTS // rounds} over {rounds} rounds: more takes longer "
            "than a second"
        )
        refuse("bands", width + 1, rule, "SquareRootToeplitz() is the limit for many bands")
    rows = min(rounds, ROWS)
    padded = np.concatenate([column[: width + 1], np.zeros(rows)])
    here = lower_toeplitz(padded[:rows])
    # Contribution of the rounds before to a block: row i uses entries i + 1 and later.
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
    # Any container of numbers: arrays, lists of numpy scalars, records read from JSON.
    ((name, values),) = named.items()
    try:
        found = tuple(float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        refuse(name, values, "be a sequence of numbers")
    if not found or not np.all(np.isfinite(found)):
        refuse(name, values, "be one or more finite numbers")
    if max(map(abs, found)) > MODERATE[1]:
        refuse(name, max(map(abs, found)), f"be at most {MODERATE[1]:g} in absolute value")
    return found
