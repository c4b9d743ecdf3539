"""Progress on standard error, for everything that takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import Any, Self

_WIDTH, _PERIOD = 30, 0.1
"""Characters of a bar, and the seconds after which a bar on a terminal is drawn again."""


class Bar:
    """The line of one step: its name, a bar if its length is known, and the seconds it took.

    On a terminal the line is drawn again while the step goes on, otherwise only at its end.

    Args:
        name: name of the step.
        total: length of the step; None if unknown.
    """

    def __init__(self, name: str, total: int | None) -> None:
        self.name, self.total, self.done = name, total, 0
        self._began, self._drawn, self._ended = monotonic(), -1.0, False
        self._draw()

    def advance(self, done: int) -> None:
        """Set how much is done."""
        self.done = done
        if monotonic() - self._drawn >= _PERIOD:
            self._draw()

    def end(self) -> None:
        """Write the line for the last time."""
        if not self._ended:
            self._ended = True
            self._draw()

    def line(self) -> str:
        """Return the line."""
        seconds = int(monotonic() - self._began)
        line = f"{self.name:<28} "
        if self.total is not None:
            full = _WIDTH * self.done // max(self.total, 1)
            line += f"[{'#' * full:.<{_WIDTH}}] {self.done}/{self.total} "
        return f"{line}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def _draw(self) -> None:
        self._drawn, terminal = monotonic(), sys.stderr.isatty()
        if self._ended or terminal:
            begin, end = "\r" if terminal else "", "\n" if self._ended else ""
            print(f"{begin}{self.line()}", end=end, file=sys.stderr, flush=True)


class Steps:
    """The steps of a job, one after the other, each with a line of its own."""

    def __init__(self) -> None:
        self._open: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error the line shows how far the step came.
        self._end()

    def _bar(self, name: str, total: int | None) -> Bar:
        self._end()
        self._open = Bar(name, total)
        return self._open

    def _end(self) -> None:
        if self._open is not None:
            self._open.end()
        self._open = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show one piece of work of unknown length."""
        self._bar(name, None)
        yield
        self._end()

    @contextmanager
    def share(self, name: str) -> Iterator[Callable[[float], None]]:
        """Show a share of a piece of work; yield its callback. Without a call there is no bar."""
        bars: list[Bar] = []

        def tick(share: float) -> None:
            if not bars:
                bars.append(self._bar(name, 100))
            bars[0].advance(round(100 * share))

        yield tick
        self._end()

    @contextmanager
    def count(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """Show ``total`` pieces of work; yield the callback for each."""
        bar = self._bar(name, total)
        yield lambda: bar.advance(bar.done + 1)
        self._end()

    @contextmanager
    def rounds(self, name: str, total: int) -> Iterator[Callable[[Any, Any], None]]:
        """Show ``total`` rounds; yield the callback of a training loop after each round."""
        bar = self._bar(name, total)

        def tick(state: Any, info: Any) -> None:
            del info
            bar.advance(state.round)

        yield tick
        bar.done = total
        self._end()
