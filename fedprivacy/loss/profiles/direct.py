"""One curve, not composed: epsilon and delta straight from its tails."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .. import Curve, Side, Tails
from ..pairs.lattice import Array

TINY = sys.float_info.min
"""What an upper end that underflows is rounded up to."""

_ROUNDING = 2e-12
"""Relative error allowed for each of the two tails that a delta is the difference of."""


_FAR = 2.0**16
"""Beyond, it is first seen whether any epsilon does."""
_LARGEST = 2.0**990
"""The largest epsilon that is tried."""


def delta(curve: Curve, epsilons: Array, side: Side) -> Array:
    """Return the delta of one curve at each epsilon, rounded to the side; NaN says nothing."""
    tails = curve.tails(epsilons, side)
    p, q = np.exp(tails.p_above), np.exp(np.minimum(tails.q_above + epsilons, 0.0))
    # Where the loss exceeds epsilon, e^epsilon Q is at most P: any more is rounding.
    q = np.minimum(q, p)
    p_off, q_off = _relative(tails, epsilons)
    slack = p * p_off + q * q_off
    if side is Side.DOWN:
        return np.asarray(np.clip(np.nan_to_num(p - q - slack, nan=0.0), 0.0, 1.0))
    # Delta is at most P's tail, whatever Q's is off by.
    rounded = np.minimum(p - q + slack, p * (1.0 + p_off))
    # A tail with mass is a delta above 0, even if it underflows.
    rounded = np.where(tails.p_above > -np.inf, np.maximum(rounded, TINY), rounded)
    return np.asarray(np.clip(np.nan_to_num(rounded, nan=1.0), 0.0, 1.0))


def _relative(tails: Tails, epsilons: Array) -> tuple[Array, Array]:
    """Return how far P's tail and e^epsilon times Q's may be off, relative to them.

    A Gaussian tail at x is off by |x| times what x is, and x was the difference of numbers of the
    size of Q's; an exponential by what its exponent is. A tail without mass is off by nothing.
    """
    p_size, q_size = (np.where(np.isinf(t), 0.0, np.abs(t)) for t in (tails.p_above, tails.q_above))
    p_off = 8e-16 * (1.0 + np.sqrt(p_size)) * np.sqrt(q_size)
    return _ROUNDING + p_off, _ROUNDING + 8e-16 * (q_size + epsilons)


def epsilon(curve: Curve, target: float, side: Side) -> float:
    """Return the epsilon of one curve at delta = target, rounded to the side; may be inf."""
    fits = _fits(curve, target, side)
    if fits(np.zeros(1))[0]:
        return 0.0
    # Doubling, and then seven grids of 100 cells: 14 digits, and every probe errs to the side.
    high = 1.0
    while not fits(np.array([high]))[0]:
        high *= 2.0
        # A curve that never gets there would double a thousand times: ask the largest.
        if high == _FAR and not fits(np.array([_LARGEST]))[0]:
            return math.inf if side is Side.UP else _LARGEST
    low = 0.0 if high == 1.0 else high / 2.0
    for _ in range(7):
        grid = np.linspace(low, high, 101)
        # Where the first point fits already, the cell to its right: low must not leave the grid.
        first = int(np.argmax(fits(grid))) or 1
        low, high = float(grid[first - 1]), float(grid[first])
    return high if side is Side.UP else low


def _fits(curve: Curve, target: float, side: Side) -> Callable[[Array], NDArray[np.bool_]]:
    def fits(epsilons: Array) -> NDArray[np.bool_]:
        found = delta(curve, epsilons, side)
        # The last epsilon whose delta is surely not below the target is a lower end.
        return np.asarray(found <= target if side is Side.UP else found < target)

    return fits
