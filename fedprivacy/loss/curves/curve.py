"""Privacy losses as curves: a dominating pair (P, Q), given by the tails of L = log dP/dQ.

Basic curves are pairs of laws, for example ``Gdp``, ``LaplacePair`` and ``GaussianMix``. Others are
built from curves: ``Sampled``, ``Fold``, ``Mix`` and ``Composed``. ``Swapped`` reverses any curve.
Every curve has three methods, and all other numbers are computed from these:

- ``tails(x)``: log P(L > x), log Q(L > x), log P(L <= x), log Q(L <= x).
- ``log_moment(a)``: log of the integral of P^a Q^(1-a), an upper bound, for a outside [0, 1].
- ``swap()``: the curve of (Q, P).

Curves are frozen and hashable: equal curves are accounted together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ...registry import registered
from ..moments import spectrum as spectra
from ..moments.contour import Contour, NoMoments
from ..moments.gaussian_rules import GaussianPair
from ..moments.spectrum import Cumulants, Decay, Leaf, Spectrum
from ..moments.truncated_moments import Part
from . import lattice as lattices
from .finite_support import Few, few_of
from .lattice import Array, Lattice, Side, Tails
from .max_loss import UNKNOWN, MaxLoss

Labelled = tuple[tuple[float, Leaf], ...]
"""Pairs, each with the weight of its label; every observer sees the label."""

TAIL_MASS = 1e-30
"""Default mass of P that a lattice may leave out on each side."""


class Curve(ABC):
    """One dominating pair in one orientation."""

    @property
    def symmetric(self) -> bool:
        """Whether the curve is known to equal its own swap."""
        return False

    @property
    def exact(self) -> bool:
        """Whether ``tails`` is exact up to floating point, for both sides."""
        return True

    @property
    def amplifiable(self) -> bool:
        """Whether ``tails`` from below are those of a pair with P and Q at most lowered.

        Then mixing P with Q keeps them valid from below. With a raised Q they would not be valid.
        """
        return self.exact

    @property
    def mesh(self) -> float:
        """A step that divides all losses; inf if all losses are 0, 0 if there is no step."""
        few = self.few
        return 0.0 if few is None else lattices.common_mesh(few.sizes)

    @property
    def above_only(self) -> bool:
        """Whether no number is certified from below, so that only upper ends exist."""
        return any(one.above_only for one in self.inside)

    @property
    def inside(self) -> tuple[Curve, ...]:
        """The curves that this curve is built from; empty for a leaf."""
        return ()

    def rougher(self) -> tuple[Curve, ...]:
        """Return curves whose numbers bracket this one's and take less time, roughest first."""
        return ()

    def cover(self) -> float:
        """Return a mu such that N(mu, 1) against N(0, 1) dominates the curve, or inf."""
        return math.inf

    @abstractmethod
    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the four log-masses at each loss, on the given side if not exact."""

    @abstractmethod
    def log_moment(self, order: float) -> float:
        """Return an upper bound on log of the integral of P^order Q^(1-order); +inf allowed.

        For order > 1 this is (order - 1) times the Renyi divergence of that order of P from Q. For
        order < 0 it is the moment of the swapped pair at 1 - order.
        """

    def swap(self) -> Curve:
        """Return the curve of (Q, P)."""
        return self if self.symmetric else Swapped(self)

    def pairs(self) -> Labelled:
        """Return the curve as a labelled mixture of pairs whose moments are known.

        Raises:
            NoMoments: the curve has no form of this kind.
        """
        raise NoMoments

    def lone_pair(self) -> GaussianPair | None:
        """Return the curve as a single Gaussian pair, if it is one and has no better moments."""
        # A curve that overrides ``spectrum`` has better moments than the pair's rule.
        if type(self).spectrum is not Curve.spectrum:
            return None
        try:
            labelled = self.pairs()
        except NoMoments:
            return None
        weight, pair = labelled[0]
        lone = len(labelled) == 1 and weight == 1.0
        return pair if lone and isinstance(pair, GaussianPair) else None

    def lone_part(self) -> Part | None:
        """Return the half lines and the mass at loss 0 that make up the curve, if it is a fold."""
        return None

    @property
    def few(self) -> Few | None:
        """All losses with P's masses, if these are finitely many and known."""
        if (part := self.lone_part()) is not None:
            pieces, atom = [(piece.weight, piece) for piece in part.pieces], part.atom
            return few_of(pieces, atom)
        try:
            return few_of(self.pairs(), 0.0)
        except NoMoments:
            return None

    def spectrum(self, line: Contour) -> Spectrum:
        """Return E_P e^{s L} at the points s of a line with a positive tilt.

        Raises:
            NoMoments: not known for this curve, or too costly.
        """
        rules = [(w, pair.rule(line.tilt, line.top, w)) for w, pair in self.pairs()]
        # A single pair keeps digits near 1 that a mixture would lose.
        if len(rules) == 1 and rules[0][0] == 1.0:
            return rules[0][1].spectrum(line)
        return spectra.mix([(w, rule.spectrum(line)) for w, rule in rules])

    def quadrature_moment(self, order: float) -> float:
        """Return an upper bound on the log-moment from ``spectrum``; inf if there is none."""
        if order < 0:
            # A negative order of (P, Q) is one above 1 of (Q, P).
            return self.swap().quadrature_moment(1.0 - order)
        try:
            return float(self.spectrum(Contour(order - 1.0, 0.0, 1)).log_moment)
        except NoMoments:
            return math.inf

    def cumulants(self, tilt: float) -> Cumulants:
        """Return log E_P e^{tilt L} and two derivatives to a few digits, to choose parameters."""
        return spectra.mix_cumulants([(w, pair.cumulants(tilt)) for w, pair in self.pairs()])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return bounds on |E_P e^{s L}| for all s = tilt + i v, v at or above each height.

        Args:
            tilt: above 0.
            heights: increasing, shape ``(n,)``.
            fine: whether to evaluate the moments below the last height too: tighter, but slower.
        """

        def lost(at: Spectrum) -> Array:
            return np.asarray(sum(w * pair.lost(at, heights) for w, pair in self.pairs()))

        return spectra.slab_decay(self.spectrum, tilt, heights, fine, lost)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the loss rounded to multiples of ``step`` on the given side.

        If the tails are not certified from below, neither is the lattice. The lower lattice of a
        composition raises Q, and the P of an amplified pair contains Q.
        """
        if side is Side.DOWN and not self.amplifiable:
            return Lattice(step, 0, np.zeros(1), 0.0)
        exact = None if (few := self.few) is None else few.lattice(step, side)
        return exact or lattices.discretise(lambda x: self.tails(x, side), step, side, tail_mass)

    def max_loss(self) -> MaxLoss:
        """Return the largest loss of P against Q, and P's mass at infinite loss."""
        return UNKNOWN

    def swapped_max_loss(self) -> MaxLoss:
        """Return the largest loss of Q against P."""
        # A symmetric pair equals its own reverse.
        return self.max_loss() if self.symmetric else UNKNOWN


class OfPart(Curve):
    """A curve whose moments are those of one part with all outcomes."""

    @property
    @abstractmethod
    def part(self) -> Part:
        """All outcomes: half lines, and the separate mass at loss 0."""

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum of the half lines' integrals and the mass at loss 0."""
        return self.part.spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants of the mixture of the half lines and the atom."""
        return self.part.cumulants(tilt)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the bounds on the half lines' integrals and the mass at loss 0."""
        return self.part.decay(tilt, heights, fine)


@registered
@dataclass(frozen=True)
class Swapped(Curve):
    """The pair (Q, P) of a curve (P, Q)."""

    curve: Curve

    @property
    def exact(self) -> bool:
        """Whether the tails of the curve are exact."""
        return self.curve.exact

    @property
    def mesh(self) -> float:
        """The mesh of the curve."""
        return self.curve.mesh

    def cover(self) -> float:
        """Return the cover of the curve, because Gaussian pairs are symmetric."""
        return self.curve.cover()

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the curve's tails at -loss with the roles exchanged.

        For DOWN, tails that are not exact are replaced by zero mass: a change that lowers Q of the
        curve would raise Q of the swap.
        """
        if side is Side.DOWN and not self.curve.exact:
            return lattices.nothing(loss)
        p_above, q_above, p_below, q_below = self.curve.tails(-loss, side)
        return Tails(q_below, p_below, q_above, p_above)

    def log_moment(self, order: float) -> float:
        """Return the curve's moment at 1 - order."""
        return self.curve.log_moment(1.0 - order)

    def pairs(self) -> Labelled:
        """Return the curve's pairs, each swapped."""
        return tuple((weight, pair.swap()) for weight, pair in self.curve.pairs())

    @property
    def inside(self) -> tuple[Curve, ...]:
        """The other orientation."""
        return (self.curve,)

    def swap(self) -> Curve:
        """Return the curve itself."""
        return self.curve

    def max_loss(self) -> MaxLoss:
        """Return the largest loss of the curve's Q against its P."""
        return self.curve.swapped_max_loss()


def orientations(curve: Curve) -> tuple[Curve, ...]:
    """Return the curve and, unless it equals its swap, the swap."""
    return (curve,) if curve.symmetric else (curve, curve.swap())
