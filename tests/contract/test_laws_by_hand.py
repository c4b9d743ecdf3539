"""Small laws written out in full: sampled sums, rules of participation, printed ends of bounds."""

import itertools
import json
import math
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from fractions import Fraction

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.bound import shown
from fedprivacy.relations import Facts

# ---- integer sums, every cohort and every outcome

REACH = 60
"""Outcomes from -60 to 60: what lies beyond has less than 1e-17 of the noise."""
NOISE = 0.7


def law(shift):
    """The discrete Laplace law about a sum: tanh(a / 2) e^{-a |k|}."""
    outcomes = np.arange(-REACH, REACH + 1)
    return math.tanh(NOISE / 2) * np.exp(-NOISE * np.abs(outcomes - shift))


def sampled_law(cohorts, contribution):
    """The law of a noisy sum: over every cohort with its probability, and what one unit adds."""
    found = np.zeros(2 * REACH + 1)
    for cohort, chance in cohorts:
        found += chance * law(contribution if 0 in cohort else 0)
    return found


def poisson(units, chance):
    for drawn in itertools.product((False, True), repeat=units):
        cohort = {unit for unit, there in enumerate(drawn) if there}
        yield cohort, chance ** len(cohort) * (1 - chance) ** (units - len(cohort))


def fixed(units, size):
    every = list(itertools.combinations(range(units), size))
    for cohort in every:
        yield set(cohort), 1 / len(every)


SCHEMES = {
    "Poisson": (fp.Poisson(0.3), list(poisson(4, 0.3))),
    "rare Poisson": (fp.Poisson(0.05), list(poisson(3, 0.05))),
    "FixedSize": (fp.FixedSize(2, population=5), list(fixed(5, 2))),
    "one of three": (fp.FixedSize(1, population=3), list(fixed(3, 1))),
    "Everyone": (fp.Everyone(), [({0, 1}, 1.0)]),
}
NEIGHBOURS = {"zero_out": (1, 0), "replace_one": (1, -1)}
"""What the unit adds in one data set and in its neighbour."""


@pytest.mark.parametrize("name", SCHEMES)
def test_the_cohorts_are_all_that_there_are(name):
    scheme, cohorts = SCHEMES[name]
    assert math.fsum(chance for _, chance in cohorts) == pytest.approx(1.0, abs=1e-14)
    drawn = math.fsum(chance for cohort, chance in cohorts if 0 in cohort)
    assert drawn == pytest.approx(scheme.rate, abs=1e-14)


def excess(first, second, epsilon):
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("name", SCHEMES)
def test_delta_of_a_noisy_sum_is_that_of_its_law(name, adjacency, rounds):
    """Enumerated neighbours reach at most the upper end, and at least the attained one."""
    scheme, cohorts = SCHEMES[name]
    one, other = (sampled_law(cohorts, moved) for moved in NEIGHBOURS[adjacency])
    # Two rounds: every pair of outcomes, without convolution.
    if rounds == 2:
        one, other = (np.multiply.outer(each, each).ravel() for each in (one, other))
    step = fp.DiscreteLaplace(noise_parameter=NOISE)
    run = step.sampled(scheme) * rounds
    if adjacency == "replace_one" and isinstance(scheme, fp.Poisson):
        with pytest.raises(fp.UnsupportedCombination, match="sample it with FixedSize under"):
            fp.delta(run, epsilon=0.0, adjacency=adjacency)
        return
    for epsilon in (0.0, 0.2, 0.5, 1.0):
        bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency)
        truth = max(excess(one, other, epsilon), excess(other, one, epsilon))
        assert truth <= bound.upper + 1e-14
        assert bound.lower <= bound.upper
        if bound.witness and adjacency == "zero_out":
            assert bound.lower <= truth + 1e-14


@pytest.mark.parametrize("name", SCHEMES)
def test_who_sees_the_cohort_sees_the_unit_s_rounds(name):
    """To the server a round is the whole loss with the chance of being drawn, else none."""
    scheme, _ = SCHEMES[name]
    step = fp.DiscreteLaplace(noise_parameter=NOISE)
    for epsilon in (0.0, 0.3):
        seen = fp.delta(
            step.sampled(scheme), epsilon=epsilon, adjacency="zero_out", observer="server"
        )
        truth = scheme.rate * max(excess(law(1), law(0), epsilon), excess(law(0), law(1), epsilon))
        assert truth <= seen.upper + 1e-14
        assert seen.resolution[0] <= truth + 1e-14


# ---- rules of participation, every pattern


def patterns(rule, rounds):
    """Every set of rounds that a unit may be in, straight from what the rules say."""
    for size in range(1, rounds + 1):
        for rows in itertools.combinations(range(rounds), size):
            gaps = [b - a for a, b in itertools.pairwise(rows)]
            if isinstance(rule, fp.SingleParticipation):
                fits = size == 1
            else:
                fits = rule.at_most is None or size <= rule.at_most
                fits = fits and all(gap >= rule.separation for gap in gaps)
                if isinstance(rule, fp.FixedEpochs):
                    fits = fits and all(gap % rule.separation == 0 for gap in gaps)
            if fits:
                yield rows


RULES = [
    fp.SingleParticipation(),
    fp.MinimumSeparation(2),
    fp.MinimumSeparation(3, at_most=2),
    fp.MinimumSeparation(1, at_most=3),
    fp.FixedEpochs(2),
    fp.FixedEpochs(3, at_most=2),
    fp.FixedEpochs(4),
]
FACTORS = [
    factors.Identity(),
    factors.SquareRootToeplitz(),
    factors.Banded(2),
    factors.Banded(1, weights=(2.0,)),
    factors.BufferedToeplitz(2),
    factors.Tree(),
    factors.Tree(online=False),
    factors.Matrix(((1.0,), (0.5, 1.0), (0.25, 0.5, 1.0))),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("rounds", [1, 4, 7])
def test_how_often_a_unit_comes_at_most(rule, rounds):
    every = list(patterns(rule, rounds))
    assert rule.most(rounds) == max(map(len, every))
    gaps = [b - a for rows in every for a, b in itertools.pairwise(rows)]
    assert rule.gap(rounds) <= min(gaps, default=rounds)


@pytest.mark.parametrize("factor", FACTORS, ids=lambda factor: type(factor).__name__)
def test_a_factor_and_its_noise_undo_each_other(factor):
    """Of a tree the nodes' noise is more than the rounds': its pseudo-inverse on the left."""
    rounds = 3 if isinstance(factor, factors.Matrix) else 7
    matrix, noise = factor.matrix(rounds), factor.noise_matrix(rounds)
    assert matrix.shape[::-1] == noise.shape and noise.shape[0] == rounds
    np.testing.assert_allclose(noise @ matrix, np.eye(rounds), atol=1e-12)
    assert np.all(factor.magnitudes(rounds) >= np.abs(matrix))
    assert np.all(factor.magnitudes(rounds) <= np.abs(matrix) * (1 + 1e-12) + 1e-300)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("factor", FACTORS[:5], ids=lambda factor: type(factor).__name__)
def test_the_first_rounds_of_a_run_have_the_first_rows(factor, rows):
    leading = factor.leading(rows, 7).matrix(rows)
    np.testing.assert_array_equal(leading, factor.matrix(7)[:rows, :rows])


@pytest.mark.parametrize("factor", FACTORS[:5], ids=lambda factor: type(factor).__name__)
def test_noise_row_by_row_is_that_of_the_whole_matrix(factor):
    """Each row from the rows before it and a separate draw: the same product with C^-1."""
    rounds = 7
    draws = np.random.default_rng(1).normal(size=rounds)
    wanted = factor.noise_matrix(rounds) @ draws
    made = np.zeros(rounds)
    for row in range(rounds):
        # C made = draws, one row at a time.
        known = factor.matrix(rounds)[row, :row] @ made[:row]
        made[row] = (draws[row] - known) / factor.matrix(rounds)[row, row]
    np.testing.assert_allclose(made, wanted, atol=1e-12)


# ---- printed values

VALUES = [
    *(1.0, 0.1, 1 / 3, 2 / 3, math.pi, 10.05363, 9.9999995, 99.5, 1e-5, 1.00000001e-5),
    *(123456.789, 1e15 + 0.5, 1e22, 1e23, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308),
    *(math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0), math.nextafter(0.1, 1.0)),
    *np.random.default_rng(3).lognormal(0.0, 20.0, 40).tolist(),
]


@pytest.mark.parametrize("digits", range(1, 16))
def test_printed_ends_lie_outside_of_the_doubles_they_stand_for(digits):
    for value in VALUES:
        low, high = shown(value, digits, ROUND_FLOOR), shown(value, digits, ROUND_CEILING)
        assert Fraction(low) <= Fraction(value), (value, low)
        # The ceiling of the largest double in few digits is no double any more.
        if math.isfinite(float(high)):
            assert Fraction(high) >= Fraction(value), (value, high)
            # No further than one unit of the last digit.
            unit = Fraction(10) ** (math.floor(math.log10(value)) - digits + 2)
            assert Fraction(high) - Fraction(low) <= unit or value < 1e-300


def test_printed_ends_that_are_exact():
    for value, text in ((0.0, "0"), (math.inf, "inf"), (2.0, "2"), (0.5, "0.5"), (1e-5, "1e-05")):
        for rounding in (ROUND_FLOOR, ROUND_CEILING):
            if value != 1e-5:
                assert shown(value, 4, rounding) == text


ASKED = fp.epsilon(fp.Gaussian(noise_multiplier=1.0), delta=1e-2, adjacency="add_remove")
FACTS = (fp.Adjacency.ADD_REMOVE, fp.Observer.AGGREGATE)


def bound(lower, upper, **changed):
    return replace(ASKED, lower=lower, upper=upper, resolution=(lower, upper), **changed)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (2.0, "HOLDS"),
        (2.5, "HOLDS"),
        (math.inf, "HOLDS"),
        (math.nextafter(2.0, 0.0), "CANNOT BE CERTIFIED"),
        (1.0, "CANNOT BE CERTIFIED"),
        (math.nextafter(1.0, 0.0), "FAILS"),
        (0, "FAILS"),
    ],
)
def test_a_verdict_turns_at_the_ends_to_the_last_bit(claim, verdict):
    assert bound(1.0, 2.0).verdict(claim) == verdict


def test_a_bound_as_a_line():
    told = str(bound(1.23456789, 2.3456789, qualified=("the seed was fixed",)))
    assert told.startswith("epsilon in [1.23456, 2.34568] at delta = 0.01 (add_remove, aggregate; ")
    assert told.endswith(", the seed was fixed")
    assert "client level, " in str(bound(1.0, 2.0, facts=Facts(fp.Unit.CLIENT, *FACTS)))


def test_a_bound_without_an_end_is_plain_json():
    found = bound(0.5, math.inf).to_dict()
    assert found["upper"] == "inf" and found["resolution"] == [0.5, "inf"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("kind", [fp.Unit, fp.Adjacency, fp.Observer, fp.Verdict])
def test_words_are_read_as_they_are_written(kind):
    for each in kind:
        assert kind(str(each)) is each and f"{each}" == each.value == str(each)
        with pytest.raises(ValueError, match="is not a valid"):
            kind(each.value.swapcase())
