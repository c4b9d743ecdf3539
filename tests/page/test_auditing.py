"""Tests of ``fedprivacy.page.auditing``."""

import json

import pytest
import yaml

import fedprivacy as fp
from fedprivacy.page import auditing
from tests.common import ROOT

CORPUS = ROOT / "tests/corpus"
OPACUS = CORPUS / "opacus/accountant_summary.json"
ANSWERS = {
    "sampling": "poisson",
    "adjacency": "add_remove",
    "epsilon": "8",
    "delta": "1e-5",
}


def ledger(path):
    one = fp.Gaussian(noise_multiplier=2.0, unit="client")
    record = fp.Ledger.create(path, unit="client", adjacency="zero_out", claim=(8.0, 1e-5))
    for _ in range(3):
        number = record.intent(one, clip_norm=1.0, noise_std=2.0)
        record.done(number, cohort=10, arrived=10, refused=0, noise_std=2.0)
    record.close()
    record.release()
    return path


def messages(*paths, **fields):
    return list(auditing.answer(fields, list(paths)))


def part(found, name):
    return next(one[name] for one in found if name in one)


def test_the_verdict_is_that_of_the_library():
    found = messages(OPACUS, **ANSWERS)
    same = fp.audit(OPACUS, claim=(8, 1e-5), sampling="poisson", adjacency="add_remove")
    html = part(found, "html")
    assert same.statement in html and same.bound.ends(5)[1] in html
    assert same.statement in part(found, "say")
    assert [one["put"] for one in found if "put" in one] == ["audit-answer", "audit-words"]


def test_missing_facts_become_fields():
    found = messages(OPACUS)
    assert {"epsilon", "delta", "sampling", "adjacency"} <= set(part(found, "asked"))
    assert "Opacus accountant state" in part(found, "html")
    one = messages(OPACUS, **{**ANSWERS, "adjacency": ""})
    assert part(one, "asked") == ["adjacency"]


def test_a_ledger_needs_no_facts(tmp_path):
    found = messages(ledger(tmp_path / "run.ledger"))
    assert "HOLDS" in part(found, "html") and not part(found, "problems")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("epsilon", "x"),
        ("rounds", "1.5"),
        ("sampling", "other"),
        ("epsilon", "1e400"),
        ("epsilon", "nan"),
        ("epsilon", "-1"),
        ("delta", "1"),
    ],
)
def test_a_wrong_field_is_marked(field, text):
    found = messages(OPACUS, **{**ANSWERS, field: text})
    assert list(part(found, "problems")) == [field]
    assert not any("HOLDS" in str(one) for one in found)


def test_without_a_file_the_file_or_the_run_is_asked_for():
    found = messages(**ANSWERS)
    assert list(part(found, "problems")) == ["files"]
    assert "noise_multiplier" in part(found, "asked")


def test_a_run_may_be_stated_without_a_file():
    run = {"noise_multiplier": "1.4", "rounds": "180", "sampling_probability": "0.01"}
    step = fp.Gaussian(noise_multiplier=1.4)
    same = fp.epsilon(step.sampled(fp.Poisson(0.01)) * 180, delta=1e-5, adjacency="add_remove")
    assert same.ends(5)[1] in part(messages(**ANSWERS, **run), "html")
    saved = part(messages(**ANSWERS, **run, format="md"), "save")
    assert saved["name"] == "stated run-report.md" and "HOLDS" in saved["text"]


@pytest.mark.parametrize("content", [b"", b"\x80\x04x", b"\x00" * 100, b"[" * 10_000, b"{}"])
def test_bad_files_are_refused_without_their_folder(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    found = messages(path, **ANSWERS)
    assert "bad.json" in part(found, "html") and str(tmp_path) not in str(found)


def test_several_runs_have_a_row_each():
    html = part(messages(CORPUS / "settings.csv", adjacency="add_remove"), "html")
    assert "row 1 (low)" in html and "row 2 (high)" in html


@pytest.mark.parametrize("form", auditing.FORMATS)
def test_the_report_is_that_of_the_library(form, tmp_path):
    deployment = {
        f"deployment_{name}": "2026-01-01" if "date" in name else "some words"
        for name in auditing.REQUIRED
    }
    path = tmp_path / OPACUS.name
    path.write_bytes(OPACUS.read_bytes())
    saved = part(messages(path, **ANSWERS, **deployment, format=form, subject="<us>"), "save")
    assert saved["name"] == f"accountant_summary-report.{form}"
    assert [each.name for each in tmp_path.iterdir()] == [OPACUS.name]
    if form == "json":
        assert json.loads(saved["text"])["runs"]["accountant_summary"]["verdict"] == "HOLDS"
    if form == "yaml":
        said = yaml.safe_load(saved["text"])["deployment"]
        assert said["basic"]["data_curators"] == ["some words"]
    assert "<us>" not in saved["text"] or form in ("json", "yaml")


def test_an_entry_of_the_registry_asks_for_its_fields():
    found = part(messages(OPACUS, **ANSWERS, format="yaml"), "problems")
    assert set(found) == {f"deployment_{name}" for name in auditing.REQUIRED}


def test_an_unknown_format_is_refused():
    assert "must be one of" in part(messages(OPACUS, **ANSWERS, format="exe"), "html")
