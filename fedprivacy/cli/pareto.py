"""The command that compares settings: pareto."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import integer, listed, positive, refuse
from ..mechanisms import Mechanism
from .options import as_json, cli, facts_options, once_each, run_of, say, show

if TYPE_CHECKING:
    from ..systems.settings import Settings

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


PROBLEM = {"clients": int, "dimension": int, "records": int, "spread": float, "seed": int}
"""What describes fa-ld's target; one value each."""


def _cohort(text: str) -> int | None:
    return None if text.strip() == "all" else int(text)


LANGEVIN = {
    "step_size": float,
    "correlation": float,
    "local_steps": int,
    "temperature": float,
    "cohort": _cohort,
    "batch_fraction": float,
    "rounds": int,
}
"""fa-ld's grid; of its cohorts, "all" is everybody."""

LANGEVIN_STEPS = (0.01, 0.03, 0.1, 0.3)
"""Step sizes of fa-ld where none are given, over 1 / smoothness."""

SPLITTING = {"penalty": float, "step_share": float, "local_steps": int, "noise_scale": float}
"""fed-plt's grid."""

REGRESSION = {
    "agents": int,
    "dimension": int,
    "records": int,
    "regularisation": float,
    "feature_bound": float,
    "gradient_cost": float,
    "round_cost": float,
    "accuracy": float,
}
"""What describes fed-plt's logistic regression and its costs; one value each."""


@cli.command()
@click.argument("settings", type=click.Path(path_type=Path), required=False)
@click.option("--delta", type=float, required=True, help="Certify epsilon at this delta.")
@click.option("--epsilon", type=float, help="A budget: name the best setting within it.")
@click.option(
    "--method",
    type=click.Choice(["fa-ld", "fed-plt"]),
    help="A grid of this method instead of a file: fa-ld by w2, the distance to a Gaussian "
    "target; fed-plt by asymptotic error and computation time.",
)
@click.option(
    "--set",
    "chosen",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values for the method, with commas between, such as local_steps=1,5,20; repeat for "
    "more. An unknown name is answered with those that there are.",
)
@click.option("--noise-multiplier", help="A grid instead of a file: values with commas between.")
@click.option("--sampling-probability", help="Values for the grid (Poisson sampling).")
@click.option("--cohort", help="Values for the grid (cohorts of a fixed size) ...")
@click.option("--population", help="... drawn from this many.")
@click.option("--rounds", help="Values for the grid.  [default: 1]")
@click.option(
    "--cost",
    multiple=True,
    help="A column of SETTINGS that is a cost.  [default: all that do not describe a run]  Of a "
    "grid: noise in a round's mean update, over the clip norm and times the population; "
    "averaged-noise, the same averaged over all rounds; uploads, a client's expected ones; or "
    "rounds.  [default: noise]",
)
@click.option("--maximise", multiple=True, help="A cost of which more is better, such as accuracy.")
@click.option(
    "--digits",
    type=int,
    default=5,
    show_default=True,
    help="Compare epsilons rounded up to so many digits; what differs by less is equally private.",
)
@facts_options
@click.option("--output", type=click.Path(path_type=Path), help="Write a plot to this file.")
@as_json
def pareto(
    settings: Path | None,
    delta: float,
    epsilon: float | None,
    cost: tuple[str, ...],
    maximise: tuple[str, ...],
    method: str | None,
    chosen: tuple[str, ...],
    digits: int,
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
    population; every other column is a cost, or those that --cost names.

    \b
    Examples:
      fedprivacy pareto runs.csv --maximise accuracy --delta 1e-5 \\
          --adjacency add_remove --epsilon 8 --output front.png
      fedprivacy pareto --noise-multiplier 0.6,0.8,1,1.4 --sampling-probability 0.01,0.02 \\
          --rounds 200 --delta 1e-5 --adjacency add_remove
      fedprivacy pareto --method fa-ld --set correlation=0,0.9 --delta 1e-5 \\
          --adjacency replace_one --epsilon 4 --output front.png
    """  # noqa: D301
    from ..runs.pareto import pareto as compare

    given = {name: text for name, text in grid.items() if text is not None}
    asked = [*given, *(["set"] * bool(chosen))]
    runs: Any
    if method is not None:
        if settings is not None or cost or unit == "client":
            refuse("--method", method, "stand without SETTINGS, --cost and --unit client")
        runs = METHODS[method]({**given, **once_each(map(_named, chosen))})
    elif settings is not None and asked:
        told = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        refuse("SETTINGS", str(settings), f"stand alone, without {told}")
    elif chosen:
        refuse("--set", chosen[0], "be given with --method")
    elif settings is None:
        runs = _grid(given, unit, cost or ("noise",))
    else:
        runs = _of_file(settings, unit, cost)
    found = compare(
        runs,
        delta=delta,
        adjacency=adjacency,
        observer=observer,
        maximise=maximise,
        epsilon=epsilon,
        accountant=accountant,
        tolerance=tolerance,
        digits=digits,
    )
    data = found.to_dict()
    if output is not None:
        data["plot"] = str(found.plot(output))

    def text() -> None:
        say(found.table())
        if output is not None:
            say(f"plot: {output}")

    show(data, as_json, text)


def _grid(given: dict[str, str], unit: str | None, costs: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Return every combination of the options' values as (label, (run, costs))."""
    if "noise_multiplier" not in given:
        refuse("SETTINGS", None, "be given", "or a grid, beginning with --noise-multiplier")
    for name in costs:
        if name not in GRID_COSTS:
            refuse("--cost", name, f"be one of {listed(GRID_COSTS)}")
    values = [_values(f"--{n.replace('_', '-')}", t, RUN_KEYS[n]) for n, t in given.items()]
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


def _values(name: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        whole = "" if kind is float else "whole "
        refuse(name, text, f"be {whole}numbers with commas between")


def _named(text: str) -> tuple[str, str]:
    """Return (name, values) of NAME=VALUES."""
    name, equals, values = text.partition("=")
    if not equals:
        refuse("--set", text, "be NAME=VALUES", "such as --set local_steps=1,5,20")
    return name.strip().replace("-", "_"), values


def _told(
    given: dict[str, str], grid: dict[str, Any], single: dict[str, Any]
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the lists of a grid and the single values that were given."""
    for name in given:
        if name not in grid and name not in single:
            refuse("--set", name, f"be one of {listed([*grid, *single])}")
    values = {name: _values(name, text, {**grid, **single}[name]) for name, text in given.items()}
    for name in single:
        if len(values.get(name, [0])) != 1:
            refuse(name, given[name], "be one value")
    lists = {name: found for name, found in values.items() if name in grid}
    return lists, {name: found[0] for name, found in values.items() if name in single}


def _langevin(given: dict[str, str]) -> Settings:
    """Return a grid of FA-LD on the posterior of a mean."""
    from ..systems.fa_ld.grid import MeanProblem, langevin_settings

    grid, facts = _told(given, LANGEVIN, PROBLEM)
    problem = MeanProblem(**facts)
    steps = [float(f"{each / problem.target.smoothness:.3g}") for each in LANGEVIN_STEPS]
    usual = {
        "step_size": steps,
        "correlation": [0.0, 0.5],
        "local_steps": [1, 5, 20],
        "temperature": [1.0, 1.5],
        "rounds": [10, 50],
    }
    return langevin_settings(
        problem.target,
        gradient_sensitivity=problem.gradient_sensitivity,
        gradients=problem.gradients,
        **{**usual, **grid},  # type: ignore[arg-type]
    )


def _splitting(given: dict[str, str]) -> Settings:
    """Return a grid of Fed-PLT on logistic regression with features of bounded norm."""
    from ..systems.fed_plt.grid import splitting_settings

    usual = {
        "penalty": [0.3, 1.0, 3.0],
        "step_share": [0.25, 0.5, 0.75],
        "local_steps": [5, 10, 20],
        "noise_scale": [0.01, 0.03, 0.1, 0.3],
    }
    grid, facts = _told(given, SPLITTING, REGRESSION)
    agents = integer(1, agents=facts.pop("agents", 100))
    dimension = integer(1, dimension=facts.pop("dimension", 5))
    records = integer(1, records=facts.pop("records", 250))
    bound = positive(feature_bound=facts.pop("feature_bound", 2.0))
    weight = positive(regularisation=facts.pop("regularisation", 0.5))
    return splitting_settings(
        sensitivity=2.0 * bound / records,
        strong_convexity=weight,
        smoothness=weight + 0.25 * bound**2,
        coordinates=agents * dimension,
        **facts,
        **{**usual, **grid},  # type: ignore[arg-type]
    )


METHODS = {"fa-ld": _langevin, "fed-plt": _splitting}
"""Method -> what makes its grid of the texts given."""


def _run(row: dict[str, Any]) -> Mechanism:
    return run_of(**{key: row.get(key) for key in RUN_KEYS})


def _of_file(path: Path, unit: str | None, costs: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Return (label, (run or ledger's path, costs)) of every row of a file."""
    rows = _rows(path)
    if not rows:
        refuse("SETTINGS", str(path), "hold at least one setting")
    return [_setting(row, number, path, unit, costs) for number, row in enumerate(rows, start=1)]


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


def _setting(
    row: dict[str, Any], number: int, path: Path, unit: str | None, chosen: tuple[str, ...]
) -> tuple[str, Any]:
    told = {key: value for key, value in row.items() if key not in KEYS}
    for name in chosen:
        if name in KEYS:
            refuse("--cost", name, "be none of the columns that describe a run")
        if name not in told:
            refuse("--cost", name, f"be a column with a value in row {number}")
    costs = {name: told[name] for name in chosen or told}
    if not costs:
        refuse(f"row {number}", sorted(row), "have a cost", f"a column beside {sorted(KEYS)}")
    described = {key: _cast(key, row[key], number) for key in RUN_KEYS if key in row}
    if "ledger" not in row:
        words = {**described, **{key: told[key] for key in told if key not in costs}}
        label = row.get("label", ", ".join(f"{k} = {v}" for k, v in words.items()))
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
