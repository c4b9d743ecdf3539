"""Trade-off function and Gaussian equivalent of a dominating pair.

For a pair (P, Q), let h(a) be the hockey-stick divergence at a = exp(epsilon). Then delta(epsilon)
= h(exp(epsilon)) at every real epsilon. Consider an attacker who claims P with probability x under
Q. Under P that attacker claims P with probability at most

    t(x) = inf over a >= 0 of h(a) + a x,

and some attacker attains this bound. Source: Dong, Roth and Su 2022, Proposition 2.13, which states
it for f(x) = 1 - t(x). ``Sandwich`` knows h at finitely many points, each as a certified interval.
It brackets t from both sides. The proofs are in ``docs/curves.md``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..accountants.base import counted
from ..loss import Curve
from ..rounding import FEW, THOUSANDS, rounded_down, rounded_up
from .effort import Effort

Array = NDArray[np.float64]

_LARGEST = 700.0
"""The largest epsilon that is evaluated: exp overflows beyond it."""
_SMALL = 1e-9
"""Absolute interval width that is always narrow enough."""
_APART = 1e-9
"""Points closer than this add no information."""
_PASSES = 12
_MOST = 600
"""Largest number of evaluations of delta before the search gives up on a tolerance."""
_ATTACKS = np.geomspace(1e-12, 0.5, 25)
_UPPER_ONLY = 24
"""Number of evaluations for an accountant that has only upper ends."""
_STUCK = "the tolerance was not reached"
_ABOVE = "the curve is known only from above"
_LATE = "the deadline came before the tolerance was reached"


class CurvePoints(NamedTuple):
    """Certified ends of h at increasing a >= 0, all of shape (n,). The first is h(0) = 1."""

    a: Array
    low: Array
    high: Array


class Half:
    """delta(epsilon) of one orientation at epsilon >= 0, stored where it was evaluated."""

    def __init__(self, curve: Curve, tolerance: float, effort: Effort, off: float) -> None:
        self.curve, self.tolerance, self.effort, self.off = curve, tolerance, effort, off
        self.known: dict[float, tuple[float, float]] = {}

    def ends(self, epsilon: float) -> tuple[float, float]:
        """Return certified ends of delta at one epsilon. Each epsilon is evaluated once."""
        if epsilon not in self.known:
            low, high = self.effort.delta_ends(self.curve, epsilon, self.tolerance)
            # For every event, P~(E) - a Q~(E) is within (1 + a) off of P(E) - a Q(E).
            more = counted(self.off, epsilon)
            if more:
                low, high = max(low - more, 0.0), math.nextafter(high + more, math.inf)
            self.known[epsilon] = low, high
        return self.known[epsilon]

    def ask(self, epsilon: float) -> float:
        """Evaluate delta at one epsilon and return its upper end."""
        return self.ends(epsilon)[1]

    def ask_apart(self, epsilon: float) -> None:
        """Evaluate delta at one epsilon unless a known point is very close."""
        # Very close points add no information, and dividing by their gap magnifies rounding.
        if all(abs(epsilon - known) > _APART * (1.0 + epsilon) for known in self.known):
            self.ask(epsilon)

    def reach(self, target: float) -> bool:
        """Evaluate at growing epsilons until delta <= ``target``; return whether that happens."""
        at_zero = self.ask(0.0)
        last = max(self.known)
        # The required epsilon is unknown, so it doubles: delta never increases in epsilon.
        while self.ask(last) > target and last < _LARGEST and not self.effort.late:
            last = min(2.0 * last, _LARGEST) if last else min(max(2.0 * at_zero, 1e-6), 1.0)
        return self.ask(last) <= target

    def points(self) -> CurvePoints:
        """Return the known points of h at a >= 1."""
        epsilons = np.array(sorted(self.known))
        ends = np.array([self.known[e] for e in epsilons])
        return _tidy(np.exp(epsilons), ends[:, 0], ends[:, 1])


def _tidy(a: Array, low: Array, high: Array) -> CurvePoints:
    """Tighten the ends by two facts about every h: it falls, and max(0, 1 - a) <= h <= 1."""
    # h falls, so an upper end also holds at every larger a.
    high = np.minimum.accumulate(np.minimum(high, 1.0))
    # h is at least 1 - a: the set of all outcomes attains that.
    low = np.maximum(low, np.maximum(1.0 - a - FEW, 0.0))
    return CurvePoints(a, np.minimum(np.maximum.accumulate(low[::-1])[::-1], high), high)


def joined(near: CurvePoints, far: CurvePoints) -> CurvePoints:
    """Return h at every a from its values at a >= 1 and those of the swapped pair.

    The swap is h(a) = 1 - a + a k(1/a), with k the divergence of (Q, P).
    """
    # Both halves contain the point a = 1. It counts once.
    inner = far.a > 1.0
    a = 1.0 / far.a[inner][::-1]
    low = 1.0 - a + a * far.low[inner][::-1] - FEW
    high = 1.0 - a + a * far.high[inner][::-1] + FEW
    # h(0) is 1 for every pair. It anchors the curve on the left.
    columns = ((0.0, a, near.a), (1.0, low, near.low), (1.0, high, near.high))
    return _tidy(*(np.concatenate([[first], *rest]) for first, *rest in columns))


def floor_of(points: CurvePoints) -> tuple[Array, Array]:
    """Return corners (a, value). At every x, the lowest line ``value + a x`` is on or below t(x).

    h is convex. Between two neighbouring points it therefore lies above the extension of the chord
    on the left and above the extension of the chord on the right. The maximum of the two extensions
    plus a line is smallest at an end of the cell or where they cross. Beyond the last point, h is
    at least 0.
    """
    a, low, high = points
    gaps, inexact = np.diff(a), FEW * a[1:]
    # If two points nearly coincide, their slope is only rounding. A slope of -1 is always valid.
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
    # Nearly parallel chords may cross far away or never. Keep the crossing inside the cell.
    cross = np.clip(np.where(np.isfinite(cross), cross, start), start, stop)

    def above(at: Array) -> Array:
        from_left, from_right = left * (at - start), right * (at - anchor)
        # The values must lie below h, so they are lowered by their rounding error.
        error = FEW * (1.0 + at) * np.maximum(-left, -right) + FEW * low
        return np.asarray(np.maximum(low + from_left, end + from_right) - error)

    ends = np.append(stop[:-1], start[-1])
    corners = np.concatenate([start, cross, ends])
    values = np.concatenate([above(start), above(cross), above(ends)])
    return corners, np.maximum(values, 0.0)


class Sandwich:
    """Both orientations of one curve. Their certified ends narrow with each evaluation of delta.

    Args:
        curve: a dominating pair (P, Q).
        effort: the accountant, the wanted width of each rate (relative), and the deadline.
        off: bound on the total variation between the sampled laws and P, and likewise Q.
    """

    def __init__(self, curve: Curve, effort: Effort, off: float = 0.0) -> None:
        self.tolerance, self.effort, self.off = effort.tolerance, effort, off
        support = curve.support()
        self._cover = support.cover
        # The bracket of a rate combines several deltas. Each one adds to its width.
        fine = self.tolerance / 8.0
        self.near = Half(curve, fine, effort, off)
        self.far = self.near if support.symmetric else Half(curve.swap(), fine, effort, off)

    @property
    def halves(self) -> tuple[Half, ...]:
        """Both orientations, or one if they are equal."""
        return (self.near,) if self.far is self.near else (self.near, self.far)

    @property
    def settled(self) -> bool:
        """Whether more evaluations are useless: it is late, or lower ends are unavailable."""
        return self.effort.late or self.effort.accountant != "pld"

    @functools.cached_property
    def above_only(self) -> bool:
        """Whether no lower end is known, as for a replaced unit of a random allocation."""
        low, high = np.max([half.ends(0.0) for half in self.halves], axis=0)
        return bool(low == 0.0 and high > _SMALL)

    def cover(self, slack: float = 0.0) -> float:
        """Return a mu with t <= t_mu + slack at every rate; inf if none is known."""
        # t~(x) <= t(x + off) + off, and t(x + off) <= t(x) + t(off) as t is concave.
        most = float(self.covered(np.zeros(1))[0])
        return self._cover if most <= slack else math.inf

    def covered(self, x: Array) -> Array:
        """Return upper ends of t at x that follow from N(cover, 1) against N(0, 1)."""
        if not self.off:
            return gaussian_rate(x, self._cover)
        moved = np.minimum(np.nextafter(x + self.off, 2.0), 1.0)
        return np.asarray(rounded_up(np.minimum(gaussian_rate(moved, self._cover) + self.off, 1.0)))

    def points(self, turned: bool = False) -> CurvePoints:
        """Return the known points of h of (P, Q), or of (Q, P) if turned."""
        near, far = (self.far, self.near) if turned else (self.near, self.far)
        return joined(near.points(), far.points())

    def rates(self, x: Array, turned: bool = False) -> tuple[Array, Array]:
        """Return certified ends of t at each false-positive rate, in the shape of x.

        If ``turned`` is False, the attacker claims P, and a false positive means that Q is true. If
        it is True, P and Q swap roles.
        """
        low, high, _ = self.bracket(x, self.points(turned))
        return low, high

    def guide(self, turned: bool) -> CurvePoints:
        """Return points that show where evaluations help; they certify nothing.

        If there are no lower ends, the upper ends stand for the curve.
        """
        points = self.points(turned)
        return points._replace(low=points.high) if self.above_only else points

    def bracket(self, x: Array, points: CurvePoints) -> tuple[Array, Array, Array]:
        """Return (low, high, the corner that gives low) of t at each x."""
        corners, values = floor_of(points)
        lines = values + np.multiply.outer(x, corners)
        which = np.argmin(lines, axis=-1)
        low = rounded_down(np.min(lines, axis=-1), 4 * FEW)
        high = rounded_up(np.min(points.high + np.multiply.outer(x, points.a), axis=-1), 4 * FEW)
        high = np.minimum(high, self.covered(x))
        # Guessing has the true-positive rate x, and no test exceeds 1.
        return np.clip(low, x, 1.0), np.clip(high, x, 1.0), corners[which]

    def advantage(self) -> tuple[float, float]:
        """Return certified ends of delta at epsilon 0. They agree in both orientations."""
        ends = [half.ends(0.0) for half in (self.near, self.far)]
        high = min(high for _, high in ends)
        return min(max(low for low, _ in ends), high), high

    def refine(self, x: Array) -> str:
        """Evaluate until every rate is narrow enough. Return the reason if that fails, else ""."""
        # Without a finite cover the rate at 0 may be above 0, so x = 0 also counts as small.
        within = x[x > 0] if math.isfinite(self._cover) else x
        small = float(np.min(within, initial=1.0))
        target = max(0.25 * self.tolerance * small, 0.5 * _SMALL)
        reached = [half.reach(target) for half in self.halves]
        # With only upper ends there is no gap to narrow.
        if self.effort.accountant != "pld":
            return self._once()
        self._narrow(x)
        if self.effort.late:
            return _LATE
        if self.above_only:
            return _ABOVE
        done = all(not len(self._open(x, turned)) for turned in (False, True))
        return "" if done else _STUCK + ("" if all(reached) else ": some loss is too large")

    def _narrow(self, x: Array) -> None:
        """Evaluate at the corners of wide brackets while a pass adds new points."""
        before = 0
        # Continue while a pass evaluates something new, up to a limit.
        while before < len(self.near.known) + len(self.far.known) < _MOST and not self.effort.late:
            before = len(self.near.known) + len(self.far.known)
            # Collect the gaps of both attackers first, because one half may close both.
            wanted = self._wanted(x, False) | self._wanted(x, True)
            for half, epsilon in sorted(wanted, key=lambda new: (new[0] is self.far, new[1])):
                half.ask_apart(epsilon)

    def _once(self) -> str:
        """Evaluate on a fixed grid: upper ends do not show where to look."""
        for half in self.halves:
            for epsilon in np.linspace(0.0, max(half.known), _UPPER_ONLY):
                if not self.effort.late:
                    half.ask_apart(float(epsilon))
        return f"{self.effort.accountant!r} gives only upper ends"

    def _open(self, x: Array, turned: bool) -> Array:
        """Return the corners a of brackets that are still too wide."""
        low, high, corner = self.bracket(x, self.guide(turned))
        gap = high - low
        return corner[(gap > self.tolerance * high) & (gap > _SMALL)]

    def _wanted(self, x: Array, turned: bool) -> set[tuple[Half, float]]:
        near, far = (self.far, self.near) if turned else (self.near, self.far)
        found: set[tuple[Half, float]] = set()
        for corner in np.unique(self._open(x, turned)):
            half = near if corner >= 1.0 else far
            epsilon = abs(math.log(corner)) if corner > 0 else math.inf
            epsilon_between = _between(sorted(half.known), epsilon)
            if epsilon_between is not None:
                found.add((half, epsilon_between))
        return found


def symmetric_rates(pairs: Iterable[Sandwich], x: Array) -> Array:
    """Return upper ends of the smallest concave t that covers all pairs in both orientations.

    At each a, its h is the largest of theirs. Chords are used between known points.
    """
    given = list(pairs)
    known = [pair.points(turned) for pair in given for turned in (False, True)]
    a = np.unique(np.concatenate([points.a for points in known]))
    high = np.max([np.interp(a, points.a, points.high) for points in known], axis=0)
    rates = rounded_up(np.min(high + np.multiply.outer(x, a), axis=-1), 8 * FEW)
    covered = np.max([pair.covered(x) for pair in given], axis=0)
    return np.asarray(np.clip(np.minimum(rates, covered), x, 1.0))


def gaussian_rate(x: Array, mu: float) -> Array:
    """Return true-positive rates of N(mu, 1) against N(0, 1) at x, rounded up; 1 if mu is inf."""
    # Without a finite mu, the only known bound on a rate is 1.
    if math.isinf(mu):
        return np.ones(x.shape)
    return np.asarray(ndtr(ndtri(x) + mu) * (1 + 1e-11))


def _between(known: list[float], epsilon: float) -> float | None:
    """Return a new point near epsilon that keeps a distance from known points, or None."""
    index = int(np.searchsorted(known, epsilon))
    if index == len(known):
        # Beyond all known points, move at most two steps further.
        step = known[-1] - known[-2] if len(known) > 1 else 1.0
        wanted = min(max(epsilon, known[-1] + 0.5 * step), known[-1] + 2.0 * step, _LARGEST)
        return wanted if wanted > known[-1] else None
    low, high = known[max(index - 1, 0)], known[max(index, 1)]
    # A new point too close to a known one would add no information.
    room = 0.15 * (high - low)
    wanted = min(max(epsilon, low + room), high - room)
    return wanted if low < wanted < high and room > _APART * (1.0 + high) else None


def gaussian_ends(sandwich: Sandwich, slack: float) -> tuple[float, float]:
    """Return certified ends of the smallest mu with t <= t_mu + slack at every rate.

    t_mu is the trade-off of N(mu, 1) against N(0, 1). Both orientations count. Without slack, the
    upper end is the ``cover`` of the curve. The same holds if delta does not fall to the slack.
    """
    halves = sandwich.halves
    high = sandwich.cover(slack)
    if slack == 0.0 or not all([half.reach(slack) for half in halves]):
        return min(gaussian_floor(sandwich, slack), high), high
    for _ in range(_PASSES):
        aim = gaussian_floor(sandwich, slack, sandwich.guide)
        found = [_chord_mus(half.points(), slack) for half in halves]
        high = min(float(max(mus.max() for mus, _ in found)), high)
        if high - aim <= sandwich.tolerance * high or sandwich.settled:
            break
        if not _split_all(halves, found, aim * (1.0 + sandwich.tolerance) + 1e-12):
            break
    return min(gaussian_floor(sandwich, slack), high), high


def _split_all(halves: Iterable[Half], chords: list[tuple[Array, Array]], enough: float) -> bool:
    """Evaluate within the chords with mu above ``enough``; return whether a point is new."""
    pairs = zip(halves, chords, strict=True)
    return any([_split(half, ends[mus > enough]) for half, (mus, ends) in pairs])


def _split(half: Half, chords: Array) -> bool:
    """Evaluate in the middle of each chord (two values of a); return whether a point is new."""
    before = len(half.known)
    for first, last in np.log(chords):
        half.ask_apart(0.5 * (first + last))
    return len(half.known) > before


def lower_hull(points: CurvePoints) -> tuple[Array, Array]:
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
    """Return whether the middle point lies on or above the chord of the other two."""
    rise = (value[middle] - value[first]) * (a[last] - a[first])
    return bool(rise >= (value[last] - value[first]) * (a[middle] - a[first]))


def _chord_mus(points: CurvePoints, slack: float) -> tuple[Array, Array]:
    """Return the ends of each chord of the hull, and a mu whose h plus slack lies above it.

    The line 1 - b - a x lies below the h of every mu with f_mu(x) <= b.
    """
    # The hull has fewer chords, and they are the sharpest that the upper ends allow.
    a, high = lower_hull(points)
    x = -np.diff(high) / np.diff(a)
    rate = np.minimum(rounded_up(high[:-1] + a[:-1] * x, 4 * FEW), 1.0)
    mus = _mu(rounded_down(x, 4 * FEW), rate - slack, up=True)
    return np.append(mus, 0.0), np.stack([a, np.append(a[1:], a[-1])], axis=1)


def _mu(x: Array, rate: Array, up: bool) -> Array:
    """Return the mu of an attacker with false-positive rate x and true-positive rate ``rate``."""
    with np.errstate(invalid="ignore"):
        gap = np.where(rate > x, ndtri(np.clip(rate, 0.0, 1.0)) - ndtri(np.clip(x, 0.0, 1.0)), 0.0)
    pad = THOUSANDS * (1.0 + np.abs(gap))
    return np.maximum(np.where(np.isfinite(gap), gap + (pad if up else -pad), gap), 0.0)


def gaussian_floor(
    sandwich: Sandwich, slack: float, known: Callable[[bool], CurvePoints] | None = None
) -> float:
    """Return a certified lower end of the smallest mu with t <= t_mu + slack, from known attacks.

    ``known`` replaces the certified points of each orientation. The attacks have the false-positive
    rates of the known chords and of ``_ATTACKS``.
    """
    best = 0.0
    for turned in (False, True):
        points = (known or sandwich.points)(turned)
        x = np.concatenate([_ATTACKS, -np.diff(points.high) / np.diff(points.a)])
        x = x[(x > 0) & (x < 1)]
        low, _, _ = sandwich.bracket(x, points)
        best = max(best, float(np.max(_mu(x, low - slack, up=False), initial=0.0)))
    return best
