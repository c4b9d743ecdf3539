"""Fed-PLT, Tables II to IX of Bastianello, Liu and Johansson, with the paper's numbers.

    python benchmarks/papers/fed_plt.py             all tables (an hour), results/fed_plt.json
    python benchmarks/papers/fed_plt.py --table VII one table; cells that are there already stay
    python benchmarks/papers/fed_plt.py --check     reruns the smallest cell and compares

The computation is ``fedprivacy.reproductions.fed_plt``, as of ``fedprivacy papers run``. This
script records whole tables for the documentation.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from drawn import Cells, near, redrawn
from told import at_least
from torch import Tensor

from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.fed_plt.algorithms import FedLin, Problem
from fedprivacy.reproductions.fed_plt.measuring import (
    BOUND,
    DELTA,
    LAST_ROUNDS,
    MOST_ROUNDS,
    NOISY_ROUNDS,
    RECORDS,
    REGULARISATION,
    SEED,
    TARGET,
    FedPlt,
    accounts,
    asymptotic_errors,
    edges,
    longer,
    problem_of,
    searches,
    speed,
    summary,
    tuned,
)
from fedprivacy.reproductions.fed_plt.rows import (
    LARGE_RUNS,
    LARGE_TUNING_AGENTS,
    TUNING_RUNS,
    bounded,
    noisy_loop,
    recorded,
    time_of,
)
from fedprivacy.reproductions.fed_plt.tables import (
    ACTIVE,
    AGENTS,
    ALL,
    COSTS,
    LARGE_COSTS,
    LOCAL,
    LOCAL_STEPS,
    PENALTIES,
    RUNS,
    VARIANCES,
    WAYS,
)

RESULTS = Path(__file__).parent / "results" / "fed_plt.json"
SETTINGS = {
    "rounds at most": MOST_ROUNDS,
    "squared gradient to reach": TARGET,
    "runs tuned on": TUNING_RUNS,
    "agents": AGENTS,
    "records of an agent": RECORDS,
    "local steps": LOCAL_STEPS,
    "regularisation": REGULARISATION,
    "table VII": {"rounds": NOISY_ROUNDS, "averaged": LAST_ROUNDS, "delta": DELTA, "norm": BOUND},
}
"""Settings of the runs, as named in the results."""


def measured(name: str, problem: Problem, algorithm: Any, active: int | None = None) -> dict:
    """Run an algorithm, and return means over the runs that converge."""
    began = time.perf_counter()
    found = speed(algorithm, problem)
    row = recorded(algorithm, found.rounds, found.local_steps, active)
    row |= {"seconds": time.perf_counter() - began}
    print(f"  {name}: {row['rounds']:.2f} rounds, {row['seconds']:.0f} s", flush=True)
    return row


def key_of(name: str, kind: str = "convex", dimension: int = 5, active: int | None = None) -> str:
    """Return a cell's name in the file of results."""
    return f"{name}, {kind}, n = {dimension}, {active or AGENTS} active"


def times(name: str, row: dict[str, Any]) -> dict[str, float]:
    """Return the computation time by the cost of a communication."""
    return {str(cost): time_of(name, row, 1.0, cost) for cost in COSTS}


class Tables:
    """Measures every table; a cell in the file of results is not measured again.

    A cell with fewer runs than requested is measured again, with its recorded parameters.
    """

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.cells: dict[str, dict] = read().get("cells", {})
        self._problems: dict[tuple, Problem] = {}
        self._part: tuple[int, Problem] | None = None

    def problem(self, kind: str, dimension: int, tuning: bool = False) -> Problem:
        runs, agents = TUNING_RUNS if tuning else self.runs, AGENTS
        if dimension > 5:
            runs = 1 if tuning else LARGE_RUNS
            agents = LARGE_TUNING_AGENTS if tuning else AGENTS
        key = (kind, dimension, tuning)
        if key not in self._problems:
            self._problems[key] = problem_of(kind, dimension, runs, SEED + tuning, agents)
        return self._problems[key]

    def cell(self, key: str, measure: Callable[[], dict]) -> dict:
        if key not in self.cells or runs_of(self.cells[key]) < self.runs:
            self.cells[key] = measure()
            write(cells={**read().get("cells", {}), key: self.cells[key]})
        return self.cells[key]

    def row(self, name: str, kind: str, dimension: int = 5, active: int | None = None) -> dict:
        key = key_of(name, kind, dimension, active)

        def measure() -> dict:
            algorithm = self.algorithm(name, kind, dimension, active)
            if dimension > 5:
                return self.large(key, algorithm)
            return measured(name, self.problem(kind, dimension), algorithm, active)

        row = self.cell(key, measure)
        return row | {"edges": edges(searches(kind, active)[name][1], row["parameters"])}

    def algorithm(self, name: str, kind: str, dimension: int, active: int | None = None) -> Any:
        """Return an algorithm with its recorded parameters, or with newly tuned ones."""
        key = key_of(name, kind, dimension, active)
        make, ranges = searches(kind, active)[name]
        if key in self.cells:
            return make(**{each: self.cells[key]["parameters"][each] for each in ranges})
        return tuned(make, ranges, self.problem(kind, dimension, tuning=True))

    def large(self, key: str, algorithm: Any) -> dict:
        """Return a row of n = 100, whose runs are computed and recorded in parts."""
        began = time.perf_counter()
        for number in range(self.runs // LARGE_RUNS):
            self.part(key, algorithm, number)
        parts = read()["parts"][key]
        rounds, steps = (torch.tensor([one for part in parts for one in part[at]]) for at in (0, 1))
        seconds = time.perf_counter() - began
        return recorded(algorithm, rounds, steps) | {"seconds": seconds}

    def part(self, key: str, algorithm: Any, number: int) -> None:
        """Compute some runs of n = 100, unless they are recorded."""
        done = read().get("parts", {}).get(key, [])
        if number < len(done):
            return
        seed = SEED + 100 * number
        if self._part is None or self._part[0] != number:
            self._part = number, problem_of("convex", 100, LARGE_RUNS, seed)
        found = speed(algorithm, self._part[1], seed=seed)
        part = [found.rounds.tolist(), found.local_steps.tolist()]
        write(parts={**read().get("parts", {}), key: [*done, part]})
        print(f"  part {number}, {key}: {found.rounds.mean():.2f} rounds", flush=True)

    def table_ii(self) -> dict:
        return {
            kind: {
                name: (row := self.row(name, kind)) | {"time": time_of(name, row, 1.0, 10.0)}
                for name in ALL
            }
            for kind in ("convex", "nonconvex")
        }

    def table_iii(self) -> dict:
        return {name: times(name, self.row(name, "convex")) for name in ALL}

    def table_iv(self) -> dict:
        cells: dict[str, dict] = {}
        for name, ways in WAYS.items():
            for way in ways:
                for active in (None, AGENTS // 2):
                    row = self.row(way, "convex", active=active)
                    what = ("accelerated" if way != name else "gradient") + (
                        ", partial" if active else ""
                    )
                    cells.setdefault(name, {})[what] = row | {"time": time_of(name, row, 1.0, 10.0)}
        return cells

    def table_v(self) -> dict:
        chosen = {name: self.algorithm(name, "convex", 100) for name in ALL}
        # All algorithms use the same records, which take longer to draw than some runs.
        for number in range(self.runs // LARGE_RUNS):
            for name, algorithm in chosen.items():
                self.part(key_of(name, dimension=100), algorithm, number)
        return {
            name: (row := self.row(name, "convex", 100))
            | {"time": {str(c): time_of(name, row, 20.0, c) for c in LARGE_COSTS}}
            for name in ALL
        }

    def table_vi(self) -> dict:
        found = {}
        for active in ACTIVE:
            row = self.row("Fed-PLT", "convex", active=None if active == AGENTS else active)
            found[str(100 * active // AGENTS)] = row | {"time": time_of("Fed-PLT", row, 1.0, 10.0)}
        return found

    def table_vii(self) -> dict:
        penalty = self.row("Fed-PLT", "convex")["parameters"]["penalty"]
        write(**{SCALED: longer(self.problem("convex", 5))})
        found = {}
        for variance in VARIANCES:
            key = f"Fed-PLT, noise of variance {variance:g}"
            row = self.cell(key, lambda variance=variance: noisy(self.bounded, penalty, variance))
            found[f"{variance:g}"] = row | {"accounts": accounts(variance, row["penalty"])}
        return found

    @cached_property
    def bounded(self) -> tuple[Problem, Tensor]:
        """Table VII's problem, with inputs scaled down, and its optimum."""
        return bounded(self.problem("convex", 5))

    def table_viii(self) -> dict:
        problem, found = self.problem("convex", 5), {}
        for penalty in PENALTIES:
            algorithm = FedPlt(penalty)
            row = self.cell(
                f"Fed-PLT, rho = {penalty:g}",
                partial(measured, "Fed-PLT", problem, algorithm),
            )
            found[f"{penalty:g}"] = row | {"time": time_of("Fed-PLT", row, 1.0, 10.0)}
        return found

    def table_ix(self) -> dict:
        problem, found = self.problem("convex", 5), {}
        settings = self.row("Fed-PLT", "convex")["parameters"]
        for steps in LOCAL:
            algorithm = FedPlt(**settings, local_steps=steps)
            row = self.cell(
                f"Fed-PLT, {steps} local steps",
                partial(measured, "Fed-PLT", problem, algorithm),
            )
            found[str(steps)] = row | {"time": times("Fed-PLT", row)}
        return found


SCALED = "share of inputs scaled down"
"""Key of Table VII in the file of results."""


def runs_of(cell: dict[str, Any]) -> int:
    """Return the number of runs of a cell, the least of its rows if it has several."""
    rows = [cell] if "runs" in cell else cell.values()
    return min(row["runs"] for row in rows)


def noisy(made: tuple[Problem, Tensor], penalty: float, variance: float) -> dict:
    """Return a row of Table VII: errors with this noise."""
    (problem, best), began = made, time.perf_counter()
    loop = noisy_loop(penalty, variance, problem)
    errors = asymptotic_errors(loop, problem, best)
    print(f"  variance {variance:g}: {errors['all_models']:.4g}", flush=True)
    return errors | {
        "step_size": loop.solvers[0].step_size,
        "penalty": penalty,
        "runs": problem.runs,
        "seconds": time.perf_counter() - began,
    }


def again(tables: "Tables", key: str) -> bool:
    """Return whether a cell, at its recorded parameters, reproduces its speed."""
    name, kind, size, active = key.rsplit(", ", 3)
    dimension, taking_part = int(size.removeprefix("n = ")), int(active.split()[0])
    part = None if taking_part == AGENTS else taking_part
    kept = tables.cells[key]
    if parts := read().get("parts", {}).get(key):
        # Compared with the first part; the other parts are similar.
        kept = kept | summary(*map(torch.tensor, parts[0]))
    make, ranges = searches(kind, part)[name]
    algorithm = make(**{each: kept["parameters"][each] for each in ranges})
    return as_fast(kept, algorithm, tables.problem(kind, dimension))


def as_fast(kept: dict[str, Any], algorithm: Any, problem: Problem) -> bool:
    """Return whether an algorithm has its recorded speed."""
    rounds = speed(algorithm, problem).rounds
    found = rounds[rounds.isfinite()]
    return len(found) == kept["converged"] and near(float(found.mean()), kept["rounds"], 1e-2)


def again_in_iii(tables: "Tables", name: str) -> bool:
    """Return whether a row of Table III reproduces."""
    key = key_of(name)
    return near(times(name, tables.cells[key]), read()["III"][name]) and again(tables, key)


def again_with_noise(tables: "Tables", variance: str) -> bool:
    """Return whether a row of Table VII reproduces."""
    kept = read()["VII"][variance]
    fresh = noisy(tables.bounded, kept["penalty"], float(variance))
    fresh |= {"accounts": accounts(float(variance), kept["penalty"])}
    return all(near(fresh[name], kept[name], 1e-3) for name in kept if name != "seconds")


def again_as(tables: "Tables", key: str, algorithm: FedPlt) -> bool:
    """Return whether a row of Table VIII or IX reproduces."""
    return as_fast(tables.cells[key], algorithm, tables.problem("convex", 5))


def drawn_from(tables: "Tables") -> dict[str, Cells]:
    """Return the cells of each table that may be drawn for a check."""
    kept, half = read(), (None, AGENTS // 2)
    rivals = ("TAMUNA", "5GCS", "5GCS accelerated", "Fed-PLT", "Fed-PLT accelerated")
    keys = {
        "II": [key_of(name, kind) for kind in ("convex", "nonconvex") for name in ALL],
        "IV": [key_of(name, active=part) for name in rivals for part in half],
        "V": [key_of(name, dimension=100) for name in ALL],
        "VI": [key_of("Fed-PLT", active=active) for active in ACTIVE],
    }
    found = {
        name: {key: partial(again, tables, key) for key in own if key in tables.cells}
        for name, own in keys.items()
    }
    found["III"] = {name: partial(again_in_iii, tables, name) for name in ALL}
    found["VII"] = {one: partial(again_with_noise, tables, one) for one in kept["VII"]}
    settings = tables.cells[key_of("Fed-PLT")]["parameters"]
    made = {
        "VIII": {f"rho = {rho}": FedPlt(float(rho)) for rho in kept["VIII"]},
        "IX": {f"{n} local steps": FedPlt(**settings, local_steps=int(n)) for n in kept["IX"]},
    }
    for table, own in made.items():
        found[table] = {
            name: partial(again_as, tables, f"Fed-PLT, {name}", one) for name, one in own.items()
        }
    return {f"Table {name}": found[name] for name in NAMES}


NAMES = ("II", "III", "IV", "V", "VI", "VII", "VIII", "IX")


def check() -> None:
    """Repeat the smallest cell (ten runs of Fed-PLT and FedLin and one account), and drawn cells.

    One cell is drawn from every table, with all of its runs.
    """
    kept = json.loads(RESULTS.read_text())["check"]
    fresh = smallest()
    for name, value in kept.items():
        if not math.isclose(fresh[name], value, rel_tol=1e-6):
            raise SystemExit(f"{name}: {fresh[name]!r}, recorded was {value!r}")
    print(f"the same as recorded: {fresh}")
    if not redrawn(drawn_from(Tables(RUNS))):
        raise SystemExit("a drawn cell differs")


def smallest() -> dict[str, float]:
    problem = problem_of("convex", 5, 10, SEED + 2)
    ours, lin = (speed(each, problem).rounds for each in (FedPlt(0.5), FedLin(0.15)))
    row = accounts(1.0, 1.0)[0]
    return {
        "Fed-PLT rounds": float(ours.mean()),
        "FedLin rounds": float(lin.mean()),
        "published epsilon": row["published"],
        "sound epsilon": row["sound"],
    }


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def write(**found: Any) -> None:
    """Update entries of the file of results; other entries stay."""
    RESULTS.parent.mkdir(exist_ok=True)
    facts = {"inputs": "made up", "seed": SEED, "settings": SETTINGS}
    known = read()
    # Otherwise cells of other settings would be attributed to these settings.
    told = json.loads(json.dumps(SETTINGS, default=float))
    if known.get("settings", told) != told or known.get("seed", SEED) != SEED:
        raise SystemExit(f"{RESULTS.name} is of other settings or another seed; move it away")
    kept = {**known, **facts, **found}
    whole_file(RESULTS, json.dumps(kept, indent=1, default=float) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", choices=NAMES, action="append")
    parser.add_argument("--runs", type=at_least(LARGE_RUNS), default=RUNS)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check:
        return check()
    tables = Tables(options.runs)
    for name in options.table or NAMES:
        print(f"Table {name}", flush=True)
        write(**{name: getattr(tables, f"table_{name.lower()}")()})
    write(check=smallest())
    return None


if __name__ == "__main__":
    main()
