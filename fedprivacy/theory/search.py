"""The first whole number that meets a condition."""

from __future__ import annotations

from collections.abc import Callable


def first(meets: Callable[[int], bool], start: int) -> int:
    """Return the first whole number from ``start`` that meets a condition true from there on."""
    low, step = start - 1, 1
    # Doubling finds an upper end, halving the first.
    while not meets(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high
