"""Questions here and at another commit: each is a program, and a row says who answered."""

import argparse
import sys

import pytest

from tests.common import ROOT


@pytest.fixture
def against(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import against

    return against


def test_every_question_is_a_program(against):
    for name, question in against.QUESTIONS.items():
        compile(against.HEAD + question, name, "exec")


def test_a_row_compares_two_sides_on_one_input(against, tmp_path):
    question = "report(float(2 + turn))"
    sides = [against.Side(ROOT, sys.executable, tmp_path / name) for name in ("one", "two")]
    given = argparse.Namespace(repeat=2, limit=60.0)
    cells = [cell.strip() for cell in against.row("a sum", question, sides, given).split("|")]
    assert cells[1] == "a sum" and cells[-2] == "0.0e+00"
    before, now, ratio = map(float, cells[2:5])
    assert before > 0.0 and now > 0.0 and ratio > 0.0


def test_a_side_that_fails_is_asked_once(against, tmp_path, capsys):
    log = tmp_path / "asked"
    fails = f"open({str(log)!r}, 'a').write('x')\nraise ValueError('no answer')"
    sides = [against.Side(ROOT, sys.executable, tmp_path / name) for name in ("one", "two")]
    cells = against.row("a failure", fails, sides, argparse.Namespace(repeat=3, limit=60.0))
    assert cells.count("none in 60") == 2 and log.read_text() == "xx"
    assert "no answer" in capsys.readouterr().err


def test_the_limit_is_one_of_processor_time(against, tmp_path):
    side = against.Side(ROOT, sys.executable, tmp_path)
    assert side.ask("time.sleep(1.2)\nreport(2.0)", 0, 1.0)[0] == 2.0
    assert side.ask("while True:\n    pass", 0, 1.0) is None


def test_saved_rows_replace_those_of_the_same_question(against):
    first, second, third = list(against.QUESTIONS)[:3]
    head = against.COLUMNS + "|---|"
    old = "\n".join([head, f"| {first} | 1 |", f"| {third} | 3 |", "| gone | 0 |"]) + "\n"
    found = against.merged(old, [head, f"| {third} | 4 |", f"| {second} | 2 |"])
    assert found == "\n".join(
        [head, f"| {first} | 1 |", f"| {second} | 2 |", f"| {third} | 4 |", ""]
    )
