"""Tests of ``fedprivacy.audit.imports.assembling``."""

import random
import re
from dataclasses import replace

import pytest

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.audit.imports import Denominator, Rounds, Sampling, Stated, assemble
from fedprivacy.audit.imports.assembling import options_of
from fedprivacy.errors import FedPrivacyError
from fedprivacy.relations import Adjacency
from tests.audit.imports.test_content import asked
from tests.audit.imports.test_passes import trace
from tests.common import RECORDS

SMALL = (1e-9, 1e-12)
"""A claim that not one round of any mutated record below can keep."""


def mutated(text, random):
    """Change a text in a few places, without writing a digit or an exponent that was not there."""
    for _ in range(random.randint(1, 3)):
        a = random.randrange(len(text) + 1)
        b = min(len(text), a + random.choice([1, 1, 2, 5, 40]))
        kind = random.randrange(5)
        if kind == 0:
            text = text[:a] + text[b:]
        elif kind == 1:
            text = text[:b] + text[a:b] + text[b:]
        elif kind == 2:
            text = text[:a] + random.choice('{}[],:"\n =#abcx\x00\ufffd') + text[a:]
        elif kind == 3:
            text = text[:a]
        else:
            c = random.randrange(len(text) + 1)
            text = text[:a] + text[c : c + 20] + text[b:]
    return text


@pytest.mark.parametrize("mutations", [40, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", ["opacus_rdp.json", "flower.json", "event.json", "event_list.json", "fixed.csv", "toml"]
)
def test_mutated_records_raise_our_errors_and_never_read_as_less_than_one_round(
    name, mutations, tmp_path
):
    """No traceback, no hang; whatever is still read has noise and rounds.

    A record that is read must price at least one whole round with the noise that it states, so
    that a claim which one quiet round breaks can never hold.
    """
    text = (
        "noise_multiplier = 1.4\nrounds = 180\nsampling = 'fixed'\ncohort = 100\n"
        "population = 6000\nadjacency = 'zero_out'\n"
        if name == "toml"
        else "\n".join((RECORDS / name).read_text().splitlines()[:30])
    )
    chance = random.Random(15)
    path = tmp_path / "a"
    read = 0
    for _ in range(mutations):
        path.write_text(mutated(text, chance), encoding="utf-8", errors="replace")
        try:
            record = imports.read(path)
            facts = {"sampling": None if name != "opacus_rdp.json" else "poisson"}
            if name.startswith("event"):
                facts = {}
            made = imports.assemble(record, imports.Stated(**facts))
        except FedPrivacyError:
            continue
        read += 1
        parts = made.run.sequence()
        assert parts and all(count >= 1 for _, count in parts)
        quietest = max(
            float(number)
            for number in [*re.findall(r"[0-9.]+(?:e[-+]?\d+)?", path.read_text()), "1"]
            if number.strip(".") and number.count(".") < 2
        )
        for part, _ in parts:
            inner = getattr(part, "inner", part)
            assert 0 < inner.traits.sum_multiplier <= quietest
        if read % 25 == 1:
            assert fp.audit(record, **asked(name)).verdict != "HOLDS"
    assert read > 0 and fp.audit(path_of(name, text, tmp_path), **asked(name)).verdict == "FAILS"


def path_of(name, text, folder):
    path = folder / f"whole-{name}"
    path.write_text(text)
    return path


# Requested facts, and refusals

PLAIN = Rounds(2.0)
WHOLE = Rounds(2.0, sampling=Sampling.POISSON, rate=0.25, cohort=25, population=100)
FIXED = Rounds(2.0, sampling=Sampling.FIXED, rate=0.25, cohort=25, population=100)


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
    # 16 of 25 shares are left, which needs a mechanism with further conditions.
    quiet = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=1, dimension=1, cohort=25, missing=9
    )
    assert quiet.traits.sum_multiplier == 2.0 * 0.8
    assert made.run == (quiet * 4).sampled(cohort) * 6
    assert made.certain == (quiet * 4).sampled(cohort) * 3
    assert made.granted.keys() == {"denominator"}
    # Without one of these statements the same record is priced lower, each in its own way.
    assert made.run_without == {
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
    """A user-defined scheme; no record knows its facts."""

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
        "sampling must be a name or a sampling scheme, got 0.1; pass 'poisson', for example, or a "
        "scheme such as fp.Poisson(0.01)",
    ),
    "no probability": (
        (trace(replace(PLAIN, cohort=5, population=10)), {"sampling": "poisson"}),
        "sampling_probability must be known for Poisson sampling, got None; the size of a drawn "
        "cohort is not a probability; pass sampling=fp.Poisson(...) "
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
        "cohort must be an integer of at least 1, got None; state the size: pass "
        "sampling=fp.FixedSize(size, population=...) (--cohort), or record cohort",
    ),
    "a share that is no cohort": (
        (trace(replace(PLAIN, rate=0.25)), {"sampling": "fixed", "population": 10}),
        "cohort must be an integer of at least 1, got 2.5; state the size",
    ),
    "a share of nobody": (
        (trace(replace(PLAIN, rate=1e-12)), {"sampling": "with-replacement", "population": 10}),
        "cohort must be an integer of at least 1, got 1e-11; state the size",
    ),
    "no length of a pass": (
        (trace(PLAIN), {"sampling": "shuffled"}),
        "rounds_per_epoch must be an integer, got None; pass "
        "sampling=fp.Shuffled(rounds_per_epoch=...) (--rounds-per-epoch), for example",
    ),
    "a share that is no pass": (
        (trace(replace(PLAIN, rate=0.4)), {"sampling": "allocation"}),
        "rounds_per_epoch must be an integer, got 2.5; pass",
    ),
    "a share without an inverse": (
        (trace(replace(PLAIN, rate=5e-324)), {"sampling": "shuffled"}),
        "rounds_per_epoch must be an integer, got inf; pass",
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
        f"{name} must be left out, got {str(value)!r}; the log states the sampling, the "
        "released sums and the noise"
    )


def test_a_described_run_has_its_trials():
    made = assemble(DESCRIBED, Stated(trials=5))
    one = fp.Gaussian(noise_multiplier=2.0)
    assert made.run == one * 15 and made.certain == one * 3
    assert made.run_without == {"trials": one * 3}


def test_a_described_run_is_asked_under_its_own_adjacency():
    seen = []

    def run(adjacency):
        seen.append(adjacency)
        return fp.Gaussian(noise_multiplier=2.0)

    assemble(trace(run=run), Stated(adjacency="zero_out"))
    assemble(trace(run=run, adjacency=Adjacency.REPLACE_ONE), Stated(adjacency="zero_out"))
    assert set(map(str, seen)) == {"zero_out", "replace_one"} and str(seen[-1]) == "replace_one"


def test_the_command_of_an_allocation_names_all_of_its_rounds():
    assert options_of(fp.RandomAllocation(100, take=10)) == (
        "--sampling allocation --rounds-per-epoch 100 --take 10"
    )
