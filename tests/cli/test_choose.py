"""Tests of ``fedprivacy.cli.choose``."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.cli.choose import SYSTEMS
from fedprivacy.papers import choosing
from tests.cli.test_explain import refused
from tests.contract.test_command_line import command

ASK = ["choose", "--epsilon", "2", "--delta", "1e-5"]
FIXED = {"rounds": 5, "local_steps": 5, "temperature": 1.0, "correlation": 0.0}
FEW = [word for name, value in FIXED.items() for word in ("--set", f"{name}={value}")]


def test_it_is_the_function(capsys):
    assert tuple(choosing.SYSTEMS) == SYSTEMS
    code, out, err = command(capsys, *ASK, *FEW, "--set", "records=50", "--json")
    assert (code, err) == (0, "")
    problem = choosing.MeanProblem(records=50)
    found = fp.choose("fa-ld", epsilon=2.0, delta=1e-5, problem=problem, fixed=FIXED)
    assert json.loads(out) == json.loads(json.dumps(found.to_dict()))
    code, text, _ = command(capsys, *ASK, *FEW, "--set", "records=50")
    assert code == 0 and text == f"{found}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "round=1"], "setting must be one of 'clients', 'dimension'"),
        (["--set", "rounds=1,2"], "rounds must be one value"),
        (["--set", "records=0"], "records must be an integer of at least 1"),
        (["--method", "fed-plt", "--set", "penalty=-1"], "penalty must be"),
        (["--set", "cohort=3"], "fixed must be one of 'step_size'"),
    ],
)
def test_bad_numbers_are_refused(capsys, words, told):
    assert told in refused(capsys, *ASK, *words)
