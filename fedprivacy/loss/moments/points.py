"""Finitely many losses: their moments are finite sums, used directly by ``Rule``.

A sampled pair has as many losses as the pair itself in one round, and so does a fold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...rounding import UNIT
from .contour import Array, NoMoments
from .spectrum import Cumulants, Finite, Rule, Spectrum, log_total


@dataclass(frozen=True)
class Points:
    """A pair of discrete laws, or its outcomes with a loss above 0, or below.

    Args:
        points: (loss, P-mass), losses increasing; a point's Q-mass is its P-mass times e^-loss.
        off: bound on the difference of either law's total mass from 1.
        weight: weight of the label.
    """

    points: tuple[tuple[float, float], ...]
    off: float
    weight: float = 1.0

    gaussian = None
    divisible = None
    jumps_alike = False

    @property
    def finite(self) -> Finite:
        """All losses and P's masses."""
        return Finite(*self.columns, self.off)

    @property
    def columns(self) -> tuple[Array, Array]:
        """Losses and P-masses, without the label's weight."""
        table = np.array(self.points, dtype=np.float64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _with(self, loss: Array, mass: Array) -> Points:
        """Return the same pair with other points, without masses that underflow."""
        some = mass > 0.0
        return replace(
            self, points=tuple(zip(loss[some].tolist(), mass[some].tolist(), strict=True))
        )

    @property
    def halved(self) -> Points:
        """The pair itself."""
        return self

    def swap(self) -> Points:
        """Return the pair (Q, P)."""
        loss, mass = self.columns
        return self._with(-loss[::-1], (mass * np.exp(-loss))[::-1])

    def sampled(self, q: float) -> Points:
        """Return ((1 - q) Q + q P, Q)."""
        loss, mass = self.columns
        rise = q * np.expm1(loss)
        # Near 0 log1p keeps the digits; farther out a plain logarithm is equally accurate.
        near = np.abs(rise) < 0.5
        far = np.log((1.0 - q) + q * np.exp(loss))
        after = np.where(near, np.log1p(np.where(near, rise, 0.0)), far)
        return self._with(after, mass * ((1.0 - q) * np.exp(-loss) + q))

    def above(self, weight: float) -> Points:
        """Return the outcomes with a loss above 0."""
        loss, mass = self.columns
        return replace(self._with(loss[loss > 0.0], mass[loss > 0.0]), weight=weight)

    @property
    def mass(self) -> float:
        """P's mass, with the label's weight."""
        return self.weight * float(self.columns[1].sum())

    def rule(self, tilt: float, height: float = 0.0, *others: object) -> Rule:
        """Return the points as nodes; a point of loss 0 is a separate constant.

        Args:
            tilt: real part of s.
            height: largest imaginary part; every height is served.
            others: further arguments of Gaussian rules.

        Raises:
            NoMoments: no loss differs from 0.
        """
        del height, others
        loss, mass = self.columns
        moves = loss != 0.0
        if not moves.any():
            raise NoMoments
        atom = float(mass[~moves].sum())
        loss, log_p = loss[moves], np.log(mass[moves])
        # The loss and mass of a sampled point have several roundings each.
        wobble = UNIT * (32.0 + np.abs(log_p) + 16.0 * (1.0 + tilt) * np.abs(loss))
        slip = UNIT * 16.0 * np.abs(loss)
        # The error of the law's total mass would otherwise be missing from a mass at loss 0.
        return Rule(log_p + tilt * loss, loss, wobble, slip, math.log(self.off), atom)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the log-moment and two derivatives."""
        loss, mass = self.columns
        if not len(loss):
            raise NoMoments
        exponent = np.log(mass) + tilt * loss
        value = float(log_total(exponent))
        share = np.exp(exponent - value)
        mean = float(share @ loss)
        return Cumulants(value, mean, float(share @ (loss - mean) ** 2))

    def lost(self, at: Spectrum, heights: Array) -> Array:
        """Return zeros: sums of few waves return to their size, so the moments need not fall."""
        del at
        return np.zeros_like(heights)
