"""Privacy losses as curves: a dominating pair (P, Q), seen through the tails of L = log dP/dQ.

Leaves (``leaves``) are ``Gdp``, ``LaplacePair`` and ``GaussianMix``; nodes (``nodes``) are
``Sampled``, ``Fold``, ``Mix`` and ``Composed``; ``Swapped`` turns any of them around. Every curve
answers three questions, and everything else is made of them:

- ``tails(x)``: log P(L > x), log Q(L > x), log P(L <= x), log Q(L <= x);
- ``log_moment(a)``: log of the integral of P^a Q^(1-a), an upper bound, for a outside [0, 1];
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
"""Pairs, each with the weight of its label; everybody sees the label."""

TAIL_MASS = 1e-30
"""How much of P a lattice may leave out on each side when nothing else is asked."""


class Curve(ABC):
    """One dominating pair in one orientation."""

    @property
    def symmetric(self) -> bool:
        """Whether the curve is known to equal its own swap."""
        return False

    @property
    def exact(self) -> bool:
        """Whether ``tails`` is exact up to floating point, whatever the side."""
        return True

    @property
    def amplifiable(self) -> bool:
        """Whether ``tails`` from below are a pair's with both P and Q lowered, if at all.

        Then mixing P with Q keeps them from below, which raised Q would not.
        """
        return self.exact

    @property
    def mesh(self) -> float:
        """A step of which all losses are multiples; inf where all are 0, 0 where there is none."""
        few = self.few
        return 0.0 if few is None else lattices.common_mesh(few.sizes)

    @property
    def above_only(self) -> bool:
        """Whether nothing is certified from below: numbers have an upper end only."""
        return any(one.above_only for one in self.inside)

    @property
    def inside(self) -> tuple[Curve, ...]:
        """The curves that this one is made of; none of a leaf."""
        return ()

    def rougher(self) -> tuple[Curve, ...]:
        """Return curves whose numbers bracket this one's and take less time, roughest first."""
        return ()

    def cover(self) -> float:
        """Return a mu such that N(mu, 1) against N(0, 1) dominates the curve, or inf."""
        return math.inf

    @abstractmethod
    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the four log-masses at each loss, on the asked side where not exact."""

    @abstractmethod
    def log_moment(self, order: float) -> float:
        """Return an upper bound on log of the integral of P^order Q^(1-order); +inf allowed.

        For order > 1 this is (order - 1) times the Renyi divergence of that order of P from Q;
        for order < 0 it is the moment of the swapped pair at 1 - order.
        """

    def swap(self) -> Curve:
        """Return the curve of (Q, P)."""
        return self if self.symmetric else Swapped(self)

    def pairs(self) -> Labelled:
        """Return the curve as a labelled mixture of pairs whose moments are known.

        Raises:
            NoSpectrum: it is none.
        """
        raise NoMoments

    def lone_pair(self) -> GaussianPair | None:
        """Return the Gaussian pair that the curve is, if it is one and has no better moments."""
        # A curve with a spectrum of its own has better moments than the pair's rule.
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
        """Return the half lines and the mass at loss 0 that the curve is, if it is a fold."""
        return None

    @property
    def few(self) -> Few | None:
        """All losses and P's masses there, where these are finitely many and known."""
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
            NoSpectrum: not known for this curve, or too costly.
        """
        rules = [(w, pair.rule(line.tilt, line.top, w)) for w, pair in self.pairs()]
        # A lone pair keeps digits near 1 that a mixture would have to carry along.
        if len(rules) == 1 and rules[0][0] == 1.0:
            return rules[0][1].spectrum(line)
        return spectra.mix([(w, rule.spectrum(line)) for w, rule in rules])

    def quadrature_moment(self, order: float) -> float:
        """Return an upper bound on the log-moment from ``spectrum``; inf where that has none."""
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
            fine: also look at the moments themselves below the last height: better, and slower.
        """

        def lost(at: Spectrum) -> Array:
            return np.asarray(sum(w * pair.lost(at, heights) for w, pair in self.pairs()))

        return spectra.slab_decay(self.spectrum, tilt, heights, fine, lost)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the loss rounded to multiples of ``step`` on the given side.

        Nothing is certified from below where the tails are not: a composition's lower lattice
        raises Q, and an amplified pair's P contains Q.
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
        # A symmetric pair is its own reverse.
        return self.max_loss() if self.symmetric else UNKNOWN


class OfPart(Curve):
    """A curve whose moments are those of one part, all outcomes."""

    @property
    @abstractmethod
    def part(self) -> Part:
        """All outcomes: half lines, and the mass at loss 0 beside them."""

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum of the half lines' integrals and the mass at loss 0."""
        return self.part.spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the mixture of the half lines' and of the atom."""
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
        """Whether the curve's tails are."""
        return self.curve.exact

    @property
    def mesh(self) -> float:
        """The curve's."""
        return self.curve.mesh

    def cover(self) -> float:
        """Return the curve's: Gaussian pairs are symmetric."""
        return self.curve.cover()

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the curve's tails at -loss with the roles exchanged.

        Nothing from below where the curve's are not exact: what lowers its Q would raise this one.
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
        """Return the curve's, of Q against P."""
        return self.curve.swapped_max_loss()


def orientations(curve: Curve) -> tuple[Curve, ...]:
    """Return the curve and, unless it equals its swap, the swap."""
    return (curve,) if curve.symmetric else (curve, curve.swap())
