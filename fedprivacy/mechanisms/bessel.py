"""Losses of a Skellam law shifted by one: logarithms of ratios of Bessel functions.

``integers.bessel_ratios`` gives any number of digits, one integer after another. A wide law needs
its losses only to a fraction of a standard deviation. So doubles near the ratios, from an
expansion, are put into the recurrence that the ratios obey. The residual bounds their error. See
docs/theory/integers.md, I4.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..rounding import TENS, UNIT, rounded_up
from .integers import bessel_ratios

Array = NDArray[np.float64]

_PLACES = 160
"""Bits after the point of a ratio of Bessel functions; the rounding loss is below 2^-130."""
_WIDE = 2.0**14
"""From this variance on, doubles give losses accurately enough."""
_FORGOTTEN = 40.0
"""The recurrence starts far enough out to shrink the error there by e^-40."""


def losses(variance: float, reach: int) -> tuple[Array, float]:
    """Return L(y) = log p(y) / p(y + 1) of a Skellam law for y = 0 .. reach - 1, to ``FEW``.

    Also return an additional error bound, which is above 0 for wide laws, computed in doubles.
    """
    if variance < _WIDE:
        return unit_losses(Fraction(variance), reach), 0.0
    return near_losses(variance, reach)


def unit_losses(variance: Fraction, reach: int) -> Array:
    """Return the losses of a Skellam law, see ``losses``, in integer arithmetic.

    The difference of 1 and a ratio is also an exact integer, so a loss near 0 keeps all digits.
    """
    one = 1 << _PLACES
    ratios = bessel_ratios(variance, reach, _PLACES)
    # A quotient of integers is rounded once.
    return np.log1p([(one - ratio) / ratio for ratio in ratios])


def near_losses(x: float, reach: int) -> tuple[Array, float]:
    """Return log I_y(x) / I_(y+1)(x) approximately for y = 0 .. reach - 1, with an error bound.

    The rounding of the logarithms, a few units of a loss, is not included in the bound.

    Args:
        x: above 0. From 2^14 on, the error is near the rounding of doubles.
        reach: at least 1.
    """
    y = np.arange(0.0, reach + _further(x, reach) + 1.0)
    # 1 minus the ratio. The bound below holds for these doubles, however they were computed.
    rest = -np.expm1(-_expansion(x, y))
    step = 2.0 * y[1:] / x
    here, outer = rest[:-1], rest[1:]
    left = (step - outer) - here * (1.0 + step - outer)
    rounding = 8.0 * UNIT * (step + outer + here * (1.0 + step))
    # log(1 + left) is at most left / 0.99 for values below 0.01.
    missed = 1.02 * (np.abs(left) + rounding)
    if not float(np.max(missed)) < 0.01:
        return -np.log1p(-here[:reach]), math.inf
    # A step inwards multiplies an error by at most 1 - step / (1 + step).
    most = float(np.max(missed * (1.0 + step) / step))
    start = _at_end(x, float(y[-1]), float(rest[-1]))
    off = rounded_up(most, 16.0 * UNIT) + start * math.exp(-_FORGOTTEN)
    return -np.log1p(-here[:reach]), off


def _at_end(x: float, y: float, rest: float) -> float:
    """Return a bound on the error of the last value, by Amos's bounds (1974)."""
    least, most = (math.asinh((y + half) / x) for half in (0.5, 1.5))
    found = -math.log1p(-rest)
    return max(found - least, most - found) + TENS


def _further(x: float, reach: int) -> int:
    """Return the number of steps inwards that shrink an error at the end by e^-_FORGOTTEN."""
    return math.ceil(_FORGOTTEN / math.log1p(2.0 * reach / x)) + 1


def _expansion(x: float, y: Array) -> Array:
    """Return log I_y(x) / I_(y+1)(x) approximately: a Debye expansion at the middle."""
    middle = y + 0.5
    square = x * x + middle * middle
    cubed = square * np.sqrt(square)
    share = middle * middle / square
    found = np.arcsinh(middle / x) + 0.5 * middle / square
    return np.asarray(found + 0.5 * middle / cubed * (1.0 - 1.25 * share))
