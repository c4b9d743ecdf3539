"""Discrete laws of a loss, outcome by outcome, and their conversion to a lattice."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...rounding import FEW, HUNDREDS, TENS, THOUSANDS, UNIT, rounded_down, rounded_up
from .averages import sums_from_right
from .curve import Curve
from .lattice import MAX_POINTS, Array, Lattice, Side, Tails, TooLarge, support


class DiscreteLaw(NamedTuple):
    """One orientation of a law: outcomes in increasing loss, their masses, and revealed masses."""

    loss: Array
    p: Array
    q: Array
    p_infinite: float
    """P-mass at loss +infinity."""
    q_infinite: float
    """Q-mass at loss -infinity."""
    shift: float
    """Error of the losses."""
    cell: float
    """Approximate distance of neighbouring outcomes."""
    side: Side

    def swap(self) -> DiscreteLaw:
        """Return the other orientation."""
        loss, p, q = -self.loss[::-1], self.q[::-1], self.p[::-1]
        return self._replace(
            loss=loss, p=p, q=q, p_infinite=self.q_infinite, q_infinite=self.p_infinite
        )

    def sums(self) -> Tails:
        """Return the logs of sums of masses from each gap between outcomes to either end.

        The sums are rounded, and moved by ``shift``, so that both p_above - a q_above and q_below -
        p_below / a err to the side.
        """
        sign = 1.0 if self.side is Side.UP else -1.0
        slack = sign * (UNIT * (len(self.loss) + 8) + HUNDREDS)
        # Masses that raise the profile are increased, masses that lower it reduced; for DOWN the
        # reverse.
        more, less, moved = 1.0 + slack, 1.0 - slack, sign * self.shift
        with np.errstate(divide="ignore"):
            return Tails(
                np.log((sums_from_right(self.p) * math.exp(moved) + self.p_infinite) * more),
                np.log(sums_from_right(self.q) * less),
                np.log(_from_left(self.p) * math.exp(-moved) * less),
                np.log((_from_left(self.q) + self.q_infinite) * more),
            )


def by_way_of_q(law: DiscreteLaw) -> DiscreteLaw:
    """Return a law above (P, P') for any P and P' such that the law is above (P, Q) and (P', Q).

    A set with mass a under P' has at most mass G(a) under Q, and so at most mass G(G(a)) under P.
    Here G is the power of the law in the two orders. So the loss is the sum of both losses at one
    quantile t of Q. Moving every step of either law to a larger t only increases losses
    (docs/theory/allocation.md).
    """
    raised = 1.0 + 8.0 * UNIT * (len(law.loss) + 8)
    # The ends of outcomes: for P against Q from its largest loss, for Q against P' from its largest
    # loss.
    there = np.cumsum(law.q[::-1]) * raised
    back = (law.q_infinite + _from_left(law.q)) * raised
    knots = np.unique(np.concatenate([[0.0], there, back]))
    knots = knots[knots <= min(there[-1], back[-1])]
    width, left = np.diff(knots), knots[:-1]
    first = law.loss[::-1][np.searchsorted(there, left, side="right")] + law.shift
    p = width * np.exp(first)
    place = np.searchsorted(back, left, side="right")
    # Before the first step of the second law, Q has mass and P' has none.
    seen = place > 0
    second = -law.loss[place[seen] - 1] + law.shift
    loss, p_seen = (first[seen] + second)[::-1], p[seen][::-1]
    infinite = (law.p_infinite + float(p[~seen].sum())) * raised
    return law._replace(
        loss=loss,
        p=p_seen,
        q=p_seen * np.exp(-loss),
        p_infinite=infinite,
        q_infinite=infinite,
        shift=FEW * (2.0 + float(np.abs(loss).max())),
    )


def _from_left(values: Array) -> Array:
    return np.append(0.0, np.cumsum(values))


def _kept(law: DiscreteLaw, step: float, tail_mass: float) -> slice:
    """Return the range where P keeps all but ``tail_mass`` on either side.

    Raises:
        TooLarge: the losses in the range need too many lattice points.
    """
    low = int(np.searchsorted(np.cumsum(law.p), tail_mass, side="right"))
    high = len(law.p) - int(np.searchsorted(np.cumsum(law.p[::-1]), tail_mass, side="right"))
    # One outcome always stays, because omitted mass needs a place.
    low = min(low, len(law.p) - 1)
    high = max(high, low + 1)
    if law.loss[high - 1] - law.loss[low] > step * (MAX_POINTS - 4):
        raise TooLarge
    return slice(low, high)


def split(law: DiscreteLaw, step: float, tail_mass: float) -> Lattice:
    """Split every outcome between the lattice points around it, its P- and Q-mass kept."""
    part = _kept(law, step, tail_mass)
    # Losses go up by their error, and P-masses by the same factor, so the Q-masses do not change.
    loss, p = law.loss[part] + law.shift, law.p[part] * math.exp(law.shift)
    # One per cent is far more than the rounding of these sums, and the sums are negligible.
    p[0] += law.p[: part.start].sum() * 1.01
    index = np.floor(loss / step).astype(np.int64)
    # Rounding may put a loss just outside its cell.
    share = np.clip(np.expm1(index * step - loss) / math.expm1(-step), 0.0, 1.0)
    first = int(index[0])
    mass = np.bincount(index - first, p * (1.0 - share), int(index[-1]) - first + 2)
    mass[1:] += np.bincount(index - first, p * share, len(mass) - 1)
    slack = 1.0 + UNIT * (len(p) + 8)
    infinite = law.p_infinite + float(law.p[part.stop :].sum()) * 1.01
    return Lattice(step, first, np.asarray(mass * slack), infinite * slack)


class _Group:
    """Outcomes to be merged into one at a lattice point: P-mass, and Q-mass times the ratio."""

    def __init__(self, loss: float, step: float) -> None:
        self.index = math.ceil(loss / step)
        # The rounded quotient may be one point too low.
        self.index += self.index * step < loss
        self.point = self.index * step
        self.p = self.q = 0.0
        self.guard = TENS

    def add(self, loss: float, p: float) -> float:
        """Add the share of the outcome that lifts the group to its point; return the rest."""
        q = p * math.exp(self.point - loss)
        self.guard += FEW
        # The ratio must reach its point even if all earlier roundings erred in one direction.
        short = self.q * (1.0 + 3.0 * self.guard) - self.p
        lift = p - q * (1.0 + 3.0 * self.guard)
        # The share is just enough to lift the group, and the rest starts the next group.
        taken = 1.0 if lift <= short else max(short, 0.0) / lift
        self.p += taken * p
        self.q += taken * q
        return 1.0 - taken

    def mass(self) -> float:
        """Return the P-mass, lowered by its rounding."""
        return self.p * (1.0 - self.guard)


def merged(law: DiscreteLaw, step: float, tail_mass: float) -> Lattice:
    """Merge consecutive outcomes, shares of them at the seams, into means on the lattice.

    The last group has no outcome left to lift it, so it goes down to the point below its mean.
    """
    part = _kept(law, step, tail_mass)
    losses = (law.loss[part] - law.shift).tolist()
    masses = (law.p[part] * math.exp(-law.shift)).tolist()
    # One point of room below, because the last group may fall.
    group, first = _Group(losses[0], step), math.floor(losses[0] / step) - 1
    mass = np.zeros(math.ceil(losses[-1] / step) - first + 2)
    for loss, p in zip(losses, masses, strict=True):
        left = group.add(loss, p)
        while left > 0.0:
            mass[group.index - first] += group.mass()
            group = _Group(loss, step)
            p, left = left * p, group.add(loss, left * p)
    # The last group counts at its mean, minus the rounding.
    mean = group.point + math.log(group.p / group.q) - 4.0 * group.guard
    mass[max(math.floor(mean / step) - first, 0)] += group.mass()
    return Lattice(step, first, rounded_down(mass), 0.0)


def cells_law(curve: Curve, width: float, tail_mass: float) -> DiscreteLaw:
    """Return the law of a curve's loss, observed only in cells of a given width: from below."""
    low, high = support(curve.tails, width, tail_mass)
    edges = width * np.arange(low, high + 1, dtype=np.float64)
    found = curve.tails(edges, Side.DOWN)
    p, q = (np.empty(len(edges) + 1) for _ in range(2))
    # Use the smaller tail for the mass of a cell, which loses fewer digits.
    right = edges[:-1] >= 0.0
    for mass, above, below in (
        (p, found.p_above, found.p_below),
        (q, found.q_above, found.q_below),
    ):
        up, down = np.exp(above), np.exp(below)
        mass[1:-1] = np.where(right, up[:-1] - up[1:], down[1:] - down[:-1])
        mass[0], mass[-1] = down[0], up[-1]
        error = np.where(right, up[:-1], down[1:]) * (FEW * 800.0)
        mass[1:-1] += -error if mass is p else error
    some = p > 0.0
    p, q = rounded_down(p[some], THOUSANDS), rounded_up(q[some], THOUSANDS)
    loss = np.log(p) - np.log(q)
    order = np.argsort(loss, kind="stable")
    return DiscreteLaw(loss[order], p[order], q[order], 0.0, 0.0, HUNDREDS, width, Side.DOWN)


def merged_downwards(law: DiscreteLaw, step: float, tail_mass: float) -> Lattice:
    """Merge consecutive outcomes as ``merged`` does, from the largest loss down.

    A group takes in outcomes of lower loss as long as its mean stays above its point. So a law with
    much mass at its largest losses has a second-order error in the step. With ``merged`` this mass
    would fall.
    """
    part = _kept(law, step, tail_mass)
    losses = (law.loss[part] - law.shift)[::-1].tolist()
    masses = (law.p[part] * math.exp(-law.shift))[::-1].tolist()
    first = math.floor(losses[-1] / step) - 1
    mass = np.zeros(math.ceil(losses[0] / step) - first + 2)
    index, kept, spare = _floor(losses[0], step), 0.0, 0.0
    for loss, p in zip(losses, masses, strict=True):
        left = p
        while left > 0.0:
            # Positive if the outcome lifts the group. Its rounding counts against it.
            lift = -math.expm1(index * step - loss) - HUNDREDS
            # At most the spare amount, minus its rounding, or the mean would be too low.
            taken = left if lift >= 0.0 else min(left, max(spare, 0.0) * (1.0 - 1e-9) / -lift)
            kept, spare, left = kept + taken, spare + lift * taken, left - taken
            if left > 0.0:
                mass[index - first] += kept
                index, kept, spare = _floor(loss, step), 0.0, 0.0
    mass[index - first] += kept
    return Lattice(step, first, rounded_down(mass, THOUSANDS), 0.0)


def _floor(loss: float, step: float) -> int:
    """Return the lattice point at or below a loss, with its rounding counted."""
    return math.floor((loss - THOUSANDS) / step)
