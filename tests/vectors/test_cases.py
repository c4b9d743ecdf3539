"""The published cases: their schema, and their ends computed again."""

import json
from collections import Counter

import jsonschema
import pytest

import fedprivacy as fp
from fedprivacy.vectors import cases, ours
from fedprivacy.vectors.cases import ASKS, PATH, document
from fedprivacy.vectors.judging import VectorOutcome, judge

FAMILIES = list(dict.fromkeys(case.family for case in cases()))

LONG = {"extreme-delta", "calibration"}
"""Families of which a tenth takes more than 2 s."""


def test_the_file_follows_the_schema_and_is_light():
    schema = json.loads(PATH.with_name("schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document())
    assert PATH.stat().st_size < 1_000_000
    assert set(schema["$defs"]["case"]["properties"]["ask"]["enum"]) == set(ASKS)


def test_there_are_600_cases_with_different_names_and_questions():
    found = cases()
    assert len(found) >= 600 and len(FAMILIES) >= 21
    assert len({case.id for case in found}) == len(found)
    repeated = Counter((case.question["words"], case.ask) for case in found)
    assert not [words for words, count in repeated.items() if count > 1]
    assert {case.ask for case in found} == set(ASKS)


def test_the_ends_are_ordered_and_every_case_says_its_theorems():
    theorems = document()["theorems"]
    for case in cases():
        assert 0.0 <= case.lower <= case.upper
        assert case.question["theorems"], case.id
        assert max(case.question["theorems"]) < len(theorems)


def test_a_known_case():
    """The closed form of one Gaussian sum lies between the ends."""
    [case] = [case for case in cases(["plain-gaussian"]) if case.id == "plain-gaussian-013"]
    assert case.question["event"] == {"type": "GaussianDpEvent", "noise_multiplier": 1.0}
    assert case.lower <= 4.377178095681 <= case.upper


def test_an_unknown_family_is_refused():
    with pytest.raises(fp.ParameterError, match="family must be one of 'plain-gaussian'"):
        cases(["lattices"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "family",
    [pytest.param(one, marks=pytest.mark.slow if one in LONG else ()) for one in FAMILIES],
)
def test_a_tenth_computed_again(family):
    """The published ends and new ones do not contradict each other."""
    for case in cases([family], every=10):
        low, high = getattr(ours, case.ask)(case.question)
        assert judge(case, low, high).outcome is VectorOutcome.CONTAINED, case.id
