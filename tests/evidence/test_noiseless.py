"""A record with a step without noise: epsilon is infinite, and the verdict says so."""

import json
import math

import dp_accounting as dpa
import pytest

import fedprivacy as fp
from fedprivacy.audit import account
from fedprivacy.audit.imports import Origin, Rounds, Trace
from fedprivacy.cli import main

pytestmark = pytest.mark.usefixtures("narrowest")

ADD = {"adjacency": "add_remove"}
POISSON = ADD | {"sampling": "poisson"}
FILES = {
    "a state of Opacus": (
        "a.json",
        '{"history": [[1.0, 0.01, 1000], [0.0, 0.01, 5]], "mechanism": "rdp"}',
        POISSON,
    ),
    "a table": (
        "a.csv",
        "round,noise_multiplier,sampling,sampling_probability\n1,1.0,poisson,0.1\n"
        "2,0,poisson,0.1\n",
        ADD,
    ),
    "a table of stds": (
        "a.csv",
        "round,noise_std,clip_norm,sampling,cohort,population\n1,0.0,2.5,fixed,10,100\n",
        {"adjacency": "replace_one"},
    ),
    "a statement": (
        "a.toml",
        "noise_multiplier = 0\nrounds = 3\nsampling = 'with-replacement'\ncohort = 10\n"
        "population = 100\n",
        {"adjacency": "zero_out"},
    ),
    "a statement of a pass": (
        "a.toml",
        "noise_std = 0.0\nclip_norm = 1.0\nrounds = 3\nsampling = 'shuffled'\n"
        "rounds_per_epoch = 3\n",
        {"adjacency": "zero_out"},
    ),
    "a state of Flower": (
        "a.json",
        json.dumps(
            {
                "schema_version": 1,
                "backend": "dp-accounting-rdp",
                "config": {
                    "target_delta": 1e-5,
                    "population_size": 100,
                    "neighboring_relation": "add-or-remove-one",
                    "sampling_method": "poisson",
                },
                "compositions": [
                    {
                        "event": {
                            "noise_multiplier": 0.0,
                            "sample_size": 10,
                            "population_size": 100,
                        },
                        "count": 2,
                    }
                ],
            }
        ),
        {},
    ),
    "an event": (
        "a.json",
        json.dumps(
            {
                "type": "ComposedDpEvent",
                "events": [
                    {"type": "GaussianDpEvent", "noise_multiplier": 1.0},
                    {
                        "type": "PoissonSampledDpEvent",
                        "sampling_probability": 0.1,
                        "event": {"type": "GaussianDpEvent", "noise_multiplier": 0.0},
                    },
                ],
            }
        ),
        ADD,
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_a_record_with_a_step_without_noise_fails(tmp_path, what):
    name, text, facts = FILES[what]
    path = tmp_path / name
    path.write_text(text)
    found = fp.audit(path, claim=(8.0, 1e-5), **facts)
    assert found.verdict == "FAILS"
    assert (found.bound.lower, found.bound.upper) == (math.inf, math.inf)
    assert "without noise" in found.bound.reason and found.bound.witness
    assert found.reasons[0].startswith("Epsilon is infinite at delta = 1e-05: ")
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    (bound,) = plain["bounds"]["aggregate"].values()
    assert (bound["lower"], bound["upper"]) == ("inf", "inf")
    for ending in ("html", "md", "json"):
        fp.report(found, tmp_path / f"r.{ending}")
    text = (tmp_path / "r.md").read_text()
    assert "no finite epsilon" in text and "the sum of clipped contributions, without noise" in text
    given = {name: facts[name] for name in ("adjacency", "sampling") if name in facts}
    bound = account(path, delta=1e-5, **given)
    assert (bound.lower, bound.upper) == (math.inf, math.inf)


def test_strict_exits_with_3(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text(FILES["a state of Opacus"][1])
    options = ["--claim", "8,1e-5", "--adjacency", "add_remove", "--sampling", "poisson"]
    code, out, _ = answer(capsys, "audit", str(path), *options, "--strict")
    assert code == 3 and out.startswith("FAILS")
    code, out, _ = answer(capsys, "audit", str(path), *options, "--strict", "--json")
    assert code == 3 and json.loads(out)["verdict"] == "FAILS"


def answer(capsys, *arguments):
    """Return exit code, output and errors of one command."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    told = capsys.readouterr()
    return stopped.value.code, told.out, told.err


def one_round(path, mechanism, used, cohort=5, arrived=5, **facts):
    given = {"adjacency": "zero_out", "unit": "client", "claim": (100.0, 1e-5)} | facts
    with fp.Ledger.create(path, **given) as ledger:
        for std in (1.0, used):
            number = ledger.intent(mechanism, clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=cohort, arrived=arrived, refused=0, noise_std=std)
        ledger.close()
    return path


MECHANISMS = {
    "a sum": fp.Gaussian(noise_multiplier=1.0, unit="client"),
    "a sampled sum": fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(
        fp.FixedSize(5, population=50)
    ),
    "kinds": fp.Parallel(
        tuple(
            fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(q))
            for q in (0.1, 0.2)
        )
    ),
}


def test_a_round_in_which_nobody_was_does_not_show_anybody(tmp_path):
    sampled = MECHANISMS["a sampled sum"]
    path = one_round(tmp_path / "a.ledger", sampled.inner.sampled(fp.Poisson(0.1)), 0.0, 0, 0)
    found = fp.audit(path)
    assert found.verdict == "CANNOT BE CERTIFIED" and found.bound.lower == 0.0
    table = tmp_path / "a.csv"
    table.write_text("round,noise_multiplier,cohort,population\n1,1.0,10,100\n2,0.0,0,100\n")
    stated = {"adjacency": "zero_out", "sampling": fp.Poisson(0.1)}
    found = fp.audit(table, claim=(8.0, 1e-5), **stated)
    assert found.verdict == "CANNOT BE CERTIFIED" and found.bound.upper == math.inf


@pytest.mark.parametrize(("rate", "verdict"), [(1e-7, "CANNOT BE CERTIFIED"), (1e-4, "FAILS")])
def test_a_unit_that_hardly_takes_part_may_be_covered_by_delta(rate, verdict):
    trace = Trace(Origin("log"), ((Rounds(0.0, rate=rate), 20),))
    found = fp.audit(trace, claim=(8.0, 1e-5), **POISSON)
    assert found.verdict == verdict and found.bound.upper == math.inf
    seen = fp.audit(trace, claim=(8.0, 1e-5), **POISSON, observer="final")
    assert seen.verdict == "CANNOT BE CERTIFIED"


@pytest.mark.parametrize(
    "event",
    [
        dpa.NonPrivateDpEvent(),
        dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(0.0), 3),
        dpa.SampledWithoutReplacementDpEvent(100, 10, dpa.GaussianDpEvent(0.0)),
        dpa.RandomizedResponseDpEvent(0.0, 4),
        dpa.SingleEpochTreeAggregationDpEvent(0.0, 8),
    ],
)
def test_events_that_release_something_whole_fail(event):
    found = fp.audit(event, claim=(8.0, 1e-5), adjacency="zero_out")
    assert found.verdict == "FAILS" and found.bound.lower == math.inf


def test_an_event_that_promises_nothing_is_still_refused():
    """An infinite epsilon that was only stated shows no two data sets."""
    event = dpa.ZCDpEvent(math.inf)
    with pytest.raises(fp.errors.ConversionError, match="not private"):
        fp.audit(event, claim=(8.0, 1e-5), adjacency="zero_out")


def test_explain_refuses_what_has_no_epsilon(tmp_path, capsys):
    path = one_round(tmp_path / "a.ledger", MECHANISMS["a sampled sum"], 0.0)
    options = ["--delta", "1e-5", "--adjacency", "zero_out"]
    code, _, err = answer(capsys, "explain", str(path), *options)
    assert code == 2 and "without noise" in err
