"""Cost of a federated round compared with a hand-written loop, and the added cost of privacy.

    python benchmarks/training.py             times, ratios and peak memory; writes results/
    python benchmarks/training.py --quick     20 clients a round instead of 100

A round has 100 clients and 10 local steps on batches of 10 images of Fashion-MNIST, on one thread.
Times are medians of processor time, taken in turns within one process. The ratios are the result.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from networks import convolutions
from torch import Tensor, nn
from torch.nn import functional

import fedprivacy as fp
from fedprivacy.training import (
    FederatedAveraging,
    FederatedData,
    State,
    cnn,
    fashion_mnist,
    logistic,
)

RESULTS = Path(__file__).parent / "results" / "training.json"
CLIENTS, STEPS, BATCH, RATE, MOMENTUM = 6000, 10, 10, 0.125, 0.5
Job = Callable[[], object]


def loop_of(model: str, cohort: int) -> FederatedAveraging:
    """Return the library's FedAvg."""
    return FederatedAveraging(
        model=cnn() if model == "cnn" else logistic(784, 10),
        scheme=fp.FixedSize(cohort, population=CLIENTS),
        local_steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
        momentum=MOMENTUM if model == "cnn" else 0.0,
        seed=1,
    )


def private(loop: FederatedAveraging, cohort: int, ratio: float, how: str) -> FederatedAveraging:
    """Return the loop with clipping, sparsifying and noise."""
    dimension = loop.flat.dimension
    perturbation = fp.SparsifiedPerturbation(
        noise_multiplier=1.4,
        clip_norm=1.0,
        kept=round(ratio * dimension),
        dimension=dimension,
        cohort=cohort,
        sparsifier=how,
    )
    return replace(loop, perturbation=perturbation)


def hand_written_cnn(data: FederatedData, cohort: int) -> Job:
    """Return a FedAvg round of the CNN in plain torch, tuned for one core.

    It uses channels-last memory of weights and images, pooling before ReLU, and the optimiser's
    fused step. An update is subtracted directly from the running sum.
    """
    module = nn.Sequential(*convolutions()).to(memory_format=torch.channels_last)
    parameters = list(module.parameters())
    start = [p.detach().clone() for p in parameters]
    generator = np.random.default_rng(0)

    def job() -> None:
        total = [torch.zeros_like(p) for p in start]
        for client in generator.choice(CLIENTS, size=cohort, replace=False):
            rows = torch.from_numpy(data.clients[client])
            images, labels = data.features[rows], data.labels[rows]
            inputs = images.unsqueeze(3).permute(0, 3, 1, 2)
            with torch.no_grad():
                for parameter, old in zip(parameters, start, strict=True):
                    parameter.copy_(old)
            optimiser = torch.optim.SGD(parameters, RATE, MOMENTUM, fused=True)
            for _ in range(STEPS):
                optimiser.zero_grad()
                functional.cross_entropy(module(inputs), labels).backward()
                optimiser.step()
            with torch.no_grad():
                for part, old, new in zip(total, start, parameters, strict=True):
                    part.add_(old).sub_(new)
        for old, part in zip(start, total, strict=True):
            old.sub_(part, alpha=1e-9)

    return job


def hand_written_logistic(data: FederatedData, cohort: int, at_once: int = 10) -> Job:
    """Return a FedAvg round of logistic regression by its closed-form gradient, numpy-style."""
    weights, bias = torch.zeros(10, 784), torch.zeros(10)
    generator = np.random.default_rng(0)
    images = data.features.flatten(1)

    def few(clients: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        width = max(map(len, clients))
        rows = torch.from_numpy(np.stack([np.resize(own, width) for own in clients]))
        share = torch.tensor([[[1.0 / len(own)]] for own in clients])
        real = torch.tensor([[i < len(own) for i in range(width)] for own in clients]).unsqueeze(2)
        inputs, truth = images[rows], functional.one_hot(data.labels[rows], 10).float()
        w, b = weights.repeat(len(clients), 1, 1), bias.repeat(len(clients), 1, 1)
        for _ in range(STEPS):
            slope = torch.softmax(torch.baddbmm(b, inputs, w.mT), 2).sub_(truth).mul_(share * real)
            w.baddbmm_(slope.mT, inputs, alpha=-RATE)
            b.sub_(slope.sum(1, keepdim=True), alpha=RATE)
        return (weights - w).sum(0), (bias - b).sum(0).squeeze(0)

    def job() -> None:
        drawn = [data.clients[c] for c in generator.choice(CLIENTS, size=cohort, replace=False)]
        for first in range(0, cohort, at_once):
            few(drawn[first : first + at_once])

    return job


def modules_and_optimisers(data: FederatedData, cohort: int) -> Job:
    """Return a FedAvg round of logistic regression, one client after the other."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    generator = np.random.default_rng(0)

    def job() -> None:
        for client in generator.choice(CLIENTS, size=cohort, replace=False):
            rows = torch.from_numpy(data.clients[client])
            optimiser = torch.optim.SGD(module.parameters(), RATE)
            for _ in range(STEPS):
                optimiser.zero_grad()
                functional.cross_entropy(module(data.features[rows]), data.labels[rows]).backward()
                optimiser.step()

    return job


class Rounds:
    """Rounds of a loop, one after the other."""

    def __init__(self, loop: FederatedAveraging, data: FederatedData) -> None:
        self.loop, self.data = loop, data
        self.state: State = loop.init()

    def __call__(self) -> None:
        """Run one round, always from the first state, so that gradients do not vanish."""
        self.loop.step(self.state, self.data)


class Untrained(Rounds):
    """Rounds whose clients do not train: only drawing, clipping, noise and sum are left."""

    def __init__(self, loop: FederatedAveraging, data: FederatedData) -> None:
        super().__init__(loop, data)
        update = torch.randn(1, loop.flat.dimension) * 1e-3
        object.__setattr__(loop, "_trained", lambda *_: update)


def timed(jobs: dict[str, Job], turns: int) -> dict[str, float]:
    """Return each job's median processor time in seconds, taken in turns after a warm-up."""
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(turns + 1):
        for name, job in jobs.items():
            began = time.process_time()
            job()
            if turn:
                spent[name].append(time.process_time() - began)
    return {name: statistics.median(times) for name, times in spent.items()}


def peak_memory(cohort: int) -> float:
    """Return the peak memory in MB of a process that runs one DP-FedAvg round of the CNN."""
    command = [sys.executable, __file__, "--memory", str(cohort)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def memory(cohort: int) -> float:
    """Run one round, or none for 0 clients, and return this process's peak memory in MB."""
    data = fashion_mnist(clients=CLIENTS)
    loop = private(loop_of("cnn", max(1, cohort)), max(1, cohort), 1.0, "rand_k")
    state = loop.init()
    if cohort:
        loop.step(state, data)
    return peak_resident()


def peak_resident() -> float:
    """Return this program's peak memory in MB; ``getrusage`` starts with its parent's peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) / 1024 for line in status.open() if "VmHWM" in line)


def show(title: str, times: dict[str, float], against: str) -> None:
    """Print times and their ratios to one time."""
    print(f"\n{title} (seconds, ratio to {against})")
    for name, seconds in times.items():
        print(f"  {name:34s} {seconds:9.4f}  {seconds / times[against]:6.3f}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory is not None:
        print(memory(options.memory))
        return
    cohort = 20 if options.quick else 100
    data = fashion_mnist(clients=CLIENTS)
    plain = loop_of("cnn", cohort)
    variants = {
        "FedAvg": plain,
        "DP-FedAvg": private(plain, cohort, 1.0, "rand_k"),
        "Fed-SMP rand_k .4": private(plain, cohort, 0.4, "rand_k"),
        "Fed-SMP rand_k .005": private(plain, cohort, 0.005, "rand_k"),
    }
    rounds: dict[str, Job] = {name: Rounds(loop, data) for name, loop in variants.items()}
    whole = timed({"hand-written, tuned": hand_written_cnn(data, cohort), **rounds}, 3)
    show("CNN, 1,663,370 parameters, a round", whole, "hand-written, tuned")
    idle: dict[str, Job] = {n: Untrained(replace(loop), data) for n, loop in variants.items()}
    mechanism = timed(idle, 5)
    added = {n: (t - mechanism["FedAvg"]) / whole["FedAvg"] for n, t in mechanism.items()}
    print("\nWhat the mechanism adds to FedAvg's round")
    for name, share in added.items():
        print(f"  {name:34s} {100 * share:6.2f} %")
    small = {
        "hand-written, closed form": hand_written_logistic(data, 100),
        "hand-written, module by module": modules_and_optimisers(data, 100),
        "FedAvg": Rounds(loop_of("logistic", 100), data),
        "DP-FedAvg": Rounds(private(loop_of("logistic", 100), 100, 1.0, "rand_k"), data),
    }
    logistic_times = timed(small, 15)
    show("Logistic, 7,850 parameters, a round", logistic_times, "hand-written, closed form")
    peaks = {f"{clients} clients": peak_memory(clients) for clients in (0, 10, cohort)}
    print("\nPeak memory of the process, DP-FedAvg of the CNN, MB")
    for name, peak in peaks.items():
        print(f"  {name:34s} {peak:9.0f}")
    content = {
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "clients_a_round": cohort,
        "cnn_seconds": whole,
        "mechanism_share_of_a_round": added,
        "logistic_seconds": logistic_times,
        "peak_memory_mb": peaks,
    }
    if not options.quick:
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
