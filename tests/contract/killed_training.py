"""A training run that is killed again and again; run by test_training.py.

Usage: killed_training.py FOLDER KILLS SEED. After every kill it prints what the ledger counts, how
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
from fedprivacy.mechanisms import SparsifiedPerturbation
from fedprivacy.sampling import FixedSize
from fedprivacy.training import FederatedAveraging, FederatedData, load, logistic, train

FOLDER, KILLS, SEED = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
LEDGER, CHECKPOINT, RELEASES = FOLDER / "run.ledger", FOLDER / "state.pt", FOLDER / "releases"
PLAN = FederatedAveraging(
    model=logistic(3, 2),
    scheme=FixedSize(3, 6),
    perturbation=SparsifiedPerturbation(
        noise_multiplier=1.0, clip_norm=1.0, kept=4, dimension=8, cohort=3
    ),
    local_steps=1,
)


def made_up():
    inputs = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    features, labels = torch.from_numpy(inputs), torch.from_numpy((inputs[:, 0] > 0).astype(int))
    return FederatedData(
        name="made up",
        features=features,
        labels=labels,
        clients=tuple(np.split(np.arange(12), 6)),
        test_features=features,
        test_labels=labels,
        num_classes=2,
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
    train(PLAN, made_up(), rounds=10**9, ledger=ledger, checkpoint=CHECKPOINT, on_release=observe)


def main():
    chance = random.Random(SEED)
    Ledger.create(
        LEDGER,
        unit="client",
        adjacency="zero_out",
        observer="aggregate",
        claim=(8.0, 1e-3),
        schedule="fixed",
        budget_rule="none",
        seed_policy="operating system",
        plan=PLAN.round_mechanism * 10**6,
    ).release()
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
