"""Privacy losses rounded to a lattice, with a side: UP bounds the profile above, DOWN below.

A lattice holds P-masses at the losses ``index * step``. The Q-mass of a point is its P-mass times
``exp(-loss)``. The rounding of a pair (P, Q) on each side:

- UP, *connect the dots* (Doroshenko et al. 2022): the mass of a cell between two points goes to
  both ends so that its P-mass and its Q-mass are kept. The privacy profile becomes its own chord,
  which lies above it because profiles are convex in exp(epsilon).
- DOWN: merging outcomes, also at random, is post-processing, so it never raises the profile.
  Lowering P or raising Q as measures does not raise it either. A cell around a point is merged into
  one outcome. If its likelihood ratio falls short of the point's, a share of the next cell is
  merged into it, just large enough. If the ratio lies above, a share of the cell below is merged.
  The small excess that remains keeps its P-mass, with Q raised to fit. A cell that cannot be lifted
  falls one point down.

Both sides have a second-order error in the step. ``floored`` has a first-order error and never
raises Q.

Rounding in the tails is counted: UP adds, DOWN subtracts ``_rounding`` of each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...rounding import FEW, HUNDREDS, THOUSANDS, UNIT, rounded_down

Array = NDArray[np.float64]

MAX_POINTS = 1 << 21
"""The largest lattice ever made: 16 MiB of masses."""

_WIDE = 600.0
"""Above this step its exponential is not computed, and no loss is certified from below."""

LOSS_ROUNDING = HUNDREDS
"""Largest error of the loss of one lattice point through floating point."""


def multiples(values: Array, step: float) -> NDArray[np.int64] | None:
    """Return integers k with values k * step up to rounding; None if a value has none."""
    index = np.rint(values / step)
    # A few roundings, like those of a lattice point: ``LOSS_ROUNDING`` is far above these.
    close = np.abs(values - index * step) <= 4.0 * UNIT * np.abs(values)
    return index.astype(np.int64) if bool(np.all(close & (np.abs(index) < MAX_POINTS))) else None


def common_mesh(meshes: list[float]) -> float:
    """Return the smallest of several meshes if it divides all others; else 0."""
    finite = np.array([mesh for mesh in meshes if mesh < math.inf])
    least = float(np.min(finite, initial=math.inf))
    return least if least in (0.0, math.inf) or multiples(finite, least) is not None else 0.0


class Side(Enum):
    """The direction of rounding: an upper or a lower bound."""

    UP = "up"
    DOWN = "down"


class Tails(NamedTuple):
    """Log-masses of {L > x} (above) and {L <= x} (below) under P and under Q, elementwise in x."""

    p_above: Array
    q_above: Array
    p_below: Array
    q_below: Array


def nothing(loss: Array) -> Tails:
    """Return the tails of zero mass, which every pair dominates."""
    none = np.full(np.shape(loss), -np.inf)
    return Tails(none, none, none, none)


class TooLarge(Exception):
    """A lattice would need more than MAX_POINTS points; a coarser step is needed."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """P-masses at ``(start + i) * step`` and the P-mass at infinite loss."""

    step: float
    start: int
    mass: Array
    infinite: float

    def losses(self) -> Array:
        """Return the losses of the points, shape ``mass.shape``."""
        return self.step * np.arange(self.start, self.start + len(self.mass), dtype=np.float64)

    def scaled(self, weight: float) -> Lattice:
        """Return the lattice with every mass times ``weight``."""
        return Lattice(self.step, self.start, self.mass * weight, self.infinite * weight)


def add(lattices: list[Lattice]) -> Lattice:
    """Sum lattices of one step, point by point (a labelled mixture's rounded loss)."""
    start = min(lattice.start for lattice in lattices)
    stop = max(lattice.start + len(lattice.mass) for lattice in lattices)
    mass = np.zeros(stop - start)
    for lattice in lattices:
        offset = lattice.start - start
        mass[offset : offset + len(lattice.mass)] += lattice.mass
    infinite = float(sum(lattice.infinite for lattice in lattices))
    return Lattice(lattices[0].step, start, mass, infinite)


def _rounding(log_mass: Array) -> Array:
    """Bound the rounding error of exp(log_mass) if log_mass is right to a few ulps."""
    size = np.abs(np.maximum(log_mass, -745.0))
    return FEW * (8.0 + size) * np.exp(log_mass)


def support(tails: Callable[[Array], Tails], step: float, tail_mass: float) -> tuple[int, int]:
    """Return lattice indices (low, high) outside which P keeps at most ``tail_mass`` a side."""
    # A geometric grid: 330 tails determine the support to 8 %, for every size.
    grid = np.concatenate([[0.0, 1.0], 1.08 ** np.arange(1, 330)]) * step
    # Only lattice points, because the lattice uses no other tails.
    grid = np.unique(np.ceil(grid / step))
    above = tails(grid * step).p_above
    below = tails(-grid * step).p_below
    high = grid[_first_small(above, np.log(tail_mass))]
    low = grid[_first_small(below, np.log(tail_mass))]
    # Checked from 330 tails, before any array of that size is allocated.
    if high + low > MAX_POINTS:
        raise TooLarge
    return -int(low) - 1, int(high) + 1


def _first_small(log_tail: Array, cut: float) -> int:
    """Return where a tail falls to the cut, or to the mass at infinity that always stays."""
    # Mass at infinite loss never falls off, so the support ends where the remaining mass does.
    never_below = log_tail[-1] + 1e-9 if np.isfinite(log_tail[-1]) else -np.inf
    return int(np.argmax(log_tail <= max(cut, never_below)))


def discretise(
    tails: Callable[[Array], Tails],
    step: float,
    side: Side,
    tail_mass: float,
    infinite: float = 0.0,
) -> Lattice:
    """Round the loss with the given ``tails`` to multiples of ``step`` on the given side.

    Args:
        tails: of the curve.
        step: above 0.
        side: of the rounding.
        tail_mass: mass of P that may be left out on each side.
        infinite: at least this much of P has an infinite loss, so that much keeps it from below.
    """
    # e^step would overflow. Zero loss is always valid from below.
    if side is Side.DOWN and step > _WIDE:
        return Lattice(step, 0, np.zeros(1), 0.0)
    low, high = support(tails, step, tail_mass)
    if side is Side.DOWN:
        return _merge(tails, step, low, high, infinite)
    edges = step * np.arange(low, high + 1, dtype=np.float64)
    mass, beyond = connect_the_dots(tails, edges)
    return Lattice(step, low, mass, beyond)


def floored(tails: Callable[[Array], Tails], step: float, tail_mass: float) -> Lattice:
    """Round a loss down to multiples of ``step``, lowering P and never raising Q.

    A cell from x to x + step with Q-mass q goes to x with P-mass q e^x, which is at most its own
    P-mass. So P and Q are at most those of a post-processed pair. This remains true under
    composition, when outcomes are left out, and when P is mixed with Q.
    """
    if step > _WIDE:
        return Lattice(step, 0, np.zeros(1), 0.0)
    low, high = support(tails, step, tail_mass)
    edges = step * np.arange(low, high + 1, dtype=np.float64)
    found = tails(edges)
    cells = _cells(
        _slice(found, slice(None, -1)), _slice(found, slice(1, None)), edges[:-1], edges[:-1]
    )
    # Beyond the last edge Q counts at the edge's ratio, which is at most P's own mass.
    top = math.exp(min(float(found.q_above[-1]) + edges[-1], 0.0))
    return Lattice(
        step,
        low,
        np.append(np.maximum(cells.q - cells.error, 0.0), rounded_down(top, THOUSANDS)),
        0.0,
    )


class _Cells(NamedTuple):
    """Masses of consecutive cells: p, q * exp(reference loss), and a bound on their rounding."""

    p: Array
    q: Array
    error: Array


def _cells(lower: Tails, upper: Tails, reference: Array, edges: Array) -> _Cells:
    """Return the masses between ``lower`` and ``upper`` edges, from whichever tail is smaller."""
    # Right of 0 the tails above are small, left of it the tails below, so fewer digits cancel.
    right = edges >= 0
    p_far = np.where(right, lower.p_above, upper.p_below)
    p_near = np.where(right, upper.p_above, lower.p_below)
    q_far = np.where(right, lower.q_above, upper.q_below) + reference
    q_near = np.where(right, upper.q_above, lower.q_below) + reference
    error = _rounding(p_far) + _rounding(q_far)
    return _Cells(np.exp(p_far) - np.exp(p_near), np.exp(q_far) - np.exp(q_near), error)


def _slice(tails: Tails, part: slice) -> Tails:
    return Tails(*(column[part] for column in tails))


def connect_the_dots(tails: Callable[[Array], Tails], edges: Array) -> tuple[Array, float]:
    """Return P-masses at increasing ``edges`` and beyond; all mass below goes to the first."""
    found = tails(edges)
    lower, upper = _slice(found, slice(None, -1)), _slice(found, slice(1, None))
    p, q, error = _cells(lower, upper, edges[:-1], edges[:-1])
    # P is first raised by its error, and then split.
    p = np.maximum(p, 0.0) + error
    # No share is below 0 or above the cell, despite rounding.
    right = np.clip((p - q + error) / -np.expm1(-np.diff(edges)), 0.0, p)
    mass = np.zeros(len(edges))
    mass[:-1] += p - right
    mass[1:] += right
    mass[0] += np.exp(found.p_below[0]) + _rounding(found.p_below[:1])[0]
    return mass, float(np.exp(found.p_above[-1]) + _rounding(found.p_above[-1:])[0])


def _merge(
    tails: Callable[[Array], Tails], step: float, low: int, high: int, infinite: float
) -> Lattice:
    """Merge cells around the points low ... high; the point ``low - 1`` takes mass that falls."""
    points = step * np.arange(low, high + 1, dtype=np.float64)
    edges = np.append(points - step / 2, points[-1] + step / 2)
    found = tails(edges)
    cells = _cells(_slice(found, slice(None, -1)), _slice(found, slice(1, None)), points, points)
    from_above = _share_from_above(cells, step)
    # Even the whole next cell does not lift this one to its point, so it counts one point lower.
    falls = from_above > 1.0
    from_above = np.where(falls, 0.0, from_above)
    from_below = np.where(falls, 0.0, _share_from_below(cells, step))
    given = _shifted(from_above, 1) + _shifted(from_below, -1)
    # A cell has limited mass to give, so the share taken from below shrinks by the given mass.
    from_below = np.where(_shifted(given, 1) < 1, from_below, 0.0) * np.maximum(1.0 - given, 0.0)
    given = np.minimum(_shifted(from_above, 1) + _shifted(from_below, -1), 1.0)
    # From below only certain mass may count.
    certain = np.maximum(cells.p - cells.error, 0.0)
    kept = (1.0 - given) * certain
    taken = from_above * _shifted(certain, -1) + from_below * _shifted(certain, 1)
    mass = np.zeros(len(points) + 1)
    mass[1:] += np.where(falls, 0.0, kept + taken)
    mass[:-1] += np.where(falls, kept, 0.0)
    beyond = rounded_down(float(np.exp(found.p_above[-1])), THOUSANDS)
    never = min(infinite, beyond)
    mass[-1] += beyond - never
    return Lattice(step, low - 1, mass, never)


def _shifted(values: Array, by: int) -> Array:
    """Return ``values`` moved by one place up (1) or down (-1), with 0 at the free end."""
    return np.append(0.0, values[:-1]) if by > 0 else np.append(values[1:], 0.0)


def _share_from_above(cells: _Cells, step: float) -> Array:
    """Return the share of the next cell that lifts a cell's ratio to its point; 2 if none does.

    With a share f of the next cell's (p+, q+) merged in, the ratio reaches exp(x) once f (p+ - q+
    exp(x)) >= q exp(x) - p.
    """
    short = np.maximum(cells.q * (1 - LOSS_ROUNDING) - cells.p + 2 * cells.error, 0.0)
    lift = _shifted(cells.p - cells.error - (cells.q + cells.error) * np.exp(-step), -1)
    with np.errstate(all="ignore"):
        share = np.where(lift > 0, short / lift, 2.0)
    return np.asarray(np.where(short > 0, np.where(share <= 1.0, share, 2.0), 0.0))


def _share_from_below(cells: _Cells, step: float) -> Array:
    """Return the share of the cell below that a cell above its point can carry up; at most 1/4.

    With a share g of the cell below, (p-, q-), merged in, the ratio stays at or above exp(x) while
    g (q- exp(x) - p-) <= p - q exp(x).
    """
    spare = np.maximum(cells.p - cells.q - 2 * cells.error, 0.0)
    with np.errstate(all="ignore"):
        drop = _shifted((cells.q + cells.error) * np.exp(step) - cells.p + cells.error, 1)
        share = np.where(drop > 0, spare / drop, 0.0)
    return np.asarray(np.minimum(share, 0.25))
