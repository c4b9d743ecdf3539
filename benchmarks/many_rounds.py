"""Processor time and memory of accounts of many different rounds, a process for each cell.

    python benchmarks/many_rounds.py [--rounds 2000] [--only TEXT] [--limit SECONDS]

Every round has a different noise multiplier and rate. A cell is a scheme, an adjacency, an observer
and an accountant. Seconds are processor time, from the rounds' losses to epsilon at delta = 1e-5,
without imports and the construction of mechanisms. Megabytes are the process's peak.
"""

import argparse
import resource
import subprocess
import sys
import time

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS

UNITS = 100_000

SCHEMES = {
    "poisson": fp.Poisson,
    "fixed": lambda share: fp.FixedSize(round(UNITS * share), population=UNITS),
    "everyone": lambda share: fp.Everyone(),
    "replacement": lambda share: fp.WithReplacement(round(UNITS * share), population=UNITS),
    "shuffled": lambda share: fp.Shuffled(round(1.0 / share)),
    "allocation": lambda share: fp.RandomAllocation(round(1.0 / share)),
}
ADJACENCIES = ("add_remove", "zero_out", "replace_one")
OBSERVERS = ("aggregate", "server")


def losses(scheme, adjacency, observer, count):
    """Yield losses of rounds that all differ."""
    for k in range(count):
        noise, share = 0.8 + 0.8 * k / count, 0.002 + 0.02 * (k * 0.6180339887498949 % 1.0)
        step = fp.Gaussian(noise_multiplier=noise, unit="record")
        yield step.sampled(SCHEMES[scheme](share)).privacy_loss(adjacency, observer)


def cell(scheme, adjacency, observer, accountant, count):
    """Print one line: seconds, megabytes, the interval or the reason."""
    try:
        every = list(losses(scheme, adjacency, observer, count))
    except fp.UnsupportedCombination as problem:
        print(f"refused: {str(problem)[:80]}")
        return
    start = time.process_time()
    account = ACCOUNTANTS[accountant]()
    for one in every:
        account.compose(one)
    found = account.epsilon(1e-5)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    low, high = found.resolution
    print(
        f"{seconds:6.1f} s {peak:5.0f} MB  [{low:.6f}, {high:.6f}] {found.method}; {found.reason}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--only", default="", help="words that a cell's name must hold")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a cell")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        cell(*args.cell, args.rounds)
        return
    for name in (
        [scheme, adjacency, observer, accountant]
        for scheme in SCHEMES
        for adjacency in ADJACENCIES
        for observer in OBSERVERS
        for accountant in ACCOUNTANTS
    ):
        if not set(args.only.split()) <= set(name):
            continue
        command = [sys.executable, __file__, "--rounds", str(args.rounds), "--cell", *name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
            said = done.stdout.strip() or done.stderr.strip().splitlines()[-1]
        except subprocess.TimeoutExpired:
            said = f"more than {args.limit:g} s on the clock"
        print(f"{' '.join(name):45} {said}", flush=True)


if __name__ == "__main__":
    main()
