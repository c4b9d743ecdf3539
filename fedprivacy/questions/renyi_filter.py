"""A Renyi filter: the budget rule if the next round depends on earlier outputs."""

from __future__ import annotations

import math

from ..accountants.base import counted
from ..loss import Curve
from ..privacy_loss import PrivacyLoss, merge_facts
from ..relations import Facts
from ..rounding import FEW, rounded_up


class RenyiFilter:
    """Sums divergences at one fixed order, separately for both orientations.

    The total variation of the rounds' sampled laws adds up as well. Its total may use at most
    ``spare`` of delta.
    """

    def __init__(self, first: Curve, epsilon: float, delta: float, spare: float) -> None:
        self.epsilon, self.spare, self.off = epsilon, spare, 0.0
        # Eight orders a decade. The number of rounds that fit hardly differs between neighbours.
        orders = [1.0 + 10.0 ** (k / 8.0) for k in range(-8, 25)]
        # The order must be fixed before any release, so the first round decides.
        self.order = max(orders, key=lambda a: self._rounds(first, a, epsilon, delta))
        self.limit = self._limit(self.order, epsilon, delta)
        self.total = [0.0, 0.0]
        # Facts of all spent rounds; None before the first round.
        self.facts: Facts | None = None
        self._known: dict[Curve, tuple[float, float]] = {}

    @staticmethod
    def _limit(order: float, epsilon: float, delta: float) -> float:
        """Return the largest divergence of this order that implies (epsilon, delta), rounded down.

        Every term is accurate to a few units in the last place.
        """
        power = order - 1.0
        gains = (math.log(delta) / power, math.log(order) / power)
        terms = (epsilon, -math.log1p(-1.0 / order), *gains)
        return math.fsum(terms) - FEW * math.fsum(map(abs, terms))

    def _rounds(self, curve: Curve, order: float, epsilon: float, delta: float) -> float:
        cost = max(self._cost(curve, order))
        # A round of cost 0 fits any number of times.
        return self._limit(order, epsilon, delta) / cost if cost > 0 else math.inf

    @staticmethod
    def _cost(curve: Curve, order: float) -> tuple[float, float]:
        """Return the divergences of both orientations, rounded up."""
        up = (1.0 + FEW) / (order - 1.0)
        forward, backward = (one.moments().log_moment(order) for one in (curve, curve.swap()))
        return _number(forward * up), _number(backward * up)

    def _cost_here(self, curve: Curve) -> tuple[float, float]:
        if curve not in self._known:
            self._known[curve] = self._cost(curve, self.order)
        return self._known[curve]

    def allows(self, loss: PrivacyLoss, count: int = 1) -> bool:
        """Return whether both orientations stay within the limit after ``count`` more rounds.

        Raises:
            ParameterError: the rounds have another unit than the rounds spent before.
        """
        self._together(loss)
        room = counted(self.off + count * loss.off, self.epsilon) <= self.spare
        return room and all(total <= self.limit for total in self._after(loss, count))

    @property
    def kept(self) -> bool:
        """Whether the total is within the limit."""
        return self.off <= self.spare and max(self.total) <= self.limit

    def spend(self, loss: PrivacyLoss, count: int = 1) -> None:
        """Add the divergences of ``count`` rounds."""
        self.facts = self._together(loss)
        self.total = self._after(loss, count)
        self.off = rounded_up(self.off + count * loss.off)

    def _together(self, loss: PrivacyLoss) -> Facts:
        return loss.facts if self.facts is None else merge_facts(self.facts, loss.facts)

    def _after(self, loss: PrivacyLoss, count: int) -> list[float]:
        """Return the sums after ``count`` more rounds, rounded up."""
        cost = self._cost_here(loss.curve)
        return [rounded_up(t + count * c) for t, c in zip(self.total, cost, strict=True)]


def _number(divergence: float) -> float:
    """Return a divergence; infinity for NaN."""
    return math.inf if math.isnan(divergence) else max(divergence, 0.0)
