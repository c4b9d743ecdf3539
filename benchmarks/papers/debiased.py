"""Compare de-biased with plain FA-HMC by exact laws, and compute the cost of its upload.

    python benchmarks/papers/debiased.py           writes results/debiased.json
    python benchmarks/papers/debiased.py --check   computes it again and compares

The target is that of ``fa_hmc.py``'s Figure 1 in ten dimensions: a logistic regression's posterior,
expanded to second order at its mode for each client. T = 10, the momentum is shared (rho = 1), and
gradients are exact. Epsilon is that of one round with rho = 0 and noise of z times a record's reach
on gradients.
"""

import argparse
import json
import sys
from decimal import ROUND_CEILING
from pathlib import Path

import numpy as np
from drawn import near
from fa_hmc import REACH, SEEDS
from pages import put, table

import fedprivacy as fp
from fedprivacy.bound import shown as decimals
from fedprivacy.errors import ParameterError
from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.fa_hmc.simulations import LOCAL, LogisticExpansion
from fedprivacy.systems.fa_hmc.law import DebiasedLaws, HamiltonianChain
from fedprivacy.theory.gaussian import point, w2
from fedprivacy.theory.targets import GaussianTarget
from fedprivacy.training import DebiasedSampling, GaussianPosterior, HamiltonianSampling

RESULTS = Path(__file__).parent / "results" / "debiased.json"
CELLS = ((0.01, 1), (0.01, 10), (0.05, 1), (0.05, 3), (0.05, 10), (0.1, 1), (0.1, 3), (0.1, 10))
"""Step sizes and leapfrog steps."""
ROUNDS = (10, 100, 10_000)
NOISE, DELTA = 8.0, 1e-5
SETTING = {
    "data": "made up, see fa_hmc.py",
    "law": "exact, nothing but the records is drawn",
    "seed of the records": SEEDS["records"],
    "rounds": list(ROUNDS),
    "iterations": LOCAL,
    "delta": DELTA,
    "z": NOISE,
}
"""Computed quantities, as named in the results."""


def row(target, step, leapfrogs):
    """Return W2 after some rounds and in the limit, plain and de-biased, and epsilon of a round."""
    shape = {"step_size": step, "leapfrog_steps": leapfrogs, "iterations": LOCAL}
    chain = HamiltonianChain(target=target, correlation=1.0, **shape)
    laws, goal, start = DebiasedLaws(chain=chain), target.law(), point(np.zeros(target.dimension))
    found = {"step": step, "K": leapfrogs}
    for name, one in (("plain", chain), ("de-biased", laws)):
        found[name] = [float(w2(one.law(start, rounds), goal)) for rounds in ROUNDS]
    alone = HamiltonianChain(target=together(target), correlation=1.0, **shape)
    found["alone"] = float(w2(alone.law(start, ROUNDS[-1]), goal))
    try:
        found["contracts"] = bool(np.isfinite(laws.stationary().mean).all())
    except ParameterError:
        found["contracts"] = False
    posterior = GaussianPosterior(target=target, sensitivity=REACH)
    for name, kind in (("plain", HamiltonianSampling), ("de-biased", DebiasedSampling)):
        loop = kind(target=posterior, gradient_noise_multiplier=NOISE, **shape)
        bound = fp.epsilon(loop.run(1), delta=DELTA, adjacency="replace_one")
        found[f"epsilon, {name}"] = bound.upper
    return found


def together(target):
    """Return one client with all records: the error of its chain comes only from leapfrog."""
    mean = target.law().mean
    whole = np.einsum("c,cij->ij", target.shares, target.hessians)
    return GaussianTarget(hessians=whole[None], centres=mean[None])


def everything():
    """Return all cells."""
    target = LogisticExpansion(10).target
    return [row(target, *cell) for cell in CELLS]


def page(rows):
    """Write the table of the page."""
    shown = []
    for one in rows:
        pairs = zip(one["plain"], one["de-biased"], strict=True)
        told = [
            f"{plain:.2g} / {ours:.2g}" if ours < 1e3 else f"{plain:.2g} / grows"
            for plain, ours in pairs
        ]
        costs = [
            decimals(one[f"epsilon, {name}"], 4, ROUND_CEILING) for name in ("plain", "de-biased")
        ]
        alone = f"{one['alone']:.2g}"
        shown.append([f"{one['step']:g}", str(one["K"]), *told, alone, " / ".join(costs)])
    head = ["eta", "K", *(f"W2, {rounds:,} rounds" for rounds in ROUNDS), "one client with all"]
    put("fa_hmc.md", "de-biased", table([*head, "epsilon of a round, z = 8"], shown))


def main():
    """Run the command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true")
    if asked.parse_args().check:
        kept = json.loads(RESULTS.read_text())
        same = near(everything(), kept["cells"], 1e-5) and kept["setting"] == SETTING
        print("de-biased FA-HMC:", "the same" if same else "DIFFERENT")
        sys.exit(not same)
    rows = everything()
    lines = ",\n".join(json.dumps(one) for one in rows)
    whole_file(RESULTS, f'{json.dumps({"setting": SETTING})[:-1]}, "cells": [\n{lines}\n]}}\n')
    page(rows)


if __name__ == "__main__":
    main()
