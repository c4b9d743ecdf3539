"""Exact values to many digits, written from the definitions with mpmath, without our code.

A pair of Gaussian mixtures is ``(p, q)``: each a tuple of (weight, mean), unit variance. A *split*
is a pair given by its positive losses only: ``right`` and ``left`` pairs of one fold, where losses
above 0 come from ``right`` and losses below 0 from the swap of ``left``.
"""

from __future__ import annotations

import functools
import itertools

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy.special import logsumexp, ndtr

mp.dps = 30


def phi(x):
    """The normal distribution function, right far into both tails."""
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def gaussian_delta(epsilon, mu):
    """delta(epsilon) of N(mu, 1) against N(0, 1)."""
    epsilon, mu = mpf(epsilon), mpf(mu)
    return phi(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


def erased_delta(epsilon, mu, rounds, q):
    """delta of ``rounds`` mu-GDP rounds; each happens with probability q, visibly."""
    total, q = mpf(0), mpf(q)
    for j in range(1, rounds + 1):
        weight = mpmath.binomial(rounds, j) * q**j * (1 - q) ** (rounds - j)
        total += weight * gaussian_delta(epsilon, mpmath.sqrt(j) * mpf(mu))
    return total


def sampled_delta(epsilon, mu, q):
    """delta of ((1-q) N(0) + q N(mu)) against N(0), at any real epsilon."""
    epsilon, q = mpf(epsilon), mpf(q)
    inner = 1 + mpmath.expm1(epsilon) / q
    if inner <= 0:
        return -mpmath.expm1(epsilon)
    return q * gaussian_delta(mpmath.log(inner), mu)


def swapped(profile):
    """The profile of (Q, P) from the profile of (P, Q)."""
    return lambda e: -mpmath.expm1(e) + mpmath.exp(e) * profile(-mpf(e))


def mixture(*components):
    """Components as mpf."""
    return tuple((mpf(w), mpf(m)) for w, m in components)


def density(components, y):
    """A unit-variance mixture's density."""
    return sum(w * mpmath.npdf(y, m, 1) for w, m in components)


def mass(components, low, high):
    """A unit-variance mixture's mass of [low, high], by the smaller tails."""
    total = mpf(0)
    for w, m in components:
        a, b = low - m, high - m
        total += w * (phi(b) - phi(a) if b < 0 or a < 0 < b else phi(-a) - phi(-b))
    return total


def sampled_pair(mu, q):
    """The mixture pair of ``sampled_delta``."""
    return mixture((1 - mpf(q), 0), (q, mu)), mixture((1, 0))


def loss(pair, y):
    """log P/Q at y."""
    return mpmath.log(density(pair[0], y)) - mpmath.log(density(pair[1], y))


def crossings(pair, epsilon, nodes=400):
    """Every y with loss epsilon."""
    means = [m for side in pair for _, m in side]
    low, high = min(means) - 40 - mpmath.pi / 100, max(means) + 40 + mpmath.e / 100
    grid = [low + (high - low) * i / nodes for i in range(nodes + 1)]
    values = [loss(pair, y) - epsilon for y in grid]
    roots = []
    for a, b, fa, fb in zip(grid, grid[1:], values, values[1:], strict=False):
        if fa * fb < 0:
            root = mpmath.findroot(
                lambda y: loss(pair, y) - epsilon, (a, b), solver="anderson", tol=mpf(10) ** -26
            )
            roots.append(root)
    return roots


def mixture_delta(pair, epsilon):
    """delta(epsilon) of a pair of mixtures, from the zeros of P - e^epsilon Q."""
    epsilon = mpf(epsilon)
    edges = [-mpmath.inf, *crossings(pair, epsilon), mpmath.inf]
    total = mpf(0)
    for low, high in itertools.pairwise(edges):
        middle = high - 1 if low == -mpmath.inf else low + 1 if high == mpmath.inf else None
        middle = (low + high) / 2 if middle is None else middle
        if abs(middle) == mpmath.inf:
            middle = mpf(0)
        if loss(pair, middle) > epsilon:
            p, q = mass(pair[0], low, high), mass(pair[1], low, high)
            total += p - mpmath.exp(epsilon) * q
    return total


def log_moment(pair, order):
    """log of the integral of P^order Q^(1-order)."""
    order = mpf(order)
    means = sorted({m for side in pair for _, m in side})
    centres = sorted({order * a + (1 - order) * b for a in means for b in means} | set(means))
    points = sorted({c + s for c in centres for s in (-14, -6, -2, 0, 2, 6, 14)})

    def integrand(y):
        return density(pair[0], y) ** order * density(pair[1], y) ** (1 - order)

    return mpmath.log(mpmath.quad(integrand, points))


@functools.cache
def _nodes(low, high, panels):
    """Gauss-Legendre nodes and weights on equal panels of [low, high]."""
    base = mpmath.calculus.quadrature.GaussLegendre(mp).calc_nodes(4, 70)
    width = (mpf(high) - mpf(low)) / panels
    return tuple(
        (low + width * (i + (x + 1) / 2), w * width / 2) for i in range(panels) for x, w in base
    )


def _positive(pair, panels, cuts):
    """(P-weight, Q-weight, loss) on a quadrature grid of {loss > 0}, cut at the given losses."""
    roots = sorted({root for at in (mpf(0), *cuts) if at >= 0 for root in crossings(pair, at)})
    means = [m for side in pair for _, m in side]
    edges = [min(means) - 12, *roots, max(means) + 12]
    found = []
    for low, high in itertools.pairwise(edges):
        if loss(pair, (low + high) / 2) <= 0:
            continue
        for y, w in _nodes(low, high, panels):
            p, q = density(pair[0], y), density(pair[1], y)
            found.append((w * p, w * q, mpmath.log(p / q)))
    return found


def twice_delta(profile, right, left, epsilon, kinks=(0,), panels=6):
    """delta(epsilon) of two rounds of one split, by quadrature over the first round's loss.

    ``profile`` is the single round's delta at any real epsilon. Losses above 0 have the masses of
    ``right``; a loss below 0 of size x has the Q-mass that ``left`` has at x; the rest is at 0.
    ``kinks`` are the losses where ``profile`` is not smooth.
    """
    epsilon = mpf(epsilon)
    above = _positive(right, panels, [epsilon - kink for kink in kinks])
    below = _positive(left, panels, [mpf(kink) - epsilon for kink in kinks])
    total, seen = mpf(0), mpf(0)
    for p, _, x in above:
        total += p * profile(epsilon - x)
        seen += p
    for _, q, x in below:
        total += q * profile(epsilon + x)
        seen += q
    return total + (1 - seen) * profile(epsilon)


def fast_log_moment(pair, order):
    """``log_moment`` by the trapezoid rule in extended precision, which converges geometrically.

    The densities are analytic in a strip of half-width pi / spread.
    """
    wide = np.longdouble
    means = sorted({float(m) for side in pair for _, m in side})
    spread = max(means[-1] - means[0], 0.5)
    mesh = 0.12 / (spread * max(1.0, abs(order)) ** 0.5)
    centres = [order * a + (1 - order) * b for a in means for b in means]
    nodes = np.arange(int((max(centres) - min(centres) + 28) / mesh))
    y = wide(min(centres) - 14) + wide(mesh) * nodes.astype(wide)

    def log_density(side):
        terms = [
            np.log(wide(mpmath.nstr(w, 24))) - (y - wide(mpmath.nstr(m, 24))) ** 2 / 2
            for w, m in side
        ]
        top = np.maximum.reduce(terms)
        return top + np.log(sum(np.exp(term - top) for term in terms))

    exponent = wide(order) * log_density(pair[0]) + (1 - wide(order)) * log_density(pair[1])
    return np.log(np.sum(np.exp(exponent)) * wide(mesh) / np.sqrt(2 * wide(np.pi)))


class HalfLines:
    """delta(epsilon) of a pair of mixtures whose loss falls, then rises; vectorised, in doubles.

    Bisection on each side of the loss's minimum, independent of the package's own root search.
    """

    def __init__(self, pair):
        self.p, self.q = [[(float(w), float(m)) for w, m in side] for side in pair]
        means = [m for _, m in self.p + self.q]
        self.ends = (min(means) - 13.0, max(means) + 13.0)
        grid = np.linspace(*self.ends, 20_001)
        self.bottom = grid[int(np.argmin(self.loss(grid)))]

    @staticmethod
    def log_density(side, y):
        """Log-density without its constant."""
        return logsumexp([np.log(w) - (y - m) ** 2 / 2 for w, m in side], axis=0)

    def loss(self, y):
        """log P/Q."""
        return self.log_density(self.p, y) - self.log_density(self.q, y)

    def delta(self, epsilon):
        """P{L > e} - exp(e) Q{L > e} at each e of an array."""
        high = self._root(epsilon, self.ends[1])
        low = self._root(epsilon, self.ends[0])
        low = np.where(self.bottom <= self.ends[0], -np.inf, low)
        p, q = (
            sum(w * (ndtr(m - high) + ndtr(low - m)) for w, m in side) for side in (self.p, self.q)
        )
        return p - np.exp(epsilon) * q

    def _root(self, epsilon, end):
        inner, outer = np.full(epsilon.shape, self.bottom), np.full(epsilon.shape, end)
        for _ in range(60):
            middle = (inner + outer) / 2
            above = self.loss(middle) > epsilon
            inner, outer = np.where(above, inner, middle), np.where(above, middle, outer)
        return outer

    def masses(self, cuts):
        """(P-mass, Q-mass, loss) on Gauss-Legendre panels cut where the loss takes given values."""
        at = [float(r) for cut in cuts for r in self._roots_at(cut)]
        edges = np.unique(np.concatenate([np.linspace(*self.ends, 300), at]))
        x, w = np.polynomial.legendre.leggauss(16)
        half = np.diff(edges)[:, None] / 2
        y = ((edges[:-1] + edges[1:])[:, None] / 2 + half * x).ravel()
        weight = (half * w).ravel() / np.sqrt(2 * np.pi)
        log_p, log_q = self.log_density(self.p, y), self.log_density(self.q, y)
        return weight * np.exp(log_p), weight * np.exp(log_q), log_p - log_q

    def _roots_at(self, cut):
        found = [self._root(np.array([cut]), end)[0] for end in self.ends]
        return [root for root in found if self.ends[0] < root < self.ends[1]]

    def twice(self, epsilon):
        """delta(epsilon) of two rounds of this pair."""
        p, _, loss = self.masses([0.0])
        return float(np.dot(p, self.delta(epsilon - loss)))


def folded_twice(right, left, epsilon):
    """delta(epsilon > 0) of two rounds of a fold of two ``HalfLines``."""

    def profile(e):
        mirrored = -np.expm1(e) + np.exp(np.minimum(e, 0)) * left.delta(np.maximum(-e, 0.0))
        return np.where(e >= 0, right.delta(np.maximum(e, 0.0)), mirrored)

    p, _, up = right.masses([0.0, epsilon])
    _, q, down = left.masses([0.0])
    p, up, q, down = p[up > 0], up[up > 0], q[down > 0], down[down > 0]
    rest = 1.0 - p.sum() - q.sum()
    at_zero = float(profile(np.array([epsilon]))[0])
    return float(
        np.dot(p, profile(epsilon - up)) + np.dot(q, profile(epsilon + down)) + rest * at_zero
    )
