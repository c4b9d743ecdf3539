"""Gauss-Legendre rules, right to the last bit."""

from __future__ import annotations

import functools
import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

_STEPS = 5
"""Steps of Newton's method; four already give more digits than a double has."""


@functools.lru_cache(maxsize=16)
def legendre(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Gauss-Legendre nodes and weights on [-1, 1].

    The weights of a library may have relative errors of 1e-10 near the ends. Here Legendre's
    recursion and the steps of Newton's method run in 40 digits.
    """
    # Nodes come in pairs x and -x of equal weight. If ``count`` is odd, one node is 0.
    found = [_node(count, k) for k in range((count + 1) // 2)]
    other = found[: count // 2]
    nodes = [-at for at, _ in other] + [at for at, _ in reversed(found)]
    weights = [weight for _, weight in other] + [weight for _, weight in reversed(found)]
    return np.array(nodes), np.array(weights)


def _node(count: int, k: int) -> tuple[float, float]:
    """Return the k-th largest node and its weight."""
    # Tricomi's approximation errs by less than 2e-3. Each step squares the error.
    guess = math.cos(math.pi * (k + 0.75) / (count + 0.5))
    guess *= 1.0 - (1.0 - 1.0 / count) / (8.0 * count * count)
    with localcontext() as context:
        context.prec = 40
        at = Decimal(guess)
        for _ in range(_STEPS):
            before, value = Decimal(1), at
            # Legendre's recursion, up to the polynomial and the one before it.
            for n in range(2, count + 1):
                before, value = value, ((2 * n - 1) * at * value - (n - 1) * before) / n
            # Its derivative follows from the last two polynomials, without a third recursion.
            slope = count * (at * value - before) / (at * at - 1)
            at -= value / slope
        return float(at), float(2 / ((1 - at * at) * slope * slope))
