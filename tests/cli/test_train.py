"""Tests of ``fedprivacy.cli.train``."""

import json
from pathlib import Path

import pytest

from tests.cli.test_explain import refused
from tests.cli.test_program import answer
from tests.contract.test_command_line import command

pytest.importorskip("torch")

from fedprivacy.cli import train as training
from tests.commands import EVERY


def test_train_leaves_a_ledger_and_never_overwrites_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--method", "dp-fedavg", "--rounds", "2", "--json"]
    code, out, err = answer(capsys, *arguments)
    assert code == 0, err
    found = json.loads(out)
    assert found["audit"]["verdict"] == "HOLDS" and found["audit"]["rounds"] == 2
    content = (tmp_path / "dp-fedavg.ledger").read_bytes()
    code, _, err = answer(capsys, *arguments)
    assert code == 2 and "exists already" in err.strip().splitlines()[-1]
    # The message comes before data are read, so it does not need any.
    code, _, err = answer(capsys, *arguments, "--data", "nowhere.npz")
    assert code == 2 and "exists already" in err.strip().splitlines()[-1]
    assert (tmp_path / "dp-fedavg.ledger").read_bytes() == content


def test_a_seeded_run_says_that_it_is_not_private(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, out, _ = answer(capsys, "train", "--rounds", "1", "--seed", "7", "--json")
    recorded = json.loads(out)["audit"]["recorded"]
    assert recorded["seed policy"] == "reproducible: not private"


@pytest.mark.skipif(
    Path("/usr/share/datasets/fashion-mnist").exists(), reason="Debian's package is installed"
)
def test_fashion_mnist_that_is_not_there_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = answer(capsys, "train", "--data", "fashion-mnist", "--data-dir", str(tmp_path))
    assert code == 2
    assert "dataset-fashion-mnist" in err and "Traceback" not in err


def test_a_run_that_is_not_private_leaves_no_ledger(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = refused(capsys, "train", "--method", "fedavg", "--ledger", "a.ledger", "--rounds", "1")
    assert "--ledger must be left out, since fedavg is not private, got 'a.ledger'" in told
    assert list(tmp_path.iterdir()) == []


def test_what_trains_is_said_by_the_same_options_everywhere():
    """Each command that trains takes all of the source's options."""
    for name in ("train", "demo", "sweep"):
        assert set(training.SOURCE) <= {each.name for each in EVERY[name].params}


@pytest.mark.parametrize("kept", [True, False])
def test_a_stopped_run_says_whether_it_continues(kept, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def stopped(self, **files):
        if files["checkpoint"] is not None:
            files["checkpoint"].write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr("fedprivacy.runs.experiment.Experiment.run", stopped)
    words = ["--checkpoint", "c.pt"] if kept else []
    code, out, err = command(capsys, "train", "--method", "fedavg", "--rounds", "1", *words)
    assert (code, out) == (130, "") and err.endswith("fedprivacy: stopped\n")
    told = "the same command continues from c.pt"
    assert (told if kept else "without --checkpoint a stopped run cannot continue") in err
