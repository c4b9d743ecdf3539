"""A unit that is drawn several times in a round, from above: draws inside draws.

With probability w_k the unit is drawn k times. A round with k draws of it is compared with rounds
of j <= k draws, at j of the same positions. Given the draws of the others, the profile at a >= 1 is
that of w_k N(d_k) against a sum_j pi_kj N(e_j), for any weights pi of column sums w_j. So it is at
most their sum over k. The best weights let all numbers below some n share one threshold. Larger
numbers meet themselves. The bound at many thresholds gives a discrete pair. Proofs:
docs/theory/theorems.md, "Draws inside draws".
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ...registry import registered
from ...rounding import THOUSANDS, UNIT
from ..moments.moments import Moments
from .components import Components
from .curve import TAIL_MASS, Curve
from .discrete import Atoms
from .discretised_laws import split
from .lattice import Array, Lattice, Side, Tails, nothing
from .max_loss import NO_LIMIT
from .support import Support

Times = tuple[tuple[float, int], ...]
Point = tuple[float, float]
Masses = tuple[list[float], list[float]]

RARE = 1e-30
"""Largest total probability of missing numbers, which a last entry may stand for."""
_FAR_MORE = 1e4
MOST_NUMBERS = 256
STD_RANGE = (0.6, 1e4)
"""Stds, in clip norms. Below, the older pairs are as good, and cells would have to be finer."""
_STEP = 0.02
"""Distance of thresholds in stds, for noise of a clip norm or less."""
_BLOCK = 256
_LAST = 34.0
"""Largest threshold: exponentials of its square are still doubles."""
_MOST_LOSS = 300.0
_ROUNDED = 3e-10
"""Relative error of a bound's terms: tails 35 stds out, with thresholds right to 1e-12."""
_MOVED = 1.0 + 2.0 * THOUSANDS
_MARGIN = 1.0 + 1e-9
_UP = 1.0 + 8.0 * UNIT


@registered
@dataclass(frozen=True)
class InnerDraws(Curve):
    """One round of a Gaussian sum; the unit takes the slots of k others with probability w_k.

    The pair is known from above only.

    Args:
        std: the standard deviation in clip norms, in ``STD_RANGE``.
        times: (w, k), see ``serves``.
        replaced: whether the unit is replaced by another, else it is present against absent.
        swapped: False for (P, Q).
    """

    std: float
    times: Times
    replaced: bool
    swapped: bool = False

    def __post_init__(self) -> None:
        if not self.serves(self.std, self.times):
            raise ValueError(f"InnerDraws: out of range, got {self.std} and {self.times}")

    @staticmethod
    def serves(std: float, times: Times) -> bool:
        """Return whether the pair is computed for these numbers.

        The numbers must be three or more (the older pairs are no larger for two), consecutive, and
        their probabilities the true ones except for rounding.
        A last number may follow later: its probability, at most ``RARE``, is that of all missing
        ones.
        """
        numbers = [k for _, k in _listed(times)]
        alike = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        few = 2 < len(numbers) <= MOST_NUMBERS
        return alike and few and STD_RANGE[0] <= std <= STD_RANGE[1]

    @property
    def pair(self) -> Atoms:
        """The discrete pair of this orientation."""
        return _pair(self.std, self.times, self.replaced)[self.swapped]

    def moments(self) -> Moments:
        """Return those of ``pair``."""
        return self.pair.moments()

    def support(self) -> Support:
        """Return no limit, and the cover of the largest number, as if it were public."""
        cover = 2.0 * self.times[-1][1] / self.std
        return Support(
            largest=NO_LIMIT, symmetric=self.replaced, exact=False, above_only=True, cover=cover
        )

    def components(self) -> Components:
        """Return no components; rare numbers do not make this pair slower."""
        return Components()

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of ``pair``; none from below."""
        return self.pair.tails(loss, side) if side is Side.UP else nothing(loss)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the rounded losses of ``pair``; none from below."""
        if side is Side.DOWN:
            return Lattice(step, 0, np.zeros(1), 0.0)
        # Tails that may be left out would make the lattice many times as long.
        return split(self.pair.law(side), step, tail_mass)

    def swap(self) -> InnerDraws:
        """Return the pair the other way round; a replaced unit's is its own swap."""
        if self.replaced:
            return self
        return InnerDraws(self.std, self.times, self.replaced, not self.swapped)


def least_delta(curve: Curve) -> float:
    """Return a delta of a round that is large next to a pair's mass at an infinite loss."""
    if not isinstance(curve, InnerDraws):
        return 0.0
    return _FAR_MORE * max(RARE, curve.pair.law(Side.UP).p_infinite)


def _listed(times: Times) -> Times:
    """Return the numbers that are listed themselves, without one for all missing numbers."""
    after = len(times) > 1 and times[-1][1] > times[-2][1] + 1
    return times[:-1] if after and times[-1][0] <= RARE * _UP else times


class Bounds(NamedTuple):
    """Bounds of a profile: delta at ratios a >= 1, increasing."""

    a: Array
    delta: Array


def bounds(std: float, times: Times, there: float, back: float) -> Bounds:
    """Return bounds of the profile of sum_k w_k N(there k) against draws inside, at ``back`` j.

    Args:
        std: the standard deviation in clip norms.
        times: the law of the number of draws.
        there: d_k / k, for the unit that is compared.
        back: e_j / j, at least 0 and below ``there``.
    """
    listed = _listed(times)
    w, k = (np.array(column, dtype=np.float64) for column in zip(*listed, strict=True))
    d, e = there * k / std, back * k / std
    lost = RARE if len(listed) < len(times) else 0.0
    gap = np.maximum(d - e, 1e-300)
    first = float(np.sum(w * (ndtr(0.5 * gap) - ndtr(-0.5 * gap)))) * (1.0 + _ROUNDED)
    ratios, deltas = [np.ones(1)], [np.array([first + lost])]
    step = _STEP * min(std, 1.0)
    start = 0.5 * (there + back) * max(float(k[0]), 1.0) / std
    steps = np.arange(1.0, 1.0 + _BLOCK)
    while start < _LAST:
        a, delta = _at_thresholds(start + step * steps, w, d, e)
        inside = np.log(a) < _MOST_LOSS
        ratios.append(a[inside] * _MOVED)
        deltas.append(delta[inside] + lost)
        start += step * _BLOCK
        if not inside.all() or delta[-1] < RARE:
            break
    a, delta = np.concatenate(ratios), np.concatenate(deltas)
    order = np.lexsort((delta, a))
    return Bounds(a[order], np.minimum(np.minimum.accumulate(delta[order]), 1.0))


def _at_thresholds(t: Array, w: Array, d: Array, e: Array) -> tuple[Array, Array]:
    """Return the ratio whose best test is the half line above each threshold, and the bound there.

    The largest ratio of partial sums is that of the numbers up to the last that share t.
    """
    at = t[:, None]
    over, under = w * np.exp(at * d - 0.5 * d * d), w * np.exp(at * e - 0.5 * e * e)
    ratio = np.cumsum(over, axis=1) / np.cumsum(under, axis=1)
    # A shared column must not lie beyond the threshold: its tail is then at most 1.3 times its
    # density, so that small errors of the ratio stay small.
    ratio[:, 1:][(e[1:] > at)] = 0.0
    last = ratio.argmax(axis=1)
    a = ratio[np.arange(len(t)), last][:, None]
    gap = np.maximum(d - e, 1e-300)
    alone = np.log(a) / gap
    shared = np.arange(len(w)) <= last[:, None]
    p = w * ndtr(np.where(shared, d - at, 0.5 * gap - alone))
    q = a * w * ndtr(np.where(shared, e - at, -0.5 * gap - alone))
    found = (p - q).sum(axis=1) + _ROUNDED * (p + q).sum(axis=1)
    return a[:, 0], np.minimum(found, 1.0)


@functools.lru_cache(maxsize=64)
def _pair(std: float, times: Times, replaced: bool) -> tuple[Atoms, Atoms]:
    """Return the pair in both orientations."""
    if replaced:
        here = bounds(std, times, 2.0, 0.0)
        found = pair_of(here, here)
        return found, found
    found = pair_of(bounds(std, times, 2.0, 1.0), bounds(std, times, 1.0, 0.0))
    return found, replace(found, swapped=True)


class _Half(NamedTuple):
    """A convex polygon above a profile at a >= 1, flat beyond its last vertex."""

    a: Array
    delta: Array
    slopes: Array
    """Falls between vertices, at least the exact ones, and 0 at the end."""

    @classmethod
    def of(cls, known: Bounds, first: float) -> _Half:
        """Return the polygon of some of the points; a chord lies above a convex profile."""
        at = list(zip(known.a.tolist(), known.delta.tolist(), strict=True))
        kept = [(1.0, first)]
        for a, delta in at:
            if a <= kept[-1][0] or delta >= kept[-1][1]:
                continue
            while len(kept) > 1 and not _bends(kept[-2], kept[-1], (a, delta)):
                kept.pop()
            kept.append((a, delta))
        a, delta = (np.array(column) for column in zip(*kept, strict=True))
        return cls(a, delta, np.append(-np.diff(delta) / np.diff(a) * _UP, 0.0))

    def masses(self, start: int, slope: float) -> tuple[list[float], list[float]]:
        """Return Q-masses and ratios of the vertices from one on, given the fall before it."""
        before = np.append(slope, self.slopes[start:-1])
        q = (before - self.slopes[start:]) * _UP
        return q.tolist(), self.a[start:].tolist()


def _bends(first: Point, middle: Point, last: Point) -> bool:
    """Return whether the fall slows down at the middle point, by more than rounding."""
    before = (first[1] - middle[1]) / (middle[0] - first[0])
    after = (middle[1] - last[1]) / (last[0] - middle[0])
    return before > after * _MARGIN


def pair_of(right: Bounds, left: Bounds) -> Atoms:
    """Return a pair whose profile is above ``right``, and whose swap's is above ``left``.

    Both are bounds of convex profiles of one pair, in its two orders, so their total variation is
    the same. Where the slope of a profile falls by q at a, there is Q-mass q and P-mass a q (T12).
    """
    first = min(float(right.delta[0]), float(left.delta[0]))
    here, there = _Half.of(right, first), _Half.of(left, first)
    (q, a), (p, b) = here.masses(1, here.slopes[0]), there.masses(1, there.slopes[0])
    ends = float(here.delta[-1]), float(there.delta[-1])
    middle = 1.0 - math.fsum([*map(operator.mul, q, a), ends[0], *p])
    points = [(0.0, middle + UNIT)]
    if middle <= THOUSANDS:
        # No mass is left at loss 0: a chord leads from one side to the other.
        (q, a), (p, b) = _across(here, there)
        points = []
    points = [
        *((-math.log(y), mass * _UP) for mass, y in zip(p[::-1], b[::-1], strict=True)),
        *points,
        *((math.log(x), mass * x * _UP) for mass, x in zip(q, a, strict=True)),
    ]
    return Atoms(tuple(points), *ends)


def _across(here: _Half, there: _Half) -> tuple[Masses, Masses]:
    """Return the masses of both sides if no vertex lies at ratio 1."""
    i = j = 1
    while True:
        (a, u), (b, v) = (
            (float(one.a[k]), float(one.delta[k])) for one, k in ((here, i), (there, j))
        )
        fall = (1.0 - 1.0 / b + v / b - u) / (a - 1.0 / b) * _UP
        other = (1.0 - 1.0 / a + u / a - v) / (b - 1.0 / a) * _UP
        if fall < here.slopes[i]:
            i += 1
        elif other < there.slopes[j]:
            j += 1
        else:
            return here.masses(i, fall), there.masses(j, other)
