"""The ways to a number of one orientation, tried in the order of what they cost.

What is asked of one orientation of a curve is ``EpsilonAt`` a delta or ``DeltaAt`` an epsilon. A
``Way`` says whether it can serve a question, what it will cost, and answers an interval; all
intervals hold, so their intersection does, and the first that is narrow enough ends the search. A
new way is a class with these three methods and its line in ``WAYS``.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ...rounding import HUNDREDS, THOUSANDS
from .. import clock
from ..clock import LateError
from ..moments.line import NoSpectrum
from ..pairs.combined import Composed
from ..pairs.curve import Curve
from ..pairs.lattice import MAX_POINTS, Array, Side, TooLarge
from ..pairs.stated import RenyiPoints
from . import cut, direct, inversion, renyi, trimming
from .convolution import Composition
from .hopeless import REASON, crude, hopeless
from .once import remembered

SLACK = 1e-2
"""By which share of delta, times the tolerance, the profile may be off through what is trimmed: log
delta falls by more than a tenth for every unit of epsilon, but where epsilon is large itself."""
_COARSE = "the asked tolerance would need a lattice of more than 2 million points"
LATE = "the deadline was near before the asked tolerance was reached"
STUCK = "the asked tolerance was not reached by refining"
_INVERTED = "PLD, moments inverted"


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
    """

    curve: Curve
    tolerance: float
    floor: float


@dataclass(frozen=True)
class EpsilonAt(_Asked):
    """Epsilon at a delta in (0, 1); the tolerance is absolute.

    What is rarer than delta by far is left out, so that the profile that is asked is off by
    ``slack`` up to the epsilon ``reach``; ``whole`` is the curve with everything.
    """

    delta: float
    slack: float
    whole: Curve
    reach: float = math.inf

    @classmethod
    def of(cls, curve: Curve, delta: float, tolerance: float, floor: float) -> EpsilonAt:
        """Return the question, the curve trimmed."""
        untrimmed = cls(curve, tolerance, floor, delta, 0.0, curve)
        # A single round's tails are read as they are.
        if not isinstance(curve, Composed):
            return untrimmed
        few, slack, reach = trimming.trim(curve, SLACK * min(tolerance, 1.0) * delta)
        trimmed = cls(few, tolerance, floor, delta, slack, curve, reach)
        return untrimmed if floor > reach else trimmed

    def untrimmed(self) -> EpsilonAt:
        """Return the same question of the curve with everything."""
        return EpsilonAt(self.whole, self.tolerance, self.floor, self.delta, 0.0, self.whole)

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
        return cut.epsilon_interval(self.whole, self.delta, self.tolerance)

    def read(self, side: Side) -> float:
        """Return an end of epsilon from the tails."""
        return direct.epsilon(self.curve, self.delta, side)

    def on(self, composition: Composition) -> float:
        """Return an end of epsilon from a lattice: what was trimmed counts against it."""
        # UP has to hold for a profile that is higher by the slack, DOWN for one that is lower.
        up = composition.side is Side.UP
        return composition.epsilon(self.delta - self.slack if up else self.delta + self.slack)

    def bounded(self) -> tuple[float, float]:
        """Return an epsilon that a Renyi divergence shows to suffice, and its order."""
        least = self.delta - self.slack
        return renyi.epsilon(self.curve, least, _orders(self.curve, -math.log(least)))

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
        return cut.delta_interval(self.curve, self.epsilon, self.tolerance)

    def read(self, side: Side) -> float:
        """Return an end of delta from the tails."""
        return float(direct.delta(self.curve, np.array([self.epsilon]), side)[0])

    def on(self, composition: Composition) -> float:
        """Return an end of delta from a lattice."""
        return composition.delta(self.epsilon)

    def bounded(self) -> tuple[float, float]:
        """Return a delta that a Renyi divergence shows to suffice, and its order."""
        return renyi.delta(self.curve, self.epsilon, _orders(self.curve, 5.0, 15.0, 40.0))

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


def _met(question: Question, found: Interval) -> bool:
    """Return whether an interval is as narrow as was asked, or does not matter."""
    if found.high <= question.floor:
        return True
    return math.isfinite(found.high) and question.excess(found) <= 1.0


def _orders(curve: Curve, *depths: float) -> renyi.Orders:
    """Return the orders at which Chernoff's bound leaves out e^-depth; none where not known."""
    found = [inversion.chernoff(curve, depth) for depth in depths]
    return tuple(1.0 + one.tilt for one in found if math.isfinite(one.here.value))


def _holds(curve: Curve, delta: float, epsilon: float) -> bool:
    return isinstance(curve, Composed) and inversion.at_most(curve, delta, epsilon)


class Way(Protocol):
    """A way to a number."""

    def serves(self, question: Question) -> bool:
        """Return whether it can be tried at all."""

    def cost(self, question: Question) -> float:
        """Return about how many seconds it takes; only the order counts."""

    def answer(self, question: Question) -> Interval:
        """Return an interval that holds the number; (0, inf) where the way does not reach it."""


class Reading:
    """Both ends straight from the curve's tails: all there is to do where these are exact."""

    method = "PLD, one curve's tails"

    def serves(self, question: Question) -> bool:
        """Return True but for compositions, whose tails are those of a coarse lattice."""
        return not isinstance(question.curve, Composed)

    def cost(self, question: Question) -> float:
        """Return less than anything where the tails are exact; else they must first be made."""
        return 1e-4 if question.curve.exact else 0.1

    def answer(self, question: Question) -> Interval:
        """Return what the tails say on either side."""
        return Interval(question.read(Side.DOWN), question.read(Side.UP), self.method)


class Inverting:
    """Moments on one line: milliseconds, whatever the number of rounds."""

    def serves(self, question: Question) -> bool:
        """Return whether the curve is not simply read."""
        return not question.curve.exact

    def cost(self, question: Question) -> float:
        """Return a few milliseconds; Gaussian quadratures count a part."""
        return 5e-3

    def answer(self, question: Question) -> Interval:
        """Return what one line says."""
        return _unless_none(question.inverted)


class Cutting:
    """Rounds cut where their loss becomes large: a line for every number of jumps."""

    def serves(self, question: Question) -> bool:
        """Return whether there are rounds to cut, of so few kinds that any jump is a term."""
        curve = question.curve
        return isinstance(curve, Composed) and len(curve.parts) < cut.MOST_TERMS

    def cost(self, question: Question) -> float:
        """Return what some ten terms take."""
        return 0.2

    def answer(self, question: Question) -> Interval:
        """Return what the sum of all terms says."""
        return _HOPELESS if hopeless(question.curve) else _unless_none(question.cut)


def _unless_none(ask: Callable[[], tuple[float, float]]) -> Interval:
    try:
        return Interval(*ask(), _INVERTED, STUCK)
    # A way that does not reach a curve is no error: the next one may.
    except NoSpectrum:
        return Interval(0.0, math.inf, _INVERTED, STUCK)


_NOTHING = Interval(0.0, math.inf, "PLD, lattice composition", STUCK)
_HOPELESS = _NOTHING._replace(reason=REASON)
_ATTEMPTS = 10
"""More lattices never helped: each is a few times finer than the last."""
_FIRST = 16.0
"""By how much the first lattice's step is larger than the one that is likely to do: coarse ones
are cheap, and say how many points a finer one will have."""
_LARGEST_STEP = 1.0
"""Of the first lattice, however wide the tolerance."""
_AIMED = 0.85
"""The width falls with the square of the step; aiming at .85 of what it should be seldom misses."""
_FINER = (1.0 / 32.0, 0.7)
"""How much finer a next lattice is, at most and at least: more has never been needed at once, less
is not worth the attempt."""
_UNKNOWN = 0.125
"""The same where the last width does not say: it was infinite, or hardly less than before."""
_HELPED = 0.8
"""A lattice that leaves more than this of the width did not help."""
_ROOM = 1.05
"""A window's length is known to 5 % before it is made."""
_SAME = 0.9
"""A step above this share of the best so far is not tried."""
_NEGLIGIBLE = 1e-7
"""Which share of delta the tails may hold that a lattice leaves out."""
_GROWTH = 4.0
"""How much longer than the last the next lattice may take."""


@dataclass(frozen=True)
class Lattices:
    """A lattice that dominates the pair and one that it dominates, convolved, finer and finer.

    Args:
        points: lattices are refined up to so many.
        rounds: more are not served: the step that does falls with their root.
        seconds: what an attempt costs, about.
    """

    points: int
    rounds: float
    seconds: float

    def serves(self, question: Question) -> bool:
        """Return whether the curve is composed of few enough rounds, or lies on a lattice."""
        curve = question.curve
        return isinstance(curve, Composed) and (curve.count <= self.rounds or _exact(curve))

    def cost(self, question: Question) -> float:
        """Return what lattices of so many points take; less than anything where one is exact."""
        return 1e-3 if _exact(question.curve) else self.seconds

    def answer(self, question: Question) -> Interval:
        """Refine until the interval is narrow enough, has too many points or is late."""
        if _useless(question.curve):
            return _HOPELESS
        step = self._first(question)
        best, best_step, floor, reason = _NOTHING, step, 0.0, ""
        too_wide = math.inf
        for _ in range(_ATTEMPTS):
            begun = time.monotonic()
            try:
                found, points = _pair(question, step)
            except TooLarge:
                floor, reason = step, _COARSE
                step = _coarser(step, best, best_step)
                continue
            except LateError:
                return best._replace(reason=LATE)
            best, best_step = found.meet(best), step
            before, too_wide = too_wide, question.excess(best)
            if _met(question, best):
                return best._replace(reason="")
            # Cut short, the next lattice would only cost time.
            if clock.left() < _GROWTH * (time.monotonic() - begun):
                return best._replace(reason=LATE)
            # A small lattice is refined even where the last step hardly helped: that may be chance.
            stuck = _hardly_helped(before, too_wide)
            if stuck and points > SMALL:
                break
            # How long the next window is follows from this one's: none is begun that is too long.
            finest = _ROOM * step * points / self.points
            step = max(step * _ratio(too_wide, stuck), finest, 1.01 * floor)
            if step > _SAME * best_step:
                reason = reason or _COARSE
                break
        return best._replace(reason=reason or STUCK)

    @staticmethod
    def _first(question: Question) -> float:
        """Return the first step: one that needs no rounding, or else a coarse one.

        Rounding is of order step^2 a round, which adds up to the tolerance.
        """
        curve = question.curve
        assert isinstance(curve, Composed)
        if _exact(curve):
            return curve.mesh
        likely = math.sqrt(question.tolerance / (4.0 * curve.count))
        return min(_FIRST * likely, _LARGEST_STEP)


def _exact(curve: Curve) -> bool:
    """Return whether all losses of a run that is not too long are multiples of one step."""
    short = isinstance(curve, Composed) and curve.count <= SMALL
    return short and 0.0 < curve.mesh < math.inf


def _hardly_helped(before: float, after: float) -> bool:
    """Return whether a step left the interval about as much too wide as it was."""
    return after > _HELPED * before and math.isfinite(before)


def _useless(curve: Curve) -> bool:
    """Return whether no lattice that is fine enough has few enough points."""
    return not _exact(curve) and hopeless(curve)


def _coarser(step: float, best: Interval, finished: float) -> float:
    """Return what is tried after a step that took too many points."""
    # Nothing finished yet: coarser by four; else half way, in logs, to what did.
    return 4.0 * step if math.isinf(best.high) else math.sqrt(step * finished)


def _ratio(too_wide: float, stuck: bool) -> float:
    """Return by how much the next step is finer."""
    known = math.isfinite(too_wide) and not stuck
    return min(max(_AIMED / math.sqrt(too_wide) if known else _UNKNOWN, _FINER[0]), _FINER[1])


def _pair(question: Question, step: float) -> tuple[Interval, int]:
    """Return the ends that two lattices of one step give, and the size of the larger.

    Raises:
        TooLarge: one has too many points.
    """
    assert isinstance(question.curve, Composed)
    # Kept a normal number, however small delta is.
    tail_mass = max(_NEGLIGIBLE * question.scale, 1e-290)
    both = [question.curve.composition(step, side, tail_mass) for side in (Side.DOWN, Side.UP)]
    low, high = (question.on(one) for one in both)
    return Interval(low, high, _NOTHING.method, STUCK), max(one.points for one in both)


_PATIENCE = 0.1
"""Seconds that one orientation is given in any case: nobody waits for less."""
SMALL = 1 << 17
"""Lattices of up to so many points are refined even where the last step hardly helped."""
WAYS: tuple[Way, ...] = (
    Reading(),
    Inverting(),
    # Up to 64 rounds a small lattice is quicker than the many terms of a cut.
    Lattices(SMALL, 64, 0.1),
    Cutting(),
    Lattices(MAX_POINTS, math.inf, 3.0),
)


def interval(question: Question) -> Interval:
    """Return the number's interval: cheapest way first; what was found on the way counts too.

    When time is up, that is all. An orientation of which nothing is known by then, or that no way
    tells as narrowly as was asked, is bounded by a Renyi divergence too, which takes milliseconds.
    """
    return remembered(question, lambda: _interval(question), lambda found: found.reason != LATE)


def _interval(question: Question) -> Interval:
    with clock.no_less(_PATIENCE):
        found = _tried(question)
    # What was trimmed is not counted so far out.
    if isinstance(question, EpsilonAt) and not found.high <= question.reach:
        return interval(question.untrimmed())
    met = _met(question, found)
    found = (found._replace(reason="") if met else found).numbers()
    # Moments of a stated guarantee say more than the pair that its tails are of; and where the ways
    # fell short a divergence may, if it is worth the time.
    short = found.reason == STUCK or (math.isinf(found.high) and found.reason != REASON)
    return _or_bounded(question, found) if short or _stated(question.curve) else found


def _stated(curve: Curve) -> bool:
    """Return whether a guarantee without a pair of its own stands anywhere inside."""
    return isinstance(curve, RenyiPoints) or any(map(_stated, curve.inside))


def _or_bounded(question: Question, found: Interval) -> Interval:
    """Return what is known, or what a Renyi divergence shows where that is less."""
    high, order = math.inf, math.nan
    # What is to rescue a late answer must not be late itself.
    with clock.within(None), contextlib.suppress(NoSpectrum, OverflowError):
        high, order = question.bounded()
    if not high < found.high:
        return found
    # Of a stated Renyi guarantee moments and tails are not of one pair: its own number is not
    # bracketed then, and only the upper end is left.
    low = found.low if found.low <= high else 0.0
    return found._replace(low=low, high=high, method=f"RDP, order {order:.5g}")


def _tried(question: Question) -> Interval:
    """Return what the ways give until one meets the tolerance, or the time is up."""
    found = Interval(0.0, math.inf, _INVERTED, STUCK)
    # Before anything is computed: each moment of such a run takes too long.
    if crude(question.curve) is not None:
        return _HOPELESS
    try:
        if question.below_floor:
            return Interval(0.0, question.floor, _INVERTED)
        serving = (way for way in WAYS if way.serves(question))
        for way in sorted(serving, key=lambda way: way.cost(question)):
            # What overflows within a way says nothing, and the next one may do.
            with contextlib.suppress(ArithmeticError):
                found = way.answer(question).meet(found)
            # Exact tails are as good as it gets: other ways would only repeat them.
            if _met(question, found) or question.curve.exact:
                break
            clock.tick()
    except LateError:
        found = found._replace(reason=LATE)
    return found


def deltas(curve: Curve, epsilons: Array, tolerance: float) -> dict[float, Interval]:
    """Return delta's intervals at many epsilons, where neighbours can share their work.

    One line serves the epsilons about its centre; the others get lines of their own, half way
    between. What is missing in the answer is to be asked alone.
    """
    at = np.unique(epsilons)
    if curve.exact:
        # One vectorised reading serves them all: there is no line to share.
        low, high = (direct.delta(curve, at, side) for side in (Side.DOWN, Side.UP))
        ends = zip(at.tolist(), low.tolist(), high.tolist(), strict=True)
        return {x: Interval(a, b, Reading.method).numbers() for x, a, b in ends}
    found: dict[float, Interval] = {}
    stretches = [at]
    while stretches:
        part = stretches.pop()
        middle = len(part) // 2
        try:
            low, high = inversion.inverted_at(curve, float(part[middle])).bounds(part)
        except NoSpectrum:
            # Where no line exists the question is asked alone, of the other ways.
            continue
        except LateError:
            break
        high = np.minimum(high, 1.0)
        met = (high - low <= tolerance * high) | (high <= 1e-300)
        ends = zip(part[met].tolist(), low[met].tolist(), high[met].tolist(), strict=True)
        found |= {x: Interval(a, b, _INVERTED) for x, a, b in ends}
        # A line that fails at its own centre has nothing for the neighbours.
        if met[middle]:
            sides = (part[:middle][~met[:middle]], part[middle:][~met[middle:]])
            stretches += [side for side in sides if len(side)]
    return found
