"""Sums of mechanisms, which are listed when their parts are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Mechanism, Run


def together(parts: Iterable[tuple[Mechanism, int]]) -> tuple[tuple[Mechanism, int], ...]:
    """Return parts in sequence with equal parts merged. Composition does not depend on order."""
    counts: dict[object, tuple[Mechanism, int]] = {}
    for part, count in parts:
        # Equal parts may have different losses.
        key = part if part._equals_lose_alike else id(part)
        counts[key] = part, counts.get(key, (part, 0))[1] + count
    return tuple(counts.values())


def listed(run: Run) -> Iterator[tuple[Mechanism, int]]:
    """Yield the parts of a sum in order, without recursion: sums of many terms are nested."""
    waiting = [run]
    while waiting:
        one = waiting.pop()
        # The terms are read first: they are dropped only after the parts are there.
        terms: tuple[Run, Run] | None = getattr(one, "_terms", None)
        if terms is None or "parts" in vars(one):
            yield from one.parts
        else:
            waiting += reversed(terms)
