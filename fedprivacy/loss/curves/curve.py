"""Privacy losses as curves: a dominating pair (P, Q), given by the tails of L = log dP/dQ.

A curve has four capabilities. Whatever computes a number asks for a capability, never for a class:

- ``tails(x)``: log P(L > x), log Q(L > x), log P(L <= x), log Q(L <= x). Only this is required.
- ``moments()``: E_P e^{s L}, for compositions and Renyi divergences.
- ``support()``: the largest loss, a step that divides all losses, and whether the tails are exact.
- ``components()``: the curves that it is made of.

Basic curves are pairs of laws, for example ``Gdp``, ``LaplacePair`` and ``GaussianMix``. Others are
built from curves: ``Sampled``, ``Fold``, ``Mix`` and ``Composed``. ``Swapped`` reverses any curve.
Curves are frozen and hashable: equal curves are accounted together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...registry import registered
from ..moments.moments import MomentBounds, Moments, SwappedMoments
from . import lattice as lattices
from .components import ONE, Components, Trimmed
from .dots import dotted_moment
from .finite_support import few_of
from .kept import kept, without_kept
from .lattice import Array, Lattice, Side, Tails
from .support import Support

TAIL_MASS = 1e-30
"""Default mass of P that a lattice may leave out on each side."""


class Curve(ABC):
    """One dominating pair in one orientation."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields and what follows from them, without results that hold functions."""
        return without_kept(self)

    @abstractmethod
    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the four log-masses at each loss, on the given side if not exact."""

    def moments(self) -> Moments:
        """Return the moments of the loss.

        The default is an upper bound that follows from the tails. It is finite if ``support`` says
        that the loss is bounded.
        """
        return MomentBounds(lambda order: dotted_moment(self, order))

    def support(self) -> Support:
        """Return facts about the set of losses; by default none are known."""
        return Support()

    def components(self) -> Components:
        """Return the curves that the curve is made of; by default there are none."""
        return ONE

    def swap(self) -> Curve:
        """Return the curve of (Q, P)."""
        return self if self.support().symmetric else Swapped(self)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the loss rounded to multiples of ``step`` on the given side.

        If the tails are not certified from below, neither is the lattice. The lower lattice of a
        composition raises Q, and the P of an amplified pair contains Q.
        """
        if side is Side.DOWN and not self.support().amplifiable:
            return Lattice(step, 0, np.zeros(1), 0.0)
        exact = None if (few := few_of(self.moments())) is None else few.lattice(step, side)
        if exact is not None:
            return exact
        infinite = self.support().largest.infinite_low if side is Side.DOWN else 0.0
        return lattices.discretise(lambda x: self.tails(x, side), step, side, tail_mass, infinite)


@registered
@dataclass(frozen=True)
class Swapped(Curve):
    """The pair (Q, P) of a curve (P, Q)."""

    curve: Curve

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the curve's tails at -loss with the roles exchanged.

        For DOWN, tails that are not exact are replaced by zero mass: a change that lowers Q of the
        curve would raise Q of the swap.
        """
        if side is Side.DOWN and not self.curve.support().exact:
            return lattices.nothing(loss)
        p_above, q_above, p_below, q_below = self.curve.tails(-loss, side)
        return Tails(q_below, p_below, q_above, p_above)

    @kept
    def moments(self) -> Moments:
        """Return the curve's moments with the pairs swapped."""
        return SwappedMoments(self.curve.moments())

    @kept
    def support(self) -> Support:
        """Return the curve's support; Gaussian pairs are symmetric, so the cover is the same."""
        inner = self.curve.support()
        return Support(
            largest=lambda: inner.swapped_largest,
            swapped_largest=lambda: inner.largest,
            exact=lambda: inner.exact,
            above_only=lambda: inner.above_only,
            mesh=lambda: inner.mesh,
            cover=lambda: inner.cover,
        )

    @kept
    def components(self) -> Components:
        """Return the other orientation, and how it is trimmed."""
        remove = self.curve.components().swapped_trim
        return Components(inside=(self.curve,), trim=None if remove is None else self._trimmed)

    def _trimmed(self, allowed: float) -> Trimmed:
        remove = self.curve.components().swapped_trim
        found = Trimmed(self.curve, 0.0) if remove is None else remove(allowed)
        return found if found.slack else Trimmed(self, 0.0)

    def swap(self) -> Curve:
        """Return the curve itself."""
        return self.curve


def orientations(curve: Curve) -> tuple[Curve, ...]:
    """Return the curve and, unless it equals its swap, the swap."""
    return (curve,) if curve.support().symmetric else (curve, curve.swap())
