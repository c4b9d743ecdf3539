"""Privacy-loss distributions: a certified interval around the dominating pair's number."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..loss import Composed, Curve, Side
from ..loss.moments.line import NoSpectrum
from ..loss.pairs.lattice import MAX_POINTS, TooLarge
from ..loss.profiles import cut as jumps
from ..loss.profiles import direct, inversion
from ..loss.profiles.convolution import Composition
from ..loss.profiles.trimming import trim
from ..privacy_loss import PrivacyLoss
from .base import Accountant, Answer, orientations

_ROUNDS = 10
_SLACK = 1e-7
"""By which share of delta the profile may be off."""
_FEW = 64
"""Up to so many rounds a lattice is tried before a smoothed inversion."""
_COARSER = 16.0
"""By how much the first lattice's step is larger than the one that is likely to do."""
_LARGEST_STEP = 1.0
"""Of the first lattice, however wide the tolerance."""
_SMALL = 1 << 17
"""Lattices of up to so many points are refined even where the last step hardly helped."""
_ATTAINED = 1e-3
"""How far below its supremum, of itself, an attained pair's own number may be found."""
_COARSE = "the asked tolerance would need a lattice of more than 2 million points"
_LATE = "the deadline was near before the asked tolerance was reached"
_STUCK = "the asked tolerance was not reached by refining"
_LATTICE = "PLD, lattice composition"


_Ask = Callable[[Curve, float, float], "Interval"]
"""What brackets one orientation of a curve: (curve, floor, tolerance)."""


class Interval(NamedTuple):
    """Certified ends of one orientation's number, how they were found, and why not closer."""

    low: float
    high: float
    method: str
    reason: str = ""


class PldAccountant(Accountant):
    """Composes privacy-loss distributions.

    Both ends are certified. One curve alone is answered from its tails. Compositions are inverted
    from their moments on a line of the complex plane (``fedprivacy.loss.profiles.inversion``), in
    milliseconds whatever the number of rounds. Where no line suits the whole run, its rounds are
    cut where their loss becomes large (``fedprivacy.loss.profiles.cut``). Where a curve has no such
    moments, or they do not give the asked tolerance, one lattice that dominates the pair and
    another that it dominates are convolved and refined (``fedprivacy.loss.profiles.convolution``).
    """

    name: ClassVar[str] = "pld"

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        def ask(curve: Curve, floor: float, tolerance: float) -> Interval:
            return _epsilon_of(curve, delta, tolerance, self.deadline, floor)

        return _answer(loss, ask, self.tolerance, relative=False)

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        def ask(curve: Curve, floor: float, tolerance: float) -> Interval:
            return _delta_of(curve, epsilon, tolerance, self.deadline, floor)

        return _answer(loss, ask, self.tolerance, relative=True)


def epsilon_interval(curve: Curve, delta: float, tolerance: float = 1e-3) -> tuple[float, float]:
    """Return certified (low, high) of epsilon at a delta for this one orientation of a curve."""
    found = _epsilon_of(curve, delta, tolerance, None, 0.0)
    return found.low, found.high


def delta_interval(curve: Curve, epsilon: float, tolerance: float = 1e-3) -> tuple[float, float]:
    """Return certified (low, high) of delta at an epsilon >= 0 for this one orientation."""
    found = _delta_of(curve, epsilon, tolerance, None, 0.0)
    return found.low, min(found.high, 1.0)


def _answer(loss: PrivacyLoss, ask: _Ask, tolerance: float, relative: bool) -> Answer:
    """Bracket the worse orientation of the dominating pair, then the attained pair from below.

    Where both are one the first bracket is all. Else the second only says what is attained: its
    tolerance is a share of the answer, if that is more.
    """
    worst = _worst(loss.curve, ask, tolerance)
    attained = 0.0
    if loss.witness is not None:
        attained = worst.low
        if loss.witness.curve != loss.curve:
            wanted = tolerance if relative else max(tolerance, _ATTAINED * worst.low)
            attained = _worst(loss.witness.curve, ask, wanted).low
    return Answer(worst.high, max(worst.low, attained), attained, worst.method, worst.reason)


def _worst(curve: Curve, ask: _Ask, tolerance: float) -> Interval:
    """Return the interval of the larger of the orientations' numbers."""
    found: list[Interval] = []
    for one in orientations(curve):
        floor = max((interval.low for interval in found), default=0.0)
        found.append(ask(one, floor, tolerance))
    top = max(found, key=lambda interval: interval.high)
    return top._replace(low=max(interval.low for interval in found))


_NOTHING = Interval(0.0, math.inf, _LATTICE, _STUCK)


@dataclass(frozen=True)
class _Question:
    """What is asked of one orientation, in the four ways in which it may be answered."""

    scale: Callable[[], float]
    """A number not far above the delta in question: it says which tails can be left out."""
    invert: Callable[[bool], tuple[float, float]]
    cut: Callable[[], tuple[float, float]]
    direct: Callable[[Side], float]
    compose: Callable[[Composition], float]
    excess: Callable[[float, float], float]
    """The width of an interval in units of the tolerance."""
    deadline: float | None
    floor: float
    """What is below this does not matter: the other orientation's number is larger."""

    def met_by(self, found: Interval) -> bool:
        """Return whether an interval is as narrow as was asked, or does not matter."""
        if found.high <= self.floor:
            return True
        return math.isfinite(found.high) and self.excess(found.low, found.high) <= 1.0


def _epsilon_of(
    curve: Curve, delta: float, tolerance: float, deadline: float | None, floor: float
) -> Interval:
    """Return epsilon's interval; an orientation that stays below ``floor`` is not refined.

    What is rarer than delta by far is left out: the profile that is asked is then off by a slack.
    """
    whole, (curve, slack) = curve, trim(curve, _SLACK * delta)
    least, most = delta - slack, delta + slack
    if _stays_below(curve, least, floor, floor):
        return Interval(0.0, floor, "PLD, moments inverted")
    question = _Question(
        lambda: delta,
        lambda smooth: inversion.epsilon_interval(curve, delta, tolerance, smooth, slack),
        lambda: jumps.epsilon_interval(whole, delta, tolerance, deadline),
        lambda side: direct.epsilon(curve, delta, side),
        lambda composition: composition.epsilon(least if composition.side is Side.UP else most),
        lambda low, high: (high - low) / tolerance,
        deadline,
        floor,
    )
    return _interval(curve, question, tolerance)


def _delta_of(
    curve: Curve, epsilon: float, tolerance: float, deadline: float | None, floor: float
) -> Interval:
    """Return delta's interval; an orientation that stays below ``floor`` is not refined."""
    if _stays_below(curve, floor, epsilon, floor):
        return Interval(0.0, floor, "PLD, moments inverted")
    question = _Question(
        lambda: _scale(curve, epsilon),
        lambda smooth: inversion.delta_interval(curve, epsilon, tolerance, smooth),
        lambda: jumps.delta_interval(curve, epsilon, tolerance),
        lambda side: float(direct.delta(curve, np.array([epsilon]), side)[0]),
        lambda composition: composition.delta(epsilon),
        lambda low, high: (high - low) / (tolerance * high) if high > 1e-300 else 0.0,
        deadline,
        floor,
    )
    return _interval(curve, question, tolerance)


def _stays_below(curve: Curve, delta: float, epsilon: float, floor: float) -> bool:
    """Return whether (epsilon, delta), one of them a floor above 0, is cheaply seen to hold."""
    return floor > 0 and isinstance(curve, Composed) and inversion.at_most(curve, delta, epsilon)


def _scale(curve: Curve, epsilon: float) -> float:
    """Return a number well below delta(epsilon), to say which tails can be left out."""
    exponents = [curve.log_moment(a) - (a - 1.0) * epsilon for a in (1.5, 3.0, 8.0, 24.0, 80.0)]
    least = min(exponents)
    return math.exp(min(max(least - 10.0, -600.0), 0.0)) if math.isfinite(least) else 1e-13


def _interval(curve: Curve, question: _Question, tolerance: float) -> Interval:
    """Try the cheapest way first; what was found on the way counts too."""
    if curve.exact:
        return _numbers(_direct(question))
    found = _inverted(functools.partial(question.invert, False))
    smoothed = functools.partial(_inverted, functools.partial(question.invert, True))
    ways = [smoothed, functools.partial(_direct, question)]
    if isinstance(curve, Composed):
        refined = functools.partial(_refined, curve, question, tolerance)
        cut = functools.partial(_inverted, question.cut)
        finest = functools.partial(refined, MAX_POINTS)
        few = [functools.partial(refined, _SMALL), cut, finest, smoothed]
        ways = few if curve.count <= _FEW else [smoothed, cut, finest]
    for way in ways:
        if not question.met_by(found):
            found = _meet(way(), found)
    return _numbers(found._replace(reason="") if question.met_by(found) else found)


def _numbers(found: Interval) -> Interval:
    """Return the interval; an end that is no number says nothing."""
    low = 0.0 if math.isnan(found.low) else found.low
    return found._replace(low=low, high=math.inf if math.isnan(found.high) else found.high)


def _direct(question: _Question) -> Interval:
    low, high = question.direct(Side.DOWN), question.direct(Side.UP)
    return Interval(low, high, "PLD, one curve's tails")


def _inverted(invert: Callable[[], tuple[float, float]]) -> Interval:
    try:
        return Interval(*invert(), "PLD, moments inverted", _STUCK)
    except NoSpectrum:
        return Interval(0.0, math.inf, "PLD, moments inverted", _STUCK)


def _meet(one: Interval, other: Interval) -> Interval:
    """Return the best ends of both."""
    method = one.method if one.high <= other.high else other.method
    reason = one.reason and other.reason and (_LATE if one.reason == _LATE else other.reason)
    return Interval(max(one.low, other.low), min(one.high, other.high), method, reason)


def _refined(curve: Composed, question: _Question, tolerance: float, most: int) -> Interval:
    """Refine a lattice until the interval is narrow enough, has too many points or is late.

    The first is a coarse one: how many points it has says how fine the finest can be.
    """
    started, step = time.monotonic(), _COARSER * math.sqrt(tolerance / (4.0 * curve.count))
    step = min(step, _LARGEST_STEP)
    tail_mass = max(1e-7 * question.scale(), 1e-290)
    best, best_step, floor, reason = _NOTHING, step, 0.0, ""
    too_wide = math.inf
    for _ in range(_ROUNDS):
        begun = time.monotonic()
        try:
            found, points = _on_lattices(curve, question, step, tail_mass)
        except TooLarge:
            floor, reason = step, _COARSE
            step = 4.0 * step if math.isinf(best.high) else math.sqrt(step * best_step)
            continue
        best, best_step = _meet(found, best), step
        before, too_wide = too_wide, question.excess(best.low, best.high)
        if question.met_by(best):
            return best._replace(reason="")
        if _late(question.deadline, started, begun):
            reason = _LATE
            break
        stuck = too_wide > 0.8 * before and math.isfinite(before)
        if stuck and points > _SMALL:
            break
        ratio = 0.85 / math.sqrt(too_wide) if math.isfinite(too_wide) and not stuck else 0.125
        wanted, finest = step * min(max(ratio, 1 / 32), 0.7), 1.05 * step * points / most
        step = max(wanted, finest, 1.01 * floor)
        if step > 0.9 * best_step:
            reason = reason or _COARSE
            break
    return best._replace(reason=reason or _STUCK)


def _on_lattices(
    curve: Composed, question: _Question, step: float, tail_mass: float
) -> tuple[Interval, int]:
    """Return the ends that two lattices of one step give, and the size of the larger.

    Raises:
        TooLarge: one has too many points.
    """
    both = [curve.composition(step, side, tail_mass) for side in (Side.DOWN, Side.UP)]
    low, high = (question.compose(one) for one in both)
    return Interval(low, high, _LATTICE, _STUCK), max(one.points for one in both)


def _late(deadline: float | None, started: float, begun: float) -> bool:
    """Return whether a lattice four times as costly as the last would end after the deadline."""
    now = time.monotonic()
    return deadline is not None and now + 4.0 * (now - begun) > started + deadline
