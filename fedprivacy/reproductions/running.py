"""Run cells of a figure or table; finished cells are read from the folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import integer, listed, refuse, require
from .base import CellRun, Figure, FigureCell, Values, named, read_result, write_result

Tick = Callable[[float], None]
Share = Callable[[str], AbstractContextManager[Tick]]


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """The numbers of one cell, with the paper's.

    Args:
        cell: name of the cell.
        values: quantity -> number of this run; None if it has none.
        printed: quantity -> number that the paper prints.
        seconds: processor seconds of the run, of its last part if it was interrupted.
        recorded: whether it was read from the folder.
    """

    cell: str
    values: Values
    printed: dict[str, float]
    seconds: float
    recorded: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Cells to be run.

    Args:
        figure: the figure or table.
        cells: its cells.
        folder: folder of the results.
        seed: seed of every run.
        quick: shorter runs.
        data: name of the data set; empty if the data are made up.
        data_dir: folder of its files.

    Raises:
        ParameterError: a value breaks its rule.
    """

    figure: Figure
    cells: tuple[FigureCell, ...]
    folder: Path
    seed: int = 1
    quick: bool = False
    data: str = ""
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        integer(0, seed=self.seed)
        require(self.seed < 2**31, "seed", self.seed, "be below 2^31")
        require(self.cells, "cells", self.cells, "name at least one cell")
        rule = f"be one of {listed(self.figure.data)} for {self.figure.name}"
        if not self.figure.data:
            rule = f"be left out for {self.figure.name}, whose data are made up"
        require(self.data in (self.figure.data or ("",)), "data", self.data, rule)
        rule = f"be left out for {self.figure.name}, whose data are made up"
        require(self.data or self.data_dir is None, "data_dir", str(self.data_dir), rule)

    def facts(self, cell: FigureCell) -> dict[str, Any]:
        """Return the facts of a cell's result."""
        own = {"seed": self.seed, "quick": self.quick, "data": self.data}
        return {"figure": self.figure.name, "cell": cell.name, "settings": cell.settings, **own}

    def path(self, cell: FigureCell) -> Path:
        """Return the path of a cell's result."""
        name = f"{named(cell.name, self.facts(cell))}.json"
        return self.folder.joinpath(*self.figure.name.split("/"), name)

    def recorded(self, cell: FigureCell) -> CellResult | None:
        """Return a finished cell, or None.

        Raises:
            ParameterError: the result is damaged, or of another setting.
        """
        found = read_result(self.path(cell), self.facts(cell))
        if found is None:
            return None
        return self._ran(cell, found["values"], found["seconds"], recorded=True)

    @property
    def left(self) -> list[FigureCell]:
        """The cells that are not finished."""
        return [cell for cell in self.cells if self.recorded(cell) is None]

    @property
    def seconds(self) -> float:
        """Processor seconds of the cells that are not finished, about."""
        return sum(cell.quick_seconds if self.quick else cell.seconds for cell in self.left)

    def run(self, share: Share) -> Iterator[CellResult]:
        """Yield every cell's numbers; a cell that is not finished is run, or continued.

        Args:
            share: shows the share of a cell that is done.

        Raises:
            LedgerError: another process runs cells of this folder.
            ParameterError: a result is of another setting, or data are missing.
        """
        # All results first: one of another setting must not be found after hours.
        left = {cell.name for cell in self.left}
        with _alone(self.folder):
            for cell in self.cells:
                done = None if cell.name in left else self.recorded(cell)
                yield self._run(cell, share) if done is None else done

    def _run(self, cell: FigureCell, share: Share) -> CellResult:
        with share(cell.name) as tick:
            return self._computed(cell, tick)

    def _computed(self, cell: FigureCell, tick: Tick) -> CellResult:
        job = CellRun(
            cell=cell,
            folder=self.folder / self.figure.paper / "progress",
            seed=self.seed,
            quick=self.quick,
            data=self.data,
            data_dir=self.data_dir,
            tick=tick,
        )
        path, begun = self.path(cell), time.process_time()
        path.parent.mkdir(parents=True, exist_ok=True)
        # The bar begins now: not every cell says how far it is.
        tick(0.0)
        values = self.figure.work_of()(job)
        tick(1.0)
        seconds = round(time.process_time() - begun, 2)
        write_result(path, self.facts(cell), {"values": values, "seconds": seconds})
        return self._ran(cell, values, seconds, recorded=False)

    def _ran(
        self, cell: FigureCell, values: Values, seconds: float, *, recorded: bool
    ) -> CellResult:
        return CellResult(
            cell=cell.name,
            values=values,
            printed=dict(cell.printed),
            seconds=seconds,
            recorded=recorded,
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of the folder, whose runs continue from their files.

    Raises:
        ParameterError: another process runs cells of this folder.
    """
    import portalocker

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a", encoding="utf-8") as file:
        try:
            portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked:
            rule = "be free, but another process runs cells in it"
            refuse("folder", str(folder), rule, "wait for it, or name another --folder")
        yield


def chosen(figure: Figure, names: list[str]) -> tuple[FigureCell, ...]:
    """Return the cells with these names, all without names.

    Raises:
        ParameterError: an unknown name.
    """
    known = {cell.name: cell for cell in figure.cells}
    for name in names:
        if name not in known:
            refuse("cells", name, f"be of {figure.name}: {listed(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) if names else figure.cells
