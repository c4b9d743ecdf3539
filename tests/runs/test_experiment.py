"""Tests of ``fedprivacy.runs.experiment``."""

import json
import math

import pytest
import torch

from fedprivacy.errors import LedgerError
from tests.contract.test_jobs import SCORES
from tests.contract.test_leaks import command

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.runs.experiment import Experiment, default_delta
from fedprivacy.runs.jobs import job

pytestmark = pytest.mark.usefixtures("narrowest")

ASK = {"delta": 1e-3, "adjacency": "zero_out"}


@pytest.mark.parametrize("seed", [3, None])
def test_simulated_dropouts_happen_and_seeded_ones_happen_again(tmp_path, seed):
    task = job("dp-fedavg", rounds=4, cohort=40)
    sent = []
    for name in ("a", "b"):
        facts = {"epsilon": 8.0, "seed": seed, "dropout_rate": 0.5, **ASK}
        done = Experiment(job=task, **facts).run(ledger_path=tmp_path / f"{name}.ledger")
        rounds = fp.Ledger.open(tmp_path / f"{name}.ledger").rounds
        drawn = sum(each.done.cohort for each in rounds)
        arrived = done.not_covered["upload_bytes"] / (4 * 650 * drawn)
        assert 0.3 < arrived < 0.7
        sent.append(done.not_covered["upload_bytes"])
    assert seed is None or sent[0] == sent[1]
    with pytest.raises(ParameterError, match="dropout_rate must be below 1"):
        Experiment(job=task, epsilon=8.0, dropout_rate=1.0, **ASK)


SEEDED = "CANNOT BE CERTIFIED"
"""A run with a seed, whatever its numbers."""
RECORD_LEVEL = ("fa-ld", "fa-hmc", "fed-plt")


@pytest.mark.parametrize("method", RECORD_LEVEL)
def test_a_record_level_method_keeps_its_budget_and_leaves_a_ledger(method, tmp_path):
    path = tmp_path / "run.ledger"
    task = job(method, rounds=3)
    record = Experiment(job=task, epsilon=2.0, delta=1e-5, seed=1).run(ledger_path=path)
    read = fp.Ledger.open(path)
    assert read.closed and read.spent_rounds == 3
    assert read.facts == (fp.Unit.RECORD, fp.Adjacency.REPLACE_ONE, fp.Observer.AGGREGATE)
    assert str(record.audit.verdict) == SEEDED and "fixed seed" in record.audit.reasons[0]
    again = fp.account(path, delta=1e-5)
    assert 1.9 < again.upper <= 2.0
    assert list(record.scores) == SCORES[method]
    assert all(math.isfinite(value) for value in record.scores.values())
    assert 0.1 < record.scores["accuracy"] <= 1.0


def test_a_fixed_level_over_the_budget_is_refused_before_anything_is_spent(tmp_path):
    task, path = job("fed-plt", rounds=5), tmp_path / "run.ledger"
    level = 0.5 * Experiment(job=task, epsilon=1.0, delta=1e-5).setting
    with pytest.raises(fp.errors.BudgetExhausted, match=r"5 rounds at noise_scale = .* cost"):
        Experiment(job=task, epsilon=1.0, delta=1e-5, level=level, seed=0).run(ledger_path=path)
    assert not path.exists()


def test_what_a_job_refuses():
    with pytest.raises(ParameterError, match="method must be one of"):
        job("fedsgd")
    with pytest.raises(ParameterError, match="data must be one of"):
        job("fa-ld", "imagenet")
    private = job("dp-fedavg")
    with pytest.raises(ParameterError, match="ledger_path must be given"):
        Experiment(job=private, epsilon=8.0, delta=1e-3, level=2.0).run()


def test_a_ledger_that_is_there_is_not_written_to(tmp_path):
    path = tmp_path / "run.ledger"
    experiment = Experiment(job=job("fed-plt", rounds=1), epsilon=1.0, delta=1e-5, seed=0)
    experiment.run(ledger_path=path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="exists already"):
        experiment.run(ledger_path=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("asked", "taken"), [(None, 1), (3, 3)])
def test_a_small_model_trains_on_one_thread_unless_told_otherwise(asked, taken, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before, used = torch.get_num_threads(), []
    torch.set_num_threads(4)
    try:
        task = Experiment(job=job("fedavg", rounds=2), epsilon=1.0, delta=1e-5, threads=asked)
        task.run(on_round=lambda state, info: used.append(torch.get_num_threads()))
        assert used == [taken] * 2 and torch.get_num_threads() == 4
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        task.run(on_round=lambda state, info: used.append(torch.get_num_threads()))
        assert used[2:] == [asked or 4] * 2, "the environment's word stands"
    finally:
        torch.set_num_threads(before)


def test_a_delta_that_nobody_gave_is_below_one_over_the_number_of_units(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for units in (1, 2, 3, 7, 10, 100, 1337, 6000, 10**6, 10**9):
        known = default_delta(units, "zero_out")
        assert 0.0 < known <= units**-1.1 and known < 1.0 / units
        assert known > 0.09 * units**-1.1
    printed = command(capsys, "train", "--method", "dp-fedavg", "--rounds", "1", "--json")
    first = printed.err.splitlines()[0]
    assert "delta = 0.0013 (chosen: n^-1.1 for 400 clients)" in first
    assert "zero_out (chosen: what client-level methods are accounted for)" in first
    assert json.loads(printed.out)["budget"] == {
        "epsilon": 8.0,
        "delta": 0.0013,
        "adjacency": "zero_out",
        "observer": "aggregate",
    }
    words = ["--rounds", "1", "--ledger", "b.ledger", "--delta", "1e-4", "--adjacency", "zero_out"]
    printed = command(capsys, "train", "--method", "dp-fedavg", *words)
    assert "chosen" not in printed.err and "delta = 0.0001," in printed.err.splitlines()[0]


PLACES = ["run.ledger.noise", "run.ledger.private", "run.ledger", "run.ledger.tmp"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["checkpoint", "output"])
def test_no_file_takes_the_place_of_a_private_one(tmp_path, name, place):
    """The noise's memory and the key are needed to resume, and must stay secret."""
    files = {"ledger": tmp_path / "run.ledger", "checkpoint": None, "output": None}
    experiment = Experiment(job=job("dp-ftrl", rounds=2), epsilon=8.0)
    with pytest.raises(ParameterError, match=f"{name} must (be|differ)"):
        experiment.check_places(**files | {name: tmp_path / place})
    files |= {"ledger": tmp_path / "a.pt.tmp", name: tmp_path / "a.pt"}
    with pytest.raises(ParameterError, match=f"{name} must (be|differ)"):
        experiment.check_places(**files)


def test_an_observer_of_the_last_release_gets_the_last_score_alone(tmp_path):
    task = job("fed-plt", rounds=3)
    facts = {"job": task, "epsilon": 1.0, "delta": 1e-5, "seed": 1}
    for observer, count in (("final", 1), ("aggregate", 3)):
        experiment = Experiment(**facts, observer=observer)
        record = experiment.run(ledger_path=tmp_path / f"{observer}.ledger")
        assert len(record.accuracy) == count and record.rounds[-1] == 3
