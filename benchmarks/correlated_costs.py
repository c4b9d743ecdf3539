"""Costs of correlated noise: sensitivities, calibration, the best factor, a row of noise.

    python benchmarks/correlated_costs.py [accounts] [row] [rounds]

Times are processor times, the least of five. A row has the size of the CNN. Its share refers to a
round of 100 clients, and ten of these clients are trained. Whole rounds of all 100 clients, as in
`benchmarks/training.py`, alternate between independent noise and a row of BLT noise. Each call adds
three pairs to the stored results.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.mechanisms import correlated
from fedprivacy.systems.averaging import rows
from fedprivacy.training import FederatedAveraging, cnn, fashion_mnist

KEPT = Path(__file__).parent / "results" / "correlated_costs.json"
APART = fp.MinimumSeparation(50)


def clock(job: Callable[[], object], times: int = 5) -> float:
    """Return the least processor time of a job, in seconds."""
    found = []
    for _ in range(times):
        correlated._sensitivity.cache_clear()
        start = time.process_time()
        job()
        found.append(time.process_time() - start)
    return min(found)


def run_of(factor: fp.factors.Factor, rounds: int, multiplier: float) -> fp.CorrelatedNoise:
    """Return a run with one client in 50 rounds."""
    return fp.CorrelatedNoise(
        factor=factor,
        noise_multiplier=multiplier,
        rounds=rounds,
        participation=APART,
        unit="client",
    )


def calibrated(factor: fp.factors.Factor, rounds: int) -> object:
    """Return the noise multiplier for epsilon 2."""
    return fp.calibrate(
        lambda z: run_of(factor, rounds, z), epsilon=2.0, delta=1e-5, adjacency="zero_out"
    )


def accounts() -> None:
    """Print the times of sensitivities, calibration and the search for a factor."""
    for factor, rounds in (
        (factors.SquareRootToeplitz(), 2000),
        (factors.BufferedToeplitz(4), 2000),
        (factors.Banded(50), 2000),
        (factors.BufferedToeplitz(4), 100_000),
    ):
        one = clock(functools.partial(factor.sensitivity, rounds, APART))
        whole = clock(functools.partial(calibrated, factor, rounds))
        print(f"{factor}, {rounds}: sensitivity {1e3 * one:.2f} ms, calibrate {1e3 * whole:.1f} ms")
    shape = factors.BufferedToeplitz(4)
    best = clock(lambda: factors.optimised(shape, rounds=2000, participation=APART), 1)
    print(f"best BLT of 2000 rounds: {best:.2f} s")


def a_row() -> None:
    """Print the time that a row of BLT noise, and its memory's file, add to the CNN's round."""
    data, noise = fashion_mnist(), run_of(factors.BufferedToeplitz(4), 200, 1.0)
    few = FederatedAveraging(
        model=cnn(),
        scheme=fp.FixedSize(10, population=data.population),
        local_steps=10,
        batch_size=10,
        learning_rate=0.125,
        momentum=0.5,
        seed=1,
    )
    plain = few.init()
    a_round = 10.0 * clock(lambda: few.step(plain, data), 3)
    private = replace(few, perturbation=noise)
    state = rows.of_clients(private.init(), data.population)
    drawn = clock(lambda: rows.noisy(state, noise, None))
    after = rows.noisy(state, noise, None)[2]
    with tempfile.TemporaryDirectory() as folder:
        ledger = fp.Ledger.create(
            Path(folder) / "run", unit="client", adjacency="zero_out", plan=noise
        )
        file = rows.NoiseFile(ledger)
        written = clock(lambda: file.write(after))
        size = file.path.stat().st_size / 1e6
        ledger.release()
    share = (drawn + written) / a_round
    print(f"row {drawn:.3f} s, its file of {size:.0f} MB {written:.3f} s: {share:.1%} of a round")


def whole_rounds(times: int = 6) -> None:
    """Time whole rounds with independent noise and with BLT noise, in turns; keep all times."""
    data = fashion_mnist()
    kinds = {
        "independent": fp.Gaussian(noise_multiplier=1.0, unit="client"),
        "BLT, 4 buffers": run_of(factors.BufferedToeplitz(4), 200, 1.0),
    }
    pairs = json.loads(KEPT.read_text())["pairs, seconds"] if KEPT.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for number, noise in enumerate(kinds.values()):
            loop = FederatedAveraging(
                model=cnn(),
                scheme=fp.FixedSize(100, population=data.population),
                perturbation=noise,
                local_steps=10,
                batch_size=10,
                learning_rate=0.125,
                momentum=0.5,
            )
            path = Path(folder) / str(number)
            ledger = fp.Ledger.create(path, unit="client", adjacency="zero_out")
            # The first round allocates arrays that later rounds use again.
            warm, _ = loop.step(loop.init(), data, ledger=ledger)
            runs.append((loop, ledger, warm))
        for number in range(times):
            pair = [0.0, 0.0]
            # The order alternates between pairs.
            for which in (0, 1) if number % 2 else (1, 0):
                loop, ledger, state = runs[which]
                start = time.process_time()
                after, _ = loop.step(state, data, ledger=ledger)
                pair[which] = time.process_time() - start
                runs[which] = loop, ledger, after
            pairs.append(pair)
            shares = [noisy / plain - 1.0 for plain, noisy in pairs]
            plain, noisy = (sum(column) for column in zip(*pairs, strict=True))
            kept = {
                "order": list(kinds),
                "BLT's share, median": statistics.median(shares),
                "BLT's share, of the sums": noisy / plain - 1.0,
                "pairs, seconds": pairs,
            }
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
            print(f"pair {len(pairs)}: {shares[-1]:+.1%} by BLT noise", flush=True)


PARTS = {"accounts": accounts, "row": a_row, "rounds": whole_rounds}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
