"""Curves of mechanisms with only stated guarantees (T12 of ``docs/theory/theorems.md``).

``stated_pair`` gives the dominating pair of (epsilon, delta) guarantees: the discrete pair whose
profile is the greatest convex function below these points. It is computed in rational arithmetic
and rounded once. ``RenyiPoints`` is the curve of a Renyi guarantee at some orders.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...registry import registered
from ...rounding import HUNDREDS, TENS, Down, Up, rounded_down, rounded_up
from ..moments.moments import MomentBounds, Moments
from .components import Components
from .curve import TAIL_MASS, Curve
from .discrete import Atoms
from .lattice import Array, Lattice, Side, Tails
from .max_loss import MaxLoss
from .support import Support

Points = tuple[tuple[float, float], ...]
Vertex = tuple[Fraction, Fraction]

MAX_EPSILON = 500.0
"""The largest epsilon of a guarantee: beyond it, Q-masses near the smallest number would matter."""

_TINY = 1e-290
"""Points with less Q-mass go to infinity."""

_GRID = 800
"""Number of epsilons at which a Renyi guarantee is converted."""
_PER_CHORD = 16
"""Number of orders tried between two given orders."""
_DEPTH = 115.0
"""Converted guarantees end near delta = exp(-115) = 1e-50."""


def _up(value: float) -> float:
    return math.nextafter(value, math.inf)


def minorant(points: Sequence[Vertex]) -> list[Vertex]:
    """Return the vertices of the greatest convex function below points (x, y), in order of x."""
    kept: list[Vertex] = []
    for point in sorted(points):
        # Sorted points of one x begin with the lowest, and only that one counts.
        if kept and kept[-1][0] == point[0]:
            continue
        # A point on or above the chord of its neighbours is no vertex.
        while len(kept) > 1 and _above(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _above(first: Vertex, middle: Vertex, last: Vertex) -> bool:
    """Return whether the middle point lies on or above the chord of the others."""
    rise, run = last[1] - first[1], last[0] - first[0]
    # Runs are positive, so multiplying across avoids a division of fractions.
    return (middle[1] - first[1]) * run >= rise * (middle[0] - first[0])


@functools.lru_cache(maxsize=256)
def stated_pair(guarantees: Points) -> Atoms:
    """Return the pair that dominates every mechanism that is (epsilon, delta)-DP at all points.

    The guarantees hold in both orientations.

    Args:
        guarantees: (epsilon, delta), each epsilon in [0, MAX_EPSILON], each delta in [0, 1].
    """
    known = [_vertex(epsilon, delta) for epsilon, delta in guarantees if delta < 1.0]
    if not known:
        # Without a guarantee, P and Q may have no common outcome.
        return Atoms((), 1.0, 1.0)
    # A guarantee at (a, delta) for (P, Q) holds at its mirror image for (Q, P).
    mirrored = [(1 / a, 1 - (1 - delta) / a) for a, delta in known]
    # From the smallest delta on the profile may stay flat, and later points add no information.
    last = min(known, key=lambda vertex: (vertex[1], vertex[0]))
    ahead = [vertex for vertex in known if vertex[0] <= last[0]]
    hull = minorant([(Fraction(0), Fraction(1)), *mirrored, *ahead])
    return _pair_of(hull)


def _vertex(epsilon: float, delta: float) -> Vertex:
    """Return (e^epsilon rounded up, delta): delta holds further right as well."""
    # exp is right to an ulp, so two steps up exceed the exact value.
    a = 1.0 if epsilon == 0.0 else _up(_up(math.exp(epsilon)))
    return Fraction(a), Fraction(delta)


def _pair_of(hull: list[Vertex]) -> Atoms:
    """Return the pair whose profile has these vertices and is flat beyond, masses rounded up.

    Where the slope of a profile rises by q at a, there is Q-mass q and P-mass a q of ratio a. The
    hull is its own mirror image, so vertices left of 1 are not used.
    """
    falls = [(d0 - d1) / (a1 - a0) for (a0, d0), (a1, d1) in itertools.pairwise(hull)]
    change = zip(hull[1:], falls, [*falls[1:], Fraction(0)], strict=True)
    right = [(a, a * (before - after)) for (a, _), before, after in change if a >= 1]
    found = [(_log_up(a), _up(float(p))) for a, p in right if p > 0]
    points = [(loss, p) for loss, p in found if p * math.exp(-loss) > _TINY]
    left = [(-loss, p * math.exp(-loss) * (1 + 4e-16)) for loss, p in points[::-1] if loss > 0]
    lost = sum(p for loss, p in found if p * math.exp(-loss) <= _TINY)
    least = float(hull[-1][1]) + lost
    return Atoms((*left, *points), least, least)


def _log_up(a: Fraction) -> float:
    return 0.0 if a == 1 else _up(_up(math.log(float(a))))


@registered
@dataclass(frozen=True)
class RenyiPoints(Curve):
    """A mechanism with at most the given Renyi divergences, in both orientations.

    Moments are those of the guarantee itself. Tails and lattices are those of the pair that
    dominates the implied (epsilon, delta) guarantees. Both are valid for the mechanism, but they do
    not belong to one pair.

    Args:
        divergences: (order, divergence), orders finite and above 1, divergences at least 0.
    """

    divergences: Points

    def __post_init__(self) -> None:
        orders = [order for order, _ in self.divergences]
        values = [value for _, value in self.divergences]
        if not orders or not all(1.0 < order < math.inf for order in orders):
            raise ValueError(f"RenyiPoints: orders must be finite and above 1, got {orders}")
        if not all(0.0 <= value < math.inf for value in values):
            raise ValueError(f"RenyiPoints: divergences must be finite, at least 0, got {values}")

    def moments(self) -> Moments:
        """Return the guarantee: the chord between given orders."""
        return MomentBounds(self._log_moment)

    def components(self) -> Components:
        """Return the pair behind the tails."""
        return Components(pair=lambda: self.pair)

    def swap(self) -> Curve:
        """Return the curve itself: the guarantee holds in both orientations.

        Its support is not symmetric, because symmetry is that of one pair.
        """
        return self

    @functools.cached_property
    def _knots(self) -> tuple[Array, Array]:
        """Return orders, from 1 on, and log-moments there: vertices of the convex minorant."""
        given = [(Fraction(a), (Fraction(a) - 1) * Fraction(r)) for a, r in self.divergences]
        hull = minorant([(Fraction(1), Fraction(0)), *given])
        orders, moments = zip(*hull, strict=True)
        return np.array(orders, dtype=np.float64), np.array(moments, dtype=np.float64)

    def _log_moment(self, order: float) -> Up:
        """Return the chord between given orders, 0 at order 1; infinite beyond the last.

        log E_P e^{(a-1) L} is convex in a and 0 at a = 1. Negative orders are those of the swap.
        """
        order = max(order, 1.0 - order)
        orders, moments = self._knots
        if order > orders[-1]:
            return Up(math.inf)
        return rounded_up(float(np.interp(order, orders, moments)))

    def _moments_at(self, orders: Array) -> Array:
        """Return log-moments at orders above 1, up to the last given one."""
        return np.asarray(rounded_up(np.interp(orders, *self._knots)))

    def implied_delta(self, epsilons: Array) -> Array:
        """Return a delta that follows from the divergences at each epsilon of at least 0.

        It is the smaller of two values. The first is that of Canonne, Kamath and Steinke (T7), over
        the given orders and some orders between these. The second follows from the variance of the
        likelihood ratio X: E (X - a)^+ is at most (sqrt(Var X + (a-1)^2) - (a-1)) / 2.
        """
        orders = self._tried
        power = orders - 1.0
        size = self._moments_at(orders) + power * np.log1p(-1.0 / orders) - np.log(orders)
        log_delta = np.min(size - np.multiply.outer(epsilons, power), axis=1)
        delta = np.exp(np.minimum(HUNDREDS - rounded_down(-log_delta, TENS), 0.0))
        variance = rounded_up(math.expm1(min(self._log_moment(2.0), 700.0)), TENS)
        beyond = np.expm1(epsilons)
        # The difference of a root and a - 1, rationalised to avoid cancellation at large a.
        spread = 0.5 * variance / (np.hypot(math.sqrt(variance), beyond) + beyond + 1e-300)
        return np.asarray(np.minimum(delta, rounded_up(spread, TENS)))

    @functools.cached_property
    def _tried(self) -> Array:
        """Return the orders that are converted."""
        power = self._knots[0] - 1.0
        # Between order 1 and the first given order the best may lie anywhere on a log scale.
        first = power[1] * np.geomspace(1e-4, 1.0, 4 * _PER_CHORD)
        rest = [np.linspace(a, b, _PER_CHORD)[1:] for a, b in itertools.pairwise(power[1:])]
        found = 1.0 + np.concatenate([first, *rest])
        return np.asarray(found[(found > 1.0) & (found <= self._knots[0][-1])])

    def _points(self) -> Points:
        """Return the (epsilon, delta) guarantees that hold besides the divergences."""
        return ()

    @property
    def pair(self) -> Atoms:
        """The pair that dominates the implied guarantees on a grid of epsilons."""
        return _implied_pair(self)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of ``pair``."""
        return self.pair.tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the rounded losses of ``pair``."""
        return self.pair.lattice(step, side, tail_mass)


@registered
@dataclass(frozen=True)
class RenyiLine(RenyiPoints):
    """A mechanism with a Renyi divergence of at most xi + rho a at every order a above 1.

    Moments are those of the line; ``divergences`` are some of its points, for the tails.

    Args:
        divergences: points (a, xi + rho a), not below the line.
        rho: at least 0.
        xi: at least 0.
    """

    rho: float
    xi: float

    def _log_moment(self, order: float) -> Up:
        """Return (a - 1) (xi + rho a), rounded up."""
        order = max(order, 1.0 - order)
        return rounded_up((order - 1.0) * (self.xi + self.rho * order))

    def _moments_at(self, orders: Array) -> Array:
        return np.asarray(rounded_up((orders - 1.0) * (self.xi + self.rho * orders)))


@registered
@dataclass(frozen=True)
class RenyiAndPoints(RenyiPoints):
    """A mechanism with at most the given Renyi divergences and with (epsilon, delta) guarantees.

    Args:
        divergences: as in ``RenyiPoints``.
        guarantees: (epsilon, delta), in both orientations, as in ``stated_pair``.
    """

    guarantees: Points

    def _log_moment(self, order: float) -> Up:
        """Return the smaller of the chord and of the moment of the guarantees' pair."""
        return min(super()._log_moment(order), self._stated.moments().log_moment(order))

    def _moments_at(self, orders: Array) -> Array:
        return np.array([self._log_moment(float(order)) for order in orders])

    @property
    def _stated(self) -> Atoms:
        return stated_pair(self.guarantees)

    def support(self) -> Support:
        """Return the upper ends of the guarantees; no attained loss is known."""
        found = self._stated.support().largest
        return Support(largest=MaxLoss(Down(0.0), found.high, Down(0.0), found.infinite_high))

    def _points(self) -> Points:
        return self.guarantees


@functools.lru_cache(maxsize=64)
def _implied_pair(curve: RenyiPoints) -> Atoms:
    orders = curve._tried
    # Beyond this epsilon some order already shows delta below e^-DEPTH.
    reach = float(np.min((curve._moments_at(orders) + _DEPTH) / (orders - 1.0)))
    shares = np.arange(_GRID + 1) / _GRID
    # Squares are denser near 0, where the profile bends most.
    epsilons = min(reach, MAX_EPSILON) * shares**2
    deltas = curve.implied_delta(epsilons)
    pairs = zip(epsilons.tolist(), deltas.tolist(), strict=True)
    return stated_pair((*pairs, *curve._points()))
