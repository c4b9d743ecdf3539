"""Rounds of every loop, of this tree beside another one, in one run.

    python benchmarks/rounds.py --against ../before     ratios, this tree to the other
    python benchmarks/rounds.py                         this tree alone, microseconds a round

Both trees do the same rounds in processes of their own that take turns, one thread each; times are
of the processor, the median of the turns counts. A tree is a checkout that holds ``fedprivacy``.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
LEAST = 0.15
"""Seconds that one measurement takes at least."""


def averaging(model, clients, private, ratio=1.0, at_work=True):
    """Rounds of FedAvg, DP-FedAvg and Fed-SMP on images that are made up."""
    import numpy as np
    import torch

    import fedprivacy as fp
    from fedprivacy import training

    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.random((clients * 10, 28, 28), dtype=np.float32))
    labels = torch.from_numpy(draw.integers(10, size=clients * 10))
    data = training.FederatedData(
        name="made up",
        features=features,
        labels=labels,
        clients=tuple(np.split(np.arange(clients * 10), clients)),
        test_features=features[:10],
        test_labels=labels[:10],
        num_classes=10,
    )
    factory = training.cnn() if model == "cnn" else training.logistic(784, 10)
    dimension = 1_663_370 if model == "cnn" else 7850
    noise = None
    if private == "gaussian":
        noise = fp.Gaussian(noise_multiplier=1.4, unit="client")
    elif private:
        noise = fp.SparsifiedPerturbation(
            noise_multiplier=1.4,
            clip_norm=1.0,
            kept=round(ratio * dimension),
            dimension=dimension,
            cohort=clients,
        )
    loop = training.FederatedAveraging(
        model=factory,
        scheme=fp.FixedSize(clients, population=clients),
        perturbation=noise,
        local_steps=2,
        batch_size=10,
        seed=None,
    )
    state = loop.init()
    if not at_work:
        update = torch.randn(1, dimension) * 1e-3
        object.__setattr__(loop, "_updates", lambda *_: update)
    return lambda: loop.step(state, data)


def gaussian(kind, chains, clients, dimension, private, **options):
    """Rounds of a sampler on a target in closed form."""
    import numpy as np

    from fedprivacy import training
    from fedprivacy.theory.langevin import GaussianTarget

    centres = np.random.default_rng(0).normal(size=(clients, dimension))
    hessians = np.repeat(2.0 * np.eye(dimension)[None], clients, axis=0)
    target = GaussianTarget(hessians=hessians, centres=centres)
    posterior = training.GaussianPosterior(target=target, sensitivity=1.0 if private else None)
    return sampler(kind, posterior, chains=chains, **options)


def softmax(kind, clients, features, records, clip=1.0, **options):
    """Rounds of a sampler on records."""
    import numpy as np
    import torch

    from fedprivacy import training

    draw = np.random.default_rng(0)
    inputs = torch.from_numpy(draw.random((clients * records, features), dtype=np.float32))
    labels = torch.from_numpy(draw.integers(10, size=clients * records))
    data = training.FederatedData(
        name="made up",
        features=inputs,
        labels=labels,
        clients=tuple(np.split(np.arange(clients * records), clients)),
        test_features=inputs[:10],
        test_labels=labels[:10],
        num_classes=10,
    )
    model = training.SoftmaxRegression(features=features, classes=10)
    posterior = training.Posterior(model=model, data=data, clip_norm=clip)
    return sampler(kind, posterior, **options)


def sampler(kind, posterior, **options):
    """Return what runs a round of FA-LD or FA-HMC."""
    from fedprivacy import training

    if kind == "fa-ld":
        loop = training.LangevinSampling(target=posterior, step_size=1e-3, **options)
    else:
        if posterior.sensitivity is not None:
            options["gradient_noise_multiplier"] = 0.5
        loop = training.HamiltonianSampling(target=posterior, step_size=0.05, **options)
    state = loop.init()
    return lambda: loop.step(state)


def splitting(agents, dimension, records, steps=5, **options):
    """Rounds of Fed-PLT."""
    import numpy as np

    from fedprivacy import training

    draw = np.random.default_rng(0)
    inputs, truth = draw.normal(size=(agents, records, dimension)), draw.normal(size=dimension)
    parts = [(a, np.where(a @ truth > 0, 1.0, -1.0)) for a in inputs]
    data = training.AgentData.of(parts)
    given = {"noise_scale": 0.1} if options.pop("private", True) else {}
    method = "noisy" if given else "gradient"
    solver = training.LocalSolver(method=method, steps=steps, step_size=0.5, **given)
    loss = training.Logistic(regularisation=0.5, feature_bound=2.0)
    loop = training.FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0, **options)
    state = loop.init()
    return lambda: loop.step(state, data)


JOBS = {
    "logistic, FedAvg": (averaging, ("logistic", 100, None)),
    "logistic, DP-FedAvg": (averaging, ("logistic", 100, "gaussian")),
    "logistic, DP-FedAvg, 5 clients": (averaging, ("logistic", 5, "gaussian")),
    "logistic, Fed-SMP .4": (averaging, ("logistic", 100, "smp", 0.4)),
    "CNN, FedAvg": (averaging, ("cnn", 10, None)),
    "CNN, DP-FedAvg": (averaging, ("cnn", 10, "gaussian")),
    "CNN, Fed-SMP .4": (averaging, ("cnn", 10, "smp", 0.4)),
    "FA-LD, 300 x 50 x 2, not private": (
        gaussian,
        ("fa-ld", 300, 50, 2, False),
        {"local_steps": 20},
    ),
    "FA-LD, 300 x 50 x 2": (gaussian, ("fa-ld", 300, 50, 2, True), {"local_steps": 20}),
    "FA-LD, 1 x 10 x 2": (gaussian, ("fa-ld", 1, 10, 2, True), {"local_steps": 20}),
    "FA-LD, 300 x 50 x 2, jump": (
        gaussian,
        ("fa-ld", 300, 50, 2, True),
        {"local_steps": 100, "exact_jump": True},
    ),
    "FA-LD, records, 5 x 650": (
        softmax,
        ("fa-ld", 5, 64, 340),
        {"local_steps": 5, "batch_fraction": 0.25},
    ),
    "FA-LD, records, 50 x 40": (
        softmax,
        ("fa-ld", 50, 3, 20),
        {"local_steps": 5},
    ),
    "FA-HMC, 300 x 50 x 2": (gaussian, ("fa-hmc", 300, 50, 2, True), {"leapfrog_steps": 5}),
    "FA-HMC, records, 5 x 650": (softmax, ("fa-hmc", 5, 64, 340), {"leapfrog_steps": 3}),
    "Fed-PLT, 100 x 5, not private": (splitting, (100, 5, 250), {"private": False}),
    "Fed-PLT, 100 x 5": (splitting, (100, 5, 250)),
    "Fed-PLT, 100 x 100": (splitting, (100, 100, 250)),
    "Fed-PLT, 10 x 5, small": (splitting, (10, 5, 20)),
    "Fed-PLT, 100 runs of 100 x 5": (splitting, (100, 5, 20), {"runs": 100}),
}


def worker():
    """Answer each line of stdin, a job's name, with microseconds a call."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    ready = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            make, given, options = (*JOBS[name], {})[:3]
            ready[name] = make(*given, **options)
            ready[name]()
        calls, begun = 0, time.process_time()
        while time.process_time() - begun < LEAST or not calls:
            ready[name]()
            calls += 1
        print(1e6 * (time.process_time() - begun) / calls, flush=True)


def started(tree):
    """Return a process that measures a tree."""
    single = {f"{kind}_NUM_THREADS": "1" for kind in ("OMP", "OPENBLAS", "MKL")}
    env = os.environ | single | {"PYTHONPATH": str(tree)}
    command = [sys.executable, str(HERE), "--worker"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, cwd=tree, **pipes)


def asked(process, name):
    """Return microseconds a round."""
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main():
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    if options.worker:
        worker()
        return
    trees = [HERE.parent.parent, *([options.against.resolve()] if options.against else [])]
    processes = [started(tree) for tree in trees]
    found = {}
    for name in (name for name in JOBS if options.only in name):
        turns = [[asked(one, name) for one in processes] for _ in range(options.turns)]
        row = {"microseconds": [statistics.median(times) for times in zip(*turns, strict=True)]}
        text = "".join(f"{time:12,.0f}" for time in row["microseconds"])
        if len(trees) == 2:
            row["ratio"] = statistics.median(here / there for here, there in turns)
            text += f"{row['ratio']:9.3f}"
        found[name] = row
        print(f"{name:34s}{text}", flush=True)
    for process in processes:
        process.stdin.close()
        process.wait()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
