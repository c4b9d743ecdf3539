"""The explanation that an audit gives for a failing claim: a correct one, or none."""

import math
import random
import re

import pytest

import fedprivacy as fp
from fedprivacy.audit.diagnose import (
    CHANCE,
    ExplainedClaim,
    Windows,
    _last_digit,
    failing_assumptions,
    overcounts,
)
from fedprivacy.relations import Adjacency, Facts, Observer

pytestmark = pytest.mark.usefixtures("narrowest")

DELTA = 1e-5
NAMES = ("pld", "rdp", "advanced")
MATCHED = "would be the epsilon of"


def question(run, claim, adjacency="add_remove", found=None):
    """Return a claim about a run, with what every accountant certifies."""
    ask = {"delta": DELTA, "adjacency": adjacency}
    found = found or {name: fp.epsilon(run, accountant=name, **ask) for name in NAMES}
    facts = Facts(None, Adjacency(adjacency), Observer.AGGREGATE)
    return ExplainedClaim(run, facts, claim, found)


def poisson(noise, rate, rounds):
    return fp.Gaussian(noise_multiplier=noise).sampled(fp.Poisson(rate)) * rounds


def cut(value, digits):
    """Return a number without the digits that are not printed."""
    return math.floor(value * 10**digits) / 10**digits


# ---- a separate number explains no claim


def test_a_rounded_claim_is_not_blamed_on_an_adjacency():
    claim = {"claim": (0.75, 1e-5), "adjacency": "add_remove"}
    found = fp.audit(poisson(1.4, 0.0166667, 180), **claim)
    assert found.verdict == "FAILS"
    assert found.reasons[1].startswith("0.75 is the certified value rounded down (0.752274, PLD).")
    assert "zero_out" not in str(found.reasons) and MATCHED not in str(found.reasons)


def rounded_claims(runs):
    """Yield the reasons for claims that are the truth cut to two or three digits."""
    rng = random.Random(20261128)
    for _ in range(runs):
        run = poisson(rng.uniform(0.7, 3.0), rng.choice([0.005, 0.01, 0.03]), rng.randint(50, 2000))
        adjacency = rng.choice(["add_remove", "zero_out", "replace_one"])
        asked = question(run, 1.0, adjacency)
        claim = cut(asked.least, rng.choice([2, 3]))
        if claim > 0.1:
            yield failing_assumptions(question(run, claim, adjacency, asked.found))


@pytest.mark.parametrize("runs", [15, pytest.param(120, marks=pytest.mark.slow)])
def test_every_rounded_claim_is_told_to_be_one(runs):
    told = list(rounded_claims(runs))
    assert len(told) > runs // 2
    for reasons in told:
        assert len(reasons) == 1 and "is the certified value rounded down" in reasons[0]


# ---- a match by chance is no reason


def random_claims(seed, runs, each):
    """Yield the reasons for random claims, 30 to 97 % of what their runs spend."""
    rng = random.Random(seed)
    for _ in range(runs):
        rate = rng.choice([0.005, 0.01, 0.02, 0.05, 0.1])
        scheme = rng.choice(
            [fp.Poisson(rate), fp.Poisson(rate), fp.FixedSize(int(1000 * rate), population=1000)]
        )
        one = fp.Gaussian(noise_multiplier=rng.uniform(0.6, 3.0)).sampled(scheme)
        run = one * rng.choice([60, 120, 180, 240, 500, 1000, 2000])
        adjacency = rng.choice(["add_remove", "zero_out", "replace_one"])
        found = question(run, 1.0, adjacency).found
        for _ in range(each):
            share, digits = rng.uniform(0.3, 0.97), rng.choice([2, 2, 3, 4, 16])
            claim = round(found["pld"].upper * share, digits)
            if claim > 0.0:
                yield failing_assumptions(question(run, claim, adjacency, found))


def wrong(reasons):
    return any(MATCHED in reason for reason in reasons)


def test_random_claims_are_hardly_given_a_reason():
    """Fifty claims of five runs; the chance of each is at most 1 %."""
    told = list(random_claims(1, 5, 10))
    assert len(told) > 45 and sum(map(wrong, told)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_of_a_thousand_random_claims_ten_at_most_are_given_a_reason(seed):
    told = list(random_claims(seed, 50, 20))
    assert len(told) > 950 and sum(map(wrong, told)) <= 10


@pytest.mark.fast_cells("1", "2", "3")
@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_the_chance_that_is_told_is_that_of_random_claims(digits):
    """Of all claims of so many digits no more than 1 % are given a reading, and as it says."""
    run = poisson(1.1, 0.02, 240)
    found = question(run, 1.0).found
    high = found["pld"].upper
    step = 10.0**-digits
    grid = [round(step * k, digits) for k in range(math.ceil(0.1 * high / step), int(high / step))]
    rng = random.Random(3)
    grid = grid if len(grid) <= 400 else rng.sample(grid, 400)
    told = [failing_assumptions(question(run, claim, found=found)) for claim in grid]
    # Windows are counted as parts of a line, and claims are points on it: one more at most.
    assert sum(map(wrong, told)) <= CHANCE * len(grid) + 2
    for reasons in told:
        for chance in re.findall(r"with a chance of ([\d.e-]+) %", str(reasons)):
            assert 0.0 < float(chance) <= 100 * CHANCE


def test_a_free_divisor_does_not_match_by_chance():
    """Every claim of two digits was the number of some divisor."""
    asked = poisson(0.96, 0.02, 120)
    assert not wrong(failing_assumptions(question(asked, 1.12)))
    # All sixteen digits of a number are compared.
    claim = 9.391171790137708
    assert not wrong(failing_assumptions(question(poisson(0.5, 0.01, 1000), claim)))


# ---- what a reason says


def test_a_reading_names_its_parameters_and_how_many_were_tried():
    run = poisson(1.5, 0.05, 300)
    seventh = fp.epsilon(poisson(1.5, 0.05, 60), delta=DELTA, adjacency="add_remove").upper
    (reason,) = failing_assumptions(question(run, seventh))
    assert "5 noisy sums counted as one, 60 in all instead of 300" in reason
    assert f"{MATCHED} 5 noisy sums" in reason and ", PLD)" in reason
    assert re.search(r"\(\d+ readings were compared; a random claim matches one with", reason)


def test_a_package_that_counted_2_c_is_not_said_to_have_counted_c():
    """A package's account of replaced units: half the noise, and the pair of Poisson sampling."""
    scheme = fp.FixedSize(100, population=10_000)
    run = fp.Gaussian(noise_multiplier=1.0).sampled(scheme) * 1000
    found = fp.audit(run, claim=(13.360825690298975, 1e-5), adjacency="replace_one")
    assert found.verdict == "CANNOT BE CERTIFIED"
    assert "added or removed, with a sensitivity of 2 C (13.3609, PLD)" in found.reasons[1]
    assert "not by C" not in str(found.reasons)


@pytest.mark.parametrize(
    ("claim", "digit"),
    [
        (8.0, 1.0),
        (10.0, 1.0),
        (0.5, 0.1),
        (1.83, 0.01),
        (0.6303, 1e-4),
        (13.360825690298975, 1e-15),
        (2.5e-7, 1e-8),
    ],
)
def test_the_last_digit_of_a_claim_is_as_it_is_printed(claim, digit):
    assert _last_digit(claim) == pytest.approx(digit, rel=1e-9)


def test_windows_that_overlap_are_counted_once():
    windows = Windows(1.0, 2.0)
    assert windows.admits((1.1, 1.104), CHANCE) and windows.admits((1.102, 1.105), CHANCE)
    assert windows.share() == pytest.approx(0.005)
    assert not windows.admits((1.5, 1.6), CHANCE) and windows.share() == pytest.approx(0.005)
    # Claims that are never made at random cost no level.
    assert windows.admits((0.1, 0.9), CHANCE) and windows.admits((2.0, 3.0), CHANCE)
    assert windows.share() == pytest.approx(0.005)


# ---- multiples of the spent epsilon


def test_multiples_of_few_digits_are_no_reason():
    run = poisson(1.1, 0.02, 240)
    least = question(run, 1.0).least
    told = [
        bool(overcounts(question(run, round(least * share, 1))))
        for share in [2.0 + 0.37 * k for k in range(20)]
    ]
    assert not any(told)
    (reason,) = overcounts(question(run, 5 * least))
    assert (
        "would be 5 times the epsilon of this run" in reason
        and "random claim matches one with probability at most" in reason
    )


def test_a_claim_above_all_multiples_of_the_tightest_account_is_no_multiple_of_a_looser_one():
    """The claim is far above 21 times the epsilon of PLD, where chances were not counted."""
    run = poisson(2.0, 0.001, 2000)
    claimed = question(run, 2.0)
    assert 22 * claimed.least < 2.0
    assert not overcounts(claimed)


def test_one_digit_claims_are_not_roundings_of_what_is_far_above():
    run = poisson(0.7, 0.02, 300)
    asked = question(run, 1.0)
    claim = float(math.floor(asked.least))
    assert asked.least > 1.06 * claim > 1.0
    assert "rounded down" not in str(failing_assumptions(question(run, claim, found=asked.found)))
