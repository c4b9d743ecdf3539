"""A grid of settings: each is trained, has a ledger, and is compared."""

import csv
import shutil

import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.errors import ParameterError
from fedprivacy.runs.private_sweep import PrivateSweep
from fedprivacy.runs.sweep import Sweep, _name

pytestmark = pytest.mark.usefixtures("narrowest")

ASK = {"delta": 1e-3, "adjacency": "zero_out"}


def sweep(folder, method="dp-fedavg", grid=None, **options):
    facts = {"epsilon": 8.0, "seed": 1, **ASK, **options}
    return Sweep(method=method, grid=grid or {"cohort": [20, 50]}, folder=folder, **facts)


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


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


def test_a_sweep_of_less_than_one_run_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="seeds must be an integer of at least 1"):
        sweep(tmp_path / "runs", seeds=0)


def best_of(folder, monkeypatch, number=2, **options):
    """A private sweep whose draw is known; what it costs is that of the stated law."""
    trials = fp.PoissonTrials(2.0)
    monkeypatch.setattr(fp.PoissonTrials, "draw", lambda self, generator: number)
    grid = {"noise_multiplier": [2.0, 4.0], "rounds": [1]}
    whole = sweep(folder, grid=grid, epsilon=20.0, **options)
    return PrivateSweep(sweep=whole, trials=trials, public_test=True)


def test_no_trial_shows_nothing(tmp_path, monkeypatch):
    found = best_of(tmp_path / "s", monkeypatch, 0).run()
    assert (found.setting, found.model) == (None, None)
    assert found.audit.bound.upper > 0.0, "that there was none tells something"


def test_a_trial_with_other_noise_than_is_accounted_is_not_shown(tmp_path, monkeypatch):
    one = best_of(tmp_path / "s", monkeypatch, 1)
    other = fp.Gaussian(noise_multiplier=9.0, unit="client") * 1
    monkeypatch.setattr(fp.Ledger, "plan", property(lambda self: other))
    with pytest.raises(ParameterError, match="contain trials with the accounted noise"):
        one.run()
    assert not (tmp_path / "s" / "model.pt").exists()


def test_a_name_of_files_has_no_character_that_a_system_refuses():
    found = _name({"strategy": 'a/b:c*"?<d>|\\e', "rounds": 3}, 1)
    assert found == "strategy=a_b_c____d___e,rounds=3,repeat=2"
