"""Tests of ``fedprivacy.runs.methods.base``."""

import pytest

import fedprivacy as fp
from fedprivacy.runs.jobs import job
from tests.contract.test_command_line import command
from tests.contract.test_jobs import SCORES

pytest.importorskip("torch")

from fedprivacy.runs.methods import DECLARED, METHODS


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_help_lists_every_setting_of_every_method(capsys, name):
    out = " ".join(command(capsys, name, "--help")[1].split())
    for method in METHODS.values():
        for setting in method.settings.known().values():
            assert f"{setting.name}: {setting.help.split(',')[0]}"[:40] in out
    assert {k for m in METHODS.values() for k in m.settings.known()} == {
        name for kind in DECLARED for name in kind.known()
    }


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_its_scores_and_its_knob(method):
    task = job(method, rounds=2)
    loop = task.loop(None if task.knob is None else 0.01, seed=0)
    assert list(task.scores(loop, loop.init())) == SCORES[method]
    assert (task.knob is None) == method.startswith("fedavg")
    if task.knob is not None:
        bounds = [
            fp.epsilon(task.run(level), delta=1e-5, adjacency=task.adjacency).upper
            for level in (0.5, 1.0)
        ]
        assert bounds[0] != bounds[1]
