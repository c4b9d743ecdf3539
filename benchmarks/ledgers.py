"""A ledger of 10^6 rounds: write it, then open, account, audit and report it.

Usage: ledgers.py [--rounds N] [--folder DIR] [--json FILE]. The ledger is a real one, written line
by line as by a run, but without an fsync for each line. A separate process reads it; its peak
memory includes Python, numpy and matplotlib. Times are CPU seconds of one core, so that other work
on the machine has less effect.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fedprivacy as fp

ROUND = fp.Gaussian(noise_multiplier=50.0, unit="client").sampled(fp.Poisson(0.01))
CLAIM = (8.0, 1e-6)
CLIENTS = 10_000
MOST_SECONDS, MOST_MEGABYTES = 10.0, 200.0


def write(path, rounds):
    """Write a closed ledger: cohorts from Poisson sampling, with a dropout now and then."""
    rng = np.random.default_rng(0)
    cohorts = rng.binomial(CLIENTS, 0.01, rounds).tolist()
    missing = (rng.random(rounds) < 0.05).tolist()
    facts = {"unit": "client", "adjacency": "zero_out", "claim": CLAIM}
    fsync, os.fsync = os.fsync, lambda fd: None
    try:
        with fp.Ledger.create(path, **facts, plan=ROUND * rounds) as ledger:
            for cohort, one in zip(cohorts, missing, strict=True):
                number = ledger.intent(ROUND, clip_norm=1.0, noise_std=50.0)
                arrived = max(0, cohort - one)
                ledger.done(
                    number,
                    cohort=cohort,
                    arrived=arrived,
                    refused=0,
                    noise_std=50.0,
                    denominator=100.0,
                )
            ledger.close()
    finally:
        os.fsync = fsync


def read(path):
    """Return the CPU seconds of each step, and this process's peak memory in MB."""
    found = {}

    def timed(name, step):
        begun = time.process_time()
        made = step()
        found[name] = time.process_time() - begun
        return made

    ledger = timed("open", lambda: fp.Ledger.open(path))
    timed("account", lambda: fp.account(ledger, delta=CLAIM[1]))
    audit = timed("audit", lambda: fp.audit(ledger))
    timed("report", lambda: fp.report(audit, path.with_suffix(".html")))
    found["seconds"] = sum(found.values())
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["verdict"] = str(audit.verdict)
    return found


def main():
    """Write, read in another process, print, and exit with 1 beyond the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10**6)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path, help="read this ledger in this process and print")
    given = parser.parse_args()
    if given.read:
        print(json.dumps(read(given.read)))
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "run.ledger"
        begun = time.process_time()
        write(path, given.rounds)
        written = time.process_time() - begun
        size = path.stat().st_size / 1e6
        command = [sys.executable, __file__, "--read", str(path)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    found = {"rounds": given.rounds, "ledger_mb": size, "write": written, **found}
    for name, value in found.items():
        print(f"{name:>10}  {value:.2f}" if isinstance(value, float) else f"{name:>10}  {value}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    return found["seconds"] > MOST_SECONDS or found["megabytes"] > MOST_MEGABYTES


if __name__ == "__main__":
    sys.exit(main())
