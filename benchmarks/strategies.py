"""The loss without each strategy: answers that meet the tolerance, and processor seconds.

    python benchmarks/strategies.py

Settings are random, with a fixed seed. "easy" are Gaussian and Laplace noise under Poisson and
fixed-size sampling. "hard" are long runs, epochs, and rounds with many labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

import fedprivacy as fp
from fedprivacy.loss.curves import components
from fedprivacy.loss.strategies import queries, renyi, search, tail_splitting

Setting = tuple[fp.Mechanism, float, str]
TOLERANCE = 1e-3


def easy(count: int) -> list[Setting]:
    """Return runs of one kind of round with Gaussian or Laplace noise."""
    random, found = np.random.default_rng(1), []
    for _ in range(count):
        z = float(np.exp(random.uniform(np.log(0.5), np.log(5.0))))
        noise = fp.Laplace if random.random() < 0.3 else fp.Gaussian
        q = float(10.0 ** random.uniform(-3.0, -0.5))
        scheme = fp.Poisson(q) if random.random() < 0.5 else fp.FixedSize(size_of(q), 1000)
        rounds = int(10.0 ** random.uniform(0.0, 3.7))
        delta = float(10.0 ** random.uniform(-9.0, -3.0))
        found.append((noise(noise_multiplier=z).sampled(scheme) * rounds, delta, "zero_out"))
    return found


def hard(count: int) -> list[Setting]:
    """Return long runs, epochs, draws with replacement, capped cohorts, and several kinds."""
    random, found = np.random.default_rng(2), []
    for k in range(count):
        z = float(np.exp(random.uniform(np.log(0.7), np.log(4.0))))
        one, delta = fp.Gaussian(noise_multiplier=z), float(10.0 ** random.uniform(-8.0, -4.0))
        rounds = int(10.0 ** random.uniform(1.0, 3.0))
        runs = (
            one.sampled(fp.WithReplacement(10, population=1000)) * rounds,
            one.sampled(fp.RandomAllocation(rounds_per_epoch=50)) * (rounds // 10 + 1),
            one.sampled(fp.TruncatedPoisson(0.01, population=1000, largest=20)) * rounds,
            one.sampled(fp.Poisson(0.001)) * 10**6,
            several(z, rounds),
        )
        found.append((runs[k % len(runs)], delta, "zero_out"))
    return found


def several(z: float, rounds: int) -> fp.Mechanism:
    """Return twelve kinds of rounds, each with its own noise."""
    kinds = [fp.Gaussian(noise_multiplier=z * (1 + 0.05 * k)) for k in range(12)]
    run = kinds[0].sampled(fp.Poisson(0.02)) * rounds
    for kind in kinds[1:]:
        run = run + kind.sampled(fp.Poisson(0.02)) * rounds
    return run


def size_of(q: float) -> int:
    """Return the cohort of about a share of 1,000 units."""
    return max(1, round(1000 * q))


@contextmanager
def without(name: str) -> Iterator[None]:
    """Leave one part of the search out."""

    def untrimmed(curve: fp.loss.Curve, allowed: float) -> components.Trimmed:
        del allowed
        return components.Trimmed(curve, 0.0)

    if name == "trimming":
        with (
            mock.patch.multiple(queries, trim=untrimmed),
            mock.patch.multiple(renyi, trim=untrimmed),
            mock.patch.multiple(tail_splitting, trim=untrimmed),
            mock.patch.multiple(search, trim=untrimmed),
        ):
            yield
        return
    left = tuple(each for each in search.STRATEGIES if name_of(each) != name)
    with mock.patch.object(search, "STRATEGIES", left):
        yield


def name_of(strategy: search.Strategy) -> str:
    """Return the name of a strategy in the table."""
    split = getattr(strategy, "split", False)
    return type(strategy).__name__.lower() + (" of split rounds" if split else "")


def measured(settings: list[Setting], accountant: str) -> tuple[int, float, float]:
    """Return (answers within the tolerance, processor seconds, sum of upper ends)."""
    met, begun, total = 0, time.process_time(), 0.0
    for run, delta, adjacency in settings:
        bound = fp.epsilon(run, delta=delta, adjacency=adjacency, accountant=accountant)
        low, high = bound.resolution
        met += high - low <= TOLERANCE
        total += bound.upper
    return met, time.process_time() - begun, total


def main() -> None:
    """Print a row for each part of the search that is left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--easy", type=int, default=70)
    parser.add_argument("--hard", type=int, default=40)
    asked = parser.parse_args()
    settings = {"easy": easy(asked.easy), "hard": hard(asked.hard)}
    print("| left out | easy: met, seconds | hard: met, seconds | rdp: sum of epsilons |")
    print("|---|---|---|---|")
    names = ["nothing", *dict.fromkeys(map(name_of, search.STRATEGIES)), "trimming"]
    for name in names:
        with without(name):
            cells = [measured(each, "pld") for each in settings.values()]
            rdp = sum(measured(each, "rdp")[2] for each in settings.values())
        shown = [
            f"{met} of {len(each)}, {seconds:.1f}"
            for (met, seconds, _), each in zip(cells, settings.values(), strict=True)
        ]
        print(f"| {name} | {' | '.join(shown)} | {rdp:.0f} |", flush=True)


if __name__ == "__main__":
    main()
