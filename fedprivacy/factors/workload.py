"""Workloads of a run, and the size of the noise in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import closed_unit, integer, refuse, require, validate_fields
from .base import Factor, ToeplitzFactor, as_numbers, check_dense, lower_toeplitz
from .interval import Array
from .participation import Participation


@dataclass(frozen=True)
class Workload:
    """The sums of rounds y that make up a model.

    x_i = sum over t <= i of rate_t u_t, with u_t the sum over j <= t of m^(t-j) y_j.

    Args:
        momentum: m of the server's heavy ball, from 0 to below 1.
        rates: the server's learning rate in every round; () for 1 throughout: prefix sums.
    """

    momentum: float = 0.0
    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        validate_fields(self, closed_unit, "momentum")
        require(self.momentum != 1.0, "momentum", self.momentum, "be below 1")
        if self.rates:
            object.__setattr__(self, "rates", as_numbers(rates=self.rates))

    def coefficients(self, rounds: int) -> Array:
        """Return the first column of the matrix for rates of 1, shape (rounds,)."""
        return np.cumsum(self.momentum ** np.arange(float(rounds)))

    def matrix(self, rounds: int) -> Array:
        """Return the matrix from rounds to iterates, shape (rounds, rounds).

        Raises:
            ParameterError: it would not fit in memory, or the number of rates differs from
                ``rounds``.
        """
        check_dense(rounds, "Workload")
        if not self.rates:
            return lower_toeplitz(self.coefficients(rounds))
        if len(self.rates) != rounds:
            refuse("rates", len(self.rates), f"have length rounds = {rounds}")
        powers = lower_toeplitz(self.momentum ** np.arange(float(rounds)))
        return np.cumsum(np.array(self.rates)[:, None] * powers, axis=0)

    def of_series(self, column: Array) -> Array:
        """Return the product with a lower-triangular Toeplitz matrix, as a first column."""
        # Divide by 1 - m x, then by 1 - x: linear in the rounds, without a matrix.
        found = np.array(column, dtype=np.float64)
        if self.momentum:
            for k in range(1, len(found)):
                found[k] += self.momentum * found[k - 1]
        return np.cumsum(found)


def rates(rounds: int, *, decay: float = 1.0, cooldown: int = 0) -> tuple[float, ...]:
    """Return learning rates that are multiplied by ``decay`` and decrease towards 0 at the end.

    Args:
        rounds: number of rates.
        decay: factor after every round, in (0, 1].
        cooldown: number of last rounds with a linear decrease to 1 / (cooldown + 1).
    """
    count, last = integer(1, rounds=rounds), integer(0, cooldown=cooldown)
    require(0.0 < decay <= 1.0, "decay", decay, "be in (0, 1]")
    require(last <= count, "cooldown", last, f"be at most rounds = {count}")
    left = np.minimum(np.arange(count, 0.0, -1.0) / (last + 1.0), 1.0)
    return tuple((decay ** np.arange(float(count)) * left).tolist())


class Errors(NamedTuple):
    """Std of a workload's numbers, with the std of z equal to the sensitivity."""

    root_mean_square: float
    largest: float


def errors(
    factor: Factor, rounds: int, participation: Participation, workload: Workload | None = None
) -> Errors:
    """Return the noise in a workload at noise multiplier 1 per sensitivity: mean and largest.

    Args:
        factor: C.
        rounds: n.
        participation: rule for the sensitivity; its upper end is used.
        workload: default: prefix sums.
    """
    wanted = workload or Workload()
    # The upper end: a run has to add noise for it.
    scale = factor.sensitivity(rounds, participation).upper
    squares = _squares(factor, rounds, wanted)
    return Errors(scale * math.sqrt(float(squares.mean())), scale * math.sqrt(squares.max()))


def _squares(factor: Factor, rounds: int, workload: Workload) -> Array:
    """Return the variance of every number of a workload, z of std 1."""
    # A product of Toeplitz matrices is Toeplitz: row i has the first i + 1 coefficients.
    if isinstance(factor, ToeplitzFactor) and not workload.rates:
        return np.cumsum(workload.of_series(factor.inverse(rounds)) ** 2)
    product = workload.matrix(rounds) @ factor.noise_matrix(rounds)
    return np.asarray(np.sum(product**2, axis=1))
