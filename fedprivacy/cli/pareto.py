"""The command that compares settings: pareto."""

from __future__ import annotations

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import click

from ..errors import refuse
from ..mechanisms import Mechanism
from .options import as_json, cli, facts_options, run_of, show

RUN_KEYS = {
    "noise_multiplier": float,
    "sampling_probability": float,
    "cohort": int,
    "population": int,
    "largest_cohort": int,
    "rounds": int,
    "unit": str,
}
"""What describes a run of a sampled Gaussian, in files and on the command line."""

KEYS = {"label", "ledger", *RUN_KEYS}
"""Columns of a settings file that are no costs."""


def _noise(rate: float, multiplier: float, rounds: int) -> float:
    return multiplier / rate


def _averaged(rate: float, multiplier: float, rounds: int) -> float:
    return multiplier / (rate * math.sqrt(rounds))


def _uploads(rate: float, multiplier: float, rounds: int) -> float:
    return rate * rounds


def _rounds(rate: float, multiplier: float, rounds: int) -> float:
    return float(rounds)


GRID_COSTS = {
    "noise": _noise,
    "averaged-noise": _averaged,
    "uploads": _uploads,
    "rounds": _rounds,
}
"""Costs that a grid's numbers tell by themselves."""


@cli.command()
@click.argument("settings", type=click.Path(path_type=Path), required=False)
@click.option("--delta", type=float, required=True, help="Certify epsilon at this delta.")
@click.option("--epsilon", type=float, help="A budget: name the best setting within it.")
@click.option("--noise-multiplier", help="A grid instead of a file: values with commas between.")
@click.option("--sampling-probability", help="Values for the grid (Poisson sampling).")
@click.option("--cohort", help="Values for the grid (cohorts of a fixed size) ...")
@click.option("--population", help="... drawn from this many.")
@click.option("--rounds", help="Values for the grid.  [default: 1]")
@click.option(
    "--cost",
    type=click.Choice(list(GRID_COSTS)),
    multiple=True,
    help="What a grid's setting costs: noise in a round's mean update, over the clip norm and "
    "times the population; the same averaged over all rounds; a client's expected uploads; "
    "rounds.  [default: noise]",
)
@click.option("--maximise", multiple=True, help="A cost of which more is better, such as accuracy.")
@facts_options
@click.option("--output", type=click.Path(path_type=Path), help="Write a plot to this file.")
@as_json
def pareto(
    settings: Path | None,
    delta: float,
    epsilon: float | None,
    cost: tuple[str, ...],
    maximise: tuple[str, ...],
    adjacency: str,
    observer: str,
    unit: str | None,
    accountant: str,
    tolerance: float,
    output: Path | None,
    as_json: bool,
    **grid: str | None,
) -> None:
    """Compare settings: certified epsilon against what they cost.

    SETTINGS is a CSV file with a header, or a JSON list of objects. Columns: label; ledger (a path
    from the file's folder), or noise_multiplier, rounds, and sampling_probability or cohort and
    population; every other column is a cost.

    \b
    Examples:
      fedprivacy pareto runs.csv --maximise accuracy --delta 1e-5 \\
          --adjacency add_remove --epsilon 8 --output front.png
      fedprivacy pareto --noise-multiplier 0.6,0.8,1,1.4 --sampling-probability 0.01,0.02 \\
          --rounds 200 --delta 1e-5 --adjacency add_remove
    """  # noqa: D301
    from ..pareto import pareto as compare

    given = {name: text for name, text in grid.items() if text is not None}
    runs: list[tuple[Any, Any]]
    if settings is None:
        runs = _grid(given, unit, cost or ("noise",))
    elif given or cost:
        told = ", ".join(
            f"--{name.replace('_', '-')}" for name in [*given, *(["cost"] * bool(cost))]
        )
        refuse("SETTINGS", str(settings), f"stand alone, without {told}")
    else:
        runs = _of_file(settings, unit)
    found = compare(
        runs,
        delta=delta,
        adjacency=adjacency,
        observer=observer,
        maximise=maximise,
        epsilon=epsilon,
        accountant=accountant,
        tolerance=tolerance,
    )
    data = found.to_dict()
    if output is not None:
        data["plot"] = str(found.plot(output))

    def text() -> None:
        click.echo(found.table())
        if output is not None:
            click.echo(f"plot: {output}")

    show(data, as_json, text)


def _grid(given: dict[str, str], unit: str | None, costs: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Return every combination of the options' values as (label, (run, costs))."""
    if "noise_multiplier" not in given:
        refuse("SETTINGS", None, "be given", "or a grid, beginning with --noise-multiplier")
    values = [_values(name, text) for name, text in given.items()]
    runs = []
    for chosen in itertools.product(*values):
        label = dict(zip(given, chosen, strict=True))
        run = _run({**label, "unit": unit})
        rate = label.get("sampling_probability") or 1.0
        if "cohort" in label:
            rate = label["cohort"] / label["population"]
        facts = rate, label["noise_multiplier"], label.get("rounds", 1)
        runs.append((label, (run, {name: GRID_COSTS[name](*facts) for name in costs})))
    return runs


def _values(name: str, text: str) -> list[Any]:
    kind = RUN_KEYS[name]
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        refuse(f"--{name.replace('_', '-')}", text, "be numbers with commas between")


def _run(row: dict[str, Any]) -> Mechanism:
    return run_of(**{key: row.get(key) for key in RUN_KEYS})


def _of_file(path: Path, unit: str | None) -> list[tuple[Any, Any]]:
    """Return (label, (run or ledger's path, costs)) of every row of a file."""
    rows = _rows(path)
    if not rows:
        refuse("SETTINGS", str(path), "hold at least one setting")
    return [_setting(row, number, path, unit) for number, row in enumerate(rows, start=1)]


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            rows = json.loads(text)
        else:
            rows = list(csv.DictReader(text.splitlines(), restkey="", strict=True))
    except (ValueError, csv.Error) as problem:
        refuse("SETTINGS", str(path), "be CSV, or JSON with .json as its ending", str(problem))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        refuse("SETTINGS", str(path), "be a list of objects")
    return [{k: v for k, v in row.items() if v is not None and v != ""} for row in rows]


def _setting(row: dict[str, Any], number: int, path: Path, unit: str | None) -> tuple[str, Any]:
    costs = {key: value for key, value in row.items() if key not in KEYS}
    if not costs:
        refuse(f"row {number}", sorted(row), "have a cost", f"a column beside {sorted(KEYS)}")
    described = {key: _cast(key, row[key], number) for key in RUN_KEYS if key in row}
    if "ledger" not in row:
        label = row.get("label", ", ".join(f"{k} = {v}" for k, v in described.items()))
        return str(label), (_run({"unit": unit, **described}), costs)
    if described:
        refuse(f"row {number}", sorted(described), "be left out beside a ledger")
    ledger = path.parent / str(row["ledger"])
    return str(row.get("label", row["ledger"])), (ledger, costs)


def _cast(key: str, value: Any, number: int) -> Any:
    try:
        return RUN_KEYS[key](value)
    except (TypeError, ValueError, OverflowError):
        refuse(f"{key} in row {number}", value, "be a number")
