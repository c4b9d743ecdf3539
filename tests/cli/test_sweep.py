"""Tests of ``fedprivacy.cli.sweep``."""

import csv
import json

import pytest

from tests.runs.test_sweep import command

pytest.importorskip("torch")

import fedprivacy as fp

ASK = {"delta": 1e-3, "adjacency": "zero_out"}


def test_one_command_answers_which_setting_is_best_within_a_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "--method", "fed-smp-rand-k", "--delta", "1e-3", "--seed", "1", "--json"]
    axes = ["--set", "noise_multiplier=0.5,8", "--set", "rounds=2,6", "--set", "kept_fraction=0.2"]
    told = [*words, *axes, "--epsilon", "4", "--output", "front.png"]
    code, out, problem = command(capsys, *told)
    assert code == 0, problem
    assert "client level, zero_out (chosen" in problem
    found = json.loads(out)
    assert len(found["settings"]) == 4 and (tmp_path / "front.png").stat().st_size > 5000
    with open(found["runs"], newline="") as file:
        rows = list(csv.DictReader(file))
    kept, rounds = 130, {"2": 2, "6": 6}
    for row in rows:
        ledger = fp.Ledger.open(tmp_path / "sweep" / row["ledger"])
        named = dict(part.split("=") for part in row["ledger"].removesuffix(".ledger").split(","))
        assert ledger.closed and ledger.spent_rounds == rounds[named["rounds"]]
        one = ledger.rounds[0].mechanism
        assert one.inner.noise_multiplier == float(named["noise_multiplier"])
        assert one.inner.kept == kept and one.scheme == fp.Poisson(0.25)
        assert float(row["MB"]) == pytest.approx(4e-6 * kept * rounds[named["rounds"]] / 4)
        claim = ledger.claim[0]
        assert claim >= fp.account(ledger.path, **ASK).upper > 0.99 * claim
    within = [s for s in found["settings"] if s["epsilon"]["upper"] <= 4.0]
    assert 0 < len(within) < 4
    before = {p.name: p.read_bytes() for p in (tmp_path / "sweep").iterdir()}
    code, again, problem = command(capsys, *told)
    assert code == 0 and json.loads(again) == found, problem
    assert {p.name: p.read_bytes() for p in (tmp_path / "sweep").iterdir()} == before
    words = ["--delta", "1e-3", "--adjacency", "zero_out", "--maximise", "accuracy", "--json"]
    code, out, _ = command(capsys, "pareto", found["runs"], *words)
    compared = json.loads(out)["settings"]
    assert code == 0
    assert [s["epsilon"] for s in compared] == [s["epsilon"] for s in found["settings"]]
    assert [s["costs"] for s in compared] == [s["costs"] for s in found["settings"]]
