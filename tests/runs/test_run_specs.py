"""Tests of ``fedprivacy.runs.run_specs``."""

import json

import pytest

from tests.common import ROOT
from tests.contract.test_command_line import command
from tests.runs.test_sweep import sweep

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.runs.pareto import in_words
from fedprivacy.runs.run_specs import SampledRun, runs_of_file
from tests.commands import EVERY


def test_what_describes_a_run_is_an_option_of_each_command_that_asks():
    wanted = set(SampledRun.known())
    for name in ("epsilon", "delta", "calibrate", "explain", "tradeoff", "pareto"):
        assert wanted <= {each.name for each in EVERY[name].params}


TRAIN = ["--rounds", "1", "--seed", "1"]
FILE = """\
command = "train"
method = "dp-fedavg"
epsilon = 8.0
delta = 1e-3
rounds = 1
seed = 3
ledger = "one.ledger"

[settings]
local_steps = 2
"""


def test_a_run_file_does_what_the_words_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(FILE)
    words = ["--method", "dp-fedavg", "--delta", "1e-3", *TRAIN[:2], "--seed", "3"]
    told = command(capsys, "train", *words, "--set", "local_steps=2", "--ledger", "two.ledger")
    code, out, err = command(capsys, "run", "run.toml", "--json")
    assert (code, told[0]) == (0, 0), err
    found = json.loads(out)
    assert found["settings"]["local_steps"] == 2 and found["ledger"] == "one.ledger"
    assert f"accuracy {found['scores']['accuracy']:.4g}" in told[1]
    asked = 'command = "pareto"\nnoise-multiplier = [1, 2]\ndelta = 1e-5\n'
    (tmp_path / "grid.toml").write_text(asked + 'adjacency = "zero_out"\nmaximise = ["noise"]\n')
    code, out, err = command(capsys, "run", "grid.toml")
    assert code == 0 and "noise_multiplier = 2.0" in out and "noise (more)" in out, err


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("local_steps = 2", "local_steps = -2", 10, "local_steps must be an integer"),
        ("local_steps = 2", "penalty = 2", 10, "penalty must be left out"),
        ('"dp-fedavg"', '"magic"', 2, "'magic' is not one of"),
        ("epsilon = 8.0", "epsi = 8.0", 3, "epsi must be one of"),
        ("delta = 1e-3", 'delta = "small"', 4, "'small' is not a valid float"),
        ('command = "train"', 'command = "fly"', 1, "command must be one of"),
        ('command = "train"', 'command = "run"', 1, "command must be one of"),
        ("rounds = 1", "rounds = ", 5, "Invalid value"),
        ("[settings]\nlocal_steps = 2", "settings = 3", 9, "settings must be a table"),
        ('ledger = "one', 'ledger = "no/one', 7, "ledger must be in an existing folder"),
    ],
)
def test_a_run_file_s_errors_point_at_the_line(tmp_path, monkeypatch, capsys, old, new, line, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(FILE.replace(old, new))
    code, _, err = command(capsys, "run", "run.toml")
    assert code == 2 and f"run.toml:{line}: " in err and told in err, err


def test_a_run_file_s_error_finds_an_option_with_a_hyphen(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('command = "epsilon"\nnoise-multiplier = [1, 2]\n')
    code, _, err = command(capsys, "run", "run.toml")
    assert code == 2 and "run.toml:2: Invalid value for '--noise-multiplier'" in err, err


def test_the_documented_run_file_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    (tmp_path / "run.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    code, out, err = command(capsys, "run", "run.toml", "--json")
    assert code == 0, err
    assert json.loads(out)["settings"]["cohorts"] == "FixedSize(size=100, population=400)"


ASK = {"delta": 1e-3, "adjacency": "zero_out"}


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
