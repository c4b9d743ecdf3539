"""Compare a learned clip norm with fixed ones at one epsilon: accuracy and norm by round.

    python benchmarks/adaptive_clipping.py             writes results/adaptive_clipping.json
    python benchmarks/adaptive_clipping.py --rounds 6 --seeds 1      prints only, writes no file

DP-FedAvg with logistic regression on Fashion-MNIST: 1,000 clients, 100 drawn in each round, 10
local steps. All runs have the same noise multiplier, calibrated for the epsilon. They differ only
in the clip norm: fixed norms, and ``AdaptiveClipping`` with a start that is too small or too large.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
from tables import table

import fedprivacy as fp
from fedprivacy.training import FederatedAveraging, fashion_mnist, logistic

RESULTS = Path(__file__).parent / "results" / "adaptive_clipping.json"
CLIENTS, EPSILON, DELTA = 1000, 4.0, 1e-4
SCHEME = fp.FixedSize(100, population=CLIENTS)
FIXED = (0.01, 0.1, 0.3, 1.0, 10.0)
BEGUN = (0.01, 10.0)
SHOWN = (1, 5, 10, 20, 40)
"""Rounds in the table."""


def calibrated(rounds: int) -> float:
    """Return the noise multiplier of every run."""
    found = fp.calibrate(
        lambda z: fp.Gaussian(noise_multiplier=z).sampled(SCHEME) * rounds,
        epsilon=EPSILON,
        delta=DELTA,
        adjacency="zero_out",
    )
    return found.value


def train(noise: fp.Gaussian, rounds: int, seed: int, data) -> dict[str, list[float]]:
    """Return the accuracy after every round, and its clip norm."""
    loop = FederatedAveraging(
        model=logistic(784, 10),
        scheme=SCHEME,
        perturbation=noise,
        local_steps=10,
        batch_size=10,
        learning_rate=0.1,
        seed=seed,
    )
    state, found = loop.init(), {"accuracy": [], "clip_norm": []}
    for _ in range(rounds):
        found["clip_norm"].append(getattr(state, "clip_norm", noise.clip_norm))
        state, _ = loop.step(state, data)
        found["accuracy"].append(loop.evaluate(state, data)[0])
    return found


def shown(name: str, runs: list[dict[str, list[float]]], rounds: int) -> list[str]:
    """Return a row: accuracy after some rounds, and the first and the last clip norm."""
    told = []
    for number in (n for n in SHOWN if n <= rounds):
        some = [run["accuracy"][number - 1] for run in runs]
        told.append(f"{statistics.fmean(some):.3f}")
    norms = [statistics.fmean(run["clip_norm"][at] for run in runs) for at in (0, -1)]
    spread = statistics.pstdev([run["accuracy"][-1] for run in runs])
    return [name, *told, f"{spread:.3f}", *(f"{norm:.3g}" for norm in norms)]


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = fashion_mnist(clients=CLIENTS)
    settings = {"noise_multiplier": calibrated(options.rounds), "unit": "client"}
    runs = {f"fixed {norm:g}": fp.Gaussian(clip_norm=norm, **settings) for norm in FIXED}
    for norm in BEGUN:
        # Ten times the default rate of Andrew et al.: there are 40 rounds, not thousands.
        runs[f"learned, from {norm:g}"] = fp.AdaptiveClipping(
            clip_norm=norm, clip_learning_rate=2.0, bits_share=0.05, **settings
        )
    spent = {}
    found = {}
    for name, noise in runs.items():
        whole = noise.sampled(SCHEME) * options.rounds
        spent[name] = fp.epsilon(whole, delta=DELTA, adjacency="zero_out").upper
        found[name] = [train(noise, options.rounds, seed, data) for seed in range(options.seeds)]
        print(f"{name}: epsilon {spent[name]:.4f}", flush=True)
    head = ["clip norm", *(f"after {n}" for n in SHOWN if n <= options.rounds)]
    head += ["spread", "first norm", "last norm"]
    print(table(head, [shown(name, own, options.rounds) for name, own in found.items()]))
    if (options.rounds, options.seeds) == (40, 3):
        facts = {**settings, "delta": DELTA, "epsilon": spent, "clients": CLIENTS}
        RESULTS.write_text(json.dumps({**facts, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
