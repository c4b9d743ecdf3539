"""Renyi differential privacy: moments added up, converted at the best order."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import ClassVar

from ..loss import Composed, Curve, compose
from ..loss.profiles.convolution import golden
from ..loss.profiles.direct import TINY
from ..loss.rounding import FEW
from ..privacy_loss import PrivacyLoss
from .base import Accountant, Answer, orientations


class RdpAccountant(Accountant):
    """Adds Renyi divergences and converts them by Canonne, Kamath and Steinke (2020), Prop. 12.

    For every order a > 1: epsilon = rdp + log(1 - 1/a) - (log delta + log a) / (a - 1). The order
    is searched continuously; any order gives a valid bound, so the search needs no guarantee.
    """

    name: ClassVar[str] = "rdp"

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        def at(curve: Curve, order: float) -> float:
            power = order - 1.0
            terms = (curve.log_moment(order) / power, math.log1p(-1.0 / order))
            gains = (-math.log(delta) / power, -math.log(order) / power)
            return max(_sum_up((*terms, *gains)), 0.0)

        value, order = _worse_orientation(loss.curve, at)
        return Answer(value, method=f"RDP, order {order:.5g}")

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        def at(curve: Curve, order: float) -> float:
            power = order - 1.0
            terms = (curve.log_moment(order), -power * epsilon)
            return _sum_up((*terms, power * math.log1p(-1.0 / order), -math.log(order)))

        value, order = _worse_orientation(loss.curve, at)
        return Answer(
            max(math.exp(min(value, 0.0)) * (1.0 + FEW), TINY), method=f"RDP, order {order:.5g}"
        )


def _sum_up(terms: tuple[float, ...]) -> float:
    """Return a sum of terms that are right to a few units, rounded up; inf for no number."""
    if not all(map(math.isfinite, terms)):
        return math.inf
    return math.fsum(terms) + FEW * math.fsum(map(abs, terms))


def _worse_orientation(curve: Curve, at: Callable[[Curve, float], float]) -> tuple[float, float]:
    """Return (value, order) of the orientation that loses more.

    Of many kinds of rounds a few stand for all while the order is searched: any order is valid, so
    that a guess costs no certainty.
    """
    few = _thinned(curve)
    if few is curve:
        return max(_best_order(functools.partial(at, turned)) for turned in orientations(curve))
    found = []
    for turned, thin in zip(orientations(curve), orientations(few), strict=False):
        power = _best_order(functools.partial(at, thin))[1] - 1.0
        low, high = (share * power for share in _NEARBY)
        whole = functools.partial(at, turned)
        order = 1.0 + golden(lambda x, ask=whole: _finite(ask(1.0 + x)), low, high, 6)  # type: ignore[misc]
        found.append(min((_finite(whole(each)), each) for each in (order, 1.0 + power)))
    return max(found)


_NEARBY = (0.85, 1.2)
"""Between these shares of the order found for a few kinds one is searched for all."""
_MANY = 64
"""From so many kinds of rounds on some stand for the others while the order is searched."""


def _thinned(curve: Curve) -> Curve:
    """Return a composition in which every so many kinds are stood for by one of them."""
    if not isinstance(curve, Composed) or len(curve.parts) <= _MANY:
        return curve
    step = math.ceil(len(curve.parts) / (_MANY // 4))
    groups = (curve.parts[i : i + step] for i in range(0, len(curve.parts), step))
    kept = ((group[len(group) // 2][0], sum(count for _, count in group)) for group in groups)
    few = compose(kept)
    return few if few.symmetric == curve.symmetric else curve


def _best_order(at: Callable[[float], float]) -> tuple[float, float]:
    """Return (smallest value found, its order), over orders 1 + 1e-4 ... 1 + 1e6."""
    grid = [1.0 + 10.0 ** (k / 3.0) for k in range(-12, 19)]
    values: list[float] = []
    for order in grid:
        values.append(_finite(at(order)))
        if len(values) > 9 and values[-1] > values[-2] > values[-3] > values[-4]:
            break
    best = min(range(len(values)), key=values.__getitem__)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(values) - 1)]
    refined = 1.0 + golden(lambda x: _finite(at(1.0 + x)), low - 1.0, high - 1.0, 24)
    return min((values[best], grid[best]), (_finite(at(refined)), refined))


def _finite(value: float) -> float:
    return math.inf if math.isnan(value) else value
