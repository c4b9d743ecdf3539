"""Whole powers of transforms, and of what bounds them."""

from __future__ import annotations

from typing import TypeVar

from ..moments.contour import Complex
from .lattice import Array

Numbers = TypeVar("Numbers", Array, Complex)


def power_of(values: Numbers, exponent: int) -> Numbers:
    """Return the power of every number, with an exponent of at least 1, by repeated squaring."""
    found, square = None, values
    while exponent:
        if exponent & 1:
            found = square if found is None else found * square
        exponent >>= 1
        if exponent:
            square = square * square
    assert found is not None
    return found
