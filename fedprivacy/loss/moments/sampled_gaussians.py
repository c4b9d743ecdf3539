"""The family of the samples of Gaussian pairs with one probability.

With r = e^{mu y - mu^2/2} the pair is ((1 - q) Q + q P, Q), Q = N(0, 1) and dP/dQ = r. Under Q,
log r is N(-mu^2/2, mu^2), and the loss is the same function of log r for every mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...rounding import THOUSANDS
from . import staircase
from .contour import Array
from .gaussian_rules import GaussianPair
from .moments import Moments, PairMoments

_SEARCHED = 96
"""Points at which the relevant values of log r are looked for."""
_CELLS = 64
"""Cells of a staircase."""
_HEAVY = 6.0
"""Densities below e^-6 of the maximum hardly contribute to a staircase."""
_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class SampledGaussians:
    """Samples of Gaussian pairs with one probability, ordered by mu.

    Their profiles are convex in Phi(mu / 2): see docs/theory/inversion.md.

    Args:
        q: the probability, in (0, 1).
        swapped: whether the pairs are (Q, (1 - q) Q + q P).
    """

    q: float
    swapped: bool = False

    bend = 0.5

    def swap(self) -> SampledGaussians:
        """Return the family of the swapped pairs."""
        return SampledGaussians(self.q, not self.swapped)

    def moments(self, mu: float) -> Moments:
        """Return the moments of the pair with a mu above 0."""
        one, mixed = ((1.0, 0.0),), ((1.0 - self.q, 0.0), (self.q, mu))
        pair = GaussianPair(one, mixed) if self.swapped else GaussianPair(mixed, one)
        return PairMoments.of((1.0, pair))

    def slabs(
        self, low: Array, high: Array, tilt: float, unit: Array, *, above: bool = False
    ) -> tuple[Array, Array]:
        """Return slabs below the tilted densities of every pair between two mu: see ``Family``.

        At a fixed log r the density of log r under Q rises with mu and then falls. So between two
        mu it is at least the smaller of both. ``above``: only outcomes with log r above 0 count.
        """
        power = -tilt if self.swapped else 1.0 + tilt
        middle = 0.5 * (low + high)
        start, stop = min(0.0, power) * high - 8.0, max(0.0, power) * high + 8.0
        if above:
            start, stop = np.maximum(start, 0.5 * middle), np.maximum(stop, 0.5 * middle + 8.0)
        y = start + (stop - start) * np.linspace(0.0, 1.0, _SEARCHED)
        log_r = middle * y - 0.5 * middle * middle
        log_r = np.maximum(log_r, 0.0) if above else log_r
        exponent = power * self._loss(log_r) - 0.5 * y * y
        heavy = exponent > exponent.max(axis=1, keepdims=True) - _HEAVY
        rows = np.arange(len(y))
        first, last = np.argmax(heavy, axis=1), _SEARCHED - 1 - np.argmax(heavy[:, ::-1], axis=1)
        start = log_r[rows, np.maximum(first - 1, 0)][:, None]
        stop = log_r[rows, np.minimum(last + 1, _SEARCHED - 1)][:, None]
        # Any edges will do.
        edges = start + (stop - start) * np.linspace(0.0, 1.0, _CELLS + 1)
        density = np.minimum(*(self._least(edges, mu, power) for mu in (low, high)))
        slope = self._slope(edges)
        # The loss rises faster and faster with log r; swapped, it falls.
        height = np.exp(np.minimum(density - unit, 600.0)) / slope[:, 1:] * (1.0 - THOUSANDS)
        return staircase.hills(height, np.diff(edges) * slope[:, :-1] * (1.0 - THOUSANDS))

    def _least(self, edges: Array, mu: Array, power: float) -> Array:
        """Return lower bounds on the log of the tilted density of log r in every cell.

        Without the loss the log is concave in log r. The loss is convex. With a power below 0 the
        sum is concave. Otherwise a tangent replaces the loss.
        """
        own = -0.5 * ((edges / mu + 0.5 * mu) ** 2 + _LOG_2PI) - np.log(mu)
        loss = power * self._loss(edges)
        exact = own + loss
        if power < 0.0:
            least = np.minimum(exact[:, :-1], exact[:, 1:])
        else:
            slope, length = power * self._slope(edges), np.diff(edges)
            from_left = own[:, 1:] + loss[:, :-1] + slope[:, :-1] * length
            from_right = own[:, :-1] + loss[:, 1:] - slope[:, 1:] * length
            least = np.maximum(
                np.minimum(exact[:, :-1], from_left), np.minimum(exact[:, 1:], from_right)
            )
        return np.asarray(least - THOUSANDS * (1.0 + np.abs(own).max() + np.abs(loss).max()))

    def _loss(self, log_r: Array) -> Array:
        """Return log(1 - q + q r)."""
        return np.logaddexp(math.log1p(-self.q), math.log(self.q) + log_r)

    def _slope(self, log_r: Array) -> Array:
        """Return the derivative of the loss: the probability that the unit took part."""
        return np.exp(math.log(self.q) + log_r - self._loss(log_r))
