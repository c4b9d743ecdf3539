"""A lower bound for an epoch whose secret round of the unit shows more than all others.

Of the rounds only the largest outcome is kept, in cells: both steps are post-processing. Both laws
of the largest outcome have closed forms (docs/theory/theorems.md, "A shuffled epoch").
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from ...registry import registered
from ...rounding import FEW
from .binned import Binned, Cells
from .lattice import Array

MOST = 60.0
"""The largest mean. A larger one shows at least as much, and its tails would underflow."""
_FAR = (12.0, 38.0)
"""Distance in stds from the outermost means, below and above, where the cells end."""
_FINE = 1.0 / 40.0
_EMPTY = -750.0
"""Log of a number that underflows."""


@registered
@dataclass(frozen=True)
class LargestRound(Binned):
    """The largest of ``rounds`` outcomes of std 1: one of mean ``shown``, or ``hidden``; others 0.

    P has the mean ``shown`` in one round, or in none with probability ``idle``; Q has ``hidden``.
    The curve is valid only from below, for every law of the round.

    Args:
        shown: in (0, ``MOST``].
        hidden: at least 0, below ``shown``.
        rounds: at least 1.
        idle: probability in [0, 1) that all rounds of P have mean 0.
        swapped: False for (P, Q).
    """

    shown: float
    hidden: float
    rounds: int
    idle: float = 0.0
    swapped: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.hidden < self.shown <= MOST:
            ends = f"{self.hidden} and {self.shown}"
            raise ValueError(f"LargestRound: means must rise from 0 to {MOST:g}, got {ends}")
        if self.rounds < 1 or not 0.0 <= self.idle < 1.0:
            found = f"{self.rounds} and {self.idle}"
            raise ValueError(f"LargestRound: rounds and idle are out of range, got {found}")

    @property
    def _cover(self) -> float:
        return self.shown - self.hidden

    @property
    def width(self) -> float:
        """Approximate distance of the losses of neighbouring cells."""
        return _FINE * self._cover

    @functools.cached_property
    def laws(self) -> tuple[Cells, Cells]:
        """The cells of P and of Q, not swapped."""
        below, above = _FAR
        count = int((self.shown + below + above) / _FINE)
        edges = np.linspace(-below, self.shown + above, count)
        return self._law(edges, self.shown, self.idle), self._law(edges, self.hidden, 0.0)

    def _law(self, edges: Array, mean: float, idle: float) -> Cells:
        """Return the masses of the largest outcome between edges and beyond them."""
        left, right = edges - mean, mean - edges
        within = (1.0 - idle) * ndtr(left) + idle * ndtr(edges)
        beyond = (1.0 - idle) * ndtr(right) + idle * ndtr(-edges)
        # The smaller part keeps the digits.
        with np.errstate(divide="ignore"):
            one = np.where(within < 0.5, np.log(within), np.log1p(-beyond))
        log_below = np.maximum((self.rounds - 1) * log_ndtr(edges) + one, _EMPTY)
        start, end = np.append(_EMPTY, log_below), np.append(log_below, 0.0)
        mass = -np.exp(end) * np.expm1(start - end)
        # A tail x stds out has x^2 units of error, and x times the error of the place x.
        far = 1.0 + np.maximum(np.abs(edges), np.abs(left))
        off = FEW * far * (far + mean) * np.abs(log_below)
        error = np.exp(end) * (np.append(0.0, off) + np.append(off, 0.0))
        return Cells(mass, error + FEW * mass)
