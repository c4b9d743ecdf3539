"""The command line as a whole: help, JSON that keeps its schema, run files, bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.cli.answers import ANSWERS, schema
from fedprivacy.cli.options import COMMANDS, cli
from fedprivacy.runs.explaining import halved_by, parts_of
from fedprivacy.runs.methods import DECLARED, METHODS, tables
from fedprivacy.runs.run_specs import SampledRun

RUNS = Path(__file__).parent.parent / "corpus" / "settings.csv"
"""A table of settings, one run a row."""
RUN = ["--noise-multiplier", "2", "--sampling-probability", "0.1", "--rounds", "10"]
ADD = ["--adjacency", "add_remove"]
ASK = {"delta": 1e-5, "adjacency": "add_remove", "observer": "aggregate"}
TRAIN = ["--rounds", "1", "--seed", "1"]
CALLS = {
    "epsilon": [*RUN, *ADD, "--delta", "1e-5"],
    "delta": [*RUN, *ADD, "--epsilon", "1"],
    "calibrate": [*RUN[2:], *ADD, "--epsilon", "1", "--delta", "1e-5"],
    "explain": [*RUN, *ADD, "--delta", "1e-5"],
    "tradeoff": [*RUN, *ADD, "--fpr", "0.01,0.1"],
    "pareto": [*RUN[:2], *ADD, "--delta", "1e-5", "--output", "front.png"],
    "audit": [*RUN, *ADD, "--sampling", "poisson", "--claim", "9,1e-5"],
    "audit --each": [str(RUNS), *ADD, "--sampling", "poisson", "--claim", "9,1e-5"],
    "report": [*RUN, *ADD, "--sampling", "poisson", "--claim", "9,1e-5"],
    "train": ["--method", "dp-fedavg", *TRAIN],
    "sweep": ["--set", "noise_multiplier=2", "--output", "sweep.png", *TRAIN],
    "sweep --private": [
        *["geometric", "--trials", "1", "--public-test", "--set", "noise_multiplier=2", *TRAIN],
    ],
    "demo": TRAIN,
    "verify": ["run.json"],
}


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_the_bare_command_prints_its_help_as_help(capsys):
    code, out, err = command(capsys)
    assert (code, err) == (0, "") and out.startswith("Usage: fedprivacy")
    told = [name for names in COMMANDS.values() for name in names]
    assert sorted(told) == sorted(cli.commands), "every command is in one group"
    assert "Exit codes: 0 done; 2 bad input" in out and "\x1b" not in out
    for name in told:
        assert command(capsys, name, "--help")[1].startswith(f"Usage: fedprivacy {name}")


def test_every_option_stands_in_a_named_group():
    """What has none would stand beside --help."""
    alone = [
        (name, each.opts)
        for name, command in cli.commands.items()
        for each in command.params
        if each.opts[0].startswith("-") and not getattr(each, "panel", None)
    ]
    assert alone == []


def test_help_fits_a_terminal_of_80_columns(capsys, monkeypatch):
    """No list of choices is cut, and an example's lines stay whole, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, known in cli.commands.items():
        _, out, _ = command(capsys, name, "--help")
        lines = {line.strip() for line in out.splitlines()}
        assert "…" not in out and max(map(len, out.splitlines())) <= 80, name
        said = [line.strip() for line in str(known.help).splitlines()]
        asked = [line for line in said if line.startswith((f"fedprivacy {name} ", "--"))]
        assert set(asked) <= lines, name
        assert asked or name in ("demo", "run", "schema", "report"), f"{name} has no example"


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_help_lists_every_setting_of_every_method(capsys, name):
    out = " ".join(command(capsys, name, "--help")[1].split())
    for method in METHODS.values():
        for setting in method.settings.known().values():
            assert f"{setting.name}: {setting.help.split(',')[0]}"[:40] in out
    assert {k for m in METHODS.values() for k in m.settings.known()} == {
        name for kind in DECLARED for name in kind.known()
    }


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "demo" else []) for n in ANSWERS]
)
def test_json_is_what_the_schema_says_and_nothing_else(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name == "verify":
        pytest.importorskip("flint")
        asked = ["--noise-multiplier", "2", *ADD, "--delta", "1e-5", "--certificate", "run.json"]
        assert command(capsys, "epsilon", *asked)[0] == 0
    code, out, err = command(capsys, *name.split(), *CALLS[name], "--json")
    assert code == 0, err
    data = json.loads(out)
    read = json.loads(msgspec.json.encode(msgspec.convert(data, ANSWERS[name], strict=True)))
    missing = {key for key in read if key not in data}
    assert {key: read[key] for key in data} == data, "no field that the schema does not name"
    assert all(read[key] is None for key in missing)


def test_every_command_that_prints_json_has_a_schema(capsys):
    takes = {n for n, c in cli.commands.items() if any("--json" in p.opts for p in c.params)}
    assert takes - {"run"} == {name.split()[0] for name in ANSWERS}
    for name in ANSWERS:
        code, out, _ = command(capsys, "schema", name)
        assert code == 0 and json.loads(out) == json.loads(json.dumps(schema(name)))
        assert json.loads(out)["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_a_shell(capsys, shell):
    code, out, _ = command(capsys, "completion", shell)
    assert code == 0 and "_FEDPRIVACY_COMPLETE" in out


def test_the_script_completes_a_command():
    words = {"COMP_WORDS": "fedprivacy expl", "COMP_CWORD": "1"}
    words |= {"_FEDPRIVACY_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "from fedprivacy.cli import main; main()"],
        env=os.environ | words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain,explain"]


@pytest.mark.parametrize(
    "words",
    [
        ["epsilon", "--delta", "2", *RUN, *ADD],
        ["delta", "--epsilon", "nan", *RUN, *ADD],
        ["calibrate", *RUN, *ADD, "--epsilon", "1", "--delta", "1e-5"],
        ["explain", "gone.ledger", "--delta", "1e-5", *ADD],
        ["explain", "gone.ledger", *RUN, "--delta", "1e-5", *ADD],
        ["tradeoff", *RUN, *ADD, "--fpr", "0.1,x"],
        ["tradeoff", *RUN, *ADD, "--plot", "a.nothing"],
        ["pareto", "--delta", "1e-5", *ADD],
        ["audit", "gone.json"],
        ["report", "gone.json"],
        ["train", "--dropout-rate", "1"],
        ["train", "--threads", "0", "--method", "fedavg"],
        ["train", "--set", "strategy=often"],
        ["sweep", "--seeds", "0"],
        ["sweep", "--set", "kept_fraction=0.1"],
        ["demo", "--rounds", "0"],
        ["run", "gone.toml"],
        ["schema", "run"],
        ["completion", "tcsh"],
        ["nonsense"],
        ["epsilon", "--nonsense"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_exit_code_2(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(capsys, *words)
    assert (code, out) == (2, "") and err.splitlines()[-1].startswith("fedprivacy: ")
    assert len(err.splitlines()) <= 2 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


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
        ("local_steps = 2", "local_steps = -2", 10, "local_steps must be a whole number"),
        ("local_steps = 2", "penalty = 2", 10, "penalty must be left out"),
        ('"dp-fedavg"', '"magic"', 2, "'magic' is not one of"),
        ("epsilon = 8.0", "epsi = 8.0", 3, "epsi must be one of"),
        ("delta = 1e-3", 'delta = "small"', 4, "'small' is not a valid float"),
        ('command = "train"', 'command = "fly"', 1, "command must be one of"),
        ('command = "train"', 'command = "run"', 1, "command must be one of"),
        ("rounds = 1", "rounds = ", 5, "Invalid value"),
        ("[settings]\nlocal_steps = 2", "settings = 3", 9, "settings must be a table"),
        ('ledger = "one', 'ledger = "no/one', 7, "ledger must be in a folder"),
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


def test_the_parts_of_a_run_have_shares_and_add_up_to_it():
    quiet = fp.Gaussian(noise_multiplier=8.0).sampled(fp.Poisson(0.1)) * 10
    loud = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.1)) * 10
    first, second = parts_of(quiet + loud, **ASK)
    assert first.share + second.share == pytest.approx(1.0) and second.share > 0.9
    assert first.without == second.alone == fp.epsilon(loud, **ASK).upper
    (alone,) = parts_of(loud, **ASK)
    assert (alone.share, alone.without) == (1.0, 0.0)


def test_what_halves_epsilon_halves_it():
    run = SampledRun(noise_multiplier=1.0, sampling_probability=0.05, rounds=200)
    whole = fp.epsilon(run.run(), **ASK).upper
    found = halved_by(run, None, **ASK)
    assert set(found) == {"noise_multiplier", "rounds", "sampling_probability"}
    for name, value in found.items():
        assert 0.49 * whole < fp.epsilon(run.changed({name: value}).run(), **ASK).upper
        assert fp.epsilon(run.changed({name: value}).run(), **ASK).upper <= 0.5 * whole


def test_explain_reads_a_ledger_with_all_its_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--method", "dp-fedavg", "--delta", "1e-3", *TRAIN, "--ledger", "a.ledger"]
    assert command(capsys, "train", *words)[0] == 0
    words = ["--delta", "1e-3", "--adjacency", "zero_out"]
    code, out, err = command(capsys, "explain", "a.ledger", *words)
    assert code == 0 and "100 %: 1 rounds of SampledMechanism" in out, err
    words = ["--method", "fed-plt", "--delta", "1e-3", *TRAIN, "--ledger", "b.ledger"]
    assert command(capsys, "train", *words)[0] == 0
    words = ["--delta", "1e-3", "--adjacency", "replace_one"]
    code, out, err = command(capsys, "explain", "b.ledger", *words)
    # Records of clients of other sizes are kinds of units, and the worst kind counts.
    assert code == 0 and "advantage (true minus false positives): at most" in out, err
    assert "not known" not in out and "at 1 % false positives: at most" in out


def test_the_documented_settings_are_the_methods_own():
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    between = page.split("<!-- fedprivacy.runs.methods.tables() -->\n")[1]
    assert between.split("\n<!-- end -->")[0] == tables()


def test_the_documented_run_file_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    (tmp_path / "run.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    code, out, err = command(capsys, "run", "run.toml", "--json")
    assert code == 0, err
    assert json.loads(out)["settings"]["cohorts"] == "FixedSize(size=100, population=400)"
