"""Progress bars on standard error, for everything that takes longer than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Steps:
    """A column of progress bars, one for each step of a job."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress.live.is_started:
            self._progress.stop()

    def _bar(self, name: str, total: int | None) -> TaskID:
        # Not started earlier: an empty column would leave an empty line.
        self._progress.start()
        return self._progress.add_task(name, total=total)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show one piece of work of unknown length."""
        task = self._bar(name, None)
        yield
        self._progress.update(task, total=1, completed=1)

    @contextmanager
    def share(self, name: str) -> Iterator[Callable[[float], None]]:
        """Show a share of a piece of work; yield its callback. Without a call there is no bar."""
        bars: list[TaskID] = []

        def tick(share: float) -> None:
            if not bars:
                bars.append(self._bar(name, 100))
            self._progress.update(bars[0], completed=round(100 * share))

        yield tick

    @contextmanager
    def count(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """Show ``total`` pieces of work; yield the callback for each."""
        task = self._bar(name, total)
        yield lambda: self._progress.advance(task)

    @contextmanager
    def rounds(self, name: str, total: int) -> Iterator[Callable[[Any, Any], None]]:
        """Show ``total`` rounds; yield the callback of a training loop after each round."""
        task = self._bar(name, total)

        def tick(state: Any, info: Any) -> None:
            del info
            self._progress.update(task, completed=state.round)

        yield tick
        self._progress.update(task, completed=total)
