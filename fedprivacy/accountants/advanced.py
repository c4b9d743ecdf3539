"""Composition theorems for (epsilon, delta) points picked off each round's curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..loss import Curve, Side, orientations
from ..loss.curves.between import one_side, readings
from ..loss.curves.components import UnitDraws, any_inside, is_composed, parts_of, shapes_of
from ..loss.curves.lattice import Array
from ..loss.strategies import direct
from ..loss.strategies.too_large import given_up
from ..privacy_loss import PrivacyLoss
from ..rounding import TENS, THOUSANDS, Up, rounded_down
from .base import Accountant, Answer
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


class Point(NamedTuple):
    """``times`` rounds that are (epsilon, delta)-DP each."""

    epsilon: float
    delta: float
    times: int


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
            value, rule = _basic_alone(parts_of(simple), delta)
        else:
            value, rule = _best_split(_scheduled(curve) or parts_of(curve), delta)
        return Answer(value, method=f"advanced composition, {rule}{nested}")

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        parts = parts_of(one_side(loss.curve, Side.UP))
        # Only certified values become the upper end, so bisection needs no monotonicity.
        low, high, rule = math.log(1e-300), 0.0, "trivial"
        for _ in range(40):
            middle = 0.5 * (low + high)
            won = _rule_for(parts, math.exp(middle), epsilon)
            if won:
                high, rule = middle, won
            else:
                low = middle
            if high - low < 1e-3:
                break
        return Answer(Up(math.exp(high)), method=f"advanced composition, {rule}")


_Parts = Sequence[tuple[Curve, int]]


def _rounds(parts: _Parts | _Schedule) -> int:
    return sum(_counts(parts))


def _counts(parts: _Parts | _Schedule) -> list[int]:
    if isinstance(parts, _Schedule):
        return [int(count) for count in parts.counts]
    return [count for _, count in parts]


def _basic_alone(parts: _Parts | _Schedule, delta: float) -> tuple[Up, str]:
    # delta / rounds, times rounds, must not exceed delta after rounding.
    return basic(_points(parts, rounded_down(delta / _rounds(parts)))), "basic"


def _near(share: float) -> list[float]:
    """Return more shares to try around the best of ``_SHARES``."""
    return [min(share * factor, 0.999) for factor in (0.6, 0.8, 1.25, 1.6)]


def _best_split(parts: _Parts | _Schedule, delta: float) -> tuple[Up, str]:
    """Return (epsilon, rule) of the best rule over all shares of delta inside the rounds."""
    if isinstance(parts, _Schedule) or len(parts) > _MANY:
        return _guided(parts, delta)
    best = _basic_alone(parts, delta)
    # With one round there is no share to choose.
    if _rounds(parts) == 1:
        return best
    # Any share is valid. A coarse search suffices, because the middle is flat.
    split, best_share = (Up(math.inf), ""), 0.5
    for share in _SHARES:
        tried = _with_share(parts, delta, share, split[0])
        if tried < split:
            split, best_share = tried, share
    for share in _near(best_share):
        split = min(split, _with_share(parts, delta, share, split[0]))
    return min(best, split)


_MANY = 64
"""From this number of kinds on, the search for the share uses a few representatives."""


_CLOSE = 1.05
"""Rules whose epsilons on representatives have at most this ratio are both tried on all kinds."""


def _guided(parts: _Parts | _Schedule, delta: float) -> tuple[Up, str]:
    """Return (epsilon, rule) of the rule and share that are best for a few representatives.

    One kind represents each group of several kinds. Every rule and share is valid.
    """
    few = _few_of(parts, math.ceil(len(_counts(parts)) / (_MANY // 4)))
    each = [share * delta / _rounds(few) for share in _SHARES]
    tried = (_any_rounds(points, delta)[0] for points in _points_at(few, each))
    split, share = min(zip(tried, _SHARES, strict=True))
    plain = _basic_alone(few, delta)[0]
    found = []
    if plain <= _CLOSE * split:
        found.append(_basic_alone(parts, delta))
    if not plain * _CLOSE < split:
        found.append(_with_share(parts, delta, share))
    return min(found)


def _few_of(parts: _Parts | _Schedule, step: int) -> _Parts | _Schedule:
    """Return the middle of every ``step`` parts, with the number of their rounds."""
    if isinstance(parts, _Schedule):
        return parts.middles(step)
    groups = [parts[i : i + step] for i in range(0, len(parts), step)]
    return [(group[len(group) // 2][0], _rounds(group)) for group in groups]


def _rule_for(parts: Sequence[tuple[Curve, int]], delta: float, epsilon: float) -> str:
    """Return a rule that proves (epsilon, delta) for some share; empty if there is none."""
    value, rule = _basic_alone(parts, delta)
    if value <= epsilon:
        return rule
    if _rounds(parts) == 1:
        return ""
    # If no share fits, the search continues near the one that failed least.
    best = math.inf, 0.5
    for share in _SHARES:
        found, rule = _excess(parts, delta, share, epsilon)
        if found <= 1.0:
            return rule
        best = min(best, (found, share))
    for share in _near(best[1]):
        found, rule = _excess(parts, delta, share, epsilon)
        if found <= 1.0:
            return rule
    return ""


def _excess(
    parts: Sequence[tuple[Curve, int]], delta: float, share: float, epsilon: float
) -> tuple[float, str]:
    """Return (a number that is at most 1 if (epsilon, delta) holds, the rule)."""
    points = _points(parts, share * delta / _rounds(parts))
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
    parts: _Parts | _Schedule, delta: float, share: float, known: float = math.inf
) -> tuple[Up, str]:
    """Return (epsilon, rule) of the best rule; if epsilon >= ``known``, maybe another rule."""
    points = _points(parts, share * delta / _rounds(parts))
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


def _points(parts: _Parts | _Schedule, delta: float) -> list[Point]:
    """Return each part's epsilon at the same per-round delta, in the worse orientation."""
    if isinstance(parts, _Schedule):
        (found,) = _together(parts, delta) if delta > 0.0 else ({},)
        if len(found) < len(parts.counts):
            return _points(parts.listed(), delta)
        return [Point(found[k], delta, count) for k, count in enumerate(_counts(parts))]
    many = len(parts) >= _MANY // 4 and delta > 0.0
    found = _together(parts, delta)[0] if many else {}
    left = [(k, curve) for k, (curve, _) in enumerate(parts) if k not in found]
    near = _Near()
    for k, curve in sorted(left, key=lambda one: one[1].support().cover) if many else left:
        guess = near.guess(curve) if many else math.nan
        found[k] = min(_worse(one, delta, guess) for one in readings(curve))
        near.known(curve, found[k])
    return [Point(found[k], delta, count) for k, (_, count) in enumerate(parts)]


def _points_at(parts: _Parts | _Schedule, deltas: Sequence[float]) -> list[list[Point]]:
    """Return ``_points`` at several per-round deltas, many at a time where that is possible."""
    found = _together(parts, *deltas) if min(deltas) > 0.0 else [{} for _ in deltas]
    counts = _counts(parts)
    if any(len(known) < len(counts) for known in found):
        return [_points(parts, delta) for delta in deltas]
    return [
        [Point(known[k], delta, count) for k, count in enumerate(counts)]
        for known, delta in zip(found, deltas, strict=True)
    ]


class _Near:
    """Guesses the epsilons of similar curves in turn, by a power of the cover."""

    def __init__(self) -> None:
        self._last: list[tuple[float, float]] = []

    def guess(self, curve: Curve) -> float:
        """Return a guess, NaN if nothing is known."""
        cover = curve.support().cover
        if len(self._last) < 2 or not 0.0 < cover < math.inf:
            return math.nan
        (x, a), (y, b) = self._last
        power = math.log(b / a) / math.log(y / x) if x != y else 0.0
        return float(b * (cover / y) ** min(max(power, 0.0), 10.0))

    def known(self, curve: Curve, epsilon: float) -> None:
        """Keep the last two epsilons."""
        cover = curve.support().cover
        if 0.0 < cover < math.inf and 0.0 < epsilon < math.inf:
            self._last = [*self._last[-1:], (cover, epsilon)]


class _Pair(NamedTuple):
    """A Gaussian pair that decides a curve's epsilons: a sampled one, or one of three means."""

    drawn: bool
    swapped: bool
    draws: UnitDraws
    weight: float
    """Probability of the only label that loses anything."""

    @classmethod
    def of(cls, half: Curve, swapped: bool) -> _Pair | None:
        """Return the pair of a curve, if it has one."""
        weight, components = 1.0, half.components()
        if len(components.labels) == 2 and components.inside[0].support().cover == 0.0:
            weight, components = components.labels[1], components.inside[1].components()
        draws = None if components.order is None else components.order.draws
        if draws is None or draws.shift <= 0.0 or draws.rank > 1:
            return None
        drawn = draws.rank == 0
        if drawn and (swapped or not 0.0 < draws.chance < 1.0):
            return None
        return cls(drawn, swapped, draws, weight)


def _pairs(curve: Curve) -> list[_Pair | None]:
    """Return the pairs that decide the epsilons of both orders.

    Only the epsilons that are at least 0 count, so one half of a fold answers in each order.
    """
    upper, symmetric = curve.components().upper, curve.support().symmetric
    found = [_Pair.of(upper or curve, False)]
    if symmetric:
        return found
    if upper is None:
        return [*found, _Pair.of(curve, True)]
    other = curve.swap().components().upper
    return [*found, None if other is None else _Pair.of(other, False)]


class _Schedule(NamedTuple):
    """Rounds of one family, from the pairs of the first; no curve is made for the others."""

    curve: Curve
    pairs: tuple[_Pair, ...]
    shifts: Array
    counts: NDArray[np.int64]
    rows: NDArray[np.intp]

    def middles(self, step: int) -> _Schedule:
        """Return the middle of every ``step`` rounds, with the number of their runs."""
        starts = np.arange(0, len(self.shifts), step)
        stops = np.minimum(starts + step, len(self.shifts))
        middle = starts + (stops - starts) // 2
        counts = np.add.reduceat(self.counts, starts)
        return self._replace(shifts=self.shifts[middle], counts=counts, rows=self.rows[middle])

    def listed(self) -> _Parts:
        """Return the curves with their counts."""
        every = parts_of(self.curve)
        return [(every[k][0], n) for k, n in zip(self.rows, self.counts.tolist(), strict=True)]

    def numbers(self, pair: _Pair) -> Array:
        """Return the chance, the shift and the weight of one of the pairs in every round."""
        found = np.empty((len(self.shifts), 3))
        found[:, 0], found[:, 2] = pair.draws.chance, pair.weight
        found[:, 1] = self.shifts * (2.0 if pair.drawn else 1.0)
        return found


def _scheduled(curve: Curve) -> _Schedule | None:
    """Return the rounds of a composition that lists these later, if their pairs are known."""
    made = curve.components()
    if made.places is None:
        return None
    shifts, counts = made.places
    (first, _), *_ = made.shapes
    pairs = [pair for pair in _pairs(first) if pair is not None]
    schedule = _Schedule(curve, tuple(pairs), shifts, counts, np.arange(len(shifts)))
    known = len(pairs) == (1 if first.support().symmetric else 2)
    alike = all(schedule.numbers(pair)[0, 1] == pair.draws.shift for pair in pairs)
    return schedule if known and alike else None


def _asked(parts: _Parts | _Schedule) -> dict[tuple[bool, bool], tuple[list[int], Array]]:
    """Return the parts of every kind of pair, and the numbers of their pairs.

    Parts with an unknown pair are left out.
    """
    if isinstance(parts, _Schedule):
        every = list(range(len(parts.counts)))
        return {(one.drawn, one.swapped): (every, parts.numbers(one)) for one in parts.pairs}
    asked: dict[tuple[bool, bool], list[tuple[int, _Pair]]] = {}
    for k, (curve, _) in enumerate(parts):
        pairs = [pair for pair in _pairs(curve) if pair is not None]
        if len(pairs) == (1 if curve.support().symmetric else 2):
            for pair in pairs:
                asked.setdefault((pair.drawn, pair.swapped), []).append((k, pair))
    return {
        kind: (
            [k for k, _ in each],
            np.array([(one.draws.chance, one.draws.shift, one.weight) for _, one in each]),
        )
        for kind, each in asked.items()
    }


def _together(parts: _Parts | _Schedule, *deltas: float) -> list[dict[int, float]]:
    """Return the epsilons of all parts with Gaussian pairs for both orders, many at a time.

    There is one dictionary for each delta, with the indices of the parts.
    """
    found: list[dict[int, float]] = [{} for _ in deltas]
    for (drawn, swapped), (rows, numbers) in _asked(parts).items():
        chance, shift, weight = np.tile(numbers, (len(deltas), 1)).T
        target = np.repeat(deltas, len(rows))
        target = np.where(weight == 1.0, target, rounded_down(target / weight))
        if drawn:
            ends = direct.drawn_epsilons(chance, 0.5 * shift, target)
        else:
            ends = direct.sampled_gaussian_epsilons(chance, shift, target, swapped)
        for known, some in zip(found, ends.reshape(len(deltas), -1).tolist(), strict=True):
            for k, end in zip(rows, some, strict=True):
                known[k] = max(known.get(k, 0.0), end)
    # A search of one curve goes farther.
    return [{k: end for k, end in known.items() if math.isfinite(end)} for known in found]


def _worse(curve: Curve, delta: float, near: float = math.nan) -> float:
    """Return the epsilon at a delta in the worse orientation; ``near`` is a guess."""
    first, *others = orientations(curve)
    found = direct.epsilon(first, delta, Side.UP, near)
    for other in others:
        # If the epsilon found also suffices here, a second search would not raise it.
        if math.isfinite(found) and not direct.delta(other, np.array([found]), Side.UP)[0] <= delta:
            found = max(found, direct.epsilon(other, delta, Side.UP))
    return found


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
