"""Two-sided FedAvg and SCAFFOLD: a run that stops continues as if it had not."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.reproductions.fedavg_two_sided import runs
from fedprivacy.reproductions.fedavg_two_sided.tables import TwoSidedRun, label, table_2
from fedprivacy.training import federate

RUN = TwoSidedRun(method="fedavg", model="logistic", workers=10, classes=10, epochs=1)


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.rand(600, 784, generator=generator), torch.arange(600) % 10
    pairs = (images[:500], labels[:500]), (images[500:], labels[500:])
    return federate("small", *pairs, clients=100)


class Stopped(Exception):
    pass


def stop(number):
    if number == 2:
        raise Stopped


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_run_continues_from_its_file(data, tmp_path, monkeypatch, method):
    monkeypatch.setattr(runs, "SAVED", -1.0)
    cell, kept = replace(RUN, method=method), tmp_path / "run.pt"
    whole = runs.run(cell, data, 1.0, 4)
    with pytest.raises(Stopped):
        runs.run(cell, data, 1.0, 4, kept=kept, on_round=stop)
    again = runs.run(cell, data, 1.0, 4, kept=kept)
    for name in ("accuracy", "test_loss", "upload_bytes", "rounds_run"):
        assert again[name] == whole[name]


def test_progress_of_another_run_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SAVED", -1.0)
    kept = tmp_path / "run.pt"
    runs.run(RUN, data, 1.0, 1, kept=kept)
    with pytest.raises(fp.ParameterError, match="progress must be of this cell"):
        runs.run(replace(RUN, seed=2), data, 1.0, 2, kept=kept)
    kept.write_bytes(b"no archive")
    with pytest.raises(fp.ParameterError, match="progress must be readable"):
        runs.run(RUN, data, 1.0, 2, kept=kept)


def test_names_of_runs_differ():
    assert label(RUN) == "fedavg-logistic-10-classes-10-workers-1-epochs"
    every = list(table_2())
    assert len({label(run) for run in every}) == len(every) == 24
