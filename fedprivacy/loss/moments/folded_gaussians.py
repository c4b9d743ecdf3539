"""Families of rounds with a cohort of a fixed size: folds, and the pair of a unit that gives way.

With t = e^{mu y - mu^2/2} and Q_0 = N(0, 1), the pair A of a unit that gives way is
((1 - q) Q_0 + q N(2 mu), (1 - q) Q_0 + q N(mu)), dN(mu)/dQ_0 = t and dN(2 mu)/dQ_0 = t^2 e^{-mu^2}.
Its loss is above 0 where t is above e^{mu^2}, and it rises with y there. S is the sampled Gaussian
pair ((1 - q) Q_0 + q N(mu), Q_0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from ...rounding import THOUSANDS
from . import staircase
from .contour import Array
from .gaussian_rules import GaussianPair
from .moments import Moments, PairMoments
from .sampled_gaussians import SampledGaussians
from .truncated_moments import Part, above

_SEARCHED = 128
"""Outcomes among which the likely ones are looked for."""
_CELLS = 64
"""Cells of a staircase."""
_HEAVY = 6.0
"""Densities below e^-6 of the maximum hardly contribute to a staircase."""
_LOG_2PI = math.log(2.0 * math.pi)


def _given_way(q: float, mu: float) -> GaussianPair:
    stays = (1.0 - q, 0.0)
    return GaussianPair((stays, (q, 2.0 * mu)), (stays, (q, mu)))


@dataclass(frozen=True)
class GivenWay:
    """The pairs A with one probability, ordered by mu.

    Their profiles are convex in Phi(mu): see docs/theory/inversion.md.

    Args:
        q: the probability, in (0, 1).
        swapped: whether the pairs are (Q, P).
    """

    q: float
    swapped: bool = False

    bend = 1.0

    def swap(self) -> GivenWay:
        """Return the family of the swapped pairs."""
        return GivenWay(self.q, not self.swapped)

    def moments(self, mu: float) -> Moments:
        """Return the moments of the pair with a mu above 0."""
        pair = _given_way(self.q, mu)
        return PairMoments.of((1.0, pair.swap() if self.swapped else pair))

    def slabs(self, low: Array, high: Array, tilt: float, unit: Array) -> tuple[Array, Array]:
        """Return slabs below the tilted densities of every pair between two mu: see ``Family``.

        Only outcomes with log P/Q above 0 count. The density of log P/Q at x is e^{power x} times
        that of Q_0 at y(x), times 1 - q + q t, over the derivative of log P/Q. In a cell of x and
        mu each factor has a bound at a corner, because t rises with x and with mu.
        """
        power = -tilt if self.swapped else 1.0 + tilt
        middle = 0.5 * (low + high)
        far = 8.0 + 2.0 * max(power, 0.0) * high
        y = 1.5 * middle + far * np.linspace(0.0, 1.0, _SEARCHED)
        loss = np.maximum(self._loss(middle, y), 0.0)
        exponent = power * loss - 0.5 * y * y
        heavy = exponent > exponent.max(axis=1, keepdims=True) - _HEAVY
        rows = np.arange(len(y))
        first, last = np.argmax(heavy, axis=1), _SEARCHED - 1 - np.argmax(heavy[:, ::-1], axis=1)
        start = y[rows, np.maximum(first - 1, 0)][:, None]
        stop = y[rows, np.minimum(last + 1, _SEARCHED - 1)][:, None]
        at = start + (stop - start) * np.linspace(0.0, 1.0, _CELLS + 1)
        # Any edges will do that are at least 0 and rise.
        edges = np.maximum.accumulate(np.maximum(self._loss(middle, at), 0.0), axis=1)
        height = self._least(edges, (low, high), power, unit)
        return staircase.hills(height, np.diff(edges) * (1.0 - THOUSANDS))

    def _least(self, edges: Array, mu: tuple[Array, Array], power: float, unit: Array) -> Array:
        """Return lower bounds on the tilted density of the loss in every cell, in units."""
        low, high = mu
        log_t = self._root(edges[:, :-1], low), self._root(edges[:, 1:], high)
        # At losses of at least 0 log t is at least mu^2, so y is above 0.
        y = log_t[1] / low + 0.5 * high
        log_rest, log_q = math.log1p(-self.q), math.log(self.q)
        own = np.logaddexp(log_rest, log_q + log_t[0]) - 0.5 * (y * y + _LOG_2PI)
        own = own + power * edges[:, :-1] if power > 0.0 else own + power * edges[:, 1:]
        odds = log_q - log_rest
        in_p = expit(odds + 2.0 * log_t[1] - low * low)
        slope = high * (2.0 * in_p - expit(odds + log_t[0]))
        size = 1.0 + 0.5 * y * y + np.abs(power) * edges[:, 1:] + log_t[1]
        exponent = own - unit - THOUSANDS * (size + np.abs(unit))
        # The slope is a difference of probabilities; the first is larger.
        slope = slope + THOUSANDS * high * in_p
        found = np.exp(np.minimum(exponent, 600.0)) / slope * (1.0 - THOUSANDS)
        return np.asarray(np.where(np.isfinite(found), found, 0.0))

    def _root(self, loss: Array, mu: Array) -> Array:
        """Return log t where log P/Q has a value of at least 0."""
        # q e^{-mu^2} t^2 - a q t - (a - 1)(1 - q) = 0 at a = e^loss.
        square = mu * mu
        rest = -np.expm1(-loss) * np.exp(-loss - square) * ((1.0 - self.q) / self.q)
        return np.asarray(loss + square + np.log(0.5 + np.sqrt(0.25 + rest)))

    def _loss(self, mu: Array, y: Array) -> Array:
        """Return log P/Q."""
        log_t = mu * y - 0.5 * mu * mu
        log_rest, log_q = math.log1p(-self.q), math.log(self.q)
        in_p = np.logaddexp(log_rest, log_q + 2.0 * log_t - mu * mu)
        return np.asarray(in_p - np.logaddexp(log_rest, log_q + log_t))


@dataclass(frozen=True)
class _Folded(Part):
    """A fold that is one round."""

    def part(self) -> Part:
        """Return the fold."""
        return self


@dataclass(frozen=True)
class FoldedGaussians:
    """Folds of S, or of S and A, with one probability, ordered by mu.

    Their profiles are convex in Phi(bend mu), since those of the halves are.

    Args:
        q: the probability, in (0, 1).
        zeroed: whether one half is A.
        turned: whether A is the lower half.
    """

    q: float
    zeroed: bool
    turned: bool = False

    @property
    def bend(self) -> float:
        """The factor of mu."""
        return GivenWay.bend if self.zeroed else SampledGaussians.bend

    def swap(self) -> FoldedGaussians:
        """Return the family of the other order."""
        return replace(self, turned=not self.turned) if self.zeroed else self

    def moments(self, mu: float) -> Moments:
        """Return the moments of the fold with a mu above 0."""
        sample = GaussianPair(((1.0 - self.q, 0.0), (self.q, mu)), ((1.0, 0.0),))
        other = _given_way(self.q, mu) if self.zeroed else sample
        up, down = (sample, other) if self.turned else (other, sample)
        pieces = above(1.0, up), above(1.0, down).swap()
        # The masses of halves of a fold do not exceed 1, except by rounding.
        return _Folded(pieces, max(1.0 - sum(piece.mass for piece in pieces), 0.0))

    def slabs(self, low: Array, high: Array, tilt: float, unit: Array) -> tuple[Array, Array]:
        """Return slabs below the tilted densities of every fold between two mu: see ``Family``."""
        upper = not self.zeroed or self.turned
        sampled = SampledGaussians(self.q, not upper)
        found = [sampled.slabs(low, high, tilt, unit, above=True)]
        if self.zeroed:
            found.append(GivenWay(self.q, self.turned).slabs(low, high, tilt, unit))
        else:
            lower = SampledGaussians(self.q, True)
            found.append(lower.slabs(low, high, tilt, unit, above=True))
        mass, width = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
        return mass, width
