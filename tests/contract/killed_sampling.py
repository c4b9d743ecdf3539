"""A sampling run that is killed again and again; run by test_samplers.py.

Usage: killed_sampling.py FOLDER KILLS SEED. After every kill it prints what the ledger counts, how
many releases an observer saw, and how far the checkpoint is.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from fedprivacy.ledger import Ledger
from fedprivacy.theory.langevin import DecayingSteps, GaussianTarget
from fedprivacy.training import GaussianPosterior, LangevinSampling, load, train

FOLDER, KILLS, SEED = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
LEDGER, CHECKPOINT, RELEASES = FOLDER / "run.ledger", FOLDER / "state.pt", FOLDER / "releases"
PLAN = LangevinSampling(
    target=GaussianPosterior(
        target=GaussianTarget(hessians=np.tile(np.eye(2), (4, 1, 1)), centres=np.eye(4)[:, :2]),
        sensitivity=1.0,
    ),
    step_size=DecayingSteps(strong_convexity=1.0, smoothness=1.0),
    local_steps=2,
    averaging="II",
    cohort=2,
    chains=3,
    draws=100,
)


def observe(_):
    """Count one release, on disk before anything else happens."""
    file = os.open(RELEASES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b".")
    os.fsync(file)
    os.close(file)


def victim():
    torch.set_num_threads(1)
    ledger = Ledger.open(LEDGER, resume=True)
    train(PLAN, None, rounds=10**9, ledger=ledger, checkpoint=CHECKPOINT, on_release=observe)


def main():
    chance = random.Random(SEED)
    Ledger.create(LEDGER, unit="record", adjacency="replace_one").release()
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            try:
                victim()
            finally:
                os._exit(7)
        time.sleep(chance.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the run ended by itself"
        report = {
            "spent": Ledger.open(LEDGER).spent_rounds,
            "releases": RELEASES.stat().st_size if RELEASES.exists() else 0,
            "checkpoint": load(CHECKPOINT, PLAN.init()).round if CHECKPOINT.exists() else 0,
        }
        print(json.dumps(report), flush=True)


main()
