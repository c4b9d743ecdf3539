"""Pairs of laws whose outcomes are observed only in cells: lower bounds of the full pairs.

Merging outcomes into cells is post-processing. So the pair of the cells' masses is valid from
below, for a pair whose loss has neither tails nor moments in closed form.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...rounding import HUNDREDS
from ..moments.moments import MomentBounds, Moments
from .allocation import tails_of
from .curve import TAIL_MASS, Curve
from .discretised_laws import DiscreteLaw, merged, split
from .gaussian import Gdp
from .lattice import Array, Lattice, Side, Tails
from .max_loss import NO_LIMIT
from .support import Support

_NONE = 1e-307
"""Cells with less mass count as cells of only one law."""


class Cells(NamedTuple):
    """Masses of cells under one law, and bounds on their errors."""

    mass: Array
    error: Array


class Binned(Curve):
    """A pair (P, Q) in cells, or (Q, P) if the field ``swapped`` is set.

    A Gaussian pair dominates it.
    """

    missing: ClassVar[float] = 1e-306
    """Probability that may be missing in the cells of either law.

    It is above ``_NONE``, so from below a cell that Q hardly has counts as this mass of Q.
    """

    @property
    @abstractmethod
    def laws(self) -> tuple[Cells, Cells]:
        """The cells of P and of Q, not swapped."""

    @property
    @abstractmethod
    def width(self) -> float:
        """Approximate distance of the losses of neighbouring cells."""

    @property
    @abstractmethod
    def _cover(self) -> float:
        """The mu of the Gaussian pair that dominates."""

    def moments(self) -> Moments:
        """Return the moments of the Gaussian pair that dominates."""
        return MomentBounds(Gdp(self._cover).moments().log_moment)

    def support(self) -> Support:
        """Return no limit that is known: the masses of cells are rounded."""
        return Support(largest=NO_LIMIT, exact=False, cover=self._cover)

    def swap(self) -> Curve:
        """Return the other orientation."""
        turned: Any = self
        found: Curve = replace(turned, swapped=not turned.swapped)
        return found

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the cells' tails."""
        return tails_of(self._cells(side), loss)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the cells' lattice."""
        return (split if side is Side.UP else merged)(self._cells(side), step, tail_mass)

    def _cells(self, side: Side) -> DiscreteLaw:
        """Return the cells in increasing loss; UP raises P and lowers Q, DOWN the reverse."""
        one, two = self.laws[::-1] if getattr(self, "swapped", False) else self.laws
        if side is Side.UP:
            p, q = one.mass + one.error + self.missing, two.mass - two.error
        else:
            p, q = one.mass - one.error, two.mass + two.error + self.missing
        both = (p > _NONE) & (q > _NONE)
        infinite = float(p[~both].clip(0.0).sum()) if side is Side.UP else 0.0
        beyond = float(q[~both].clip(0.0).sum()) if side is Side.UP else 0.0
        loss = np.log(p[both]) - np.log(q[both])
        order = np.argsort(loss, kind="stable")
        p, q, loss = p[both][order], q[both][order], loss[order]
        return DiscreteLaw(loss, p, q, infinite, beyond, HUNDREDS, self.width, side)
