"""Resumes a ledger until it is killed: intent, release (a byte to an observer), done.

python killed_ledger.py LEDGER OBSERVER

For every line on stdin a child is forked (so that numpy is loaded once only) and its process id
printed; when it is dead, so is that.
"""

import os
import sys
from pathlib import Path

import fedprivacy as fp
from fedprivacy.ledger import Ledger

STEP = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1))
OTHER = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.2))


def go_on(path: Path, observer: int) -> None:
    ledger = Ledger.open(path, resume=True)
    while True:
        number = len(ledger.rounds)
        mechanism = STEP if number % 2 else OTHER
        round_ = ledger.intent(mechanism, clip_norm=1.0, noise_std=2.0)
        if number % 7 == 6:
            ledger.abort(round_, "too few clients")
            continue
        os.write(observer, b"x")
        os.fsync(observer)
        ledger.done(round_, cohort=10, arrived=10, refused=0, noise_std=2.0)


def main() -> None:
    path = Path(sys.argv[1])
    observer = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            go_on(path, observer)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"died of signal {os.WTERMSIG(status)}", flush=True)


if __name__ == "__main__":
    main()
