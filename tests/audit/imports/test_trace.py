"""Every field of a trace is checked where the trace is made, whichever importer makes it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.audit.imports import Denominator, Origin, Rounds, Sampling, Stated, Trace
from fedprivacy.audit.imports.trace import multiplier_of
from fedprivacy.relations import Adjacency, Observer, Unit

LOG = Origin("log")
ROUND = Rounds(1.1, rate=256 / 60_000)
STATED = {"sampling": "poisson", "adjacency": "add_remove"}


@pytest.mark.parametrize(
    "count", [-2350, 0, 2350.5, 2350.0, True, False, np.True_, "2350", None, math.nan, np.ones(1)]
)
def test_a_number_of_rounds_that_is_none_is_refused_by_name(count):
    with pytest.raises(fp.ParameterError, match=r"^rounds must be an integer of at least 1"):
        Trace(LOG, ((ROUND, count),))


def test_rounds_cannot_be_taken_away():
    with pytest.raises(fp.ParameterError, match=r"^rounds must be .* got -2340"):
        Trace(LOG, ((ROUND, 2350), (ROUND, -2340)))


@pytest.mark.parametrize("count", [10, np.int64(10), np.uint8(10)])
def test_integers_of_any_type_are_counted(count):
    trace = Trace(LOG, ((ROUND, count),))
    assert trace.rounds == ((ROUND, 10),) and type(trace.rounds[0][1]) is int
    wanted = fp.epsilon(
        fp.Gaussian(noise_multiplier=1.1).sampled(fp.Poisson(256 / 60_000)) * 10,
        delta=1e-5,
        adjacency="add_remove",
    )
    found = fp.audit(trace, claim=(2.0, 1e-5), **STATED)
    assert found.rounds == 10 and found.bound.upper == wanted.upper


WRONG_ROUNDS = {
    "noise_multiplier": [-1.0, math.nan, math.inf, "1.1", True, None],
    "sampling": ["uniform", 3],
    "cohort": [-1, 2.5, True, "5"],
    "population": [0, -5, 10.0, True, "5"],
    "steps_per_round": [0, -1, 1.5, True],
    "missing_shares": [-1, 0.5, True],
    "partial": [1, None, "no"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_ROUNDS.items() for value in values]
)
def test_a_field_of_rounds_that_breaks_its_rule_is_refused_by_name(name, value):
    with pytest.raises(fp.ParameterError, match=rf"^{name} must "):
        replace(ROUND, **{name: value})


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, math.nan, True, "0.1"])
def test_a_rate_is_a_probability(rate):
    with pytest.raises(fp.ParameterError, match=r"^sampling_probability must "):
        Rounds(1.0, rate=rate)


@pytest.mark.parametrize("length", [0, -3, 2.5, True])
def test_a_length_of_an_epoch_is_whole(length):
    with pytest.raises(fp.ParameterError, match=r"^rounds_per_epoch must be an integer of at"):
        Rounds(1.0, per_epoch=length)


WRONG_TRACES = {
    "origin": ["log", None],
    "rounds": [((1.1, 10),), (ROUND,), 5, (ROUND, 10)],
    "unit": ["person"],
    "adjacency": ["near"],
    "observer": ["nobody"],
    "denominator": ["mean"],
    "claim": [(1.0,), 8.0, "8"],
    "sensitivity": [0.0, -1.0, "1"],
    "trials": [0, -1, 1.5, True],
    "by_round": [1, "yes"],
    "ordered": [0, None],
    "other_facts": [{"a": 1}, "text", {1: "a"}],
    "missing": ["a gap", [1], (1,)],
    "half": [{"epsilon": 1.0, "delta": 1e-5}, {"claim": 1.0}, 1e-5],
    "norms": [{"round": {1.0: 3}}],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_TRACES.items() for value in values]
)
def test_a_field_of_a_trace_that_breaks_its_rule_is_refused_by_name(name, value):
    given = {"origin": LOG, "rounds": ((ROUND, 10),)} | {name: value}
    with pytest.raises(fp.ParameterError, match=rf"^{name} must "):
        Trace(**given)


@pytest.mark.parametrize(
    ("claim", "name"),
    [((-1.0, 1e-5), "epsilon"), ((math.inf, 1e-5), "epsilon"), ((math.nan, 1e-5), "epsilon")]
    + [((1.0, delta), "delta") for delta in (-1e-5, 1.0, 2.0, math.nan)],
)
def test_a_claim_of_a_trace_promises_something(claim, name):
    with pytest.raises(fp.ParameterError, match=rf"^{name} must "):
        Trace(LOG, ((ROUND, 10),), claim=claim)


def test_norms_are_counted_by_their_rounds():
    for norms in ({ROUND: {0.0: 3}}, {ROUND: {1.0: 0}}, {ROUND: {1.0: 2.5}}):
        with pytest.raises(fp.ParameterError, match=r"^(clip_norm|rounds) must "):
            Trace(LOG, ((ROUND, 10),), norms=norms)


def test_a_trace_holds_rounds_or_a_run():
    with pytest.raises(
        fp.ParameterError, match=r"^rounds, run must be given one without the other"
    ):
        Trace(LOG)
    run = lambda adjacency: fp.Gaussian(noise_multiplier=1.0)  # noqa: E731
    with pytest.raises(
        fp.ParameterError, match=r"^rounds, run must be given one without the other"
    ):
        Trace(LOG, ((ROUND, 1),), run=run)
    nothing = Trace(LOG, run=lambda adjacency: None)
    with pytest.raises(fp.ParameterError, match=r"^run must return a mechanism, got 'NoneType'"):
        fp.audit(nothing, claim=(1.0, 1e-5), adjacency="zero_out")


def test_names_become_what_they_name():
    trace = Trace(
        LOG,
        ((Rounds(1, sampling="poisson", rate=0.5, cohort=np.int32(5)), 2),),
        unit="client",
        adjacency="zero_out",
        observer="server",
        denominator="public",
        claim=[8, 1e-5],
    )
    (rounds, _) = trace.rounds[0]
    assert (rounds.sampling, rounds.cohort) == (Sampling.POISSON, 5)
    assert (trace.unit, trace.adjacency) == (Unit.CLIENT, Adjacency.ZERO_OUT)
    assert (trace.observer, trace.denominator) == (Observer.SERVER, Denominator.PUBLIC)
    assert trace.claim == (8.0, 1e-5)


BOUNDED = settings(derandomize=True, max_examples=80, deadline=None)
# Noise of a record

NOISE = {
    "nothing": ((None, None, None), "noise_multiplier of round 3 must be recorded, or noise_std"),
    "half of a ratio": ((None, 2.0, None), "clip_norm of round 3 must be recorded with noise_std"),
    "no clip norm": ((None, 2.0, 0.0), "clip_norm must be a finite number above 0, got 0.0"),
    "less than none": ((None, -1.0, 1.0), "noise_std must be a finite number of at least 0"),
    "too little": ((None, 5e-324, 1e10), "noise_multiplier must be a finite number above 0"),
    "no multiplier": ((math.inf, None, None), "noise_multiplier must be a finite number of at"),
}


@pytest.mark.parametrize("what", NOISE)
def test_noise_is_told_whole_or_not_at_all(what):
    given, words = NOISE[what]
    with pytest.raises(fp.ParameterError) as caught:
        multiplier_of(*given, "round 3")
    assert str(caught.value).startswith(words)


@BOUNDED
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_either_way_of_telling_noise_is_one_number(multiplier, clip_norm):
    std = multiplier * clip_norm
    told = multiplier_of(multiplier, std, clip_norm, "round 1")
    assert told == std / clip_norm == multiplier_of(None, std, clip_norm, "round 1")
    assert multiplier_of(multiplier, None, clip_norm, "round 1") == multiplier
    with pytest.raises(fp.UnsupportedCombination) as caught:
        multiplier_of(multiplier * 1.001, std, clip_norm, "round 9")
    assert "round 9 has noise_multiplier" in str(caught.value)
    assert "record the one that is true" in str(caught.value)


def test_who_imported_it_is_kept():
    origin = Origin.imported("a log", "log.csv", "ff", by="Ada")
    assert origin.by == "Ada" and origin.at.endswith("+00:00")
    assert Origin.imported("a log").by.endswith(("(login name)", "not known"))


def test_what_was_said_is_told_in_words():
    said = Stated(adjacency="zero_out", sampling=fp.Poisson(0.5), trials=3)
    assert said.in_words() == {
        "adjacency": "zero_out",
        "sampling": "Poisson(probability=0.5)",
        "trials": "3",
    }
    assert Stated().in_words() == {}
