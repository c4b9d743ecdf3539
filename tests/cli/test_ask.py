"""Tests of ``fedprivacy.cli.ask``."""

import json

import pytest

from tests.cli.test_explain import answered
from tests.cli.test_program import answer

pytest.importorskip("torch")

import fedprivacy as fp
from tests.contract.test_command_line import command

RUN = ["--noise-multiplier", "0.8", "--sampling-probability", "0.01", "--rounds", "100"]


def test_epsilon_prints_the_certified_interval_as_json(capsys):
    code, out, _ = answer(
        capsys, "epsilon", *RUN, "--delta", "1e-5", "--adjacency", "add_remove", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["lower"] <= 1.510838 and found["upper"] >= 1.510837
    assert found["adjacency"] == "add_remove" and found["witness"]


def test_a_largest_cohort_truncates_poisson_sampling(capsys):
    ask = ["epsilon", *RUN, "--delta", "1e-5", "--adjacency", "add_remove", "--json"]
    uppers = {}
    for largest in ("20", "1000"):
        code, out, _ = answer(capsys, *ask, "--population", "1000", "--largest-cohort", largest)
        assert code == 0 and "truncatedpoisson" in out.replace("_", "").lower()
        uppers[largest] = json.loads(out)["upper"]
    assert uppers["20"] > uppers["1000"] > 1.510837


def test_epsilon_and_delta_speak_of_the_same_curve(capsys):
    _, out, _ = answer(
        capsys, "epsilon", *RUN, "--delta", "1e-5", "--adjacency", "zero_out", "--json"
    )
    upper = json.loads(out)["upper"]
    _, out, _ = answer(
        capsys, "delta", *RUN, "--epsilon", str(upper), "--adjacency", "zero_out", "--json"
    )
    assert json.loads(out)["lower"] <= 1e-5


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ("noise-multiplier", ["--rounds", "100", "--sampling-probability", "0.01"]),
        ("rounds", ["--noise-multiplier", "2", "--sampling-probability", "0.01"]),
        ("sampling-probability", ["--noise-multiplier", "2", "--rounds", "100"]),
        ("cohort", ["--noise-multiplier", "2", "--rounds", "100", "--population", "1000"]),
        ("population", ["--noise-multiplier", "2", "--rounds", "100", "--cohort", "10"]),
    ],
)
def test_calibrate_solves_for_any_parameter(capsys, parameter, given):
    code, out, err = answer(
        capsys,
        *["calibrate", "--solve-for", parameter, *given],
        *["--epsilon", "2", "--delta", "1e-5", "--adjacency", "replace_one", "--json"],
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["value"] > 0 and found["bound"]["upper"] <= 2.0


ZERO = ["--adjacency", "zero_out"]
NOISE = ["--noise-multiplier", "2"]
STEP = fp.Gaussian(noise_multiplier=2.0)
# Options, and the run that they describe.
RUNS = {
    "one release": (NOISE, STEP.sampled(fp.Everyone()) * 1),
    "rounds": ([*NOISE, "--rounds", "3"], STEP.sampled(fp.Everyone()) * 3),
    "drawn": (
        [*NOISE, "--rounds", "5", "--sampling-probability", "0.1"],
        STEP.sampled(fp.Poisson(0.1)) * 5,
    ),
    "cohorts": (
        [*NOISE, "--rounds", "5", "--cohort", "3", "--population", "40"],
        STEP.sampled(fp.FixedSize(3, population=40)) * 5,
    ),
    "cut cohorts": (
        [*NOISE, "--sampling-probability", "0.1", "--population", "40", "--largest-cohort", "9"],
        STEP.sampled(fp.TruncatedPoisson(0.1, population=40, largest=9)) * 1,
    ),
}
FACTS = [
    ("zero_out", "aggregate"),
    ("zero_out", "server"),
    ("replace_one", "aggregate"),
    ("add_remove", "aggregate"),
]


@pytest.mark.fast_cells(10)
@pytest.mark.parametrize(("adjacency", "observer"), FACTS)
@pytest.mark.parametrize("what", RUNS)
def test_epsilon_and_delta_are_those_of_the_run(capsys, what, adjacency, observer):
    words, run = RUNS[what]
    seen = ["--adjacency", adjacency, "--observer", observer]
    facts = {"adjacency": adjacency, "observer": observer}
    found = answered(capsys, "epsilon", *words, *seen, "--delta", "1e-4")
    assert found == json.loads(json.dumps(fp.epsilon(run, delta=1e-4, **facts).to_dict()))
    found = answered(capsys, "delta", *words, *seen, "--epsilon", "0.5")
    assert found == json.loads(json.dumps(fp.delta(run, epsilon=0.5, **facts).to_dict()))


@pytest.mark.parametrize("unit", ["client", "record"])
@pytest.mark.parametrize("accountant", ["pld", "rdp", "advanced"])
def test_whose_data_and_by_whom_it_is_accounted_is_said(capsys, unit, accountant):
    words = ["epsilon", *NOISE, *ZERO, "--delta", "1e-4", "--unit", unit]
    code, out, _ = command(capsys, *words, "--accountant", accountant)
    run = fp.Gaussian(noise_multiplier=2.0, unit=unit).sampled(fp.Everyone()) * 1
    bound = fp.epsilon(run, delta=1e-4, adjacency="zero_out", accountant=accountant)
    lines = out.splitlines()
    assert code == 0 and lines[0] == str(bound) and f"{unit} level" in lines[0]
    told = [f"  rests on: {each}" for each in bound.theorems]
    told += [f"  assumes: {each}" for each in bound.assumptions]
    told = [f"  attained by: {bound.witness}"] * bool(bound.witness) + told
    assert lines[1:] == told + [f"  wider than the tolerance: {bound.reason}"] * bool(bound.reason)


def test_a_tolerance_is_kept(capsys):
    words = ["epsilon", *RUNS["cohorts"][0], *ZERO, "--delta", "1e-4"]
    widths = []
    for tolerance in ("0.5", "1e-4"):
        found = answered(capsys, *words, "--tolerance", tolerance)
        widths.append(found["resolution"][1] - found["resolution"][0])
        assert widths[-1] <= float(tolerance)
    assert widths[0] > widths[1]


@pytest.mark.parametrize("name", ["noise-multiplier", "rounds", "sampling-probability"])
def test_a_calibrated_value_meets_its_budget_and_the_next_one_does_not(capsys, name):
    given = {"noise-multiplier": "2", "rounds": "20", "sampling-probability": "0.1"}
    del given[name]
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    budget = ["--epsilon", "0.8", "--delta", "1e-4", *ZERO]
    found = answered(capsys, "calibrate", "--solve-for", name, *words, *budget)
    assert found["parameter"] == name.replace("-", "_") and found["bound"]["upper"] <= 0.8
    step = {"noise-multiplier": 0.99, "rounds": 1.0, "sampling-probability": 1.01}[name]
    worse = found["value"] * step + (name == "rounds")
    given |= {name: f"{worse:.0f}" if name == "rounds" else str(worse)}
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    again = answered(capsys, "epsilon", *words, *budget[2:])
    assert again["resolution"][1] > 0.8
    del given[name]
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    code, out, _ = command(capsys, "calibrate", "--solve-for", name, *words, *budget)
    assert code == 0 and out.startswith(f"{found['parameter']} = {found['value']}\n")


def test_a_calibrated_value_is_printed_as_it_was_certified(capsys):
    words = ["--noise-multiplier", "4000", "--epsilon", "1", "--delta", "1e-5", *ZERO]
    code, out, _ = command(capsys, "calibrate", "--solve-for", "rounds", *words)
    assert code == 0 and out.startswith("rounds = 1149622\n")


def test_a_trade_off_is_that_of_the_run(capsys):
    words, run = RUNS["drawn"]
    found = answered(capsys, "tradeoff", *words, *ZERO, "--fpr", "0,0.01,0.5,1")
    curve = fp.tradeoff_curve(run, adjacency="zero_out", fpr=[0.0, 0.01, 0.5, 1.0])
    assert found == json.loads(json.dumps(curve.to_dict()))
    code, out, _ = command(capsys, "tradeoff", *words, *ZERO, "--fpr", "0.5")
    head, line, *grounds = out.splitlines()
    assert head.endswith("(zero_out, aggregate)")
    told = [f"  attained by: {curve.witness}", *(f"  rests on: {one}" for one in curve.theorems)]
    assert grounds == told + [f"  assumes: {one}" for one in curve.assumptions]
    rate, least, known = line.replace(",", "").replace(":", "").split()
    assert (code, rate) == (0, "0.5") and float(least) <= curve.worst.lower[2]
    assert float(known) >= curve.worst.attained[2]
