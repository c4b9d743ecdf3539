"""Two-sided FedAvg and SCAFFOLD: rounds and bytes to a target, after Yang, Fang and Liu.

    python benchmarks/papers/fedavg_two_sided.py                 runs missing cells, then writes
    python benchmarks/papers/fedavg_two_sided.py --only logistic
    python benchmarks/papers/fedavg_two_sided.py --rounding      which cells depend on rounding
    python benchmarks/papers/fedavg_two_sided.py --check         reruns the smallest cell and some

Their Table 2 and Figure 1 use MNIST, which is not available here. These runs use Fashion-MNIST,
with a target for each model that it reaches there. Every cell is recorded when it is finished and
not run again. With MNIST's files, use --dataset mnist --data-dir FOLDER: the target is then the
paper's 95 %, and the results go to results/fedavg_two_sided_mnist.json.
"""

import argparse
import json
import platform
import sys
from dataclasses import asdict, fields, replace
from functools import cache, partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from drawn import Cells, Parted, affordable, redrawn
from pages import put, table
from told import at_least
from told import told as in_a_line

from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.fedavg_two_sided import runs
from fedprivacy.reproductions.fedavg_two_sided.runs import divided, target_of, until_diverged
from fedprivacy.reproductions.fedavg_two_sided.tables import (
    COHORTS,
    GRID_ROUNDS,
    MODELS,
    PAPER,
    SEEDS,
    WORKERS,
    by_batch,
    by_seed,
    figure_1,
    table_2,
    table_3,
)
from fedprivacy.reproductions.fedavg_two_sided.tables import TwoSidedRun as Cell
from fedprivacy.training import FederatedData

OWN: dict[str, Any] = {"name": "fashion-mnist", "data_dir": None}
"""The data set of the command line."""
FIRST, TOLERANCE = 10, 0.005
"""Rounds of a drawn cell to repeat, and the tolerance of its accuracies."""
ROUNDING, PARTS, MEASURED = 1e-7, 0.001, 31
"""The approximate rounding of single precision; the least difference of runs that rounding
separates, because it may be larger on another machine; and the most seconds of a cell for which
this is measured.
"""


@cache
def data_for(classes: int, seed: int) -> FederatedData:
    """Return the images among 100 workers, split evenly or by classes."""
    return divided(OWN["name"], OWN["data_dir"], classes, seed)


def results() -> Path:
    """Return the path of the recorded cells."""
    other = "" if OWN["name"] == "fashion-mnist" else f"_{OWN['name']}"
    return Path(__file__).parent / "results" / f"fedavg_two_sided{other}.json"


def run(cell: Cell, most: int | None = None, moved: float = 0.0) -> dict[str, Any]:
    """Run a cell until its target or ``most`` rounds and return the result."""
    most = min(most or cell.rounds, cell.rounds)
    data = data_for(cell.classes, cell.seed)
    return runs.run(cell, data, target_of(cell.model, OWN["name"]), most, moved=moved)


def finished(result: dict[str, Any] | None) -> bool:
    """Return whether a cell has ended: at the target, a non-finite loss, or its last round."""
    if result is None:
        return False
    ended = result["rounds_to_target"] is not None or until_diverged(result)["diverged"]
    return ended or result["rounds_run"] >= result["rounds_planned"]


SMALLEST = Cell(method="fedavg", model="logistic", workers=10, classes=10)


def known() -> list[dict[str, Any]]:
    """Return the recorded cells."""
    if not results().exists():
        return []
    cells: list[dict[str, Any]] = json.loads(results().read_text())["cells"]
    return [cell | {"rounds_planned": of(cell).rounds} for cell in cells]


def of(result: dict[str, Any]) -> Cell:
    """Return the cell of a result."""
    return Cell(**{field.name: result[field.name] for field in fields(Cell)})


def matches(result: dict[str, Any], cell: Cell) -> bool:
    """Return whether a result belongs to a cell."""
    return all(result[name] == value for name, value in asdict(cell).items())


def with_result(cells: list[dict[str, Any]], last: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells with a result, which replaces an earlier one of the same cell."""
    return [*(one for one in cells if not matches(one, of(last))), last]


def images() -> str:
    """Return the name of the runs' images."""
    held = sum(map(len, data_for(10, 1).clients))
    return f"{OWN['name']}, {held:,} images among {WORKERS} workers"


def write(cells: list[dict[str, Any]]) -> None:
    """Write the results atomically."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    settings = {"data": images(), "inputs": "unit"}
    head = json.dumps({"versions": versions, "settings": settings})[:-1]
    lines = ",\n".join(json.dumps(until_diverged(cell), allow_nan=False) for cell in cells)
    whole_file(results(), f'{head}, "cells": [\n{lines}\n]}}\n')
    if OWN["name"] == "fashion-mnist":
        pages(known())


def reached(result: dict[str, Any]) -> str:
    """Return the rounds to the target, or the number of rounds without reaching it, as text."""
    rounds = result["rounds_to_target"]
    if result["diverged"]:
        return f"diverged in {result['rounds_run']}"
    return str(rounds) if rounds else f"none in {result['rounds_run']}"


def found(cells: list[dict[str, Any]], cell: Cell) -> dict[str, Any] | None:
    """Return a cell's result, None if it was not run."""
    return next((result for result in cells if matches(result, cell)), None)


def pages(cells: list[dict[str, Any]]) -> None:
    """Write the tables of the page."""
    rows = []
    for cell in table_2():
        if cell.method == "scaffold":
            continue
        theirs = "{}, {}".format(*PAPER[cell.model, cell.classes, cell.workers])
        pair = [found(cells, replace(cell, method=name)) for name in ("fedavg", "scaffold")]
        shown = [f"{one['upload_bytes'] / 1e6:.2f}" if one else "not run" for one in pair]
        rounds = [reached(one) if one else "not run" for one in pair]
        where = [cell.model, str(cell.classes), str(cell.workers)]
        rows.append([*where, *rounds, theirs, *shown])
    head = ["model", "classes", "n", "FedAvg, rounds", "SCAFFOLD, rounds", "the paper's on MNIST"]
    put("fedavg_two_sided.md", "table 2", table([*head, "FedAvg, MB", "SCAFFOLD, MB"], rows))
    rows = []
    for cell in (*table_2(), *figure_1()):
        one = found(cells, cell)
        if one is not None and cell.method == "fedavg":
            where = [cell.model, str(cell.classes), str(cell.workers), str(cell.epochs)]
            last = f"{100 * one['accuracy'][-1]:.1f} %"
            tenth = f"{100 * one['accuracy'][9]:.1f} %" if len(one["accuracy"]) > 9 else ""
            rows.append([*where, str(cell.strategy), reached(one), tenth, last])
    head = ["model", "classes", "n", "epochs", "strategy", "rounds", "accuracy at 10", "at the end"]
    put("fedavg_two_sided.md", "figure 1", table(head, rows))
    put("fedavg_two_sided.md", "batches", batches(cells))
    put("fedavg_two_sided.md", "seeds", seeds(cells))
    put("fedavg_two_sided.md", "table 3", both_rates(cells))
    put("fedavg_two_sided.md", "table 3, the best", best_pairs(cells))
    put("fedavg_two_sided.md", "rounding", rounding(cells))
    put("fedavg_two_sided.md", "plan", plan(cells))


def tables() -> dict[str, list[Cell]]:
    """Return the cells of every table."""
    parts = {"Table 2": [*table_2()], "Figure 1": [*figure_1()], "batches": [*by_batch()]}
    parts["seeds"] = [*by_seed()]
    for n in COHORTS:
        parts[f"Table 3 and beyond, n = {n}"] = [cell for cell in table_3() if cell.workers == n]
    return parts


def rounding(cells: list[dict[str, Any]]) -> str:
    """Return the table of the cells whose first rounds depend on a machine's rounding."""
    measured = [one for one in cells if "by_rounding" in one]
    alike: dict[Cell, list[dict[str, Any]]] = {}
    for one in measured:
        if one["by_rounding"] > PARTS:
            alike.setdefault(replace(of(one), seed=0), []).append(one)
    names = [field.name for field in fields(Cell) if field.name != "seed"]
    rows = []
    for cell, own in sorted(alike.items(), key=lambda pair: str(pair[0])):
        seeds = ", ".join(str(seed) for seed in sorted(one["seed"] for one in own))
        most = max(one["by_rounding"] for one in own)
        rows.append([*(f"{getattr(cell, name)}" for name in names), seeds, f"{100 * most:.1f}"])
    head = ["method", "model", "n", "classes", "strategy", "server's rate", "workers' rate"]
    told = f"{sum(map(len, alike.values()))} of the {len(measured)} cells that were measured:\n\n"
    return told + table([*head, "epochs", "batch", "seeds", "points apart, at most"], rows)


def plan(cells: list[dict[str, Any]]) -> str:
    """Return the table of planned, finished and remaining cells, with times of similar cells."""
    rows = []
    for name, wanted in tables().items():
        left = [cell for cell in wanted if not finished(found(cells, cell))]
        hours = sum(cell.rounds * seconds_of(cells, cell) for cell in left) / 3600
        rows.append([name, str(len(wanted)), str(len(wanted) - len(left)), f"{hours:.2f}"])
    return table(["cells", "planned", "done", "core hours left, about"], rows)


def seconds_of(cells: list[dict[str, Any]], cell: Cell) -> float:
    """Return the seconds of a round of cells of the same method, model and n."""
    own = (cell.method, cell.model, cell.workers)
    alike = [one for one in cells if (one["method"], one["model"], one["workers"]) == own]
    rounds = sum(one["rounds_run"] for one in alike)
    return float(sum(one["processor_seconds"] for one in alike)) / rounds


def by_pair(cells: list[dict[str, Any]]) -> dict[tuple[float, float, int], list[dict[str, Any]]]:
    """Return the runs of Table 3's grid and around it: by both rates and n, every seed."""
    groups: dict[tuple[float, float, int], list[dict[str, Any]]] = {}
    for cell in table_3():
        if (one := found(cells, cell)) is not None:
            key = (cell.server_rate, cell.local_rate, cell.workers)
            groups.setdefault(key, []).append(one)
    return groups


def both_rates(cells: list[dict[str, Any]]) -> str:
    """Return the table of both learning rates: rounds to the target, or the accuracy reached."""
    groups = by_pair(cells)
    rows = [
        [
            f"{server:g}",
            f"{local:g}",
            *(outcome(groups.get((server, local, n), [])) for n in COHORTS),
        ]
        for server, local in sorted({key[:2] for key in groups})
    ]
    return table(["server's rate", "workers' rate", *(f"n = {n}" for n in COHORTS)], rows)


def outcome(runs: list[dict[str, Any]]) -> str:
    """Return every seed's rounds to the target, or the accuracy after its last round.

    No mean is formed if only some seeds reached the target, since those runs were not continued.
    """
    if not runs:
        return "-"
    if any(one["diverged"] for one in runs):
        return f"diverged ({sum(one['diverged'] for one in runs)} of {len(runs)})"
    rounds = [one["rounds_to_target"] for one in runs]
    if None not in rounds:
        return f"{', '.join(map(str, rounds))} rounds"
    ends = [100 * one["accuracy"][-1] for one in runs]
    if any(rounds):
        each = zip(rounds, ends, strict=True)
        told = (
            f"{number} rounds" if number else f"{end:.1f} % in {GRID_ROUNDS}"
            for number, end in each
        )
        return ", ".join(told)
    spread = f" ± {stdev(ends):.1f}" if len(ends) > 1 else ""
    return f"{mean(ends):.1f}{spread} % in {GRID_ROUNDS}"


def best_pairs(cells: list[dict[str, Any]]) -> str:
    """Return for each n the best pair, refused at the edge of the tried range.

    No pair is shown as best if not every seed reaches the target.
    """
    groups, rows = by_pair(cells), []
    for n in COHORTS:
        own = {key[:2]: runs for key, runs in groups.items() if key[2] == n}
        if not own:
            continue
        best = min(own, key=lambda pair: slowness(own[pair]))
        servers = [server for server, local in own if local == best[1]]
        locals_ = [local for server, local in own if server == best[0]]
        ends = zip(best, (servers, locals_), strict=True)
        edge = any(rate in (min(tried), max(tried)) for rate, tried in ends)
        told = "refused: at the edge" if edge else f"{best[0]:g} and {best[1]:g}"
        if None in (one["rounds_to_target"] for one in own[best]):
            told = "none is shown"
        rows.append([str(n), told, f"{best[0]:g} and {best[1]:g}", outcome(own[best])])
    return table(["n", "best pair", "of those tried", "with it"], rows)


def slowness(runs: list[dict[str, Any]]) -> tuple[float, float]:
    """Return mean rounds to the target (one more round for seeds without it), and the error."""
    rounds = [one["rounds_to_target"] or GRID_ROUNDS + 1 for one in runs]
    errors = [1.0 - one["accuracy"][-1] if one["accuracy"] else 1.0 for one in runs]
    return mean(rounds), mean(errors)


def batches(cells: list[dict[str, Any]]) -> str:
    """Return the table of both methods by the size of a batch."""
    rows = []
    for cell in by_batch():
        one = found(cells, cell)
        if one is not None:
            steps = cell.epochs * -(-60_000 // WORKERS // cell.batch)
            best = f"{100 * max(one['accuracy']):.1f} %"
            half = [number for number, at in enumerate(one["accuracy"], start=1) if at >= 0.7]
            row = [cell.method, str(cell.batch), str(steps), str(half[0]) if half else "-"]
            rows.append([*row, reached(one), best])
    head = ["method", "batch", "local steps", "rounds to 70 %", "rounds to 80 %"]
    return table([*head, "best accuracy"], rows)


def seeds(cells: list[dict[str, Any]]) -> str:
    """Return the table of SCAFFOLD by the seed of partition and start."""
    rows = []
    for cell in by_seed():
        one = found(cells, cell)
        best = f"{100 * max(one['accuracy']):.1f} %" if one else "-"
        rows.append([str(cell.seed), reached(one) if one else "not run", best])
    return table(["seed", "rounds to 80 %", "best accuracy"], rows)


def agrees(wanted: dict[str, Any]) -> bool:
    """Return whether the first rounds of a cell agree with the recorded ones.

    Long steps amplify a machine's rounding. If a start shifted by the size of rounding also
    differs, no comparison is made.
    """
    cell, most = of(wanted), min(FIRST, wanted["rounds_run"])
    again = run(cell, most)
    if apart(again, wanted) <= TOLERANCE:
        return True
    if by_rounding(cell, again) > PARTS:
        raise Parted
    return False


def by_rounding(cell: Cell, plain: dict[str, Any]) -> float:
    """Return the distance between the plain run and runs with starts shifted by rounding."""
    moved = (run(cell, plain["rounds_run"], way * ROUNDING) for way in (1.0, -1.0))
    return max(apart(one, plain) for one in moved)


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest difference between the accuracies of two runs, in rounds of both."""
    pairs = zip(one["accuracy"], other["accuracy"], strict=False)
    return max((abs(a - b) for a, b in pairs), default=0.0)


def drawn_from(cells: list[dict[str, Any]]) -> dict[str, Cells]:
    """Return the cells of each table for a check; report cells that take too long."""
    made: dict[str, Cells] = {}
    for name, wanted in tables().items():
        own = [one for cell in wanted if cell != SMALLEST and (one := found(cells, cell))]
        again = {named(one): partial(agrees, one) for one in own}
        made[name] = affordable(name, again, {named(one): cost(one) for one in own})
    return made


def named(result: dict[str, Any]) -> str:
    """Return a cell's name."""
    return ", ".join(f"{field.name} {result[field.name]}" for field in fields(Cell))


def cost(result: dict[str, Any]) -> float:
    """Return the approximate processor seconds of a cell's first rounds."""
    share = min(FIRST, result["rounds_run"]) / result["rounds_run"]
    return float(result["processor_seconds"]) * share


def check() -> int:
    """Repeat the smallest cell and ten rounds of one drawn from each table; return the status."""
    wanted = found(known(), SMALLEST)
    if wanted is None:
        print(f"{results()} lacks the smallest cell; run without --check first")
        return 1
    again = run(SMALLEST, wanted["rounds_run"])
    count = min(len(again["accuracy"]), len(wanted["accuracy"]))
    pairs = zip(again["accuracy"][:count], wanted["accuracy"][:count], strict=True)
    apart = max(abs(a - b) for a, b in pairs)
    same = apart <= 0.005 and again["upload_bytes"] == wanted["upload_bytes"]
    print(f"{'same' if same else 'DIFFERENT'}: accuracies differ by at most {apart:.4f}")
    return 0 if redrawn(drawn_from(known())) and same else 1


def measure_rounding() -> None:
    """Record the effect of rounding on the first rounds of every cell that is not too slow."""
    for one in known():
        if "by_rounding" not in one and cost(one) <= MEASURED:
            plain = run(of(one), min(FIRST, one["rounds_run"]))
            apart_by = round(by_rounding(of(one), plain), 4)
            write(with_result(known(), one | {"by_rounding": apart_by}))
            print(named(one), apart_by, flush=True)


def main() -> None:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--workers", type=int, choices=COHORTS)
    parser.add_argument("--classes", type=int, choices=[1, 2, 5, 10])
    parser.add_argument("--method", choices=["fedavg", "scaffold"])
    parser.add_argument("--seed", type=int, choices=SEEDS)
    parser.add_argument(
        "--most", type=at_least(1), help="rounds, where that is fewer than the cell's own"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", action="store_true", help="only write what is known anew")
    parser.add_argument("--rounding", action="store_true", help="measure what rounding does")
    parser.add_argument("--dataset", choices=["fashion-mnist", "mnist", "kmnist"])
    parser.add_argument("--data-dir", help="where its files are")
    options = parser.parse_args()
    OWN.update(name=options.dataset or "fashion-mnist", data_dir=options.data_dir)
    torch.set_num_threads(1)
    if options.check:
        sys.exit(check())
    if options.rounding:
        measure_rounding()
    if options.page or options.rounding:
        write(known())
        return
    for cell in (*table_2(), *figure_1(), *by_batch(), *by_seed(), *table_3()):
        own = (cell.model, cell.workers, cell.classes, cell.method, cell.seed)
        asked = (options.only, options.workers, options.classes, options.method, options.seed)
        if any(one not in (None, it) for one, it in zip(asked, own, strict=True)):
            continue
        if finished(found(known(), cell)):
            continue
        last = run(cell, options.most)
        write(with_result(known(), last))
        print(
            cell,
            last["rounds_to_target"],
            last["accuracy"][-1],
            last["processor_seconds"],
            flush=True,
        )


if __name__ == "__main__":
    with in_a_line():
        main()
