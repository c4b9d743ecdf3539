"""A unit, drawn at random, that sends one vector or its opposite, with Laplace noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ...registry import registered
from ...rounding import Up, lowered, raised
from ..moments.contour import Contour
from ..moments.laplace_rules import LaplaceMix
from ..moments.moments import Moments
from ..moments.spectrum import Cumulants, Decay, Spectrum
from ..moments.truncated_moments import Part
from .curve import Curve
from .laplace import LaplacePair
from .lattice import Array, Side, Tails
from .max_loss import MaxLoss, log_kept
from .support import Support

_FEW = 1e-15
"""Upper bound on the relative error of the largest loss."""
FAR = 300.0
"""At larger distances exponentials leave doubles; F(S, S), which dominates too, is used there."""


@registered
@dataclass(frozen=True)
class LaplaceExchanged(Curve):
    """(1-q) Laplace(0) + q Laplace(there) against (1-q) Laplace(0) + q Laplace(-back), scale 1.

    The loss rises with the outcome. It is constant below ``-back`` and above ``there``. On either
    side of 0 it is the loss of a sampled Laplace pair, shifted.

    Args:
        q: in (0, 1).
        there: distance of P's part to the right, above 0 and at most ``FAR``.
        back: distance of Q's part to the left, with the same limits.
    """

    q: float
    there: float
    back: float

    def __post_init__(self) -> None:
        # Written so that NaN is refused too.
        if not (0.0 < self.q < 1.0 and self.serves(self.there) and self.serves(self.back)):
            raise ValueError(
                f"LaplaceExchanged: q = {self.q} must be in (0, 1), there = {self.there} and back "
                f"= {self.back} in (0, {FAR:g}]"
            )

    @staticmethod
    def serves(far: float) -> bool:
        """Return whether the distance of a part is supported."""
        return 0.0 < far <= FAR

    def moments(self) -> Moments:
        """Return the moments of both half lines."""
        return _ExchangedMoments(self)

    def support(self) -> Support:
        """Return ``most``, and the cover of a unit that is known to be drawn."""
        # With one distance of both parts the mirror image is the swap.
        return Support(
            largest=lambda: MaxLoss(lowered(self.most), raised(self.most)),
            symmetric=self.there == self.back,
            cover=lambda: LaplacePair(self.there + self.back).support().cover,
        )

    def swap(self) -> Curve:
        """Return the mirror image."""
        return LaplaceExchanged(self.q, self.back, self.there)

    @property
    def most(self) -> float:
        """The largest loss, where the outcome is at least ``there``."""
        return math.log1p(self.q * math.expm1(self.there)) - self._log_rest(self.back)

    def _log_rest(self, far: float) -> float:
        """Return the log of the remaining share of Laplace(0) on the side away from the part."""
        lost = self.q * math.expm1(-far)
        # Near 1 a difference would have few digits left; two positive terms keep all digits.
        return (
            math.log1p(lost) if lost > -0.5 else math.log((1.0 - self.q) + self.q * math.exp(-far))
        )

    def _outcome(self, loss: Array) -> Array:
        """Return the outcome of each loss, infinite if no outcome has so large or small a loss."""
        right = self._from_zero(loss, self.there, self.back)
        left = -self._from_zero(-loss, self.back, self.there)
        middle = self._log_rest(self.there) - self._log_rest(self.back)
        return np.where(loss >= middle, right, left)

    def _from_zero(self, loss: Array, near: float, far: float) -> Array:
        """Return the distance from 0 towards ``near`` of a loss, in [0, near] or infinite."""
        q = self.q
        # kappa e^loss - (1 - q), kappa = 1 - q + q e^-far, without a difference of large terms.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = ((1.0 - q) * np.expm1(loss) + q * np.exp(loss - far)) / q
            found = 0.5 * (near + np.log(np.maximum(ratio, 0.0)))
        # The limit lies slightly further out, so that no attained loss counts as impossible.
        limit = (log_kept(q, -near) - self._log_rest(far)) * (1.0 + _FEW)
        return np.where(loss >= limit, np.inf, np.clip(found, 0.0, near))

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails: sums of positive terms at the outcome of each loss."""
        y = self._outcome(np.asarray(loss, dtype=np.float64))
        with np.errstate(divide="ignore"):
            return Tails(
                np.log(self._beyond(y, self.there)),
                np.log(self._beyond(y, -self.back)),
                np.log(self._beyond(-y, -self.there)),
                np.log(self._beyond(-y, self.back)),
            )

    def _beyond(self, y: Array, mean: float) -> Array:
        """Return the mass of (1-q) Laplace(0) + q Laplace(mean) above y."""
        return (1.0 - self.q) * _above(y) + self.q * _above(y - mean)

    @functools.cached_property
    def part(self) -> Part:
        """All outcomes: above 0 Q is a share of Laplace(0); below 0 P is, mirrored."""
        above = LaplaceMix(self.there, self.q, 0.0, start=0.0, log_q=self._log_rest(self.back))
        below = LaplaceMix(self.back, 0.0, self.q, start=0.0, log_p=self._log_rest(self.there))
        return Part((above, below))


class _ExchangedMoments(Moments):
    def __init__(self, curve: LaplaceExchanged) -> None:
        self._curve = curve

    def part(self) -> Part:
        """Return all outcomes."""
        return self._curve.part

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum of the half lines' integrals."""
        return self._curve.part.spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants of the mixture of the half lines."""
        return self._curve.part.cumulants(tilt)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the bounds on the half lines' integrals."""
        return self._curve.part.decay(tilt, heights, fine)

    def log_moment(self, order: float) -> Up:
        """Return the quadrature's upper bound, or the bound from the largest loss if smaller."""
        curve = self._curve
        if order < 0.0:
            mirrored = LaplaceExchanged(curve.q, curve.back, curve.there)
            return _ExchangedMoments(mirrored).log_moment(1.0 - order)
        return Up(min(super().log_moment(order), max(order - 1.0, 0.0) * curve.most * (1 + 1e-12)))


def _above(y: Array) -> Array:
    """Return the mass of Laplace(0, 1) above y."""
    half = 0.5 * np.exp(-np.abs(y))
    return np.where(y >= 0.0, half, 1.0 - half)
