"""DP-FTRL that is killed again and again; run by ``test_dp_ftrl``.

Usage: killed_rows.py FOLDER KILLS SEED [BLOCK KEPT]: with a block, noise and mask begin anew
after so many rows. An observer outside writes every release down, with its row
and the process that made it, before anything else happens. After every kill it is printed what the
ledger counts and how many releases there were.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from fedprivacy import audit, factors
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import CorrelatedNoise
from fedprivacy.sampling import FixedSize
from fedprivacy.training import FederatedAveraging, logistic, train
from tests.common import two_classes

FOLDER, KILLS, SEED = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
BLOCK, KEPT = map(int, sys.argv[4:] or (0, 0))
LEDGER, CHECKPOINT, RELEASES = FOLDER / "run.ledger", FOLDER / "state.pt", FOLDER / "releases"
ROUNDS = 20_000


DATA = two_classes(12, 6, inputs=20)
TWO_BANDS = factors.Banded(2, weights=(1.0, 0.8))
NOISE = CorrelatedNoise(
    factor=factors.Restarted(TWO_BANDS, BLOCK) if BLOCK else TWO_BANDS,
    noise_multiplier=1.0,
    rounds=ROUNDS,
    participation=factors.MinimumSeparation(2),
    unit="client",
    kept=KEPT or None,
    dimension=42 if KEPT else None,
)
# Updates are almost 0, so the release is the noise.
LOOP = FederatedAveraging(
    model=logistic(20, 2),
    scheme=FixedSize(2, 6),
    perturbation=NOISE,
    local_steps=1,
    learning_rate=1e-30,
)


def observe(state):
    """Write one release down, on disk before anything else happens."""
    line = {"row": state.round - 1, "by": os.getpid(), "release": state.velocity.tolist()}
    file = os.open(RELEASES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (json.dumps(line) + "\n").encode())
    os.fsync(file)
    os.close(file)


def victim(ready):
    torch.set_num_threads(1)
    ledger = Ledger.open(LEDGER, resume=True)
    os.write(ready, b".")
    train(LOOP, DATA, rounds=ROUNDS, ledger=ledger, checkpoint=CHECKPOINT, on_release=observe)


def released():
    """Return how many releases the observer saw."""
    return RELEASES.read_bytes().count(b"\n") if RELEASES.exists() else 0


def main():
    chance = random.Random(SEED)
    # What a process does once only is done before it is forked.
    warm = replace(LOOP, seed=1)
    warm.step(warm.init(), DATA)
    Ledger.create(LEDGER, unit="client", adjacency="zero_out", plan=NOISE).release()
    pace = 0.1
    for _ in range(KILLS):
        there, ready = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                victim(ready)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(7)
        os.close(ready)
        os.read(there, 1)
        os.close(there)
        before, start = released(), time.monotonic()
        # A few rows at the pace of the process before: a loaded machine is slower.
        time.sleep(chance.uniform(0.0, 3.5 * pace))
        rows = released() - before
        pace = min(max((time.monotonic() - start) / max(rows, 1), 0.1 * pace, 0.02), 2.0)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the run ended by itself"
    rows = [one.mechanism for one in Ledger.open(LEDGER).rounds if one.spent]
    told = {"rows": [row.row for row in rows], "kept": all(row.kept for row in rows)}
    found = audit(LEDGER, claim=(1e6, 1e-5))
    print(json.dumps(told | {"verdict": str(found.verdict), "reasons": " ".join(found.reasons)}))


main()
