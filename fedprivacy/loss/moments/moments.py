"""The moments of a privacy loss: one object answers for Renyi divergences, cumulants and decay.

``Moments`` is the interface. A curve returns its moments, and the strategies use nothing else of
the curve to invert them. ``PairMoments`` computes everything from the pairs that a law consists of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...rounding import Up
from . import spectrum as spectra
from .contour import Array, Contour, NoMoments
from .gaussian_rules import GaussianPair
from .spectrum import Cumulants, Decay, Leaf, Spectrum

if TYPE_CHECKING:
    from .families import Family
    from .truncated_moments import Part

Labelled = tuple[tuple[float, Leaf], ...]
"""Pairs, each with the weight of its label; every observer sees the label."""


class Moments:
    """E_P e^{s L} for the loss L of a pair (P, Q), or of a part of its outcomes.

    Every method has a default: the moments are not known. Override ``log_moment`` if you know an
    upper bound, and the three methods on a line if you know the moments with an error bound.
    """

    def log_moment(self, order: float) -> Up:
        """Return an upper bound on log of the integral of P^order Q^(1-order); +inf allowed.

        For order > 1 this is (order - 1) times the Renyi divergence of that order of P from Q. For
        order < 0 it is the moment of the swapped pair at 1 - order. The default is the bound that
        ``spectrum`` gives at one point, for order > 1.

        Args:
            order: outside [0, 1].
        """
        if order < 0.0:
            return Up(math.inf)
        try:
            return Up(float(self.spectrum(Contour(order - 1.0, 0.0, 1)).log_moment))
        except NoMoments:
            return Up(math.inf)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return E_P e^{s L} at the points s of a line with a positive tilt.

        Raises:
            NoMoments: not known, or too costly.
        """
        raise NoMoments

    def cumulants(self, tilt: float) -> Cumulants:
        """Return log E_P e^{tilt L} and two derivatives to a few digits, to choose parameters.

        Raises:
            NoMoments: not known.
        """
        raise NoMoments

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return bounds on |E_P e^{s L}| for all s = tilt + i v, v at or above each height.

        Args:
            tilt: above 0.
            heights: increasing, shape ``(n,)``.
            fine: whether to evaluate the moments below the last height too: tighter, but slower.

        Raises:
            NoMoments: not known.
        """
        raise NoMoments

    def pairs(self) -> Labelled:
        """Return the law as a labelled mixture of pairs whose moments are known.

        Raises:
            NoMoments: the law has no form of this kind.
        """
        raise NoMoments

    def part(self) -> Part | None:
        """Return the half lines and the mass at loss 0 that make up the law, if it is a fold."""
        return None

    def lone_pair(self) -> GaussianPair | None:
        """Return the single Gaussian pair of the law, if its rule gives all moments."""
        return None

    def place(self) -> tuple[Family, float] | None:
        """Return the family of the law, and its shift within the family, if it has one."""
        return None

    def between(self, step: float) -> Moments | None:
        """Return moments in less time, of a law that dominates; None if there are none.

        Args:
            step: distance of the members that represent each family; see ``families``.
        """
        del step
        return None


class PairMoments(Moments):
    """Moments that are integrals over pairs.

    Args:
        labelled: returns the pairs, or raises ``NoMoments``.
        place: the family of the law, and its shift, if it has one.
    """

    def __init__(
        self, labelled: Callable[[], Labelled], place: tuple[Family, float] | None = None
    ) -> None:
        self._labelled = labelled
        self._known: Labelled | None = None
        self._place = place

    @classmethod
    def of(cls, *labelled: tuple[float, Leaf]) -> PairMoments:
        """Return the moments of the given pairs."""
        return cls(lambda: labelled)

    def place(self) -> tuple[Family, float] | None:
        """Return the family of the law, and its shift within the family, if it has one."""
        return self._place

    def pairs(self) -> Labelled:
        """Return the pairs."""
        if self._known is None:
            self._known = self._labelled()
        return self._known

    def lone_pair(self) -> GaussianPair | None:
        """Return the pair, if it is a single Gaussian one."""
        try:
            (weight, pair), *others = self.pairs()
        except NoMoments:
            return None
        return pair.gaussian if not others and weight == 1.0 else None

    def log_moment(self, order: float) -> Up:
        """Return the upper bound of the quadrature; inf if there is none."""
        if order < 0.0:
            # A negative order of (P, Q) is one above 1 of (Q, P).
            return PairMoments(lambda: swapped(self.pairs())).log_moment(1.0 - order)
        return super().log_moment(order)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the weighted sum of the integrals."""
        rules = [(w, pair.rule(line.tilt, line.top, w)) for w, pair in self.pairs()]
        # A single pair keeps digits near 1 that a mixture would lose.
        if len(rules) == 1 and rules[0][0] == 1.0:
            return rules[0][1].spectrum(line)
        return spectra.mix([(w, rule.spectrum(line)) for w, rule in rules])

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants of the mixture."""
        return spectra.mix_cumulants([(w, pair.cumulants(tilt)) for w, pair in self.pairs()])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the bounds that the fall of every pair's moment gives."""

        def lost(at: Spectrum) -> Array:
            return np.asarray(sum(w * pair.lost(at, heights) for w, pair in self.pairs()))

        return spectra.slab_decay(self.spectrum, tilt, heights, fine, lost)


class SwappedMoments(PairMoments):
    """The moments of (Q, P).

    Args:
        inner: the moments of (P, Q).
    """

    def __init__(self, inner: Moments) -> None:
        super().__init__(lambda: swapped(inner.pairs()))
        self._inner = inner

    def log_moment(self, order: float) -> Up:
        """Return the moment of (P, Q) at 1 - order."""
        return self._inner.log_moment(1.0 - order)

    def place(self) -> tuple[Family, float] | None:
        """Return the swapped family."""
        found = self._inner.place()
        return None if found is None else (found[0].swap(), found[1])


class MomentBounds(Moments):
    """Moments of which only an upper bound on the real axis is known.

    Args:
        log_moment: the bound at an order outside [0, 1].
    """

    def __init__(self, log_moment: Callable[[float], Up]) -> None:
        self._log_moment = log_moment

    def log_moment(self, order: float) -> Up:
        """Return the bound."""
        return self._log_moment(order)


def swapped(labelled: Labelled) -> Labelled:
    """Return the pairs (Q, P), with the same labels."""
    return tuple((weight, pair.swap()) for weight, pair in labelled)
