"""Integer noise of a proved law: discrete Gaussian and Skellam numbers from fair bits.

The law is a table of 256-bit thresholds, computed in integer arithmetic. The position of random
bits among the thresholds is the drawn number. 64 bits decide it, unless they equal the first 64
bits of a threshold. Then the other 192 bits are drawn too. No floating point enters the law. It
differs from the ideal law by a total variation of at most ``TOTAL_VARIATION`` per number. The parts
of this error are proved in docs/theory/integers.md: thresholds truncated at 2^-256, tails truncated
at masses of 2^-270, and, for wide discrete Gaussians, the sum of two narrow ones.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import integer, positive, refuse
from .exact_normals import fresh_words, system_bits
from .exact_tails import Bits, series

Integers = NDArray[np.int64]

TOTAL_VARIATION = 2.0**-235
"""Largest total variation between the law of one number and the ideal law."""

WIDEST_GAUSSIAN = float(1 << 22)
"""Largest std of a discrete Gaussian number."""

WIDEST_SKELLAM = float(1 << 14)
"""Largest std of a Skellam number: one table holds its law."""

NARROWEST = 1.0 / 8.0
"""Smallest std; below it, nearly every number is 0."""

_PLACES = 400
"""Bits after the point of a weight; the rounding loss is below 2^-340 of the total."""
_BITS = 256
_TOP = 64
_CUT = 270
"""Weights below 2^-CUT of the largest end the table."""
_ONE_TABLE = 2048.0
"""Largest std of a discrete Gaussian with a single table."""
_CHUNK = 1 << 15


@dataclass(frozen=True, eq=False)
class ThresholdTable:
    """Thresholds of a symmetric law on -reach .. reach.

    Attributes:
        thresholds: 2^256 P(X <= k), rounded down, for k = -reach .. reach - 1.
        tops: their first 64 bits.
        reach: the largest number.
    """

    thresholds: tuple[int, ...]
    tops: NDArray[np.uint64]
    reach: int

    def draw(self, count: int, bits: Bits) -> Integers:
        """Return ``count`` independent numbers."""
        found = np.empty(count, dtype=np.int64)
        # In parts, so that words and results fit a core's cache.
        for start in range(0, count, _CHUNK):
            words = fresh_words(bits, min(_CHUNK, count - start))
            places = np.searchsorted(self.tops, words, side="right")
            # A word that equals a threshold's first bits is undecided.
            open_ = np.flatnonzero(self.tops[np.maximum(places, 1) - 1] == words)
            for index in open_.tolist():
                places[index] = self._decided(int(words[index]), bits)
            np.subtract(places, self.reach, out=found[start : start + len(words)])
        return found

    def _decided(self, word: int, bits: Bits) -> int:
        rest = int.from_bytes(bits((_BITS - _TOP) // 8), "little")
        return bisect_right(self.thresholds, (word << _BITS - _TOP) + rest)


def _table(weights: list[int]) -> ThresholdTable:
    """Return the table of a symmetric law with weights at 0, 1, ..., reach."""
    reach = len(weights) - 1
    total = weights[0] + 2 * sum(weights[1:])
    running, thresholds = 0, []
    for k in range(-reach, reach):
        running += weights[abs(k)]
        thresholds.append((running << _BITS) // total)
    tops = np.array([each >> _BITS - _TOP for each in thresholds], dtype=np.uint64)
    return ThresholdTable(tuple(thresholds), tops, reach)


def gaussian_weights(variance: Fraction) -> list[int]:
    """Return e^(-k^2 / (2 variance)) times 2^400 for k = 0, 1, ... until it is below 2^-270.

    The error of each is at most 2 k^2 + 4 k: factors g^(2k+1), each product rounded down.
    """
    one, least = 1 << _PLACES, 1 << _PLACES - _CUT
    base, _ = series(1 / (2 * variance), _PLACES)
    square = base * base >> _PLACES
    weight, factor, weights = one, base, [one]
    while (weight := weight * factor >> _PLACES) >= least:
        weights.append(weight)
        factor = factor * square >> _PLACES
    return weights


def skellam_weights(variance: Fraction) -> list[int]:
    """Return I_k(variance) / I_0(variance) times 2^400 for k = 0, 1, ... until below 2^-270."""
    end = math.ceil(skellam_reach(float(variance), _CUT * math.log(2.0))) + 8
    one = 1 << _PLACES
    weights, least = [one], one >> _CUT
    for ratio in bessel_ratios(variance, end, _PLACES):
        weight = weights[-1] * ratio >> _PLACES
        if weight < least:
            break
        weights.append(weight)
    return weights


def bessel_ratios(variance: Fraction, end: int, places: int) -> list[int]:
    """Return I_k(variance) / I_(k-1)(variance) times 2^places for k = 1 .. end.

    They are 1 / (2 k / variance + I_(k+1) / I_k), computed backwards. The recurrence starts far out
    at Amos's upper bound (1974), x / (w + sqrt(w^2 + x^2)) with w = k + 1/2. A step multiplies a
    relative error by a product of two ratios, which makes it smaller. In total, the error of a
    ratio is at most end + 2 units of 2^-places.
    """
    x = float(variance)
    # Enough extra steps to shrink an error of 1 below 2^-places.
    slope = 2.0 * math.asinh(end / x)
    start = end + math.ceil(places * math.log(2.0) / slope) + 16
    w, ratios = start + 0.5, []
    ratio = int(x / (w + math.hypot(w, x)) * 2.0**53) << places - 53
    top, bottom = 1 << 2 * places, variance.numerator
    double = 2 * variance.denominator << places
    for k in range(start, 0, -1):
        ratio = top // (k * double // bottom + ratio)
        if k <= end:
            ratios.append(ratio)
    return ratios[::-1]


def skellam_reach(variance: float, depth: float) -> float:
    """Return an x, within 1 %, that a Skellam number exceeds with a chance of at most e^-depth."""
    # The rate is below u^2 / 2, so this start is too small.
    u = math.sqrt(2.0 * depth / variance)
    while variance * skellam_rate(u) < depth:
        u *= 1.01
    return variance * u


def skellam_rate(u: float) -> float:
    """Return h(u): a Skellam number of variance v is >= v u with a chance of at most e^(-v h(u)).

    h(u) = u asinh u - (sqrt(1 + u^2) - 1), the conjugate of cosh t - 1 (Chernoff).
    """
    return u * math.asinh(u) - u * u / (math.sqrt(1.0 + u * u) + 1.0)


@functools.lru_cache(maxsize=8)
def gaussian_table(variance: Fraction) -> ThresholdTable:
    """Return the table of N_Z(0, variance)."""
    return _table(gaussian_weights(variance))


@functools.lru_cache(maxsize=4)
def skellam_table(variance: Fraction) -> ThresholdTable:
    """Return the table of the difference of two Poisson numbers of mean variance / 2."""
    return _table(skellam_weights(variance))


def discrete_gaussian(
    count: int, *, variance: Fraction | float, bits: Bits | None = None
) -> Integers:
    """Return independent numbers of N_Z(0, variance): P(k) proportional to e^(-k^2/(2 variance)).

    If the std is above 2048, a number is x + a y with x of variance 16 a^2 and y of the remaining
    variance. Its masses equal those of the ideal law within a factor of 1 +- 10^-110
    (docs/theory/integers.md).

    Args:
        count: number of values, at least 0.
        variance: the law's parameter, a fraction or a float (used exactly). Its root is from 1/8 to
            2^22. The variance of the numbers equals it within 2 e^(-2 pi^2 variance).
        bits: source of randomness; None, the operating system, is the only private choice.

    Returns:
        int64, shape (count,).

    Raises:
        ParameterError: a value out of its range.
    """
    wanted, exact, source = _checked(count, variance, WIDEST_GAUSSIAN, bits)
    std = math.sqrt(exact)
    if std <= _ONE_TABLE:
        return gaussian_table(exact).draw(wanted, source)
    spread = round(math.sqrt(std / 4.0))
    fine = Fraction(16 * spread * spread)
    found = gaussian_table((exact - fine) / spread**2).draw(wanted, source)
    found *= spread
    found += gaussian_table(fine).draw(wanted, source)
    return found


def skellam(count: int, *, variance: Fraction | float, bits: Bits | None = None) -> Integers:
    """Return independent Skellam numbers: differences of two Poisson numbers of mean variance / 2.

    Arguments, result and errors are those of ``discrete_gaussian``; the std is at most 2^14.
    """
    wanted, exact, source = _checked(count, variance, WIDEST_SKELLAM, bits)
    return skellam_table(exact).draw(wanted, source)


def _checked(
    count: int, variance: Fraction | float, widest: float, bits: Bits | None
) -> tuple[int, Fraction, Bits]:
    wanted = integer(0, count=count)
    exact = variance if isinstance(variance, Fraction) else Fraction(positive(variance=variance))
    if not NARROWEST**2 <= exact <= widest**2:
        rule = f"be from {NARROWEST**2:g} to {widest**2:g}"
        refuse("variance", float(exact), rule, "choose another granularity")
    return wanted, exact, bits or system_bits
