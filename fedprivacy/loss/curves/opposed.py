"""A lower bound for a unit that is drawn several times while all others send its opposite.

The loss of this pair rises and falls several times, so it has neither tails nor moments in closed
form. A lower end does not need these: outcomes are merged into cells, which is post-processing.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import TENS, UNIT, Down
from ..moments.moments import MomentBounds, Moments
from .binned import Binned, Cells
from .components import Components
from .curve import Curve
from .gaussian import GaussianMix, Gdp
from .lattice import Array
from .max_loss import NO_LIMIT
from .mixture import Mix
from .support import Support

Times = tuple[tuple[float, int], ...]

_FAR = 12.0
"""Distance in stds from the outermost means, beyond which all outcomes form one cell."""
_FINE = 1.0 / 40.0
_MOST_CELLS = 1 << 14
_ROUNDED = 2000.0 * TENS
"""Relative error of a cell's mass. At 38 stds a tail is right to x^2 units, and a cell holds a
fortieth of the tail."""
_PLACED = 4000.0 * UNIT
"""The same error per std of distance of the means. A position is right to a unit of itself. At 38
stds a tail moves 38 times as much, in either law and at either edge."""
_FARTHEST = 1e9
LEFT_OUT = 1e-30
"""Numbers with at most this total probability may be missing in the law; they may be any numbers.
"""


@registered
@dataclass(frozen=True)
class Opposed(Binned):
    """P: N(2 s), Q: N(s) with probability w for every number s of draws, observed in cells.

    The curve is the pair of these cells, which the pair of full outcomes dominates. It is valid
    only from below.

    Args:
        std: the standard deviation, above 0.
        times: (w, s), s = 0, 1, 2 ...; each w is the true one except for its rounding. The
            probabilities of missing numbers add up to at most ``LEFT_OUT``.
        swapped: False for (P, Q).
    """

    std: float
    times: Times
    swapped: bool = False

    missing: ClassVar[float] = LEFT_OUT

    @staticmethod
    def serves(std: float, times: Times) -> bool:
        """Return whether ``times`` has the required form, and all means are near enough."""
        numbers = [s for _, s in times]
        every = 1 < len(numbers) <= 256 and numbers == list(range(len(numbers)))
        return every and numbers[-1] <= _FARTHEST * std

    def moments(self) -> Moments:
        """Return the moments of the mixture with visible labels, which dominates."""
        visible = Mix(tuple((w, Gdp(s / self.std)) for w, s in self.times))
        return MomentBounds(visible.moments().log_moment)

    def support(self) -> Support:
        """Return no limit of P against Q, whose means lie lower; the swapped ratio has one."""
        # The masses of the cells are rounded, differently for each side.
        return Support(
            largest=NO_LIMIT._replace(low=Down(0.0)) if self.swapped else NO_LIMIT,
            exact=False,
            cover=self._cover,
        )

    def components(self) -> Components:
        """Return the simpler pair of data whose other units send 0."""
        return Components(simpler=lambda: self.plain)

    @property
    def plain(self) -> Curve:
        """The pair if all others send 0, which is attained as well."""
        found = GaussianMix(self.std, self.times, ((1.0, 0.0),))
        return found.swap() if self.swapped else found

    @property
    def _cover(self) -> float:
        """The cover of the largest number."""
        return max(s for _, s in self.times) / self.std

    @property
    def laws(self) -> tuple[Cells, Cells]:
        """The cells of P and of Q, not swapped."""
        off = _ROUNDED + _PLACED * self._cover
        p, q = (Cells(mass, off * mass) for mass in self._masses)
        return p, q

    @property
    def width(self) -> float:
        """Approximate distance of the losses of neighbouring cells."""
        return _FINE / self.std

    @functools.cached_property
    def _masses(self) -> tuple[Array, Array]:
        """The cells' masses under P and Q."""
        most = 2.0 * self._cover
        count = min(math.ceil((most + 2.0 * _FAR) / _FINE), _MOST_CELLS)
        inner = np.linspace(-_FAR, most + _FAR, count)
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
        apart = 1.0 / self.std
        return masses(edges, self.times, 2.0 * apart), masses(edges, self.times, apart)


def masses(edges: Array, times: Times, moves: float) -> Array:
    """Return the masses between edges of the mixture of N(moves s, 1)."""
    total = np.zeros(len(edges) - 1)
    for weight, s in times:
        at = edges - moves * s
        low, high = at[:-1], at[1:]
        # The smaller tail loses fewer digits.
        right = low >= 0.0
        total += weight * (ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low)))
    return total
