"""The benchmark runs, and the independent checks of the peers' answers refute what they should."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_one_setting(tmp_path):
    pytest.importorskip("dp_accounting")
    command = [sys.executable, str(BENCHMARKS / "accounting.py"), "--smoke"]
    written = tmp_path / "numbers.json"
    done = subprocess.run([*command, "--json", str(written)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(written.read_text())["sampled"]
    ours, theirs = row["answers"]
    assert ours["way"] == "fedprivacy pld" and theirs["way"] == "dp-accounting RDP"
    assert ours["low"] <= ours["high"] <= theirs["high"]
    assert ours["high"] - ours["low"] <= 1e-3
    assert "x ours" in done.stdout


@pytest.fixture
def checks(monkeypatch):
    pytest.importorskip("dp_accounting")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import checks

    return checks


@pytest.mark.parametrize("name", ["replaced_gaussian", "replaced_laplace", "responses"])
def test_closed_forms_refute(checks, name):
    assert getattr(checks, name)().refuted


def test_moments_refute(checks):
    found = checks.strict_pld(0.5, 8.0, 1_000, 1e-9, 3, 30)
    assert found.refuted and found.at_least < 1.001e-9


def test_moments_agree_with_a_closed_form(checks):
    """q = 1: N(1, 4^2) against N(0, 4^2), nine times, is 3/4-GDP."""
    pair = checks.SampledGaussian(1.0, 4.0, 9, 3)
    found, exact = pair.least_delta(2.0, 20.0, 80), checks.gaussian_delta(2.0, 0.75)
    assert (1 - 1e-6) * exact < found <= exact


def test_tilted_limit_is_a_lower_one(checks):
    found = checks.tilted_delta(1.0, 4.0, 9, 2.0, 3, 20_000)
    exact = checks.gaussian_delta(2.0, 0.75)
    assert 0.8 * exact < found <= exact


def test_smoothly_below_on_the_peers_side(checks):
    """A claim that is true is not refuted."""
    exact = checks.gaussian_delta(2.0, 0.75)
    assert checks.event_delta(1.0, 4.0, 9, 2.0, 20_000) <= exact


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS / "papers"))
    import drawn

    return drawn


def test_a_drawn_cell_that_differs_is_told(drawn, capsys):
    assert drawn.redrawn({"I": {"one": lambda: True}, "II": {}})
    assert not drawn.redrawn({"I": {"one": lambda: True}, "II": {"two": lambda: False}})
    assert "II, two: DIFFERENT" in capsys.readouterr().out


def test_the_same_cells_are_drawn_again(drawn, monkeypatch, capsys):
    cells = {str(number): lambda: True for number in range(1000)}
    found = []
    for number in (7, 7, 8):
        monkeypatch.setenv("REPRO_DRAW", str(number))
        assert drawn.redrawn({"I": cells})
        found.append(capsys.readouterr().out.partition(":")[0])
    assert found[0] == found[1] != found[2]


def test_a_cell_that_takes_too_long_is_neither(drawn, capsys):
    def endless():
        while True:
            pass

    assert drawn.redrawn({"I": {"long": endless}}, seconds=0.05)
    assert "neither confirmed nor refuted" in capsys.readouterr().out


def test_nearness_goes_through_whole_results(drawn):
    kept = {"a": [1.0, {"b": 2.0}], "c": None}
    assert drawn.near({"a": [1.0 + 1e-9, {"b": 2.0}], "c": None}, kept)
    assert not drawn.near({"a": [1.0, {"b": 2.001}], "c": None}, kept)
    assert not drawn.near({"a": [1.0], "c": None}, kept)
    assert not drawn.near({"a": [1.0, {"b": 2.0}]}, kept)
