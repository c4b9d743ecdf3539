"""Tests of ``fedprivacy.runs.methods.base``."""

import re

import pytest

import fedprivacy as fp
from fedprivacy.runs.jobs import job
from tests.contract.test_command_line import command
from tests.contract.test_jobs import SCORES

pytest.importorskip("torch")

from fedprivacy.runs.methods import DECLARED, METHODS


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_help_lists_every_setting_of_a_method(capsys, name):
    for method in METHODS.values():
        # --help ends the parsing, wherever it is.
        told = command(capsys, name, "--help", "--method", method.name)[1]
        assert set(re.findall(r"^    (\w+)(?: \(.*\))?: ", told, re.M)) == set(
            method.settings.known()
        )
        out = " ".join(told.split())
        for setting in method.settings.known().values():
            symbol = f" ({setting.symbol})" if setting.symbol else ""
            assert f"{setting.name}{symbol}: {setting.help.split(',')[0]}"[:40] in out
    told = command(capsys, name, "--help", "--method=nothing")[1]
    assert f"fedprivacy {name} --method NAME --help" in " ".join(told.split())


def test_every_setting_is_declared_once():
    assert {k for m in METHODS.values() for k in m.settings.known()} == {
        name for kind in DECLARED for name in kind.known()
    }


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_its_scores_and_its_knob(method):
    task = job(method, rounds=2)
    loop = task.loop(None if task.knob is None else 0.01, seed=0)
    assert list(task.scores(loop, loop.init())) == SCORES[method]
    assert (task.knob is None) != METHODS[method].private
    if task.knob is not None:
        bounds = [
            fp.epsilon(task.run(level), delta=1e-5, adjacency=task.adjacency).upper
            for level in (0.5, 1.0)
        ]
        assert bounds[0] != bounds[1]
