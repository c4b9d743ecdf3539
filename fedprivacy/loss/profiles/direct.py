"""One curve, not composed: epsilon and delta straight from its tails."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .. import Curve, Side
from ..pairs.lattice import Array

TINY = sys.float_info.min
"""What an upper end that underflows is rounded up to."""

_ROUNDING = 2e-12
"""Relative error allowed for each of the two tails that a delta is the difference of."""


def delta(curve: Curve, epsilons: Array, side: Side) -> Array:
    """Return the delta of one curve at each epsilon, rounded to the side."""
    tails = curve.tails(epsilons, side)
    p, q = np.exp(tails.p_above), np.exp(np.minimum(tails.q_above + epsilons, 0.0))
    q = np.minimum(q, p)
    slack = _ROUNDING * (p + q)
    rounded = p - q + slack if side is Side.UP else p - q - slack
    if side is Side.UP:
        rounded = np.where(tails.p_above > -np.inf, np.maximum(rounded, TINY), rounded)
    return np.clip(rounded, 0.0, 1.0)


def epsilon(curve: Curve, target: float, side: Side) -> float:
    """Return the epsilon of one curve at delta = target, rounded to the side; may be inf."""
    fits = _fits(curve, target, side)
    if fits(np.zeros(1))[0]:
        return 0.0
    high = 1.0
    while not fits(np.array([high]))[0]:
        high *= 2.0
        if high > 1e7:
            return math.inf if side is Side.UP else 1e7
    low = 0.0 if high == 1.0 else high / 2.0
    for _ in range(7):
        grid = np.linspace(low, high, 101)
        first = int(np.argmax(fits(grid))) or 1
        low, high = float(grid[first - 1]), float(grid[first])
    return high if side is Side.UP else low


def _fits(curve: Curve, target: float, side: Side) -> Callable[[Array], NDArray[np.bool_]]:
    def fits(epsilons: Array) -> NDArray[np.bool_]:
        found = delta(curve, epsilons, side)
        return np.asarray(found <= target if side is Side.UP else found < target)

    return fits
