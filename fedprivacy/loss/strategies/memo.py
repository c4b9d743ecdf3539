"""Answers that are remembered within a block.

An audit asks the same run for many numbers, a scheme asks the same mechanism for its pair, for what
it serves and for its words, and runs with the same noise have the same curve. Outside of a block
nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")

Answers = dict[Hashable, Any]
"""What was answered, by the question."""

# One for each context: threads do not see each other's answers.
_KNOWN: ContextVar[Answers | None] = ContextVar("known", default=None)


@contextmanager
def answered_once(answers: Answers | None = None) -> Iterator[None]:
    """Within the block, answer equal questions once.

    Args:
        answers: what is known, which keeps what is answered; None: what an enclosing block knows,
            or nothing.
    """
    known = _KNOWN.get() if answers is None else answers
    before = _KNOWN.set({} if known is None else known)
    try:
        yield
    finally:
        _KNOWN.reset(before)


def remembered(
    question: Hashable, answer: Callable[[], _T], lasting: Callable[[_T], bool] = lambda _: True
) -> _T:
    """Return the answer, computed unless the block knows it.

    Args:
        question: all that the answer depends on; what has no hash may change, and is asked again.
        answer: computes it.
        lasting: whether an answer may be kept; one that came for lack of time may not.
    """
    known = _KNOWN.get()
    if known is None:
        return answer()
    try:
        there = question in known
    except TypeError:  # it has no hash
        return answer()
    found: _T = known[question] if there else answer()
    if not there and lasting(found):
        known[question] = found
    return found
