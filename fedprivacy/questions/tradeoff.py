"""The whole curve of a dominating pair: its trade-off function and its Gaussian equivalent.

For a pair (P, Q) write h(a) for the hockey-stick divergence at a = exp(epsilon), so that
delta(epsilon) = h(exp(epsilon)) at every real epsilon. An attacker who claims P with probability x
under Q does so under P with probability at most

    t(x) = inf over a >= 0 of h(a) + a x,

and some attacker reaches it (Dong, Roth and Su 2022, Proposition 2.13, there written for
f(x) = 1 - t(x)). ``Sandwich`` knows h at finitely many points, each as a certified interval, and
brackets t from both sides; see ``docs/curves.md`` for the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..accountants.base import counted
from ..loss import Curve
from ..rounding import FEW, THOUSANDS
from .effort import Effort

Array = NDArray[np.float64]

_LARGEST = 700.0
"""No epsilon beyond it is asked for: exp overflows."""
_SMALL = 1e-9
"""Absolute width that is always narrow enough."""
_APART = 1e-9
"""Points closer than this say nothing new."""
_PASSES = 12
_MOST = 600
"""How often delta is asked for before a tolerance is given up."""
_ATTACKS = np.geomspace(1e-12, 0.5, 25)
_UPPER_ONLY = 24
"""How often an accountant is asked that has upper ends only."""
_STUCK = "the asked tolerance was not reached"
_LATE = "the deadline was near before the asked tolerance was reached"


class Points(NamedTuple):
    """Certified ends of h at increasing a >= 0, all of shape (n,); h(0) = 1 is the first."""

    a: Array
    low: Array
    high: Array


class Half:
    """delta(epsilon) of one orientation at epsilon >= 0, known where it was asked for."""

    def __init__(self, curve: Curve, tolerance: float, effort: Effort, off: float) -> None:
        self.curve, self.tolerance, self.effort, self.off = curve, tolerance, effort, off
        self.known: dict[float, tuple[float, float]] = {}

    def ends(self, epsilon: float) -> tuple[float, float]:
        """Return certified ends of delta at one epsilon, asked for once."""
        if epsilon not in self.known:
            low, high = self.effort.delta_ends(self.curve, epsilon, self.tolerance)
            # P~(E) - a Q~(E) is within (1 + a) off of P(E) - a Q(E), whatever the event.
            more = counted(self.off, epsilon)
            if more:
                low, high = max(low - more, 0.0), math.nextafter(high + more, math.inf)
            self.known[epsilon] = low, high
        return self.known[epsilon]

    def ask(self, epsilon: float) -> float:
        """Learn delta at one epsilon and return its upper end."""
        return self.ends(epsilon)[1]

    def ask_apart(self, epsilon: float) -> None:
        """Learn delta at one epsilon unless it is known right beside it."""
        # Points too close say the same, and dividing by their gap would magnify rounding.
        if all(abs(epsilon - known) > _APART * (1.0 + epsilon) for known in self.known):
            self.ask(epsilon)

    def reach(self, target: float) -> bool:
        """Ask at growing epsilons until delta is at most ``target``; tell whether it ever is."""
        at_zero = self.ask(0.0)
        last = max(self.known)
        # Doubling: how far delta reaches is not known, but it falls for good.
        while self.ask(last) > target and last < _LARGEST and not self.effort.late:
            last = min(2.0 * last, _LARGEST) if last else min(max(2.0 * at_zero, 1e-6), 1.0)
        return self.ask(last) <= target

    def points(self) -> Points:
        """Return what is known of h at a >= 1."""
        epsilons = np.array(sorted(self.known))
        ends = np.array([self.known[e] for e in epsilons])
        return _tidy(np.exp(epsilons), ends[:, 0], ends[:, 1])


def _tidy(a: Array, low: Array, high: Array) -> Points:
    """Tighten ends by what holds for every h: it falls, and max(0, 1 - a) <= h <= 1."""
    # h falls, so that an upper end holds for all larger a as well.
    high = np.minimum.accumulate(np.minimum(high, 1.0))
    # h is at least 1 - a, which is what the set of all outcomes gives.
    low = np.maximum(low, np.maximum(1.0 - a - FEW, 0.0))
    return Points(a, np.minimum(np.maximum.accumulate(low[::-1])[::-1], high), high)


def joined(near: Points, far: Points) -> Points:
    """Return h at every a from its values at a >= 1 and the swapped pair's.

    The swap: h(a) = 1 - a + a k(1/a), with k of (Q, P).
    """
    # The point a = 1 is in both halves and counts once.
    inner = far.a > 1.0
    a = 1.0 / far.a[inner][::-1]
    low = 1.0 - a + a * far.low[inner][::-1] - FEW
    high = 1.0 - a + a * far.high[inner][::-1] + FEW
    # h(0) is 1 for every pair: it anchors the curve on the left.
    columns = ((0.0, a, near.a), (1.0, low, near.low), (1.0, high, near.high))
    return _tidy(*(np.concatenate([[first], *rest]) for first, *rest in columns))


def floor_of(points: Points) -> tuple[Array, Array]:
    """Return corners (a, value) whose lines ``value + a x`` all lie on or below t(x) somewhere.

    Between two neighbours h lies above the chord on the left, continued, and above the chord on
    the right, continued: it is convex. The larger of the two is smallest, once a line is added, at
    an end or where they cross. Beyond the last point h is at least 0.
    """
    a, low, high = points
    gaps, inexact = np.diff(a), FEW * a[1:]
    # Where two points nearly coincide their slope is rounding: -1 is always a bound.
    safe = np.where(gaps > 2.0 * inexact, gaps - inexact, np.inf)
    left = np.append(-1.0, np.where(safe < np.inf, (low[1:] - high[:-1]) / safe, -1.0))
    right = np.append((high[1:] - low[:-1]) / (gaps + inexact), 0.0)[1:]
    # The slope of h lies between -1 and 0.
    left, right = np.clip(left, -1.0, 0.0), np.clip(np.append(right, 0.0), -1.0, 0.0)
    start, stop = a, np.append(a[1:], np.inf)
    end = np.append(low[1:], 0.0)
    anchor = np.append(a[1:], a[-1])
    with np.errstate(all="ignore"):
        cross = (end - right * anchor - low + left * start) / (left - right)
    # Nearly parallel chords cross anywhere or nowhere: kept inside the cell.
    cross = np.clip(np.where(np.isfinite(cross), cross, start), start, stop)

    def above(at: Array) -> Array:
        from_left, from_right = left * (at - start), right * (at - anchor)
        # Values are moved down by their rounding, since they must lie below h.
        error = FEW * (1.0 + at) * np.maximum(-left, -right) + FEW * low
        return np.asarray(np.maximum(low + from_left, end + from_right) - error)

    ends = np.append(stop[:-1], start[-1])
    corners = np.concatenate([start, cross, ends])
    values = np.concatenate([above(start), above(cross), above(ends)])
    return corners, np.maximum(values, 0.0)


class Sandwich:
    """Both orientations of one curve, with certified ends that narrow as delta is asked for.

    Args:
        curve: a dominating pair (P, Q).
        effort: by which accountant, how wide each rate may be, relative to it, and how long.
        off: total variation by which what runs may differ from P and from Q.
    """

    def __init__(self, curve: Curve, effort: Effort, off: float = 0.0) -> None:
        self.tolerance, self.effort, self.off = effort.tolerance, effort, off
        self._cover = curve.cover()
        # A rate's bracket is made of several deltas, each of which adds to its width.
        fine = self.tolerance / 8.0
        self.near = Half(curve, fine, effort, off)
        self.far = self.near if curve.symmetric else Half(curve.swap(), fine, effort, off)

    @property
    def halves(self) -> tuple[Half, ...]:
        """Both orientations; one where they are the same."""
        return (self.near,) if self.far is self.near else (self.near, self.far)

    @property
    def settled(self) -> bool:
        """Whether asking more is of no use: it is late, or lower ends are not to be had."""
        return self.effort.late or self.effort.accountant != "pld"

    def cover(self, slack: float = 0.0) -> float:
        """Return a mu whose rates, and the slack, are no less than t anywhere; inf if none is."""
        # t~(x) <= t(x + off) + off, and t(x + off) <= t(x) + t(off) as t is concave.
        most = float(self.covered(np.zeros(1))[0])
        return self._cover if most <= slack else math.inf

    def covered(self, x: Array) -> Array:
        """Return rates that N(cover, 1) against N(0, 1) has or exceeds, as do the pair's."""
        if not self.off:
            return gaussian_rate(x, self._cover)
        moved = np.minimum(np.nextafter(x + self.off, 2.0), 1.0)
        return np.asarray(np.minimum(gaussian_rate(moved, self._cover) + self.off, 1.0) * (1 + FEW))

    def points(self, turned: bool = False) -> Points:
        """Return what is known of h of (P, Q), or of (Q, P) if turned."""
        near, far = (self.far, self.near) if turned else (self.near, self.far)
        return joined(near.points(), far.points())

    def rates(self, x: Array, turned: bool = False) -> tuple[Array, Array]:
        """Return certified ends of t at each false-positive rate, shapes as x.

        Not turned, the attacker claims P and Q is true; turned, the roles are exchanged.
        """
        low, high, _ = self._bracket(x, turned)
        return low, high

    def _bracket(self, x: Array, turned: bool) -> tuple[Array, Array, Array]:
        """Return (low, high, the corner that low comes from) of t at each x."""
        points = self.points(turned)
        corners, values = floor_of(points)
        lines = values + np.multiply.outer(x, corners)
        which = np.argmin(lines, axis=-1)
        low = np.min(lines, axis=-1) * (1 - 4 * FEW)
        high = np.min(points.high + np.multiply.outer(x, points.a), axis=-1) * (1 + 4 * FEW)
        high = np.minimum(high, self.covered(x))
        # Guessing has the rate x, and no test more than 1.
        return np.clip(low, x, 1.0), np.clip(high, x, 1.0), corners[which]

    def advantage(self) -> tuple[float, float]:
        """Return certified ends of delta at epsilon 0, the same in both orientations."""
        ends = [half.ends(0.0) for half in (self.near, self.far)]
        high = min(high for _, high in ends)
        return min(max(low for low, _ in ends), high), high

    def refine(self, x: Array) -> str:
        """Ask until every rate is narrow enough; return why it is not, or nothing."""
        # Without a finite cover the rate at 0 may be above 0, so that 0 counts as small, too.
        within = x[x > 0] if math.isfinite(self._cover) else x
        small = float(np.min(within, initial=1.0))
        target = max(0.25 * self.tolerance * small, 0.5 * _SMALL)
        reached = [half.reach(target) for half in self.halves]
        # Upper ends alone leave no gap to be narrowed.
        if self.effort.accountant != "pld":
            return self._once()
        self._narrow(x)
        if self.effort.late:
            return _LATE
        done = all(not len(self._open(x, turned)) for turned in (False, True))
        return "" if done else _STUCK + ("" if all(reached) else ": some loss is too large")

    def _narrow(self, x: Array) -> None:
        """Ask at the corners of wide brackets, as long as that brings anything new."""
        before = 0
        # As long as a pass asks anything new, and not for ever.
        while before < len(self.near.known) + len(self.far.known) < _MOST and not self.effort.late:
            before = len(self.near.known) + len(self.far.known)
            # Both attackers' gaps at once, since either half may close both.
            wanted = self._wanted(x, False) | self._wanted(x, True)
            for half, epsilon in sorted(wanted, key=lambda new: (new[0] is self.far, new[1])):
                half.ask_apart(epsilon)

    def _once(self) -> str:
        """Ask between what was asked for: upper ends alone do not say where to look."""
        for half in self.halves:
            for epsilon in np.linspace(0.0, max(half.known), _UPPER_ONLY):
                if not self.effort.late:
                    half.ask_apart(float(epsilon))
        return f"{self.effort.accountant!r} has upper ends only"

    def _open(self, x: Array, turned: bool) -> Array:
        """Return corners a that keep some rate's bracket too wide."""
        low, high, corner = self._bracket(x, turned)
        gap = high - low
        return corner[(gap > self.tolerance * high) & (gap > _SMALL)]

    def _wanted(self, x: Array, turned: bool) -> set[tuple[Half, float]]:
        near, far = (self.far, self.near) if turned else (self.near, self.far)
        found: set[tuple[Half, float]] = set()
        for corner in np.unique(self._open(x, turned)):
            half = near if corner >= 1.0 else far
            epsilon = abs(math.log(corner)) if corner > 0 else math.inf
            asked = _between(sorted(half.known), epsilon)
            if asked is not None:
                found.add((half, asked))
        return found


def symmetric_rates(pairs: Iterable[Sandwich], x: Array) -> Array:
    """Return upper ends of the smallest concave t that serves all pairs, in both orientations.

    Its h is the largest of theirs at each a; between known points chords are used.
    """
    given = list(pairs)
    known = [pair.points(turned) for pair in given for turned in (False, True)]
    a = np.unique(np.concatenate([points.a for points in known]))
    high = np.max([np.interp(a, points.a, points.high) for points in known], axis=0)
    rates = np.min(high + np.multiply.outer(x, a), axis=-1) * (1 + 8 * FEW)
    covered = np.max([pair.covered(x) for pair in given], axis=0)
    return np.asarray(np.clip(np.minimum(rates, covered), x, 1.0))


def gaussian_rate(x: Array, mu: float) -> Array:
    """Return the true-positive rates of N(mu, 1) against N(0, 1) at x, rounded up; 1 for inf."""
    # Of no mu is anything known but that rates are at most 1.
    if math.isinf(mu):
        return np.ones(x.shape)
    return np.asarray(ndtr(ndtri(x) + mu) * (1 + 1e-11))


def _between(known: list[float], epsilon: float) -> float | None:
    """Return a new point near epsilon that keeps clear of the known ones, or None."""
    index = int(np.searchsorted(known, epsilon))
    if index == len(known):
        # Beyond all that is known: two steps further at most.
        step = known[-1] - known[-2] if len(known) > 1 else 1.0
        wanted = min(max(epsilon, known[-1] + 0.5 * step), known[-1] + 2.0 * step, _LARGEST)
        return wanted if wanted > known[-1] else None
    low, high = known[max(index - 1, 0)], known[max(index, 1)]
    # Too near to a known point a new one would say the same.
    room = 0.15 * (high - low)
    wanted = min(max(epsilon, low + room), high - room)
    return wanted if low < wanted < high and room > _APART * (1.0 + high) else None


def gaussian_ends(sandwich: Sandwich, slack: float) -> tuple[float, float]:
    """Return certified ends of the smallest mu with t <= t_mu + slack at every rate.

    t_mu is the trade-off of N(mu, 1) against N(0, 1). Both orientations count. The upper end is the
    curve's own ``cover`` without slack, or where delta does not fall to the slack.
    """
    halves = sandwich.halves
    high = sandwich.cover(slack)
    if slack == 0.0 or not all([half.reach(slack) for half in halves]):
        return min(gaussian_floor(sandwich, slack), high), high
    for _ in range(_PASSES):
        low = gaussian_floor(sandwich, slack)
        found = [_chord_mus(half.points(), slack) for half in halves]
        high = min(float(max(mus.max() for mus, _ in found)), high)
        if high - low <= sandwich.tolerance * high or sandwich.settled:
            break
        if not _split_all(halves, found, low * (1.0 + sandwich.tolerance) + 1e-12):
            break
    return min(low, high), high


def _split_all(halves: Iterable[Half], chords: list[tuple[Array, Array]], enough: float) -> bool:
    """Ask within the chords whose mu is more than enough; tell whether anything is new."""
    pairs = zip(halves, chords, strict=True)
    return any([_split(half, ends[mus > enough]) for half, (mus, ends) in pairs])


def _split(half: Half, chords: Array) -> bool:
    """Ask in the middle of each chord (two values of a); tell whether anything is new."""
    before = len(half.known)
    for first, last in np.log(chords):
        half.ask_apart(0.5 * (first + last))
    return len(half.known) > before


def lower_hull(points: Points) -> tuple[Array, Array]:
    """Return the corners (a, value) of the largest convex function below the upper ends.

    h is convex, so it lies below the hull.
    """
    kept: list[int] = []
    a, high = points.a, points.high
    for i in range(len(a)):
        while len(kept) > 1 and _is_above(a, high, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(i)
    return a[kept], high[kept]


def _is_above(a: Array, value: Array, first: int, middle: int, last: int) -> bool:
    """Return whether the middle point lies on or above the chord of the others."""
    rise = (value[middle] - value[first]) * (a[last] - a[first])
    return bool(rise >= (value[last] - value[first]) * (a[middle] - a[first]))


def _chord_mus(points: Points, slack: float) -> tuple[Array, Array]:
    """Return, for each chord of the hull, a mu whose h plus the slack lies above it, and its ends.

    The line 1 - b - a x lies below the h of every mu with f_mu(x) <= b.
    """
    # Fewer chords, and the hull's are the sharpest that upper ends allow.
    a, high = lower_hull(points)
    x = -np.diff(high) / np.diff(a)
    rate = np.minimum((high[:-1] + a[:-1] * x) * (1 + 4 * FEW), 1.0)
    mus = _mu(x * (1 - 4 * FEW), rate - slack, up=True)
    return np.append(mus, 0.0), np.stack([a, np.append(a[1:], a[-1])], axis=1)


def _mu(x: Array, rate: Array, up: bool) -> Array:
    """Return the mu of an attacker with false-positive rate x and true-positive rate ``rate``."""
    with np.errstate(invalid="ignore"):
        gap = np.where(rate > x, ndtri(np.clip(rate, 0.0, 1.0)) - ndtri(np.clip(x, 0.0, 1.0)), 0.0)
    pad = THOUSANDS * (1.0 + np.abs(gap))
    return np.maximum(np.where(np.isfinite(gap), gap + (pad if up else -pad), gap), 0.0)


def gaussian_floor(sandwich: Sandwich, slack: float) -> float:
    """Return a certified lower end of the smallest mu with t <= t_mu + slack, from known attacks.

    The attacks are at the rates of the known chords and at ``_ATTACKS``.
    """
    best = 0.0
    for turned in (False, True):
        a, _, high = sandwich.points(turned)
        x = np.concatenate([_ATTACKS, -np.diff(high) / np.diff(a)])
        x = x[(x > 0) & (x < 1)]
        low, _ = sandwich.rates(x, turned)
        best = max(best, float(np.max(_mu(x, low - slack, up=False), initial=0.0)))
    return best
