"""Until when an answer is wanted: kept inside an attempt too, wherever much is computed.

A context variable, so that neither curves nor lattices pass a time along that they do not use, and
threads do not see each other's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_UNTIL: ContextVar[float] = ContextVar("until", default=math.inf)


class LateError(Exception):
    """The time is up: what was asked for would come too late."""


def now() -> float:
    """Return seconds of a clock that never goes back: every deadline is measured by it."""
    return time.monotonic()


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raise ``LateError`` from ``tick`` after so many seconds; None lifts every limit."""
    token = _UNTIL.set(math.inf if seconds is None else now() + seconds)
    try:
        yield
    finally:
        _UNTIL.reset(token)


@contextmanager
def no_less(seconds: float) -> Iterator[None]:
    """Let the time not be up for so many seconds: less is not worth a poorer answer."""
    token = _UNTIL.set(max(_UNTIL.get(), now() + seconds))
    try:
        yield
    finally:
        _UNTIL.reset(token)


def left() -> float:
    """Return how many seconds are left, infinity without a limit."""
    return _UNTIL.get() - now()


def over() -> None:
    """Let the time be up: what is left of it is too little for what comes next."""
    _UNTIL.set(-math.inf)


def tick() -> None:
    """Go on, unless it is too late.

    Raises:
        LateError: the time is up.
    """
    if left() < 0.0:
        raise LateError
