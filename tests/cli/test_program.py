"""The command line as a person uses it: real processes, real files."""

import json
import os
import subprocess
import sys

import pytest

from fedprivacy.cli import main
from fedprivacy.cli.answers import ANSWERS


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "fedprivacy.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=200,
    )


def answer(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def test_a_warning_is_a_line_and_changes_no_exit_code(tmp_path):
    pytest.importorskip("torch")
    found = run(
        *["train", "--method", "dp-fedavg", "--data", "digits", "--epsilon", "8", "--delta=1e-3"],
        *["--rounds", "1", "--set", "learning_rate=3e38", "--set", "local_steps=4"],
        *["--ledger", "run.jsonl", "--json"],
        cwd=tmp_path,
    )
    told = [
        line
        for line in found.stderr.splitlines()
        if "all updates of a round were refused, usually" in line
    ]
    assert found.returncode == 0 and json.loads(found.stdout)
    assert len(told) == 1 and told[0].startswith("fedprivacy: warning: all updates of a round")


RUN = ["--noise-multiplier", "0.8", "--sampling-probability", "0.01", "--rounds", "100"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["epsilon", "--noise-multiplier", "0", "--delta", "1e-5"], ["noise_multiplier", "0.0"]),
        (["epsilon", "--noise-multiplier", "nan", "--delta", "1e-5"], ["noise_multiplier", "NaN"]),
        (["epsilon", "--noise-multiplier", "1", "--delta", "1.5"], ["delta", "1.5"]),
        (["epsilon", "--delta", "1e-5"], ["noise_multiplier", "pass it"]),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--cohort", "3"],
            ["sampling_probability", "without cohort"],
        ),
        (["epsilon", *RUN[:2], "--delta", "1e-5", "--cohort", "3"], ["population", "together"]),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--largest-cohort", "3"],
            ["largest_cohort", "population", "without cohort"],
        ),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--largest-cohort", "0", "--population", "9"],
            ["largest", "0"],
        ),
        (
            ["epsilon", *RUN[:2], "--delta", "1e-5", "--cohort", "9", "--population", "5"],
            ["size", "9", "population = 5"],
        ),
        (
            ["epsilon", "--noise-multiplier", "1", "--sampling-probability", "2", "--delta", "0.1"],
            ["probability", "2.0"],
        ),
        (
            ["epsilon", *RUN, "--delta", "1e-5", "--observer", "server"],
            ["Poisson", "server", "membership", "these are covered"],
        ),
        (["epsilon", *RUN, "--delta", "1e-5", "--rounds", "0"], ["rounds", "0"]),
        (["delta", *RUN, "--epsilon", "-1"], ["epsilon", "-1.0"]),
        (
            ["calibrate", *RUN, "--epsilon", "1", "--delta", "1e-5"],
            ["--noise-multiplier", "left out"],
        ),
        (
            [
                *["calibrate", "--solve-for", "rounds", "--noise-multiplier", "0.5"],
                *["--epsilon", "0.1", "--delta", "1e-9"],
            ],
            ["epsilon = 0.1", "at 1"],
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, arguments, words):
    code, out, err = answer(capsys, *arguments, "--adjacency", "add_remove")
    assert code == 2 and out == ""
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["epsilon"], ["epsilon", *RUN, "--delta", "1e-5", "--adjacency", "sideways"]],
)
def test_usage_errors_are_one_line_and_code_2(capsys, arguments):
    code, _, err = answer(capsys, *arguments)
    assert code == 2 and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("command", sorted(name for name in ANSWERS if " " not in name))
def test_every_command_has_help_and_json(capsys, command):
    code, out, _ = answer(capsys, command, "--help")
    assert code == 0
    assert "--json" in out and len(out.splitlines()[2]) > 20
