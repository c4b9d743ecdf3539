"""Parallel runs have the results of sequential runs, with every backend."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.runs.parallel import BACKENDS, each
from fedprivacy.runs.sweep import Sweep

pytestmark = pytest.mark.usefixtures("narrowest")

GRID = {"noise_multiplier": [1.0, 3.0], "rounds": [2]}


def sweep(folder, **changed):
    given = {"method": "dp-fedavg", "grid": GRID, "delta": 1e-3, "adjacency": "zero_out"}
    return Sweep(**{**given, "folder": folder, "seed": 1, **changed})


def models(folder):
    found = {path.name: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}
    return {name: content["parameters"] for name, content in found.items()}


def test_two_processes_give_what_one_gives(tmp_path):
    one, two = sweep(tmp_path / "one", seeds=2), sweep(tmp_path / "two", seeds=2)
    told = []
    alone = one.train_all(on_run=lambda *run: told.append(run))
    both = two.train_all(jobs=2, on_run=lambda *run: told.append(run))
    assert [costs for _, (_, costs) in alone] == [costs for _, (_, costs) in both]
    assert [label for label, _ in both] == two.labels
    before, after = models(tmp_path / "one"), models(tmp_path / "two")
    assert len(before) == 4 and before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(told) == 8
    assert two.together().upper == one.together().upper
    # As ``train`` returns them, from the files on disk.
    assert both[0][1] == two.train(two.labels[0])


def test_a_stopped_sweep_goes_on_in_several_processes(tmp_path):
    def stop(label, repeat):
        raise KeyboardInterrupt

    whole = sweep(tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        whole.train_all(on_run=stop)
    assert len(list((tmp_path / "runs").glob("*.ledger"))) == 1
    trained = whole.train_all(jobs=2)
    ledgers = [fp.Ledger.open(path) for _, (path, _) in trained]
    assert all(one.closed and one.spent_rounds == 2 for one in ledgers)
    assert trained == whole.train_all()


NEEDED = {"loky": "joblib", "dask": "distributed", "ray": "ray"}
KILLED = """
import sys
from pathlib import Path
from tests.runs.test_parallel import sweep
sweep(Path(sys.argv[1]), grid={"noise_multiplier": [1.0, 3.0], "rounds": [60]}).train_all(
    jobs=2, backend=sys.argv[2]
)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_a_killed_sweep_goes_on_and_ends_as_one_that_was_not(tmp_path, backend):
    pytest.importorskip(NEEDED[backend])
    folder, grid = tmp_path / "runs", {"noise_multiplier": [1.0, 3.0], "rounds": [60]}
    words = [sys.executable, "-c", KILLED, str(folder), backend]
    child = subprocess.Popen(words, start_new_session=True)
    # Both runs are under way, neither has ended.
    while child.poll() is None and len(list(folder.glob("*.pt"))) < 2:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    begun = [fp.Ledger.open(path) for path in folder.glob("*.ledger")]
    assert len(begun) == 2 and not all(one.closed for one in begun)
    trained = sweep(folder, grid=grid).train_all(jobs=2, backend=backend)
    for _, (path, _) in trained:
        ledger = fp.Ledger.open(path)
        # A round may have been released and not saved: it counts, and the budget has room for it.
        assert ledger.closed and 59 <= ledger.spent_rounds <= 61
        assert fp.audit(path).verdict != "FAILS"


def test_places_are_kept_whatever_ends_first():
    ended = []
    calls = [partial(divmod, number, 3) for number in range(5)]
    assert each(calls, jobs=2, done=ended.append) == [divmod(n, 3) for n in range(5)]
    assert sorted(ended) == list(range(5))
    assert each(calls, backend="sequential", jobs=4) == each(calls)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_s_backend_runs_them_or_is_told_to_be_missing(backend):
    calls = [partial(pow, 2, number) for number in range(3)]
    try:
        __import__(NEEDED[backend])
    except ImportError:
        with pytest.raises(ParameterError, match=f"installed, got '{backend}'.*pip install"):
            each(calls, jobs=2, backend=backend)
        return
    if backend == "dask":
        from distributed import Client

        # Without a client a cluster is made of this machine, with one that one is used.
        assert each(calls, jobs=2, backend="dask") == [1, 2, 4]
        own = {"n_workers": 1, "processes": False, "dashboard_address": None}
        with Client(threads_per_worker=1, **own):
            assert each(calls, jobs=2, backend="dask") == [1, 2, 4]
        with (
            Client(threads_per_worker=2, **own),
            pytest.raises(ParameterError, match="dask worker must have one"),
        ):
            each(calls, jobs=2, backend="dask")
        return
    assert each(calls, jobs=2, backend="ray") == [1, 2, 4]


def test_what_is_refused():
    for given, told in [
        ({"backend": "threads"}, "not be threads, which share torch's randomness"),
        ({"backend": "mpi"}, f"backend must be one of '{BACKENDS[0]}'"),
        ({"jobs": 0}, "jobs must be"),
    ]:
        with pytest.raises(ParameterError, match=told):
            each([], **given)
