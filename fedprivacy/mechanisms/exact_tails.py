"""Noise of an exact law: integer arithmetic decides whether the noise exceeds a bound.

The size X of the noise is S^-1(V). S(x) is the probability of a size above x, and V is uniform on
(0, 1), with as many bits as needed. X exceeds a bound x exactly if V < S(x). Both sides are known
to any number of bits. S is computed by an integer series with a proved error. So the comparison is
never wrong and ends with probability 1. Proofs: docs/theory/rounding.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..errors import refuse

Bits = Callable[[int], bytes]
"""A source of randomness: a number of bytes -> as many fresh, uniform bytes."""

DRAWN_BITS = 63
"""Initial bits of V of every number; the 64th bit of its word is the sign."""

FAST_FROM = 44
"""The table covers V of at least 2^(FAST_FROM - DRAWN_BITS): all but a share of 2^-19."""

CELLS_PER_OCTAVE = 64
DEGREE = 6
CENTRE_ERROR = Fraction(1, 2**47)
"""Largest relative error of S at the middle of a cell when a table is built."""

QUICK_FROM, QUICK_CELLS, QUICK_DEGREE = 47, 512, 2
"""The quick table covers V of at least 2^(QUICK_FROM - DRAWN_BITS); cells per octave; degree.

More cells would leave fewer numbers to the table, but evict the training data from the cache
sooner."""

QUICK_ERROR = 2.0**-33
"""Largest difference of a quick-table polynomial from the table's polynomial, before rounding."""

MOST_BITS = 1 << 11
"""With a fair source, a comparison is undecided after this many bits with probability < 2^-2000."""


def _rounded(number: int, places: int) -> int:
    """Return number / 2^places, rounded to the nearest integer."""
    return (number + (1 << places - 1)) >> places


def series(y: Fraction, places: int) -> tuple[int, int]:
    """Return e^-y and the sum of (-y)^n / (n! (2n + 1)), times 2^places, each within 1.

    Every term is rounded down. The errors add up to at most 2 (n + 1) e^y, which the guard bits
    cover.
    """
    guard = math.ceil(y * 3 / 2) + 64
    # A fraction's parts are properties, and reading them takes longer than the product.
    above, below = y.numerator, y.denominator
    term, n, exponential, integral = 1 << places + guard, 0, 0, 0
    while term or n < y:
        signed = -term if n % 2 else term
        exponential += signed
        integral += signed // (2 * n + 1)
        n += 1
        term = term * above // (below * n)
    return _rounded(exponential, guard), _rounded(integral, guard)


@functools.lru_cache(maxsize=64)
def _root_two_over_pi(places: int) -> int:
    """Return sqrt(2 / pi) times 2^places, within 2, by Machin's formula."""
    wide = places + 64

    def arccot(n: int) -> int:
        power, total, odd = (1 << wide) // n, 0, 1
        while power:
            total += (power // odd) * (1 if odd % 4 == 1 else -1)
            power, odd = power // (n * n), odd + 2
        return total

    pi = 16 * arccot(5) - 4 * arccot(239)
    return math.isqrt((1 << 2 * places + 1 + wide) // pi)


class Tail(Hashable, Protocol):
    """The law of a size X, as an interface."""

    def curve(self, x: Fraction, places: int) -> tuple[int, int]:
        """Return P(X > x) and X's density at x, times 2^places, each within 1, for x above 0."""

    def guess(self, v: float) -> float:
        """Return an approximation of the x with P(X > x) = v; correctness does not depend on it."""

    def polynomials(self, x: float) -> list[float]:
        """Return P_0(x) .. P_5(x), the k-th derivative of x by v being P_(k-1)(x) (dx/dv)^k."""


class NormalTail:
    """X = |Z|, Z standard normal: P(X > x) = erfc(x / sqrt(2))."""

    def curve(self, x: Fraction, places: int) -> tuple[int, int]:
        """Return erfc(x / sqrt(2)) and sqrt(2 / pi) e^(-x^2 / 2), as in ``Tail``."""
        y = x * x / 2
        if y >= places:  # both are at most e^-y < 2^-places
            return 0, 0
        extra = math.floor(x).bit_length() + 8
        wide = places + extra
        exponential, integral = series(y, wide)
        root = _root_two_over_pi(wide)
        inside = root * integral * x.numerator // (x.denominator << wide)
        return _rounded((1 << wide) - inside, extra), _rounded(root * exponential, wide + extra)

    def guess(self, v: float) -> float:
        """Return an approximation of the x with erfc(x / sqrt(2)) = v."""
        return float(-ndtri(v / 2.0))

    def polynomials(self, x: float) -> list[float]:
        """Return P_0 .. P_5: P_k = P_(k-1)' + k x P_(k-1)."""
        y = x * x
        return [
            1.0,
            x,
            1.0 + 2.0 * y,
            x * (7.0 + 6.0 * y),
            7.0 + y * (46.0 + 24.0 * y),
            x * (127.0 + y * (326.0 + 120.0 * y)),
        ]


class ExponentialTail:
    """X of density e^-x, the size of Laplace noise of scale 1."""

    def curve(self, x: Fraction, places: int) -> tuple[int, int]:
        """Return e^-x twice, as in ``Tail``."""
        size = 0 if x >= places else series(x, places)[0]
        return size, size

    def guess(self, v: float) -> float:
        """Return an approximation of -log v."""
        return -math.log(v)

    def polynomials(self, x: float) -> list[float]:
        """Return 0! .. 5!: the k-th derivative of -log v is (k - 1)! (-1 / v)^k."""
        return [float(math.factorial(k)) for k in range(DEGREE)]


class PolynomialTable(NamedTuple):
    """x as polynomials of degree 6 in 2^63 v - centre, one for each cell of V.

    Attributes:
        first: index of the first cell: the leading bits of 2^FAST_FROM as a double.
        centres: middle of each cell, in units of 2^-63, shape (cells,).
        coefficients: DEGREE + 1 rows, the constant first, shape (DEGREE + 1, cells).
    """

    first: int
    centres: np.ndarray
    coefficients: np.ndarray


CELL_SHIFT = 52 - CELLS_PER_OCTAVE.bit_length() + 1
"""Bits of a double below those that choose its cell."""


@functools.cache
def table(tail: Tail) -> PolynomialTable:
    """Build the table of a law: x within 2^-43 for every V of at least 2^-19.

    Raises:
        ArithmeticError: the middle of a cell could not be found; the machine's doubles are broken.
    """
    halves = [(1 << octave) // (2 * CELLS_PER_OCTAVE) for octave in range(FAST_FROM, DRAWN_BITS)]
    odd = range(2 * CELLS_PER_OCTAVE + 1, 4 * CELLS_PER_OCTAVE, 2)
    # Integers of a few leading bits are exact as doubles.
    middles = [half * i for half in halves for i in odd]
    first = int(np.array(1 << FAST_FROM, dtype=np.float64).view(np.int64)) >> CELL_SHIFT
    columns = [_taylor(tail, middle) for middle in middles]
    centres = np.array(middles, dtype=np.float64)
    return PolynomialTable(first, centres, np.ascontiguousarray(np.array(columns).T))


def _taylor(tail: Tail, middle: int) -> list[float]:
    """Return the polynomial about the middle of a cell, in units of 2^-63, without libm."""
    places, v = 128, Fraction(middle, 1 << DRAWN_BITS)
    x = tail.guess(float(v))
    # Newton steps from any guess. Integer arithmetic checks the result.
    for _ in range(20):
        survival, density = (Fraction(n, 1 << places) for n in tail.curve(Fraction(x), places))
        if abs(survival - v) <= CENTRE_ERROR * v:
            slope = float(-1 / (density * (1 << DRAWN_BITS)))
            row, power = [x], 1.0
            for k, value in enumerate(tail.polynomials(x), 1):
                power *= slope / k
                row.append(value * power)
            return row
        x += float((survival - v) / density)
    raise ArithmeticError(f"no double is the quantile of {float(v)!r}, so the arithmetic is broken")


class QuickTable(NamedTuple):
    """x as small polynomials in 2^63 v, one for each cell; NaN in the first and the last.

    Attributes:
        first: index of the first cell, which holds everything below the others.
        rows: the constant first, shape (QUICK_DEGREE + 1, cells).
    """

    first: int
    rows: NDArray[np.float64]


QUICK_SHIFT = 52 - QUICK_CELLS.bit_length() + 1
"""Bits of a double below those that choose its cell in the quick table."""


@functools.cache
def quick_table(tail: Tail) -> QuickTable:
    """Build smaller polynomials from the table's, in narrower cells.

    The cubic term is replaced by the straight line nearest to it in the cell. This error and the
    omitted higher powers add up to at most ``QUICK_ERROR``.

    Raises:
        ArithmeticError: the error is larger.
    """
    first, centres, coefficients = table(tail)
    octaves = 2.0 ** np.arange(QUICK_FROM, DRAWN_BITS)
    places = QUICK_CELLS + 0.5 + np.arange(QUICK_CELLS)
    # Width of every cell, and its middle in widths.
    width = np.repeat(octaves / QUICK_CELLS, QUICK_CELLS)
    middles = np.tile(places, len(octaves))
    old = ((middles * width).view(np.int64) >> CELL_SHIFT) - first
    shift = middles * width - centres[old]
    powers = coefficients[:, old]
    # The same polynomial about another middle, in t in (-1/2, 1/2), the position in the cell.
    moved = [
        width**k * sum(math.comb(i, k) * powers[i] * shift ** (i - k) for i in range(k, DEGREE + 1))
        for k in range(DEGREE + 1)
    ]
    # |t^3 - 3/16 t| <= 1/32.
    left_out = abs(moved[3]) / 32.0 + sum(abs(moved[k]) * 0.5**k for k in range(4, DEGREE + 1))
    # Not `>`: NaN is refused too.
    if not left_out.max() <= QUICK_ERROR:
        raise ArithmeticError(
            f"the quick table must be within {QUICK_ERROR}, got {left_out.max()}, so the "
            "arithmetic is broken"
        )
    square, line = moved[2], moved[1] + 3.0 / 16.0 * moved[3]
    constant = moved[0] - middles * (line - middles * square)
    rows = [constant, (line - 2.0 * middles * square) / width, square / width**2]
    ends = ((0, 0), (1, 1))
    below = (int(octaves[:1].view(np.int64)[0]) >> QUICK_SHIFT) - 1
    return QuickTable(below, np.pad(np.array(rows), ends, constant_values=np.nan))


@functools.lru_cache(maxsize=4)
def scaled_table(tail: Tail, scale: float) -> QuickTable:
    """Return the quick table of ``scale`` X; cached because a run uses one or two scales."""
    first, rows = quick_table(tail)
    return QuickTable(first, rows * scale)


@dataclass
class Uniform:
    """A uniform number V; more bits are drawn when needed.

    Attributes:
        value: the bits drawn until now: V is between value and value + 1 in units of 2^-places.
        places: number of bits drawn.
        bits: source of more bits.
    """

    value: int
    places: int
    bits: Bits

    def below(self, survival: Callable[[int], int]) -> bool:
        """Return whether V < S, where ``survival(places)`` is S times 2^places, within 1.

        Raises:
            ParameterError: 2^11 bits do not decide it: the source is not random.
        """
        while True:
            target = survival(self.places)
            # V is below value + 1 and S above target - 1. Only a gap between these decides.
            if self.value + 1 <= target - 1:
                return True
            if self.value >= target + 1:
                return False
            if self.places > MOST_BITS:
                refuse("bits", self.bits, "be random", "the source of randomness repeats itself")
            word = int.from_bytes(self.bits(8), "little")
            self.value, self.places = self.value << 64 | word, self.places + 64


def nearest(
    tail: Tail,
    offset: Fraction,
    step: Fraction,
    uniform: Uniform,
    guess: int,
    *,
    or_next: bool = False,
) -> int:
    """Return the integer nearest to offset + X / step, where X is the size of V.

    The answer is at least k exactly if X exceeds (k - 1/2 - offset) step. The search from
    ``guess``, up or down, uses only this test. A bad guess therefore costs only time.

    Args:
        tail: the law of X.
        offset: number that X is added to, in steps.
        step: the grid's spacing in units of X.
        uniform: V, with at least the known bits.
        guess: start of the search.
        or_next: whether the answer is known to be ``guess`` or the next integer. One test is then
            enough.
    """

    def reaches(k: int) -> bool:
        bound = (k - Fraction(1, 2) - offset) * step
        # A size is above 0 with probability 1.
        return bound <= 0 or uniform.below(lambda places: tail.curve(bound, places)[0])

    if or_next:
        return guess + reaches(guess + 1)
    # Double the stride, then bisect. From a good guess two tests are enough.
    low, high, stride = guess, guess + 1, 1
    while not reaches(low):
        low, high, stride = low - stride, low, 2 * stride
    stride = 1
    while reaches(high):
        low, high, stride = high, high + stride, 2 * stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low
