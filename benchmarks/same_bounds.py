"""Bounds of 400 settings and of every cell of the table, to the last bit: before and after a move.

A change that only moves code leaves the output of this script unchanged::

    python benchmarks/same_bounds.py before.json      # on the old tree
    python benchmarks/same_bounds.py after.json       # on the new one
    cmp before.json after.json

No computation here has a time limit, so the answers do not depend on the machine's load.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import fedprivacy as fp
from fedprivacy.errors import FedPrivacyError

SETTINGS = 400
SEED = 20

SCHEMES = {
    "Poisson": lambda q, n: fp.Poisson(q),
    "FixedSize": lambda q, n: fp.FixedSize(max(1, round(q * n)), population=n),
    "WithReplacement": lambda q, n: fp.WithReplacement(max(1, round(q * 100)), population=n),
    "Shuffled": lambda q, n: fp.Shuffled(rounds_per_epoch=max(1, round(1 / q))),
    "TruncatedPoisson": lambda q, n: fp.TruncatedPoisson(q, population=n, largest=max(2, n // 2)),
    "RandomAllocation": lambda q, n: fp.RandomAllocation(rounds_per_epoch=max(2, round(1 / q))),
    "Everyone": lambda q, n: fp.Everyone(),
}
ADJACENCIES = ("add_remove", "zero_out", "replace_one")
OBSERVERS = ("aggregate", "server", "final")
ACCOUNTANTS = ("pld", "pld", "pld", "rdp", "advanced")


def ends(run: fp.Mechanism, delta: float, **asked: Any) -> Any:
    """Return a Bound's ends as hexadecimal digits, or the reason why there is no Bound."""
    try:
        bound = fp.epsilon(run, delta=delta, **asked)
    except FedPrivacyError as refusal:
        return type(refusal).__name__
    return [float(end).hex() for end in (bound.lower, *bound.resolution, bound.upper)]


def inner_of(generator: np.random.Generator) -> fp.Mechanism:
    """Return a random mechanism whose units can be sampled."""
    multiplier = float(np.exp(generator.uniform(np.log(0.4), np.log(8.0))))
    if generator.random() < 0.15:
        return fp.Laplace(noise_multiplier=multiplier)
    return fp.Gaussian(noise_multiplier=multiplier)


def random_settings() -> dict[str, Any]:
    """Return the ends of random settings, by description."""
    generator, found = np.random.default_rng(SEED), {}
    for number in range(SETTINGS):
        inner, delta = inner_of(generator), float(10.0 ** generator.uniform(-9, -2))
        rate, population = float(10.0 ** generator.uniform(-3, -0.3)), 1000
        name = str(generator.choice(sorted(SCHEMES)))
        rounds = int(10.0 ** generator.uniform(0, 4.5))
        asked = {
            "adjacency": str(generator.choice(ADJACENCIES)),
            "observer": str(generator.choice(OBSERVERS)),
            "accountant": str(generator.choice(ACCOUNTANTS)),
        }
        run = inner.sampled(SCHEMES[name](rate, population)) * rounds
        found[f"{number}: {run}, {delta!r}, {asked}"] = ends(run, delta, **asked)
    return found


def table() -> dict[str, Any]:
    """Return the ends of one round and of 50 for every scheme, adjacency and observer."""
    found = {}
    for name, make in SCHEMES.items():
        step = fp.Gaussian(noise_multiplier=1.2).sampled(make(0.1, 100))
        for adjacency in ADJACENCIES:
            for observer in OBSERVERS:
                for rounds in (1, 50):
                    asked = {"adjacency": adjacency, "observer": observer}
                    key = f"{name}, {adjacency}, {observer}, {rounds}"
                    found[key] = ends(step * rounds, 1e-5, **asked)
    return found


def main() -> None:
    """Write the answers to the given file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    path.write_text(json.dumps({"table": table(), "random": random_settings()}, indent=1))


if __name__ == "__main__":
    main()
