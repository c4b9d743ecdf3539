"""What correlated noise is worth: Fashion-MNIST, client level, no secret about who takes part.

At each epsilon every setting keeps it for the observer ``server``, with three seeds. A run that was
killed goes on where it stopped, and one that is there is not run again.

    python benchmarks/papers/correlated.py --folder FOLDER [--rounds 60] [--cohort 200] [--seeds 3]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path

import torch

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job

KEPT = Path(__file__).parent / "results" / "correlated.json"
PLOT = Path(__file__).parents[2] / "docs" / "papers" / "correlated_noise.png"
EPSILONS, DELTA = (8.0, 2.0), 1e-4
SETTINGS = {
    "independent, drawn afresh": ("dp-fedavg", {"strategy": "fixed"}),
    "independent, separated": ("dp-ftrl", {"bands": 1}),
    "tree": ("dp-ftrl", {"buffers": 0}),
    "banded": ("dp-ftrl", {"bands": 0}),
    "BLT, 4 buffers": ("dp-ftrl", {"buffers": 4}),
}
"""Name -> method and settings; bands 0 stands for as many as the separation."""


def settings_of(name: str, rounds: int, cohort: int) -> tuple[str, dict[str, int | str]]:
    """Return a setting's method and settings."""
    method, given = SETTINGS[name]
    found = {**given, "rounds": rounds, "cohort": cohort}
    if found.get("bands") == 0:
        clients = job("dp-ftrl", "fashion-mnist", rounds=rounds, cohort=cohort).units
        found["bands"] = max(1, min(clients // cohort, rounds))
    return method, found


def run(
    name: str, seed: int, rounds: int, cohort: int, folder: Path, epsilon: float
) -> dict[str, float]:
    """Train one setting, or read what came of it; the ledger and checkpoint stay in the folder."""
    place = folder / f"{name.replace(' ', '-').replace(',', '')}-{rounds}-{cohort}-{seed}"
    place = place.with_name(f"{place.name}-{epsilon:g}") if epsilon != EPSILONS[0] else place
    told = place.with_suffix(".json")
    if told.exists():
        return json.loads(told.read_text())
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
        "seconds": time.perf_counter() - start,
    }
    told.write_text(json.dumps(found))
    return found


def error_table(rounds: int = 2048) -> dict[str, float]:
    """Return root mean squared errors of prefix sums, one participation, noise multiplier 1."""
    once = factors.SingleParticipation()
    shapes = {
        "identity": factors.Identity(),
        "tree": factors.Tree(online=False),
        "tree, Honaker's estimate": factors.Tree(),
        "square root": factors.SquareRootToeplitz(),
        "banded inverse, 32": factors.BandedInverse(32),
    }
    found = {name: factors.errors(one, rounds, once) for name, one in shapes.items()}
    for buffers in (2, 3, 4):
        best = factors.optimised(
            factors.BufferedToeplitz(buffers), rounds=rounds, participation=once
        )
        found[f"BLT, {buffers} buffers, optimised"] = factors.errors(best, rounds, once)
    return {name: one.root_mean_square for name, one in found.items()}


GOLDEN = factors.BufferedToeplitz(
    2, scales=(0.0122853238, 0.1878393665), decays=(0.9999528892, 0.9857068667)
)
"""Of jax_privacy's tests: least largest error, 100,000 rounds, one participation."""


def published() -> dict[str, dict[str, float]]:
    """Return errors of jax_privacy's published BLT, and of ours beside what it holds to."""
    once = factors.SingleParticipation()
    found = {"100000 rounds, jax_privacy's": factors.errors(GOLDEN, 100_000, once)}
    for rounds, buffers in ((1000, 3), (10_000, 1), (10_000, 3), (10_000, 4), (100_000, 2)):
        shape = factors.BufferedToeplitz(buffers)
        best = factors.optimised(shape, rounds=rounds, participation=once)
        found[f"{rounds} rounds, {buffers} buffers"] = factors.errors(best, rounds, once)
    return {
        name: {
            "rmse": one.root_mean_square,
            "largest": one.largest,
            "ratio": one.largest / (1.0 + math.log(int(name.split()[0])) / math.pi),
        }
        for name, one in found.items()
    }


def draw(kept: dict) -> None:
    """Draw accuracies, every seed a dot, for the documentation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(kept["runs"]), figsize=(9, 3), sharey=True)
    for axis, (epsilon, table) in zip(axes, kept["runs"].items(), strict=True):
        for place, one in enumerate(table.values()):
            axis.plot(one["accuracy"], [place] * len(one["accuracy"]), "o", color="C0", ms=4)
            axis.plot(one["mean"], place, "|", color="k", ms=14)
        axis.set_yticks(range(len(table)), list(table))
        axis.set_title(f"epsilon = {epsilon}")
        axis.set_xlabel("test accuracy")
    figure.tight_layout()
    figure.savefig(PLOT, dpi=120)


def main() -> None:
    """Run what is not there yet and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cohort", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, dict[str, dict[str, object]]] = {}
    for epsilon in EPSILONS:
        table = tables.setdefault(f"{epsilon:g}", {})
        for name in SETTINGS:
            runs = [
                run(name, seed, given.rounds, given.cohort, given.folder, epsilon)
                for seed in range(given.seeds)
            ]
            scores = [one["accuracy"] for one in runs]
            table[name] = {
                "accuracy": scores,
                "mean": statistics.mean(scores),
                "noise_multiplier": runs[0]["noise_multiplier"],
                "epsilon": max(one["epsilon"] for one in runs),
            }
            print(epsilon, name, table[name], flush=True)
    settings = {"delta": DELTA, "rounds": given.rounds, "cohort": given.cohort}
    kept = {"settings": settings, "runs": tables, "prefix sums, 2048": error_table()}
    kept["published BLT"] = published()
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    draw(kept)


if __name__ == "__main__":
    main()
