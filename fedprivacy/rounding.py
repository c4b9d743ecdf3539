"""Floating-point error units: one constant for every count of roundings in the package.

A correctly rounded operation has an error of at most half a spacing of its result, a relative error
of 2^-53 = 1.11e-16. This holds for +, -, *, / and sqrt. Logarithms, exponentials and the functions
of ``scipy.special`` used here have errors of a few such units. They are counted with at least four.

Code that counts single roundings uses ``UNIT``. Other code uses one larger constant for a whole
computation; its name gives the number of units. Each constant is far below the tolerance of any
result (1e-6 at the least).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NewType, overload

import numpy as np
from numpy.typing import NDArray

SPACING = 2.0**-52
"""Distance from 1 to the next double."""

HALF_SPACING = 2.0**-53
"""The unit round-off itself, for counts that leave room for products of errors."""

UNIT = 1.2e-16
"""The unit round-off, rounded up: n factors 1 + 2^-53 stay below 1 + n units for n up to 1e15."""

FFT = 8 * UNIT
"""Error of a transform of length N, over log2 N and the size of its inputs."""

FEW = 1e-15
"""Eight units: error of a short expression whose roundings are not counted one by one."""

TENS = 1e-14
"""Eighty units: one or two lines with a logarithm or an exponential of moderate size."""

HUNDREDS = 1e-13
"""Eight hundred units: a sum of a few terms that each passed several functions."""

THOUSANDS = 1e-12
"""Eight thousand units: any other result of this package, including sums of thousands of terms of
one sign. It also bounds the excess of a value over a limit that it was computed to keep."""

Up = NewType("Up", float)
"""An upper bound: at least the true value, with all rounding counted."""

Down = NewType("Down", float)
"""A lower bound: at most the true value, with all rounding counted."""

Array = NDArray[np.float64]


@overload
def rounded_up(value: float, error: float = FEW) -> Up: ...


@overload
def rounded_up(value: Array, error: float = FEW) -> Array: ...


def rounded_up(value: Any, error: float = FEW) -> Any:
    """Return a value of at least 0 times 1 + error: an upper bound.

    Args:
        value: a number, or an array of any shape, right to a relative error.
        error: the relative error.
    """
    return value * (1.0 + error)


@overload
def rounded_down(value: float, error: float = FEW) -> Down: ...


@overload
def rounded_down(value: Array, error: float = FEW) -> Array: ...


def rounded_down(value: Any, error: float = FEW) -> Any:
    """Return a value of at least 0 times 1 - error: a lower bound; see ``rounded_up``."""
    return value * (1.0 - error)


def quotient_up(above: float, below: float) -> tuple[Up, bool]:
    """Return above / below for numbers above 0 as a double, and whether it was rounded up."""
    found = above / below
    if not 0.0 < found < math.inf:
        return Up(found), False
    off = Fraction(found) * Fraction(below) - Fraction(above)
    return Up(math.nextafter(found, math.inf) if off < 0 else found), off != 0


def raised(value: float) -> Up:
    """Return a value of any sign with a few rounding errors, raised by more than these errors."""
    return Up(value + FEW * abs(value) if math.isfinite(value) else value)


def lowered(value: float) -> Down:
    """Return a value of any sign with a few rounding errors, lowered by more than these errors."""
    return Down(value - FEW * abs(value) if math.isfinite(value) else value)
