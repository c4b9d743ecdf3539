"""Traces of other programs: counted and completed rounds, and missing facts."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.audit.imports import Origin, Rounds, Sampling, Trace
from fedprivacy.audit.imports.passes import FALSE_DOUBT, ImportedRounds, Kind
from fedprivacy.audit.imports.trace import in_order

pytestmark = pytest.mark.usefixtures("narrowest")

BOUNDED = settings(derandomize=True, max_examples=80, deadline=None)
NOISES = (1.0, 2.0, 3.0)


def kind(noise, scheme, **known):
    return Kind(fp.Gaussian(noise_multiplier=noise).sampled(scheme), scheme, noise, **known)


def counted(groups, **facts):
    return ImportedRounds(tuple(groups), **facts).counted()


def odd_cohorts(groups, **facts):
    return ImportedRounds(tuple(groups), **facts).odd_cohorts()


groups = st.lists(st.tuples(st.sampled_from(NOISES), st.integers(1, 9)), min_size=1, max_size=5)


@BOUNDED
@given(groups, st.integers(1, 6), st.sampled_from([fp.Shuffled, fp.RandomAllocation]))
def test_a_unit_is_in_one_round_of_every_pass(found, length, scheme):
    """Cut into passes from the first round on; the worst round of each is the quietest."""
    found = list(in_order(found))
    noises = [noise for noise, times in found for _ in range(times)]
    passes = [noises[i : i + length] for i in range(0, len(noises), length)]
    most = Counter(min(each) for each in passes)
    whole = (each for each in passes if len(each) == length and len(set(each)) == 1)
    least = Counter(each[0] for each in whole)
    at_most, at_least = Counter(), Counter()
    for one, upper, lower in counted([(kind(z, scheme(length)), n) for z, n in found]):
        at_most[one.noise] += upper
        at_least[one.noise] += lower
    assert at_most == most and +at_least == least


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_between_other_rounds_a_pass_begins_anywhere(length):
    """Every place where the first pass may begin, tried; the other kind of rounds is certain."""
    drawn, other = fp.Shuffled(length), fp.Poisson(0.5)
    for times in range(1, 13):
        touched, contained = [], []
        for start in range(length):
            passes = Counter((start + i) // length for i in range(times))
            touched.append(len(passes))
            contained.append(sum(rounds == length for rounds in passes.values()))
        found = list(counted([(kind(2.0, drawn), times), (kind(2.0, other), 7)]))
        assert found[0][1:] == (max(touched), min(contained)), times
        assert found[1][1:] == (7, 7)


@BOUNDED
@given(st.lists(st.sampled_from(NOISES), min_size=1, max_size=6), st.integers(2, 4))
def test_of_unknown_order_the_worst_one_counts(noises, length):
    """Every order, cut into passes: none has quieter rounds, and one has just these."""
    found = [(kind(z, fp.Shuffled(length)), n) for z, n in Counter(noises).items()]
    made = counted(found, ordered=False)
    worst = sorted(z for one, most, _ in made for z in [one.noise] * most)
    orders = [
        sorted(min(order[i : i + length]) for i in range(0, len(order), length))
        for order in set(itertools.permutations(noises))
    ]
    assert worst in orders
    assert all(a <= b for order in orders for a, b in zip(worst, order, strict=True))


def test_rounds_drawn_one_by_one_count_as_often_as_they_ran():
    mixed = [(kind(z, fp.Poisson(0.1)), n) for z, n in ((1.0, 3), (2.0, 4), (1.0, 5))]
    assert [found[1:] for found in counted(mixed)] == [(3, 3), (4, 4), (5, 5)]


@BOUNDED
@given(st.lists(st.tuples(st.sampled_from(NOISES).map(Rounds), st.integers(1, 5)), max_size=8))
def test_neighbours_that_are_alike_stand_together_and_none_is_lost(found):
    joined = in_order(found)
    flat = [rounds for rounds, times in found for _ in range(times)]
    assert [rounds for rounds, times in joined for _ in range(times)] == flat
    assert all(one[0] != other[0] for one, other in itertools.pairwise(joined))


# Cohorts that do not fit

POISSON, EPOCH = fp.Poisson(0.1), fp.Shuffled(10)
OFTEN = "which is improbable for probability 0.1 and 1000"
LARGE = "a share of 0.2 where the sampling draws 0.1"
DOUBTED = {
    "more than there are": (
        (1, POISSON, {"cohort": 11, "population": 10}),
        "11 participants of 10",
    ),
    "a batch that is too long": (
        (1, EPOCH, {"cohort": 12, "population": 100}),
        "12 participants of 100 in one of 10 batches",
    ),
    "a share that is too large": ((1, POISSON, {"share": 0.2}), LARGE),
    "a share of an epoch": (
        (3, fp.RandomAllocation(10), {"share": 0.2, "population": 1000}),
        LARGE,
    ),
    "too many": (
        (1, POISSON, {"cohort": 200, "population": 1000}),
        f"200 to 200 participants, 400 in all of 2, {OFTEN}",
    ),
    "always too few": (
        (30, POISSON, {"cohort": 60, "population": 1000}),
        f"60 to 60 participants, 3600 in all of 60, {OFTEN}",
    ),
}


@pytest.mark.parametrize("what", DOUBTED)
def test_a_cohort_that_its_sampling_does_not_draw_is_told(what):
    (times, scheme, known), told = DOUBTED[what]
    one = kind(1.0, scheme, **known)
    assert odd_cohorts([(one, times), (one, times)]) == (told,)


@pytest.mark.parametrize(
    "one",
    [
        kind(1.0, fp.Poisson(0.1), share=0.1009),
        kind(1.0, fp.Poisson(0.1), share=0.05),
        kind(1.0, fp.Poisson(0.1), cohort=101, population=1000),
        kind(1.0, fp.Shuffled(10), cohort=11, population=100),
        kind(1.0, fp.FixedSize(5, population=10), cohort=5, population=10),
        kind(1.0, fp.Poisson(0.1), cohort=900),
        kind(1.0, fp.Everyone(), cohort=10, population=10),
    ],
    ids=range(7),
)
def test_a_slip_of_the_last_digit_is_no_doubt(one):
    assert odd_cohorts([(one, 50)]) == ()


def test_the_doubt_grows_with_what_was_seen():
    """A cohort of 130 where 100 are drawn: one is luck, a hundred are not."""
    one = kind(1.0, fp.Poisson(0.1), cohort=130, population=1000)
    assert odd_cohorts([(one, 1)]) == ()
    assert odd_cohorts([(one, 100)]) != ()
    assert 0.0 < FALSE_DOUBT < 1e-6


def trace(*rounds, **more):
    return Trace(Origin("log"), tuple((one, 3) for one in rounds), **more)


# Sources


@pytest.mark.parametrize("source", [3, None, fp.Poisson(0.1), fp.Gaussian], ids=repr)
def test_what_cannot_be_accounted_is_told_what_can(source):
    with pytest.raises(fp.ParameterError) as caught:
        fp.account(source, delta=1e-5, adjacency="zero_out")
    assert str(caught.value) == (
        f"source must be a mechanism or the record of a run, got {type(source).__name__!r}; pass "
        "a mechanism, a ledger, a dp-accounting event, or the path of a file"
    )


# ---- whose data is one unit

ONE = Rounds(noise_multiplier=2.0, sampling=Sampling.POISSON, rate=0.1)
SAID = {"adjacency": "add_remove", "claim": (8.0, 1e-5)}


@pytest.mark.parametrize(
    ("source", "unit", "told"),
    [
        (trace(ONE, unit=fp.Unit.CLIENT), "record", "unit must be client, as the log says"),
        (trace(ONE), "house", "unit must be one of 'client' or 'record', got 'house'"),
        (fp.Gaussian(noise_multiplier=2.0), "client", "unit must be left out, got 'client'; a mec"),
        (
            trace(replace(ONE, sampling=Sampling.FIXED, cohort=5, population=50)),
            "record",
            "missing_shares must be left out if the unit is a record",
        ),
    ],
)
def test_a_unit_that_the_record_denies_is_refused(source, unit, told):
    shares = {"missing_shares": 1} if told.startswith("missing") else {}
    with pytest.raises(fp.ParameterError, match=re.escape(told)):
        fp.audit(source, unit=unit, **shares, **SAID)
