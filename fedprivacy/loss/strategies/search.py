"""The ways to a number of one orientation, tried in the order of what they cost.

A ``Way`` says what a question will cost it, and answers an interval; all intervals hold, so their
intersection does, and the first that is narrow enough ends the search. A new way is a class with
these two methods and its line in ``WAYS``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Protocol

import numpy as np

from .. import clock
from ..clock import LateError
from ..curves.composed import Composed
from ..curves.curve import Curve
from ..curves.lattice import MAX_POINTS, Array, Side, TooLarge
from ..curves.least_of import readings
from ..moments.contour import NoMoments
from ..moments.laplace_rules import LaplaceMix
from . import direct, inversion, tail_splitting, trimming
from .memo import remembered
from .queries import (
    GROUPED,
    LATE,
    SETTLED,
    SLACK,
    STUCK,
    DeltaAt,
    EpsilonAt,
    Interval,
    Question,
    met,
    settled,
)
from .too_large import REASON, crude

_COARSE = "the asked tolerance would need a lattice of more than 2 million points"
_INVERTED = "PLD, moments inverted"
_UNTOLD = Interval(0.0, math.inf, _INVERTED, STUCK)
_RAREST = (1e-12, 1e-18)
"""Components that are together rarer are left out of a question for delta, where that is small."""


class Strategy(Protocol):
    """A way to a number."""

    def cost(self, question: Question) -> float | None:
        """Return about how many seconds it takes, by which ways are ordered; None: it cannot."""

    def answer(self, question: Question) -> Interval:
        """Return an interval that holds the number; (0, inf) where the way does not reach it."""


class Reading:
    """Both ends straight from the curve's tails: all there is to do where these are exact."""

    method = "PLD, one curve's tails"

    def cost(self, question: Question) -> float | None:
        """Return less than anything where the tails are exact; else they must first be made.

        Tails of compositions are those of a coarse lattice, and not read.
        """
        if isinstance(question.curve, Composed):
            return None
        return 1e-4 if question.curve.exact else 0.1

    def answer(self, question: Question) -> Interval:
        """Return what the tails say on either side."""
        return Interval(question.read(Side.DOWN), question.read(Side.UP), self.method)


class Skimming:
    """Both ends from the tails of curves that are about the same and quicker: for one round."""

    def cost(self, question: Question) -> float | None:
        """Return less than reading the curve's own tails takes; None where nothing is quicker."""
        return 0.05 if question.curve.rougher() else None

    def answer(self, question: Question) -> Interval:
        """Return what the roughest says that is narrow enough; else what all say."""
        found = _NOTHING
        for rough in question.curve.rougher():
            # Its pair lies above the curve's from above, and below it from below.
            before, found = found, Reading().answer(replace(question, curve=rough)).meet(found)
            if settled(question, before, found):
                return found._replace(reason=SETTLED)
            if met(question, found):
                break
        return found


class Inverting:
    """Moments on one line: milliseconds, whatever the number of rounds."""

    def cost(self, question: Question) -> float | None:
        """Return a few milliseconds; exact tails are simply read."""
        return None if question.curve.exact else 5e-3

    def answer(self, question: Question) -> Interval:
        """Return what one line says."""
        return _unless_none(question.inverted)


class Cutting:
    """Rounds cut where their loss becomes large: a line for every number of jumps."""

    def cost(self, question: Question) -> float | None:
        """Return what some ten terms take, where rounds are of so few kinds that a jump is one.

        Of rounds of finitely many losses there is one term, on a line of few nodes; Laplace rounds
        have all of P's jumps at one loss, so that a few terms do.
        """
        curve = question.curve
        if not isinstance(curve, Composed) or len(curve.parts) >= tail_splitting.MOST_TERMS:
            return None
        if curve.count > _FEW and _of_laplace(curve):
            return 0.05
        return 0.12 if all(tail_splitting.uncut(part) for part, _ in curve.parts) else 0.2

    def answer(self, question: Question) -> Interval:
        """Return what the sum of all terms says."""
        return _HOPELESS if question.hopeless else _unless_none(question.cut)


def _of_laplace(run: Composed) -> bool:
    """Return whether every round is of Laplace noise, sampled or not."""
    try:
        made = [pair for one, _ in run.parts for _, pair in one.pairs()]
    except NoMoments:
        return False
    return all(isinstance(pair, LaplaceMix) for pair in made)


def _unless_none(ask: Callable[[], tuple[float, float]]) -> Interval:
    try:
        return Interval(*ask(), _INVERTED, STUCK)
    # A way that does not reach a curve is no error: the next one may.
    except NoMoments:
        return _UNTOLD


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
_UNBOUNDED = 0.25
"""The same where there is no width: the upper end is to be seen to stand still."""
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
        served: not more rounds either: those have been served by another.
        early: whether it ends once the step that is likely to do has more points.
    """

    points: int
    rounds: float
    seconds: float
    served: int = 0
    early: bool = False

    def cost(self, question: Question) -> float | None:
        """Return what lattices of so many points take; less than anything where one is exact."""
        curve = question.curve
        if _exact(curve):
            return 1e-3
        few = isinstance(curve, Composed) and self.served < curve.count <= self.rounds
        return self.seconds if few else None

    def answer(self, question: Question) -> Interval:
        """Refine until the interval is narrow enough, has too many points or is late."""
        if _useless(question):
            return _HOPELESS
        step = self._first(question)
        best, best_step, floor, reason = _NOTHING, step, 0.0, ""
        too_wide = math.inf
        for _ in range(_ATTEMPTS):
            begun = clock.now()
            try:
                found, points = _pair(question, step)
            except TooLarge:
                floor, reason = step, _COARSE
                step = _coarser(step, best, best_step)
                continue
            except LateError:
                return best._replace(reason=LATE)
            last, best, best_step = best, found.meet(best), step
            before, too_wide = too_wide, question.excess(best)
            if (done := _enough(question, last, best, begun)) is not None:
                return best._replace(reason=done)
            stuck = _hardly_helped(before, too_wide)
            # How long the next window is follows from this one's: none is begun that is too long.
            finest = _ROOM * step * points / self.points
            wanted = step * _ratio(question, too_wide, stuck)
            # A small lattice is refined even where the last step hardly helped: that may be chance.
            if (stuck and points > SMALL) or self._left(wanted, finest):
                break
            step = max(wanted, finest, 1.01 * floor)
            if step > _SAME * best_step:
                reason = reason or _COARSE
                break
        return best._replace(reason=reason or STUCK)

    def _left(self, wanted: float, finest: float) -> bool:
        """Return whether a lattice so fine is left to a later way."""
        return self.early and wanted < finest

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


def _useless(question: Question) -> bool:
    """Return whether no lattice that is fine enough has few enough points."""
    return not _exact(question.curve) and question.hopeless


def _coarser(step: float, best: Interval, finished: float) -> float:
    """Return what is tried after a step that took too many points."""
    # Nothing finished yet: coarser by four; else half way, in logs, to what did.
    return 4.0 * step if math.isinf(best.high) else math.sqrt(step * finished)


def _enough(question: Question, last: Interval, best: Interval, begun: float) -> str | None:
    """Return the reason with which a search ends, none of it where it is met; None: it goes on."""
    if met(question, best):
        return ""
    if settled(question, last, best):
        return SETTLED
    # Cut short, the next lattice would only cost time.
    return LATE if clock.left() < _GROWTH * (clock.now() - begun) else None


def _ratio(question: Question, too_wide: float, stuck: bool) -> float:
    """Return by how much the next step is finer."""
    if question.curve.above_only:
        return _UNBOUNDED
    known = math.isfinite(too_wide) and not stuck
    return min(max(_AIMED / math.sqrt(too_wide) if known else _UNKNOWN, _FINER[0]), _FINER[1])


def _pair(question: Question, step: float) -> tuple[Interval, int]:
    """Return the ends that two lattices of one step give, and the size of the larger.

    Raises:
        TooLarge: one has too many points.
    """
    # A larger lattice begins as a smaller one did.
    if (known := question.on_lattices.get(step)) is not None:
        return known
    assert isinstance(question.curve, Composed)
    # Kept a normal number, however small delta is.
    tail_mass = max(_NEGLIGIBLE * question.scale, 1e-290)
    both = [question.curve.composition(step, side, tail_mass) for side in (Side.DOWN, Side.UP)]
    low, high = (question.on(one) for one in both)
    found = Interval(low, high, _NOTHING.method, STUCK), max(one.points for one in both)
    question.on_lattices[step] = found
    return found


_PATIENCE = 0.1
"""Seconds that one orientation is given in any case: nobody waits for less."""
SMALL = 1 << 17
"""Lattices of up to so many points are refined even where the last step hardly helped."""
_FEW = 64
STRATEGIES: tuple[Strategy, ...] = (
    Reading(),
    Skimming(),
    Inverting(),
    # Up to so few rounds a small lattice is quicker than the many terms of a cut.
    Lattices(SMALL, _FEW, 0.1),
    # Of more rounds where its first step says that it will do.
    Lattices(SMALL, 4096, 0.15, _FEW, early=True),
    Cutting(),
    Lattices(MAX_POINTS, math.inf, 3.0),
)


def interval(question: Question) -> Interval:
    """Return the number's interval: cheapest way first; what was found on the way counts too.

    When time is up, that is all; an orientation of which nothing is known by then is bounded by a
    Renyi divergence, which takes milliseconds.
    """
    return remembered(question, lambda: _either(question), lambda found: found.reason != LATE)


def _either(question: Question) -> Interval:
    """Return the interval; of rounds that stand between others, an end from either of these."""
    several = question.readings()
    if len(several) > 1:
        return _least(several)
    if not question.grouped:
        near = _without_rarest(question) if isinstance(question, DeltaAt) else None
        return _interval(question) if near is None else near
    above, below = (question.on_side(side) for side in (Side.UP, Side.DOWN))
    try:
        above.curve.cumulants(1.0)
    except (NoMoments, OverflowError, LateError):
        # Without moments a lattice has both ends already, each from its own side.
        found = _interval(question)
        return found._replace(reason=GROUPED) if found.reason == STUCK else found
    found, least = interval(above), interval(below)
    return found._replace(low=min(least.low, found.high), reason=found.reason or GROUPED)


def _least(several: Sequence[Question]) -> Interval:
    """Return the interval of the least of numbers that are all true."""
    found: list[Interval] = []
    for question in several:
        # A number above one that is known is not the least: how far above does not matter.
        known = min((one.high for one in found), default=math.inf)
        asked = replace(question, ceiling=min(question.ceiling, known))
        found.append(interval(asked))
        # Below the floor no number matters, and nothing is closer to 0 than was asked.
        if found[-1].high <= question.floor or (found[-1].low == 0.0 and met(asked, found[-1])):
            break
    return _lower(found)


def _lower(found: Sequence[Interval]) -> Interval:
    least, lowest = min(found, key=lambda one: one.high), min(found, key=lambda one: one.low)
    # What was not refined may be the least of all.
    return least._replace(low=lowest.low, reason=least.reason or lowest.reason)


def _without_rarest(question: DeltaAt) -> Interval | None:
    """Return delta's interval from the curve without its rarest components; None if they count."""
    # A single round's tails are read as they are.
    for rarest in _RAREST if isinstance(question.curve, Composed) else ():
        few, slack, reach = trimming.trim(question.curve, rarest)
        if slack == 0.0 or question.epsilon > reach:
            return None
        found = _interval(replace(question, curve=few))
        if slack <= SLACK * question.tolerance * found.low:
            return found._replace(low=found.low - slack, high=min(found.high + slack, 1.0))
    return None


def _interval(question: Question) -> Interval:
    with clock.no_less(_PATIENCE):
        found = _tried(question)
    # What was trimmed is not counted so far out.
    if isinstance(question, EpsilonAt) and not found.high <= question.reach:
        return interval(question.untrimmed())
    found = found._replace(reason=_why_wide(question, found)).numbers()
    # Moments of a stated guarantee say more than the pair that its tails are of. They are also all
    # there is where no strategy reached the tolerance: over very many rounds, or out of time.
    if question.stated:
        return _or_bounded(question, found, question.rescue)
    if not found.reason or question.curve.exact or not isinstance(question.curve, Composed):
        return found
    if found.reason == LATE:
        unknown = math.isinf(found.high)
        return _or_bounded(question, found, question.rescue) if unknown else found
    if not question.curve.above_only:
        with contextlib.suppress(LateError):
            found = found._replace(low=max(found.low, question.shown_by_moments()))
    return _or_bounded(question, found, question.converted)


def _why_wide(question: Question, found: Interval) -> str:
    """Return why an interval is wider than was asked; nothing where it is not."""
    if met(question, found):
        return ""
    return found.reason or (SETTLED if question.curve.above_only else "")


def _or_bounded(question: Question, found: Interval, bound: tuple[float, float]) -> Interval:
    """Return what is known, or what a Renyi divergence shows where that is less."""
    high, order = bound
    if not high < found.high:
        return found
    # Of a stated Renyi guarantee moments and tails are not of one pair: its own number is not
    # bracketed then, and only the upper end is left.
    low = found.low if found.low <= high else 0.0
    return found._replace(low=low, high=high, method=f"RDP, order {order:.5g}")


def _tried(question: Question) -> Interval:
    """Return what the ways give until one meets the tolerance, or the time is up."""
    found = _UNTOLD
    # Before anything is computed: each moment of such a run takes too long.
    if crude(question.curve) is not None:
        return _HOPELESS
    try:
        if question.below_floor:
            return Interval(0.0, question.floor, _INVERTED)
        costs = [(cost, way) for way in STRATEGIES if (cost := way.cost(question)) is not None]
        for _, way in sorted(costs, key=itemgetter(0)):
            answer = _answer(way, question)
            found = answer.meet(found)
            if answer.reason == SETTLED:
                return found._replace(reason=SETTLED)
            # Exact tails are as good as it gets: other ways would only repeat them.
            if met(question, found) or question.curve.exact:
                break
            clock.tick()
    except LateError:
        found = found._replace(reason=LATE)
    return found


def _answer(way: Strategy, question: Question) -> Interval:
    # What overflows within a way says nothing, and the next one may do.
    with contextlib.suppress(ArithmeticError):
        return way.answer(question)
    return _UNTOLD


def deltas(curve: Curve, epsilons: Array, tolerance: float) -> dict[float, Interval]:
    """Return delta's intervals at many epsilons, where neighbours can share their work.

    One line serves the epsilons about its centre; the others get lines of their own, half way
    between. What is missing in the answer is to be asked alone.
    """
    at = np.unique(epsilons)
    several = readings(curve)
    if len(several) > 1:
        of_each = [deltas(one, at, tolerance) for one in several]
        common = set.intersection(*map(set, of_each))
        return {x: _lower([one[x] for one in of_each]) for x in common}
    if curve.exact:
        # One vectorised reading serves them all: there is no line to share.
        low, high = (direct.delta(curve, at, side) for side in (Side.DOWN, Side.UP))
        ends = zip(at.tolist(), low.tolist(), high.tolist(), strict=True)
        return {x: Interval(a, b, Reading.method).numbers() for x, a, b in ends}
    found: dict[float, Interval] = {}
    for rarest in _RAREST:
        few = trimming.trim(curve, rarest)
        asked = np.array([x for x in at.tolist() if x not in found and x <= few.reach])
        found |= _on_lines(few, asked, tolerance)
        if few.slack == 0.0:
            break
    return found


def _on_lines(few: trimming.Trimmed, at: Array, tolerance: float) -> dict[float, Interval]:
    """Return delta's intervals at the epsilons of which lines tell enough."""
    found: dict[float, Interval] = {}
    stretches = [at] if len(at) else []
    while stretches:
        part = stretches.pop()
        middle = len(part) // 2
        try:
            low, high = inversion.inverted_at(few.curve, float(part[middle])).bounds(part)
        except NoMoments:
            # Where no line exists the question is asked alone, of the other ways.
            continue
        except LateError:
            break
        # What is left out hardly counts, or the question is asked alone.
        small = few.slack <= SLACK * tolerance * low
        low, high = low - few.slack, np.minimum(high + few.slack, 1.0)
        met = small & ((high - low <= tolerance * high) | (high <= 1e-300))
        ends = zip(part[met].tolist(), low[met].tolist(), high[met].tolist(), strict=True)
        found |= {x: Interval(a, b, _INVERTED) for x, a, b in ends}
        # A line that fails at its own centre has nothing for the neighbours.
        if met[middle]:
            sides = (part[:middle][~met[:middle]], part[middle:][~met[middle:]])
            stretches += [side for side in sides if len(side)]
    return found
