"""Answers that are remembered within a block.

A report asks the curves of its runs for many numbers, and runs with the same noise have the same
curve. Outside of a block nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")

# One for each context: threads do not see each other's answers.
_KNOWN: ContextVar[dict[Hashable, Any] | None] = ContextVar("known", default=None)


@contextmanager
def answered_once() -> Iterator[None]:
    """Within the block, answer an equal question about an equal curve once."""
    before = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(before)


def remembered(
    question: Hashable, answer: Callable[[], _T], lasting: Callable[[_T], bool] = lambda _: True
) -> _T:
    """Return the answer, computed unless the block knows it.

    Args:
        question: all that the answer depends on.
        answer: computes it.
        lasting: whether an answer may be kept; one that came for lack of time may not.
    """
    known = _KNOWN.get()
    if known is None:
        return answer()
    if question in known:
        found: _T = known[question]
        return found
    found = answer()
    if lasting(found):
        known[question] = found
    return found
