"""Tests of ``fedprivacy.runs.methods.dp_ftrl``."""

import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.errors import ParameterError
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job


def test_the_method_keeps_its_budget(tmp_path):
    task = job("dp-ftrl", rounds=4, bands=2, cooldown=2, server_momentum=0.5)
    assert task.settings["separation"] == 4
    assert isinstance(task.factor, factors.Banded)
    path = tmp_path / "run.ledger"
    done = Experiment(job=task, epsilon=4.0, delta=1e-3, observer="server").run(ledger_path=path)
    assert done.audit.verdict == "HOLDS"
    assert 3.9 < fp.account(path, delta=1e-3).upper <= 4.0
    assert fp.Ledger.open(path).plan.participation == fp.MinimumSeparation(4)


def test_a_resumed_method_goes_on(tmp_path):
    task = job("dp-ftrl", rounds=3)
    path, checkpoint = tmp_path / "run.ledger", tmp_path / "state"
    whole = Experiment(job=task, epsilon=4.0, delta=1e-3, seed=1)

    def stop(state, info):
        if state.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        whole.run(ledger_path=path, checkpoint=checkpoint, on_round=stop)
    whole.run(ledger_path=path, checkpoint=checkpoint)
    assert [one.mechanism.row for one in fp.Ledger.open(path).rounds] == [0, 1, 2]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"separation": 5}, "at most 4"),
        ({"bands": 5}, "at most the separation 4"),
        ({"strategy": "poisson"}, "or pass sampling_probability"),
        ({"cohort": 401}, "number of clients"),
        ({"sampling_probability": 0.1}, "state the number of rounds between two participations"),
        ({"server_momentum": 1.0}, "below 1"),
    ],
)
def test_bad_settings_of_the_method(changed, words):
    with pytest.raises(ParameterError, match=words):
        job("dp-ftrl", rounds=4, **changed)


def test_the_method_takes_blocks_and_a_kept_fraction(tmp_path):
    task = job("dp-ftrl", rounds=6, block=3, kept_fraction=0.25, buffers=1)
    assert isinstance(task.factor, factors.Restarted) and task.factor.every == 3
    noise = task.noise(1.0)
    assert noise.kept == task.settings["sent"] == round(0.25 * noise.dimension)
    path = tmp_path / "run.ledger"
    done = Experiment(job=task, epsilon=4.0, delta=1e-3, observer="server").run(ledger_path=path)
    assert done.audit.verdict == "HOLDS"
    masks = [one.done.mask for one in fp.Ledger.open(path).rounds]
    assert len(set(masks[:3])) == len(set(masks[3:])) == 1 and masks[0] != masks[3]
