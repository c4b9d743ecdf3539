"""The largest loss of a pair: the answer if delta is 0, or epsilon infinite.

Pure differential privacy needs the essential supremum of L = log dP/dQ under P. It adds up over
independent rounds. It also caps epsilon at every delta, because delta(epsilon) equals the mass at
infinite loss from the largest finite loss on.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import NamedTuple

from ...rounding import FEW

_EXPONENT = 700.0
"""The largest exponent for which exp does not overflow."""


class MaxLoss(NamedTuple):
    """Certified ends of a pair's largest finite loss, at least 0, and of P's mass at infinity."""

    low: float
    high: float
    infinite_low: float = 0.0
    """At least this much of P has an infinite loss."""
    infinite_high: float = 0.0
    """At most this much of P has an infinite loss."""

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that suffices at a delta of at least 0, or inf."""
        return self.high if self.infinite_high <= delta else math.inf

    def delta(self, epsilon: float) -> float:
        """Return a delta that suffices at an epsilon, or 1."""
        return self.infinite_high if self.high <= epsilon else 1.0

    @property
    def certain(self) -> float:
        """Below this no epsilon suffices at delta = 0."""
        return math.inf if self.infinite_low > 0.0 else self.low

    @property
    def possible(self) -> float:
        """An epsilon that suffices at delta = 0."""
        return self.epsilon(0.0)


UNKNOWN = MaxLoss(0.0, math.inf, 0.0, 1.0)
"""The trivial ends for an unknown curve. Renyi divergences of finite orders bound no loss."""
NO_LIMIT = MaxLoss(math.inf, math.inf)
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


def exact_sum(terms: list[tuple[float, int]], towards: float) -> float:
    """Return the exact sum of value * count, rounded once, towards an end."""
    # Fractions cannot represent infinity.
    if any(math.isinf(value) for value, _ in terms):
        return math.inf
    exact = sum((Fraction(value) * count for value, count in terms), Fraction(0))
    if abs(exact) > sys.float_info.max:
        far = math.inf if exact > 0 else -math.inf
        return far if far == towards else math.nextafter(far, 0.0)
    found = float(exact)
    off = exact - Fraction(found)
    # Only a sum that was rounded inward is moved; exact sums do not change.
    outward = off > 0 if towards > 0 else off < 0
    return math.nextafter(found, towards) if outward else found


def any_of(terms: list[tuple[float, int]]) -> float:
    """Return the probability that any of many independent events happens."""
    # log(0) is not finite, and one certain event makes the result 1.
    if any(chance >= 1.0 for chance, _ in terms):
        return 1.0
    # Subtracted from 0.0, since -expm1(0) would be a negative zero.
    return 0.0 - math.expm1(math.fsum(count * math.log1p(-chance) for chance, count in terms))


def lowered(value: float) -> float:
    """Return a value with a few rounding errors, lowered by more than these errors."""
    return value - FEW * abs(value) if math.isfinite(value) else value


def raised(value: float) -> float:
    """Return a value with a few rounding errors, raised by more than these errors."""
    return value + FEW * abs(value) if math.isfinite(value) else value
