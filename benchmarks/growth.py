"""How processor time grows with rounds, with kinds of rounds, and with the length of a ledger.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/growth.py

It writes ``results/growth.json``, which docs/comparison.md draws. Every library uses one thread,
and the noise of every question is new, so no cache answers. A library that takes longer than
``MOST`` seconds, or needs more than ``MEMORY`` bytes, is not asked the longer question. The least
of a few turns counts.
"""

from __future__ import annotations

import json
import math
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from opacus.accountants import RDPAccountant

import fedprivacy as fp
from fedprivacy.mechanisms.base import Run

RESULTS = Path(__file__).parent / "results" / "growth.json"
MOST, TURNS = 5.0, 3
MEMORY = 6 << 30
DELTA, RATE = 1e-5, 0.01
ROUNDS = [10**k for k in range(2, 13, 2)]
KINDS = [1, 10, 100, 1_000, 10_000, 100_000]
LENGTHS = [10**k for k in range(2, 7)]

Ask = Callable[[int, float], object]


def noises(kinds: int, shift: float) -> list[float]:
    """Return different noise multipliers from .8 to 1.8."""
    return [0.8 + (k + shift) / kinds for k in range(kinds)]


def ours(kinds: int, rounds: int, shift: float) -> object:
    """Return our interval of epsilon for kinds of rounds, each with a number of rounds."""
    steps = [
        fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(RATE)) for z in noises(kinds, shift)
    ]
    run = Run(tuple((step, rounds) for step in steps))
    return fp.epsilon(run, delta=DELTA, adjacency="add_remove")


def google(kinds: int, rounds: int, shift: float) -> object:
    """Return dp-accounting's epsilon from privacy-loss distributions, at its default mesh."""
    accountant = PLDAccountant()
    for z in noises(kinds, shift):
        one = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(z))
        accountant.compose(one, rounds)
    return accountant.get_epsilon(DELTA)


def opacus(kinds: int, rounds: int, shift: float) -> object:
    """Return Opacus's epsilon from Renyi divergences."""
    accountant = RDPAccountant()
    accountant.history = [(z, RATE, rounds) for z in noises(kinds, shift)]
    return accountant.get_epsilon(DELTA)


LIBRARIES = {"fedprivacy": ours, "dp-accounting, PLD": google, "Opacus, RDP": opacus}


def ledger(rounds: int, shift: float) -> Callable[[], object]:
    """Write a ledger of one kind of round; return what opens and audits it."""
    step = fp.Gaussian(noise_multiplier=50.0 + shift, unit="client").sampled(fp.Poisson(RATE))
    path = Path(tempfile.mkdtemp()) / "run.ledger"
    facts = {"unit": "client", "adjacency": "zero_out", "claim": (8.0, 1e-6)}
    sizes = np.random.default_rng(1).binomial(10_000, RATE, rounds).tolist()
    sync, os.fsync = os.fsync, lambda file: None
    try:
        with fp.Ledger.create(path, **facts, plan=step * rounds) as book:
            for size in sizes:
                std = 50.0 + shift
                number = book.intent(step, clip_norm=1.0, noise_std=std)
                known = {"cohort": size, "arrived": size, "refused": 0}
                book.done(number, **known, noise_std=std, denominator=100.0)
            book.close()
    finally:
        os.fsync = sync
    return lambda: fp.audit(fp.Ledger.open(path))


def seconds(ask: Callable[[float], Callable[[], object]]) -> float:
    """Return the least processor time of a few turns, or of one if it is long."""
    best = math.inf
    for turn in range(TURNS):
        question = ask(0.1 * (turn + 1))
        begun = time.process_time()
        question()
        best = min(best, time.process_time() - begun)
        if best > 1.0:
            break
    return best


def series(
    sizes: list[int], ask: Callable[[int, float], Callable[[], object]]
) -> list[list[float]]:
    """Return [size, seconds] up to the first size that takes too long."""
    found = []
    for size in sizes:
        try:
            found.append([size, seconds(lambda shift, size=size: ask(size, shift))])
        except MemoryError:
            break
        print(*found[-1], flush=True)
        if found[-1][1] > MOST:
            break
    return found


def main() -> None:
    """Measure every series and write them."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for ask in LIBRARIES.values():
        ask(2, 2, 0.5)
    found: dict[str, dict[str, list[list[float]]]] = {"rounds": {}, "kinds": {}, "ledger": {}}
    for name, ask in LIBRARIES.items():
        print(name)
        found["rounds"][name] = series(ROUNDS, lambda n, s, ask=ask: lambda: ask(1, n, s))
        found["kinds"][name] = series(KINDS, lambda n, s, ask=ask: lambda: ask(n, 1, s))
    found["ledger"]["fedprivacy"] = series(LENGTHS, ledger)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
