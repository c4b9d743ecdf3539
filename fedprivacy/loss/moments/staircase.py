"""Bounds on how far the moments of Gaussian pairs fall above a height.

A staircase lies below the tilted density of the loss. It is a sum of uniform laws, one per slab.
The transform of a slab of width w has size |sin(vw/2) / (vw/2)| at the height v, and the rest of
the law has at most its mass. See docs/theory/inversion.md, "How fast A falls".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .contour import Array, PerRow
from .mixtures import (
    Columns,
    Mixture,
    log_sum,
    log_sum_error,
    posterior_mean,
    posterior_mean_error,
)
from .spectrum import uniform_envelope

_LOG_2PI = math.log(2.0 * math.pi)
_CELLS = 64
"""Cells of a staircase in a batch; a single pair has 160."""
_SEARCHED = 96
"""Points at which a batch looks for the relevant outcomes."""
_HEAVY = 6.0
"""Values below e^-6 of the maximum hardly contribute to a staircase."""
_HILLS = 3
"""Number of hills of a staircase that a batch uses: a loss may have several likely values."""
_RATIO = 1.01
"""Widths of slabs of many rounds are rounded down to powers of this number."""


class Edges(NamedTuple):
    """Cell edges with log S_P, log S_Q, their derivatives there, and bounds on the errors.

    All arrays have the shape ``(..., edges)``: one row per pair if several are batched.
    """

    y: Array
    log_p: Array
    log_q: Array
    mean_p: Array
    mean_q: Array
    off: Array
    turn_off: Array

    @classmethod
    def at(cls, p: Mixture | Columns, q: Mixture | Columns, y: Array) -> Edges:
        """Return the edges ``y`` of the pair (P, Q)."""
        off = log_sum_error(p, y) + log_sum_error(q, y)
        turn_off = posterior_mean_error(p, y) + posterior_mean_error(q, y)
        means = posterior_mean(p, y), posterior_mean(q, y)
        return cls(y, log_sum(p, y), log_sum(q, y), *means, off, turn_off)

    def staircase(self, tilt: float, log_size: PerRow) -> tuple[Array, Array]:
        """Return (a lower bound on the density of the loss, width in loss) for each cell.

        The density is in units of ``e^log_size``. Replace log S_P by its tangent at either end of
        the cell. The log of the tilted density in y then becomes concave, so its minimum is at an
        end. If the loss may not be monotone, the result is 0.
        """
        length = np.diff(self.y)
        rest = -0.5 * (self.y**2 + _LOG_2PI) - tilt * self.log_q - log_size
        exact = rest + (1 + tilt) * self.log_p
        left, right = np.s_[..., :-1], np.s_[..., 1:]
        from_left = rest[right] + (1 + tilt) * (self.log_p[left] + self.mean_p[left] * length)
        from_right = rest[left] + (1 + tilt) * (self.log_p[right] - self.mean_p[right] * length)
        # Either tangent gives a lower bound, so the larger one is used.
        least = np.maximum(np.minimum(exact[left], from_left), np.minimum(exact[right], from_right))
        # The means given y rise with y, so the slope of the loss lies between these two.
        slow = self.mean_p[left] - self.mean_q[right]
        fast = self.mean_p[right] - self.mean_q[left]
        turn_off = self.turn_off[right] + self.turn_off[left]
        steepest = np.maximum(np.abs(slow), np.abs(fast)) + turn_off
        width = np.abs(np.diff(self.log_p - self.log_q)) - self.off[right] - self.off[left]
        sure = np.minimum(np.abs(slow), np.abs(fast)) > turn_off
        good = sure & (np.sign(slow) == np.sign(fast)) & (width > 0)
        # Where the loss turns back, neighbours cover one loss twice, so one of the two is removed.
        turns = np.sign(slow[right]) != np.sign(slow[left])
        good[right] &= ~(good[left] & turns)
        density = np.exp(np.minimum(least, 600.0)) / np.where(good, steepest, 1.0)
        return np.where(good, density, 0.0), np.maximum(width, 0.0)


def slabs(height: Array, width: Array) -> tuple[Array, Array]:
    """Cut a staircase into horizontal slabs; return their masses and widths."""
    mass, wide = [], []
    stack: list[tuple[float, float]] = []
    at = 0.0
    for level, step in zip([*height.tolist(), 0.0], [*width.tolist(), 0.0], strict=True):
        left = at
        while stack and stack[-1][1] > level:
            left, top = stack.pop()
            below = max(stack[-1][1] if stack else 0.0, level)
            mass.append((top - below) * (at - left))
            wide.append(at - left)
        if not stack or stack[-1][1] < level:
            stack.append((left, level))
        at += step
    return np.array(mass), np.array(wide)


def lost(mass: Array, width: Array, heights: Array) -> Array:
    """Return a lower bound on A(tilt) - |A(tilt + i v)| for all v from each height on.

    Args:
        mass: masses of the slabs below the density, shape ``(..., slabs)``, in units of a size.
        width: their widths, of the same shape.
        heights: increasing, shape ``(n,)``.

    Returns:
        The bounds in the same unit, shape ``(..., n)``.
    """
    fallen = 1.0 - uniform_envelope(0.5 * heights[:, None] * width[..., None, :])
    return np.asarray(np.einsum("...hs,...s->...h", fallen, mass) * (1 - 1e-9))


def hills(height: Array, width: Array) -> tuple[Array, Array]:
    """Cut the highest hills of each row of staircases into slabs; return their masses and widths.

    A hill rises to the row's largest value and falls from there: lower cells nearer to that value
    hide higher ones behind them. Its sets of cells above a level are intervals of the loss, since
    the loss is monotone where the staircase is not 0. The next hill is that of the remainder.

    Args:
        height: densities, shape ``(rows, cells)``.
        width: widths of the cells, of the same shape.

    Returns:
        Two arrays of shape ``(rows, slabs)``.
    """
    found = []
    for _ in range(_HILLS):
        hill = _highest(height)
        order = np.argsort(-hill, axis=1, kind="stable")
        level = np.take_along_axis(hill, order, axis=1)
        wide = np.cumsum(np.take_along_axis(width, order, axis=1), axis=1)
        found.append((-np.diff(level, axis=1, append=0.0) * wide, wide))
        height = height - hill
        if not height.any():
            break
    mass, wide = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
    return mass, wide


def _highest(height: Array) -> Array:
    """Return the running minimum outward from the largest value of each row."""
    cells = np.arange(height.shape[1])
    peak = np.argmax(height, axis=1)[:, None]
    after = np.minimum.accumulate(np.where(cells >= peak, height, np.inf), axis=1)
    before = np.where(cells <= peak, height, np.inf)[:, ::-1]
    before = np.minimum.accumulate(before, axis=1)[:, ::-1]
    return np.asarray(np.minimum(after, before))


def batched_slabs(
    p: Columns, q: Columns, ends: tuple[PerRow, PerRow], tilt: float, log_size: PerRow
) -> tuple[Array, Array]:
    """Return masses and widths of slabs below the densities of many losses.

    Args:
        p: P's components, one row per pair.
        q: Q's components.
        ends: the outcomes between which the moments are integrated, columns.
        tilt: real part of s.
        log_size: logs of the units of the masses, a column.

    Returns:
        Two arrays of shape ``(rows, slabs)``.
    """
    y = _between(*ends, _SEARCHED)
    log_p, log_q = log_sum(p, y), log_sum(q, y)
    exponent = (1 + tilt) * log_p - tilt * log_q - 0.5 * (y * y)
    heavy = exponent > exponent.max(axis=1, keepdims=True) - _HEAVY
    first, last = np.argmax(heavy, axis=1), _SEARCHED - 1 - np.argmax(heavy[:, ::-1], axis=1)
    rows = np.arange(len(y))
    # Any outcomes will do. One point more on either side holds the ends of the heavy part.
    low = y[rows, np.maximum(first - 1, 0)][:, None]
    high = y[rows, np.minimum(last + 1, _SEARCHED - 1)][:, None]
    edges = Edges.at(p, q, _between(low, high, _CELLS + 1))
    mass, width = hills(*edges.staircase(tilt, log_size))
    # Ends that overflow give no bound.
    known = np.isfinite(mass) & np.isfinite(width)
    return np.asarray(np.where(known, mass, 0.0)), np.asarray(np.where(known, width, 0.0))


def _between(low: PerRow, high: PerRow, count: int) -> Array:
    return np.asarray(low + (high - low) * np.linspace(0.0, 1.0, count))


def joined(masses: Sequence[Array], widths: Sequence[Array]) -> tuple[Array, Array]:
    """Return slabs of the sum of many laws: widths are rounded down, and equal ones are added.

    A slab may be narrower than it is, because a part of it will do: its transform is then larger.
    """
    mass, width = (np.concatenate([one.ravel() for one in all_]) for all_ in (masses, widths))
    some = (mass > 0.0) & (width > 0.0)
    # The rounding of the logarithm is far below a hundredth of a step.
    step = np.floor(np.log(width[some]) / math.log(_RATIO) - 0.01).astype(np.int64)
    steps, at = np.unique(step, return_inverse=True)
    total = np.bincount(at, mass[some], len(steps)) * (1 - 1e-9)
    return np.asarray(total), np.asarray(np.exp(steps * math.log(_RATIO)))
