"""A run that is killed again and again; run by ``kills.kill_often``.

Usage: killed_training.py LOOP FOLDER KILLS SEED. After every kill it prints what the ledger counts,
how many releases an observer saw, and how far the checkpoint is; at the end whether two releases
had the same noise, and what the audit says.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

import fedprivacy as fp
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import DistributedDiscreteGaussian, Skellam, SparsifiedPerturbation
from fedprivacy.sampling import FixedSize
from fedprivacy.systems.fa_ld.law import GaussianTarget
from fedprivacy.training import (
    AgentData,
    FederatedAveraging,
    FederatedSplitting,
    GaussianPosterior,
    HamiltonianSampling,
    LangevinSampling,
    LocalSolver,
    Logistic,
    load,
    logistic,
    train,
)
from tests.common import two_classes

NAME, FOLDER, KILLS, SEED = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
LEDGER, CHECKPOINT, RELEASES = FOLDER / "run.ledger", FOLDER / "state.pt", FOLDER / "releases"
CLIENTS = {"unit": "client", "adjacency": "zero_out"}
RECORDS = {"unit": "record", "adjacency": "replace_one"}


def averaging(perturbation=None):
    loop = FederatedAveraging(
        model=logistic(3, 2),
        scheme=FixedSize(3, 6),
        perturbation=perturbation
        or SparsifiedPerturbation(
            noise_multiplier=1.0, clip_norm=1.0, kept=4, dimension=8, cohort=3
        ),
        local_steps=1,
    )
    return loop, two_classes(12, 6), CLIENTS


def whole(kind):
    """Return averaging with integer noise."""
    made = {"noise_multiplier": 4.0, "clip_norm": 1.0, "dimension": 8, "cohort": 3, "bits": 10}
    return averaging(kind(**made))


def sampling():
    target = GaussianTarget(hessians=np.tile(np.eye(2), (4, 1, 1)), centres=np.eye(4)[:, :2])
    loop = LangevinSampling(
        target=GaussianPosterior(target=target, sensitivity=1.0),
        step_size=0.2,  # the same in all rounds: the plan names one kind of round
        local_steps=2,
        averaging="II",
        cohort=2,
        chains=3,
        draws=100,
    )
    return loop, None, RECORDS


def hamiltonian():
    target = GaussianTarget(hessians=np.tile(np.eye(2), (4, 1, 1)), centres=np.eye(4)[:, :2])
    loop = HamiltonianSampling(
        target=GaussianPosterior(target=target, sensitivity=1.0),
        step_size=0.2,
        leapfrog_steps=2,
        gradient_noise_multiplier=5.0,
        averaging="II",
        cohort=2,
        chains=3,
        draws=100,
    )
    return loop, None, RECORDS


def splitting():
    inputs = np.random.default_rng(0).normal(size=(3, 20, 2))
    data = AgentData(torch.from_numpy(inputs), torch.from_numpy(np.sign(inputs[..., 0])))
    loop = FederatedSplitting(
        loss=Logistic(regularisation=0.5, feature_bound=1.0),
        records=(20, 20, 20),
        dimension=2,
        solver=LocalSolver(method="noisy", noise_scale=0.5),
        # One round of 10^9 has no participant, which would look like repeated noise.
        participation=0.999,
    )
    return loop, data, RECORDS


LOOPS = {
    "averaging": averaging,
    "discrete gaussian": lambda: whole(DistributedDiscreteGaussian),
    "skellam": lambda: whole(Skellam),
    "sampling": sampling,
    "hamiltonian": hamiltonian,
    "splitting": splitting,
}
LOOP, DATA, FACTS = LOOPS[NAME]()


SIZE = 32
"""Bytes that are written of a release: a digest of what it moved."""
RELEASED = ("parameters", "positions", "models")


def observe(state):
    """Note one release, on disk before anything else happens."""
    (name,) = (name for name in RELEASED if hasattr(state, name))
    content = getattr(state, name).double().numpy().tobytes()
    file = os.open(RELEASES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, hashlib.sha256(content).digest())
    os.fsync(file)
    os.close(file)


def digests():
    """Return a digest of every release so far."""
    seen = RELEASES.read_bytes() if RELEASES.exists() else b""
    return [seen[at : at + SIZE] for at in range(0, len(seen), SIZE)]


def victim():
    torch.set_num_threads(1)
    ledger = Ledger.open(LEDGER, resume=True)
    train(LOOP, DATA, rounds=10**9, ledger=ledger, checkpoint=CHECKPOINT, on_release=observe)


def wait_for_a_checkpoint():
    """On a busy machine a quarter of a second may not be enough for a single round."""
    end = time.monotonic() + 200.0
    while not CHECKPOINT.exists() and time.monotonic() < end:
        time.sleep(0.01)


def main():
    chance = random.Random(SEED)
    LOOP.step(LOOP.init(), DATA)  # what a process does once only is done before it is forked
    plan = LOOP.round_mechanism * 10**6
    Ledger.create(LEDGER, **FACTS, claim=(8.0, 1e-3), budget_rule="none", plan=plan).release()
    for number in range(KILLS):
        child = os.fork()
        if child == 0:
            try:
                victim()
            finally:
                os._exit(7)
        time.sleep(chance.uniform(0.0, 0.25))
        if number == KILLS - 1:
            wait_for_a_checkpoint()
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the run ended by itself"
        report = {
            "spent": Ledger.open(LEDGER).spent_rounds,
            "releases": len(digests()),
            "different": len(set(digests())),
            "checkpoint": rounds(),
        }
        print(json.dumps(report), flush=True)
    print(json.dumps(ended()), flush=True)


def ended():
    """Resume to the end; return the audit's verdict on the counted epsilon."""
    ledger, seen = Ledger.open(LEDGER, resume=True), len(digests())
    done = train(LOOP, DATA, rounds=rounds() + 1, ledger=ledger, checkpoint=CHECKPOINT)
    ledger.close()
    run = LOOP.round_mechanism * Ledger.open(LEDGER).spent_rounds
    asked = {"adjacency": FACTS["adjacency"], "observer": "server"}
    claim = 1.01 * fp.epsilon(run, delta=1e-3, **asked).upper, 1e-3
    found = fp.audit(LEDGER, claim=claim, **asked)
    spent = found.rounds - seen - 1
    told = {"audit": str(found.verdict), "why": found.reasons}
    return {**told, "round": done.state.round, "more": spent}


def rounds():
    """Return how far the checkpoint is."""
    return load(CHECKPOINT, LOOP.init()).round if CHECKPOINT.exists() else 0


main()
