"""The strategies for the number of one orientation, tried in the order of their cost.

A ``Strategy`` states its cost for a question and answers with an interval. All intervals hold, so
their intersection holds too. The first intersection that is narrow enough ends the search. A new
strategy is a class with these two methods and an entry in ``STRATEGIES``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Protocol

import numpy as np

from ...rounding import Down, Up
from .. import clock
from ..clock import LateError
from ..curves.between import readings
from ..curves.components import Trimmed, any_inside, count_of, is_composed, parts_of, trim
from ..curves.composed import convolved
from ..curves.curve import Curve
from ..curves.lattice import MAX_POINTS, Array, Side, TooLarge
from ..moments.contour import NoMoments
from . import direct, inversion, tail_splitting, two_losses
from .memo import remembered
from .queries import (
    ENDS,
    GROUPED,
    LATE,
    PATIENCE,
    SETTLED,
    SLACK,
    STUCK,
    DeltaAt,
    EpsilonAt,
    Interval,
    Question,
    in_range,
    largest_of,
    likely,
    met,
    settled,
    smallest_of,
    stays_above,
)
from .steps import aligned, few_jumps, jumps_alike
from .too_large import REASON, crude

_COARSE = "the tolerance needs a lattice of more than 2 million points"
_INVERTED = "PLD, moments inverted"
_UNTOLD = Interval(Down(0.0), Up(math.inf), _INVERTED, STUCK)
_REVEALED = Interval(Down(math.inf), Up(math.inf), "PLD, the mass at infinite loss")
_RAREST = (1e-12, 1e-18)
"""A question for a small delta leaves out components with at most this total probability."""


class Strategy(Protocol):
    """A strategy that computes an interval for one number."""

    def cost(self, question: Question) -> float | None:
        """Return the approximate cost in seconds, used to order strategies; None if not usable."""

    def answer(self, question: Question) -> Interval:
        """Return an interval that holds the number; (0, inf) if the strategy does not reach it."""


class Reading:
    """Both ends directly from the curve's tails; the only strategy needed if these are exact."""

    method = "PLD, one curve's tails"

    def cost(self, question: Question) -> float | None:
        """Return the smallest cost of all if the tails are exact; else the cost of computing them.

        Tails of compositions are those of a coarse lattice and are not used.
        """
        if is_composed(question.curve):
            return None
        return 1e-4 if question.curve.support().exact else 0.1

    def answer(self, question: Question) -> Interval:
        """Return the ends that the tails give on either side."""
        return Interval(*question.read(), self.method)


@dataclass(frozen=True)
class Inverting:
    """Moments on lines of the complex plane: one line for the run, or one for each of its terms.

    Args:
        split: whether rounds are split at a large loss. Then there is one term, and one line, for
            every number of rounds with a larger loss.
    """

    split: bool = False

    def cost(self, question: Question) -> float | None:
        """Return a few milliseconds for one line, and the cost of about ten terms for a split run.

        One line is not used if the tails are exact and can be read. A run is split if it has few
        kinds of rounds. Rounds with finitely many losses give one term, on a line of few nodes. In
        Laplace rounds all jumps of P have one loss, so a few terms suffice.
        """
        curve = question.curve
        if not self.split:
            return None if curve.support().exact else 5e-3
        if not 0 < curve.components().different < tail_splitting.MOST_TERMS:
            return None
        rounds = curve.components().rounds
        if count_of(curve) > _FEW and jumps_alike(curve):
            return 0.05
        return 0.12 if all(tail_splitting.uncut(part) for part, _ in rounds) else 0.2

    def answer(self, question: Question) -> Interval:
        """Return the interval of one line, or of the sum of all terms."""
        if not self.split:
            return _unless_none(question.inverted)
        return _TOO_LARGE if question.too_large else _unless_none(question.cut)


def _unless_none(ask: Callable[[], tuple[Down, Up]]) -> Interval:
    try:
        return Interval(*ask(), _INVERTED, STUCK)
    # A strategy that does not reach a curve is no error, because the next one may.
    except NoMoments:
        return _UNTOLD


_NOTHING = Interval(Down(0.0), Up(math.inf), "PLD, lattice composition", STUCK)
_TOO_LARGE = _NOTHING._replace(reason=REASON)
_ATTEMPTS = 10
"""Largest number of lattices; each is a few times finer than the last, and more never helped."""
_FIRST = 16.0
"""Ratio of the first lattice's step to the step that probably suffices. Coarse lattices are cheap,
and they show how many points a finer one needs."""
_FIRST_LAW = 1.5
"""The same if the law of a part is computed for every step, which costs more than the lattice."""
_LARGEST_STEP = 1.0
"""Largest step of the first lattice, for any tolerance."""
_AIMED = 0.85
"""The width falls with the square of the step. An aim of 0.85 of the tolerance seldom misses it."""
_FINER = (1.0 / 32.0, 0.7)
"""Range of the ratio of the next step to the last. A smaller ratio has never been needed at once,
and a larger one is not worth the attempt."""
_UNKNOWN = 0.125
"""The ratio if the last width gives no information: it was infinite or hardly fell."""
_UNBOUNDED = 0.25
"""The ratio if there is no width: the search must see that the upper end no longer falls."""
_HELPED = 0.8
"""A lattice that leaves more than this share of the width did not help."""
_ROOM = 1.05
"""The length of a window is known to 5 % before it is computed."""
_SAME = 0.9
"""A step above this share of the best step is not tried."""
_NEGLIGIBLE = 1e-7
"""Share of delta that the tails outside a lattice may hold."""
_GROWTH = 4.0
"""How much longer the next lattice may take than the last."""


@dataclass(frozen=True)
class Lattices:
    """A lattice that dominates the pair and one that the pair dominates, convolved at finer steps.

    Args:
        points: largest number of points of a lattice.
        rounds: largest number of rounds: the sufficient step falls with the root of the rounds.
        seconds: approximate cost of an attempt.
        served: runs of at most this many rounds are left to another strategy.
        early: whether to stop if the step that probably suffices needs more points.
    """

    points: int
    rounds: float
    seconds: float
    served: int = 0
    early: bool = False

    def cost(self, question: Question) -> float | None:
        """Return the cost of lattices of this size; a minimal cost if a lattice is exact."""
        curve = question.curve
        if _exact(curve):
            return 1e-3
        if not (is_composed(curve) and self.served < count_of(curve) <= self.rounds):
            return None
        # With few jumps the sum has few losses that matter. A split into few terms is faster.
        small = self.points <= SMALL and few_jumps(curve)
        return min(self.seconds, 0.13 if self.served else 0.04) if small else self.seconds

    def answer(self, question: Question) -> Interval:
        """Refine until the interval is narrow enough, the lattice too large, or the time short."""
        if _useless(question):
            return _TOO_LARGE
        step = self.first_step(question)
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
            # The last window shows the length of the next, and none that is too long is begun.
            finest = _ROOM * step * points / self.points
            wanted = step * _ratio(question, too_wide, stuck)
            # A small lattice is refined even if the last step hardly helped, which may be chance.
            if (stuck and points > SMALL) or self._left(wanted, finest):
                break
            step = aligned(question.curve, max(wanted, finest, 1.01 * floor))
            if step > _SAME * best_step:
                reason = reason or _COARSE
                break
        return best._replace(reason=reason or STUCK)

    def _left(self, wanted: float, finest: float) -> bool:
        """Return whether a lattice of the wanted step is left to a later strategy."""
        return self.early and wanted < finest

    @staticmethod
    def first_step(question: Question) -> float:
        """Return the first step: one that needs no rounding, or else a coarse one.

        Rounding is of order step^2 per round, and its sum reaches the tolerance.
        """
        curve = question.curve
        if _exact(curve):
            return curve.support().mesh
        likely = math.sqrt(question.tolerance / (4.0 * count_of(curve)))
        by_step = any(one.support().by_step for one, _ in parts_of(curve))
        # Before a deadline a coarse lattice answers first, in little time.
        first = _FIRST_LAW if by_step and clock.left() == math.inf else _FIRST
        return aligned(curve, min(first * likely, _LARGEST_STEP))


class CoarseLattice:
    """One coarse lattice, if it shows that the number is below the floor or above the ceiling.

    It is used for a few folds: their profiles have a kink at 0, so their lines are long.
    """

    def cost(self, question: Question) -> float | None:
        """Return less than the cost of a line, for a fold with a floor or a ceiling."""
        curve = question.curve
        if not is_composed(curve) or not (question.floor > 0.0 or question.ceiling < math.inf):
            return None
        short = count_of(curve) <= _SHORT and curve.components().different <= _KINDS
        # A lattice of large losses has many points.
        levels = [level for level in (question.floor, question.ceiling) if level < math.inf]
        if not short or not levels or max(levels) > _SMALLEST * Lattices.first_step(question):
            return None
        if all(one.moments().part() is None for one, _ in curve.components().rounds):
            return None
        return 4e-3

    def answer(self, question: Question) -> Interval:
        """Return the end that is compared with the floor, and that for the ceiling."""
        found, tail_mass = _NOTHING, max(_NEGLIGIBLE * question.scale, 1e-290)
        sides = ((Side.UP, question.floor > 0.0), (Side.DOWN, question.ceiling < math.inf))
        for side in [side for side, compared in sides if compared]:
            try:
                one = convolved(question.curve, Lattices.first_step(question), side, tail_mass)
            except TooLarge:
                break
            # Only the end on the lattice's own side holds.
            if side is Side.UP:
                found = found._replace(high=question.above(one))
            else:
                found = found._replace(low=question.below(one))
            if met(question, found):
                break
        return found


def _exact(curve: Curve) -> bool:
    """Return whether all losses of a run that is not too long are multiples of one step."""
    short = is_composed(curve) and count_of(curve) <= SMALL
    return short and 0.0 < curve.support().mesh < math.inf


def _hardly_helped(before: float, after: float) -> bool:
    """Return whether a step hardly reduced the excess of the interval over the tolerance."""
    return after > _HELPED * before and math.isfinite(before)


def _useless(question: Question) -> bool:
    """Return whether every lattice that is fine enough has too many points."""
    return not _exact(question.curve) and question.too_large


def _coarser(step: float, best: Interval, finished: float) -> float:
    """Return the next step after a step that needed too many points."""
    # If no step succeeded: coarser by four. Else halfway, in logs, to the step that did.
    return 4.0 * step if math.isinf(best.high) else math.sqrt(step * finished)


def _enough(question: Question, last: Interval, best: Interval, begun: float) -> str | None:
    """Return the reason to end a search, "" if the tolerance is met; None to continue."""
    if met(question, best):
        return ""
    if settled(question, last, best) or stays_above(question, last, best):
        return SETTLED
    # If the next lattice would be cut short, it would only cost time.
    return LATE if clock.left() < _GROWTH * (clock.now() - begun) else None


def _ratio(question: Question, too_wide: float, stuck: bool) -> float:
    """Return the ratio of the next step to the last."""
    if question.curve.support().above_only:
        return _UNBOUNDED
    known = math.isfinite(too_wide) and not stuck
    return min(max(_AIMED / math.sqrt(too_wide) if known else _UNKNOWN, _FINER[0]), _FINER[1])


def _pair(question: Question, step: float) -> tuple[Interval, int]:
    """Return the ends that two lattices of one step give, and the size of the larger.

    Raises:
        TooLarge: one has too many points.
    """
    # Cached, since a larger lattice starts with the steps of a smaller one.
    if (known := question.on_lattices.get(step)) is not None:
        return known
    tail_mass = max(_NEGLIGIBLE * question.scale, 1e-290)  # a normal number
    above = convolved(question.curve, step, Side.UP, tail_mass)
    found = Interval(Down(0.0), question.above(above), _NOTHING.method, STUCK), above.points
    # Below the floor the lower end does not matter; its lattice takes as long.
    if not found[0].high <= question.floor:
        below = convolved(question.curve, step, Side.DOWN, tail_mass)
        found = found[0]._replace(low=question.below(below)), max(found[1], below.points)
    question.on_lattices[step] = found
    return found


SMALL = 1 << 17
"""Lattices of at most this many points are refined even if the last step hardly helped."""
_FEW = 64
_HOPELESS = 16.0
"""Lattices are left out if they would be wider than the known interval by more than this factor."""
_SMALLEST = 4000.0
"""Largest number, in steps, with which one coarse lattice is compared."""
_SHORT, _KINDS = 300, 20
"""Largest numbers of rounds, and of kinds of rounds, for which one coarse lattice is tried."""
STRATEGIES: tuple[Strategy, ...] = (
    Reading(),
    CoarseLattice(),
    two_losses.BinomialSums(),
    Inverting(),
    # Up to this number of rounds a small lattice is faster than the many terms of a split.
    Lattices(SMALL, _FEW, 0.1),
    # For more rounds, a small lattice if its first step shows that it suffices.
    Lattices(SMALL, 4096, 0.15, _FEW, early=True),
    Inverting(split=True),
    Lattices(MAX_POINTS, math.inf, 3.0),
)


def interval(question: Question) -> Interval:
    """Return the interval of the number: cheapest strategy first, all results intersected.

    When the deadline passes, the search returns its current interval. If that interval has no
    finite upper end, a Renyi divergence bounds the orientation, which takes milliseconds.
    """
    return remembered(question, lambda: _either(question), lambda found: found.reason != LATE)


def _either(question: Question) -> Interval:
    """Return the interval; for rounds that lie between others, one end from each of these."""
    several = question.readings()
    if len(several) > 1:
        return _most(several) if _attained(question.curve) else _usually(question, several)
    if not question.grouped:
        near = _without_rarest(question) if isinstance(question, DeltaAt) else None
        return _interval(question) if near is None else near
    above, below = (question.on_side(side) for side in (Side.UP, Side.DOWN))
    try:
        above.curve.moments().cumulants(1.0)
    except (NoMoments, OverflowError, LateError):
        # Without moments a lattice has both ends already, each from its own side.
        found = _interval(question)
        return found._replace(reason=GROUPED) if found.reason == STUCK else found
    found, least = interval(above), interval(below)
    return found._replace(low=min(least.low, Down(found.high)), reason=found.reason or GROUPED)


def _attained(curve: Curve) -> bool:
    """Return whether the readings of a curve are attained, so that the largest answer counts."""
    return any_inside(curve, lambda one: one.components().most)


def _most(several: Sequence[Question]) -> Interval:
    """Return the interval of the largest of several valid numbers."""
    found: list[Interval] = []
    for one in several:
        floor = max([one.floor, *(known.low for known in found)])
        found.append(interval(replace(one, floor=floor)))
    return largest_of(found)


def _usually(question: Question, several: Sequence[Question]) -> Interval:
    """Return the interval of the usual reading, if it is in its range; else the smallest of all."""
    if (asked := question.usually()) is None:
        return _least(several)
    found = interval(asked)
    return found if in_range(asked, found) else _least(several[:-1], found)


def _least(several: Sequence[Question], *before: Interval) -> Interval:
    """Return the interval of the smallest of several valid numbers, some of them known."""
    found = list(before)
    # The smallest comes first, so that the others need not be refined. Of several unknown ones it
    # is often the last choice, because the first represents all and is larger.
    placed = sorted(((likely(one), one) for one in reversed(several)), key=itemgetter(0))
    for place, question in placed:
        # A number above a known one is not the smallest, so its exact value is irrelevant.
        known = min((one.high for one in found), default=math.inf)
        # A curve whose moments are late would take as long again; 0 is below its number.
        if math.isinf(place) and math.isfinite(known):
            found.append(_UNTOLD._replace(reason=LATE))
            continue
        found.append(interval(asked := replace(question, ceiling=min(question.ceiling, known))))
        # Numbers below the floor need no refinement, and no number is closer to 0 than the
        # tolerance requires.
        if found[-1].high <= question.floor or (found[-1].low == 0.0 and met(asked, found[-1])):
            break
    return smallest_of(found)


def _without_rarest(question: DeltaAt) -> Interval | None:
    """Return delta's interval without the curve's rarest components; None if they matter."""
    # The tails of a single round are read without trimming.
    for rarest in _RAREST if is_composed(question.curve) else ():
        few, slack, reach = trim(question.curve, rarest)
        if slack == 0.0 or question.epsilon > reach:
            return None
        found = _interval(replace(question, curve=few))
        if slack <= SLACK * question.tolerance * found.low:
            high = min(Up(found.high + slack), Up(1.0))
            return found._replace(low=Down(found.low - slack), high=high)
    return None


def _interval(question: Question) -> Interval:
    with clock.no_less(PATIENCE):
        found = _tried(question)
    # The effect of trimming is not bounded at so large an epsilon.
    if isinstance(question, EpsilonAt) and not found.high <= question.reach:
        return interval(question.untrimmed())
    found = found._replace(reason=_why_wide(question, found)).numbers()
    # The moments of a stated guarantee are stronger than the pair behind its tails. They are also
    # the fallback if no strategy reached the tolerance: for very many rounds, or after the
    # deadline.
    if question.stated:
        return _or_bounded(question, found, question.rescue)
    if not found.reason or question.curve.support().exact or not is_composed(question.curve):
        return found
    # A number that is not the smallest of several needs no other bound.
    if found.reason == SETTLED and found.high > question.ceiling:
        return found
    if found.reason == LATE:
        unknown = math.isinf(found.high)
        return _or_bounded(question, found, question.rescue) if unknown else found
    if not question.curve.support().above_only:
        with contextlib.suppress(LateError):
            found = found._replace(low=max(found.low, question.shown_by_moments()))
    return _or_bounded(question, found, question.converted)


def _why_wide(question: Question, found: Interval) -> str:
    """Return why an interval is wider than the tolerance; "" if it is not."""
    if met(question, found):
        return ""
    return found.reason or (SETTLED if question.curve.support().above_only else "")


def _or_bounded(question: Question, found: Interval, bound: tuple[Up, float]) -> Interval:
    """Return the known interval, or the bound of a Renyi divergence if that is smaller."""
    high, order = bound
    if not high < found.high:
        return found
    # For a stated Renyi guarantee, moments and tails do not come from one pair. Its number is then
    # not bracketed, and only the upper end remains.
    low = found.low if found.low <= high else Down(0.0)
    return found._replace(low=low, high=high, method=f"RDP, order {order:.5g}")


def _tried(question: Question) -> Interval:
    """Return the intersection of the strategies' intervals: until the tolerance or deadline."""
    found = _UNTOLD
    if question.revealed:
        return _REVEALED
    try:
        # Checked before any computation: each moment of a run like this takes too long.
        if crude(question.curve) is not None:
            return _TOO_LARGE
        if question.below_floor:
            return Interval(Down(0.0), Up(question.floor), _INVERTED)
        costs = [(cost, way) for way in STRATEGIES if (cost := way.cost(question)) is not None]
        for _, way in sorted(costs, key=itemgetter(0)):
            if isinstance(way, Lattices) and _cannot_help(question, found):
                continue
            answer = _answer(way, question)
            found = answer.meet(found)
            if answer.reason == SETTLED:
                return found._replace(reason=SETTLED)
            # Exact tails are the best possible, so other strategies would only repeat the answer.
            if met(question, found) or question.curve.support().exact:
                break
            clock.check_deadline()
    except LateError:
        found = found._replace(reason=LATE)
    return found


def _cannot_help(question: Question, found: Interval) -> bool:
    """Return whether the finest lattice would leave an interval much wider than the known one.

    The width of a lattice falls with the square of its step.
    """
    known = [(points, one.high - one.low) for one, points in question.on_lattices.values()]
    points, width = max(known, default=(MAX_POINTS, 0.0))
    reached = width * (points / MAX_POINTS) ** 2
    return math.isfinite(width) and reached > _HOPELESS * (found.high - found.low)


def _answer(way: Strategy, question: Question) -> Interval:
    # An overflow within a strategy gives no information, and the next strategy may succeed.
    with contextlib.suppress(ArithmeticError):
        return way.answer(question)
    return _UNTOLD


def deltas(curve: Curve, epsilons: Array, tolerance: float) -> dict[float, Interval]:
    """Return delta's intervals at many epsilons, with shared work for neighbours.

    One line serves the epsilons near its centre. The others get separate lines, halfway between.
    Epsilons missing in the answer need a separate question each.
    """
    at = np.unique(epsilons)
    several = readings(curve)
    if len(several) > 1:
        of_each = [deltas(one, at, tolerance) for one in several]
        common = set.intersection(*map(set, of_each))
        join = largest_of if _attained(curve) else smallest_of
        return {x: join([one[x] for one in of_each]) for x in common}
    if curve.support().exact:
        # One vectorised reading serves all epsilons, and there is no line to share.
        low, high = (direct.delta(curve, at, side) for side in ENDS)
        return _by_epsilon(at, low, high, Reading.method)
    found: dict[float, Interval] = {}
    for rarest in _RAREST:
        few = trim(curve, rarest)
        asked = np.array([x for x in at.tolist() if x not in found and x <= few.reach])
        found |= _on_lines(few, asked, tolerance)
        if few.slack == 0.0:
            break
    return found


def _by_epsilon(at: Array, low: Array, high: Array, method: str) -> dict[float, Interval]:
    ends = zip(at.tolist(), low.tolist(), high.tolist(), strict=True)
    return {x: Interval(Down(a), Up(b), method).numbers() for x, a, b in ends}


def _on_lines(few: Trimmed, at: Array, tolerance: float) -> dict[float, Interval]:
    """Return delta's intervals at the epsilons where lines meet the tolerance."""
    found: dict[float, Interval] = {}
    stretches = [at] if len(at) else []
    while stretches:
        part = stretches.pop()
        middle = len(part) // 2
        try:
            low, high = inversion.inverted_at(few.curve, float(part[middle])).bounds(part)
        except NoMoments:
            # Without a line, the question is left to the other strategies.
            continue
        except LateError:
            break
        # The omitted mass must be negligible; otherwise the question is computed separately.
        small = few.slack <= SLACK * tolerance * low
        low, high = low - few.slack, np.minimum(high + few.slack, 1.0)
        met = small & ((high - low <= tolerance * high) | (high <= 1e-300))
        found |= _by_epsilon(part[met], low[met], high[met], _INVERTED)
        # A line that fails at its own centre is useless for the neighbours.
        if met[middle]:
            sides = (part[:middle][~met[:middle]], part[middle:][~met[middle:]])
            stretches += [side for side in sides if len(side)]
    return found
