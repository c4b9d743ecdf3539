"""Epsilon and delta of one curve that is not composed, computed directly from its tails."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .. import Curve, Side, Tails
from ..curves.lattice import Array
from ..curves.sampled import sampled_gaussian_tails
from ..curves.triangles import drawn_tails

TINY = sys.float_info.min
"""Smallest value of an upper end that underflows; a lower end below it becomes 0."""

_ROUNDING = 2e-12
"""Relative error allowed for each of the two tails whose difference is a delta."""


_LARGEST = 2.0**990
"""The largest epsilon that is tried."""
_FAR = 2.0**16
"""Above this epsilon, the search first tests whether any epsilon fits."""
_FIRST = np.array([0.0, *(2.0**k for k in range(8))])
"""Epsilons that are tried in one call; larger ones are tried one by one."""
_GRIDS = 9
_COARSE, _FINE = np.arange(101.0), np.arange(51.0)
_AROUND = 1.0 + np.concatenate([-np.geomspace(0.1, 1e-8, 8), np.geomspace(1e-8, 0.1, 8)])
"""Points around a guess, in units of the guess."""
_AWAY = np.geomspace(1e-13, 0.1, 24)
"""Distances from a guess at which points are placed, in units of the interval."""
_WIDELY = np.array([0.0, *np.geomspace(2.0**-12, 2.0**14, 27)])
_EIGHTHS, _BESIDE = np.linspace(0.0, 1.0, 9), np.geomspace(1e-10, 0.1, 6)
_CLOSE = 1e-13
"""Grids for many curves at a time, the same distances, and the relative width that ends a search.
"""
_GUESSED, _GUESSES = 128, 33
"""From this number of pairs on, this number of them gives guesses for all."""
_NEAR = np.array([0.5, 0.98, 0.999, 1.0 - 1e-4, 1.0 + 1e-4, 1.001, 1.02, 2.0])
"""Multiples of a guess that are tried first."""


def delta(curve: Curve, epsilons: Array, side: Side) -> Array:
    """Return the delta of one curve at each epsilon, rounded to the side; NaN gives 1 or 0."""
    return _delta(curve.tails(epsilons, side), epsilons, side)


def _delta(tails: Tails, epsilons: Array, side: Side) -> Array:
    p, q = np.exp(tails.p_above), np.exp(np.minimum(tails.q_above + epsilons, 0.0))
    # Where the loss exceeds epsilon, e^epsilon Q is at most P, so any excess is rounding.
    q = np.minimum(q, p)
    p_off, q_off = _relative(tails, epsilons)
    slack = p * p_off + q * q_off
    if side is Side.DOWN:
        # Numbers that underflow have a larger relative rounding error.
        found = np.where(p >= TINY, p - q - slack, 0.0)
        return _within(found, 0.0)
    # Delta is at most the tail of P, for any error in the tail of Q.
    rounded = np.minimum(p - q + slack, p * (1.0 + p_off))
    # A tail with mass gives a delta above 0, even if it underflows.
    rounded = np.where(tails.p_above > -np.inf, np.maximum(rounded, TINY), rounded)
    return _within(rounded, 1.0)


def _within(found: Array, unknown: float) -> Array:
    """Return probabilities, with NaN replaced by ``unknown``."""
    known = np.where(np.isnan(found), unknown, found)
    return np.asarray(np.minimum(np.maximum(known, 0.0), 1.0))


def _relative(tails: Tails, epsilons: Array) -> tuple[Array, Array]:
    """Return the relative errors of the tail of P and of e^epsilon times the tail of Q.

    A Gaussian tail at x has a relative error of |x| times the error of x. Here x is a difference of
    numbers as large as the x of Q's tail. An exponential has the error of its exponent. A tail
    without mass has no error.
    """
    p_size = np.where(np.isinf(tails.p_above), 0.0, np.abs(tails.p_above))
    q_size = np.where(np.isinf(tails.q_above), 0.0, np.abs(tails.q_above))
    p_off = 8e-16 * (1.0 + np.sqrt(p_size)) * np.sqrt(q_size)
    return _ROUNDING + p_off, _ROUNDING + 8e-16 * (q_size + epsilons)


def epsilon(curve: Curve, target: float, side: Side, near: float = math.nan) -> float:
    """Return the epsilon of one curve at delta = target, rounded to the side; may be inf.

    Args:
        curve: one that is not composed.
        target: the delta.
        side: UP for an upper end.
        near: a guess, which only saves time.
    """

    def fits(found: Array) -> NDArray[np.bool_]:
        # The last epsilon whose delta is certainly not below the target is a lower end.
        return np.asarray(found <= target if side is Side.UP else found < target)

    guess = math.nan
    around = near * _AROUND
    values = delta(curve, around, side) if 0.0 < near < _FAR else np.zeros(1)
    if fits(values)[0] or not fits(values).any():
        found = fits(delta(curve, _FIRST, side))
        if found[0]:
            return 0.0
        low, high = _bracket(found, lambda x: bool(fits(delta(curve, np.array([x]), side))[0]))
        if low == _LARGEST:
            return high if side is Side.UP else low
        close = 1e-14 * (high - low)
    else:
        first = int(np.argmax(fits(values)))
        low, high = float(around[first - 1]), float(around[first])
        close = 1e-14 * high
        guess = _crossing(around[first - 1 : first + 1], values[first - 1 : first + 1], target)
    # Every probe errs to the side, so any grid is valid. It stops at 14 digits of the first cell.
    for _ in range(_GRIDS):
        grid = _grid(low, high, guess)
        values = delta(curve, grid, side)
        # If the first point already fits, take the cell to its right: low must not leave the grid.
        first = int(np.argmax(fits(values))) or 1
        low, high = float(grid[first - 1]), float(grid[first])
        if high - low <= close:
            break
        guess = _crossing(grid[first - 1 : first + 1], values[first - 1 : first + 1], target)
    return high if side is Side.UP else low


def sampled_gaussian_epsilons(q: Array, mu: Array, target: Array, swapped: bool) -> Array:
    """Return upper bounds of the epsilons of sampled Gaussian pairs, all at a time.

    Args:
        q: sampling probabilities in (0, 1], shape (n,).
        mu: shifts above 0, shape (n,).
        target: the deltas, shape (n,).
        swapped: whether the pair is (absent, present).
    """

    def asked(rows: slice | NDArray[np.intp], near: Array | None = None) -> Array:
        chance, shift = q[rows, None], mu[rows, None]

        def deltas(at: Array, some: NDArray[np.intp]) -> Array:
            tails = sampled_gaussian_tails(chance[some], shift[some], -at if swapped else at)
            if swapped:
                tails = Tails(tails.q_below, tails.p_below, tails.q_above, tails.p_above)
            return _delta(tails, at, Side.UP)

        return _epsilons(deltas, target[rows, None], near)

    every = slice(None)
    if len(mu) < _GUESSED or np.ptp(q) > 0.0 or np.ptp(target) > 0.0:
        return asked(every)
    # The epsilons of a few shifts give guesses for all others.
    some = np.argsort(mu)[np.linspace(0, len(mu) - 1, _GUESSES).round().astype(np.intp)]
    found = asked(some)
    if not np.all((found > 0.0) & np.isfinite(found)):
        return asked(every)
    return asked(every, np.exp(np.interp(np.log(mu), np.log(mu[some]), np.log(found))))


def drawn_epsilons(q: Array, mu: Array, target: Array) -> Array:
    """Return upper bounds of the epsilons of pairs like ``given_way``, all at a time.

    Args:
        q: sampling probabilities in (0, 1), shape (n,).
        mu: distances of the middle mean from the others, above 0, shape (n,).
        target: the deltas, shape (n,).
    """
    q, mu = q[:, None], mu[:, None]

    def deltas(at: Array, some: NDArray[np.intp]) -> Array:
        return _delta(drawn_tails(q[some], mu[some], at), at, Side.UP)

    return _epsilons(deltas, target[:, None])


def _epsilons(
    deltas: Callable[[Array, NDArray[np.intp]], Array], target: Array, near: Array | None = None
) -> Array:
    """Return the smallest epsilons found to have a delta of at most the target, shape (n,).

    Args:
        deltas: upper bounds of the deltas of some pairs at epsilons of shape (some, any).
        target: the deltas, shape (n, 1).
        near: guesses of the epsilons, above 0, shape (n,).
    """
    found = np.full(len(target), np.inf)
    points = np.repeat(_WIDELY[None, :], len(target), axis=0)
    if near is not None:
        ends = np.repeat([[0.0, _WIDELY[-1]]], len(target), axis=0)
        points = np.sort(np.hstack([ends, near[:, None] * _NEAR]), axis=1)
    rows = np.arange(len(target))
    high = np.full(target.shape, np.inf)
    for _ in range(_GRIDS):
        values = deltas(points, rows)
        fits = values <= target
        some, first = fits.any(axis=1, keepdims=True), np.argmax(fits, axis=1)[:, None]
        before = np.where(some, np.maximum(first - 1, 0), points.shape[1] - 1)
        ends = np.take_along_axis(values, np.hstack([before, first]), axis=1)
        # Any point that fits is an upper end, whatever the shape of the profile.
        high = np.where(some, np.take_along_axis(points, first, axis=1), high)
        low = np.minimum(np.take_along_axis(points, before, axis=1), high)
        found[rows] = high[:, 0]
        # Pairs whose search has ended are not asked again.
        going = ((high - low > _CLOSE * high) & np.isfinite(high))[:, 0]
        if not going.any():
            break
        rows, target, high, low, ends = (one[going] for one in (rows, target, high, low, ends))
        points = _points(low, high, ends, target)
    return found


def _points(low: Array, high: Array, ends: Array, target: Array) -> Array:
    """Return increasing points from low to high, half of them near where delta is the target."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rises = np.log(ends) - np.log(target)
        share = np.nan_to_num(rises[:, :1] / (rises[:, :1] - rises[:, 1:]), nan=0.5)
    share = np.clip(share, 0.0, 1.0)
    even = np.repeat(_EIGHTHS[None, :], len(low), axis=0)
    shares = np.hstack([even, share - _BESIDE, share + _BESIDE])
    return np.asarray(low + np.sort(np.clip(shares, 0.0, 1.0), axis=1) * (high - low))


def _bracket(found: NDArray[np.bool_], fits: Callable[[float], bool]) -> tuple[float, float]:
    """Return two epsilons, the second being the first seen to fit; (_LARGEST, inf) if none fits."""
    if found.any():
        first = int(np.argmax(found))
        return float(_FIRST[first - 1]), float(_FIRST[first])
    low, high = float(_FIRST[-1]), 2.0 * float(_FIRST[-1])
    while not fits(high):
        if high >= _FAR and not fits(_LARGEST):
            return _LARGEST, math.inf
        # The factor grows, because doubling would take too long to reach the largest epsilons.
        low, high = high, min(high * max(2.0, high / float(_FIRST[-1])), _LARGEST)
    while high > 2.0 * low:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low, high


def _grid(low: float, high: float, guess: float) -> Array:
    """Return points from low to high: evenly spaced, half of them around a guess if there is one.

    A guess on a smooth profile is accurate to the square of a cell, so a few grids suffice. The
    even points shorten the interval by a factor of 50 for every profile.
    """
    if math.isnan(guess):
        return _even(low, high, _COARSE)
    away = (high - low) * _AWAY
    grid = np.concatenate([_even(low, high, _FINE), guess - away, guess + away])
    grid = np.sort(np.minimum(np.maximum(grid, low), high))
    return np.asarray(grid[np.append(True, grid[1:] > grid[:-1])])


def _even(low: float, high: float, steps: Array) -> Array:
    """Return evenly spaced points from low to high; ``steps`` counts from 0."""
    points: Array = low + steps * ((high - low) / steps[-1])
    points[-1] = high
    return points


def _crossing(at: Array, values: Array, target: float) -> float:
    """Return approximately where a profile that falls like an exponential takes a value."""
    if not np.all((values > 0.0) & np.isfinite(values)) or not values[0] > values[1]:
        return float(at[0] + at[1]) / 2.0
    rises = np.log(values / target)
    share = float(rises[0] / (rises[0] - rises[1]))
    return float(at[0] + (at[1] - at[0]) * min(max(share, 0.0), 1.0))
