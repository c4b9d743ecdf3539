"""A grid of settings, each really trained and left with a ledger, then compared."""

import csv
import itertools
import json
import math
import shutil
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms.selection import LAWS
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job
from fedprivacy.runs.pareto import in_words
from fedprivacy.runs.private_sweep import SECRET, PrivateSweep
from fedprivacy.runs.run_specs import runs_of_file
from fedprivacy.runs.sweep import Sweep

ASK = {"delta": 1e-3, "adjacency": "zero_out"}


def sweep(folder, method="dp-fedavg", grid=None, **options):
    facts = {"epsilon": 8.0, "seed": 1, **ASK, **options}
    return Sweep(method=method, grid=grid or {"cohort": [20, 50]}, folder=folder, **facts)


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_one_command_answers_which_setting_is_best_within_a_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "--method", "fed-smp-rand-k", "--delta", "1e-3", "--seed", "1", "--json"]
    axes = ["--set", "noise_multiplier=0.5,8", "--set", "rounds=2,6", "--set", "kept_fraction=0.2"]
    told = [*words, *axes, "--epsilon", "4", "--output", "front.png"]
    code, out, problem = command(capsys, *told)
    assert code == 0, problem
    assert "client level, zero_out (chosen" in problem
    found = json.loads(out)
    assert len(found["settings"]) == 4 and (tmp_path / "front.png").stat().st_size > 5000
    with open(found["runs"], newline="") as file:
        rows = list(csv.DictReader(file))
    kept, rounds = 130, {"2": 2, "6": 6}
    for row in rows:
        ledger = fp.Ledger.open(tmp_path / "sweep" / row["ledger"])
        named = dict(part.split("=") for part in row["ledger"].removesuffix(".ledger").split(","))
        assert ledger.closed and ledger.spent_rounds == rounds[named["rounds"]]
        one = ledger.rounds[0].mechanism
        assert one.inner.noise_multiplier == float(named["noise_multiplier"])
        assert one.inner.kept == kept and one.scheme == fp.Poisson(0.25)
        assert float(row["MB"]) == pytest.approx(4e-6 * kept * rounds[named["rounds"]] / 4)
        claim = ledger.claim[0]
        assert claim >= fp.account(ledger.path, **ASK).upper > 0.99 * claim
    within = [s for s in found["settings"] if s["epsilon"]["upper"] <= 4.0]
    assert 0 < len(within) < 4
    before = {p.name: p.read_bytes() for p in (tmp_path / "sweep").iterdir()}
    code, again, problem = command(capsys, *told)
    assert code == 0 and json.loads(again) == found, problem
    assert {p.name: p.read_bytes() for p in (tmp_path / "sweep").iterdir()} == before
    words = ["--delta", "1e-3", "--adjacency", "zero_out", "--maximise", "accuracy", "--json"]
    code, out, _ = command(capsys, "pareto", found["runs"], *words)
    compared = json.loads(out)["settings"]
    assert code == 0
    assert [s["epsilon"] for s in compared] == [s["epsilon"] for s in found["settings"]]
    assert [s["costs"] for s in compared] == [s["costs"] for s in found["settings"]]


def test_the_noise_that_is_not_given_is_calibrated_for_every_setting(tmp_path):
    whole = sweep(tmp_path / "runs", grid={"cohort": [20, 100], "rounds": [2, 4]}, epsilon=3.0)
    trained = [(label, whole.train(label)) for label in whole.labels]
    noises = []
    for _, (path, costs) in trained:
        ledger = fp.Ledger.open(path)
        assert ledger.claim == (3.0, 1e-3)
        assert 2.9 < fp.account(path, **ASK).upper <= 3.0
        noises.append(ledger.rounds[0].mechanism.inner.noise_multiplier)
        assert 0.05 < costs["accuracy"] <= 1.0
    assert noises == sorted(noises) and len(set(noises)) == 4
    compared = whole.compare(trained)
    accuracies = [setting.cost("accuracy") for setting in compared.settings]
    sent = [setting.cost("MB") for setting in compared.settings]
    cheapest = min(sent)
    assert {s.cost("accuracy") for s in compared.front} >= {max(accuracies)}
    for setting in compared.settings:
        better = [
            other
            for other in compared.settings
            if other.cost("accuracy") > setting.cost("accuracy")
            and other.cost("MB") <= setting.cost("MB")
        ]
        assert not (better and setting.on_front), "calibrated alike: the epsilons are the same"
    assert compared.best("MB").cost("MB") == cheapest


def test_together_is_the_composition_of_all_runs(tmp_path):
    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [1.5, 3.0], "rounds": [3]})
    paths = [whole.train(label)[0] for label in whole.labels]
    truth = fp.epsilon(
        fp.Gaussian(noise_multiplier=1.5, unit="client").sampled(fp.Poisson(0.25)) * 3
        + fp.Gaussian(noise_multiplier=3.0, unit="client").sampled(fp.Poisson(0.25)) * 3,
        **ASK,
    )
    found = whole.together()
    assert found.upper == pytest.approx(truth.upper, rel=1e-3)
    assert found.upper > max(fp.account(path, **ASK).upper for path in paths)


def test_settings_of_a_seeded_sweep_do_not_share_their_noise(tmp_path):
    """With the same noise, 2 w1 - w2 of noise multipliers 1 and 2 would have none at all."""
    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [1.0, 2.0], "rounds": [1]})
    seeds = [whole.experiment(label).seed for label in whole.labels]
    assert seeds[0] != seeds[1] and None not in seeds
    assert [whole.experiment(label).seed for label in whole.labels] == seeds
    free = sweep(tmp_path / "free", seed=None, grid={"noise_multiplier": [1.0]})
    assert free.experiment(free.labels[0]).seed is None


def test_files_of_another_setting_or_sweep_are_not_taken(tmp_path):
    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [0.5, 8.0], "rounds": [2]})
    for label in whole.labels:
        whole.train(label)
    loud, quiet = (tmp_path / "runs" / f"noise_multiplier={z},rounds=2.pt" for z in ("0.5", "8.0"))
    kept = quiet.read_bytes()
    shutil.copy(loud, quiet)
    with pytest.raises(ParameterError, match="its rounds would not be counted"):
        whole.train(whole.labels[1])
    quiet.write_bytes(kept)
    shutil.copy(quiet.with_suffix(".ledger"), loud.with_suffix(".ledger"))
    shutil.copy(quiet, loud)
    with pytest.raises(ParameterError, match=r"noise_multiplier must be|must be as in the ledger"):
        whole.train(whole.labels[0])
    (tmp_path / "runs" / "sweep.json").unlink()
    with pytest.raises(ParameterError, match="contain only ledgers of this sweep"):
        whole.train(whole.labels[1])


def test_a_sweep_that_was_stopped_goes_on_and_counts_what_it_spent(tmp_path):
    class Stopped(Exception):
        pass

    def stop(state, info):
        if state.round == 2:
            raise Stopped

    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [2.0], "rounds": [4]})
    (label,) = whole.labels
    with pytest.raises(Stopped):
        whole.train(label, stop)
    path, costs = whole.train(label)
    ledger = fp.Ledger.open(path)
    assert ledger.closed and ledger.spent_rounds == 4
    other = sweep(tmp_path / "whole", grid={"noise_multiplier": [2.0], "rounds": [4]})
    assert other.train(label)[1] == costs


def test_a_round_run_twice_leaves_the_last_checkpoint_s_accuracy(tmp_path):
    """Killed between release and checkpoint: the budget then has room for a round less."""

    class Stopped(Exception):
        pass

    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [2.0], "rounds": [4]})
    (label,) = whole.labels
    saved = {}

    def stop(state, info):
        checkpoint = next((tmp_path / "runs").glob("*.pt"))
        if state.round == 2:
            saved["state"] = checkpoint.read_bytes()
        if state.round == 3:
            checkpoint.write_bytes(saved["state"])
            raise Stopped

    with pytest.raises(Stopped):
        whole.train(label, stop)
    path, costs = whole.train(label)
    assert fp.Ledger.open(path).spent_rounds == 4 and 0.05 < costs["accuracy"] <= 1.0
    assert whole.train(label) == (path, costs)
    assert fp.Ledger.open(path).spent_rounds == 4


def test_other_methods_have_their_own_knob(tmp_path):
    whole = sweep(
        tmp_path / "runs",
        method="fed-plt",
        grid={"noise_scale": [0.5, 1.0]},
        adjacency="replace_one",
        source={"rounds": 2},
    )
    trained = [(label, whole.train(label)) for label in whole.labels]
    found = fp.pareto(trained, maximise="accuracy", delta=1e-3, adjacency="replace_one")
    assert found.costs == ("accuracy",)
    assert found.settings[0].epsilon != found.settings[1].epsilon


def test_what_a_sweep_refuses(tmp_path):
    for options, told in [
        ({"method": "fedavg"}, "method must be one of 'dp-fedavg'"),
        ({"grid": {"cohort": []}}, "cohort must be a list of at least one value"),
        ({"grid": {"cohort": "20"}}, "cohort must be a list of at least one value"),
        ({"grid": {"cohort": [20, 20]}}, "cohort must contain every value at most once"),
        ({"grid": {"clients": [20, 30]}}, "clients must be the same for all settings"),
    ]:
        with pytest.raises(ParameterError, match=told):
            sweep(tmp_path / "none", **options)
    for options, told in [
        ({"epsilon": None}, "epsilon must be given, got None; or pass values of noise_multiplier"),
        ({"grid": {"speed": [1]}}, "setting must be one of"),
        ({"grid": {"cohort": [0]}}, "cohort must"),
        ({"grid": {"noise_multiplier": [-1.0]}}, "noise_multiplier must"),
    ]:
        one = sweep(tmp_path / "none", **options)
        with pytest.raises(ParameterError, match=told):
            one.train(one.labels[0])
    assert not (tmp_path / "none").exists()
    one = sweep(tmp_path / "runs", grid={"noise_multiplier": [2.0], "rounds": [1]})
    one.train(one.labels[0])
    other = sweep(tmp_path / "runs", grid=one.grid, source={"clients": 30})
    with pytest.raises(ParameterError, match="be that of a sweep with the same source"):
        other.train(one.labels[0])
    (tmp_path / "runs" / "sweep.json").write_text("{")
    with pytest.raises(ParameterError, match="must be JSON"):
        one.train(one.labels[0])


@pytest.mark.parametrize("output", ["nowhere/front.png", "front.nothing"])
def test_where_the_plot_goes_is_checked_before_anything_is_trained(
    tmp_path, monkeypatch, capsys, output
):
    monkeypatch.chdir(tmp_path)
    code, _, problem = command(capsys, "sweep", "--set", "cohort=20", "--output", output)
    assert code == 2 and "path must" in problem
    assert list(tmp_path.iterdir()) == []


def test_a_second_grid_in_the_same_folder_keeps_the_first_in_its_table(tmp_path):
    for cohort in (20, 50):
        whole = sweep(tmp_path / "runs", grid={"cohort": [cohort], "rounds": [1]})
        whole.write([(label, whole.train(label)) for label in whole.labels])
    with open(tmp_path / "runs" / "runs.csv", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [
            "cohort = 20, rounds = 1",
            "cohort = 50, rounds = 1",
        ]


def test_a_sweep_with_given_noise_goes_on_with_the_claims_of_its_ledgers(tmp_path, monkeypatch):
    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [4.0], "rounds": [1]})
    (label,) = whole.labels
    path, costs = whole.train(label)
    monkeypatch.setattr("fedprivacy.runs.sweep.SLACK", 1.01)
    assert whole.train(label) == (path, costs)


def test_repeats_are_compared_by_their_mean_and_all_count_together(tmp_path):
    whole = sweep(tmp_path / "runs", grid={"noise_multiplier": [2.0, 4.0], "rounds": [2]}, seeds=3)
    trained = [(label, whole.train(label)) for label in whole.labels]
    for label, (path, costs) in trained:
        names = sorted(each.name for each in path.parent.glob(f"{path.stem}*.ledger"))
        assert len(names) == len(costs["accuracy"]) == 3, label
        assert len(set(costs["accuracy"])) > 1, "every repeat has a seed of its own"
    found = whole.compare(trained)
    means = {in_words(label): sum(c["accuracy"]) / 3 for label, (_, c) in trained}
    assert found.best("accuracy").name == max(means, key=means.get)
    for setting in found.settings:
        assert setting.cost("accuracy") == pytest.approx(means[setting.name])
        assert setting.spread("accuracy") > 0.0 == setting.spread("MB")
    assert "±" in found.table() and found.plot(tmp_path / "bars.svg").stat().st_size > 5000
    sampled = [fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(0.25)) * 6 for z in (2.0, 4.0)]
    truth = fp.epsilon(sampled[0] + sampled[1], **ASK).upper
    assert whole.together().upper == pytest.approx(truth, rel=1e-3), "all six runs count"
    rows = runs_of_file(whole.write(trained), None, ())
    assert [float(v) for v in rows[0][1][1]["accuracy"]] == trained[0][1][1]["accuracy"]


def test_a_sweep_of_less_than_one_run_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="seeds must be an integer of at least 1"):
        sweep(tmp_path / "runs", seeds=0)


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


def best_of(folder, monkeypatch, number=2, **options):
    """A private sweep whose draw is known; what it costs is that of the stated law."""
    trials = fp.PoissonTrials(2.0)
    monkeypatch.setattr(fp.PoissonTrials, "draw", lambda self, generator: number)
    grid = {"noise_multiplier": [2.0, 4.0], "rounds": [1]}
    whole = sweep(folder, grid=grid, epsilon=20.0, **options)
    return PrivateSweep(sweep=whole, trials=trials, public_test=True)


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
    # What is made up here leaves no ledgers.
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
    assert names == {"trials.json", "trials"}, "who may list the folder sees no size of it either"
    found = best_of(tmp_path / "s", monkeypatch).run()
    ledger = fp.Ledger.open(tmp_path / "s" / "selection.ledger")
    assert ledger.closed and len(ledger.rounds) == 1, "one selection is counted once"
    assert found.audit.bound.upper == fp.epsilon(begun.mechanism, **ASK).upper
    assert not drawn or found.setting in [begun.sweep.labels[i] for i in drawn]


def test_no_trial_shows_nothing(tmp_path, monkeypatch):
    found = best_of(tmp_path / "s", monkeypatch, 0).run()
    assert (found.setting, found.model) == (None, None)
    assert found.audit.bound.upper > 0.0, "that there was none tells something"


def test_two_private_sweeps_do_not_share_a_folder(tmp_path, monkeypatch):
    """Each drew trials of its own, and two models were shown for the charge of one."""
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


def test_a_trial_with_other_noise_than_is_accounted_is_not_shown(tmp_path, monkeypatch):
    one = best_of(tmp_path / "s", monkeypatch, 1)
    other = fp.Gaussian(noise_multiplier=9.0, unit="client") * 1
    monkeypatch.setattr(fp.Ledger, "plan", property(lambda self: other))
    with pytest.raises(ParameterError, match="contain trials with the accounted noise"):
        one.run()
    assert not (tmp_path / "s" / "model.pt").exists()
