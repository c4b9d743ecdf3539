"""Mixtures of unit-variance Gaussians: logs of their ratios to N(0, 1), with error bounds."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...rounding import UNIT
from .contour import Array

Mixture = tuple[tuple[float, float], ...]
"""Components (weight, mean) of a Gaussian mixture with a common standard deviation."""

_FINE = 1e-5
"""Grid step, in standard deviations, at which the search for the smallest ratio ends."""

Columns = tuple[tuple[Array, Array], ...]
"""Components of many mixtures at once: weights and means of shape ``(mixtures, 1)``."""


def columns(mixtures: Sequence[Mixture]) -> Columns:
    """Return mixtures with equal numbers of components as columns."""
    table = np.array(mixtures, dtype=np.float64)
    return tuple((table[:, k, :1], table[:, k, 1:]) for k in range(table.shape[1]))


def rounding(
    p: Mixture | Columns, q: Mixture | Columns, y: Array, tilt: float, log_p: Array, log_q: Array
) -> tuple[Array, Array]:
    """Return (relative error of each node's weight, absolute error of its loss)."""
    off_p, off_q = log_sum_error(p, y), log_sum_error(q, y)
    powers = (1 + tilt) * np.abs(log_p) + tilt * np.abs(log_q)
    wobble = UNIT * (16.0 + 8.0 * y * y + 4.0 * powers) + (1 + tilt) * off_p + tilt * off_q
    return wobble, off_p + off_q + 2 * UNIT * np.abs(log_p - log_q)


def log_sum(mixture: Mixture | Columns, y: Array) -> Array:
    """Return log sum_i w_i e^{m_i y - m_i^2 / 2}, precise near 0 too."""
    powers = [mean * y - 0.5 * mean * mean for _, mean in mixture]
    # One component needs no sum: its log is exact to a few units.
    if len(mixture) == 1:
        return np.asarray(powers[0] + np.log(mixture[0][0]))
    # The largest power is factored out, so no exponential overflows.
    top = functools.reduce(np.maximum, powers)
    large = sum(w * np.exp(e - top) for (w, _), e in zip(mixture, powers, strict=True))
    plain = np.asarray(top + np.log(large))
    # If the sum is near 1, its excess has digits that the plain log would lose.
    near, small = _near(mixture, powers, top, plain)
    plain[near] = np.log1p(small)
    return plain


def _near(
    mixture: Mixture | Columns, powers: list[Array], top: Array, plain: Array
) -> tuple[NDArray[np.bool_], Array]:
    """Return where the logarithm is computed as ``log1p``, and the sum minus 1 there.

    The weights add up to 1, and there is no cancellation if all powers are small. The plain
    logarithm shows where that is possible: for long mixtures, at few of the nodes.
    """
    near = np.asarray((top <= 30.0) & (np.abs(plain) < 0.75))
    terms = [_kept(w, near) * np.expm1(e[near]) for (w, _), e in zip(mixture, powers, strict=True)]
    small = np.asarray(functools.reduce(np.add, terms))
    close = np.abs(small) < 0.5
    near[near] = close
    return near, small[close]


def _kept(column: Any, rows: NDArray[np.bool_]) -> Any:
    """Return the selected entries of a column; a number unchanged."""
    return column if np.ndim(column) == 0 else np.broadcast_to(column, rows.shape)[rows]


def log_sum_error(mixture: Mixture | Columns, y: Array) -> Array:
    """Return the error of ``log_sum`` if weights, means and y each have an error of a unit.

    Term by term: a power has an error of 6 units of its two summands. ``expm1`` and the product
    with the weight have errors of 4 units of themselves, the sum of a unit per term.
    """
    powers = [mean * y - 0.5 * mean * mean for _, mean in mixture]
    sizes = [np.abs(mean * y) + mean * mean for _, mean in mixture]
    if len(mixture) == 1:
        log_weight = np.abs(np.log(mixture[0][0]))
        return np.asarray(UNIT * (8.0 * sizes[0] + 4.0 * log_weight))
    top = functools.reduce(np.maximum, powers)
    shares = [w * np.exp(e - top) for (w, _), e in zip(mixture, powers, strict=True)]
    large = functools.reduce(np.add, shares)
    through_powers = 6.0 * functools.reduce(
        np.add, [share / large * size for share, size in zip(shares, sizes, strict=True)]
    )
    plain = np.asarray(top + np.log(large))
    far = 8.0 + len(mixture) + 2.0 * (np.abs(top) + np.abs(np.log(large)))
    # The error follows the form that ``log_sum`` used.
    near, small = _near(mixture, powers, top, plain)
    terms = [
        _kept(w, near) * np.abs(np.expm1(e[near]))
        for (w, _), e in zip(mixture, powers, strict=True)
    ]
    far[near] = 2.0 * (4.0 + len(mixture)) * functools.reduce(np.add, terms)
    far[near] += 2.0 * np.abs(np.log1p(small))
    return np.asarray(UNIT * (through_powers + far))


def smallest_log_ratio(p: Mixture, q: Mixture, low: float, high: float) -> tuple[float, float]:
    """Return bounds of the smallest log P/Q between two ends, by ever finer grids around it.

    The ratio falls and then rises. Its second derivative is a difference of two variances of means.
    """
    means = [mean for _, mean in (*p, *q)]
    spread = max(means) - min(means)
    while True:
        y = np.linspace(low, high, 257)
        ratio = log_sum(p, y) - log_sum(q, y)
        error = log_sum_error(p, y) + log_sum_error(q, y)
        # A computed point is attained. The minimum is next to a point that may be the smallest.
        most, step = float(np.min(ratio + error)), float(y[1] - y[0])
        maybe = np.flatnonzero(ratio - error <= most)
        low, high = float(y[max(maybe[0] - 1, 0)]), float(y[min(maybe[-1] + 1, len(y) - 1)])
        if step <= _FINE or high - low > 128.0 * step:
            # Between grid points the ratio may be lower by the sag.
            return float(np.min(ratio - error)) - (spread * step) ** 2 / 32.0, most


def posterior_mean_error(mixture: Mixture | Columns, y: Array) -> Array:
    """Return the error of ``posterior_mean`` if weights, means and y have errors of a unit."""
    terms: list[tuple[Any, Any]] = [(np.log(w), mean) for w, mean in mixture]
    powers = [log + mean * y - 0.5 * mean * mean for log, mean in terms]
    sizes = [np.abs(log) + np.abs(mean * y) + mean * mean for log, mean in terms]
    top = functools.reduce(np.maximum, powers)
    shares = [np.exp(power - top) for power in powers]
    total = functools.reduce(np.add, shares)
    absolute = functools.reduce(
        np.add, [np.abs(mean) * share for (_, mean), share in zip(terms, shares, strict=True)]
    )
    most = functools.reduce(np.maximum, sizes)
    return np.asarray(UNIT * (8.0 + 2 * len(mixture) + 12.0 * most) * absolute / total)


def posterior_mean(mixture: Mixture | Columns, y: Array) -> Array:
    """Return the derivative of ``log_sum``: the mean of the means given y; increasing in y."""
    if len(mixture) == 1:
        return np.zeros_like(y) + mixture[0][1]
    powers = [np.log(w) + mean * y - 0.5 * mean * mean for w, mean in mixture]
    top = functools.reduce(np.maximum, powers)
    shares = [np.exp(power - top) for power in powers]
    weighted = functools.reduce(
        np.add, [mean * share for (_, mean), share in zip(mixture, shares, strict=True)]
    )
    return np.asarray(weighted / functools.reduce(np.add, shares))
