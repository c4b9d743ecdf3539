"""What a unit shows that is drawn several times while all others send its opposite: from below.

The loss of this pair rises and falls several times, so that it has neither tails nor moments in
closed form. A lower end needs none: outcomes are merged into cells, which is post-processing.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import HUNDREDS, TENS, UNIT
from .allocation import tails_of
from .curve import TAIL_MASS, Curve
from .discretised_laws import DiscreteLaw, merged, split
from .gaussian import GaussianMix, Gdp
from .lattice import Array, Lattice, Side, Tails
from .max_loss import NO_LIMIT, MaxLoss
from .mixture import Mix

Times = tuple[tuple[float, int], ...]

_FAR = 12.0
"""Stds beyond the outermost means from where on all is one cell."""
_FINE = 1.0 / 40.0
_MOST_CELLS = 1 << 14
_ROUNDED = 2000.0 * TENS
"""Of a cell's mass: 38 stds out a tail is right to x^2 units, of which a cell is a fortieth."""
_PLACED = 4000.0 * UNIT
"""The same for every std of how far out means are: a place is right to a unit of itself, and 38
stds out a tail moves 38 times as much, in either law and at either edge."""
_FARTHEST = 1e9
_NONE = 1e-290
"""Cells of less are of one law only."""
LEFT_OUT = 1e-30
"""Numbers so rare together may be missing in the law; they may be anywhere."""


@registered
@dataclass(frozen=True)
class Opposed(Curve):
    """P: N(2 s), Q: N(s) by chance w for every number s of draws; what cells of outcomes show.

    Args:
        std: the standard deviation, above 0.
        times: (w, s), s = 0, 1, 2 ...; each w is the true one but for its rounding, and those of
            numbers that are missing add up to at most ``LEFT_OUT``.
        swapped: False for (P, Q).

    It is the pair of these cells, which all of the outcome dominates: good from below only.
    """

    std: float
    times: Times
    swapped: bool = False

    @staticmethod
    def serves(std: float, times: Times) -> bool:
        """Return whether a law is one that ``times`` may be, and no mean is too far to place."""
        numbers = [s for _, s in times]
        every = 1 < len(numbers) <= 256 and numbers == list(range(len(numbers)))
        return every and numbers[-1] <= _FARTHEST * std

    @property
    def exact(self) -> bool:
        """False: the cells' masses are rounded, each side its way."""
        return False

    @property
    def plain(self) -> Curve:
        """The pair where all others send nothing, which is attained as well."""
        found = GaussianMix(self.std, self.times, ((1.0, 0.0),))
        return found.swap() if self.swapped else found

    def swap(self) -> Curve:
        """Return the other orientation."""
        return replace(self, swapped=not self.swapped)

    def cover(self) -> float:
        """Return that of the largest number."""
        return max(s for _, s in self.times) / self.std

    def log_moment(self, order: float) -> float:
        """Return that of the mixture whose labels are seen, which dominates."""
        return Mix(tuple((w, Gdp(s / self.std)) for w, s in self.times)).log_moment(order)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the cells' tails."""
        return tails_of(self._cells(side), loss)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the cells' lattice."""
        return (split if side is Side.UP else merged)(self._cells(side), step, tail_mass)

    def _cells(self, side: Side) -> DiscreteLaw:
        """Return the cells in increasing loss, the smaller end of one law's masses (DOWN: P's)."""
        p, q = self._masses[::-1] if self.swapped else self._masses
        off = _ROUNDED + _PLACED * self.cover()
        more, less = 1.0 + off, 1.0 - off
        if side is Side.UP:
            p, q = p * more + LEFT_OUT, q * less
        else:
            p, q = p * less, q * more + LEFT_OUT
        both = (p > _NONE) & (q > _NONE)
        infinite = float(p[~both].sum()) if side is Side.UP else 0.0
        beyond = float(q[~both].sum()) if side is Side.UP else 0.0
        loss = np.log(p[both]) - np.log(q[both])
        order = np.argsort(loss, kind="stable")
        p, q, loss = p[both][order], q[both][order], loss[order]
        return DiscreteLaw(loss, p, q, infinite, beyond, HUNDREDS, self._width, side)

    @property
    def _width(self) -> float:
        return _FINE / self.std

    @functools.cached_property
    def _masses(self) -> tuple[Array, Array]:
        """The cells' masses under P and Q."""
        most = 2.0 * self.cover()
        count = min(math.ceil((most + 2.0 * _FAR) / _FINE), _MOST_CELLS)
        inner = np.linspace(-_FAR, most + _FAR, count)
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        apart = 1.0 / self.std
        return masses(edges, self.times, 2.0 * apart), masses(edges, self.times, apart)

    def max_loss(self) -> MaxLoss:
        """Return no limit of P against Q, whose means lie lower; the swapped ratio has one."""
        return NO_LIMIT._replace(low=0.0) if self.swapped else NO_LIMIT


def masses(edges: Array, times: Times, moves: float) -> Array:
    """Return the masses between edges of the mixture of N(moves s, 1)."""
    total = np.zeros(len(edges) - 1)
    for weight, s in times:
        at = edges - moves * s
        low, high = at[:-1], at[1:]
        # The smaller tail cancels less.
        right = low >= 0.0
        total += weight * (ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low)))
    return total
