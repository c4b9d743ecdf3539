"""Sampling without replacement with adaptive rounds: sharper bounds than the fold's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from ..loss import Curve, orientations
from ..loss.strategies import adaptive_adversary
from ..loss.strategies.queries import DeltaAt, EpsilonAt, Interval, Question
from ..loss.strategies.search import interval
from ..privacy_loss import PrivacyLoss
from .base import NOTHING, Answer
from .pld import PldAccountant


class GameAccountant(PldAccountant):
    """Like "pld", and sharper if every round is one of a family of pairs.

    This applies to ``FixedSize`` under ``replace_one`` and ``zero_out``, with one Gaussian sum in
    each round and the same setting in all rounds. Both ends then approach each other until they are
    within the tolerance (``loss.strategies.adaptive_adversary``). The lower end is attained by data
    that follow the earlier releases. The accountant "pld" answers every other question.
    """

    name: ClassVar[str] = "game"
    # Games are played only at a fixed delta.
    spares: ClassVar[bool] = False

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        def ask(curve: Curve) -> Question:
            return EpsilonAt.of(curve, delta, self.tolerance, 0.0)

        return self._refined(loss, super()._epsilon(loss, delta), ask)

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        def ask(curve: Curve) -> Question:
            return DeltaAt(curve, self.tolerance, 0.0, epsilon)

        return self._refined(loss, super()._delta(loss, epsilon), ask)

    def _refined(
        self, loss: PrivacyLoss, folded: Answer, ask: Callable[[Curve], Question]
    ) -> Answer:
        if not adaptive_adversary.serves(ask(loss.curve)):
            return folded
        both: list[Interval] = []
        for curve in orientations(loss.curve):
            # Whether attained or not: no end can lie below the value of a single pair.
            attained = interval(ask(adaptive_adversary.alone(curve))).low
            # The fold of one order may lose far less than that of the other.
            known = interval(ask(curve))
            known = known._replace(high=min(known.high, folded.upper))
            floor = max((one.low for one in both), default=NOTHING)
            both.append(adaptive_adversary.refine(ask(curve), known, attained, floor))
        # The worse order counts, with the larger of the two lower ends.
        worst = max(both, key=lambda one: one.high)
        found = worst._replace(low=max(one.low for one in both))
        shown = NOTHING if loss.witness is None else found.low
        return replace(
            folded,
            upper=found.high,
            low=found.low,
            attained=shown,
            method=found.method,
            reason=found.reason,
            datasets=adaptive_adversary.plan(loss.curve) if shown > folded.attained else "",
        )
