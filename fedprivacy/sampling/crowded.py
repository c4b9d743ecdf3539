"""Truncated Poisson cohorts where the set of the others that take part is shown (T10)."""

from __future__ import annotations

import math

from scipy.special import ndtr

from ..rounding import HUNDREDS, TENS
from .binomial import Interval

_CELLS = 32
"""Parts of the range of ratios below 1 on which the condition is checked."""
_MARGIN = 1e-5
"""Share by which the chance is raised above the least one, so that others find one below it."""
_LARGEST = 1.0 - 1e-6


def crowded_chance(
    mu: float, q: float, full: Interval, near: Interval, taken: Interval
) -> float | None:
    """Return a chance b for which labels "no place", "one place" and "more" dominate a round.

    These are the identity, S(G(mu), b) and S(G(mu), q). The proof and the condition on b are in
    docs/theory/theorems.md, T10. None if there is no such b.

    Args:
        mu: clip norm over the standard deviation of the noise.
        q: probability that a unit is drawn, below 1.
        full: interval of the log-probability t that the other units fill the cohort.
        near: of the log-probability w that the other units leave one place.
        taken: of the log-probability that the others fill it and the unit takes part.
    """
    least = q + math.exp(taken[1] - near[0]) * (1.0 + TENS)
    lost = min(math.exp(taken[1] - full[0]) * (1.0 + TENS), q)
    # The larger w, and the smaller t, the more is asked of b.
    ratio = math.exp(full[0] - near[1]) * (1.0 - TENS)
    if not least < _LARGEST:
        return None

    def gain(b: float, c: float) -> float:
        """Return a lower bound of F(b, b + c) - F(least, q + c)."""
        there, here = _perspective(mu, b, b + c), _perspective(mu, least, q + c)
        return there - here - HUNDREDS * (b + least)

    def serves(b: float) -> bool:
        cells = [-lost * k / _CELLS for k in range(_CELLS + 1)]
        steps = zip(cells[1:], cells[:-1], strict=True)
        return gain(b, 0.0) >= 0.0 and all(gain(b, low) >= ratio * high for low, high in steps)

    if not serves(_LARGEST):
        return None
    low, high = least, _LARGEST
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if serves(middle) else (middle, high)
    raised = min(high * (1.0 + _MARGIN), _LARGEST)
    return raised if serves(raised) else None


def _perspective(mu: float, b: float, v: float) -> float:
    """Return b H_{v/b} of G(mu)."""
    # At ratios of at most 0 it is the difference of the masses.
    if v <= 0.0:
        return b - v
    cut = math.log(v / b) / mu
    return float(b * ndtr(0.5 * mu - cut) - v * ndtr(-0.5 * mu - cut))
