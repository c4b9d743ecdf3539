"""What is asked of one orientation of a curve, and intervals that answer it.

A question is ``EpsilonAt`` a delta or ``DeltaAt`` an epsilon. It knows what each of ``ways`` is to
be asked for, and when an answer is narrow enough.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...rounding import HUNDREDS, THOUSANDS
from .. import clock
from ..clock import LateError
from ..curves.bracketed import one_side
from ..curves.composed import Composed
from ..curves.curve import Curve
from ..curves.lattice import Array, Side
from ..curves.least_of import readings
from ..curves.stated import RenyiPoints
from ..moments.contour import NoMoments
from . import direct, inversion, renyi, second_moment, tail_splitting, trimming
from .convolution import Composition
from .too_large import REASON, hopeless

SLACK = 1e-2
"""By which share of delta, times the tolerance, the profile may be off through what is trimmed: log
delta falls by more than a tenth for every unit of epsilon, but where epsilon is large itself."""
_STILL = 3.0
"""Tolerances: an upper end that falls by less from one attempt to the next falls by a fraction of
one in all that follow, each some ten times closer."""
LATE = "the deadline was near before the asked tolerance was reached"
STUCK = "the asked tolerance was not reached by refining"
SETTLED = "nothing is certified from below of such rounds; the upper end no longer falls"
GROUPED = "many different rounds are put together in groups, each between two rounds of its kind"


class Interval(NamedTuple):
    """Certified ends of one orientation's number, how they were found, and why not closer."""

    low: float
    high: float
    method: str
    reason: str = ""

    def meet(self, other: Interval) -> Interval:
        """Return the best ends of both."""
        method = self.method if self.high <= other.high else other.method
        reason = self.reason and other.reason
        if reason:
            # These explain a wide interval better than a way that gave up.
            reason = self.reason if self.reason in (LATE, REASON) else other.reason
        return Interval(max(self.low, other.low), min(self.high, other.high), method, reason)

    def numbers(self) -> Interval:
        """Return the interval; an end that is no number says nothing."""
        low = 0.0 if math.isnan(self.low) else self.low
        return self._replace(low=low, high=math.inf if math.isnan(self.high) else self.high)


@dataclass(frozen=True)
class _Asked:
    """What is asked of one orientation.

    Args:
        curve: the orientation.
        tolerance: wanted width.
        floor: what is below this does not matter: the other orientation's number is larger.
        ceiling: what is above this does not matter: that it is, is enough.
    """

    curve: Curve
    tolerance: float
    floor: float
    ceiling: float = field(default=math.inf, kw_only=True)

    @property
    def grouped(self) -> bool:
        """Whether some rounds stand between others, and the curve is one on neither side."""
        return one_side(self.curve, Side.UP) is not self.curve

    @functools.cached_property
    def hopeless(self) -> bool:
        """Whether digits do not matter; several ways ask."""
        return hopeless(self.curve)

    @functools.cached_property
    def on_lattices(self) -> dict[float, tuple[Interval, int]]:
        """What lattices gave, and of how many points, by their step."""
        return {}

    @functools.cached_property
    def stated(self) -> bool:
        """Whether a guarantee without a pair of its own stands anywhere inside."""
        return _stated(self.curve)

    @functools.cached_property
    def rescue(self) -> tuple[float, float]:
        """What a Renyi divergence shows to suffice, and its order; infinity where it shows none."""
        # What is to rescue a late answer must not be late itself.
        with clock.within(None), contextlib.suppress(NoMoments, OverflowError):
            return self.bounded()
        return math.inf, math.nan

    @functools.cached_property
    def converted(self) -> tuple[float, float]:
        """The same as ``rescue`` at the best order, which is searched as long as there is time."""
        with contextlib.suppress(NoMoments, OverflowError, LateError):
            return self.bounded(search=True)
        return math.inf, math.nan

    def shown_by_moments(self) -> float:
        """Return a number that two moments show to be too small; 0 where they show none."""
        raise NotImplementedError

    def bounded(self, search: bool = False) -> tuple[float, float]:
        """Return a number that a Renyi divergence shows to suffice, and its order.

        Args:
            search: whether to search for the best order.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class EpsilonAt(_Asked):
    """Epsilon at a delta in (0, 1); the tolerance is absolute.

    What is rarer than delta by far is left out, so that the profile that is asked is off by
    ``slack`` up to the epsilon ``reach``; ``whole`` is the curve with everything. ``spare`` of the
    slack is what laws may be off: an upper end has to do for so much less than delta, a lower end
    for so much more.
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
        """Return the question, the curve trimmed."""
        beside = {"ceiling": ceiling, "spare": spare}
        untrimmed = cls(curve, tolerance, floor, delta, spare, curve, **beside)
        # A single round's tails are read as they are.
        if not isinstance(curve, Composed):
            return untrimmed
        few, slack, reach = trimming.trim(curve, SLACK * min(tolerance, 1.0) * delta)
        trimmed = replace(untrimmed, curve=few, slack=slack + spare, reach=reach)
        return untrimmed if floor > reach else trimmed

    def readings(self) -> list[EpsilonAt]:
        """Return the same question of each curve that dominates; see ``least_of``."""
        several = readings(self.whole)
        if len(several) == 1:
            return [self]
        return [self._of(one) for one in several]

    def on_side(self, side: Side) -> EpsilonAt:
        """Return the same question of what stands on one side of the curve's rounds."""
        return self._of(one_side(self.whole, side))

    def _of(self, curve: Curve) -> EpsilonAt:
        """Return the same question of another curve."""
        asked = (self.delta, self.tolerance, self.floor)
        return EpsilonAt.of(curve, *asked, self.ceiling, self.spare)

    def untrimmed(self) -> EpsilonAt:
        """Return the same question of the curve with everything."""
        return replace(self, curve=self.whole, slack=self.spare, reach=math.inf)

    @property
    def scale(self) -> float:
        """A number not far above delta: it says which tails can be left out. Here delta itself."""
        return self.delta

    @property
    def below_floor(self) -> bool:
        """Whether it is cheaply seen that delta suffices at the floor."""
        # The test sees the trimmed curve, so what was trimmed counts against delta.
        least = self.delta - self.slack
        return self.floor > 0 and _holds(self.curve, least, self.floor)

    def inverted(self) -> tuple[float, float]:
        """Return epsilon from the moments."""
        return inversion.epsilon_interval(self.curve, self.delta, self.tolerance, self.slack)

    def cut(self) -> tuple[float, float]:
        """Return epsilon from the moments of cut rounds, which are trimmed there."""
        return tail_splitting.epsilon_interval(self.whole, self.delta, self.tolerance, self.spare)

    def read(self, side: Side) -> float:
        """Return an end of epsilon from the tails."""
        return direct.epsilon(self.curve, self._beyond(side), side)

    def on(self, composition: Composition) -> float:
        """Return an end of epsilon from a lattice: what was trimmed counts against it."""
        return composition.epsilon(self._beyond(composition.side))

    def _beyond(self, side: Side) -> float:
        """Return a delta: UP has to hold for a profile higher by the slack, DOWN lower."""
        return self.delta - self.slack if side is Side.UP else self.delta + self.slack

    def bounded(self, search: bool = False) -> tuple[float, float]:
        """Return an epsilon that a Renyi divergence shows to suffice, and its order."""
        least = self.delta - self.slack
        orders = () if search else _orders(self.curve, -math.log(least))
        return renyi.epsilon(self.curve, least, orders)

    def shown_by_moments(self) -> float:
        """Return an epsilon that two moments show to be too small."""
        return second_moment.epsilon(self.curve, self.delta + self.slack)

    def place(self, known: Interval) -> tuple[float, float]:
        """Return (log delta, epsilon), about, of what is known."""
        return math.log(self.delta), known.high

    def off(self, known: Interval, share: float, tilt: float) -> float:
        """Return by how much a profile may be moved: a part of the tolerance, or of the width."""
        del tilt
        return max(0.3 * self.tolerance, share * (known.high - known.low))

    def covered(self, losses: Array, logs: Array) -> float:
        """Return an end from upper bounds of a convex profile's logs at increasing losses."""
        inside = np.flatnonzero((logs <= math.log(self.delta)) & (losses >= 0.0))
        if not len(inside):
            return math.inf
        at = int(inside[0])
        # Where no delta above 0 is needed none is.
        if at == 0 or losses[at - 1] < 0.0:
            return float(losses[at])
        high, low = math.exp(logs[at - 1]), math.exp(logs[at])
        share = (high - self.delta) / (high - low)
        gap = float(losses[at] - losses[at - 1])
        return float(losses[at - 1]) + math.log1p(share * math.expm1(gap)) + THOUSANDS

    def shown(self, losses: Array, logs: Array) -> float:
        """Return an end from lower bounds of a profile's logs at increasing losses."""
        inside = np.flatnonzero(logs >= math.log(self.delta) + THOUSANDS)
        return max(float(losses[inside[-1]]), 0.0) if len(inside) else 0.0

    def near(self, losses: Array, logs: Array) -> float:
        """Return a loss just below where the profile passes delta, about."""
        at = int(np.flatnonzero(logs >= math.log(self.delta))[-1]) if len(logs) else 0
        part = slice(max(at - 1, 0), at + 2)
        return float(np.interp(-math.log(self.delta), -logs[part], losses[part])) - 1e-6

    def excess(self, found: Interval) -> float:
        """Return the width in units of the tolerance."""
        return (found.high - found.low) / self.tolerance


@dataclass(frozen=True)
class DeltaAt(_Asked):
    """Delta at an epsilon of at least 0; the tolerance is relative."""

    epsilon: float

    def readings(self) -> list[DeltaAt]:
        """Return the same question of each curve that dominates; see ``least_of``."""
        return [replace(self, curve=one) for one in readings(self.curve)]

    def on_side(self, side: Side) -> DeltaAt:
        """Return the same question of what stands on one side of the curve's rounds."""
        return replace(self, curve=one_side(self.curve, side))

    @functools.cached_property
    def scale(self) -> float:
        """A number well below delta, by Chernoff's bound at a few orders less ten powers of e."""
        orders = (1.5, 3.0, 8.0, 24.0, 80.0)
        # Without a finite moment there is no scale: this one leaves out next to nothing.
        least = min(self.curve.log_moment(a) - (a - 1.0) * self.epsilon for a in orders)
        return math.exp(min(max(least - 10.0, -600.0), 0.0)) if math.isfinite(least) else 1e-13

    @property
    def below_floor(self) -> bool:
        """Whether the floor, as a delta, suffices at epsilon."""
        return self.floor > 0 and _holds(self.curve, self.floor, self.epsilon)

    def inverted(self) -> tuple[float, float]:
        """Return delta from the moments."""
        return inversion.delta_interval(self.curve, self.epsilon)

    def cut(self) -> tuple[float, float]:
        """Return delta from the moments of cut rounds."""
        return tail_splitting.delta_interval(self.curve, self.epsilon, self.tolerance)

    def read(self, side: Side) -> float:
        """Return an end of delta from the tails."""
        return float(direct.delta(self.curve, np.array([self.epsilon]), side)[0])

    def on(self, composition: Composition) -> float:
        """Return an end of delta from a lattice."""
        return composition.delta(self.epsilon)

    def bounded(self, search: bool = False) -> tuple[float, float]:
        """Return a delta that a Renyi divergence shows to suffice, and its order."""
        orders = () if search else _orders(self.curve, 5.0, 15.0, 40.0)
        return renyi.delta(self.curve, self.epsilon, orders)

    def shown_by_moments(self) -> float:
        """Return a delta that two moments show to be too small."""
        return second_moment.delta(self.curve, self.epsilon)

    def place(self, known: Interval) -> tuple[float, float]:
        """Return (log delta, epsilon), about, of what is known."""
        return math.log(known.high), self.epsilon

    def off(self, known: Interval, share: float, tilt: float) -> float:
        """Return by how much a profile may be moved: log delta moves by the tilt times as much."""
        return max(0.3 * self.tolerance, share * (1.0 - known.low / known.high)) / tilt

    def covered(self, losses: Array, logs: Array) -> float:
        """Return an end from upper bounds of a convex profile's logs at increasing losses."""
        at = int(np.searchsorted(losses, self.epsilon, side="right"))
        if not 0 < at < len(losses):
            return 1.0
        share = math.expm1(self.epsilon - losses[at - 1]) / math.expm1(losses[at] - losses[at - 1])
        high, low = math.exp(logs[at - 1]), math.exp(logs[at])
        return (high + (low - high) * share) * (1.0 + THOUSANDS)

    def shown(self, losses: Array, logs: Array) -> float:
        """Return an end from lower bounds of a profile's logs at increasing losses."""
        inside = np.flatnonzero(losses >= self.epsilon + HUNDREDS)
        return math.exp(logs[inside[0]]) if len(inside) else 0.0

    def near(self, losses: Array, logs: Array) -> float:
        """Return a loss just above epsilon."""
        del losses, logs
        return self.epsilon + 1e-9

    def excess(self, found: Interval) -> float:
        """Return the relative width over the tolerance; deltas that underflow have none."""
        if found.high <= 1e-300:
            return 0.0
        return (found.high - found.low) / (self.tolerance * found.high)


Question = EpsilonAt | DeltaAt


def met(question: Question, found: Interval) -> bool:
    """Return whether an interval is as narrow as was asked, or does not matter."""
    if found.high <= question.floor or found.low > question.ceiling:
        return True
    # Moments of a stated guarantee that say more than its pair take the place of all that is found.
    if question.stated and question.rescue[0] < found.low:
        return True
    return math.isfinite(found.high) and question.excess(found) <= 1.0


def settled(question: Question, before: Interval, after: Interval) -> bool:
    """Return whether the upper end is all there is, and no longer falls."""
    if not question.curve.above_only or not math.isfinite(before.high):
        return False
    return question.excess(after._replace(low=after.high, high=before.high)) <= _STILL


def _stated(curve: Curve) -> bool:
    return isinstance(curve, RenyiPoints) or any(map(_stated, curve.inside))


def _orders(curve: Curve, *depths: float) -> renyi.Orders:
    """Return the orders at which Chernoff's bound leaves out e^-depth; none where not known."""
    found = [inversion.chernoff(curve, depth) for depth in depths]
    return tuple(1.0 + one.tilt for one in found if math.isfinite(one.here.value))


def _holds(curve: Curve, delta: float, epsilon: float) -> bool:
    return isinstance(curve, Composed) and inversion.at_most(curve, delta, epsilon)
