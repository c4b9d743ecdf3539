"""Folds of two pairs: each determines the profile on one side of epsilon 0."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ...registry import registered
from ...rounding import FEW, Up
from ..moments.contour import Contour, NoMoments
from ..moments.moments import Moments
from ..moments.spectrum import Cumulants, Decay, Spectrum
from ..moments.truncated_moments import Part, above
from .components import Components, Order, Trimmed, trim
from .curve import Curve
from .dots import dots
from .finite_support import mesh_of
from .kept import kept
from .lattice import Array, Side, Tails
from .order import bound
from .support import Support


@registered
@dataclass(frozen=True)
class Fold(Curve):
    """The profile of ``up`` at epsilon >= 0 and of ``down.swap()`` below 0."""

    up: Curve
    down: Curve

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

    @kept
    def moments(self) -> Moments:
        """Return the moments of the half lines; see ``FoldMoments``."""
        return FoldMoments(self)

    @kept
    def support(self) -> Support:
        """Return ``up``'s losses, which give the fold's profile at epsilon >= 0."""
        up, down = self.up.support(), self.down.support()
        # A fold of a curve with itself equals its swap.
        return Support(
            largest=lambda: up.largest,
            symmetric=self.up == self.down,
            exact=lambda: up.exact and down.exact,
            above_only=lambda: up.above_only or down.above_only,
            mesh=lambda: mesh_of(self.moments()),
            cover=lambda: max(up.cover, down.cover),
        )

    @kept
    def components(self) -> Components:
        """Return both halves; a fold of mixtures over one label is a mixture of folds."""
        up, down = self.up.components(), self.down.components()
        position = None if down.order is None else down.order.half_position
        labelled = up.labels and up.labels == down.labels
        return Components(
            inside=(self.up, self.down),
            upper=self.up,
            trim=self._trimmed if labelled else None,
            order=Order(_bound, position=position),
        )

    def _trimmed(self, allowed: float) -> Trimmed:
        up, down = trim(self.up, allowed), trim(self.down, allowed)
        return Trimmed(Fold(up.curve, down.curve), up.slack) if up.slack else Trimmed(self, 0.0)

    def swap(self) -> Curve:
        """Return the fold with its halves exchanged."""
        return Fold(self.down, self.up)

    @functools.cached_property
    def part(self) -> Part:
        """All outcomes: half lines with loss above 0 or below 0, and the rest at loss 0."""
        pieces = [above(w, pair) for w, pair in self.up.moments().pairs()]
        # The outcomes below 0, where P is rarer than Q: losses of at most 0.
        pieces += [above(w, pair).swap() for w, pair in self.down.moments().pairs()]
        atom = 1.0 - sum(piece.mass for piece in pieces)
        # If the masses exceed 1, the curves are not halves of one fold.
        if atom < -FEW:
            raise NoMoments
        return Part(tuple(pieces), max(atom, 0.0))


class FoldMoments(Moments):
    """Moments of a fold.

    Args:
        fold: the fold.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold

    def part(self) -> Part | None:
        """Return the part, None if its moments are not known."""
        try:
            return self._fold.part
        except NoMoments:
            return None

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum of the half lines' integrals and the mass at loss 0."""
        return self._fold.part.spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants of the mixture of the half lines and the atom."""
        return self._fold.part.cumulants(tilt)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the bounds on the half lines' integrals and the mass at loss 0."""
        return self._fold.part.decay(tilt, heights, fine)

    def log_moment(self, order: float) -> Up:
        """Return the quadrature's upper bound; without one the smaller of two others.

        The first is log(M_up + M_swap(down) - 1). It follows from E = 1 + a (a-1) int_0^inf
        [e^{(a-1)e} d_up(e) + e^{-ae} d_down(e)] de with both halves completed to whole moments. The
        second is the moment of the connected dots on a geometric grid, which dominate the fold. A
        higher moment of ``up`` bounds the part beyond the grid.
        """
        up, down = self._fold.up, self._fold.down
        # A negative order of (P, Q) is one above 1 of (Q, P).
        if order < 0:
            return FoldMoments(Fold(down, up)).log_moment(1.0 - order)
        if math.isfinite(exact := super().log_moment(order)):
            return exact
        whole = up.moments().log_moment(order)
        both = np.logaddexp(whole, down.moments().log_moment(1.0 - order))
        # log(e^both - 1), without a difference of two large numbers.
        cheap = float(both + math.log1p(-math.exp(-both))) if both > 0 else 0.0
        known = math.inf if math.isnan(whole) else max(cheap, whole)
        return Up(min(known, self._dotted_moment(order)))

    def _dotted_moment(self, order: float) -> Up:
        losses, mass, _ = dots(self._fold)
        inside = float(logsumexp((order - 1.0) * losses, b=mass))
        moments = self._fold.up.moments()
        extra = [(s, moments.log_moment(order + s)) for s in (1.0, 8.0, 64.0)]
        beyond = min(moment - s * float(losses[-1]) for s, moment in extra)
        return Up(float(np.logaddexp(inside, beyond)))


def _bound(curves: Sequence[Fold], side: Side, labels: int) -> Curve:
    """Return the fold of bounds of the halves, with equally many labels; it is a profile too."""
    halves = [half for curve in curves for half in (curve.up, curve.down)]
    orders = [half.components().order for half in halves]
    rising = [order.rising for order in orders if order is not None and order.rising is not None]
    labels = min([labels, *(count() for count in rising)])
    up, down = ([getattr(curve, half) for curve in curves] for half in ("up", "down"))
    return Fold(bound(up, side, labels), bound(down, side, labels))
