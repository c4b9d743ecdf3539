"""Random settings of the whole table: the time of an epsilon, and its width.

It takes every scheme, adjacency, observer and kind of mechanism in turn, with log-uniform numbers.
Run as ``python benchmarks/box.py COUNT [SEED] [--save]``. It prints settings that take over a
second, then a line for each scheme.
"""

import argparse
import json
import math
import time
from itertools import product
from pathlib import Path

import numpy as np
from tables import table

import fedprivacy as fp

RESULTS = Path(__file__).parent / "results" / "box.json"
POPULATION = 100_000
EPOCHS = ("Shuffled", "RandomAllocation")
SCHEMES = ("Poisson", "TruncatedPoisson", "FixedSize", "WithReplacement", *EPOCHS, "Everyone")
MECHANISMS = ("Gaussian", "Laplace", "DiscreteLaplace", "RandomizedResponse", "Skellam")
OBSERVERS = ("aggregate", "server")
CELLS = list(product(SCHEMES, MECHANISMS, fp.Adjacency, OBSERVERS))
SLOW, GOAL = 1.0, 0.1
"""Limits in seconds: all settings below the first, 95 of 100 below the second."""


class Box:
    """Settings of one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def spread(self, low: float, high: float) -> float:
        """Return a log-uniform number."""
        return math.exp(self.generator.uniform(math.log(low), math.log(high)))

    def scheme(self, name: str):
        """Return a scheme with a random rate."""
        q = self.spread(1e-5, 1)
        size, long = max(1, int(q * POPULATION)), round(self.spread(2, 1e5))
        draws = round(self.spread(1, 100))
        largest = min(POPULATION, round(size * self.spread(1, 3)))
        return {
            "Poisson": lambda: fp.Poisson(q),
            "TruncatedPoisson": lambda: fp.TruncatedPoisson(
                q, population=POPULATION, largest=largest
            ),
            "FixedSize": lambda: fp.FixedSize(size, population=POPULATION),
            "WithReplacement": lambda: fp.WithReplacement(draws, probability=q / draws),
            "Shuffled": lambda: fp.Shuffled(rounds_per_epoch=long),
            "RandomAllocation": lambda: fp.RandomAllocation(rounds_per_epoch=long),
            "Everyone": fp.Everyone,
        }[name]()

    def mechanism(self, name: str):
        """Return a mechanism of one sum."""
        noise = self.spread(0.3, 50)
        return {
            "Gaussian": lambda: fp.Gaussian(noise_multiplier=noise),
            "Laplace": lambda: fp.Laplace(noise_multiplier=noise),
            "DiscreteLaplace": lambda: fp.DiscreteLaplace(noise_parameter=1 / noise),
            "RandomizedResponse": lambda: fp.RandomizedResponse(
                chance=min(1.0, 0.1 * noise), answers=10
            ),
            "Skellam": lambda: fp.Skellam(
                noise_multiplier=noise,
                clip_norm=1.0,
                dimension=1000,
                cohort=100,
                bits=24,
                overflow=1e-9,
                topped_up=True,
            ),
        }[name]()

    def run(self, scheme: str, mechanism: str):
        """Return a run of at most 10^6 rounds, or fewer epochs."""
        most = 1e3 if scheme in EPOCHS else 1e6
        one = self.mechanism(mechanism).sampled(self.scheme(scheme))
        return one * round(self.spread(1, most))


def ask(run, adjacency: str, observer: str, delta: float) -> tuple[float, float, float, float]:
    """Return (CPU seconds, lower, resolution, upper)."""
    begun = time.process_time()
    found = fp.epsilon(run, delta=delta, adjacency=adjacency, observer=observer)
    return time.process_time() - begun, found.lower, found.resolution[0], found.upper


def settings(count: int, seed: int):
    """Yield (cell, run, delta); invalid runs are skipped."""
    box = Box(seed)
    for k in range(count):
        cell = CELLS[k * 37 % len(CELLS)]  # 37 and the number of cells are coprime
        delta = box.spread(1e-15, 1e-3)
        try:
            yield cell, box.run(*cell[:2]), delta
        except (fp.ParameterError, fp.UnsupportedCombination):
            continue


def main(count: int, seed: int, save: bool) -> None:
    """Compute epsilon at the default tolerance; times are CPU seconds of one thread."""
    rows: dict[str, list[tuple[float, bool]]] = {}
    refused = 0
    for (scheme, _, adjacency, observer), run, delta in settings(count, seed):
        try:
            took, _, low, high = ask(run, adjacency, observer, delta)
        except (fp.UnsupportedCombination, fp.ParameterError):
            refused += 1
            continue
        wide = bool(high - low > 1e-3 * max(1.0, high)) and scheme not in EPOCHS
        rows.setdefault(scheme, []).append((took, wide))
        if took > SLOW:
            print(
                f"{took:7.2f} s  [{low:.6g}, {high:.6g}]  {adjacency} {observer} {run} {delta:.3g}"
            )
    rows["all"] = [each for found in rows.values() for each in found]
    lines = {name: summary(found) for name, found in rows.items()}
    head = ["scheme", "settings", "median ms", "95 % below ms", "longest ms", "over 1 s", "wide"]
    print(
        f"{refused} settings have no theorem.\n" + table(head, [[k, *v] for k, v in lines.items()])
    )
    if save:
        RESULTS.write_text(
            json.dumps({"count": count, "seed": seed, "rows": lines}, indent=1) + "\n"
        )


def summary(found: list[tuple[float, bool]]) -> list[str]:
    """Return the numbers of a row."""
    times = np.array([took for took, _ in found]) * 1e3
    middle, most = np.quantile(times, [0.5, 0.95])
    slow, wide = int((times > 1e3 * SLOW).sum()), sum(w for _, w in found)
    return [
        str(len(times)),
        *(f"{x:.1f}" for x in (middle, most, times.max())),
        str(slow),
        str(wide),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--save", action="store_true", help="write results/box.json")
    asked = parser.parse_args()
    main(asked.count, asked.seed, asked.save)
