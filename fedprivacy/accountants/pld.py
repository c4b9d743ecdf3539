"""Privacy-loss distributions: a certified interval around the dominating pair's number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from ..loss import Composed, Curve, Side
from ..loss.composition import Composition
from ..loss.lattice import TooLarge
from ..privacy_loss import PrivacyLoss
from . import direct
from .base import Accountant, Answer, orientations

_ROUNDS = 10
_COARSE = "the asked tolerance would need a lattice of more than 2 million points"


class PldAccountant(Accountant):
    """Composes rounded privacy-loss distributions by Fourier transform.

    Both ends are certified: one lattice dominates the pair, another is dominated by it (see
    ``fedprivacy.loss.lattice``), and every error of the convolution is added to the one and taken
    from the other (see ``fedprivacy.loss.composition``). The lattice is refined until the interval
    is as narrow as ``tolerance``.
    """

    name: ClassVar[str] = "pld"

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        def ask(composition: Composition) -> float:
            return composition.epsilon(delta)

        def ask_one(curve: Curve, side: Side) -> float:
            return direct.epsilon(curve, delta, side)

        def narrow(low: float, high: float) -> float:
            return (high - low) / self.tolerance

        return _interval(loss, ask, ask_one, narrow, delta, self.tolerance)

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        def ask(composition: Composition) -> float:
            return composition.delta(epsilon)

        def ask_one(curve: Curve, side: Side) -> float:
            return float(direct.delta(curve, np.array([epsilon]), side)[0])

        def narrow(low: float, high: float) -> float:
            return (high - low) / (self.tolerance * high) if high > 1e-30 else 0.0

        return _interval(loss, ask, ask_one, narrow, _scale(loss.curve, epsilon), self.tolerance)


def _scale(curve: Curve, epsilon: float) -> float:
    """Return a number well below delta(epsilon), to say which tails can be left out."""
    exponents = [curve.log_moment(a) - (a - 1.0) * epsilon for a in (1.5, 3.0, 8.0, 24.0, 80.0)]
    return math.exp(min(max(min(exponents) - 10.0, -600.0), 0.0))


Ask = Callable[[Composition], float]
AskOne = Callable[[Curve, Side], float]


def _interval(
    loss: PrivacyLoss,
    ask: Ask,
    ask_one: AskOne,
    excess: Callable[[float, float], float],
    delta: float,
    tolerance: float,
) -> Answer:
    """Bracket the worse orientation of the dominating pair, then the attained pair from below."""
    curves = orientations(loss.curve)
    method = "PLD, lattice composition"
    if not isinstance(loss.curve, Composed):
        step, reason, method = 0.0, "", "PLD, one curve's tails"
        low = max(ask_one(curve, Side.DOWN) for curve in curves)
        high = max(ask_one(curve, Side.UP) for curve in curves)
    else:
        low, high, step, reason = _refine(loss.curve, curves, ask, excess, delta, tolerance)
    attained = 0.0
    if loss.witness is not None:
        attained = low
        if loss.witness.curve != loss.curve:
            attained = _attained(loss.witness.curve, ask, ask_one, step, delta)
    return Answer(high, min(low, high), min(attained, high), method, reason)


def _attained(curve: Curve, ask: Ask, ask_one: AskOne, step: float, delta: float) -> float:
    """Return an attained pair's lower end, refined while that gains a thousandth."""
    turned = orientations(curve)
    if not isinstance(curve, Composed):
        return max(ask_one(one, Side.DOWN) for one in turned)
    best = 0.0
    try:
        for finer in (1.0, 0.5, 0.25):
            before = best
            found = max(_at(one, finer * step, Side.DOWN, ask, delta) for one in turned)
            best = max(found, before)
            if best <= 1.001 * before:
                break
    except TooLarge:
        pass
    return best


def _at(curve: Curve, step: float, side: Side, ask: Ask, delta: float) -> float:
    assert isinstance(curve, Composed)
    return ask(curve.composition(step, side, max(1e-7 * delta, 1e-290)))


def _refine(
    whole: Composed,
    curves: tuple[Curve, ...],
    ask: Ask,
    excess: Callable[[float, float], float],
    delta: float,
    tolerance: float,
) -> tuple[float, float, float, str]:
    """Refine until the bracket is narrow enough; return (low, high, step, why it is not).

    An orientation whose upper end lies below the other's lower end is not asked again.
    """
    step = math.sqrt(tolerance / (4.0 * whole.count))
    best, best_step, floor, reason = (0.0, math.inf), step, 0.0, ""
    too_wide = math.inf
    for _ in range(_ROUNDS):
        try:
            lows = [_at(curve, step, Side.DOWN, ask, delta) for curve in curves]
            highs = [_at(curve, step, Side.UP, ask, delta) for curve in curves]
        except TooLarge:
            floor, reason = step, _COARSE
            step = 4.0 * step if math.isinf(best[1]) else math.sqrt(step * best_step)
            continue
        low, high = max(lows), max(highs)
        curves = tuple(curve for curve, top in zip(curves, highs, strict=True) if top >= low)
        best, best_step = (max(low, best[0]), min(high, best[1])), step
        before, too_wide = too_wide, excess(*best)
        if too_wide <= 1.0:
            return *best, best_step, ""
        if too_wide > 0.8 * before and math.isfinite(before):
            break
        ratio = 0.85 / math.sqrt(too_wide) if math.isfinite(too_wide) else 0.25
        step = max(step * min(max(ratio, 1 / 32), 0.7), 1.01 * floor)
        if floor and step > 0.9 * best_step:
            break
    return *best, best_step, reason or "the asked tolerance was not reached by refining"
