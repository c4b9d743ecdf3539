"""Compare Fed-PLT's batch over agents and runs with a Python loop over agents, one thread.

    python benchmarks/splitting.py             N = 100, n = 5 and 100, 1 and 100 runs
    python benchmarks/splitting.py --smoke     one small setting

Both run the same rounds from the same start on the same records, noise included. The loop is plain:
every agent's N_e steps with matrix-vector products in torch. The loop's runs come one after
another, so its time is measured on a few runs and multiplied. Ratios are taken within one process;
the fastest of several repetitions counts.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tables import milliseconds, ratio, table

from fedprivacy.training import AgentData, FederatedSplitting, LocalSolver, Logistic

ROUNDS, STEPS, RECORDS = 2, 5, 250
SETTINGS = [(100, 5, 1), (100, 5, 100), (100, 100, 1), (100, 100, 100)]
"""Agents, dimension, runs."""


def made_up(agents: int, dimension: int) -> AgentData:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(agents, RECORDS, dimension, generator=generator, dtype=torch.float64)
    return AgentData(inputs, torch.where(inputs[..., 0] > 0.0, 1.0, -1.0))


def loop_of(data: AgentData, runs: int | None, noise: float) -> FederatedSplitting:
    return FederatedSplitting(
        loss=Logistic(regularisation=0.5, feature_bound=3.0),
        records=data.records,
        dimension=data.features.shape[-1],
        penalty=1.0,
        solver=LocalSolver(method="noisy", steps=STEPS, step_size=0.3, noise_scale=noise),
        runs=runs,
        seed=0,
    )


def plain_rounds(data: AgentData, rounds: int, noise: float) -> torch.Tensor:
    """Run Fed-PLT agent by agent, for one run; return the models."""
    bounded = data.bounded(3.0)
    agents, dimension = data.agents, data.features.shape[-1]
    generator = torch.Generator().manual_seed(0)
    x = [torch.zeros(dimension, dtype=torch.float64) for _ in range(agents)]
    z = [point.clone() for point in x]
    std = math.sqrt(2.0 * 0.3) * noise
    for _ in range(rounds):
        y = torch.stack(z).mean(0)
        for agent in range(agents):
            inputs, targets = bounded.features[agent], bounded.targets[agent]
            w, v = x[agent], 2.0 * y - z[agent]
            for _ in range(STEPS):
                slopes = -targets * torch.sigmoid(-targets * (inputs @ w)) / RECORDS
                w = w - 0.3 * (slopes @ inputs + 0.5 * w + (w - v))
                w = w + std * torch.randn(dimension, generator=generator, dtype=torch.float64)
            x[agent], z[agent] = w, z[agent] + 2.0 * (w - y)
    return torch.stack(x)


def batched_rounds(data: AgentData, runs: int | None, noise: float) -> torch.Tensor:
    loop = loop_of(data, runs, noise)
    state = loop.init()
    for _ in range(ROUNDS):
        state, _ = loop.step(state, data)
    return state.models


def fastest(work: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(agents: int, dimension: int, runs: int, repetitions: int = 5) -> dict[str, float]:
    data = made_up(agents, dimension)
    data.bounded(3.0)
    quiet = batched_rounds(data, None, 1e-12), plain_rounds(data, ROUNDS, 1e-12)
    apart = float((quiet[0] - quiet[1]).abs().max())
    if apart > 1e-9:
        raise ArithmeticError(f"the two ways differ by {apart:g}")
    ours = fastest(lambda: batched_rounds(data, runs if runs > 1 else None, 0.1), repetitions)
    plain = fastest(lambda: plain_rounds(data, ROUNDS, 0.1), repetitions)
    return {
        "agents": agents,
        "dimension": dimension,
        "runs": runs,
        "batch_seconds_a_round": ours / ROUNDS,
        "loop_seconds_a_round": runs * plain / ROUNDS,
        "ratio": runs * plain / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = [(10, 3, 2)] if options.smoke else SETTINGS
    rows = [measure(*setting, repetitions=1 if options.smoke else 5) for setting in settings]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    head = ["N", "n", "runs", "batch, ms a round", "loop over agents, ms a round", "ratio"]
    print(
        table(
            head,
            [
                [
                    str(row["agents"]),
                    str(row["dimension"]),
                    str(row["runs"]),
                    milliseconds(row["batch_seconds_a_round"]),
                    milliseconds(row["loop_seconds_a_round"]),
                    ratio(row["ratio"]),
                ]
                for row in rows
            ],
        )
    )


if __name__ == "__main__":
    main()
