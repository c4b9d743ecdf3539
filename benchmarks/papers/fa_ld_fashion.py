"""Figures 3 and 4 of FA-LD and 3 to 5 of FA-HMC on Fashion-MNIST, shorter; then with epsilon.

Usage: fa_ld_fashion.py [--part PART] [--check] [--data-dir FOLDER]; PART is fa_ld, fa_hmc, network,
private, private_hmc, private_network or all.

Multinomial logistic regression, or a small network with two hidden layers for Figure 5 of FA-HMC; a
flat prior, ten clients of 6,000 images each. Runs have fixed seeds and are therefore not private;
the epsilons of the private parts are those of the same runs with the system's randomness. Step
sizes are tuned on the test set, as in the papers. Results go to benchmarks/papers/results/; --check
runs the smallest cell of each part again and compares.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.errors import Diverged

RESULTS = Path(__file__).parent / "results"
MODEL = training.SoftmaxRegression(784, 10)
EVERY = 10
TOLERANCE = 2e-3
DELTA = 1e-5

FA_LD = {
    "rounds": 50,
    "warmup": 20,
    "every": 5,
    "batch": 200,
    "temperature": 0.05,
    "local_steps": [1, 10, 20, 50, 100],
    "step_sizes": [3e-6, 6e-6],
}
FA_HMC = {
    "rounds": 6,
    "batch": 1000,
    "leapfrog": {"iterations": 5, "leapfrog_steps": [1, 5, 10]},
    "local": {"leapfrog_steps": 5, "iterations": [1, 5]},
    "step_sizes": [8e-4, 1.6e-3],
    "every": 1,
}
PRIVATE = {
    "rounds": 120,
    "batch": 200,
    "clip_norm": 1.0,
    "temperature": 0.05,
    "correlation": 0.0,
    "cells": [[1, 3e-6], [10, 3e-7], [10, 1e-6], [10, 3e-6], [50, 1e-7], [50, 3e-7], [50, 1e-6]],
}
PRIVATE_HMC = {
    "rounds": 20,
    "every": 2,
    "batch": 1000,
    "clip_norm": 1.0,
    "correlation": 0.0,
    "step_size": 1.6e-3,
    "cells": [[1, 5, 0.0], [5, 1, 4.0], [5, 1, 8.0], [5, 5, 8.0]],
}
NETWORK = {
    "hidden": [32, 32],
    "rounds": 10,
    "batch": 500,
    "cells": [
        [1, 5, 1.6e-3],
        [1, 5, 3.2e-3],
        [5, 5, 8e-4],
        [5, 5, 1.6e-3],
        [10, 5, 8e-4],
        [10, 5, 1.6e-3],
        [5, 1, 1.6e-3],
        [5, 1, 3.2e-3],
    ],
    "every": 1,
}
PRIVATE_NETWORK = {
    "hidden": [32, 32],
    "rounds": 8,
    "every": 1,
    "batch": 100,
    "clip_norm": 1.0,
    "correlation": 0.0,
    "cells": [[1, 5, 0.0, 3.2e-3], [5, 1, 2.0, 3.2e-3], [5, 5, 2.0, 1.6e-3]],
}


def data(folder):
    """Return ten clients of 6,000 images."""
    return training.fashion_mnist(folder, clients=10, public=0)


def curve(loop, rounds, every, warmup=0):
    """Run a chain; scores of the mean prediction so far, with and without the warm-up.

    The scores are None from the round on in which the chain diverges.
    """
    records = loop.target.data
    sums = {"all": 0.0, "warm": 0.0}
    counts, rows = dict.fromkeys(sums, 0), []

    def look(state, _):
        if state.round % every:
            return
        with torch.no_grad():
            inputs = records.test_features.flatten(1)
            now = loop.target.model.logits(state.positions[0], inputs).softmax(-1)
        row = {"round": state.round}
        for name in sums if state.round > warmup else ["all"]:
            sums[name], counts[name] = sums[name] + now, counts[name] + 1
            row[name] = scores(sums[name] / counts[name], records.test_labels)
        rows.append(row)

    try:
        training.train(loop, loop.target, rounds=rounds, on_round=look)
    except Diverged as error:
        rows.append({"round": None, "diverged": str(error)})
    return rows


def scores(probabilities, labels):
    """Return the four scores, rounded."""
    return {k: round(v, 5) for k, v in asdict(training.score(probabilities, labels)).items()}


def last(cell):
    """Return a cell's final scores; None where it diverged."""
    return cell["curve"][-1].get("all") if cell["curve"] else None


def best(cells, name):
    """Return the cell with the highest accuracy, or lowest other score, at its end."""
    sign = -1.0 if name == "accuracy" else 1.0
    alive = [cell for cell in cells if last(cell)]
    return min(alive, key=lambda cell: sign * last(cell)[name])


def langevin(posterior, local_steps, step_size, setting, **options):
    """Return the loop of a cell of FA-LD."""
    return training.LangevinSampling(
        target=posterior,
        step_size=step_size,
        local_steps=local_steps,
        temperature=setting["temperature"],
        batch_fraction=setting["batch"] / 6000,
        seed=0,
        **options,
    )


def fa_ld_cells(records):
    """Yield the cells of FA-LD's figures, the smallest first."""
    posterior = training.Posterior(model=MODEL, data=records, prior_precision=0.0)
    for steps in FA_LD["local_steps"]:
        for step_size in FA_LD["step_sizes"]:
            loop = langevin(posterior, steps, step_size, FA_LD)
            yield {"local_steps": steps, "step_size": step_size}, loop


def fa_hmc_cells(records):
    """Yield the cells of FA-HMC's figures: leapfrog steps at fixed iterations, then vice versa."""
    posterior = training.Posterior(model=MODEL, data=records, prior_precision=0.0)
    first, second = FA_HMC["leapfrog"], FA_HMC["local"]
    pairs = [(k, first["iterations"]) for k in first["leapfrog_steps"]]
    pairs += [(second["leapfrog_steps"], t) for t in second["iterations"]]
    for pair in dict.fromkeys(pairs):
        for step_size in FA_HMC["step_sizes"]:
            yield hamiltonian(posterior, pair, step_size, FA_HMC, correlation=1.0)


def hamiltonian(posterior, pair, step_size, setting, **options):
    """Return the facts and the loop of a cell of FA-HMC, of (K, T)."""
    leapfrog, iterations = pair
    loop = training.HamiltonianSampling(
        target=posterior,
        step_size=step_size,
        leapfrog_steps=leapfrog,
        iterations=iterations,
        batch_fraction=setting["batch"] / 6000,
        seed=0,
        **options,
    )
    facts = {"leapfrog_steps": leapfrog, "iterations": iterations, "step_size": step_size}
    return facts, loop


def network(records, setting, clip_norm=None):
    """Return a network's posterior and the options that start chains at its first parameters."""
    torch.manual_seed(0)
    model = training.classifier(training.mlp(784, 10, hidden=setting["hidden"]))
    posterior = training.Posterior(
        model=model, data=records, prior_precision=0.0, clip_norm=clip_norm
    )
    return posterior, {"start": model.flat.flatten()}


def network_cells(records):
    """Yield Figure 5's cells; one leapfrog step is FA-LD with step eta^2 / 2 and run as such."""
    posterior, start = network(records, NETWORK)
    options = {"correlation": 1.0, **start}
    for *pair, step_size in NETWORK["cells"]:
        facts, loop = hamiltonian(posterior, pair, step_size, NETWORK, **options)
        if pair[0] == 1:
            setting = {"temperature": 1.0, "batch": NETWORK["batch"]}
            loop = langevin(posterior, pair[1], step_size**2 / 2.0, setting, **options)
        yield facts, loop


def private_network_cells(records):
    """Yield a network's private cells: records' gradients clipped, all momentum private."""
    setting = PRIVATE_NETWORK
    posterior, start = network(records, setting, setting["clip_norm"])
    for *pair, noise, step_size in setting["cells"]:
        options = {"correlation": setting["correlation"], "gradient_noise_multiplier": noise}
        facts, loop = hamiltonian(posterior, pair, step_size, setting, **options, **start)
        yield {**facts, "noise_multiplier": noise}, loop


def private_cells(records):
    """Yield private cells: clipped gradients, all noise private, every round accounted."""
    posterior = training.Posterior(
        model=MODEL, data=records, prior_precision=0.0, clip_norm=PRIVATE["clip_norm"]
    )
    for steps, step_size in PRIVATE["cells"]:
        loop = langevin(posterior, steps, step_size, PRIVATE, correlation=PRIVATE["correlation"])
        yield {"local_steps": steps, "step_size": step_size}, loop


def private_hmc_cells(records):
    """Yield private cells of FA-HMC: momentum counts at one leapfrog step, else gradient noise."""
    setting = PRIVATE_HMC
    posterior = training.Posterior(
        model=MODEL, data=records, prior_precision=0.0, clip_norm=setting["clip_norm"]
    )
    for leapfrog, iterations, noise in setting["cells"]:
        loop = training.HamiltonianSampling(
            target=posterior,
            step_size=setting["step_size"],
            leapfrog_steps=leapfrog,
            iterations=iterations,
            correlation=setting["correlation"],
            gradient_noise_multiplier=noise,
            batch_fraction=setting["batch"] / 6000,
            seed=0,
        )
        yield (
            {"leapfrog_steps": leapfrog, "iterations": iterations, "noise_multiplier": noise},
            loop,
        )


def with_epsilon(loop, rows):
    """Add both certified ends of epsilon, rounded outwards, after the rounds so far to each row."""
    for row in rows:
        if row["round"]:
            bound = fp.epsilon(loop.run(row["round"]), delta=DELTA, adjacency="replace_one")
            row["epsilon"] = [
                math.floor(1e4 * bound.lower) / 1e4,
                math.ceil(1e4 * bound.upper) / 1e4,
            ]


PARTS = {
    "fa_ld": (fa_ld_cells, FA_LD),
    "fa_hmc": (fa_hmc_cells, FA_HMC),
    "private": (private_cells, PRIVATE),
    "private_hmc": (private_hmc_cells, PRIVATE_HMC),
    "network": (network_cells, NETWORK),
    "private_network": (private_network_cells, PRIVATE_NETWORK),
}


def run_cell(part, facts, loop):
    """Run one cell and return what it gave."""
    setting = PARTS[part][1]
    begun = time.perf_counter()
    every = setting.get("every", EVERY)
    rows = curve(loop, setting["rounds"], every, setting.get("warmup", 0))
    if part.startswith("private"):
        with_epsilon(loop, rows)
    return {**facts, "seconds": round(time.perf_counter() - begun, 1), "curve": rows}


def run(part, records):
    """Run a part and write its results after every cell."""
    cells, setting = PARTS[part]
    results = {"setting": setting, "cells": []}
    for facts, loop in cells(records):
        results["cells"].append(run_cell(part, facts, loop))
        path = RESULTS / f"{part}_fashion.json"
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(part, facts, last(results["cells"][-1]), flush=True)
    table(part, results["cells"])


def table(part, cells):
    """Print the best step size's final scores for every setting."""
    groups = {}
    for cell in cells:
        name = tuple((k, v) for k, v in cell.items() if k in ("local_steps", "leapfrog_steps"))
        groups.setdefault((*name, cell.get("iterations")), []).append(cell)
    for name, group in groups.items():
        found = {s: last(best(group, s))[s] for s in ("accuracy", "brier", "ece", "nll")}
        print(part, name, found)


def check(part, records):
    """Run the smallest cell again; return whether it gives the recorded scores."""
    facts, loop = next(PARTS[part][0](records))
    path = RESULTS / f"{part}_fashion.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
    again = run_cell(part, facts, loop)
    same = all(
        abs(last(again)[name] - value) <= TOLERANCE for name, value in last(recorded).items()
    )
    print(part, facts, "agrees" if same else f"differs: {last(again)}, recorded {last(recorded)}")
    return same


def main():
    """Run what the command line asks for."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--part", choices=[*PARTS, "all"], default="all")
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--data-dir")
    options = asked.parse_args()
    torch.set_num_threads(1)
    records = data(options.data_dir)
    parts = PARTS if options.part == "all" else [options.part]
    if options.check:
        sys.exit(not all([check(part, records) for part in parts]))
    for part in parts:
        run(part, records)


if __name__ == "__main__":
    main()
