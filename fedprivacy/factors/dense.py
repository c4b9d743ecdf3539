"""Factors given as whole matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import MODERATE, refuse, require
from ..registry import registered
from .base import DenseFactor, Recurrence, check_dense
from .interval import Array
from .participation import Participation


@registered
@dataclass(frozen=True)
class Matrix(DenseFactor):
    """Any lower-triangular matrix with a positive diagonal.

    Args:
        array: shape (n, n); stored as the rows' entries up to the diagonal.

    Raises:
        ParameterError: not square, not finite, entries above the diagonal, or singular.
    """

    array: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        # Tuples hash, compare and go into records. A record's tuples are checked too.
        if not isinstance(self.array, tuple):
            object.__setattr__(self, "array", _rows(self.array))
        for i, row in enumerate(self.array):
            rule = f"have {i + 1} entries in row {i}, up to the diagonal"
            require(len(row) == i + 1, "array", len(row), rule)
            require(np.all(np.isfinite(row)), "array", list(row), "be finite")
            # Sums of squares of these entries stay within doubles.
            largest = max(map(abs, row))
            require(
                largest <= MODERATE[1],
                "array",
                largest,
                f"be at most {MODERATE[1]:g} in absolute value",
            )
            rule = "have a diagonal above 0, since drawing noise needs the inverse of C"
            require(row[i] > 0.0, "array", row[i], f"{rule} (row {i})")
        require(self.array, "array", self.array, "have at least one row")

    def __hash__(self) -> int:
        """Return the cached hash: the matrix may have half a million entries."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.array)

    @cached_property
    def _dense(self) -> Array:
        size = len(self.array)
        found = np.zeros((size, size))
        for i, row in enumerate(self.array):
            found[i, : i + 1] = row
        return found

    def check(self, rounds: int, participation: Participation) -> None:
        """Refuse another number of rounds."""
        if rounds != len(self.array):
            refuse("rounds", rounds, f"equal the size of the matrix, {len(self.array)}")

    def matrix(self, rounds: int) -> Array:
        """Return C, or its first rows and columns.

        Raises:
            ParameterError: more rounds than the matrix has.
        """
        if rounds > len(self.array):
            refuse("rounds", rounds, f"be at most the size of the matrix, {len(self.array)}")
        return self._dense[:rounds, :rounds]

    def leading(self, rows: int, rounds: int) -> Matrix:
        """Return the first rows and columns."""
        return Matrix(self.array[:rows])

    def noise_matrix(self, rounds: int) -> Array:
        """Return C^-1."""
        return np.asarray(np.linalg.inv(self.matrix(rounds)), dtype=np.float64)

    def slots(self, rounds: int) -> int:
        """Return all rounds but one."""
        return rounds - 1

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return the window of all noise before, the latest first."""
        entries = self._dense[row]
        weights = np.zeros(rounds - 1)
        # Forward substitution: C e = z, solved for this row's e.
        weights[:row] = -entries[:row][::-1] / entries[row]
        return Recurrence(weights, diagonal=float(entries[row]))


def _rows(array: Any) -> tuple[tuple[float, ...], ...]:
    try:
        found = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        refuse("array", type(array).__name__, "be numbers of shape (n, n)")
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        refuse("array", found.shape, "have shape (n, n)")
    check_dense(len(found), "Matrix")
    # Refused, not silently dropped: a symmetric matrix given by mistake has another sensitivity.
    if np.any(np.triu(found, 1) != 0.0):
        refuse(
            "array",
            "entries above the diagonal",
            "be lower triangular",
            "pass L of C = Q L with Q orthogonal",
        )
    return tuple(tuple(row[: i + 1].tolist()) for i, row in enumerate(found))
