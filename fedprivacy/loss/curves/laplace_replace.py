"""A unit, drawn at random, that sends one vector or its opposite, with Laplace noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ...registry import registered
from ..moments.laplace_rules import LaplaceMix
from ..moments.truncated_moments import Part
from .curve import Curve, OfPart
from .laplace import LaplacePair
from .lattice import Array, Side, Tails
from .max_loss import MaxLoss, log_kept, lowered, raised

_FEW = 1e-15
"""Upper bound on the relative error of the largest loss."""
FAR = 300.0
"""At larger distances exponentials leave doubles; F(S, S), which dominates too, is used there."""


@registered
@dataclass(frozen=True)
class LaplaceExchanged(OfPart):
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

    @property
    def symmetric(self) -> bool:
        """Whether both parts have the same distance: the mirror image is the swap."""
        return self.there == self.back

    def swap(self) -> Curve:
        """Return the mirror image."""
        return LaplaceExchanged(self.q, self.back, self.there)

    def cover(self) -> float:
        """Return the cover of a unit that is known to be drawn."""
        return LaplacePair(self.there + self.back).cover()

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

    def log_moment(self, order: float) -> float:
        """Return the quadrature's upper bound, or the bound from the largest loss if smaller."""
        order, curve = (order, self) if order >= 0.0 else (1.0 - order, self.swap())
        assert isinstance(curve, LaplaceExchanged)
        return min(curve.quadrature_moment(order), max(order - 1.0, 0.0) * curve.most * (1 + 1e-12))

    @functools.cached_property
    def part(self) -> Part:
        """All outcomes: above 0 Q is a share of Laplace(0); below 0 P is, mirrored."""
        above = LaplaceMix(self.there, self.q, 0.0, start=0.0, log_q=self._log_rest(self.back))
        below = LaplaceMix(self.back, 0.0, self.q, start=0.0, log_p=self._log_rest(self.there))
        return Part((above, below))

    def max_loss(self) -> MaxLoss:
        """Return ``most``."""
        return MaxLoss(lowered(self.most), raised(self.most))


def _above(y: Array) -> Array:
    """Return the mass of Laplace(0, 1) above y."""
    half = 0.5 * np.exp(-np.abs(y))
    return np.where(y >= 0.0, half, 1.0 - half)
