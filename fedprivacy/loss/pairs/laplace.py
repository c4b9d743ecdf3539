"""The Laplace pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtri

from ...records import recorded
from ..rounding import FEW
from .curve import Curve
from .lattice import Array, Side, Tails


@recorded
@dataclass(frozen=True)
class LaplacePair(Curve):
    """Laplace(s, 1) against Laplace(0, 1): the Laplace mechanism with sensitivity / scale = s.

    The loss is s or -s outside [0, s] and linear inside.
    """

    shift: float

    def __post_init__(self) -> None:
        if not self.shift >= 0.0:
            raise ValueError(f"LaplacePair: the shift must be at least 0, got {self.shift}")

    @property
    def symmetric(self) -> bool:
        """The reflection y -> s - y swaps the pair."""
        return True

    def cover(self) -> float:
        """Return -2 Phi^-1(exp(-shift / 2) / 2), rounded up: exact (docs/curves.md)."""
        exact = -2.0 * float(ndtri(0.5 * math.exp(-0.5 * self.shift)))
        return exact * (1 + 1e-12) + FEW

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails; inside, P(L <= x) = exp((x - s) / 2) / 2."""
        inside = np.clip(loss, -self.shift, self.shift)
        p_below = (inside - self.shift) / 2 - math.log(2.0)
        q_above = -(inside + self.shift) / 2 - math.log(2.0)
        p_above, q_below = np.log1p(-np.exp(p_below)), np.log1p(-np.exp(q_above))
        below, above = loss < -self.shift, loss >= self.shift
        return Tails(
            np.where(below, 0.0, np.where(above, -np.inf, p_above)),
            np.where(below, 0.0, np.where(above, -np.inf, q_above)),
            np.where(below, -np.inf, np.where(above, 0.0, p_below)),
            np.where(below, -np.inf, np.where(above, 0.0, q_below)),
        )

    def log_moment(self, order: float) -> float:
        """Return log[a / (2a - 1) e^{(a-1) s} + (a - 1) / (2a - 1) e^{-a s}] (Mironov 2017)."""
        a = max(order, 1.0 - order)
        weights = [a / (2 * a - 1), (a - 1) / (2 * a - 1)]
        total = logsumexp([(a - 1) * self.shift, -a * self.shift], b=weights)
        return max(float(total), 0.0) + 4e-16 * (1.0 + a * self.shift)
