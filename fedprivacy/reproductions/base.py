"""A figure or table as data: its cells, the paper's numbers, and the cost of a cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import refuse, require
from ..outputs import whole_file

Values = dict[str, float | None]
"""Quantity -> its number; None if the run has none, such as the time of a run that diverged."""

FORMAT = "fedprivacy papers 1"
"""Format of the results of cells."""


@dataclass(frozen=True, kw_only=True)
class FigureCell:
    """One run of a figure or table.

    Args:
        name: name of the cell.
        seconds: processor seconds, about, as measured on one core.
        quick_seconds: the same with ``quick``.
        settings: settings of the cell, JSON values.
        printed: quantity -> the number that the paper prints.
    """

    name: str
    seconds: float
    quick_seconds: float
    settings: Mapping[str, Any]
    printed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table of a paper.

    Args:
        name: its name, "paper/figure-or-table".
        shows: what it shows.
        work: "module:function" below this package; the function computes a cell.
        cells: its cells, in the order of the paper.
        megabytes: largest memory of a cell.
        quick: what ``quick`` changes.
        data: data sets that can be used, the default first; empty if the data are made up.
        remark: how the setting differs from the paper.
    """

    name: str
    shows: str
    work: str
    cells: tuple[FigureCell, ...]
    megabytes: int
    quick: str
    data: tuple[str, ...] = ()
    remark: str = ""

    @property
    def paper(self) -> str:
        """The paper's part of the name."""
        return self.name.partition("/")[0]

    def work_of(self) -> Callable[[CellRun], Values]:
        """Return the function that computes a cell; its module is imported.

        Raises:
            ModuleNotFoundError: torch is needed and missing.
        """
        module, _, function = self.work.partition(":")
        found: Callable[[CellRun], Values] = getattr(
            import_module(f"{__package__}.{module}"), function
        )
        return found


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """One cell to be computed.

    Args:
        cell: the cell.
        folder: folder for intermediate results of the paper's cells.
        seed: seed of the run; 1 gives the committed results.
        quick: a shorter run.
        data: name of the data set; empty if the data are made up.
        data_dir: folder of its files; None for the usual places.
        tick: called with the share that is done.
    """

    cell: FigureCell
    folder: Path
    seed: int = 1
    quick: bool = False
    data: str = ""
    data_dir: Path | None = None
    tick: Callable[[float], None] = lambda share: None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that distinguish its intermediate results from those of other jobs."""
        return {"seed": self.seed, "quick": self.quick, "data": self.data}

    def place(self, name: str) -> Path:
        """Return the path of an intermediate result, in a folder that exists."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / named(name, self.facts)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """Return an intermediate result, JSON values; it is computed only once.

        Raises:
            ParameterError: the file of the result is damaged, or holds another one.
        """
        path, facts = self.place(name), {"kept": name, **self.facts}
        path = path.with_name(f"{path.name}.json")
        known = read_result(path, facts)
        if known is None:
            known = make()
            write_result(path, facts, known)
        return known


def named(name: str, facts: Mapping[str, Any]) -> str:
    """Return a name with the facts, such as "dp-fedavg-seed1"."""
    words = [name, f"seed{facts['seed']}"]
    words += [facts["data"]] if facts["data"] else []
    return "-".join([*words, "quick"] if facts["quick"] else words)


def read_result(path: Path, facts: Mapping[str, Any]) -> Any:
    """Return the result in a file, or None if there is no file.

    Raises:
        ParameterError: the file is damaged, or its result is of another setting.
    """
    if not path.exists():
        return None
    way_out = "move it away, or name another --folder"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found, result = content["facts"], content["result"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        refuse("result", str(path), f"be a readable result ({type(error).__name__})", way_out)
    wanted = json.loads(json.dumps({"format": FORMAT, **facts}))
    apart = [
        name for name in wanted if not isinstance(found, dict) or found.get(name) != wanted[name]
    ]
    rule = f"be of this setting, but differs in {', '.join(apart)}"
    require(not apart, "result", str(path), rule, way_out)
    return result


def write_result(path: Path, facts: Mapping[str, Any], result: Any) -> None:
    """Write a result with its facts, whole or not at all."""
    content = {"facts": {"format": FORMAT, **facts}, "result": result}
    whole_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
