"""Tests of ``fedprivacy.page.plan``."""

import contextlib
import io
import json
import shlex

import pytest

from fedprivacy.cli import main
from fedprivacy.errors import UnsupportedCombination
from fedprivacy.page import plan
from fedprivacy.page.forms import EXAMPLE


def messages(**changed):
    return list(plan.answer({**EXAMPLE, **changed}, []))


def problems(**changed):
    return next(one["problems"] for one in messages(**changed) if "problems" in one)


def printed(command):
    """Return what a command of the page prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as left:
        main([*shlex.split(command)[1:], "--json"])
    assert left.value.code == 0
    return json.loads(out.getvalue())


def ran(program):
    """Return the names of a program of the page, run without what it prints."""
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(program, names)
    return names


QUESTIONS = {
    "example": {},
    "fixed": {"sampling": "fixed", "adjacency": "replace_one", "unit": "record"},
    "truncated": {"sampling": "truncated", "adjacency": "zero_out", "largest_cohort": "120"},
    "everyone": {"sampling": "everyone", "noise_multiplier": "20", "observer": "final"},
    "replacement": {"sampling": "with-replacement", "adjacency": "zero_out"},
    "shuffled": {"sampling": "shuffled", "adjacency": "zero_out", "rounds_per_epoch": "90"},
    "allocation": {"sampling": "allocation"},
    "server": {"observer": "server", "adjacency": "zero_out", "cohort": "12.5"},
}


@pytest.mark.parametrize("changed", QUESTIONS.values(), ids=QUESTIONS)
def test_the_command_and_the_program_give_the_numbers_of_the_page(changed):
    asked = plan.PlannedRun.read({**EXAMPLE, **changed})
    _, bound = asked.answered()
    found = printed(asked.command())
    assert (found["lower"], found["upper"]) == (bound.lower, bound.upper)
    assert (found["unit"], found["adjacency"]) == (asked.unit, asked.adjacency)
    names: dict[str, object] = {}
    program = asked.python().replace("print(", "found = (")
    exec(program, names)
    assert (names["found"].lower, names["found"].upper) == (bound.lower, bound.upper)


def test_a_budget_gives_the_noise_of_the_command_and_of_the_program():
    asked = plan.PlannedRun.read({**EXAMPLE, "knows": "budget", "epsilon": "2"})
    noise, bound = asked.answered()
    found = printed(asked.command())
    assert found["value"] == noise and found["bound"]["upper"] == bound.upper <= 2
    assert ran(asked.python())["found"].value == noise


def test_the_first_answer_has_the_interval_and_the_rest_follows():
    found = messages()
    places = [one["put"] for one in found if "put" in one]
    assert places == [
        "plan-answer",
        "plan-brief",
        "answer-seen",
        "answer-half",
        "answer-rounds",
        "answer-attack",
    ]
    html = {one["put"]: one["html"] for one in found if "put" in one}
    _, bound = plan.PlannedRun.read(EXAMPLE).answered()
    assert f"[{', '.join(bound.ends(6))}]" in html["plan-answer"]
    assert "<svg" in html["answer-rounds"] and "1.66 %" in html["answer-attack"]
    assert "0.7523" in next(one["say"] for one in found if one.get("say"))


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"rounds": ""}, "rounds", "Enter a number"),
        ({"rounds": "1.5"}, "rounds", "integer of at least 1"),
        ({"rounds": "9" * 5000}, "rounds", "pass a number"),
        ({"noise_multiplier": "nan"}, "noise_multiplier", "above 0"),
        ({"noise_multiplier": "1e400"}, "noise_multiplier", "finite number above 0"),
        ({"noise_multiplier": "1,4"}, "noise_multiplier", "1.4"),
        ({"noise_multiplier": "-1"}, "noise_multiplier", "above 0"),
        ({"delta": "2"}, "delta", "between 0 and 1"),
        ({"cohort": "6001"}, "cohort", "at most the population"),
        ({"cohort": "10.5", "sampling": "fixed"}, "cohort", "must be an integer"),
        ({"largest_cohort": "x", "sampling": "truncated"}, "largest_cohort", "must be"),
        ({"sampling": "shuffled", "rounds": "100"}, "rounds", "a multiple of the 60 rounds"),
        ({"sampling": "allocation", "rounds_per_epoch": ""}, "rounds_per_epoch", "Enter"),
        ({"unit": "person"}, "unit", "Choose one"),
        ({"observer": "server"}, "observer", "the list of participants shows membership"),
        ({"knows": "budget", "epsilon": "-1"}, "epsilon", "at least 0"),
        ({"knows": "budget", "epsilon": "1", "delta": "1"}, "delta", "below 1"),
    ],
)
def test_a_wrong_field_is_marked_with_a_sentence(changed, field, words):
    found = problems(**changed)
    assert list(found) == [field] and words in found[field], found


def test_all_wrong_fields_are_marked_at_once():
    assert set(problems(rounds="0", delta="", cohort="-1")) == {"rounds", "delta", "cohort"}


def test_a_huge_population_is_answered_or_refused():
    _, bound = plan.PlannedRun.read({**EXAMPLE, "population": "1" + "0" * 15}).answered()
    assert 0.0 <= bound.lower <= bound.upper < 1e-9
    found = problems(population="1" + "0" * 400)
    assert list(found) == ["population"] and len(found["population"]) < 200


def test_a_refusal_without_a_known_form_keeps_its_words():
    problem = UnsupportedCombination("no theorem here")
    assert plan.unsupported(problem, "add_remove", "server") == "No theorem here."


def test_text_of_the_form_is_escaped():
    html = messages(rounds="<script>")[-1]["html"] + str(problems(rounds="<b>"))
    assert "<script>" not in html
