"""Bounds of the profiles of all triangles in a square of angles, from those at its corners.

Let y be a fixed point of a circle of radius r, and let x and x' move on it. A round compares
P = (1-q) N(0) + q N(u) with Q = (1-q) N(0) + q N(v), where u = x - y and v = x' - y. So P depends
on the arc from y to x, and Q on that to x'. With D the profile, for fixed v,

    D'' >= - q * integral of (N(u)'')^- over {P > a Q},

since (.)^+ is convex, and for fixed u the same holds with a N(v)'' and its positive part. If M and
M' bound the two integrals, then D is at most the mean of its values at the corners of the square
plus (M w^2 + M' w'^2) / 8, where w and w' are the lengths of the arcs (docs/theory/game.md).

An arc is twice the angle of the triangle at the opposite corner: 2 g for x, and 2 b for x'.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from ...rounding import HUNDREDS, rounded_up
from ..curves.lattice import Array
from .cells import Gram, excess, mirrored, product, sampled_excess

RIGHT = math.nextafter(0.5 * math.pi, 2.0)
Square = tuple[tuple[float, float], tuple[float, float]]
"""A range of g and one of b."""
_PARTS = 2
"""Each side of a square has so many parts, whose products are bounded apart."""
_SHARES = np.linspace(0.0, 1.0, 6)
"""Weights of the two half-planes that contain {P > a Q}."""
_NORMAL_PART = 0.4
"""At least the mean of the positive part of a standard normal number, .39894."""
_SQUARE_PART = 0.484
"""At least the mean of (1 - G^2)^+, and of (G^2 - 1)^+: .48394."""
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


def squares(edge: float, growth: float, inside: Square | None = None) -> list[Square]:
    """Return squares of angles that hold every triangle, or that with g and b exchanged.

    Args:
        edge: a side of at most this length is not halved.
        growth: nor is one of at most this part of the distance to the corner of S.
        inside: the square that is divided; that of all triangles by default.
    """
    found = []
    waiting = [inside or ((0.0, RIGHT), (0.0, RIGHT))]
    while waiting:
        g, b = waiting.pop()
        if not _needed(g, b):
            continue
        if g[1] - g[0] <= max(edge, growth * away(g, b)):
            found.append((g, b))
        else:
            halves = (_halves(g), _halves(b))
            waiting += [(one, other) for one in halves[0] for other in halves[1]]
    return found


def away(g: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance of a square from the corner of S, where g is right and b is 0."""
    return max(0.5 * math.pi - g[1], b[0])


def _needed(g: tuple[float, float], b: tuple[float, float]) -> bool:
    """Return whether a square has triangles without an obtuse angle, and with b below g.

    Edges are rounded towards keeping a square.
    """
    return g[1] + b[1] >= 0.5 * math.pi - 1e-12 and b[0] < g[1]


def _halves(side: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    middle = 0.5 * (side[0] + side[1])
    return (side[0], middle), (middle, side[1])


@dataclass
class TriangleProfiles:
    """Profiles of triangles, minus (1 - a)^+, at symmetric losses.

    Args:
        mu: diameter of the circle.
        q: sampling probability.
        losses: shape (k,), increasing, symmetric about 0, at most 600.
    """

    mu: float
    q: float
    losses: Array
    _known: dict[tuple[float, float], Array] = field(default_factory=dict)

    def most(self, cells: list[Square]) -> Array:
        """Return a bound of the profiles of all triangles in the squares, shape (k,)."""
        allowed = self._between(cells)
        found = np.zeros(len(self.losses))
        for (g, b), more in zip(cells, allowed, strict=True):
            corners = [self.at(one, other) for one in g for other in b]
            found = np.maximum(found, np.max(corners, axis=0) + more)
        return found

    def at(self, g: float, b: float) -> Array:
        """Return an upper bound of the profile of one triangle."""
        if (b, g) in self._known:
            return mirrored(self._known[b, g], self.losses)
        if (g, b) not in self._known:
            self._known[g, b] = self._computed(g, b)
        return self._known[g, b]

    def _computed(self, g: float, b: float) -> Array:
        mu, q = self.mu, self.q
        if g == b == 0.0 or g + b >= 2.0 * RIGHT:
            # Two or three of the points are one.
            return np.zeros(len(self.losses))
        if g == 0.0:
            return mirrored(self.at(b, g), self.losses)
        if b == 0.0:
            # Then v is 0, and P is sampled.
            return sampled_excess(rounded_up(mu * math.sin(g), HUNDREDS), q, self.losses)
        square = mu * mu
        more = rounded_up(square, HUNDREDS)
        products = Gram(
            more * (math.sin(g) ** 2 + HUNDREDS),
            more * (math.sin(b) ** 2 + HUNDREDS),
            square * product(g, b),
        )
        return excess(products, q, self.losses)

    def _between(self, cells: list[Square]) -> Array:
        """Return how far a profile may lie above the corners' of its square, (n, k)."""
        sides = np.array(cells)
        arcs = 2.0 * (sides[:, :, 1] - sides[:, :, 0])
        to_u, to_v = (arcs**2 / 8.0).T[:, :, None]
        boxes = self._boxes(sides)
        far = self.losses[len(self.losses) // 2 :]
        front, back = _second_derivatives(0.5 * self.mu, self.q, far, boxes)
        right = front * to_u + back * to_v
        front, back = _second_derivatives(0.5 * self.mu, self.q, far, boxes.swap())
        left = np.exp(-far) * (front * to_v + back * to_u)
        return np.concatenate([left[:, :0:-1], right], axis=1)

    def _boxes(self, sides: Array) -> Boxes:
        """Return the ranges of the products in parts of squares (n, 2, 2)."""
        steps = np.linspace(0.0, 1.0, _PARTS + 1)
        edges = sides[:, :, :1] + (sides[:, :, 1:] - sides[:, :, :1]) * steps
        g, b = edges[:, 0], edges[:, 1]
        shape = (len(sides), _PARTS, _PARTS)
        g0, g1 = (np.broadcast_to(x[:, :, None], shape) for x in (g[:, :-1], g[:, 1:]))
        b0, b1 = (np.broadcast_to(x[:, None, :], shape) for x in (b[:, :-1], b[:, 1:]))
        square = self.mu * self.mu
        # The product grows with both angles where none is obtuse, and is negative elsewhere.
        low = np.where(
            g0 + b0 >= 0.5 * math.pi,
            product(g0, b0),
            -np.sin(g1) * np.sin(b1) * np.abs(np.cos(g0 + b0)),
        )
        high = np.where(g1 + b1 >= 0.5 * math.pi, np.maximum(product(g1, b1), 0.0), 0.0)
        low, high = low - HUNDREDS, high + HUNDREDS
        ranges = (np.sin(g0) ** 2, np.sin(g1) ** 2, np.sin(b0) ** 2, np.sin(b1) ** 2, low, high)
        return Boxes(*(square * x.reshape(len(sides), -1, 1) for x in ranges))


@dataclass(frozen=True)
class Boxes:
    """Ranges of |u|^2, |v|^2 and <u, v>; shapes (n, parts, 1)."""

    uu_low: Array
    uu_high: Array
    vv_low: Array
    vv_high: Array
    uv_low: Array
    uv_high: Array

    def swap(self) -> Boxes:
        """Return the ranges with u and v exchanged."""
        return Boxes(
            self.vv_low, self.vv_high, self.uu_low, self.uu_high, self.uv_low, self.uv_high
        )

    def half_planes(self, log_c: Array, far: Array) -> Iterator[tuple[Array, Array]]:
        """Yield how far, at least, half-planes around {P > a Q} are from u and from v, (n, k).

        {P > a Q} lies in {N(u) > c N(0)} and in {N(u) > a N(v)}, so in each half-plane between.
        """
        for share in _SHARES.tolist():
            rest = 1.0 - share
            # At a = 1 c is 0: then only the half-plane of a says something.
            level = rest * far + (share * log_c if share > 0.0 else 0.0)
            # Squares of the normal, |u - rest v|^2.
            near = self.uu_low - 2 * rest * self.uv_high + rest * rest * self.vv_low
            wide = self.uu_high - 2 * rest * self.uv_low + rest * rest * self.vv_high
            lengths = np.sqrt(np.maximum(near, 1e-300)), np.sqrt(np.maximum(wide, 1e-300))
            both = self.uu_high + self.vv_high - 2 * self.uv_low
            from_u = level - 0.5 * share * self.uu_high - 0.5 * rest * both
            least = 0.5 * rest * (self.uu_low + self.vv_low)
            from_v = level + 0.5 * share * self.uu_low + least - self.uv_high
            yield _shortest(from_u, *lengths), _shortest(from_v, *lengths)


def _shortest(least: Array, near: Array, wide: Array) -> Array:
    """Return a lower bound of ``least`` over a length between two."""
    found = least / np.where(least > 0.0, wide, near)
    return np.asarray(found - HUNDREDS * (1.0 + np.abs(found)))


def _second_derivatives(r: float, q: float, far: Array, boxes: Boxes) -> tuple[Array, Array]:
    """Return bounds of -D'' along the arc of u and along that of v, (n, k), at losses from 0 on.

    With G standard normal, G1 along the circle and G2 across, N(u)'' is N(u) times
    r^2 (G1^2 - 1) - r G2. The integrals are over half-planes that contain {P > a Q}.
    """
    with np.errstate(divide="ignore", over="ignore"):
        log_c = np.log(np.expm1(far)) + math.log((1.0 - q) / q)
    from_u, from_v = np.full((2, len(boxes.uu_low), boxes.uu_low.shape[1], len(far)), -np.inf)
    for one, other in boxes.half_planes(log_c, far):
        from_u, from_v = np.maximum(from_u, one), np.maximum(from_v, other)
    tail, density = _beyond(from_u.min(axis=1))
    across = r * np.minimum(density + _NORMAL_PART * tail, _NORMAL_PART)
    front = q * (r * r * np.minimum(tail, _SQUARE_PART) + across)
    distance = from_v.min(axis=1)
    tail, density = _beyond(distance)
    across = r * np.minimum(density + _NORMAL_PART * tail, _NORMAL_PART)
    along = tail + np.maximum(distance, 0.0) * density
    with np.errstate(over="ignore"):
        back = q * np.exp(far) * (r * r * np.minimum(along, _SQUARE_PART) + across)
    return np.asarray(rounded_up(front, 1e-9)), np.asarray(rounded_up(back, 1e-9))


def _beyond(distance: Array) -> tuple[Array, Array]:
    """Return the mass beyond a distance, and the density there (at 0, if it is negative)."""
    ahead = np.minimum(np.maximum(distance, 0.0), 40.0)
    return ndtr(-distance) + 1e-300, _DENSITY * np.exp(-0.5 * ahead * ahead) + 1e-300
