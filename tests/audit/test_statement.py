"""Tests of ``fedprivacy.audit.statement``."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.audit.statement import parts_in_words, rows_of
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job
from tests.audit.imports.test_assembling import DESCRIBED
from tests.audit.imports.test_passes import ONE, trace
from tests.audit.test_reporting import FLOWER
from tests.common import RECORDS
from tests.mechanisms.test_adaptive import DATA

pytestmark = pytest.mark.usefixtures("narrowest")

CLIENTS, DELTA = 20, 1e-5


# ---- the command line's job


def test_a_job_with_a_quantile_is_trained_and_audited(tmp_path):
    settings_ = {"clip_quantile": 0.5, "clip_bits_share": 0.02, "rounds": 3, "cohort": 10}
    task = job("dp-fedavg", data=DATA, model="logistic", local_steps=1, **settings_)
    path = tmp_path / "run.ledger"
    done = Experiment(job=task, epsilon=8.0, delta=1e-3).run(ledger_path=path)
    assert done.rounds[-1] == 3
    assert fp.audit(path).verdict == "HOLDS"
    kept = [one.clip_norm for one in fp.Ledger.open(path).rounds]
    assert len(set(kept)) == 3
    assert "the next clip norm tracks the quantile 0.5" in "".join(parts_in_words(fp.audit(path)))
    assert task.public("zero_out")["clip_quantile"] == 0.5


def test_the_statement_has_what_guides_ask_for():
    rows = dict(rows_of(FLOWER))
    assert rows["unit"] == "client (all data of one client)"
    assert rows["neighbours"].startswith("replace_one") and rows["observer"].startswith("aggregate")
    assert rows["mechanism"].startswith("DP-FedAvg: ")
    assert rows["sampler"].endswith("(according to the Flower accountant state)")
    assert "tuning" in rows["covered runs"] and rows["formal statement"].startswith(
        "(3.488, 7e-05)"
    )
    facts = {"claim": (9.0, 1e-5), "adjacency": "zero_out"}
    tuned = fp.audit(RECORDS / "opacus_rdp.json", sampling="poisson", trials=4, **facts)
    rows = dict(rows_of(tuned))
    assert "4 runs on the same data, as stated by the user" in rows["covered runs"]
    assert rows["sampler"].endswith("(as stated but not recorded)")


# ---- conditions


def a_ledger(path, close=True, adjacency="zero_out", denominator=5.0, **facts):
    step = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.2))
    given = {"unit": "client", "adjacency": adjacency, "claim": (9.0, 1e-5)}
    with fp.Ledger.create(path, **given, **facts) as ledger:
        for _ in range(3):
            number = ledger.intent(step, clip_norm=1.0, noise_std=2.0)
            more = {} if denominator is None else {"denominator": denominator}
            ledger.done(number, noise_std=2.0, cohort=3, arrived=3, refused=0, **more)
        if close:
            ledger.close()
    return fp.audit(path)


CONDITIONS = {
    "no denominators": (
        {"adjacency": "add_remove", "denominator": None},
        ["valid only if denominators do not depend on the data"],
    ),
    "open and seeded": (
        {"close": False, "seed_policy": "fixed"},
        [
            "valid for the recorded rounds only",
            "valid only against attackers who do not know the seed",
        ],
    ),
}


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("what", CONDITIONS)
def test_every_condition_stands_beside_every_number(what, tmp_path):
    given, words = CONDITIONS[what]
    found = a_ledger(tmp_path / "a.ledger", **given)
    told = ", ".join(words)
    assert found.verdict == "CANNOT BE CERTIFIED" and list(found.conditions) == words
    assert dict(rows_of(found))["formal statement"].endswith(told)
    page = fp.report({"a": found}, tmp_path / "a.html").read_text()
    text = fp.report({"a": found}, tmp_path / "a.md").read_text()
    for form, least in ((page, 8), (text, 4)):
        assert form.count(told) >= least and " is left" not in form
        assert "remaining epsilon (lower end)" not in form and "Epsilon by round" in form
    data = json.loads(fp.report({"a": found}, tmp_path / "a.json").read_text())
    assert data["further_rounds"]["a"] is None


# ---- the recorded run


def test_rounds_of_several_sums_are_told_with_their_noise():
    facts = {"claim": (9.0, 1e-5), "adjacency": "zero_out", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus_rdp.json", steps_per_round=5, **facts)
    assert dict(rows_of(found))["mechanism"].startswith("5 times the sum of clipped contrib")


SAID = {"adjacency": "add_remove", "claim": (8.0, 1e-5)}


def test_a_unit_is_said_where_the_record_does_not_say_it():
    silent = fp.audit(trace(ONE), **SAID)
    assert silent.facts.unit is None and "unit not stated" in str(silent)
    found = fp.audit(trace(ONE), unit="record", **SAID)
    assert found.facts.unit is fp.Unit.RECORD and "record level" in str(found)
    assert found.stated["unit"] == "record" and found.run.protects is fp.Unit.RECORD
    assert found.bound.upper == silent.bound.upper
    # A recorded fact is recorded, even if the user also states it.
    assert "unit" not in fp.audit(trace(ONE, unit=fp.Unit.CLIENT), unit="client", **SAID).stated
    described = fp.audit(DESCRIBED, unit="client", **SAID)
    assert described.facts.unit is fp.Unit.CLIENT
    # The statement names the source of each fact.
    recorded = fp.audit(trace(ONE, unit=fp.Unit.RECORD), **SAID)
    told = [dict(rows_of(one))["unit"] for one in (silent, found, recorded)]
    assert told == ["not stated", "record, as stated but not recorded", "record"]
