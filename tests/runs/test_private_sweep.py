"""Tests of ``fedprivacy.runs.private_sweep``."""

import itertools
import json
import math
from dataclasses import replace

import pytest

from tests.runs.test_sweep import best_of, sweep

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms.selection import LAWS
from fedprivacy.runs.private_sweep import SECRET, PrivateSweep
from fedprivacy.runs.sweep import Sweep

pytestmark = pytest.mark.usefixtures("narrowest")


def test_a_private_sweep_s_folder_shows_its_own_answer_alone(tmp_path):
    """20 rounds of 60 clients were shown as done, with the answer for 2 rounds of 40."""
    pytest.importorskip("torch")
    from fedprivacy.mechanisms.selection import LAWS
    from fedprivacy.runs.private_sweep import PrivateSweep
    from fedprivacy.runs.sweep import Sweep

    def selection(**changed):
        more = {name: changed.pop(name) for name in ("dropout_rate",) if name in changed}
        sweep = Sweep(
            method="dp-fedavg",
            grid={"noise_multiplier": [4.0, 5.0]},
            folder=tmp_path / "a",
            delta=1e-3,
            epsilon=8.0,
            source={"rounds": 1, "cohort": 10, "clients": 20} | changed,
            **more,
        )
        return PrivateSweep(sweep=sweep, trials=LAWS["logarithmic"](1.5), public_test=True)

    first = selection().run()
    assert selection().run().setting == first.setting
    for changed in ({"rounds": 2}, {"clients": 30}, {"dropout_rate": 0.1}):
        with pytest.raises(ParameterError, match="same private sweep"):
            selection(**changed).run()


ASK = {"delta": 1e-3, "adjacency": "zero_out"}


def test_a_private_sweep_shows_one_trial_and_counts_the_selection(tmp_path, monkeypatch):
    one = best_of(tmp_path / "s", monkeypatch, 4)
    found = one.run()
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == [
        "chosen.json",
        "model.pt",
        "selection.ledger",
    ]
    ledger = fp.Ledger.open(tmp_path / "s" / "selection.ledger")
    assert ledger.closed and ledger.claim == (20.0, 1e-3)
    assert [each.mechanism for each in ledger.rounds] == [one.mechanism]
    assert found.audit.bound.upper == fp.epsilon(one.mechanism, **ASK).upper
    dearest = max(fp.epsilon(one.sweep.plan(label), **ASK).upper for label in one.sweep.labels)
    assert found.audit.bound.upper > dearest
    assert found.setting in one.sweep.labels and 0.0 < found.accuracy <= 1.0
    assert one.run().setting == found.setting, "what was shown stays the answer"


@pytest.mark.parametrize(
    "accuracies",
    [[0.3, 0.7, 0.7, 0.1], [math.nan, 0.7, math.nan, 0.1], [math.nan, 0.7, 0.1, 0.7]],
)
def test_the_best_of_the_trials_is_shown(tmp_path, monkeypatch, accuracies):
    scores = iter(accuracies)
    trained = []

    def once(self, label, repeat, on_round):
        trained.append((label, repeat))
        return {"accuracy": next(scores)}

    monkeypatch.setattr(Sweep, "once", once)
    # Artificial trials leave no ledgers.
    monkeypatch.setattr(PrivateSweep, "_check_priced", lambda self, ledger: None)
    monkeypatch.setattr(
        Sweep, "model", lambda self, label, repeat, path: path.write_text(f"{repeat}")
    )
    found = best_of(tmp_path / "s", monkeypatch, 4).run()
    label, repeat = trained[1]
    assert (found.setting, found.accuracy) == (label, 0.7), "of equal ones the first"
    assert found.model.read_text() == str(repeat)
    assert len(set(map(str, trained))) == 4, "no trial is another's repeat"


def test_trials_without_an_accuracy_are_the_worst_in_whatever_order(tmp_path, monkeypatch):
    monkeypatch.setattr(PrivateSweep, "_check_priced", lambda self, ledger: None)
    monkeypatch.setattr(Sweep, "model", lambda self, label, repeat, path: path.write_text("x"))
    for number, order in enumerate(itertools.permutations([math.nan, 0.2, 0.9, math.nan])):
        scores = iter(order)
        monkeypatch.setattr(Sweep, "once", lambda *a, scores=scores: {"accuracy": next(scores)})
        one = best_of(tmp_path / str(number), monkeypatch, 4)
        assert one._best(None)[2] == 0.9
    monkeypatch.setattr(Sweep, "once", lambda *a: {"accuracy": math.nan})
    found = best_of(tmp_path / "none", monkeypatch, 2).run()
    assert found.setting is not None and math.isnan(found.accuracy)
    assert "NaN" not in (tmp_path / "none" / "chosen.json").read_text()


def _but_of_one_round(intent, stop):
    """Stop where the whole selection is about to be counted, in a ledger that is there."""

    def instead(self, mechanism, **facts):
        return (stop if isinstance(mechanism, fp.PrivateSelection) else intent)(
            self, mechanism, **facts
        )

    return instead


@pytest.mark.parametrize(
    "when",
    ["model", "intent", *(pytest.param(x, marks=pytest.mark.slow) for x in ("trial", "told"))],
)
def test_a_private_sweep_that_was_stopped_goes_on_with_its_trials(tmp_path, monkeypatch, when):
    class Stopped(Exception):
        pass

    begun, drawn = best_of(tmp_path / "s", monkeypatch), []
    with monkeypatch.context() as patch:

        def stop(*_, **__):
            raise Stopped

        told = PrivateSweep._write
        if when == "model":
            patch.setattr(Sweep, "model", stop)
        if when == "intent":
            patch.setattr(fp.Ledger, "intent", _but_of_one_round(fp.Ledger.intent, stop))
        if when == "told":
            patch.setattr(PrivateSweep, "_write", lambda *a: (told(*a), stop()))
        with pytest.raises(Stopped):
            begun.run(stop if when == "trial" else None)
    if when == "trial":
        drawn = json.loads((tmp_path / "s" / SECRET / "trials.json").read_text())["settings"]
    secret = tmp_path / "s" / SECRET
    assert secret.stat().st_mode & 0o77 == 0
    names = {each.name for each in secret.iterdir()}
    assert names == {"trials.json", "trials", "lock"}, (
        "who may list the folder sees no size of it either"
    )
    found = best_of(tmp_path / "s", monkeypatch).run()
    ledger = fp.Ledger.open(tmp_path / "s" / "selection.ledger")
    assert ledger.closed and len(ledger.rounds) == 1, "one selection is counted once"
    assert found.audit.bound.upper == fp.epsilon(begun.mechanism, **ASK).upper
    assert not drawn or found.setting in [begun.sweep.labels[i] for i in drawn]


def test_two_private_sweeps_do_not_share_a_folder(tmp_path, monkeypatch):
    """Each drew its own trials, and two models were shown for the cost of one."""
    one, said = best_of(tmp_path / "s", monkeypatch, 1), []

    def meanwhile():
        with pytest.raises(fp.errors.LedgerError, match=r"sweep of .* is running") as refused:
            best_of(tmp_path / "s", monkeypatch, 1).run()
        said.append(refused)

    shown = one.run(meanwhile)
    again = best_of(tmp_path / "s", monkeypatch, 1).run()
    # Audited at another time.
    assert len(said) == 1 and replace(again, audit=shown.audit) == shown


def test_what_a_private_sweep_refuses(tmp_path, monkeypatch):
    whole = sweep(tmp_path / "s", grid={"noise_multiplier": [2.0], "rounds": [1]})
    law = LAWS["geometric"](2.0)
    with pytest.raises(ParameterError, match="public_test must be True"):
        PrivateSweep(sweep=whole, trials=law)
    with pytest.raises(ParameterError, match="seeds must be 1"):
        PrivateSweep(sweep=sweep(tmp_path / "s", seeds=2), trials=law, public_test=True)
    tight = sweep(tmp_path / "s", grid={"noise_multiplier": [0.5], "rounds": [1]}, epsilon=0.1)
    with pytest.raises(ParameterError, match="epsilon must be enough for the selection"):
        PrivateSweep(sweep=tight, trials=law, public_test=True).check()
    server = sweep(tmp_path / "s", grid={"noise_multiplier": [9.0]}, observer="server")
    with pytest.raises(
        fp.errors.UnsupportedCombination, match="' sees the participants and results of all"
    ):
        PrivateSweep(sweep=server, trials=law, public_test=True).check()
    best_of(tmp_path / "t", monkeypatch, 1).run()
    with pytest.raises(ParameterError, match="folder must be that of the same private sweep"):
        best_of(tmp_path / "t", monkeypatch, 1, adjacency="replace_one").run()
    elsewhere = best_of(tmp_path / "t", monkeypatch, 1)
    renamed = replace(elsewhere.sweep.job.data, name="other digits")
    elsewhere = replace(elsewhere, sweep=replace(elsewhere.sweep, source={"data": renamed}))
    with pytest.raises(ParameterError, match="folder must be that of the same private sweep"):
        elsewhere.run()
    (tmp_path / "t" / "chosen.json").unlink()
    with pytest.raises(ParameterError, match="folder must contain the trials"):
        best_of(tmp_path / "t", monkeypatch, 1).run()
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_a_trial_is_calibrated_so_that_the_selection_keeps_the_budget(tmp_path):
    whole = sweep(tmp_path / "s", grid={"rounds": [2]}, epsilon=6.0)
    one = PrivateSweep(sweep=whole, trials=LAWS["logarithmic"](5.0), public_test=True)
    assert 0.98 * 6.0 <= fp.epsilon(one.mechanism, **ASK).upper <= 6.0
    assert 1.0 < one.trial_epsilon < 6.0
