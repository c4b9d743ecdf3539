"""The command line as a whole: help, JSON that keeps its schema, run files, bad input."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from fedprivacy.cli import main
from fedprivacy.cli.group import COMMANDS, cli
from tests.commands import EVERY

RUN = ["--noise-multiplier", "2", "--sampling-probability", "0.1", "--rounds", "10"]
ADD = ["--adjacency", "add_remove"]


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_the_bare_command_prints_its_help_as_help(capsys):
    code, out, err = command(capsys)
    assert (code, err) == (0, "") and out.startswith("Usage: fedprivacy")
    told = {name: said for commands in COMMANDS.values() for name, said in commands.items()}
    assert told.keys() == EVERY.keys() == cli.commands.keys()
    assert len(told) == sum(map(len, COMMANDS.values()))
    for name, (module, text) in told.items():
        home = "fedprivacy.vectors.command" if name == "vectors" else f"fedprivacy.cli.{module}"
        assert EVERY[name].callback.__module__ == home
        assert EVERY[name].get_short_help_str(200) == text
    assert "Exit codes: 0 success; 2 invalid input" in out and "\x1b" not in out
    for name in told:
        assert command(capsys, name, "--help")[1].startswith(f"Usage: fedprivacy {name}")


def test_every_option_stands_in_a_named_group():
    """An option without a panel would be listed with --help."""
    alone = [
        (name, each.opts)
        for name, command in EVERY.items()
        for each in command.params
        if each.opts[0].startswith("-") and not getattr(each, "panel", None)
    ]
    assert alone == []


def test_help_fits_a_terminal_of_80_columns(capsys, monkeypatch):
    """No list of choices is cut, and an example's lines stay whole, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, known in EVERY.items():
        _, out, _ = command(capsys, name, "--help")
        lines = {line.strip() for line in out.splitlines()}
        assert "…" not in out and max(map(len, out.splitlines())) <= 80, name
        said = [line.strip() for line in str(known.help).splitlines()]
        asked = [line for line in said if line.startswith((f"fedprivacy {name} ", "--"))]
        assert set(asked) <= lines, name
        assert asked or name in ("demo", "run", "schema", "report"), f"{name} has no example"


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
