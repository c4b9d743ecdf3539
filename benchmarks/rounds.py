"""Compare rounds of every loop between this tree and another one, in one run.

    python benchmarks/rounds.py --against ../before     ratios, this tree to the other
    python benchmarks/rounds.py                         only this tree, microseconds a round
    python benchmarks/rounds.py --table FILE            a run that --json wrote, as a table

Separate processes run the same rounds in turns, one thread each. Times are processor times: the
lower quartile of a turn's rounds, and the best of the turns, because other work on the machine only
adds time. A tree is a checkout with ``fedprivacy``. Two more processes run this tree with replaced
noise: numpy's or torch's normal doubles, and no noise. So

    ratio       now / before
    noise       share of a round that the noise takes: (now - none) / now
    rounding    share that its correct rounding adds to doubles: (now - plain) / now
    rest        plain / before: how the round compares with the noise that it had
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
"""Least seconds of one measurement."""


def averaging(model, clients, private, ratio=1.0, at_work=True):
    """Rounds of FedAvg, DP-FedAvg and Fed-SMP on artificial images."""
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
        object.__setattr__(loop, "_trained", lambda *_: update)
    return lambda: loop.step(state, data)


def gaussian(kind, chains, clients, dimension, private, **options):
    """Rounds of a sampler on a target in closed form."""
    import numpy as np

    from fedprivacy import training
    from fedprivacy.theory.targets import GaussianTarget

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
    """Return a function that runs a round of FA-LD or FA-HMC."""
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


def replaced(kind):
    """Replace the package's noise: by "plain" doubles, or by "none"."""
    import numpy as np
    import torch

    from fedprivacy import training  # noqa: F401  # loads the module that draws noise
    from fedprivacy.mechanisms import rounded

    generator = np.random.Generator(np.random.SFC64())

    def noisy_scaled(total, *, stds, deviates, grid=None):
        del deviates, grid
        numbers = rounded.numbers(total)
        noise = numbers.copy()
        if kind == "plain":
            noise = generator.standard_normal(numbers.shape)
            noise *= stds
            noise += numbers
        return noise if isinstance(total, np.ndarray) else torch.from_numpy(noise)

    def noise_like(value, *, std, grid, generator=None):
        del grid, generator
        noise = torch.zeros(value.shape, dtype=torch.float64)
        return noise.normal_(0.0, std) if kind == "plain" else noise

    for name, mine in (("noisy_scaled", noisy_scaled), ("noise_like", noise_like)):
        real = getattr(rounded, name)
        for module in [m for key, m in sys.modules.items() if key.startswith("fedprivacy")]:
            if getattr(module, name, None) is real:
                setattr(module, name, mine)


def worker(noise):
    """Answer each line of stdin, a job's name, with microseconds for each call."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    if noise != "own":
        replaced(noise)
    ready = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            make, given, options = (*JOBS[name], {})[:3]
            ready[name] = make(*given, **options)
            ready[name]()
        times, begun = [], time.process_time()
        while len(times) < 2 or time.process_time() - begun < LEAST:
            started_at = time.process_time()
            ready[name]()
            times.append(time.process_time() - started_at)
        print(1e6 * statistics.quantiles(times, n=4, method="inclusive")[0], flush=True)


def started(tree, noise="own"):
    """Return a process that measures a tree, with its own noise or another."""
    single = {f"{kind}_NUM_THREADS": "1" for kind in ("OMP", "OPENBLAS", "MKL")}
    env = os.environ | single | {"PYTHONPATH": str(tree)}
    command = [sys.executable, str(HERE), "--worker", noise]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, cwd=tree, **pipes)


def asked(process, name):
    """Return the microseconds of a round."""
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def shares(times):
    """Return the shares computed from the times of the processes, by name."""
    now, plain, none = (times[kind] for kind in ("now", "plain", "none"))
    found = {"noise": (now - none) / now, "rounding": (now - plain) / now}
    if "before" in times:
        found = {"ratio": now / times["before"]} | found | {"rest": plain / times["before"]}
    return found


def table(found):
    """Return a run as a table of a page: milliseconds and shares."""
    heads = [*next(iter(found.values()))["microseconds"], *shares_of(found)]
    lines = [["a round", *heads], ["---"] * (len(heads) + 1)]
    for name, row in found.items():
        times = [f"{time / 1000.0:.2f}" for time in row["microseconds"].values()]
        lines.append([name, *times, *(f"{row[part]:.2f}" for part in shares_of(found))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shares_of(found):
    """Return the names of the shares in a run."""
    return [part for part in next(iter(found.values())) if part != "microseconds"]


def main():
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--worker", choices=("own", "plain", "none"))
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))))
        return
    here = HERE.parent.parent
    processes = {
        "now": started(here),
        "plain": started(here, "plain"),
        "none": started(here, "none"),
    }
    if options.against:
        processes["before"] = started(options.against.resolve())
    found = {}
    for number, name in enumerate(name for name in JOBS if options.only in name):
        turns = [
            {kind: asked(one, name) for kind, one in processes.items()}
            for _ in range(options.turns)
        ]
        best = {kind: min(turn[kind] for turn in turns) for kind in processes}
        row = shares(best)
        found[name] = {"microseconds": best} | row
        if not number:
            heads = "".join(f"{kind:>12s}" for kind in processes)
            print(f"{'':34s}{heads}{''.join(f'{kind:>10s}' for kind in row)}")
        text = "".join(f"{time:12,.0f}" for time in found[name]["microseconds"].values())
        print(f"{name:34s}{text}{''.join(f'{part:10.3f}' for part in row.values())}", flush=True)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
