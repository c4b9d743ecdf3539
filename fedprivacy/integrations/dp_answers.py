"""Answers to calls of dp-accounting's interface, with its own answers to the same calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_WIDEST = 100
_MOST_VALUES = 3


@dataclass(frozen=True)
class ServedAnswer:
    """One certified answer.

    Attributes:
        asked: the class and the call.
        about: the composed event, or the privacy-loss distribution.
        ours: the certified number or numbers.
        ask_theirs: computes dp-accounting's own answer to the same call.
    """

    asked: str
    about: str
    ours: Any
    ask_theirs: Callable[[], Any] = field(repr=False, compare=False)

    def theirs(self) -> str:
        """Return dp-accounting's own answer as text; a refusal is named by its type."""
        with uncertified():
            try:
                return _shown(self.ask_theirs())
            except Exception as refusal:  # any exception of another library is its answer
                first = str(refusal).split("\n", maxsplit=1)[0]
                return f"{type(refusal).__name__}: {first}"[:_WIDEST]

    def line(self) -> str:
        """Return the call, both answers, and the object of the question."""
        return f"{self.asked}: {_shown(self.ours)} (theirs {self.theirs()}); {self.about}"


class Answers(list[ServedAnswer]):
    """The answers of one ``certified()`` block, in order.

    Attributes:
        uncertified: what dp-accounting's own code did in the block, and how often.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uncertified: Counter[str] = Counter()

    def lines(self) -> Iterator[str]:
        """Yield the report. Equal answers share a line."""
        times = Counter((each.asked, each.about, _shown(each.ours)) for each in self)
        first = {(each.asked, each.about, _shown(each.ours)): each for each in self}
        yield f"fedprivacy certified {len(self)} answers of dp-accounting's interface:"
        for key, answer in first.items():
            often = f" ({times[key]} times)" if times[key] > 1 else ""
            yield f"  {answer.line()}{often}"
        for what, count in self.uncertified.items():
            yield f"  NOT certified, dp-accounting's own: {what} ({count} times)"


def _shown(value: Any) -> str:
    if np.ndim(value) == 0:
        return f"{float(value):.6g}"
    values = np.ravel(value)
    more = f", ... ({len(values)} values)" if len(values) > _MOST_VALUES else ""
    return "[" + ", ".join(f"{each:.6g}" for each in values[:_MOST_VALUES]) + more + "]"


def short(text: str) -> str:
    """Return a text of at most 100 characters."""
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


OPEN: list[Answers] = []
"""The open ``certified()`` block, if there is one."""

_THEIRS: ContextVar[bool] = ContextVar("theirs", default=False)
_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def uncertified() -> Iterator[None]:
    """Let dp-accounting's own code answer inside, also within a ``certified()`` block."""
    token = _THEIRS.set(True)
    try:
        yield
    finally:
        _THEIRS.reset(token)


def substituting() -> bool:
    """Return whether dp-accounting's names mean the certified ones here."""
    return bool(OPEN) and not _THEIRS.get()


@contextmanager
def silent() -> Iterator[None]:
    """Record no answers inside: they are part of another answer."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def note(asked: str, about: object, ours: Any, ask_theirs: Callable[[], Any]) -> None:
    """Record an answer in the open block, if there is one."""
    if substituting() and not _SILENT.get():
        OPEN[-1].append(ServedAnswer(asked, short(str(about)), ours, ask_theirs))
