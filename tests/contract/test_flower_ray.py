"""kill -9 of a Flower server on the real Ray engine: nothing spent is lost."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("ray", reason="pip install -e '.[flower,test]' elsewhere")
pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.ledger import Ledger

KILLS = int(os.environ.get("FLOWER_KILLS", "3"))
ROUNDS_A_LIFE = 4


def begun(folder):
    ledger = folder / "run.jsonl"
    return len(Ledger.open(ledger).rounds) if ledger.exists() else 0


def server(folder, rounds):
    """Start a server in a process group of its own, with its Ray workers."""
    command = [sys.executable, "-m", "tests.contract.flower_ray", "lasting", str(folder), str(rounds)]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("default")
def test_killed_and_resumed_it_audits(tmp_path):
    counted, chance = 0, random.Random(3)
    for _ in range(KILLS):
        life = server(tmp_path, 10**6)
        end = time.monotonic() + 300
        while begun(tmp_path) < counted + ROUNDS_A_LIFE and time.monotonic() < end:
            assert life.poll() is None, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.05)
        # Anywhere in a round.
        time.sleep(chance.random() * 0.5)
        before = begun(tmp_path)
        os.killpg(life.pid, signal.SIGKILL)
        life.wait()
        found = Ledger.open(tmp_path / "run.jsonl")
        assert len(found.rounds) >= before >= counted + ROUNDS_A_LIFE
        # Whatever was begun counts, confirmed or not.
        assert all(one.spent for one in found.rounds)
        counted = len(found.rounds)
    from fedprivacy.integrations.flower.saved import Saved

    behind = Saved(tmp_path / "model.npz", found.nonce).read()[1]
    # At most one round a life was released after its checkpoint, or never confirmed.
    assert counted - KILLS <= behind <= counted
    last = server(tmp_path, behind + 2)
    assert last.wait(300) == 0, (tmp_path / "log").read_text()[-2000:]
    final = Ledger.open(tmp_path / "run.jsonl")
    assert final.closed and len(final.rounds) == counted + 2
    spent = fp.account(tmp_path / "run.jsonl", delta=1e-3)
    claim = (spent.upper + 0.01, 1e-3)
    assert fp.audit(tmp_path / "run.jsonl", claim=claim).verdict == "HOLDS"
