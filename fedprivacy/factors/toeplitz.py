"""Factors that are the same in every round: Toeplitz matrices and streams of their inverses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc

from ..errors import natural, refuse, require, validate_fields
from ..registry import registered
from ..rounding import HALF_SPACING
from .base import Recurrence, ToeplitzFactor, as_numbers, inverse_series
from .interval import Array
from .participation import Participation

MOST_BUFFERS = 64
"""Largest number of buffers of a BLT; more do not reduce its error."""


def root_coefficients(rounds: int) -> Array:
    """Return the coefficients of (1 - x)^(-1/2): 1, 1/2, 3/8, ..."""
    # By ratios of neighbours, because factorials would overflow.
    k = np.arange(1.0, rounds)
    return np.cumprod(np.concatenate([[1.0], (2.0 * k - 1.0) / (2.0 * k)]))


def inverse_root_coefficients(rounds: int) -> Array:
    """Return the coefficients of (1 - x)^(1/2): 1, -1/2, -1/8, ..."""
    k = np.arange(1.0, rounds)
    return np.cumprod(np.concatenate([[1.0], (2.0 * k - 3.0) / (2.0 * k)]))


@registered
@dataclass(frozen=True)
class Identity(ToeplitzFactor):
    """C = 1: independent noise in every round."""

    def coefficients(self, rounds: int) -> Array:
        """Return 1, 0, 0, ..."""
        return np.concatenate([[1.0], np.zeros(rounds - 1)])

    inverse = coefficients

    def width(self, rounds: int) -> int:
        """Return 1."""
        return 1

    def slots(self, rounds: int) -> int:
        """Return 0."""
        return 0

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return the empty recurrence."""
        return Recurrence(np.zeros(0))


@registered
@dataclass(frozen=True)
class SquareRootToeplitz(ToeplitzFactor):
    """C = the square root of the matrix of prefix sums (Fichtenberger, Henzinger, Upadhyay 2023).

    Its error is within a constant of the best. A run keeps the noise of all earlier rounds.
    """

    def coefficients(self, rounds: int) -> Array:
        """Return the coefficients of (1 - x)^(-1/2)."""
        return root_coefficients(rounds)

    def inverse(self, rounds: int) -> Array:
        """Return the coefficients of (1 - x)^(1/2)."""
        return inverse_root_coefficients(rounds)

    def slots(self, rounds: int) -> int:
        """Return all rounds but one."""
        return rounds - 1

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return the window of all earlier noise."""
        # C e = z solved for the newest e: the diagonal is 1.
        return Recurrence(-root_coefficients(rounds)[1:])


@registered
@dataclass(frozen=True)
class Banded(ToeplitzFactor):
    """C with ``bands`` diagonals (Choquette-Choo et al. 2023; Kalinin and Lampert 2024).

    Args:
        bands: p, at most the separation of a unit's rounds. The unit's columns then share no row.
        weights: the p numbers of a column, the first above 0, any signs; None for the first p
            coefficients of (1 - x)^(-1/2). ``optimised`` finds better ones for a workload.
    """

    bands: int
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        validate_fields(self, natural, "bands")
        if self.weights is None:
            return
        validate_fields(self, as_numbers, "weights")
        if len(self.weights) != self.bands:
            refuse("weights", len(self.weights), f"have length bands = {self.bands}")
        if not self.weights[0] > 0.0:
            refuse("weights", self.weights[0], "begin above 0", "C must have an inverse")

    def check(self, rounds: int, participation: Participation) -> None:
        """Refuse more bands than the separation: the theorem of disjoint columns would fail."""
        gap = participation.gap(rounds)
        if self.bands > gap:
            rule = f"be at most the separation {gap}, since a unit's columns must not share rows"
            way_out = "use fewer bands, a larger separation, or SquareRootToeplitz"
            refuse("bands", self.bands, rule, way_out)

    def column(self) -> Array:
        """Return the p numbers."""
        return root_coefficients(self.bands) if self.weights is None else np.array(self.weights)

    def coefficients(self, rounds: int) -> Array:
        """Return the p numbers, followed by 0."""
        found = np.zeros(rounds)
        # With fewer rounds than bands, truncate the column.
        kept = self.column()[:rounds]
        found[: len(kept)] = kept
        return found

    def error(self, rounds: int) -> float:
        """Return 0: the stored numbers are those of the matrix."""
        return 0.0

    def width(self, rounds: int) -> int:
        """Return the number of bands."""
        return min(self.bands, rounds)

    def inverse(self, rounds: int) -> Array:
        """Return 1 over the polynomial."""
        return inverse_series(self.column(), rounds)

    def slots(self, rounds: int) -> int:
        """Return bands - 1."""
        return min(self.bands, rounds) - 1

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return the window of the noise of ``bands - 1`` rounds."""
        column = self.column()
        return Recurrence(
            -column[1 : self.slots(rounds) + 1] / column[0], diagonal=float(column[0])
        )


@registered
@dataclass(frozen=True)
class BandedInverse(ToeplitzFactor):
    """C whose inverse has ``bands`` diagonals: the truncated coefficients of (1 - x)^(1/2).

    The banded inverse square root of Kalinin, McKenna, Upadhyay and Lampert (2025).

    Args:
        bands: at least 1.
    """

    bands: int

    def __post_init__(self) -> None:
        validate_fields(self, natural, "bands")

    def coefficients(self, rounds: int) -> Array:
        """Return 1 over the polynomial: a sum of positive terms."""
        return inverse_series(inverse_root_coefficients(min(self.bands, rounds)), rounds)

    def error(self, rounds: int) -> float:
        """Return a bound: every coefficient is a sum of positive products of earlier ones."""
        # 4 p for the inverse's own numbers, then p + 2 roundings per step over at most n steps.
        return (
            4.0 * min(self.bands, rounds) + rounds * (min(self.bands, rounds) + 2.0)
        ) * HALF_SPACING

    def inverse(self, rounds: int) -> Array:
        """Return the numbers of the inverse, followed by 0."""
        found = np.zeros(rounds)
        kept = inverse_root_coefficients(min(self.bands, rounds))
        found[: len(kept)] = kept
        return found

    def slots(self, rounds: int) -> int:
        """Return bands - 1."""
        return min(self.bands, rounds) - 1

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return the window of ``bands - 1`` draws."""
        # A row of C^-1 z is a short sum of draws, so the memory holds draws.
        return Recurrence(self.inverse(rounds)[1 : self.slots(rounds) + 1], inputs=True)


@registered
@dataclass(frozen=True)
class BufferedToeplitz(ToeplitzFactor):
    """C = 1 + sum of ``buffers`` geometric series: BLT (McMahan, Xu and Zhang 2024).

    Coefficient k >= 1 is sum_j scales_j decays_j^(k - 1). A run keeps ``buffers`` vectors.

    Args:
        buffers: number of series, at least 1.
        scales: positive numbers; None for a closed form: (1 - x)^(-1/2) has the coefficients
            E T^k, where T has the arcsine law, and this law is split into ``buffers`` pieces.
            ``optimised`` finds better numbers for a workload.
        decays: in (0, 1), required with ``scales``.
    """

    buffers: int
    scales: tuple[float, ...] | None = None
    decays: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        validate_fields(self, natural, "buffers")
        few, rule = self.buffers <= MOST_BUFFERS, f"be at most {MOST_BUFFERS}"
        require(few, "buffers", self.buffers, rule, "4 are almost optimal")
        together = (self.scales is None) is (self.decays is None)
        require(together, "scales, decays", (self.scales, self.decays), "be given together")
        for name in ("scales", "decays"):
            given = getattr(self, name)
            if given is None:
                continue
            numbers = as_numbers(**{name: given})
            rule = f"have length buffers = {self.buffers}"
            require(len(numbers) == self.buffers, name, len(numbers), rule)
            rule = "be above 0, since sensitivities of BLT need decreasing coefficients"
            require(min(numbers) > 0.0, name, min(numbers), rule)
            object.__setattr__(self, name, numbers)
        largest = max(self.decays or (0.0,))
        require(largest < 1.0, "decays", largest, "be below 1")

    def leading(self, rows: int, rounds: int) -> BufferedToeplitz:
        """Return the factor with explicit parameters, because closed ones depend on the rounds."""
        scales, decays = (tuple(part.tolist()) for part in self.parameters(rounds))
        return BufferedToeplitz(self.buffers, scales=scales, decays=decays)

    def parameters(self, rounds: int) -> tuple[Array, Array]:
        """Return (scales, decays), each of shape (buffers,)."""
        if self.scales is None or self.decays is None:
            return arcsine_pieces(self.buffers, rounds)
        return np.array(self.scales), np.array(self.decays)

    def coefficients(self, rounds: int) -> Array:
        """Return 1 and the sums of geometric series."""
        scales, decays = self.parameters(rounds)
        found = np.zeros(rounds)
        found[0] = 1.0
        for scale, decay in zip(scales, decays, strict=True):
            found[1:] += scale * _powers(decay, rounds - 1)
        return found

    def error(self, rounds: int) -> float:
        """Return a bound on the error of powers, products and sums of positive terms."""
        return (2.0 * self.buffers + 16.0) * HALF_SPACING

    def inverse(self, rounds: int) -> Array:
        """Return the first column of the inverse, a sum of geometric series; only for errors."""
        scales, decays = self.parameters(rounds)
        # A rank-one change of a diagonal matrix: its eigenvalues are the inverse's decays.
        values, vectors = np.linalg.eig(np.diag(decays) - np.outer(np.ones(self.buffers), scales))
        left = scales @ vectors
        right = np.linalg.solve(vectors, np.ones(self.buffers))
        found = np.zeros(rounds)
        found[0] = 1.0
        for value, weight in zip(values, left * right, strict=True):
            found[1:] -= np.real(weight * _powers(value, rounds - 1))
        return found

    def slots(self, rounds: int) -> int:
        """Return ``buffers``."""
        return self.buffers

    def recurrence(self, row: int, rounds: int) -> Recurrence:
        """Return decaying sums of the earlier noise."""
        scales, decays = self.parameters(rounds)
        return Recurrence(-scales, decays)


def _powers(base: Any, count: int) -> Any:
    """Return base^0, ..., base^(count - 1), as products of two powers: ten times faster."""
    wide = math.isqrt(count) + 1
    return np.outer(
        base ** (wide * np.arange(float(wide))), base ** np.arange(float(wide))
    ).ravel()[:count]


def arcsine_pieces(buffers: int, rounds: int) -> tuple[Array, Array]:
    """Return (scales, decays) of a BLT near the square root, of shape (buffers,) each.

    S = 1 - T has the density 1 / (pi sqrt(s (1 - s))). It is split at points of equal ratio from
    about 1 / rounds to 1, and every piece is replaced by its mean.
    """
    # Decays slower than the whole run look constant within it.
    first = 1.0 / (2.0 * max(rounds, 2))
    cuts = np.concatenate([[0.0], np.geomspace(first, 1.0, buffers + 1)[1:]])
    mass = np.diff(betainc(0.5, 0.5, cuts))
    mean = 0.5 * np.diff(betainc(1.5, 0.5, cuts)) / mass
    # The ends themselves are invalid decays.
    decays = np.clip(1.0 - mean, 1e-12, 1.0 - 1e-12)
    return mass * decays, decays
