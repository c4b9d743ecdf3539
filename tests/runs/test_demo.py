"""Tests of ``fedprivacy.runs.demo``."""

import json

import pytest

from fedprivacy.runs.demo import _folder
from tests.cli.test_program import answer


@pytest.mark.usefixtures("no_plots", "narrowest")
def test_the_demo_trains_audits_and_reports(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(capsys, "demo", "--rounds", "3", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (tmp_path / "demo-report.html").exists()
    assert set(found["runs"]) == {"fedavg", "dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k"}
    for method, row in found["runs"].items():
        if method != "fedavg":
            assert row["verdict"] == "HOLDS" and row["epsilon"][1] <= 8.0
    assert (
        found["runs"]["fed-smp-top-k"]["upload_bytes"] < found["runs"]["dp-fedavg"]["upload_bytes"]
    )
    # Where another demo would put its ledgers: earlier ones are never overwritten.
    assert _folder(tmp_path / "demo-report.html", None) != tmp_path / found["ledgers"]
    assert (tmp_path / found["ledgers"] / "dp-fedavg.ledger").exists()
