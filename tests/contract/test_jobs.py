"""Every method end to end as the command line runs it: budget, calibration, ledger, audit."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.cli import main

WITHOUT_N = ["--adjacency", "add_remove", "--delta", "1e-3"]
DECLARED = ["--set", "sampling_probability=0.25", "--set", "expected_cohort=100"]
SEEDED = "CANNOT BE CERTIFIED"
"""A run with a seed, whatever its numbers."""
SCORES = {
    "fedavg": ["accuracy", "nll"],
    "fedavg-top-k": ["accuracy", "nll"],
    "fedavg-rand-k": ["accuracy", "nll"],
    "dp-fedavg": ["accuracy", "nll"],
    "dp-ftrl": ["accuracy", "nll"],
    "scaffold": ["accuracy", "nll"],
    "dp-scaffold": ["accuracy", "nll"],
    "fed-smp-top-k": ["accuracy", "nll"],
    "fed-smp-rand-k": ["accuracy", "nll"],
    "fa-ld": ["accuracy", "brier", "ece", "nll"],
    "fa-hmc": ["accuracy", "brier", "ece", "nll"],
    "fed-plt": ["accuracy"],
    "fed-plt-noiseless": ["accuracy"],
}


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


MODULE = """
from torch import nn


def network():
    return nn.Sequential(nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10))
"""


def test_fed_plt_trains_a_module_of_one_s_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)
    words = ["train", "--method", "fed-plt", "--model", "mine.py:network", "--rounds", "2"]
    words += ["--delta", "1e-4", "--set", "clip_norm=0.5", "--ledger", "plt.ledger", "--json"]
    code, out, problem = command(capsys, *words)
    assert code == 0, problem
    found = json.loads(out)
    assert found["audit"]["verdict"] == "HOLDS" and fp.audit("plt.ledger").verdict == "HOLDS"
    assert found["settings"]["clip_norm"] == 0.5 and found["settings"]["step_size"] == 0.1
    assert "feature_bound" not in found["public"] and found["public"]["classes"] == 10
    code, _, problem = command(capsys, *words, "--set", "feature_bound=1", "--ledger", "x")
    assert code == 2 and "for a module, which does not scale inputs" in problem


def test_the_command_line_trains_a_sampler(tmp_path, capsys):
    path = tmp_path / "chain.ledger"
    words = ["train", "--method", "fa-ld", "--rounds", "2", "--set", "local_steps=3"]
    more = ["--seed", "3", "--delta", "1e-5", "--ledger", str(path), "--json"]
    code, out, problem = command(capsys, *words, *more)
    assert code == 0, problem
    found = json.loads(out)
    assert found["knob"] == "step_size" and found["level"] > 0
    assert list(found["scores"]) == SCORES["fa-ld"] and found["audit"]["verdict"] == SEEDED
    kinds = fp.Ledger.open(path).rounds[0].mechanism.mechanisms
    assert {kind.steps for kind in kinds} == {3}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--method", "fed-plt", "--set", "speed=3"],
            "setting must be one of 'noise_scale', 'rounds'",
        ),
        (["--method", "fed-plt", "--set", "penalty"], "--set must be NAME=VALUE"),
        (["--method", "fed-plt", "--set", "penalty=-1"], "penalty must be"),
        (["--method", "fa-ld", "--set", "step_size=1"], "it is the calibrated setting of FA-LD"),
        (["--method", "fa-ld", "--level", "0"], "step_size must be"),
        (
            ["--method", "fa-hmc", "--kept", "0.5"],
            "kept_fraction must be left out, since fa-hmc does not",
        ),
        (["--method", "fa-ld", "--adjacency", "add_remove"], "replace_one"),
        (["--method", "fa-ld", "--rounds", "0"], "rounds must be"),
    ],
)
def test_bad_settings_are_told_in_one_line(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, problem = command(capsys, "train", *words)
    assert code == 2 and told in problem.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "fedavg"], "not private: no noise, no ledger, no epsilon"),
        (["--method", "dp-fedavg", "--delta", "0.01"], "delta = 0.01 is not below 1 / 400"),
        (["--method", "fa-ld", "--delta", "0.001"], "delta = 0.001 is not below 1 / 1337"),
        (["--method", "dp-fedavg", "--seed", "1"], "seed was fixed, so the run is not"),
    ],
)
def test_the_command_line_says_what_a_reader_must_know(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, problem = command(capsys, "train", "--rounds", "1", *words)
    assert code == 0, problem
    assert told in out
    assert ("clients 400" in out or "records 1337" in out) and "rounds 1" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "fedavg", "--ledger", "x.ledger"], "--ledger must be left out"),
        (["--method", "fedavg", "--clip-norm", "1"], "clip_norm must be left out"),
        (
            ["--method", "fedavg", "--epsilon", "1"],
            "--epsilon must be left out, since fedavg adds no",
        ),
        (["--method", "fedavg", "--epsilon", "8"], "use --method dp-fedavg"),
        (
            ["--method", "fedavg", "--delta", "1e-3"],
            "--delta must be left out, since fedavg adds no no",
        ),
        (
            ["--method", "fedavg", "--observer", "server"],
            "--observer must be left out, since fedavg",
        ),
        (["--method", "fedavg-top-k", "--adjacency", "zero_out"], "use --method fed-smp-top-k"),
        (["--method", "fedavg-rand-k", "--epsilon", "8"], "use --method fed-smp-rand-k"),
        (["--method", "fedavg", "--missing", "2"], "missing must be left out"),
        (["--method", "fedavg", "--level", "2"], "level must be left out"),
        (["--method", "dp-fedavg", "--kept", "0.1"], "kept_fraction must be left out"),
        (["--method", "fed-smp-rand-k", "--kept", "0"], "kept_fraction must"),
        (["--method", "fed-smp-rand-k", "--kept", "1.5"], "kept_fraction must be a probability"),
        (["--method", "dp-fedavg", "--set", "data=1"], "not be a setting with its own option"),
        (
            ["--method", "dp-fedavg", "--rounds", "1", "--set", "rounds=2"],
            "not be a setting with its own option",
        ),
        (["--method", "dp-fedavg", "--set", "self=2"], "setting must be one of"),
        (["--method", "dp-fedavg", "--set", "local_steps=1e30"], "local_steps must be at most"),
        (["--method", "dp-fedavg", "--set", "batch_size=2.5"], "batch_size must"),
        (["--method", "dp-fedavg", "--set", "learning_rate=1e300"], "learning_rate must be at"),
        (["--method", "dp-fedavg", "--set", "learning_rate=NaN"], "learning_rate must"),
        (["--method", "dp-fedavg", "--set", "cohort=401"], "cohort must be at most"),
        (["--method", "dp-fedavg", "--level", "0.1"], "cost epsilon ="),
        (
            ["--method", "dp-fedavg", "--data-dir", "nope"],
            "data_dir must be left out, since digits is",
        ),
        (["--method", "dp-fedavg", "--ledger", "no/x"], "ledger must be in an existing folder"),
        (
            ["--method", "dp-fedavg", "--checkpoint", "no/x"],
            "checkpoint must be in an existing folder",
        ),
        (["--method", "dp-fedavg", "--output", "no/x"], "output must be in an existing folder"),
        (
            ["--method", "dp-fedavg", "--output", "dp-fedavg.ledger"],
            "output must differ from ledger and checkpoint",
        ),
        (["--method", "dp-fedavg", *WITHOUT_N], "sampling_probability, expected_cohort must be"),
        (
            ["--method", "dp-fedavg", *WITHOUT_N, "--set", "sampling_probability=0.1"],
            "pass public numbers: --set sampling_probability=0.1 --set expected_cohort=40",
        ),
        (
            ["--method", "dp-fedavg", *WITHOUT_N, "--set", "expected_cohort=40"],
            "sampling_probability, expected_cohort must be given",
        ),
        (
            ["--method", "dp-fedavg", *WITHOUT_N, "--set", "strategy=2", "--set", "cohort=40"],
            "cohorts must not depend on the number of clients",
        ),
        (
            ["--method", "dp-fedavg", *WITHOUT_N, "--set", "strategy=1", "--set", "cohort=40"],
            "cohorts must not depend on the number of clients",
        ),
        (
            ["--method", "dp-fedavg", *WITHOUT_N[:2], *DECLARED],
            "delta must be given for add_remove, since n^-1.1 would reveal",
        ),
        (["--method", "dp-fedavg", *DECLARED, "--set", "cohort=3"], "cohort must be left out"),
        (["--method", "fedavg", "--set", "expected_cohort=3"], "expected_cohort must be left out"),
    ],
)
def test_what_a_method_does_not_use_or_cannot_be_is_refused(
    words, told, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code, _, problem = command(capsys, "train", *words)
    assert code == 2 and told in problem.splitlines()[-1], problem
    assert list(tmp_path.iterdir()) == []


def test_whole_numbers_may_be_written_with_a_point(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["local_steps=2.0", "batch_size=2.0", "rounds=1.0", "learning_rate=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    code, _, problem = command(
        capsys, "train", "--method", "dp-fedavg", *words, "--checkpoint", "run.pt"
    )
    assert code == 0 and fp.Ledger.open("dp-fedavg.ledger").closed, problem
