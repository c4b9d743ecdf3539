"""Gauss-Legendre rules, right to the last bit."""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_legendre


@functools.lru_cache(maxsize=16)
def legendre(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Gauss-Legendre nodes and weights on [-1, 1].

    The weights of a library may have relative errors of 1e-10 near the ends. Here Legendre's
    recursion and the steps of Newton's method run in 40 digits.
    """
    # The library's nodes are close enough for Newton's method to start from.
    found = [_node(count, float(at)) for at in roots_legendre(count)[0]]
    return np.array([at for at, _ in found]), np.array([weight for _, weight in found])


def _node(count: int, guess: float) -> tuple[float, float]:
    with localcontext() as context:
        context.prec = 40
        at = Decimal(guess)
        for _ in range(3):
            before, value = Decimal(1), at
            # Legendre's recursion, up to the polynomial and the one before it.
            for k in range(2, count + 1):
                before, value = value, ((2 * k - 1) * at * value - (k - 1) * before) / k
            # Its derivative follows from the last two polynomials, without a third recursion.
            slope = count * (at * value - before) / (at * at - 1)
            at -= value / slope
        return float(at), float(2 / ((1 - at * at) * slope * slope))
