"""Fed-SMP on Fashion-MNIST, Table I of Hu, Guo and Gong: accuracy and upload beside the paper's.

    python benchmarks/papers/fed_smp.py --run top_k-0.005 --seed 1     runs, or goes on with, one run
    python benchmarks/papers/fed_smp.py --collect                      writes results/fed_smp.json
    python benchmarks/papers/fed_smp.py --check                        reruns the smallest cell

A run keeps its checkpoint, ledger and accuracies in ``progress/``, which is not committed, and goes
on from there. ``results/fed_smp.json`` says of every run how many rounds are done.
"""

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import fedprivacy as fp
from fedprivacy.training import (
    FederatedAveraging,
    FederatedData,
    RoundInfo,
    State,
    cnn,
    fashion_mnist,
    train,
)

HERE = Path(__file__).parent
CLIENTS, COHORT, ROUNDS, NOISE, CLIP = 6000, 100, 180, 1.4, 1.0
DELTA = CLIENTS**-1.1
EVERY = 5
"""Rounds between two evaluations; one costs a quarter of a round."""

PAPER = {
    "fedavg": 86.98,
    "dp-fedavg": 72.72,
    "top_k-0.001": 77.18,
    "top_k-0.005": 80.76,
    "top_k-0.1": 80.49,
    "top_k-0.8": 79.77,
    "rand_k-0.1": 77.59,
    "rand_k-0.4": 79.88,
}
"""Best test accuracy in Table I, per cent, mean of five seeds."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run: a method, its compression ratio, and at what scale."""

    method: str
    seed: int
    ratio: float = 1.0
    rounds: int = ROUNDS

    @property
    def label(self) -> str:
        """Its name in Table I."""
        return self.method if self.ratio == 1.0 else f"{self.method}-{self.ratio:g}"

    @property
    def folder(self) -> Path:
        """Where it keeps its progress."""
        return HERE / "progress" / f"fed_smp-{self.label}-seed{self.seed}"

    def data(self) -> FederatedData:
        """Return 60,000 images among 6,000 clients; for top_k 1,000 of them are public."""
        public = 1000 if self.method == "top_k" else 0
        return fashion_mnist(clients=CLIENTS, public=public, seed=self.seed)

    def loop(self) -> FederatedAveraging:
        """Return the loop with the paper's settings.

        Ten epochs of a client's ten records (some have nine) in batches of ten are ten steps, and
        the server takes as many for top_k's mask, as in the paper's Algorithm 2.
        """
        plain = FederatedAveraging(
            model=cnn(),
            scheme=fp.FixedSize(COHORT, population=CLIENTS),
            local_steps=10,
            batch_size=10,
            learning_rate=0.125,
            learning_rate_decay=0.99,
            momentum=0.5,
            seed=self.seed,
        )
        if self.method == "fedavg":
            return plain
        dimension = plain.flat.dimension
        perturbation = fp.SparsifiedPerturbation(
            noise_multiplier=NOISE,
            clip_norm=CLIP,
            kept=round(self.ratio * dimension),
            dimension=dimension,
            cohort=COHORT,
            sparsifier="top_k" if self.method == "top_k" else "rand_k",
        )
        return replace(plain, perturbation=perturbation)


def setting_of(label: str, seed: int, rounds: int) -> Setting:
    """Return the setting that a label such as "top_k-0.005" names."""
    method, _, ratio = label.partition("-0.")
    if method not in ("fedavg", "dp-fedavg", "top_k", "rand_k"):
        raise SystemExit(f"--run must be fedavg, dp-fedavg, top_k-P or rand_k-P, got {label!r}")
    share = float("0." + ratio) if ratio else 1.0
    return Setting(method=method, ratio=share, seed=seed, rounds=rounds)


def ledger_of(setting: Setting, loop: FederatedAveraging) -> fp.Ledger | None:
    """Return the run's ledger, a new one or the one begun; None without privacy."""
    if loop.round_mechanism is None:
        return None
    path = setting.folder / "run.ledger"
    if path.exists():
        return fp.Ledger.open(path, resume=True)
    return fp.Ledger.create(
        path,
        unit="client",
        adjacency="zero_out",
        seed_policy="fixed",
        plan=loop.round_mechanism * setting.rounds,
    )


def run(setting: Setting) -> None:
    """Run, or go on with, one run until all its rounds are done."""
    setting.folder.mkdir(parents=True, exist_ok=True)
    data, loop = setting.data(), setting.loop()
    ledger = ledger_of(setting, loop)
    notes = setting.folder / "rounds.jsonl"

    def note(state: State, info: RoundInfo) -> None:
        line: dict[str, Any] = {"round": state.round, "upload_bytes": info.upload_bytes}
        line |= {"arrived": info.arrived, "refused": info.refused}
        if state.round % EVERY == 0 or state.round == setting.rounds:
            line["accuracy"], line["loss"] = loop.evaluate(state, data)
        with notes.open("a") as file:
            file.write(json.dumps(line) + "\n")

    try:
        train(
            loop,
            data,
            rounds=setting.rounds,
            ledger=ledger,
            checkpoint=setting.folder / "state.pt",
            on_round=note,
        )
    finally:
        if ledger is not None:
            ledger.release()


def lines(path: Path) -> dict[int, dict[str, Any]]:
    """Return what is known of every round; of a round that was run twice, the later."""
    if not path.exists():
        return {}
    known = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {line["round"]: line for line in known}


def epsilons(path: Path) -> dict[str, dict[str, float]]:
    """Return the certified epsilon of a ledger, by observer and adjacency."""
    cells = {"aggregate": ("zero_out", "add_remove", "replace_one"), "server": ("zero_out",)}
    return {
        observer: {
            kind: fp.account(path, delta=DELTA, adjacency=kind, observer=observer).upper
            for kind in kinds
        }
        for observer, kinds in cells.items()
    }


def record(setting: Setting) -> dict[str, Any]:
    """Return what one run has come to so far."""
    rounds = lines(setting.folder / "rounds.jsonl")
    accuracy = {n: line["accuracy"] for n, line in sorted(rounds.items()) if "accuracy" in line}
    best = max(accuracy.values(), default=None)
    path = setting.folder / "run.ledger"
    return {
        "run": setting.label,
        "seed": setting.seed,
        "rounds_done": max(rounds, default=0),
        "rounds_planned": setting.rounds,
        "finished": max(rounds, default=0) == setting.rounds,
        "best_accuracy": best,
        "paper_best_accuracy": PAPER.get(setting.label, 0.0) / 100 or None,
        "accuracy_by_round": accuracy,
        "upload_bytes_of_all_clients": sum(line["upload_bytes"] for line in rounds.values()),
        "refused": sum(line["refused"] for line in rounds.values()),
        "epsilon": epsilons(path) if path.exists() else None,
        "ledger_rounds": fp.Ledger.open(path).spent_rounds if path.exists() else None,
        "delta": DELTA if path.exists() else None,
    }


def begun() -> Iterator[Setting]:
    """Yield every run that has progress."""
    for folder in sorted((HERE / "progress").glob("fed_smp-*-seed*")):
        label, _, seed = folder.name.removeprefix("fed_smp-").rpartition("-seed")
        yield setting_of(label, int(seed), ROUNDS)


def collect() -> None:
    """Write the results of all runs that have progress, finished or not."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    content = {"versions": versions, "runs": [record(setting) for setting in begun()]}
    target = HERE / "results" / "fed_smp.json"
    temporary = target.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, target)


def main() -> None:
    """Read the command line and do as it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="fedavg, dp-fedavg, top_k-P or rand_k-P")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--collect", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.run:
        run(setting_of(options.run, options.seed, options.rounds))
    if options.collect:
        collect()


if __name__ == "__main__":
    main()
