"""A lower bound for two Gaussians seen on an interval, except for a small probability.

A cell has its Gaussian probability, or up to ``lost`` more or less. Outcomes
beyond the interval are not distinguished.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import FEW
from .binned import Binned, Cells
from .lattice import Array

MOST = 40.0
"""The largest distance of the means."""
_FAR = 12.0
"""Distance in stds from the outermost mean where the cells end."""
_FINE = 1.0 / 20.0


@registered
@dataclass(frozen=True)
class Confined(Binned):
    """N(mu/2, 1) against N(-mu/2, 1) in cells of (-reach, reach), each off by up to ``lost``.

    The curve is valid only from below.

    Args:
        mu: distance of the means, in (0, ``MOST``].
        reach: half length of the interval, above 0.
        lost: largest difference of a set's probability from the Gaussian's, at least 0.
        swapped: False for (P, Q).
    """

    mu: float
    reach: float
    lost: float = 0.0
    swapped: bool = False

    def __post_init__(self) -> None:
        if not (0.0 < self.mu <= MOST and self.reach > 0.0 and 0.0 <= self.lost < 1.0):
            found = f"{self.mu}, {self.reach} and {self.lost}"
            raise ValueError(f"Confined: mu, reach or lost is out of range, got {found}")

    @property
    def _cover(self) -> float:
        return self.mu

    @property
    def width(self) -> float:
        """Approximate distance of the losses of neighbouring cells."""
        return _FINE * self.mu

    @functools.cached_property
    def laws(self) -> tuple[Cells, Cells]:
        """The cells of P and of Q, not swapped."""
        end = min(self.reach * (1.0 - 1e-9), 0.5 * self.mu + _FAR)
        edges = np.linspace(-end, end, max(2, int(2.0 * end / _FINE)))
        return self._law(edges - 0.5 * self.mu), self._law(edges + 0.5 * self.mu)

    def _law(self, places: Array) -> Cells:
        """Return the masses between places, in stds from the mean, and beyond them."""
        below, above = np.append(0.0, ndtr(places)), np.append(ndtr(-places), 0.0)
        below, above = np.append(below, 1.0), np.append(1.0, above)
        # The smaller tails keep the digits.
        low = np.append(places, np.inf) <= 0.0
        mass = np.where(low, np.diff(below), -np.diff(above))
        # A tail x stds out has x^2 units of error, and x times that of the place x.
        far = 1.0 + np.minimum(np.abs(np.append(places, places[-1])), 38.0)
        error = 4.0 * FEW * far**2 * np.where(low, below[1:], above[:-1])
        return Cells(mass, error + self.lost)
