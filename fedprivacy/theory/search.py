"""Search for the first integer that meets a condition."""

from __future__ import annotations

from collections.abc import Callable


def first(meets: Callable[[int], bool], start: int) -> int:
    """Return the first integer from ``start`` on that meets a monotone condition.

    The condition is true for all integers above the first one that meets it.
    """
    low, step = start - 1, 1
    # Doubling finds an upper end; bisection then finds the first.
    while not meets(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high
