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
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from itertools import takewhile
from math import isfinite
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from drawn import Cells, Parted, affordable, redrawn
from pages import put, table
from told import at_least
from told import told as in_a_line
from torch import Tensor

import fedprivacy as fp
from fedprivacy.outputs import whole_file
from fedprivacy.training import (
    FederatedAveraging,
    FederatedData,
    FlatModel,
    LocalSGD,
    cnn,
    load_named,
    logistic,
    mlp,
)

OWN: dict[str, Any] = {"name": "fashion-mnist", "data_dir": None}
"""The data set of the command line."""
WORKERS, BATCH, EPOCHS, LOCAL_RATE, SERVER_RATE = 100, 64, 5, 0.1, 1.0
MODELS = {
    "logistic": logistic(784, 10),
    "2nn": mlp(784, 10, hidden=(200, 200)),
    "cnn": cnn(padded=False),
}
TARGETS = {"logistic": 0.78, "2nn": 0.80, "cnn": 0.80}
MOST_ROUNDS = {"logistic": 200, "2nn": 200, "cnn": 60}
GRID_ROUNDS, GRID_SEEDS = 40, (1, 2, 3)
"""Rounds of a cell of Table 3's grid, and its seeds."""
SERVER_RATES, LOCAL_RATES, COHORTS = (1.0, 10.0), (0.001, 0.01, 0.1), (10, 50, 100)
"""Table 3's grid."""
NEXT = ((0.3, 0.1), (1.0, 0.3), (0.3, 0.3), (3.0, 0.3), (1.0, 1.0))
FIRST, TOLERANCE = 10, 0.005
"""Rounds of a drawn cell to repeat, and the tolerance of its accuracies."""
ROUNDING, PARTS, MEASURED = 1e-7, 0.001, 31
"""The approximate rounding of single precision; the least difference of runs that rounding
separates, because it may be larger on another machine; and the most seconds of a cell for which
this is measured.
"""
BEYOND = {10: (*NEXT, (3.0, 0.1), (3.0, 0.03)), 50: NEXT, 100: NEXT}
"""Pairs around it, by n, to check whether the grid's best lies inside the tried range."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run.

    Args:
        method: "fedavg" or "scaffold".
        model: a key of ``MODELS``.
        workers: n, the number of the 100 workers in a round.
        classes: number of classes of a worker; 10 is an even split.
        strategy: 1 draws with replacement, 2 without.
        seed: seed of partition, start, cohorts and batches.
        server_rate: the server's learning rate.
        local_rate: the workers'.
        epochs: K, passes over a worker's images in a round.
        batch: images in a local step; not specified in the paper.
    """

    method: str
    model: str
    workers: int
    classes: int
    strategy: int = 2
    seed: int = 1
    server_rate: float = SERVER_RATE
    local_rate: float = LOCAL_RATE
    epochs: int = EPOCHS
    batch: int = BATCH

    @property
    def scheme(self) -> fp.FixedSize | fp.WithReplacement | fp.Everyone:
        """Scheme that draws the workers of a round."""
        if self.workers == WORKERS and self.strategy == 2:
            return fp.Everyone()
        if self.strategy == 1:
            return fp.WithReplacement(self.workers, population=WORKERS)
        return fp.FixedSize(self.workers, population=WORKERS)


@cache
def data_for(classes: int, seed: int) -> FederatedData:
    """Return the images among 100 workers, split evenly or by classes."""
    kinds = None if classes == 10 else classes
    return load_named(**OWN, clients=WORKERS, classes_per_client=kinds, seed=seed)


def results() -> Path:
    """Return the path of the recorded cells."""
    other = "" if OWN["name"] == "fashion-mnist" else f"_{OWN['name']}"
    return Path(__file__).parent / "results" / f"fedavg_two_sided{other}.json"


def target_of(model: str) -> float:
    """Return the accuracy that ends a run."""
    return 0.95 if OWN["name"] == "mnist" else TARGETS[model]


class Averaging:
    """Generalised FedAvg, the library's loop; its start may be shifted."""

    def __init__(self, cell: Cell, moved: float = 0.0) -> None:
        self.loop = FederatedAveraging(
            model=MODELS[cell.model],
            scheme=cell.scheme,
            local_epochs=cell.epochs,
            batch_size=cell.batch,
            learning_rate=cell.local_rate,
            server_learning_rate=cell.server_rate,
            seed=cell.seed,
        )
        start = self.loop.init()
        self.state = replace(start, parameters=start.parameters + moved)
        self.upload_bytes = 0

    def round(self, data: FederatedData) -> None:
        """Run one round."""
        self.state, info = self.loop.step(self.state, data)
        self.upload_bytes += info.payload_bytes or 0

    def evaluate(self, data: FederatedData) -> tuple[float, float]:
        """Return (accuracy, loss) on the test set."""
        return self.loop.evaluate(self.state, data)


class Scaffold:
    """SCAFFOLD with its second choice of control variates (Karimireddy et al. 2020).

    A worker corrects every gradient by c - c_i and then sets c_i to c_i - c plus its update over
    (steps * local rate). It sends the update and the change of c_i, twice FedAvg's bytes, as the
    paper's table counts. ``fedprivacy.training.Scaffold``, which can be private, sends only the
    update.
    """

    def __init__(self, cell: Cell, moved: float = 0.0) -> None:
        self.cell, self.number, self.upload_bytes = cell, 0, 0
        plain = Averaging(cell, moved)
        self.flat: FlatModel = plain.loop.flat
        self.point: Tensor = plain.state.parameters
        self.common = torch.zeros_like(self.point)
        self.own = torch.zeros(WORKERS, len(self.point))
        self.plan = LocalSGD(epochs=cell.epochs, batch_size=cell.batch)
        self.generator = np.random.default_rng(cell.seed)

    def round(self, data: FederatedData) -> None:
        """Run one round."""
        cohort = self.cell.scheme.draw(WORKERS, self.generator)
        moved, turned = torch.zeros_like(self.point), torch.zeros_like(self.point)
        for worker in map(int, cohort):
            update, change = self._worker(data, worker)
            moved += update
            turned += change
            self.own[worker] += change
            self.upload_bytes += 2 * 4 * len(self.point)
        self.point = self.point - self.cell.server_rate * moved / len(cohort)
        self.common += turned / WORKERS

    def _worker(self, data: FederatedData, worker: int) -> tuple[Tensor, Tensor]:
        """Return (start - end, change of the worker's control variate)."""
        rows = data.clients[worker]
        correction = self.common - self.own[worker]
        self.flat.load(self.point)
        parts = list(zip(self.flat.trained, self.flat.split(correction), strict=True))
        batches = self.plan.batches(len(rows), self.generator)
        for batch in batches:
            chosen = torch.from_numpy(rows[batch])
            outputs = self.flat.module(data.features[chosen])
            loss = torch.nn.functional.cross_entropy(outputs, data.labels[chosen])
            slopes = torch.autograd.grad(loss, self.flat.trained)
            with torch.no_grad():
                for (parameter, fix), slope in zip(parts, slopes, strict=True):
                    parameter.sub_(slope + fix, alpha=self.cell.local_rate)
        update = self.point - self.flat.flatten()
        return update, update / (len(batches) * self.cell.local_rate) - self.common

    def evaluate(self, data: FederatedData) -> tuple[float, float]:
        """Return (accuracy, loss) on the test set."""
        return self.flat.evaluate(self.point, data.test_features, data.test_labels)


def run(cell: Cell, most: int | None = None, moved: float = 0.0) -> dict[str, Any]:
    """Run a cell until its target or ``most`` rounds and return the result."""
    data = data_for(cell.classes, cell.seed)
    learner = (Averaging if cell.method == "fedavg" else Scaffold)(cell, moved)
    most = min(most or planned(cell), planned(cell))
    target = target_of(cell.model)
    accuracy: list[float] = []
    loss: list[float] = []
    began = time.process_time()
    while len(accuracy) < most and (not loss or (accuracy[-1] < target and isfinite(loss[-1]))):
        learner.round(data)
        right, entropy = learner.evaluate(data)
        accuracy.append(round(right, 4))
        loss.append(round(entropy, 5))
    return asdict(cell) | {
        "target": target,
        "rounds_to_target": len(accuracy) if accuracy[-1] >= target else None,
        "rounds_run": len(accuracy),
        "rounds_planned": planned(cell),
        "diverged": False,
        "upload_bytes": learner.upload_bytes,
        "processor_seconds": round(time.process_time() - began, 1),
        "accuracy": accuracy,
        "test_loss": loss,
    }


def planned(cell: Cell) -> int:
    """Return the planned number of rounds of a cell."""
    own = (cell.server_rate, cell.local_rate, cell.seed, cell.workers)
    in_grid = own[:3] != (SERVER_RATE, LOCAL_RATE, 1) or cell.workers == 50
    return GRID_ROUNDS if in_grid else MOST_ROUNDS[cell.model]


def finished(result: dict[str, Any] | None) -> bool:
    """Return whether a cell has ended: at the target, a non-finite loss, or its last round."""
    if result is None:
        return False
    ended = result["rounds_to_target"] is not None or sober(result)["diverged"]
    return ended or result["rounds_run"] >= result["rounds_planned"]


def sober(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the rounds after its parameters ceased to be finite."""
    finite = sum(1 for _ in takewhile(isfinite, result["test_loss"]))
    run = result["rounds_run"]
    if finite == len(result["test_loss"]):
        return {"diverged": False} | result
    return result | {
        "diverged": True,
        "rounds_run": finite + 1,
        "upload_bytes": result["upload_bytes"] * (finite + 1) // run,
        "accuracy": result["accuracy"][:finite],
        "test_loss": result["test_loss"][:finite],
    }


def table_2() -> Iterator[Cell]:
    """Yield the cells of Table 2: both methods, even and two classes, 10 and 100 workers."""
    for model in MODELS:
        for classes in (10, 2):
            for workers in (10, 100):
                for method in ("fedavg", "scaffold"):
                    yield Cell(method=method, model=model, workers=workers, classes=classes)


PAPER = {
    ("logistic", 10, 10): (3, 3),
    ("logistic", 10, 100): (5, 5),
    ("logistic", 2, 10): (14, 14),
    ("logistic", 2, 100): (11, 7),
    ("2nn", 10, 10): (3, 3),
    ("2nn", 10, 100): (8, 5),
    ("2nn", 2, 10): (14, 14),
    ("2nn", 2, 100): (17, 7),
    ("cnn", 10, 10): (3, 3),
    ("cnn", 10, 100): (1, 1),
    ("cnn", 2, 10): (10, 14),
    ("cnn", 2, 100): (7, 17),
}
"""Rounds of FedAvg and SCAFFOLD to 95 % in the paper's Table 2."""


def figure_1() -> Iterator[Cell]:
    """Yield the cells of Figures 1 to 4 for the 2NN and logistic, and both strategies."""
    for model in ("logistic", "2nn"):
        for classes in (1, 5):
            yield Cell(method="fedavg", model=model, workers=10, classes=classes)
        for epochs in (1, 10):
            yield Cell(method="fedavg", model=model, workers=10, classes=5, epochs=epochs)
        for classes in (10, 2):
            yield Cell(method="fedavg", model=model, workers=10, classes=classes, strategy=1)
    for model in ("logistic", "2nn"):
        for classes in (1, 5):
            yield Cell(method="fedavg", model=model, workers=100, classes=classes)
        for epochs in (1, 10):
            yield Cell(method="fedavg", model=model, workers=100, classes=5, epochs=epochs)


def by_batch() -> Iterator[Cell]:
    """Yield both methods by the size of a batch, where SCAFFOLD diverges with batches of 64."""
    for batch in (BATCH, 200, 600):
        for method in ("fedavg", "scaffold"):
            yield Cell(method=method, model="2nn", workers=10, classes=2, batch=batch)


def table_3(seeds: Iterable[int] = GRID_SEEDS) -> Iterator[Cell]:
    """Yield Table 3's grid of both learning rates, two classes, logistic; a seed at a time."""
    pairs = [(server, local) for server in SERVER_RATES for local in LOCAL_RATES]
    for seed in seeds:
        own = {"method": "fedavg", "model": "logistic", "classes": 2, "seed": seed}
        for workers in COHORTS:
            for server, local in (*pairs, *BEYOND[workers]):
                yield Cell(**own, workers=workers, server_rate=server, local_rate=local)


SMALLEST = Cell(method="fedavg", model="logistic", workers=10, classes=10)


def known() -> list[dict[str, Any]]:
    """Return the recorded cells."""
    if not results().exists():
        return []
    cells: list[dict[str, Any]] = json.loads(results().read_text())["cells"]
    return [cell | {"rounds_planned": planned(of(cell))} for cell in cells]


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
    lines = ",\n".join(json.dumps(sober(cell), allow_nan=False) for cell in cells)
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
    put("fedavg_two_sided.md", "table 3", both_rates(cells))
    put("fedavg_two_sided.md", "table 3, the best", best_pairs(cells))
    put("fedavg_two_sided.md", "rounding", rounding(cells))
    put("fedavg_two_sided.md", "plan", plan(cells))


def tables() -> dict[str, list[Cell]]:
    """Return the cells of every table."""
    parts = {"Table 2": [*table_2()], "Figure 1": [*figure_1()], "batches": [*by_batch()]}
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
        hours = sum(planned(cell) * seconds_of(cells, cell) for cell in left) / 3600
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
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--workers", type=int, choices=COHORTS)
    parser.add_argument("--classes", type=int, choices=[1, 2, 5, 10])
    parser.add_argument("--method", choices=["fedavg", "scaffold"])
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
    for cell in (*table_2(), *figure_1(), *by_batch(), *table_3()):
        own = (cell.model, cell.workers, cell.classes, cell.method)
        asked = (options.only, options.workers, options.classes, options.method)
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
