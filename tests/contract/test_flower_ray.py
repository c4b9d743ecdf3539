"""Flower's real Ray engine: our loop's numbers, clients that lie, and the example of the docs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="pip install -e '.[flower,test]' elsewhere")
pytest.importorskip("ray")
pytest.importorskip("torch")

import numpy as np

import fedprivacy as fp

from . import flower_apps as apps

ROOT = Path(__file__).parent.parent.parent


def ran(kind, folder):
    """Run an app in a process of its own; return the server's rounds, first and last model."""
    command = [sys.executable, "-m", "tests.contract.flower_ray", kind, str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=580, cwd=ROOT)
    assert told.returncode == 0, told.stderr[-3000:]
    rounds = json.loads((folder / "rounds.json").read_text())
    return rounds, *(np.load(folder / f"{name}.npy") for name in ("before", "after"))


@pytest.mark.timeout(600)
def test_on_ray_it_equals_our_own_loop_and_uses_more_than_one_worker(tmp_path):
    rounds, _, after = ran("equal", tmp_path)
    ours = apps.by_our_loop(tmp_path / "own.jsonl", fp.Everyone(), rounds=2)
    np.testing.assert_allclose(after, ours.state.parameters.numpy(), rtol=0, atol=2e-7)
    assert [one["arrived"] for one in rounds] == [one.arrived for one in ours.history] == [12, 12]
    there = fp.account(tmp_path / "run.jsonl", delta=1e-3)
    assert there.upper == fp.account(tmp_path / "own.jsonl", delta=1e-3).upper
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 24
    assert len(set(workers)) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_on_ray_clients_that_lie_raise_or_hang_are_counted(tmp_path):
    rounds, before, after = ran("hostile", tmp_path)
    # NaN, a wrong shape and an error are refused; who hangs is silent, and late is too late.
    assert rounds == [
        {"cohort": 12, "arrived": 8, "refused": 3, "aborted": False},
        {"cohort": 12, "arrived": 9, "refused": 3, "aborted": False},
    ]
    moved = np.linalg.norm(after - before)
    assert 0 < moved <= (8 + 9) * 0.05 / 12 * 1.001
    assert fp.audit(tmp_path / "run.jsonl", claim=(1e30, 0.5)).verdict == "HOLDS"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_docs_example_with_fifty_clients(tmp_path):
    pytest.importorskip("fedprivacy.training").fashion_mnist(clients=50)
    environment = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    config = f"folder='{tmp_path}' clients=50 rounds=2 timeout=600"
    told = subprocess.run(
        ["flwr", "run", ".", "--stream", "--run-config", config,
         "--federation-config", "num-supernodes=50"],
        cwd=ROOT / "examples" / "flower", env=environment, capture_output=True, text=True,
        timeout=1700,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
    log = told.stdout + told.stderr
    assert "25 of 50 nodes were drawn" in log and "configure_train: Sampled" not in log
    assert re.search(r"round 2: epsilon \d", log)
    audited = fp.audit(tmp_path / "run.jsonl", claim=(8.0, 1e-3))
    assert audited.verdict == "HOLDS"
