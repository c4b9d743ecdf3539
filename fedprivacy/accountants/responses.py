"""Composition of many randomised responses: upper bounds on the exact delta, for any number.

A response lies with probability 1 / (1 + e^e) and is true otherwise. With l lies of T the loss is
(T - 2 l) e. With x = (T - epsilon / e) / 2,

    delta(epsilon) = sum over l <= x of P(l lies) (1 - e^{-2 e (x - l)}),

a sum of positive terms without cancellation. A binomial probability is Stirling's formula with an
enclosed remainder. Its exponent has Loader's form (2000), m h(d / m) + m' h(-d / m') with h(u) = (1
+ u) log(1 + u) - u >= 0, d = l - m, and m and m' the expected lies and truths. Many terms are
bounded in blocks by geometric series: the ratio of a term to the next one above falls with l.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..loss.curves.lattice import Array
from ..rounding import FEW, HUNDREDS, TENS, THOUSANDS, rounded_up

MAX_EPSILON = 300.0
"""Largest epsilon of one response."""
MAX_TIMES = 1 << 53
"""Beyond it, not every number of lies is a double."""

_CHUNK = 64
_MOST_CHUNKS = 40
_PER_DEVIATION = 32
"""Blocks in a standard deviation of the number of lies."""
_BEYOND = 12.0
"""Standard deviations above the mean beyond which lies are bounded together."""
_NEGLIGIBLE = 1e-6
_RELATIVE = HUNDREDS
"""Bound on the rounding of a logarithm of a probability, relative and absolute."""
_TINY = 1e-305


class Responses(NamedTuple):
    """``times`` responses of ``epsilon`` each, epsilon in (0, 300], times up to 2^53."""

    epsilon: float
    times: int

    @property
    def lie(self) -> float:
        """The probability of a lie, accurate to a few units in the last place."""
        small = math.exp(-self.epsilon)
        return small / (1.0 + small)

    @property
    def deviation(self) -> float:
        """The approximate standard deviation of the number of lies."""
        return math.sqrt(self.times * self.lie * (1.0 - self.lie))

    def log_mass(self, lies: Array) -> Array:
        """Return an upper bound on log P(l lies), l at most half of all; shape as lies."""
        times, expected = float(self.times), self.times * self.lie
        # 0 lies have a separate formula below. Here logarithms need at least 1.
        some = np.maximum(lies, 1.0)
        off = some - expected
        # A deviation moved towards 0 by its rounding only raises the bound.
        off = np.sign(off) * np.maximum(np.abs(off) - FEW * (expected + some), 0.0)
        truths = times * (1.0 - self.lie)
        depth = expected * _entropy(off / expected) + truths * _entropy(-off / truths)
        rest = np.maximum(times - some, 1.0)
        shape = -0.5 * np.log(2.0 * math.pi * some * (rest / times))
        found = shape + _stirling(np.array(times)) - _stirling(some) - _stirling(rest) - depth
        # Stirling's formula has no value at 0.
        nobody = times * math.log1p(-self.lie)
        found = np.where(lies > 0.0, found, nobody)
        return np.asarray(found + _RELATIVE * (8.0 + np.abs(found)))

    def log_fall(self, lies: Array) -> Array:
        """Return log of P(l - 1 lies) / P(l lies), rounded up; -inf at 0."""
        some = np.maximum(lies, 1.0)
        found = np.log(some) - np.log(self.times - some + 1.0) + self.epsilon
        found += 2e-15 * (1.0 + np.abs(found) + self.epsilon + math.log(self.times))
        return np.where(lies > 0.0, found, -np.inf)

    def delta(self, epsilons: Array) -> Array:
        """Return upper bounds on delta at epsilons of at least 0, shape (n,)."""
        # A crossing too far right only raises the bound.
        crossing = 0.5 * (self.times - epsilons / self.epsilon) + 5e-16 * self.times
        expected, deviation = self.times * self.lie, self.deviation
        # If more than half are lies, the loss is below 0, and so below every epsilon.
        most = np.clip(np.floor(crossing), 0.0, self.times // 2)
        first = np.minimum(most, math.ceil(expected + _BEYOND * deviation) + 30.0)
        found = np.where(first < most, self._above(first), 0.0)
        # Within a thirty-second of a deviation, masses hardly change.
        block = max(math.floor(deviation / _PER_DEVIATION), 1)
        for _ in range(_MOST_CHUNKS):
            starts = first[:, None] - np.arange(_CHUNK, dtype=np.float64) * block
            found = found + self._blocks(starts, block, crossing[:, None])
            first = first - block * _CHUNK
            rest = self._below(first)
            # A bound on the remainder is enough, once it is small.
            if np.all(rest <= _NEGLIGIBLE * found):
                break
        found = rounded_up(found + rest, THOUSANDS) + _TINY
        # Even without any lie the loss does not exceed this epsilon.
        return np.where(crossing < 0.0, _TINY, np.minimum(found, 1.0))

    def _blocks(self, starts: Array, block: int, crossing: Array) -> Array:
        """Return the sum of the terms of ``block`` numbers of lies downwards from each start."""
        lies = np.maximum(starts, 0.0)
        mass = np.exp(self.log_mass(lies))
        if block == 1:
            terms = rounded_up(mass * -np.expm1(-2.0 * self.epsilon * (crossing - lies)), HUNDREDS)
        else:
            fall = np.maximum(self.log_fall(lies), -700.0)
            every = _series(fall, block)
            none = np.exp(-2.0 * self.epsilon * (crossing - lies))
            terms = every - none * _series(fall - 2.0 * self.epsilon, block)
            # The rounding of the difference is relative to the larger of the two.
            terms = mass * (np.maximum(terms, 0.0) + TENS * every)
        return np.asarray(np.where(starts >= 0.0, terms, 0.0).sum(axis=1))

    def _below(self, first: Array) -> Array:
        """Return a bound on P(at most this many lies): a geometric series if the terms fall."""
        lies = np.maximum(first, 0.0)
        fall = self.log_fall(lies)
        # From ratio 1 on the series diverges. 1 bounds any probability.
        falls = fall < -THOUSANDS
        series = 1.0 / -np.expm1(np.where(falls, fall, -1.0))
        bound = np.where(falls, np.exp(self.log_mass(lies)) * series, 1.0)
        return np.where(first >= 0.0, bound, 0.0)

    def _above(self, first: Array) -> Array:
        """Return a bound on P(more lies than this number), a number well above the mean."""
        rise = rounded_up((self.times - first) / (first + 1.0) * math.exp(-self.epsilon), TENS)
        rises = rise < 1.0 - THOUSANDS
        series = np.where(rises, rise, 0.5) / (1.0 - np.where(rises, rise, 0.5))
        return np.where(rises, np.exp(self.log_mass(first)) * series, 1.0)


def _series(log_ratio: Array, length: int) -> Array:
    """Return 1 + x + ... + x^(length - 1), x = e^log_ratio."""
    # At ratio 1 the quotient would be 0 / 0. The sum equals its length.
    near = np.abs(log_ratio) < 1e-300
    safe = np.where(near, -1.0, log_ratio)
    with np.errstate(over="ignore"):
        return np.where(near, float(length), np.expm1(length * safe) / np.expm1(safe))


def _entropy(u: Array) -> Array:
    """Return (1 + u) log(1 + u) - u, relative error a few units in the last place; u above -1."""
    small = np.abs(u) < 0.05
    v, found = np.where(small, u, 0.0), np.zeros(np.shape(u))
    # Near 0 the closed form cancels: use the series u^2/2 - u^3/6 + ..., by Horner's rule.
    for k in range(16, 1, -1):
        found = found * v + (-1.0) ** k / (k * (k - 1.0))
    large = np.where(small, 1.0, u)
    return np.asarray(np.where(small, found * v * v, (1.0 + large) * np.log1p(large) - large))


_EXACT = np.array(
    [0.0]
    + [
        math.lgamma(n + 1.0) - ((n + 0.5) * math.log(n) - n + 0.5 * math.log(2.0 * math.pi))
        for n in range(1, 32)
    ]
)


def _stirling(n: Array) -> Array:
    """Return log n! minus Stirling's formula, n >= 1, to 1e-13."""
    inverse = 1.0 / np.maximum(n, 1.0)
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    # Below 32 the series is not accurate enough.
    return np.where(n < 32.0, _EXACT[np.minimum(n, 31.0).astype(int)], series)
