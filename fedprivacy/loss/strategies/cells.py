"""Pairs above all triangles: the two contributions of one unit and that of its replacement.

Take a round of a Gaussian sum with a cohort of a fixed size, and fix all other contributions. It
compares (1-q) N(0) + q N(u) with (1-q) N(0) + q N(v) (docs/theory/game.md). Only the products of u
and v matter. The products of three points in a ball are at most, as matrices, those of a triangle
on its boundary that has no obtuse angle. Its angles g and b lie in [0, pi/2], with g + b >= pi/2:

    |u| = mu sin g,  |v| = mu sin b,  <u, v> = -mu^2 sin g sin b cos(g + b).

Profiles are given by their excess D over (1 - a)^+. Triangles with b in place of g have the excess
a D(1/a).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from ...rounding import HUNDREDS, UNIT, rounded_up
from ..clock import check_deadline
from ..curves.lattice import Array

_REACH = 12.0
"""Standard deviations beyond all means: 4e-33 of the mass lies outside."""
_DEPTH = 75.0
"""The sum over nodes has an error of e^-75 of the scale of its integrand."""
_NOTHING = 1e-22
_LOG_4 = math.log(4.0)
_BLOCK = 1 << 18
RELATIVE = 2e-12
"""Relative error of the values at nodes: ndtr at up to 38 deviations is right to 38^2 units."""


class Gram(NamedTuple):
    """Squares and product of the two means."""

    uu: float
    vv: float
    uv: float

    def swap(self) -> Gram:
        """Return the products with u and v exchanged."""
        return Gram(self.vv, self.uu, self.uv)


def product(g: Any, b: Any) -> Any:
    """Return <u, v> / mu^2 of the triangle with these angles."""
    return -np.sin(g) * np.sin(b) * np.cos(g + b)


def above_zeroed(mu: float, low: float, high: float) -> Gram:
    """Return products at least, as a matrix, those of u = x - y and v = -y, where |x| = |y| = mu.

    <x, y> / mu^2 lies in a range, and the products are linear in it. The square of u is taken at
    the lower end of the range. Then it suffices to add half of the length of the range to the
    square of v.
    """
    more = rounded_up(mu * mu, HUNDREDS)
    return Gram(
        more * (2.0 - 2.0 * low + HUNDREDS),
        more * (1.0 + 0.5 * (high - low) + HUNDREDS),
        mu * mu * (1.0 - low),
    )


def mirrored(profile: Array, losses: Array) -> Array:
    """Return the excess of the pair with P and Q exchanged, at symmetric losses."""
    return np.asarray(np.exp(losses) * profile[::-1])


def sampled_excess(mu: float, q: float, losses: Array) -> Array:
    """Return upper bounds of the profile of S(G(mu), q) minus (1 - a)^+, at symmetric losses."""
    far = losses[len(losses) // 2 :]
    a = np.exp(far)
    present = _gain(1.0 + np.expm1(far) / q, mu)
    # Absent against present: likelihood ratios below c, rounded up because c may be close to 0.
    c = np.maximum(1.0 + np.expm1(-far) / q, 0.0) + 8 * UNIT
    absent = a * _gain(c, mu, below=True)
    return np.asarray(q * np.concatenate([(absent / a)[:0:-1], present]))


def _gain(c: Array, mu: float, *, below: bool = False) -> Array:
    """Return upper bounds of the integral of (N(mu) - c N(0))^+; sign flipped if ``below``."""
    with np.errstate(divide="ignore"):
        cut = np.log(c) / mu + 0.5 * mu
    sign = -1.0 if below else 1.0
    there, here = ndtr(sign * (mu - cut)), c * ndtr(-sign * cut)
    found = np.maximum(sign * (there - here), 0.0) + RELATIVE * (there + here) + 1e-300
    return np.asarray(found)


def given_way_excess(mu: float, q: float, losses: Array) -> Array:
    """Return upper bounds of the profile of ``given_way`` minus (1 - a)^+, in closed form.

    With t = e^{mu y - mu^2 / 2}, P - a Q is N(0) times q e^{-mu^2} t^2 - a q t - (a - 1) (1 - q).
    It is positive beyond one root. Q - a P is positive between two roots. An inexact root is valid
    too: each set gives at most the value of the best set.
    """
    far = losses[len(losses) // 2 :]
    a, c = np.exp(far), np.expm1(far) * ((1.0 - q) / q)
    # In logs: squares of roots exceed the range of doubles if losses are in the hundreds.
    square = mu * mu
    with np.errstate(divide="ignore"):
        log_c = np.log(c)
    root = far + square + np.log(0.5 + np.sqrt(0.25 + np.exp(log_c - square - 2.0 * far)))
    right = _held(mu, c, (2.0, a, 1.0), root, np.inf)
    both = 1.0 + np.sqrt(-np.expm1(np.minimum(_LOG_4 + log_c + far - square, 0.0)))
    first, second = log_c + np.log(2.0 / both), square - far + np.log(0.5 * both)
    left = _held(mu, c, (1.0, a, 2.0), first, np.maximum(second, first))
    return q * np.concatenate([(left / a)[:0:-1], right])


def _held(
    mu: float, c: Array, means: tuple[float, Array, float], low: Array, high: Array | float
) -> Array:
    """Return upper bounds of N(i mu) - a N(j mu) - c N(0) from log t low to high; (i, a, j)."""

    def mass(mean: float) -> Array:
        near, far = low / mu + (0.5 - mean) * mu, np.asarray(high) / mu + (0.5 - mean) * mu
        # The smaller tails lose fewer digits to cancellation.
        right = near > 0.0
        return np.asarray(ndtr(np.where(right, -near, far)) - ndtr(np.where(right, -far, near)))

    gain, lost = mass(means[0]), means[1] * mass(means[2]) + c * mass(0.0)
    return np.maximum(gain - lost, 0.0) + RELATIVE * (gain + lost) + 1e-300


def excess(gram: Gram, q: float, losses: Array) -> Array:
    """Return upper bounds of the profile minus (1 - a)^+ at a = e^loss, for symmetric losses."""
    half = len(losses) // 2
    right = _beyond(gram, q, losses[half:])
    left = _beyond(gram.swap(), q, losses[half:])
    return np.concatenate([(np.exp(losses[half:]) ** -1.0 * left)[:0:-1], right])


def _beyond(gram: Gram, q: float, losses: Array) -> Array:
    """Return upper bounds of the profile at losses of at least 0.

    P exceeds a Q where e^{u x} exceeds c + a e^{v x}: beyond a curve over the axis along v. The
    integrand over that axis is analytic in a strip. Let d be the half width of the strip, and let M
    bound the integral there. Then a sum over equal steps has an error of at most
    2 M / (e^{2 pi d / step} - 1).
    """
    most = _without_v(gram.uu, q, losses)
    # If this bound is already negligible, no sum is needed.
    some = int(np.count_nonzero(most > _NOTHING))
    most[:some] = np.minimum(most[:some], _summed(gram, q, losses[:some]))
    return most


def _without_v(uu: float, q: float, losses: Array) -> Array:
    """Return upper bounds of the profile against (1 - q) N(0), which is less than Q."""
    u, c = math.sqrt(uu), np.expm1(losses) * ((1.0 - q) / q)
    with np.errstate(divide="ignore"):
        cut = np.log(c) / u + 0.5 * u
    gain, lost = ndtr(u - cut), c * ndtr(-cut)
    return np.asarray(q * (np.maximum(gain - lost, 0.0) + RELATIVE * (gain + lost) + 1e-300))


def _summed(gram: Gram, q: float, losses: Array) -> Array:
    v = math.sqrt(gram.vv)
    along = gram.uv / v
    across = math.sqrt(max(gram.uu - along * along, 0.0))
    if across == 0.0:
        # The matrix of a cell is singular only through rounding; 1 bounds every profile.
        return np.ones(len(losses))
    # |Phi(s + i y)| is at most e^{y^2/2}, and y grows with the height by at most this factor.
    steep = 1.0 + (max(along, abs(v - along)) / across) ** 2
    step, strip = _steps(steep, v)
    low, high = min(0.0, along) - _REACH, max(along, v) + _REACH
    x = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
    found = np.empty(len(losses))
    off = 2.0 * math.exp(0.5 * strip * strip * steep - 2.0 * math.pi * strip / step) + 1e-31
    rows = max(_BLOCK // len(x), 1)
    nodes = [
        np.exp(-0.5 * (x - mean) ** 2) * (step / math.sqrt(2 * math.pi)) for mean in (0.0, along, v)
    ]
    for start in range(0, len(losses), rows):
        check_deadline()
        at = losses[start : start + rows]
        a, c = np.exp(at), np.expm1(at) * ((1.0 - q) / q)
        with np.errstate(divide="ignore"):
            both = np.logaddexp(np.log(c)[:, None], at[:, None] + (v * x - 0.5 * gram.vv))
        cut = (both - along * x + 0.5 * gram.uu) / across
        neither, there = ndtr(-cut), ndtr(across - cut)
        gain, lost = there @ nodes[1], c * (neither @ nodes[0]) + a * (neither @ nodes[2])
        slack = (RELATIVE + UNIT * len(x)) * (gain + lost) + off * (1.0 + a + c)
        found[start : start + rows] = gain - lost + slack
    return rounded_up(q * np.maximum(found, 0.0))


def _steps(steep: float, v: float) -> tuple[float, float]:
    """Return (step, half width of the strip) for which the error of the sum is about e^-_DEPTH."""
    # 2 pi d / h - d^2 steep / 2 is largest at d = 2 pi / (h steep). The logarithm limits d to
    # pi / v.
    step = 2.0 * math.pi / math.sqrt(2.0 * _DEPTH * steep)
    strip = 2.0 * math.pi / (step * steep)
    most = 0.9 * math.pi / v
    if strip > most:
        strip = most
        step = 2.0 * math.pi * strip / (_DEPTH + 0.5 * strip * strip * steep)
    return step, strip
