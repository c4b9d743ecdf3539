"""The commands that run the papers' figures and tables again: papers list, papers run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import needs
from ..outputs import aligned
from .group import cli
from .options import as_json, file_option, option, say, say_lines, show
from .panels import PanelCommand

if TYPE_CHECKING:
    from ..reproductions.base import Figure
    from ..reproductions.running import CellResult, Plan

DATA, WHAT = "The data", "What to run"
"""Groups of options."""


class _PapersGroup(PanelCommand, click.Group):
    """A group whose commands show their options in panels."""

    command_class = PanelCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and the options."""
        click.Group.format_commands(self, ctx, formatter)
        PanelCommand.format_options(self, ctx, formatter)


@cli.group(cls=_PapersGroup)
def papers() -> None:
    """Run a figure or table of a paper again, and compare it with the paper's numbers.

    \b
    Examples:
      fedprivacy papers list fed-smp
      fedprivacy papers run fa-ld/figure-1a --cells alpha-1
      fedprivacy papers run fed-smp/table-1 --cells dp-fedavg --seed 1
    """  # noqa: D301


@papers.command("list")
@click.argument("name", default="")
@as_json
def list_figures(name: str, as_json: bool) -> None:
    """Print the figures and tables, or the cells of one.

    NAME is a paper, or PAPER/FIGURE. Times are processor time of one core, measured on one machine.
    """
    from ..reproductions.catalogue import FIGURES, figure

    found = [each for each in FIGURES.values() if each.name.startswith(f"{name}/")]
    if not found:
        found = [figure(name)] if name else list(FIGURES.values())
    data = {"figures": [_facts(each) for each in found]}
    show(data, as_json, lambda: _say_cells(found[0]) if len(found) == 1 else _say_figures(found))


def _facts(figure: Figure) -> dict[str, Any]:
    facts = asdict(figure)
    facts.pop("work")
    for cell in facts["cells"]:
        cell.pop("settings")
    return facts | {"cells": list(facts["cells"]), "data": list(figure.data)}


def _say_figures(figures: list[Figure]) -> None:
    head = ["name", "cells", "all", "with --quick", "memory", "data", "what it shows"]
    rows = [
        [
            each.name,
            str(len(each.cells)),
            duration(sum(cell.seconds for cell in each.cells)),
            duration(sum(cell.quick_seconds for cell in each.cells)),
            f"{each.megabytes} MB",
            each.data[0] if each.data else "made up",
            each.shows,
        ]
        for each in figures
    ]
    say_lines("\n".join(aligned([head, *rows])))


def _say_cells(figure: Figure) -> None:
    say(f"{figure.name}: {figure.shows}")
    if figure.remark:
        say(figure.remark)
    say(f"data: {', '.join(figure.data) or 'made up'}; memory: {figure.megabytes} MB")
    say(f"--quick: {figure.quick}")
    rows = [["cell", "time", "with --quick", "the paper's numbers"]]
    for cell in figure.cells:
        numbers = ", ".join(f"{name} {value:g}" for name, value in cell.printed.items())
        rows.append([cell.name, duration(cell.seconds), duration(cell.quick_seconds), numbers])
    say_lines("\n".join(aligned(rows)))


def duration(seconds: float) -> str:
    """Return a time as text: "12 s", "5 min", "3.5 h"."""
    if seconds < 90.0:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} h"


@papers.command("run")
@click.argument("name")
@option(
    "--cells",
    None,
    WHAT,
    "Cells to run, separated by commas; papers list NAME prints them.  [default: all]",
    default="",
    show_default=False,
)
@option(
    "--seed", int, WHAT, "Seed of every run; 1 gives the results of the documentation.", default=1
)
@option("--quick", bool, WHAT, "Shorter runs; papers list NAME says how.", is_flag=True)
@option("--dry-run", bool, WHAT, "Only print the estimate of time and memory.", is_flag=True)
@option(
    "--data", None, DATA, "The data set.  [default: the first one that papers list NAME prints]"
)
@file_option("--data-dir", "Folder with the files of the data set.", panel=DATA)
@file_option(
    "--folder",
    "Folder of the results; the same command continues a run that was killed.",
    default=Path("papers"),
)
@as_json
def run(
    name: str, cells: str, dry_run: bool, as_json: bool, data: str | None, **options: Any
) -> None:
    """Run cells of a figure or table, and print the results and the paper's numbers.

    A finished cell is read from the folder and not run again. A cell that was killed continues
    where it can: after the last round, or after the last part.

    \b
    Examples:
      fedprivacy papers run fed-plt/table-2 --cells fed-plt-convex --quick
      fedprivacy papers run fed-smp/table-1 --cells dp-fedavg --seed 1 --dry-run
    """  # noqa: D301
    from ..reproductions.catalogue import figure
    from ..reproductions.running import Plan, chosen

    found = figure(name)
    wanted = chosen(found, [each.strip() for each in cells.split(",") if each.strip()])
    default = found.data[0] if found.data else ""
    plan = Plan(figure=found, cells=wanted, data=default if data is None else data, **options)
    estimate, left = _estimate(plan), plan.left
    if left and not dry_run:
        with needs("papers run", "'fedprivacy[train]'", "torch"):
            found.work_of()
    # On standard error, so that standard output holds only the JSON.
    say(estimate, err=True)
    ran = [] if dry_run else _run(plan)
    answer = {
        "figure": found.name,
        "seed": plan.seed,
        "quick": plan.quick,
        "data": plan.data,
        "folder": str(plan.folder),
        "seconds_left": plan.seconds if dry_run else 0.0,
        "megabytes": found.megabytes,
        "cells_left": [cell.name for cell in left] if dry_run else [],
        "cells": [asdict(each) for each in ran],
    }
    show(answer, as_json, lambda: _say_ran(plan, ran))


def _estimate(plan: Plan) -> str:
    """Return the estimate as a line."""
    left, cells = len(plan.left), len(plan.cells)
    done = f"{cells - left} of {cells} cells are finished" if left < cells else ""
    if not left:
        return f"{plan.figure.name}: {done} in {plan.folder}"
    parts = [
        f"{left} cell{'s' if left > 1 else ''} to run",
        f"about {duration(plan.seconds)} of one core and {plan.figure.megabytes} MB of memory",
        *([done] if done else []),
        f"results in {plan.folder}",
    ]
    return f"{plan.figure.name}: {', '.join(parts)}"


def _run(plan: Plan) -> list[CellResult]:
    from ..runs.progress import Steps

    with Steps() as steps:
        return list(plan.run(steps.share))


def _say_ran(plan: Plan, ran: list[CellResult]) -> None:
    if not ran:
        return
    rows = [["cell", "quantity", "here", "the paper"]]
    for each in ran:
        for quantity in dict.fromkeys([*each.values, *each.printed]):
            here, theirs = each.values.get(quantity), each.printed.get(quantity)
            pair = [
                "none" if here is None else f"{here:.5g}",
                "-" if theirs is None else f"{theirs:g}",
            ]
            rows.append([each.cell, quantity, *pair])
    say_lines("\n".join(aligned(rows)))
    if plan.figure.remark:
        say(f"note: {plan.figure.remark}")
    if plan.quick:
        say(f"note: --quick: {plan.figure.quick}")
