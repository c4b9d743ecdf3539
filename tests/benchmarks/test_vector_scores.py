"""The kept scores of other accountants, their causes and their proofs."""

import json

import pytest

from fedprivacy.vectors import VectorOutcome, cases
from tests.common import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def scores(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import vector_scores

    return vector_scores


def test_every_adapter_is_asked(scores):
    files = {path.stem for path in (BENCHMARKS / "adapters").glob("*.py")}
    assert files - {"common"} == set(scores.ENVIRONMENTS)
    assert set(json.loads(scores.KEPT.read_text())) == set(scores.ENVIRONMENTS)


def test_every_wrong_answer_has_a_cause_and_a_proof(scores):
    import vector_causes

    known = {case.id: case for case in cases()}
    found = scores.wrong_answers(json.loads(scores.KEPT.read_text()))
    assert found
    for name, each in found:
        assert scores.cause_of(name, known[each["id"]]) in vector_causes.CAUSES, (name, each["id"])
        assert each["proof"], (name, each["id"])


def test_the_page_is_of_the_kept_results(scores, monkeypatch, tmp_path):
    written = scores.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(scores, "PAGE", tmp_path / "page.md")
    scores.page()
    assert scores.PAGE.read_text(encoding="utf-8") == written


def test_an_answer_is_refuted_without_the_package(scores):
    [case] = [case for case in cases(["plain-gaussian"]) if case.id == "plain-gaussian-014"]
    assert scores.proof(case, 4.7285) == "delta is at least 0.04283 there"
    assert scores.proof(case, case.upper) == ""


def test_counts_of_a_family(scores):
    assert VectorOutcome.WRONG in scores.BAD
    found = {"families": {"x": {"contained": 3, "loose": 2, "refused": 4}}, "loosest": {"x": 7.0}}
    assert scores.scored("mine", found, "x") == "mine 3 of 5 (2 loose, up to 7 times)"
    assert scores.scored("mine", found, "y") == ""
