"""The largest loss of a pair: the answer if delta is 0, or epsilon infinite.

Pure differential privacy needs the essential supremum of L = log dP/dQ under P. It adds up over
independent rounds. It also caps epsilon at every delta, because delta(epsilon) equals the mass at
infinite loss from the largest finite loss on.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ...rounding import Down, Up, lowered, raised

_EXPONENT = 700.0
"""The largest exponent for which exp does not overflow."""


class MaxLoss(NamedTuple):
    """Certified ends of a pair's largest finite loss, at least 0, and of P's mass at infinity."""

    low: Down
    high: Up
    infinite_low: Down = Down(0.0)
    """At least this much of P has an infinite loss."""
    infinite_high: Up = Up(0.0)
    """At most this much of P has an infinite loss."""

    def epsilon(self, delta: float) -> Up:
        """Return an epsilon that suffices at a delta of at least 0, or inf."""
        return self.high if self.infinite_high <= delta else Up(math.inf)

    def delta(self, epsilon: float) -> Up:
        """Return a delta that suffices at an epsilon, or 1."""
        return self.infinite_high if self.high <= epsilon else Up(1.0)

    @classmethod
    def exactly(cls, loss: float, infinite: float = 0.0) -> MaxLoss:
        """Return a largest loss and a mass at infinity that are exact.

        Args:
            loss: the largest finite loss, at least 0.
            infinite: P's mass at infinite loss, in [0, 1].
        """
        return cls(Down(loss), Up(loss), Down(infinite), Up(infinite))

    @property
    def certain(self) -> Down:
        """Below this no epsilon suffices at delta = 0."""
        return Down(math.inf) if self.infinite_low > 0.0 else self.low

    @property
    def possible(self) -> Up:
        """An epsilon that suffices at delta = 0."""
        return self.epsilon(0.0)


UNKNOWN = MaxLoss(Down(0.0), Up(math.inf), Down(0.0), Up(1.0))
"""The trivial ends for an unknown curve. Renyi divergences of finite orders bound no loss."""
NO_LIMIT = MaxLoss.exactly(math.inf)
"""The ends for Gaussian losses."""


def sampled(loss: float, q: float) -> float:
    """Return log(1 - q + q e^loss)."""
    if loss <= _EXPONENT:
        return math.log1p(q * math.expm1(loss))
    # Beyond doubles, 1 - q is negligible compared with q e^loss.
    return loss + math.log(q)


def log_kept(q: float, loss: float) -> float:
    """Return log(1 - q + q e^-loss), right to a few units of itself."""
    change = q * math.expm1(-loss)
    # Near 0 log1p keeps the digits; farther out two positive terms have all digits.
    return math.log1p(change) if abs(change) < 0.5 else math.log((1.0 - q) + q * math.exp(-loss))


def summed(rounds: Iterable[tuple[MaxLoss, int]]) -> MaxLoss:
    """Return the largest loss of independent rounds, given with their counts."""
    # Many rounds often have one largest loss, so equal values are counted together.
    low, high, shown, possible = (Counter[float]() for _ in range(4))
    for largest, count in rounds:
        low[largest.low] += count
        high[largest.high] += count
        shown[largest.infinite_low] += count
        possible[largest.infinite_high] += count
    infinite = lowered(any_of(shown)), min(raised(any_of(possible)), Up(1.0))
    ends = Down(_exact_sum(low, -math.inf)), Up(_exact_sum(high, math.inf))
    return MaxLoss(*ends, *infinite)


def _exact_sum(counts: Mapping[float, int], towards: float) -> float:
    """Return the sum of value * count, exact except for one rounding, towards an infinity."""
    # Fractions cannot represent infinity.
    if math.inf in counts:
        return math.inf
    exact = sum((Fraction(value) * count for value, count in counts.items()), Fraction(0))
    if abs(exact) > sys.float_info.max:
        far = math.inf if exact > 0 else -math.inf
        return far if far == towards else math.nextafter(far, 0.0)
    found = float(exact)
    off = exact - Fraction(found)
    # Only a sum that was rounded inward is moved; exact sums do not change.
    outward = off > 0 if towards > 0 else off < 0
    return math.nextafter(found, towards) if outward else found


def any_of(counts: Mapping[float, int]) -> float:
    """Return the probability that any of many independent events happens.

    Args:
        counts: numbers of events by their probability.
    """
    # log(0) is not finite, and one certain event makes the result 1.
    if max(counts, default=0.0) >= 1.0:
        return 1.0
    # Subtracted from 0.0, since -expm1(0) would be a negative zero.
    return 0.0 - math.expm1(math.fsum(k * math.log1p(-chance) for chance, k in counts.items()))
