"""Results that a frozen object computes once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")

_MARK = "_kept_"


def kept(method: Callable[[S], T]) -> Callable[[S], T]:
    """Return a method without arguments that computes its result once for each object.

    Use it only if the result follows from the fields, and if neither is ever changed. Two threads
    that ask at the same time may both compute it. ``without_kept`` leaves it out of copies.
    """
    name = _MARK + method.__name__

    @functools.wraps(method)
    def once(self: S) -> T:
        known: dict[str, Any] = self.__dict__
        try:
            found: T = known[name]
        except KeyError:
            found = known[name] = method(self)
        return found

    return once


def without_kept(value: object) -> dict[str, Any]:
    """Return an object's attributes without kept results; these may hold functions."""
    return {key: held for key, held in vars(value).items() if not key.startswith(_MARK)}
