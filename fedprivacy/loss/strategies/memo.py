"""A cache of answers within a block.

An audit needs many numbers of one run. A scheme queries one mechanism for its pair, its adjacencies
and its descriptions. Runs with equal noise have equal curves. Outside a block there is no cache.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")

Answers = dict[Hashable, Any]
"""Cached answers by question."""

# One cache for each context: threads do not see each other's answers.
_KNOWN: ContextVar[Answers | None] = ContextVar("known", default=None)


@contextmanager
def answered_once(answers: Answers | None = None) -> Iterator[None]:
    """Within the block, answer equal questions once.

    Args:
        answers: known answers; new answers are added to it. With None, the block uses the cache of
            an enclosing block, or an empty one.
    """
    known = _KNOWN.get() if answers is None else answers
    before = _KNOWN.set({} if known is None else known)
    try:
        yield
    finally:
        _KNOWN.reset(before)


def answers() -> Answers | None:
    """Return the cache of the block; None outside of a block."""
    return _KNOWN.get()


@contextmanager
def uncollected() -> Iterator[None]:
    """Within the block, Python does not look for cycles of unused objects.

    A run of 10,000 different rounds makes a million objects that stay in use. The searches among
    them would take as long as the account.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def remembered(
    question: Hashable, answer: Callable[[], _T], lasting: Callable[[_T], bool] = lambda _: True
) -> _T:
    """Return the answer, computed unless the block has it.

    Args:
        question: all values that the answer depends on. An unhashable question may change, so it is
            never cached.
        answer: computes it.
        lasting: whether an answer may be kept; an answer cut short by a deadline may not.
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
