"""The command line of the vectors."""

import json

import pytest

from fedprivacy.vectors import cases
from fedprivacy.vectors.command import main
from tests.vectors.adapters import answering


def test_a_run_prints_wrong_answers_and_the_table(tmp_path, capsys):
    path, kept = answering(tmp_path, "0.001"), tmp_path / "kept.json"
    words = ["run", "--adapter", path, "--family", "plain-gaussian", "--tenth"]
    assert main([*words, "--json", str(kept)]) == 1
    said = capsys.readouterr().out
    assert "wrong: plain-gaussian-001: 0.001 is below 19.13" in said
    assert said.splitlines()[-1].split() == ["plain-gaussian", "2", "4"]
    results = json.loads(kept.read_text())["results"]
    assert len(results) == len(cases(["plain-gaussian"], 10))


def test_one_case_that_is_right(tmp_path, capsys):
    case = cases(["plain-gaussian"])[0]
    path = answering(tmp_path, repr(case.upper))
    assert main(["run", "--adapter", path, "--id", case.id]) == 0
    assert "wrong" not in capsys.readouterr().out.splitlines()[-1]


def test_the_list_has_every_case_in_words(capsys):
    assert main(["list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(cases())


def test_a_certificate_has_the_published_ends(capsys):
    case = next(case for case in cases() if "proved" in case.question["certificate"])
    assert main(["certificate", case.id]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["bound"]["lower"], document["bound"]["upper"]) == (case.lower, case.upper)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["certificate", "nothing-001"], "id must be the id of a case"),
        (["certificate", "attack-risk-001"], "ask for an epsilon or a delta"),
        (["run", "--adapter", "nowhere.py"], "adapter must be an existing file"),
        (["list", "--family", "nothing"], "family must be one of"),
    ],
)
def test_misuse_ends_with_2_and_says_why(words, told, capsys):
    assert main(words) == 2
    assert told in capsys.readouterr().err
