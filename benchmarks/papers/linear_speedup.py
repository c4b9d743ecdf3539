"""Two-sided FedAvg's linear speed-up in workers and local steps, exactly, on a quadratic.

    python benchmarks/papers/linear_speedup.py           writes results/linear_speedup.json
    python benchmarks/papers/linear_speedup.py --check   computes it again and compares

Worker i's loss is x'Dx / 2 - b_i'x. D is diagonal with ``DIMENSION`` entries from .1 to L = 1. The
b_i are unit vectors and their opposites, in turn, and gradients have Gaussian noise of variance 1.
Local steps and averages are then affine maps of Gaussians, so E |grad f|^2 after every round is
computed, not simulated. The step sizes are those of the paper's corollaries for T rounds. The
result is the least T whose smallest E |grad f|^2, the quantity in Theorems 1 and 2, is at most
``TARGET``.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
from drawn import near
from pages import put, table

from fedprivacy.outputs import whole_file
from fedprivacy.papers.averaging.bounds import (
    recommended_steps,
    rounds_needed,
    two_sided_bound,
)

RESULTS = Path(__file__).parent / "results" / "linear_speedup.json"
DIMENSION, GAP, TARGET = 10, 1.0, 0.01
CURVATURE = np.logspace(-1.0, 0.0, DIMENSION)
EVERYONE, LOCAL = (1, 2, 4, 8, 16), (1, 2, 4, 8)
WORKERS, COHORTS = 100, (5, 10, 20, 50)
SETTING = {
    "data": "made up: a quadratic, the workers' linear terms differ",
    "law": "exact, nothing is drawn",
    "rates": "the workers' and the server's of Corollaries 1 and 2, by n, K and T",
    "curvature": [float(CURVATURE[0]), float(CURVATURE[-1])],
    "variance of gradients": 1.0,
    "dimension": DIMENSION,
    "gap": GAP,
    "target": TARGET,
}
"""Settings of the computation, as named in the results; the result of each cell is its rounds."""


def smallest(rounds, cohort, local_steps, spread):
    """Return the smallest E |grad f|^2 over the rounds, with the recommended step sizes.

    Args:
        rounds: T.
        cohort: n.
        local_steps: K.
        spread: variance of the mean of a cohort's b_i, over that of one.
    """
    sizes = recommended_steps(local_steps=local_steps, rounds=rounds, smoothness=1.0, cohort=cohort)
    shrink = 1.0 - sizes.local * CURVATURE
    kept = shrink**local_steps
    moved = (1.0 - kept) / CURVATURE
    # Noise at a round's end: every local step's noise, contracted by later steps, and the draw.
    noise = sizes.local**2 / DIMENSION / cohort * (1.0 - kept**2) / (1.0 - shrink**2)
    noise = sizes.server**2 * (noise + spread / DIMENSION * moved**2)
    factor = 1.0 - sizes.server * (1.0 - kept)
    start = math.sqrt(2.0 * GAP / CURVATURE.sum())
    number = np.arange(rounds)[:, None]
    # Steps too long for the curvature: values beyond every range are not the smallest.
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.minimum((factor**2) ** number, 1e300)
    # The sum of the powers until now; if a factor is 1 or -1, their number.
    level = np.isclose(factor**2, 1.0)
    sums = np.where(level, number, (1.0 - powers) / np.where(level, 1.0, 1.0 - factor**2))
    squares = start**2 * powers + noise * sums
    return float((squares @ CURVATURE**2).min())


def bounded(rounds, clients, cohort, local_steps):
    """Return the bound of the corrected theorem."""
    sizes = recommended_steps(local_steps=local_steps, rounds=rounds, smoothness=1.0, cohort=cohort)
    everyone = cohort == clients
    return two_sided_bound(
        clients=clients,
        local_steps=local_steps,
        rounds=rounds,
        smoothness=1.0,
        gap=GAP,
        gradient_variance=1.0,
        heterogeneity=1.0,
        learning_rate=sizes.local,
        server_learning_rate=sizes.server,
        participation="everyone" if everyone else "without_replacement",
        cohort=None if everyone else cohort,
    ).value


def least(value, start):
    """Return the least T from ``start`` whose value is at most the target."""
    high = start
    while value(high) > TARGET:
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if value(middle) <= TARGET else (middle + 1, high)
    return high


def cell(clients, cohort, local_steps):
    """Return rounds to the target, exact and by the theorem, valid from ``needed`` rounds on."""
    everyone = cohort == clients
    spread = 0.0 if everyone else (clients - cohort) / (cohort * (clients - 1))
    kind = {"participation": "everyone" if everyone else "without_replacement"}
    sizes = kind if everyone else {**kind, "cohort": cohort}
    needed = rounds_needed(clients=clients, local_steps=local_steps, **sizes)
    exact = least(lambda t: smallest(t, cohort, local_steps, spread), 1)
    theorem = least(lambda t: bounded(t, clients, cohort, local_steps), needed)
    assert smallest(theorem, cohort, local_steps, spread) <= TARGET
    facts = {"clients": clients, "cohort": cohort, "local_steps": local_steps}
    return {**facts, "needed": needed, "rounds": exact, "theorem": theorem}


def everything():
    """Return all cells."""
    full = [cell(n, n, k) for n in EVERYONE for k in LOCAL]
    return full + [cell(WORKERS, n, k) for n in COHORTS for k in LOCAL]


def pages(cells):
    """Write the tables of the page."""
    for name, full in (("speed-up, everybody", True), ("speed-up, cohorts", False)):
        own = [one for one in cells if (one["clients"] == one["cohort"]) == full]
        rows = []
        for cohort in dict.fromkeys(one["cohort"] for one in own):
            row = [one for one in own if one["cohort"] == cohort]
            rows.append([str(cohort), *(f"{one['rounds']:,} / {one['theorem']:,}" for one in row)])
        put("fedavg_two_sided.md", name, table(["n", *(f"K = {k}" for k in LOCAL)], rows))


def main():
    """Run the command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true")
    if asked.parse_args().check:
        kept = json.loads(RESULTS.read_text())
        same = near(everything(), kept["cells"], 0.0) and kept["setting"] == SETTING
        print("linear speed-up:", "the same" if same else "DIFFERENT")
        sys.exit(not same)
    cells = everything()
    lines = ",\n".join(json.dumps(one) for one in cells)
    head = json.dumps({"setting": SETTING})[:-1]
    whole_file(RESULTS, f'{head}, "cells": [\n{lines}\n]}}\n')
    pages(cells)


if __name__ == "__main__":
    main()
