"""Tests of ``fedprivacy.cli.ledgers``."""

import json
import re

import pytest

from tests.cli.test_explain import answered, ledger, refused
from tests.cli.test_program import answer
from tests.common import RECORDS

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.audit.imports import Unseen
from tests.contract.test_command_line import command

pytestmark = pytest.mark.usefixtures("narrowest")


def test_files_that_are_no_ledgers_are_one_line_and_code_2(capsys, tmp_path):
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    empty.touch()
    foreign.write_text('{"hello": 1}\n')
    for path in (empty, foreign, tmp_path / "absent", tmp_path):
        code, out, err = answer(capsys, "audit", str(path))
        assert code == 2 and out == "" and len(err.strip().splitlines()) == 1


def ledger_of(path, multiplier=2.0, rounds=5, claim=(8.0, 1e-5), close=True):
    step = fp.Gaussian(noise_multiplier=multiplier, clip_norm=1.0, unit="client")
    one = step.sampled(fp.FixedSize(10, population=100))
    ledger = fp.Ledger.create(path, unit="client", adjacency="replace_one", claim=claim)
    for _ in range(rounds):
        number = ledger.intent(one, clip_norm=1.0, noise_std=multiplier)
        ledger.done(number, cohort=10, arrived=10, refused=0, noise_std=multiplier)
    if close:
        ledger.close()
    ledger.release()
    return one * rounds if rounds else None


@pytest.mark.every_accountant
def test_audit_and_report_of_a_ledger(capsys, tmp_path):
    path = tmp_path / "run.ledger"
    ledger_of(path)
    code, out, _ = answer(capsys, "audit", str(path), "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "HOLDS"
    assert set(found["bounds"]) == {"aggregate", "server"}
    assert set(found["bounds"]["aggregate"]) == {"pld", "rdp", "advanced"}
    code, out, _ = answer(capsys, "report", str(path))
    page = (tmp_path / "run.html").read_text()
    assert code == 0 and "HOLDS" in page and page.count("<svg") == 3, out
    assert not re.search(r"(src|href)=.?https?:|url\(https?:|@import|<script", page)
    assert "Not counted" in page


def test_claims_on_the_command_line_override_the_ledger(capsys, tmp_path):
    path = tmp_path / "run.ledger"
    ledger_of(path)
    code, out, _ = answer(
        capsys, "audit", str(path), "--epsilon", "0.01", "--delta", "1e-5", "--json"
    )
    assert code == 0 and json.loads(out)["verdict"] == "FAILS"


STATED = [
    *["audit", "--noise-multiplier", "1.4", "--rounds", "180", "--sampling", "fixed"],
    *["--cohort", "100", "--population", "6000", "--adjacency", "replace_one"],
]


@pytest.mark.parametrize(
    ("claim", "strict", "verdict"),
    [
        ("3.49,7e-5", 0, "HOLDS"),
        ("1.4705,7e-5", 3, "FAILS"),
        pytest.param("3.3,7e-5", 4, "CANNOT BE CERTIFIED", marks=pytest.mark.slow),
    ],
)
def test_parameters_alone_are_audited_and_strict_tells_by_the_exit_code(
    capsys, claim, strict, verdict
):
    code, out, _ = answer(capsys, *STATED, "--claim", claim, "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == verdict
    assert found["statement"].endswith("for the run as stated, without a record")
    assert found["stated"]["noise_multiplier"] == "1.4" and found["recorded"] == {}
    epsilon, delta = claim.split(",")
    apart = ["--claim-epsilon", epsilon, "--claim-delta", delta, "--strict"]
    code, out, _ = answer(capsys, *STATED, *apart)
    assert code == strict and out.startswith(verdict)


@pytest.mark.parametrize(("claim", "strict"), [("0.4315,1e-5", 3), ("20,1e-5", 4)])
def test_a_shuffle_under_add_remove_is_judged_by_its_lower_end(capsys, claim, strict):
    run = ["--noise-multiplier", "1.1", "--sampling", "shuffled", "--rounds-per-epoch", "468"]
    facts = ["--rounds", "2340", "--unit", "record", "--adjacency", "add_remove"]
    code, out, err = answer(capsys, "audit", *run, *facts, "--claim", claim, "--strict")
    assert code == strict and err == "" and "epsilon is at least 3.90" in out


def test_files_of_other_programs_are_audited(capsys):
    history = str(RECORDS / "opacus_gdp.json")
    ask = ["audit", history, "--claim", "1.83,2.0833333e-5", "--adjacency", "add_remove"]
    code, out, _ = answer(capsys, *ask, "--sampling", "poisson", "--strict")
    assert code == 3 and "central limit" in out and "stated by the user but not recorded" in out
    code, _, err = answer(capsys, *ask, "--strict")
    assert code == 2 and "sampling must be stated" in err
    code, out, _ = answer(
        capsys, *ask, "--sampling", "fixed", "--cohort", "20", "--population", "100", "--json"
    )
    assert code == 0 and "FixedSize" in json.loads(out)["stated"]["sampling"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["FILE", "--noise-multiplier"]),
        (["--noise-multiplier", "1"], ["--sampling"]),
        ([*STATED[1:], "--claim", "8"], ["--claim", "two numbers"]),
        ([*STATED[1:], "--claim", "8,1e-5", "--delta", "1"], ["--claim", "without"]),
        ([*STATED[1:], "--claim", "nan,1e-5"], ["epsilon", "NaN"]),
        ([*STATED[1:], "--epsilon", "8"], ["claim", "--claim-delta"]),
        ([*STATED[1:], "--claim", "1e-5,8"], ["delta", "below 1", "did you swap"]),
        ([str(RECORDS / "flower.json"), "--rounds", "3"], ["rounds", "left out"]),
        ([str(RECORDS / "flower.json"), "--cohort", "3"], ["--cohort", "--sampling fixed"]),
        ([str(RECORDS / "said.json")], ["no audit is possible", "no noise is recorded"]),
    ],
)
def test_bad_audits_are_one_line_and_code_2(capsys, arguments, words):
    code, out, err = answer(capsys, "audit", *arguments, "--strict")
    assert code == 2 and out == "" and len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err


@pytest.mark.usefixtures("no_plots")
def test_a_report_of_a_foreign_record(capsys, tmp_path):
    ask = ["report", str(RECORDS / "flower.json"), "--claim", "3.49,7e-5", "--subject", "phones"]
    path = tmp_path / "page.html"
    code, out, _ = answer(capsys, *ask, "--auditor", "me", "--output", str(path), "--strict")
    assert code == 0 and out.startswith("HOLDS, according to an imported record")
    assert "Flower accountant state, flower.json" in path.read_text()


ZERO = ["--adjacency", "zero_out"]
NOISE = ["--noise-multiplier", "2"]
STEP = fp.Gaussian(noise_multiplier=2.0)
# Audits

TYPED = [*NOISE, "--rounds", "4", "--sampling", "poisson", "--sampling-probability", "0.2"]
TYPED_RUN = STEP.sampled(fp.Poisson(0.2)) * 4


@pytest.mark.parametrize(
    ("epsilon", "verdict", "code"),
    [("9", "HOLDS", 0), ("0.01", "FAILS", 3)],
)
def test_strict_tells_the_verdict_by_the_exit_code(capsys, epsilon, verdict, code):
    words = ["audit", *TYPED, *ZERO, "--claim", f"{epsilon},1e-4"]
    ended, out, err = command(capsys, *words, "--strict")
    assert (ended, err) == (code, "") and out.startswith(verdict)
    assert command(capsys, *words)[0] == 0
    found = answered(capsys, *words)
    bound = fp.epsilon(TYPED_RUN, delta=1e-4, adjacency="zero_out")
    assert found["verdict"] == verdict == str(bound.verdict(float(epsilon)))
    assert found["bounds"]["aggregate"]["pld"]["upper"] == pytest.approx(bound.upper, abs=1e-3)
    assert found["claim"] == {"epsilon": float(epsilon), "delta": 1e-4}


def test_neither_ends_with_4(capsys):
    shuffled = [*NOISE, "--rounds", "4", "--sampling", "shuffled", "--rounds-per-epoch", "4"]
    words = ["audit", *shuffled, *ZERO, "--strict"]
    run = STEP.sampled(fp.Shuffled(4))
    bound = fp.epsilon(run, delta=1e-4, adjacency="zero_out")
    between = (bound.lower + bound.upper) / 2
    code, out, _ = command(capsys, *words, "--claim-epsilon", str(between), "--delta", "1e-4")
    assert code == 4 and out.startswith("CANNOT BE CERTIFIED")


def test_what_nobody_said_is_told_with_the_option_that_says_it(capsys):
    words = ["audit", *TYPED, *ZERO, "--claim", "9,1e-4"]
    said = {
        "steps_per_round": "1",
        "missing_shares": "0",
        "denominator": "public",
        "trials": "1",
    }
    assert set(said) == set(Unseen.__members__)
    for name, value in said.items():
        option = f"--{name.replace('_', '-')}"
        before, after = (
            " ".join(command(capsys, *words, *more)[1].split()) for more in ([], [option, value])
        )
        granted = f"assumed by default: {Unseen[name].value} ({option})"
        assert granted in before and granted not in after
        assert f"{name} = {value}" in after and "stated by the user but not recorded" in after


def test_a_file_and_the_same_numbers_typed_are_one_audit(capsys, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        "noise_multiplier = 2.0\nrounds = 4\nsampling = 'poisson'\nsampling_probability = 0.2\n"
    )
    ask = [*ZERO, "--claim", "9,1e-4", "--trials", "2"]
    typed, read = (answered(capsys, "audit", *words, *ask) for words in (TYPED, [str(path)]))
    assert typed["verdict"] == read["verdict"]
    for observer, bounds in typed["bounds"].items():
        for name, bound in bounds.items():
            other = read["bounds"][observer][name]
            # What differs is whose word it is.
            assert {**bound, "qualified": []} == {**other, "qualified": []}
            assert bound["qualified"] != other["qualified"]
    twice = fp.epsilon(TYPED_RUN * 2, delta=1e-4, adjacency="zero_out")
    assert read["bounds"]["aggregate"]["pld"]["upper"] == pytest.approx(twice.upper, abs=1e-3)


SAMPLED = {
    "poisson": (["--sampling-probability", "0.25"], fp.Poisson(0.25)),
    "fixed": (["--cohort", "5", "--population", "20"], fp.FixedSize(5, population=20)),
    "with-replacement": (
        ["--cohort", "5", "--population", "20"],
        fp.WithReplacement(5, population=20),
    ),
    "everyone": ([], fp.Everyone()),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_scheme_is_stated_for_a_file_that_names_none(capsys, tmp_path, name):
    path, (words, scheme) = tmp_path / "log.csv", SAMPLED[name]
    path.write_text("round,noise_multiplier\n" + "".join(f"{i},2.0\n" for i in range(3)))
    found = answered(
        capsys, "audit", str(path), "--sampling", name, *words, *ZERO, "--claim", "9,1e-4",
        "--observer", "server",
    )  # fmt: skip
    run = STEP.sampled(scheme) * 3
    bound = fp.epsilon(run, delta=1e-4, adjacency="zero_out", observer="server")
    assert found["bounds"]["server"]["pld"]["upper"] == pytest.approx(bound.upper, abs=1e-3)


REPORTS = {
    "page.html": lambda text: text.startswith("<!DOCTYPE html>"),
    "page.md": lambda text: text.startswith("#"),
    "page.json": lambda text: next(iter(json.loads(text)["runs"].values()))["verdict"] == "HOLDS",
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_written_in_the_form_of_its_name(capsys, tmp_path, name):
    path = ledger(tmp_path / "run.ledger")
    target = tmp_path / name
    code, out, err = command(capsys, "report", path, "--output", str(target), "--subject", "Us")
    assert (code, err) == (0, "") and out.endswith(f": {target}\n") and "HOLDS" in out
    assert REPORTS[name](target.read_text(encoding="utf-8"))
    assert "Privacy of Us" in target.read_text(encoding="utf-8")


OUTPUTS = {
    "no form": (["--output", "a.txt"], "path must end in .html, .md"),
    "no folder": (["--output", "nowhere/a.html"], "path must be in an existing folder"),
    "over the record": (["--output", "run.ledger"], "must differ from the files that are read"),
    "a deployment of a page": (
        ["--output", "a.html", "--deployment", "said.toml"],
        "deployment must be left out, got 'given'; it applies only to a path that ends in .yaml",
    ),
    "an entry of nobody": (
        ["--output", "a.yaml"],
        "deployment must be given for the registry: a dict with ",
    ),
    "no statement": (
        ["--output", "a.yaml", "--deployment", "none.toml"],
        "none.toml: could not read it: No such file or directory",
    ),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_a_report_that_has_no_place_is_not_written(capsys, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    ledger(tmp_path / "run.ledger")
    (tmp_path / "said.toml").write_text("name = 'us'\n")
    words, told = OUTPUTS[what]
    before = (tmp_path / "run.ledger").read_bytes()
    assert told in refused(capsys, "report", "run.ledger", *words)
    assert (tmp_path / "run.ledger").read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"run.ledger", "said.toml"}
