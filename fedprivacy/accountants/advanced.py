"""Composition theorems for (epsilon, delta) points picked off each round's curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from scipy.special import bdtr

from ..loss import Composed, Curve, Side
from ..loss.profiles import direct
from ..privacy_loss import PrivacyLoss
from .base import Accountant, Answer, orientations

_SHARES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)


class Point(NamedTuple):
    """``times`` rounds that are (epsilon, delta)-DP each."""

    epsilon: float
    delta: float
    times: int


class AdvancedCompositionAccountant(Accountant):
    """Basic, Dwork-Rothblum-Vadhan and Kairouz-Oh-Viswanath composition; the best rule wins.

    Every round's delta is a share of the whole, the same for every round; the share is searched.
    Nested compositions give their point from their own certified privacy-loss distribution.
    """

    name: ClassVar[str] = "advanced"

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        parts = _parts(loss.curve)
        nested = "; points of nested rounds from their PLD" if _has_nested(parts) else ""
        value, rule = _best_split(parts, delta)
        return Answer(value, method=f"advanced composition, {rule}{nested}")

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        parts = _parts(loss.curve)
        low, high, rule = math.log(1e-300), 0.0, "trivial"
        for _ in range(40):
            middle = 0.5 * (low + high)
            value, won = _best_split(parts, math.exp(middle))
            if value <= epsilon:
                high, rule = middle, won
            else:
                low = middle
            if high - low < 1e-3:
                break
        return Answer(math.exp(high), method=f"advanced composition, {rule}")


def _parts(curve: Curve) -> tuple[tuple[Curve, int], ...]:
    return curve.parts if isinstance(curve, Composed) else ((curve, 1),)


def _has_nested(parts: Sequence[tuple[Curve, int]]) -> bool:
    return any("Composed" in repr(curve) for curve, _ in parts)


def _best_split(parts: Sequence[tuple[Curve, int]], delta: float) -> tuple[float, str]:
    """Return (epsilon, rule) of the best rule over all shares of delta spent inside the rounds."""
    rounds = sum(count for _, count in parts)
    best = basic(_points(parts, delta / rounds)), "basic"
    if rounds == 1:
        return best
    tried = [(_with_share(parts, delta, rounds, share), share) for share in _SHARES]
    (value, rule), share = min(tried, key=lambda item: item[0][0])
    for factor in (0.6, 0.8, 1.25, 1.6):
        nearby = min(share * factor, 0.999)
        value, rule = min((value, rule), _with_share(parts, delta, rounds, nearby))
    return min(best, (value, rule))


def _with_share(
    parts: Sequence[tuple[Curve, int]], delta: float, rounds: int, share: float
) -> tuple[float, str]:
    points = _points(parts, share * delta / rounds)
    rules: list[tuple[float, str]] = [
        (dwork_rothblum_vadhan(points, delta), "Dwork-Rothblum-Vadhan"),
        (kairouz_heterogeneous(points, delta), "Kairouz-Oh-Viswanath, heterogeneous"),
    ]
    if len(points) == 1:
        rules.append((kairouz_homogeneous(points[0], delta), "Kairouz-Oh-Viswanath"))
    return min(rules)


def _points(parts: Sequence[tuple[Curve, int]], delta: float) -> list[Point]:
    """Return each part's epsilon at the same per-round delta, in the worse orientation."""
    found = []
    for curve, count in parts:
        worse = max(direct.epsilon(turned, delta, Side.UP) for turned in orientations(curve))
        found.append(Point(worse, delta, count))
    return found


def _left_over(points: Sequence[Point], delta: float) -> float:
    """Return d with 1 - (1 - d) prod (1 - delta_i) = delta, rounded down."""
    log_rest = math.log1p(-delta) - sum(p.times * math.log1p(-p.delta) for p in points)
    return -math.expm1(min(log_rest, 0.0)) * (1 - 1e-12)


def basic(points: Sequence[Point]) -> float:
    """Return the sum of all epsilons; the deltas add too (Dwork and Roth 2014, Theorem 3.16)."""
    return sum(p.times * p.epsilon for p in points)


def dwork_rothblum_vadhan(points: Sequence[Point], delta: float) -> float:
    """Return sqrt(2 log(1/d) sum e_i^2) + sum e_i (exp(e_i) - 1), d = delta - sum delta_i.

    Dwork, Rothblum and Vadhan (2010), Theorem III.3; infinite where no delta is left.
    """
    rest = delta - sum(p.times * p.delta for p in points)
    if rest <= 0 or any(p.epsilon > 300 for p in points):
        return math.inf
    squares = sum(p.times * p.epsilon**2 for p in points)
    drift = sum(p.times * p.epsilon * math.expm1(p.epsilon) for p in points)
    return math.sqrt(2.0 * math.log(1.0 / rest) * squares) + drift


def kairouz_heterogeneous(points: Sequence[Point], delta: float) -> float:
    """Return sum e_i tanh(e_i / 2) + sqrt(2 log(1/d) sum e_i^2), at most the sum of all e_i.

    Kairouz, Oh and Viswanath (2015), Theorem 3.5; 1 - (1 - d) prod (1 - delta_i) = delta.
    """
    rest = _left_over(points, delta)
    if rest <= 0 or any(math.isinf(p.epsilon) for p in points):
        return math.inf
    squares = sum(p.times * p.epsilon**2 for p in points)
    drift = sum(p.times * p.epsilon * math.tanh(p.epsilon / 2) for p in points)
    return min(drift + math.sqrt(2.0 * math.log(1.0 / rest) * squares), basic(points))


def kairouz_homogeneous(point: Point, delta: float) -> float:
    """Return the optimal epsilon of times-fold composition of one (epsilon, delta).

    Kairouz, Oh and Viswanath (2015), Theorem 3.3: randomised response is the worst case, so the
    composed delta is a difference of two binomial tails.
    """
    rest = _left_over([point], delta)
    if rest <= 0 or math.isinf(point.epsilon):
        return math.inf
    if point.epsilon == 0.0:
        return 0.0
    return _smallest(lambda e: _response_delta(e, point) <= rest, point.times * point.epsilon)


def _response_delta(epsilon: float, point: Point) -> float:
    """Return delta(epsilon) of ``times`` randomised responses, rounded up.

    With l lies of ``times`` the loss is (times - 2 l) e; delta is the largest, over m, of
    P(l <= m) - exp(epsilon) Q(l <= m), attained where the loss crosses epsilon.
    """
    lie = 1.0 / (1.0 + math.exp(min(point.epsilon, 700.0)))
    crossing = math.ceil((point.times - epsilon / point.epsilon) / 2.0) - 1
    growth = math.exp(min(epsilon, 700.0))
    found = 0.0
    for most in (crossing - 1, crossing, crossing + 1):
        if 0 <= most <= point.times:
            under_p = float(bdtr(most, point.times, lie)) * (1 + 1e-9)
            under_q = float(bdtr(most, point.times, 1.0 - lie)) * (1 - 1e-9)
            found = max(found, under_p - growth * under_q)
    return found


def _smallest(fits: Callable[[float], bool], high: float) -> float:
    """Return the smallest number in [0, high] that fits, to 1e-6 relative, on the fitting side."""
    if fits(0.0):
        return 0.0
    low = 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
        if high - low < 1e-7 * high:
            break
    return high
