"""Folds of two pairs: each determines the profile on one side of epsilon 0."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ...registry import registered
from ...rounding import FEW, HUNDREDS
from ..moments.contour import NoMoments
from ..moments.truncated_moments import Part, above
from . import lattice as lattices
from .curve import TAIL_MASS, Curve, OfPart
from .lattice import Array, Side, Tails
from .max_loss import MaxLoss


@registered
@dataclass(frozen=True)
class Fold(OfPart):
    """The profile of ``up`` at epsilon >= 0 and of ``down.swap()`` below 0."""

    up: Curve
    down: Curve

    @property
    def symmetric(self) -> bool:
        """A fold of a curve with itself equals its swap."""
        return self.up == self.down

    @property
    def exact(self) -> bool:
        """Whether the tails of both halves are exact."""
        return self.up.exact and self.down.exact

    def cover(self) -> float:
        """Return the larger cover of the two halves."""
        return max(self.up.cover(), self.down.cover())

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return ``up``'s tails at losses of at least 0 and the swapped ``down``'s below."""
        rising = np.asarray(loss >= 0)
        if rising.all():
            return self.up.tails(loss, side)
        right = self.up.tails(loss[rising], side)
        left = self.down.swap().tails(loss[~rising], side)
        found = Tails(*np.empty((4, *np.shape(loss))))
        for column, r, ell in zip(found, right, left, strict=True):
            column[rising], column[~rising] = r, ell
        return found

    def log_moment(self, order: float) -> float:
        """Return the quadrature's upper bound; without one the smaller of two others.

        The first is log(M_up + M_swap(down) - 1). It follows from E = 1 + a (a-1) int_0^inf
        [e^{(a-1)e} d_up(e) + e^{-ae} d_down(e)] de with both halves completed to whole moments. The
        second is the moment of the connected dots on a geometric grid, which dominate the fold. A
        higher moment of ``up`` bounds the part beyond the grid.
        """
        # A negative order of (P, Q) is one above 1 of (Q, P).
        if order < 0:
            return Fold(self.down, self.up).log_moment(1.0 - order)
        if math.isfinite(exact := self.quadrature_moment(order)):
            return exact
        whole = self.up.log_moment(order)
        both = np.logaddexp(whole, self.down.log_moment(1.0 - order))
        # log(e^both - 1), without a difference of two large numbers.
        cheap = float(both + math.log1p(-math.exp(-both))) if both > 0 else 0.0
        known = math.inf if math.isnan(whole) else max(cheap, whole)
        return min(known, self._dotted_moment(order))

    def _dotted_moment(self, order: float) -> float:
        losses, mass = _dots(self)
        inside = float(logsumexp((order - 1.0) * losses, b=mass))
        extra = [(s, self.up.log_moment(order + s)) for s in (1.0, 8.0, 64.0)]
        beyond = min(moment - s * float(losses[-1]) for s, moment in extra)
        return float(np.logaddexp(inside, beyond))

    @property
    def inside(self) -> tuple[Curve, ...]:
        """Both halves."""
        return self.up, self.down

    def swap(self) -> Curve:
        """Return the fold with its halves exchanged."""
        return Fold(self.down, self.up)

    @functools.cached_property
    def part(self) -> Part:
        """All outcomes: half lines with loss above 0 or below 0, and the rest at loss 0."""
        pieces = [above(w, pair) for w, pair in self.up.pairs()]
        # The outcomes below 0, where P is rarer than Q: losses of at most 0.
        pieces += [above(w, pair).swap() for w, pair in self.down.pairs()]
        atom = 1.0 - sum(piece.mass for piece in pieces)
        # If the masses exceed 1, the curves are not halves of one fold.
        if atom < -FEW:
            raise NoMoments
        return Part(tuple(pieces), max(atom, 0.0))

    def lone_part(self) -> Part | None:
        """Return the part, None if its moments are not known."""
        try:
            return self.part
        except NoMoments:
            return None

    def max_loss(self) -> MaxLoss:
        """Return the largest loss of ``up``, which gives the fold's profile at epsilon >= 0."""
        return self.up.max_loss()


def _reach(curve: Curve) -> float:
    """Return a loss beyond which P keeps at most ``TAIL_MASS`` on either side."""
    # Finest first: the first step whose support fits is also the most accurate.
    for step in (1e-4, 1e-2, 1.0, 100.0):
        try:
            low, high = lattices.support(curve.tails, step, TAIL_MASS)
        except lattices.TooLarge:
            continue
        return step * max(-low, high)
    return 1e9


@functools.lru_cache(maxsize=64)
def _dots(curve: Curve) -> tuple[Array, Array]:
    """Return (losses, masses) of connected dots on a geometric grid, masses rounded up."""
    reach = _reach(curve)
    # The losses of small rounds are dense around 0, so the grid is finest there.
    half = np.geomspace(1e-9, reach, 6000)
    edges = np.concatenate([-half[::-1], [0.0], half])
    return edges, lattices.connect_the_dots(curve.tails, edges)[0] * (1 + HUNDREDS)
