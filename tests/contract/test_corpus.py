"""Files of other programs: the right verdict, or one line with everything that is missing."""

import json
import random
import re
import time
from functools import cache
from pathlib import Path

import pytest

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.errors import FedPrivacyError

CORPUS = Path(__file__).parents[1] / "corpus"
ANSWERS = json.loads((CORPUS / "answers.json").read_text())
LIMIT = 20.0
"""Seconds of processor time for one file; 0.2 s is usual on an idle machine."""

SCHEMES = {
    "poisson": fp.Poisson,
    "fixed": lambda size, population: fp.FixedSize(size, population=population),
    "shuffled": fp.Shuffled,
    "everyone": fp.Everyone,
}


def named(case):
    kind = next(kind for kind in ("asks", "refused", "rows", "verdict") if kind in case)
    return f"{case['file']}-{kind}"


def facts_of(case):
    """The user's statements: a list is a scheme with its numbers, or a claim."""
    given = dict(case["given"])
    if isinstance(given.get("sampling"), list):
        name, *numbers = given["sampling"]
        given["sampling"] = SCHEMES[name](*numbers)
    if "claim" in given:
        given["claim"] = tuple(given["claim"])
    return given


NUMBERS = {"sampling_probability", "cohort", "population", "rounds_per_epoch"}
"""Facts that come with the name of a sampling."""


def options_in(message):
    """The options that a message offers, by name of the fact."""
    _, _, offered = message.partition("State it: ")
    return {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", offered)}


def facts_asked(names):
    """The facts that options give; the numbers of a sampling come with its name."""
    return {"sampling" if name in NUMBERS else name for name in names}


@cache
def message_of(number):
    """The message that asks for the missing facts of a file."""
    case = ANSWERS[number]
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit(CORPUS / case["file"], **facts_of(case))
    return str(caught.value)


FIRST = {Path(case["file"]).parent: case["file"] for case in reversed(ANSWERS) if "verdict" in case}
"""A file of each program, which is judged by every accountant; the others by the narrowest."""


@pytest.mark.parametrize("case", ANSWERS, ids=named)
def test_a_file_ends_in_its_right_answer(case):
    path, facts, start = CORPUS / case["file"], facts_of(case), time.process_time()
    if case["file"] not in FIRST.values():
        facts["accountant"] = "pld"
    if "rows" in case:
        found = [each.audit and str(each.audit.verdict) for each in fp.audit.each(path, **facts)]
        assert found == case["rows"]
        with pytest.raises(FedPrivacyError, match=r"fp\.audit\.each"):
            fp.audit(path, **facts)
    elif "asks" in case:
        message = message_of(ANSWERS.index(case))
        if len(case["asks"]) == 1 and "State it" not in message:
            assert message.startswith(case["asks"][0])
        else:
            assert facts_asked(options_in(message)) == facts_asked(case["asks"]), message
        assert "\n" not in message
    elif "refused" in case:
        with pytest.raises(FedPrivacyError) as caught:
            fp.audit(path, **facts)
        assert case["refused"] in str(caught.value) and "\n" not in str(caught.value)
    else:
        check_verdict(fp.audit(path, **facts), case)
    assert time.process_time() - start < LIMIT


NUMBER = {"Z": 0.01, "P": 0.01, "N": 20_000, "M": 2}
"""Numbers for the letters of an answer: less noise and more rounds than any file has."""
WORDS = {"adjacency": "add_remove", "denominator": "public"}


def answers_to(message):
    """Every set of facts that an answer offers to paste, with numbers for its letters."""
    _, _, offered = message.partition("State it: ")
    first, _, others = offered.replace("and one of:", "one of:").partition("one of: ")
    for scheme in others.split(", or ") if others else [""]:
        words = iter(f"{first} {scheme}".split())
        facts = {name[2:].replace("-", "_"): next(words) for name in words}
        yield {name: value_of(name, text) for name, text in facts.items()}


def value_of(name, text):
    if name in WORDS or name == "sampling":
        return WORDS.get(name, text)
    if name == "claim":
        return (5.0, 1e-5)
    if name == "reviewed":
        return text
    if name in ("claim_epsilon", "claim_delta"):
        return 5.0 if name == "claim_epsilon" else 1e-5
    return NUMBER.get(text) or json.loads(text)


def scheme_of(facts):
    """The facts with one scheme in place of its numbers, as the command line makes it."""
    name = facts.get("sampling")
    numbers = {each: facts.pop(each) for each in NUMBERS & {*facts}}
    if name == "fixed" and "cohort" in numbers:
        return {
            **facts,
            "sampling": fp.FixedSize(numbers["cohort"], population=numbers["population"]),
        }
    if numbers:
        (number,) = numbers.values()
        return {**facts, "sampling": SCHEMES[name](number)}
    return facts


ASKING = [case for case in ANSWERS if "asks" in case]


@pytest.mark.parametrize("case", ASKING, ids=named)
def test_one_answer_names_everything_that_is_missing(case):
    """What an answer offers to paste completes the file."""
    path, given = CORPUS / case["file"], facts_of(case)
    message = message_of(ANSWERS.index(case))
    if "State it" not in message:
        return
    for facts in answers_to(message):
        facts = {**given, **scheme_of(facts)}
        claim = facts.pop(
            "claim", (facts.pop("claim_epsilon", None), facts.pop("claim_delta", None))
        )
        stated = imports.Stated(**facts)
        trace = imports.read(path, "nobody", stated, claim)
        imports.check_asked(trace, stated, claim)
        assert imports.assemble(trace, stated).run is not None


def check_verdict(found, case):
    """The run and the claim are those of the answer, which is written without the reader."""
    assert found.claim == tuple(case["claim"]) and found.facts.adjacency == case["adjacency"]
    assert found.facts.observer == case.get("observer", "aggregate")
    assert found.verdict == case["verdict"], found
    if case.get("infinite"):
        assert found.bound.lower == float("inf")
        return
    if case["run"] is None:
        return
    name, *numbers = case["run"]["sampling"]
    if (name, case["adjacency"]) == ("shuffled", "add_remove"):
        # No theorem bounds this run from above, and its lower end decides.
        assert found.bound.upper == float("inf") > found.bound.lower
        return
    step = fp.Gaussian(noise_multiplier=case["run"]["noise"]).sampled(SCHEMES[name](*numbers))
    # A shuffled pass is one mechanism, of as many rounds as it has.
    times = case["run"]["rounds"] // (numbers[0] if name == "shuffled" else 1)
    wanted = fp.epsilon(
        step * times,
        delta=found.claim[1],
        adjacency=case["adjacency"],
        observer=case.get("observer", "aggregate"),
    )
    assert found.bound.upper == pytest.approx(wanted.upper, rel=2e-3)
    assert "imported record" in found.statement


def test_the_corpus_has_no_file_without_an_answer():
    files = {str(path.relative_to(CORPUS)) for path in CORPUS.rglob("*") if path.is_file()}
    assert files - {"answers.json"} == {case["file"] for case in ANSWERS}
    assert len(files) > 60


def test_a_result_names_the_program_the_fields_and_every_inference():
    given = {"noise_multiplier": 1.2, "adjacency": "zero_out", "claim": (9e9, 1e-5)}
    found = fp.audit(CORPUS / "flower/pyproject.toml", **given)
    told = found.facts_recorded
    assert told["read as"].startswith("Flower app configuration (flwr 1.35 to 1.42)")
    assert "num-server-rounds = 40" in told["fields"]
    assert "cohorts of 30, fixed size, because Flower samples so" in told["inferred"]
    assert found.stated["noise_multiplier"] == "1.2"


def test_a_fact_that_the_file_has_cannot_be_stated():
    path = CORPUS / "opacus/manifest.json"
    for fact in ({"rounds": 3}, {"noise_multiplier": 9.0}):
        with pytest.raises(fp.ParameterError, match=r"be left out with a file that has it"):
            fp.audit(path, sampling="poisson", adjacency="add_remove", **fact)


def test_the_noise_of_one_message_is_not_judged_for_an_observer_of_the_sum():
    path, facts = CORPUS / "flower/local_dp.yaml", {"adjacency": "zero_out"}
    assert fp.audit(path, observer="server", **facts).verdict == "FAILS"
    with pytest.raises(fp.ParameterError, match="observer must be server"):
        fp.audit(path, observer="aggregate", **facts)


SMALL = (1e-9, 1e-12)
"""A claim that no round of any file keeps, with any answers."""
STATED = {"sampling": "poisson", "adjacency": "add_remove"}
SIGNS = "{}[],:;\"'\n\t =#-abcx|&*!%\x00\ufffd"


@cache
def texts():
    files = sorted({case["file"] for case in ANSWERS})
    return [(name, (CORPUS / name).read_text()) for name in files]


def changed(text, chance):
    """Change a text in a few places, without a digit or exponent that was not there."""
    for _ in range(chance.choice([1, 1, 2, 3])):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice([1, 1, 2, 5, 40]))
        lines = text.splitlines(keepends=True)
        match chance.randrange(8):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:end] + text[at:end] + text[end:]
            case 2:
                text = text[:at] + chance.choice(SIGNS) + text[at:]
            case 3:
                text = text[:at]
            case 4 if len(lines) > 1:
                lines.pop(chance.randrange(len(lines)))
                text = "".join(lines)
            case 5 if len(lines) > 1:
                chance.shuffle(lines)
                text = "".join(lines)
            case 6:
                other = chance.choice(texts())[1]
                place = chance.randrange(len(other) + 1)
                text = text[:at] + other[place : place + 60] + text[at:]
            case _:
                word = chance.choice(["null", "true", "false", "{}", "[]", '""', "~"])
                text = text[:at] + word + text[end:]
    return text


def judged(path, given):
    """Every audit that a file gives, with the user's statements; an error of ours is no audit."""
    try:
        rows = fp.audit.each(path, **given, claim=SMALL, accountant="pld")
    except FedPrivacyError:
        return []
    return [row.audit for row in rows if row.audit is not None]


@pytest.mark.parametrize(
    "mutations", [12, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_changed_files_raise_our_errors_and_never_hold(mutations, tmp_path):
    """No file of the corpus keeps this claim, so no changed file may keep it."""
    chance, read, path = random.Random(11), 0, tmp_path / "a"
    # Three of four cases are files that the user's statements complete.
    judgeable = [case for case in ANSWERS if "verdict" in case or "rows" in case]
    for number in range(mutations):
        case = chance.choice(judgeable if number % 4 else ANSWERS)
        given = {name: value for name, value in facts_of(case).items() if name != "claim"}
        text = changed((CORPUS / case["file"]).read_text(), chance)
        path.write_text(text, encoding="utf-8", errors="replace")
        for found in judged(path, given or STATED):
            read += 1
            assert found.verdict != "HOLDS", (given, text)
    assert read > mutations / 50
