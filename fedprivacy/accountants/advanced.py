"""Composition theorems for (epsilon, delta) points picked off each round's curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..loss import Side
from ..loss.curves.between import one_side
from ..loss.curves.components import any_inside, is_composed, parts_of, shapes_of
from ..loss.strategies.too_large import given_up
from ..privacy_loss import PrivacyLoss
from ..rounding import TENS, THOUSANDS, Up, rounded_down
from .base import Accountant, Answer
from .points import Point, RoundKinds, points_at, points_of
from .responses import MAX_EPSILON, MAX_TIMES, Responses

_SHARES = (0.35, 0.5, 0.2, 0.65, 0.1, 0.8, 0.03, 0.9, 0.01, 0.97, 1e-3, 1e-4)
"""Shares of delta for the inside of the rounds. Often-best shares come first and shorten the rest.
"""


_MORE = 1.0 + TENS
"""Rounds up a sum of a few terms that are each accurate to a few units in the last place."""
_LARGEST = 1e150
"""Squares of larger epsilons overflow."""
_GRID = 32
_PASSES = 12


class AdvancedCompositionAccountant(Accountant):
    """Basic and Kairouz-Oh-Viswanath composition; the best rule wins.

    The rule of Dwork, Rothblum and Vadhan (2010) is not included: the rule of Kairouz, Oh and
    Viswanath for unequal rounds is never larger. Its drift e tanh(e / 2) is below e (exp(e) - 1),
    and it leaves at least as much of delta.

    The delta of every round is the same share of the whole. The share is searched. Nested
    compositions take their point from their own certified privacy-loss distribution.
    """

    name: ClassVar[str] = "advanced"

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        curve = one_side(loss.curve, Side.UP)
        inner = any(any_inside(one, is_composed) for one, _ in shapes_of(curve))
        nested = "; points of nested rounds from their PLD" if inner else ""
        # If no rule can make the loss small, it is only added up.
        if (simple := given_up(curve)) is not None:
            value, rule = _basic_alone(RoundKinds.listed(parts_of(simple)), delta)
        else:
            value, rule = _best_split(RoundKinds.of(curve), delta)
        return Answer(value, method=f"advanced composition, {rule}{nested}")

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        rounds = RoundKinds.of(one_side(loss.curve, Side.UP))
        # Only certified values become the upper end, so bisection needs no monotonicity.
        low, high, rule = math.log(1e-300), 0.0, "trivial"
        for _ in range(40):
            middle = 0.5 * (low + high)
            won = _rule_for(rounds, math.exp(middle), epsilon)
            if won:
                high, rule = middle, won
            else:
                low = middle
            if high - low < 1e-3:
                break
        return Answer(Up(math.exp(high)), method=f"advanced composition, {rule}")


def _basic_alone(rounds: RoundKinds, delta: float) -> tuple[Up, str]:
    # delta / rounds, times rounds, must not exceed delta after rounding.
    return basic(points_of(rounds, rounded_down(delta / rounds.number))), "basic"


def _near(share: float) -> list[float]:
    """Return more shares to try around the best of ``_SHARES``."""
    return [min(share * factor, 0.999) for factor in (0.6, 0.8, 1.25, 1.6)]


def _best_split(rounds: RoundKinds, delta: float) -> tuple[Up, str]:
    """Return (epsilon, rule) of the best rule over all shares of delta inside the rounds."""
    if len(rounds.counts) > _MANY:
        return _guided(rounds, delta)
    best = _basic_alone(rounds, delta)
    # With one round there is no share to choose.
    if rounds.number == 1:
        return best
    # Any share is valid. A coarse search suffices, because the middle is flat.
    split, best_share = (Up(math.inf), ""), 0.5
    for share in _SHARES:
        tried = _with_share(rounds, delta, share, split[0])
        if tried < split:
            split, best_share = tried, share
    for share in _near(best_share):
        split = min(split, _with_share(rounds, delta, share, split[0]))
    return min(best, split)


_MANY, _FEW = 64, 16
"""Above the first number of kinds, the search for the share uses about the second number."""


_CLOSE = 1.05
"""Rules whose epsilons on representatives have at most this ratio are both tried on all kinds."""


def _guided(rounds: RoundKinds, delta: float) -> tuple[Up, str]:
    """Return (epsilon, rule) of the rule and share that are best for a few representatives.

    One kind represents each group of several kinds. Every rule and share is valid.
    """
    few = rounds.middles(math.ceil(len(rounds.counts) / _FEW))
    each = points_at(few, [share * delta / few.number for share in _SHARES])
    tried = (_any_rounds(points, delta)[0] for points in each)
    split, share = min(zip(tried, _SHARES, strict=True))
    plain = _basic_alone(few, delta)[0]
    found = []
    if plain <= _CLOSE * split:
        found.append(_basic_alone(rounds, delta))
    if not plain * _CLOSE < split:
        found.append(_with_share(rounds, delta, share))
    return min(found)


def _rule_for(rounds: RoundKinds, delta: float, epsilon: float) -> str:
    """Return a rule that proves (epsilon, delta) for some share; empty if there is none."""
    value, rule = _basic_alone(rounds, delta)
    if value <= epsilon:
        return rule
    if rounds.number == 1:
        return ""
    # If no share fits, the search continues near the one that failed least.
    best = math.inf, 0.5
    for share in _SHARES:
        found, rule = _excess(rounds, delta, share, epsilon)
        if found <= 1.0:
            return rule
        best = min(best, (found, share))
    for share in _near(best[1]):
        found, rule = _excess(rounds, delta, share, epsilon)
        if found <= 1.0:
            return rule
    return ""


def _excess(rounds: RoundKinds, delta: float, share: float, epsilon: float) -> tuple[float, str]:
    """Return (a number that is at most 1 if (epsilon, delta) holds, the rule)."""
    points = points_of(rounds, share * delta / rounds.number)
    # Equal rounds have an optimal rule; other rounds only a looser one.
    if len(points) == 1 and _within_reach(points[0]):
        return _response_excess(points[0], delta, epsilon), "Kairouz-Oh-Viswanath"
    value, rule = _any_rounds(points, delta)
    # Failures are ranked by their size, so the search continues near the best one.
    return 1.0 if value <= epsilon else 1.0 + value, rule


def _response_excess(point: Point, delta: float, epsilon: float) -> float:
    """Return delta of the composed responses at an epsilon, divided by the remaining delta."""
    rest = _left_over([point], delta)
    found = float(Responses(point.epsilon, point.times).delta(np.array([epsilon]))[0])
    if rest <= 0.0:
        return math.inf
    return 1.0 if found <= rest else 1.0 + found / rest


def _with_share(
    rounds: RoundKinds, delta: float, share: float, known: float = math.inf
) -> tuple[Up, str]:
    """Return (epsilon, rule) of the best rule; if epsilon >= ``known``, maybe another rule."""
    points = points_of(rounds, share * delta / rounds.number)
    found = _any_rounds(points, delta)
    if len(points) > 1:
        return found
    below = min(known, found[0])
    return min(found, (kairouz_homogeneous(points[0], delta, below), "Kairouz-Oh-Viswanath"))


def _any_rounds(points: Sequence[Point], delta: float) -> tuple[Up, str]:
    """Return (epsilon, rule) of the rule for equal and unequal rounds."""
    return kairouz_heterogeneous(points, delta), "Kairouz-Oh-Viswanath, heterogeneous"


def _within_reach(point: Point) -> bool:
    """Return whether the composed responses of a point can be summed."""
    return 0.0 < point.epsilon <= MAX_EPSILON and point.times <= MAX_TIMES


def _certified(value: float) -> Up:
    """Return a bound rounded up; NaN becomes infinity."""
    return Up(math.inf if math.isnan(value) else value * _MORE)


def _left_over(points: Sequence[Point], delta: float) -> float:
    """Return d with 1 - (1 - d) prod (1 - delta_i) = delta, rounded down."""
    log_rest = math.log1p(-delta) - math.fsum(p.times * math.log1p(-p.delta) for p in points)
    # A smaller d is on the safe side, and 1e-12 exceeds the rounding of the sums.
    return rounded_down(-math.expm1(min(log_rest, 0.0)), THOUSANDS)


def basic(points: Sequence[Point]) -> Up:
    """Return the sum of all epsilons; the deltas add too (Dwork and Roth 2014, Theorem 3.16)."""
    return _certified(math.fsum(p.times * p.epsilon for p in points))


def _deviation(points: Sequence[Point], rest: float) -> float:
    """Return sqrt(2 log(1/rest) sum e_i^2)."""
    squares = math.fsum(p.times * p.epsilon**2 for p in points)
    return math.sqrt(-2.0 * math.log(rest) * squares)


def kairouz_heterogeneous(points: Sequence[Point], delta: float) -> Up:
    """Return sum e_i tanh(e_i / 2) + sqrt(2 log(1/d) sum e_i^2), at most the sum of all e_i.

    Kairouz, Oh and Viswanath (2015), Theorem 3.5; 1 - (1 - d) prod (1 - delta_i) = delta.
    """
    rest = _left_over(points, delta)
    if rest <= 0 or any(p.epsilon > _LARGEST for p in points):
        return Up(math.inf)
    drift = math.fsum(p.times * p.epsilon * math.tanh(p.epsilon / 2) for p in points)
    return min(_certified(drift + _deviation(points, rest)), basic(points))


def kairouz_homogeneous(point: Point, delta: float, below: float = math.inf) -> Up:
    """Return the optimal epsilon of times-fold composition of one (epsilon, delta).

    Kairouz, Oh and Viswanath (2015), Theorem 3.3: randomised response is the worst case.
    ``responses`` bounds its delta from above. The result is the smallest epsilon that is found to
    fit, to a relative 1e-7. It is infinite if the responses cannot be summed, or if ``below`` does
    not fit.
    """
    rest = _left_over([point], delta)
    # Rounds with epsilon 0 compose to epsilon 0 while some delta is left.
    if point.epsilon == 0.0 < rest:
        return Up(0.0)
    if rest <= 0 or not _within_reach(point):
        return Up(math.inf)
    worst = Responses(point.epsilon, point.times)
    if worst.delta(np.zeros(1))[0] <= rest:
        return Up(0.0)
    # The sum of all epsilons fits by basic composition, so it needs no probe.
    low, high = 0.0, basic([point])
    if below < high:
        if not worst.delta(np.array([below]))[0] <= rest:
            return Up(math.inf)
        high = Up(below)
    for _ in range(_PASSES):
        # 32 probes cost hardly more than one: the bound takes arrays.
        grid = np.linspace(low, high, _GRID + 2)
        fits = np.append(worst.delta(grid[1:-1]) <= rest, True)
        first = int(np.argmax(fits)) + 1
        low, high = float(grid[first - 1]), Up(float(grid[first]))
        if high - low < 1e-7 * high:
            break
    return high
