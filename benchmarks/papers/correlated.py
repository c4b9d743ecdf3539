"""Benefit of correlated noise: Fashion-MNIST, client level, with public participation.

At each epsilon every setting meets it for the observer ``server``, with three seeds. A killed run
continues where it stopped, and a finished run is not repeated.

    python benchmarks/papers/correlated.py --folder FOLDER [--rounds 60] [--cohort 200] [--seeds 3]
    python benchmarks/papers/correlated.py --page    only writes the tables
    python benchmarks/papers/correlated.py --check   computes errors again, and does one run
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from drawn import near, redrawn
from pages import put, table
from told import at_least

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.outputs import whole_file
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job

KEPT = Path(__file__).parent / "results" / "correlated.json"
PLOT = Path(__file__).parents[2] / "docs" / "papers" / "correlated_noise.png"
EPSILONS, DELTA = (8.0, 2.0), 1e-4
RATES = {"server_learning_rate": 2.0, "learning_rate": 0.2}
SETTING = {"data": "fashion-mnist", "inputs": "unit", "delta": DELTA}
SETTING |= {"server_rate": RATES["server_learning_rate"], "local_rate": RATES["learning_rate"]}
"""Common settings of all runs; the rates are the methods' defaults."""
SETTINGS = {
    "independent, drawn afresh": ("dp-fedavg", {"strategy": "fixed"}),
    "independent, separated": ("dp-ftrl", {"bands": 1}),
    "tree": ("dp-ftrl", {"buffers": 0}),
    "banded": ("dp-ftrl", {"bands": 0}),
    "BLT, 4 buffers": ("dp-ftrl", {"buffers": 4}),
}
"""Name -> method and settings; bands 0 means the separation."""


def settings_of(name: str, rounds: int, cohort: int) -> tuple[str, dict[str, int | float | str]]:
    """Return a setting's method and settings."""
    method, given = SETTINGS[name]
    found = {**given, **RATES, "rounds": rounds, "cohort": cohort}
    if found.get("bands") == 0:
        clients = job("dp-ftrl", "fashion-mnist", rounds=rounds, cohort=cohort).units
        found["bands"] = max(1, min(clients // cohort, rounds))
    return method, found


def run(
    name: str, seed: int, rounds: int, cohort: int, folder: Path, epsilon: float
) -> dict[str, float]:
    """Train one setting, or read its result; the ledger and checkpoint stay in the folder."""
    place = folder / f"{name.replace(' ', '-').replace(',', '')}-{rounds}-{cohort}-{seed}"
    place = place.with_name(f"{place.name}-{epsilon:g}") if epsilon != EPSILONS[0] else place
    told = place.with_suffix(".json")
    if told.exists() and "rounds_done" in (known := json.loads(told.read_text())):
        return known
    method, given = settings_of(name, rounds, cohort)
    start = time.perf_counter()
    task = job(method, "fashion-mnist", **given)
    whole = Experiment(
        job=task, epsilon=epsilon, delta=DELTA, observer="server", seed=seed, evaluate_every=rounds
    )
    ledger, state = place.with_suffix(".ledger"), place.with_suffix(".state")
    done = whole.run(ledger_path=ledger, checkpoint=state)
    upper = fp.account(ledger, delta=DELTA, observer="server").upper
    found = {
        "accuracy": done.scores["accuracy"],
        "epsilon": upper,
        "noise_multiplier": whole.recorded_level(ledger),
        "rounds_done": done.rounds[-1],
        "seconds": time.perf_counter() - start,
    }
    whole_file(told, json.dumps(found))
    return found


SHAPES: dict[str, factors.Factor] = {
    "identity": factors.Identity(),
    "tree": factors.Tree(online=False),
    "tree, Honaker's estimate": factors.Tree(),
    "banded inverse, 32": factors.BandedInverse(32),
    "square root": factors.SquareRootToeplitz(),
}
"""Factors without optimised parameters."""
BUFFERS = (2, 3, 4)


def prefix_error(name: str, rounds: int = 2048) -> float:
    """Return a factor's RMSE of prefix sums, one participation, noise multiplier 1."""
    once = factors.SingleParticipation()
    shape = SHAPES.get(name)
    if shape is None:
        plain = factors.BufferedToeplitz(int(name.removeprefix("BLT, ").split()[0]))
        shape = factors.optimised(plain, rounds=rounds, participation=once)
    return factors.errors(shape, rounds, once).root_mean_square


def error_table() -> dict[str, float]:
    """Return the errors of prefix sums of every factor."""
    names = [*SHAPES, *(f"BLT, {buffers} buffers, optimised" for buffers in BUFFERS)]
    return {name: prefix_error(name) for name in names}


GOLDEN = factors.BufferedToeplitz(
    2, scales=(0.0122853238, 0.1878393665), decays=(0.9999528892, 0.9857068667)
)
"""From jax_privacy's tests: least largest error, 100,000 rounds, one participation."""


PUBLISHED: dict[str, tuple[str, float | None]] = {
    "100000 rounds, jax_privacy's": ("2 buffers, jax_privacy's", 1.16),
    "100000 rounds, 2 buffers": ("2 buffers, ours", None),
    "10000 rounds, 4 buffers": ("4 buffers, ours", 1.03),
    "10000 rounds, 3 buffers": ("3 buffers, ours", 1.03),
    "10000 rounds, 1 buffers": ("1 buffer, ours", 1.45),
    "1000 rounds, 3 buffers": ("3 buffers, ours", 1.03),
}
"""Factors in the comparison with jax_privacy's tests: name on the page, and the tests' value."""


def published_error(name: str) -> dict[str, float]:
    """Return errors of jax_privacy's published BLT, or of ours with these rounds and buffers."""
    rounds, _, buffers = name.split()[:3]
    once, shape = factors.SingleParticipation(), GOLDEN
    if buffers.isdigit():
        plain = factors.BufferedToeplitz(int(buffers))
        shape = factors.optimised(plain, rounds=int(rounds), participation=once)
    one = factors.errors(shape, int(rounds), once)
    ratio = one.largest / (1.0 + math.log(int(rounds)) / math.pi)
    return {"rmse": one.root_mean_square, "largest": one.largest, "ratio": ratio}


SHOWN = {
    "independent, drawn afresh": "independent, cohorts drawn afresh (DP-FedAvg, T4)",
    "independent, separated": "independent, clients separated",
    "tree": "binary tree, Honaker's estimate",
    "banded": "banded, optimised",
    "BLT, 4 buffers": "BLT, 4 buffers, optimised",
}


def page(kept: dict) -> None:
    """Write the page's tables."""
    first, second = kept["runs"].values()
    rows = [
        [
            SHOWN[name],
            *(f"{one[name]['mean']:.3f}".lstrip("0") for one in (first, second)),
            *(f"{one[name]['noise_multiplier']:.2f}" for one in (first, second)),
        ]
        for name in SETTINGS
    ]
    head = ["noise", "accuracy, $\\varepsilon = 8$", "$\\varepsilon = 2$"]
    put("correlated_noise.md", "runs", table([*head, "noise multiplier, 8", "2"], rows))
    errors = sorted(kept["prefix sums, 2048"].items(), key=lambda pair: -pair[1])
    rows = [[name, f"{error:.5g}"] for name, error in errors]
    put("correlated_noise.md", "prefix sums", table(["factor", "error"], rows))
    rows = []
    for name, (told, most) in PUBLISHED.items():
        one = kept["published BLT"][name]
        own = [f"{int(name.split()[0]):,}", told]
        own += [f"{one[key]:.3f}" for key in ("rmse", "largest", "ratio")]
        rows.append([*own, f"{most:g}" if most else ""])
    head = ["rounds", "BLT", "RMSE", "largest error", "over $1 + \\ln n / \\pi$", "theirs, at most"]
    put("correlated_noise.md", "published", table(head, rows))


def check() -> int:
    """Check errors, two of them drawn at random, and one drawn run; return the exit status."""
    kept = json.loads(KEPT.read_text())
    plain, beside = kept["prefix sums, 2048"], kept["published BLT"]
    apart = max(abs(prefix_error(name) / plain[name] - 1.0) for name in SHAPES)
    same = apart <= 1e-6
    told = "same" if same else "DIFFERENT"
    print(f"{told}: errors of prefix sums differ by at most {apart:.1e} of themselves")
    runs = {
        f"epsilon {epsilon}, {name}, seed {seed}": partial(runs_again, epsilon, name, seed, row)
        for epsilon, rows in kept["runs"].items()
        for name, row in rows.items()
        for seed in kept["settings"]["seeds"]
    }
    others = {
        "runs": runs,
        "optimised factors": {
            name: partial(agrees, prefix_error, name, plain[name])
            for name in plain
            if name not in SHAPES
        },
        "published": {
            name: partial(agrees, published_error, name, beside[name]) for name in PUBLISHED
        },
    }
    return 0 if redrawn(others) and same else 1


def runs_again(epsilon: str, name: str, seed: int, old: dict) -> bool:
    """Return whether a run reproduces, up to one point: rounding changes the end of a run."""
    facts = json.loads(KEPT.read_text())["settings"]
    with tempfile.TemporaryDirectory() as folder:
        sizes = (facts["rounds_planned"], facts["cohort"])
        fresh = run(name, seed, *sizes, Path(folder), float(epsilon))
    near_enough = near(fresh["noise_multiplier"], old["noise_multiplier"], 1e-3)
    return near_enough and abs(fresh["accuracy"] - old["accuracy"][seed]) <= 0.01


def agrees(compute, name: str, old: object) -> bool:
    """Return whether an error reproduces, up to the tolerance of the search."""
    return near(compute(name), old, 1e-4)


def draw(kept: dict) -> None:
    """Draw accuracies, every seed a dot, for the documentation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(kept["runs"]), figsize=(9, 3), sharey=True)
    for axis, (epsilon, found) in zip(axes, kept["runs"].items(), strict=True):
        for place, one in enumerate(found.values()):
            axis.plot(one["accuracy"], [place] * len(one["accuracy"]), "o", color="C0", ms=4)
            axis.plot(one["mean"], place, "|", color="k", ms=14)
        axis.set_yticks(range(len(found)), list(found))
        axis.set_title(f"epsilon = {epsilon}")
        axis.set_xlabel("test accuracy")
    figure.tight_layout()
    figure.savefig(PLOT, dpi=120)


def main() -> None:
    """Run the missing settings and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where runs are kept; needed to run")
    parser.add_argument("--rounds", type=at_least(1), default=60)
    parser.add_argument("--cohort", type=at_least(1), default=200)
    parser.add_argument("--seeds", type=at_least(1), default=3)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.check:
        sys.exit(check())
    if given.page:
        page(json.loads(KEPT.read_text()))
        return
    if given.folder is None:
        parser.error("--folder is needed to run")
    given.folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, dict[str, dict[str, object]]] = {}
    for epsilon in EPSILONS:
        found = tables.setdefault(f"{epsilon:g}", {})
        for name in SETTINGS:
            runs = [
                run(name, seed, given.rounds, given.cohort, given.folder, epsilon)
                for seed in range(given.seeds)
            ]
            scores = [one["accuracy"] for one in runs]
            found[name] = {
                "accuracy": scores,
                "mean": statistics.mean(scores),
                "rounds_done": [one["rounds_done"] for one in runs],
                "noise_multiplier": runs[0]["noise_multiplier"],
                "epsilon": max(one["epsilon"] for one in runs),
            }
            print(epsilon, name, found[name], flush=True)
    own = {"rounds_planned": given.rounds, "cohort": given.cohort}
    own |= {"seeds": list(range(given.seeds))}
    kept = {"settings": SETTING | own, "runs": tables, "prefix sums, 2048": error_table()}
    kept["published BLT"] = {name: published_error(name) for name in PUBLISHED}
    whole_file(KEPT, json.dumps(kept, indent=1) + "\n")
    page(kept)
    draw(kept)


if __name__ == "__main__":
    main()
