"""The real Ray engine: rounds equal our loop's, false answers do little, kills lose no round."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.common import ROOT

pytest.importorskip("flwr", reason="pip install -e '.[flower,train,test]' elsewhere")
torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.integrations.flower.saved import Saved  # noqa: E402
from fedprivacy.integrations.flower.wire import clipped_update  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402
from tests.contract import flower_ray as rayed  # noqa: E402
from tests.integrations.flower import apps as apps  # noqa: E402

KILLS = int(os.environ.get("FLOWER_KILLS", "3"))
ROUNDS_A_LIFE = 2
EXAMPLE = ROOT / "examples" / "flower"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def engine(folder, job, *more):
    """Start a job of ``flower_ray`` in a separate process group, with its Ray workers."""
    command = [sys.executable, "-m", "tests.contract.flower_ray", job, str(folder), *map(str, more)]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def finished(folder, job, seconds=900):
    """Run a job to its end."""
    assert engine(folder, job).wait(seconds) == 0, (folder / "log").read_text()[-3000:]


def notes(folder):
    """Return what every node's client left behind, by the node's id."""
    return {
        int(note.stem.removeprefix("node-")): json.loads(note.read_text())
        for note in folder.glob("node-*.json")
    }


@pytest.mark.timeout(1200)
def test_it_equals_our_own_loop_on_two_workers(tmp_path):
    finished(tmp_path, "equal")
    told = notes(tmp_path)
    nodes = json.loads((tmp_path / "nodes.json").read_text())
    # A client's number is its node's place; its records are those of the node's partition.
    clients = [apps.data().clients[told[node]["partition"]] for node in nodes]
    data = replace(apps.data(), clients=tuple(clients))
    for name, scheme in rayed.SCHEMES.items():
        own, there = tmp_path / f"{name}.jsonl", tmp_path / name / "run.jsonl"
        ours = apps.by_our_loop(own, scheme, rayed.EQUAL_ROUNDS, data)
        found = np.load(tmp_path / name / "model.npy")
        np.testing.assert_allclose(found, ours.state.parameters.numpy(), rtol=0, atol=2e-7)
        report = json.loads((tmp_path / name / "told.json").read_text())
        assert report["rounds"] == [[one.cohort, one.arrived, 0] for one in ours.history]
        spent = fp.account(there, delta=1e-3)
        assert spent.upper == fp.account(own, delta=1e-3).upper
        assert report["epsilon"] == pytest.approx(spent.upper, rel=1e-3)
    for name, (kind, named) in apps.KINDS.items():
        grid = apps.HereGrid(apps.client_app())
        here = rayed.stepped(kind, named, tmp_path / f"here-{name}", grid)
        # Adam divides by what may be small.
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), here, rtol=0, atol=1e-5)
    # Ray's table of its state has both workers, and both trained clients.
    actors = json.loads((tmp_path / "actors.json").read_text())
    assert len(actors) == 2 and {one["worker"] for one in told.values()} == set(actors)
    assert len({one["process"] for one in told.values()}) == 2


NOTING = """
import os
from pathlib import Path

import ray


def noting(message, context, call_next):
    actor, node = ray.get_runtime_context().get_actor_id(), context.node_id
    Path({folder!r}, f"{{node}}-{{os.getpid()}}").write_text(actor)
    return call_next(message, context)


app = ClientApp(mods=[noting, private_mod])
"""
"""Put in the place of the example's app: it notes which actor of Ray trained a node."""


def left_running(folder):
    """Return the processes whose command names a folder: Flower leaves its local server behind."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text()
        except OSError:
            continue
        found += [int(process.name)] if str(folder) in words else []
    return found


@pytest.mark.timeout(1800)
def test_the_example_with_sixty_clients(tmp_path):
    own, out, told, home = (tmp_path / name for name in ("app", "out", "notes", "flwr"))
    shutil.copytree(EXAMPLE, own)
    out.mkdir()
    told.mkdir()
    client = own / "private_app" / "client_app.py"
    plain = "app = ClientApp(mods=[private_mod])\n"
    assert plain in client.read_text()
    client.write_text(client.read_text().replace(plain, NOTING.format(folder=str(told))))
    words = ["flwr", "run", ".", "--stream", "--run-config", f"folder='{out}' clients=60 rounds=2"]
    cores = "client-resources-num-cpus=1 init-args-num-cpus=2"
    words += ["--federation-config", f"num-supernodes=60 {cores}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    named = {"PATH": path, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    try:
        done = subprocess.run(
            words, cwd=own, env={**os.environ, **named}, capture_output=True, text=True
        )
    finally:
        for process in left_running(home):
            os.kill(process, signal.SIGTERM)
    assert "30 of 30 updates are in the sum" in done.stdout, done.stdout[-3000:] + done.stderr
    nodes, processes = zip(*(note.name.split("-") for note in told.iterdir()), strict=True)
    assert len({note.read_text() for note in told.iterdir()}) == len(set(processes)) == 2
    # Two cohorts of 30 of 60 are the same in less than one run of 10^17.
    assert len(set(nodes)) > 30
    ledger = Ledger.open(out / "run.jsonl")
    assert ledger.closed and len(ledger.rounds) == 2
    assert fp.audit(out / "run.jsonl").verdict == "HOLDS"


def honest_update(start, partition):
    """Return what a client that follows the rules adds to the sum, shape (d,)."""
    model = apps.module()
    # Copied: parameters are views of the vector, and are trained in place.
    torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), model.parameters())
    apps.descended(model, partition)
    after = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    return clipped_update({"all": start}, {"all": after}, clip_norm=0.05).astype(np.float64)


@pytest.mark.timeout(1200)
def test_liars_are_counted_and_move_the_model_by_no_more_than_the_norm(tmp_path):
    finished(tmp_path, "hostile")
    rounds = json.loads((tmp_path / "told.json").read_text())
    everyone, silent, refused = apps.CLIENTS, 2, 5
    # No other client is left out; the engine itself drops an answer in another's name.
    arrived = everyone - silent - refused
    assert rounds == [
        [everyone, everyone, 1, False],
        # In addition to the refused ones, the answer that came twice.
        [everyone, arrived, refused + 1, False],
        # The answer to the round before, which came too late, is no answer to this one.
        [everyone, everyone, 1, False],
    ]
    models = np.load(tmp_path / "models.npy")
    assert np.isfinite(models).all()
    for start, after, liars in ((0, 1, set()), (1, 2, rayed.LIES), (2, 3, set())):
        told_truth = [p for p in range(everyone) if p not in liars]
        total = sum(honest_update(models[start], p) for p in told_truth)
        moved = models[after].astype(np.float64) - models[start]
        off = np.linalg.norm(moved + total / everyone)
        # One of the liars is in the sum, clipped to the norm.
        room = 0.05 / everyone if liars else 0.0
        assert room * 0.999 <= off <= room + 1e-6


def begun(folder):
    ledger = folder / "run.jsonl"
    return len(Ledger.open(ledger).rounds) if ledger.exists() else 0


def verdict(folder):
    """Return the audit of a claim just above what all rounds that were begun cost.

    It audits a copy that is closed here, since a ledger without an end may have lost rounds.
    """
    copy = folder / "copy.jsonl"
    shutil.copy(folder / "run.jsonl", copy)
    if not (ledger := Ledger.open(copy)).closed:
        ledger = Ledger.open(copy, resume=True)
        ledger.close()
    claim = (fp.account(copy, delta=1e-3).upper + 0.01, 1e-3)
    return fp.audit(copy, claim=claim).verdict


@pytest.mark.timeout(7200)
def test_killed_and_resumed_it_audits(tmp_path):
    counted, chance = 0, random.Random(3)
    for _ in range(KILLS):
        life = engine(tmp_path, "lasting", 10**6)
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
        assert verdict(tmp_path) == "HOLDS"
    behind = Saved(tmp_path / "model.npz", found).read()[1]
    # At most one round a life was released after its checkpoint, or never confirmed.
    assert counted - KILLS <= behind <= counted
    last = engine(tmp_path, "lasting", behind + 2)
    assert last.wait(300) == 0, (tmp_path / "log").read_text()[-2000:]
    final = Ledger.open(tmp_path / "run.jsonl")
    assert final.closed and len(final.rounds) == counted + 2
    assert verdict(tmp_path) == "HOLDS"
