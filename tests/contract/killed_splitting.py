"""A run of Fed-PLT that is killed again and again; run by test_splitting.py.

Usage: killed_splitting.py FOLDER KILLS SEED. After every kill it prints what the ledger counts, how
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
from fedprivacy.training import AgentData, FederatedSplitting, LocalSolver, Logistic, load, train

FOLDER, KILLS, SEED = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
LEDGER, CHECKPOINT, RELEASES = FOLDER / "run.ledger", FOLDER / "state.pt", FOLDER / "releases"
LOOP = FederatedSplitting(
    loss=Logistic(regularisation=0.5, feature_bound=1.0),
    records=(20, 20, 20),
    dimension=2,
    solver=LocalSolver(method="noisy", noise_scale=0.5),
    participation=0.7,
)


def made_up():
    inputs = np.random.default_rng(0).normal(size=(3, 20, 2))
    return AgentData(torch.from_numpy(inputs), torch.from_numpy(np.sign(inputs[..., 0])))


def observe(_):
    """Count one release, on disk before anything else happens."""
    file = os.open(RELEASES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b".")
    os.fsync(file)
    os.close(file)


def victim():
    torch.set_num_threads(1)
    ledger = Ledger.open(LEDGER, resume=True)
    train(LOOP, made_up(), rounds=10**9, ledger=ledger, checkpoint=CHECKPOINT, on_release=observe)


def main():
    chance = random.Random(SEED)
    Ledger.create(LEDGER, unit="record", adjacency="replace_one", observer="server").release()
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
            "checkpoint": load(CHECKPOINT, LOOP.init()).round if CHECKPOINT.exists() else 0,
        }
        print(json.dumps(report), flush=True)


main()
