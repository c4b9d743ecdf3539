"""The deadline of an answer, checked wherever much is computed.

It is a context variable. Curves and lattices need not pass it along, and threads do not share it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_UNTIL: ContextVar[float] = ContextVar("until", default=math.inf)


class LateError(Exception):
    """The deadline has passed."""


def now() -> float:
    """Return seconds of a monotonic clock, by which every deadline is measured."""
    return time.monotonic()


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Let ``check_deadline`` raise after so many seconds; None removes the limit."""
    token = _UNTIL.set(math.inf if seconds is None else now() + seconds)
    try:
        yield
    finally:
        _UNTIL.reset(token)


@contextmanager
def no_less(seconds: float) -> Iterator[None]:
    """Put the deadline off to at least so many seconds from now."""
    token = _UNTIL.set(max(_UNTIL.get(), now() + seconds))
    try:
        yield
    finally:
        _UNTIL.reset(token)


def left() -> float:
    """Return how many seconds are left, infinity without a limit."""
    return _UNTIL.get() - now()


def over() -> None:
    """Let the deadline pass now, because the next step would take longer than the time left."""
    _UNTIL.set(-math.inf)


def check_deadline() -> None:
    """Check that the deadline has not passed.

    Raises:
        LateError: it has.
    """
    if left() < 0.0:
        raise LateError
