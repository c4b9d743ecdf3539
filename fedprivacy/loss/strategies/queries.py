"""Questions about one orientation of a curve, and the intervals that answer them.

A question is ``EpsilonAt`` a delta or ``DeltaAt`` an epsilon. It has a method for each strategy of
``search``, and it decides when an answer is narrow enough.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from ...rounding import HUNDREDS, THOUSANDS, Down, Up, rounded_up
from .. import clock
from ..clock import LateError
from ..curves.between import one_side, readings, usual_reading
from ..curves.components import any_inside, is_composed, parts_of, trim
from ..curves.curve import Curve
from ..curves.inner_draws import least_delta
from ..curves.lattice import Array, Side
from ..moments.contour import NoMoments
from . import direct, inversion, renyi, second_moment, tail_splitting
from .too_large import REASON, too_large

SLACK = 1e-2
"""Share of delta, times the tolerance, that trimming may move the profile. Log delta falls by more
than a tenth for every unit of epsilon, unless epsilon itself is large."""
_STILL = 3.0
"""In tolerances. If the upper end falls by less from one attempt to the next, all later attempts
together lower it by a fraction of one tolerance. Each attempt is about ten times closer."""
_UNSCALED = 1e-15
"""Smaller deltas may be those of the tails that a lattice leaves out if no moment sets a scale."""
ENDS = (Side.DOWN, Side.UP)
"""The sides of the two ends of an interval."""
PATIENCE = 0.1
"""Seconds that one orientation always gets."""
LATE = "the deadline passed before the tolerance was reached"
STUCK = "the tolerance was not reached by refinement"
SETTLED = "the curve is known only from above; the upper end no longer falls"
GROUPED = "many different rounds are grouped, each group between two rounds of its kind"


class Interval(NamedTuple):
    """Certified ends of one orientation's number, the method, and the reason for its width."""

    low: Down
    high: Up
    method: str
    reason: str = ""

    def meet(self, other: Interval) -> Interval:
        """Return the best ends of both intervals."""
        method = self.method if self.high <= other.high else other.method
        reason = self.reason and other.reason
        if reason:
            # These reasons explain a wide interval better than a strategy that gave up.
            reason = self.reason if self.reason in (LATE, REASON) else other.reason
        return Interval(max(self.low, other.low), min(self.high, other.high), method, reason)

    def numbers(self) -> Interval:
        """Return the interval with each NaN replaced by the trivial end."""
        low = Down(0.0) if math.isnan(self.low) else self.low
        return self._replace(low=low, high=Up(math.inf) if math.isnan(self.high) else self.high)


class Convolved(Protocol):
    """One side of the profile of a run."""

    def epsilon(self, delta: float) -> float:
        """Return a bound of epsilon."""

    def delta(self, epsilon: float) -> float:
        """Return a bound of delta."""


@dataclass(frozen=True)
class _Query:
    """The common part of the questions about one orientation.

    Args:
        curve: the orientation.
        tolerance: wanted width.
        floor: numbers below it need no refinement: the other orientation's number is larger.
        ceiling: for a number above it, it suffices to know that it is above.
    """

    curve: Curve
    tolerance: float
    floor: float
    ceiling: float = field(default=math.inf, kw_only=True)

    @property
    def grouped(self) -> bool:
        """Whether some rounds lie between others, so the curve is not certified on either side."""
        return one_side(self.curve, Side.UP) is not self.curve

    @property
    def revealed(self) -> bool:
        """Whether no finite number suffices; some delta always does."""
        return False

    @functools.cached_property
    def too_large(self) -> bool:
        """Whether digits are irrelevant; cached because several strategies need it."""
        return too_large(self.curve)

    @functools.cached_property
    def on_lattices(self) -> dict[float, tuple[Interval, int]]:
        """Answers of lattices and their numbers of points, by step."""
        return {}

    @functools.cached_property
    def stated(self) -> bool:
        """Whether the moments of any part of the curve are those of a guarantee, not of a pair."""
        return any_inside(self.curve, lambda one: one.components().pair is not None)

    @functools.cached_property
    def rescue(self) -> tuple[Up, float]:
        """A sufficient number from a Renyi divergence, and its order; infinity if there is none."""
        # This fallback for late answers must not be late itself.
        with clock.time_limit(None), contextlib.suppress(NoMoments, OverflowError):
            return self.bounded()
        return Up(math.inf), math.nan

    @functools.cached_property
    def converted(self) -> tuple[Up, float]:
        """The same as ``rescue`` at the best order, found by search while there is time."""
        with contextlib.suppress(NoMoments, OverflowError, LateError):
            return self.bounded(search=True)
        return Up(math.inf), math.nan

    def shown_by_moments(self) -> Down:
        """Return a number that two moments show to be too small; 0 if they show none."""
        raise NotImplementedError

    def bounded(self, search: bool = False) -> tuple[Up, float]:
        """Return a sufficient number from a Renyi divergence, and its order.

        Args:
            search: whether to search for the best order.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class EpsilonAt(_Query):
    """Epsilon at a delta in (0, 1); the tolerance is absolute.

    Components much rarer than delta are trimmed. So the profile of ``curve`` has an error of at
    most ``slack`` up to the epsilon ``reach``; ``whole`` is the curve before trimming. The part
    ``spare`` of the slack allows for errors of the laws. An upper end must hold for delta minus the
    slack, a lower end for delta plus the slack.
    """

    delta: float
    slack: float
    whole: Curve
    reach: float = math.inf
    spare: float = field(default=0.0, kw_only=True)

    @classmethod
    def of(
        cls,
        curve: Curve,
        delta: float,
        tolerance: float,
        floor: float,
        ceiling: float = math.inf,
        spare: float = 0.0,
    ) -> EpsilonAt:
        """Return the question, with the curve trimmed."""
        beside = {"ceiling": ceiling, "spare": spare}
        untrimmed = cls(curve, tolerance, floor, delta, spare, curve, **beside)
        # The tails of a single round are read without trimming.
        if not is_composed(curve):
            return untrimmed
        few, slack, reach = trim(curve, SLACK * min(tolerance, 1.0) * delta)
        trimmed = replace(untrimmed, curve=few, slack=slack + spare, reach=reach)
        return untrimmed if floor > reach else trimmed

    def readings(self) -> list[EpsilonAt]:
        """Return the same question for each curve that dominates; see ``least_of``."""
        several = readings(self.whole)
        if len(several) == 1:
            return [self]
        return [self._of(one) for one in several]

    def usually(self) -> EpsilonAt | None:
        """Return the same question for the reading that is usually the smallest, if known."""
        curve = usual_reading(self.whole)
        return None if curve is None else self._of(curve)

    def on_side(self, side: Side) -> EpsilonAt:
        """Return the same question for the curve on one side of all rounds."""
        return self._of(one_side(self.whole, side))

    def _of(self, curve: Curve) -> EpsilonAt:
        """Return the same question for another curve."""
        asked = (self.delta, self.tolerance, self.floor)
        return EpsilonAt.of(curve, *asked, self.ceiling, self.spare)

    def untrimmed(self) -> EpsilonAt:
        """Return the same question for the curve before trimming."""
        return replace(self, curve=self.whole, slack=self.spare, reach=math.inf)

    @property
    def scale(self) -> float:
        """A number not far above delta, which sets the tails to leave out. Here it is delta."""
        return self.delta

    @property
    def below_floor(self) -> bool:
        """Whether a cheap test shows that delta suffices at the floor."""
        # The test uses the trimmed curve, so the trimmed mass counts against delta.
        least = self.delta - self.slack
        return self.floor > 0 and _holds(self.curve, least, self.floor)

    @property
    def revealed(self) -> bool:
        """Whether more than delta of P has an infinite loss, so that no epsilon suffices."""
        # Pairs below Gaussian ones have no infinite loss.
        if not is_composed(self.whole) or self.whole.support().cover < math.inf:
            return False
        return self.whole.support().largest.infinite_low > self.delta + self.spare

    def inverted(self) -> tuple[Down, Up]:
        """Return epsilon from the moments."""
        return inversion.epsilon_interval(self.curve, self.delta, self.tolerance, self.slack)

    def cut(self) -> tuple[Down, Up]:
        """Return epsilon from the moments of split rounds, which are trimmed there."""
        return tail_splitting.epsilon_interval(self.whole, self.delta, self.tolerance, self.spare)

    def read(self) -> tuple[Down, Up]:
        """Return both ends of epsilon from the tails."""
        ends = [direct.epsilon(self.curve, self._beyond(side), side) for side in ENDS]
        return Down(ends[0]), Up(ends[1])

    def below(self, one: Convolved) -> Down:
        """Return the lower end of epsilon from a lattice; the trimmed mass counts against it."""
        return Down(one.epsilon(self._beyond(Side.DOWN)))

    def above(self, one: Convolved) -> Up:
        """Return the upper end of epsilon from a lattice; the trimmed mass counts against it."""
        return Up(one.epsilon(self._beyond(Side.UP)))

    def _beyond(self, side: Side) -> float:
        """Return a delta: UP must hold for a profile higher by the slack, DOWN for a lower one."""
        return self.delta - self.slack if side is Side.UP else self.delta + self.slack

    def bounded(self, search: bool = False) -> tuple[Up, float]:
        """Return a sufficient epsilon from a Renyi divergence, and its order."""
        least = self.delta - self.slack
        orders = () if search else _orders(self.curve, -math.log(least))
        return renyi.epsilon(self.curve, least, orders)

    def shown_by_moments(self) -> Down:
        """Return an epsilon that two moments show to be too small."""
        return second_moment.epsilon(self.curve, self.delta + self.slack)

    def place(self, known: Interval) -> tuple[float, float]:
        """Return approximate (log delta, epsilon) of a known interval."""
        return math.log(self.delta), known.high

    def off(self, known: Interval, share: float, tilt: float) -> float:
        """Return the allowed shift of a profile: a part of the tolerance, or of the width."""
        del tilt
        return max(0.2 * self.tolerance, share * (known.high - known.low))

    def covered(self, losses: Array, logs: Array) -> Up:
        """Return an end from upper bounds of a convex profile's logs at increasing losses."""
        inside = np.flatnonzero((logs <= math.log(self.delta)) & (losses >= 0.0))
        if not len(inside):
            return Up(math.inf)
        at = int(inside[0])
        # If no delta above 0 is needed, no interpolation is needed.
        if at == 0 or losses[at - 1] < 0.0:
            return Up(float(losses[at]))
        high, low = math.exp(logs[at - 1]), math.exp(logs[at])
        share = (high - self.delta) / (high - low)
        gap = float(losses[at] - losses[at - 1])
        return Up(float(losses[at - 1]) + math.log1p(share * math.expm1(gap)) + THOUSANDS)

    def shown(self, losses: Array, logs: Array) -> Down:
        """Return an end from lower bounds of a profile's logs at increasing losses."""
        inside = np.flatnonzero(logs >= math.log(self.delta) + THOUSANDS)
        return Down(max(float(losses[inside[-1]]), 0.0) if len(inside) else 0.0)

    def near(self, losses: Array, logs: Array) -> float:
        """Return a loss slightly below the approximate crossing of the profile with delta."""
        at = int(np.flatnonzero(logs >= math.log(self.delta))[-1]) if len(logs) else 0
        part = slice(max(at - 1, 0), at + 2)
        return float(np.interp(-math.log(self.delta), -logs[part], losses[part])) - 1e-6

    def excess(self, found: Interval) -> float:
        """Return the width in units of the tolerance."""
        return (found.high - found.low) / self.tolerance


@dataclass(frozen=True)
class DeltaAt(_Query):
    """Delta at an epsilon of at least 0; the tolerance is relative."""

    epsilon: float

    def readings(self) -> list[DeltaAt]:
        """Return the same question for each curve that dominates; see ``least_of``."""
        return [replace(self, curve=one) for one in readings(self.curve)]

    def usually(self) -> DeltaAt | None:
        """Return the same question for the reading that is usually the smallest, if known."""
        curve = usual_reading(self.curve)
        return None if curve is None else replace(self, curve=curve)

    def on_side(self, side: Side) -> DeltaAt:
        """Return the same question for the curve on one side of all rounds."""
        return replace(self, curve=one_side(self.curve, side))

    @functools.cached_property
    def scale(self) -> float:
        """A number well below delta: the best of a few Chernoff bounds, times e^-10."""
        orders = (1.5, 3.0, 8.0, 24.0, 80.0)
        # Without a finite moment there is no scale; this value leaves out a negligible mass.
        moments = self.curve.moments()
        least = min(moments.log_moment(a) - (a - 1.0) * self.epsilon for a in orders)
        return math.exp(min(max(least - 10.0, -600.0), 0.0)) if math.isfinite(least) else 1e-13

    @property
    def below_floor(self) -> bool:
        """Whether the floor, as a delta, suffices at epsilon."""
        return self.floor > 0 and _holds(self.curve, self.floor, self.epsilon)

    def inverted(self) -> tuple[Down, Up]:
        """Return delta from the moments."""
        return inversion.delta_interval(self.curve, self.epsilon)

    def cut(self) -> tuple[Down, Up]:
        """Return delta from the moments of split rounds."""
        return tail_splitting.delta_interval(self.curve, self.epsilon, self.tolerance)

    def read(self) -> tuple[Down, Up]:
        """Return both ends of delta from the tails."""
        at = np.array([self.epsilon])
        low, high = (float(direct.delta(self.curve, at, side)[0]) for side in ENDS)
        return Down(low), Up(high)

    def below(self, one: Convolved) -> Down:
        """Return the lower end of delta from a lattice."""
        return Down(one.delta(self.epsilon))

    def above(self, one: Convolved) -> Up:
        """Return the upper end of delta from a lattice."""
        return Up(one.delta(self.epsilon))

    def bounded(self, search: bool = False) -> tuple[Up, float]:
        """Return a sufficient delta from a Renyi divergence, and its order."""
        orders = () if search else _orders(self.curve, 5.0, 15.0, 40.0)
        return renyi.delta(self.curve, self.epsilon, orders)

    def shown_by_moments(self) -> Down:
        """Return a delta that two moments show to be too small."""
        return second_moment.delta(self.curve, self.epsilon)

    def place(self, known: Interval) -> tuple[float, float]:
        """Return approximate (log delta, epsilon) of a known interval."""
        return math.log(known.high), self.epsilon

    def off(self, known: Interval, share: float, tilt: float) -> float:
        """Return the allowed shift of a profile; log delta moves by the tilt times as much."""
        return max(0.2 * self.tolerance, share * (1.0 - known.low / known.high)) / tilt

    def covered(self, losses: Array, logs: Array) -> Up:
        """Return an end from upper bounds of a convex profile's logs at increasing losses."""
        at = int(np.searchsorted(losses, self.epsilon, side="right"))
        if not 0 < at < len(losses):
            return Up(1.0)
        share = math.expm1(self.epsilon - losses[at - 1]) / math.expm1(losses[at] - losses[at - 1])
        high, low = math.exp(logs[at - 1]), math.exp(logs[at])
        return rounded_up(high + (low - high) * share, THOUSANDS)

    def shown(self, losses: Array, logs: Array) -> Down:
        """Return an end from lower bounds of a profile's logs at increasing losses."""
        inside = np.flatnonzero(losses >= self.epsilon + HUNDREDS)
        return Down(math.exp(logs[inside[0]]) if len(inside) else 0.0)

    def near(self, losses: Array, logs: Array) -> float:
        """Return a loss slightly above epsilon."""
        del losses, logs
        return self.epsilon + 1e-9

    def excess(self, found: Interval) -> float:
        """Return the relative width over the tolerance; 0 for deltas that underflow."""
        if found.high <= 1e-300:
            return 0.0
        return (found.high - found.low) / (self.tolerance * found.high)


Question = EpsilonAt | DeltaAt


def met(question: Question, found: Interval) -> bool:
    """Return whether an interval meets the tolerance, or needs no refinement."""
    if found.high <= question.floor or found.low > question.ceiling or math.isinf(found.low):
        return True
    # If the moments of a stated guarantee give more than its pair, they replace every other answer.
    if question.stated and question.rescue[0] < found.low:
        return True
    return math.isfinite(found.high) and question.excess(found) <= 1.0


def likely(question: Question) -> float:
    """Return a number that grows with the answer, infinity if moments are late.

    Where it is not known it is finite and larger than all others, so a known number limits the
    search for an unknown one.
    """
    try:
        with clock.no_less(PATIENCE), contextlib.suppress(NoMoments, ArithmeticError):
            moments = question.curve.moments()
            if isinstance(question, EpsilonAt):
                found = inversion.chernoff(moments, -math.log(question.delta)).reach
                return found if math.isfinite(found) else sys.float_info.max
    except LateError:
        return math.inf
    return sys.float_info.max


def in_range(question: Question, found: Interval) -> bool:
    """Return whether the usual reading has answered, for a delta that is not too small for it."""
    delta, least = (
        (question.delta, 0.0) if isinstance(question, EpsilonAt) else (found.high, _UNSCALED)
    )
    near = found.reason in ("", SETTLED) and math.isfinite(found.high)
    least += sum(n * least_delta(one) for one, n in parts_of(question.curve))
    return near and delta > least


def largest_of(found: Sequence[Interval]) -> Interval:
    """Return the interval of the largest of several numbers."""
    top = max(found, key=lambda one: one.high)
    return top._replace(low=max(one.low for one in found))


def smallest_of(found: Sequence[Interval]) -> Interval:
    """Return the interval of the smallest of several numbers."""
    least, lowest = min(found, key=lambda one: one.high), min(found, key=lambda one: one.low)
    # The smallest number may be one that was not refined.
    return least._replace(low=lowest.low, reason=least.reason or lowest.reason)


def settled(question: Question, before: Interval, after: Interval) -> bool:
    """Return whether the curve has only an upper end and this end no longer falls."""
    if not question.curve.support().above_only or not math.isfinite(before.high):
        return False
    # The fall of the upper end, measured as the width of an interval.
    fall = after._replace(low=Down(after.high), high=before.high)
    return question.excess(fall) <= _STILL


def stays_above(question: Question, before: Interval, after: Interval) -> bool:
    """Return whether an upper end alone will stay above the ceiling, as far as its last fall shows.

    The next falls are a small part of the last one, for errors are of second order.
    """
    if not question.curve.support().above_only or not math.isfinite(before.high):
        return False
    return 2.0 * after.high - before.high > question.ceiling


def _orders(curve: Curve, *depths: float) -> renyi.Orders:
    """Return the orders at which Chernoff's bound leaves out e^-depth; none if not known."""
    found = [inversion.chernoff(curve.moments(), depth) for depth in depths]
    return tuple(1.0 + one.tilt for one in found if math.isfinite(one.here.value))


def _holds(curve: Curve, delta: float, epsilon: float) -> bool:
    return is_composed(curve) and inversion.at_most(curve, delta, epsilon)
