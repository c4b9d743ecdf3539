"""Traces of other programs: how a unit's rounds are counted, completed, and asked for."""

import itertools
import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.audit.imports import Denominator, Origin, Rounds, Sampling, Stated, Trace, assemble
from fedprivacy.audit.imports.passes import FALSE_DOUBT, Course, Kind
from fedprivacy.audit.imports.trace import in_order, multiplier_of
from fedprivacy.audit.statement import rows_of
from fedprivacy.errors import ConversionError, LedgerError
from fedprivacy.relations import Adjacency

BOUNDED = settings(derandomize=True, max_examples=80, deadline=None)
NOISES = (1.0, 2.0, 3.0)


def kind(noise, scheme, **known):
    return Kind(fp.Gaussian(noise_multiplier=noise).sampled(scheme), scheme, noise, **known)


def counted(groups, **facts):
    return Course(tuple(groups), **facts).counted()


def odd_cohorts(groups, **facts):
    return Course(tuple(groups), **facts).odd_cohorts()


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


# What is asked for, and what is refused

PLAIN = Rounds(2.0)
WHOLE = Rounds(2.0, sampling=Sampling.POISSON, rate=0.25, cohort=25, population=100)
FIXED = Rounds(2.0, sampling=Sampling.FIXED, rate=0.25, cohort=25, population=100)


def trace(*rounds, **more):
    return Trace(Origin("log"), tuple((one, 3) for one in rounds), **more)


def price(rounds, times, scheme, **more):
    return (fp.Gaussian(noise_multiplier=2.0, **more).sampled(scheme)) * times


BUILT = {
    "poisson": (
        {"sampling": "poisson"},
        replace(PLAIN, rate=0.25),
        price(PLAIN, 3, fp.Poisson(0.25)),
    ),
    "a fixed size by its cohort": (
        {"sampling": "fixed", "population": 100},
        replace(PLAIN, cohort=25),
        price(PLAIN, 3, fp.FixedSize(25, population=100)),
    ),
    "a fixed size by its share": (
        {"sampling": "fixed", "population": 100},
        replace(PLAIN, rate=0.25000000001),
        price(PLAIN, 3, fp.FixedSize(25, population=100)),
    ),
    "with replacement, by an underscore": (
        {"sampling": "with_replacement", "population": 100},
        replace(PLAIN, cohort=25),
        price(PLAIN, 3, fp.WithReplacement(25, population=100)),
    ),
    "a pass by its share": (
        {"sampling": "shuffled"},
        replace(PLAIN, rate=1 / 3),
        price(PLAIN, 1, fp.Shuffled(3)),
    ),
    "a pass by its cohort": (
        {"sampling": "allocation"},
        replace(PLAIN, cohort=50, population=100),
        # Three rounds of passes of two: the second pass counts, too.
        price(PLAIN, 2, fp.RandomAllocation(2)),
    ),
    "everyone": ({"sampling": "everyone"}, PLAIN, price(PLAIN, 3, fp.Everyone())),
    "a scheme": (
        {"sampling": fp.TruncatedPoisson(0.25, population=100, largest=40)},
        PLAIN,
        price(PLAIN, 3, fp.TruncatedPoisson(0.25, population=100, largest=40)),
    ),
}


@pytest.mark.parametrize("what", BUILT)
def test_what_is_stated_completes_what_is_recorded(what):
    said, rounds, wanted = BUILT[what]
    made = assemble(trace(rounds), Stated(**said))
    assert made.run == wanted * 1
    assert made.contradictions == () and not made.follows
    assert set(made.granted) == {"steps_per_round", "missing_shares", "denominator", "trials"}


def test_several_sums_and_lost_shares_are_priced_together():
    said = Stated(sampling="fixed", steps_per_round=4, missing_shares=9, trials=2)
    made, cohort = assemble(trace(FIXED), said), fp.FixedSize(25, population=100)
    # 16 of 25 shares are left, which is a mechanism with conditions of its own.
    quiet = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=1, dimension=1, cohort=25, missing=9
    )
    assert quiet.sum_multiplier == 2.0 * 0.8
    assert made.run == (quiet * 4).sampled(cohort) * 6
    assert made.certain == (quiet * 4).sampled(cohort) * 3
    assert made.granted.keys() == {"denominator"}
    # Without one of these statements the same record is priced lower, each in its own way.
    assert made.careless == {
        "steps_per_round": quiet.sampled(cohort) * 6,
        "missing_shares": (fp.Gaussian(noise_multiplier=2.0) * 4).sampled(cohort) * 6,
        "trials": (quiet * 4).sampled(cohort) * 3,
    }
    with pytest.raises(fp.UnsupportedCombination):
        assemble(trace(WHOLE), Stated(missing_shares=9))


def test_what_is_stated_against_the_record_is_told_by_name():
    rounds = replace(WHOLE, steps_per_round=2, missing_shares=1)
    said = Stated(
        sampling="fixed",
        population=200,
        steps_per_round=3,
        missing_shares=0,
        denominator="realised",
        trials=5,
    )
    known = trace(rounds, denominator=Denominator.PUBLIC, trials=1)
    made = assemble(known, said)
    assert set(made.contradictions) == {
        "sampling is poisson in the record; fixed was stated and counts",
        "population is 100 in the record; 200 was stated and counts",
        "steps_per_round is 2 in the record; 3 was stated and counts",
        "missing_shares is 1 in the record; 0 was stated and counts",
        "denominator is public in the record; realised was stated and counts",
        "trials is 1 in the record; 5 was stated and counts",
    }
    assert made.follows and made.run.sequence()[0][1] == 15
    same = Stated(sampling="poisson", population=100, denominator="public", trials=1)
    alike = trace(replace(rounds, missing_shares=None), denominator=Denominator.PUBLIC, trials=1)
    assert assemble(alike, same).contradictions == ()


def test_a_scheme_of_a_smaller_share_is_told_and_of_a_larger_one_is_not():
    record = trace(replace(PLAIN, rate=0.25))
    less, more = (assemble(record, Stated(sampling=fp.Poisson(q))) for q in (0.2, 0.3))
    assert less.contradictions == (
        "a round has a share of 0.25 in the record, 0.2 as was stated, which counts",
    )
    assert more.contradictions == ()
    # An epoch's share is one over its rounds.
    epoch = assemble(record, Stated(sampling=fp.Shuffled(5)))
    assert len(epoch.contradictions) == 1 and "0.2 as was stated" in epoch.contradictions[0]
    assert assemble(record, Stated(sampling=fp.Shuffled(4))).contradictions == ()


class Odd:
    """A scheme of somebody's own, of which a record knows no facts."""

    rate = 0.5
    amplify = group = draw = visible = None


ASKED = {
    "no sampling": (
        (trace(PLAIN), {}),
        "sampling must be stated, got None; the record does not say how units were drawn; one of "
        "poisson, fixed, shuffled, with-replacement, allocation, everyone",
    ),
    "a sampling of another name": (
        (trace(PLAIN), {"sampling": "uniform"}),
        "sampling must be one of 'poisson', 'fixed', 'shuffled', 'with-replacement', 'allocation' "
        "or 'everyone', got 'uniform'",
    ),
    "a sampling that is a number": (
        (trace(PLAIN), {"sampling": 0.1}),
        "sampling must be a name or a sampling scheme, got 0.1; pass 'poisson', for instance, or a "
        "scheme such as fp.Poisson(0.01)",
    ),
    "no probability": (
        (trace(replace(PLAIN, cohort=5, population=10)), {"sampling": "poisson"}),
        "sampling_probability must be known for Poisson sampling, got None; the size of a cohort "
        "that was drawn is not its probability: pass sampling=fp.Poisson(...) "
        "(--sampling-probability), or record sampling_probability",
    ),
    "no population": (
        (trace(replace(PLAIN, cohort=5)), {"sampling": "fixed"}),
        "population must be stated for sampling='fixed', got None; the record does not say how "
        "many units there are",
    ),
    "no population to draw again": (
        (trace(replace(PLAIN, cohort=5)), {"sampling": "with-replacement"}),
        "population must be stated for sampling='with-replacement', got None; the record does",
    ),
    "no cohort": (
        (trace(PLAIN), {"sampling": "fixed", "population": 10}),
        "cohort must be a whole number of at least 1, got None; say the size: pass "
        "sampling=fp.FixedSize(size, population=...) (--cohort), or record cohort",
    ),
    "a share that is no cohort": (
        (trace(replace(PLAIN, rate=0.25)), {"sampling": "fixed", "population": 10}),
        "cohort must be a whole number of at least 1, got 2.5; say the size",
    ),
    "a share of nobody": (
        (trace(replace(PLAIN, rate=1e-12)), {"sampling": "with-replacement", "population": 10}),
        "cohort must be a whole number of at least 1, got 1e-11; say the size",
    ),
    "no length of a pass": (
        (trace(PLAIN), {"sampling": "shuffled"}),
        "rounds_per_epoch must be a whole number, got None; pass "
        "sampling=fp.Shuffled(rounds_per_epoch=...) (--rounds-per-epoch), for instance",
    ),
    "a share that is no pass": (
        (trace(replace(PLAIN, rate=0.4)), {"sampling": "allocation"}),
        "rounds_per_epoch must be a whole number, got 2.5; pass",
    ),
    "a share without an inverse": (
        (trace(replace(PLAIN, rate=5e-324)), {"sampling": "shuffled"}),
        "rounds_per_epoch must be a whole number, got inf; pass",
    ),
    "a population of nobody": (
        (trace(WHOLE), {"population": 0}),
        "population must be an integer of at least 1, got 0",
    ),
    "sums that are none": (
        (trace(WHOLE), {"steps_per_round": 0}),
        "steps_per_round must be an integer of at least 1, got 0",
    ),
    "shares below none": (
        (trace(WHOLE), {"missing_shares": -1}),
        "missing_shares must be an integer of at least 0, got -1",
    ),
    "all shares": (
        (trace(WHOLE), {"missing_shares": 25}),
        "missing_shares must be less than the cohort of 25, got 25; no noise is left otherwise",
    ),
    "shares of whom": (
        (trace(replace(WHOLE, cohort=None)), {"missing_shares": 2}),
        "cohort must be known with missing_shares, got None; pass sampling=fp.FixedSize(cohort, "
        "population=...) (--cohort), or record cohort",
    ),
    "trials that are half": (
        (trace(WHOLE), {"trials": 1.5}),
        "trials must be an integer of at least 1, got 1.5",
    ),
    "a denominator of another name": (
        (trace(WHOLE), {"denominator": "mean"}),
        "denominator must be one of 'public' or 'realised', got 'mean'",
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_fact_that_is_missing_or_wrong_is_asked_for_by_name(what):
    (record, said), words = ASKED[what]
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit(record, claim=(1.0, 1e-5), adjacency="zero_out", **said)
    assert str(caught.value).startswith(words), str(caught.value)


def test_a_scheme_that_no_record_knows_is_told_those_that_it_does():
    from fedprivacy.sampling import TableScheme

    class Mine(TableScheme):
        name, rate = "mine", 0.5

    for scheme in (Mine(), Odd()):
        with pytest.raises(fp.ParameterError) as caught:
            assemble(trace(WHOLE), Stated(sampling=scheme))
        told = str(caught.value)
        assert told.startswith("sampling must be ") and "Poisson" in told
    assert "WithReplacement" in str(caught.value) or "fp.Poisson(0.01)" in str(caught.value)


DESCRIBED = trace(run=lambda adjacency: fp.Gaussian(noise_multiplier=2.0) * 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("sampling", "poisson"), ("population", 9), ("steps_per_round", 4), ("missing_shares", 1)],
)
def test_what_a_whole_description_says_is_not_said_again(name, value):
    with pytest.raises(fp.ParameterError) as caught:
        assemble(DESCRIBED, Stated(**{name: value}))
    assert str(caught.value) == (
        f"{name} must be left out, got {str(value)!r}; the log says how units were drawn, what "
        "of them was released, and the noise"
    )


def test_a_described_run_has_its_trials():
    made = assemble(DESCRIBED, Stated(trials=5))
    one = fp.Gaussian(noise_multiplier=2.0)
    assert made.run == one * 15 and made.certain == one * 3
    assert made.careless == {"trials": one * 3}


def test_a_described_run_is_asked_under_its_own_adjacency():
    seen = []

    def run(adjacency):
        seen.append(adjacency)
        return fp.Gaussian(noise_multiplier=2.0)

    assemble(trace(run=run), Stated(adjacency="zero_out"))
    assemble(trace(run=run, adjacency=Adjacency.REPLACE_ONE), Stated(adjacency="zero_out"))
    assert set(map(str, seen)) == {"zero_out", "replace_one"} and str(seen[-1]) == "replace_one"


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


# Sources


@pytest.mark.parametrize("source", [3, None, fp.Poisson(0.1), fp.Gaussian], ids=repr)
def test_what_cannot_be_accounted_is_told_what_can(source):
    with pytest.raises(fp.ParameterError) as caught:
        fp.account(source, delta=1e-5, adjacency="zero_out")
    assert str(caught.value) == (
        f"source must be a source that can be accounted, got {type(source).__name__!r}; pass "
        "a mechanism, a ledger, a dp-accounting event, or the path of a file"
    )


class Alike:
    """Something with an event's method."""

    def to_named_tuple(self):
        return None


def test_only_dp_accountings_own_events_are_understood():
    with pytest.raises(ConversionError, match="a Alike cannot be read"):
        fp.account(Alike(), delta=1e-5, adjacency="zero_out")


@pytest.mark.parametrize(
    "said",
    [
        {"sampling": "poisson"},
        {"population": 9},
        {"steps_per_round": 2},
        {"missing_shares": 1},
        {"denominator": "public"},
        {"trials": 4},
    ],
    ids=lambda said: next(iter(said)),
)
def test_a_mechanism_and_a_ledger_say_it_themselves(said, tmp_path):
    step = fp.Gaussian(noise_multiplier=2.0, unit="client")
    path = tmp_path / "run.ledger"
    with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
        ledger.intent(step, clip_norm=1.0, noise_std=2.0)
    ((name, value),) = said.items()
    for source, what in ((step, "a mechanism"), (path, "a ledger"), (fp.Ledger.open(path),) * 2):
        with pytest.raises(fp.ParameterError) as caught:
            fp.audit(source, claim=(9.0, 1e-5), adjacency="zero_out", **said)
        what = "a ledger" if isinstance(what, fp.Ledger) else what
        told = f"{name} must be left out, got {str(value)!r}; {what} states it"
        assert str(caught.value) == told


CLAIMS = {
    "one number": (8.0, "claim must be a pair (epsilon, delta), got 8.0"),
    "three numbers": ((1, 2, 3), "claim must be a pair (epsilon, delta), got (1, 2, 3)"),
    "an epsilon below 0": ((-1.0, 1e-5), "epsilon must be a finite number of at least 0, got -1.0"),
    "an epsilon that is none": ((math.nan, 1e-5), "epsilon must be a finite number of at least 0"),
    "a delta above 1": ((1.0, 1.5), "delta must be at least 0 and below 1, got 1.5; at delta = 1 "),
    "a delta of 1": ((1.0, 1), "delta must be at least 0 and below 1, got 1; at delta = 1 every "),
    "half of it": ((1.0, None), "claim must be (epsilon, delta), got (1.0, None); its delta is "),
    "texts": (("8", 1e-5), "epsilon must be a finite number of at least 0, got '8'; pass a number"),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_is_two_numbers(what):
    claim, words = CLAIMS[what]
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit(fp.Gaussian(noise_multiplier=1.0), claim=claim, adjacency="zero_out")
    assert str(caught.value).startswith(words)


def test_a_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(LedgerError) as caught:
        imports.read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} is not a file; name a ledger or another record of a run"
    )
    nowhere = tmp_path / "nowhere.csv"
    for call in (lambda: imports.read(nowhere), lambda: fp.audit(nowhere, claim=(1.0, 1e-5))):
        with pytest.raises(LedgerError) as caught:
            call()
        assert str(caught.value) == f"{nowhere}: could not read it: No such file or directory"


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


# ---- whose data is one unit

ONE = Rounds(noise_multiplier=2.0, sampling=Sampling.POISSON, rate=0.1)
SAID = {"adjacency": "add_remove", "claim": (8.0, 1e-5)}


def test_a_unit_is_said_where_the_record_does_not_say_it():
    silent = fp.audit(trace(ONE), **SAID)
    assert silent.facts.unit is None and "unit not stated" in str(silent)
    found = fp.audit(trace(ONE), unit="record", **SAID)
    assert found.facts.unit is fp.Unit.RECORD and "record level" in str(found)
    assert found.stated["unit"] == "record" and found.run.protects is fp.Unit.RECORD
    assert found.bound.upper == silent.bound.upper
    # What the record says is recorded, whoever says it as well.
    assert "unit" not in fp.audit(trace(ONE, unit=fp.Unit.CLIENT), unit="client", **SAID).stated
    described = fp.audit(DESCRIBED, unit="client", **SAID)
    assert described.facts.unit is fp.Unit.CLIENT
    # The statement says who says so, beside it.
    recorded = fp.audit(trace(ONE, unit=fp.Unit.RECORD), **SAID)
    told = [dict(rows_of(one))["unit"] for one in (silent, found, recorded)]
    assert told == ["not stated", "record, as stated but not recorded", "record"]


@pytest.mark.parametrize(
    ("source", "unit", "told"),
    [
        (trace(ONE, unit=fp.Unit.CLIENT), "record", "unit must be client, as the log says"),
        (trace(ONE), "house", "unit must be one of 'client' or 'record', got 'house'"),
        (fp.Gaussian(noise_multiplier=2.0), "client", "unit must be left out, got 'client'; a mec"),
        (
            trace(replace(ONE, sampling=Sampling.FIXED, cohort=5, population=50)),
            "record",
            "missing_shares must be left out where a unit is a record",
        ),
    ],
)
def test_a_unit_that_the_record_denies_is_refused(source, unit, told):
    shares = {"missing_shares": 1} if told.startswith("missing") else {}
    with pytest.raises(fp.ParameterError, match=re.escape(told)):
        fp.audit(source, unit=unit, **shares, **SAID)


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    for content in ("", "\n \n", "\ufeff\n"):
        (tmp_path / "rounds.csv").write_text(content)
        with pytest.raises(ConversionError, match=r"rounds\.csv: empty; name the record of a run"):
            fp.audit(tmp_path / "rounds.csv", claim=(1.0, 1e-5))
