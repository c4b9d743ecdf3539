"""Calibration: on the private side, certified there, without slack."""

import functools
import itertools
import math

import pytest
from scipy.special import erfinv

import fedprivacy as fp
from fedprivacy.errors import ImpossibleBudget

ASK = {"epsilon": 2.0, "delta": 1e-5, "adjacency": "add_remove"}


def noise(s):
    return fp.Gaussian(noise_multiplier=s).sampled(fp.Poisson(0.05)) * 50


def certified(found, make, **ask):
    """The bound is the run's own at exactly that value, and within the budget."""
    budget = ask.pop("epsilon")
    assert found.bound.upper <= budget
    again = fp.epsilon(make(found.value), **ask, tolerance=1e-3 * budget)
    assert again.upper == pytest.approx(found.bound.upper, abs=2e-3 * budget)
    assert again.resolution[0] <= found.bound.upper
    assert found.bound.resolution[0] <= again.upper
    assert found.bound.given == ask["delta"]


@pytest.mark.parametrize(
    "accountant, epsilon", [("pld", 0.1), ("pld", 2.0), ("pld", 20.0), ("rdp", 2.0)]
)
def test_noise_falls(accountant, epsilon):
    ask = {**ASK, "epsilon": epsilon, "accountant": accountant}
    found = fp.calibrate(noise, **ask)
    certified(found, noise, **ask)
    ask.pop("epsilon")
    assert fp.epsilon(noise(found.value * 0.99), **ask).upper > epsilon


def hundred(given):
    """Decorate a function of two numbers into one of one."""

    @functools.wraps(given)
    def inner(value):
        return given(100, value)

    return inner


def times(rounds, s):
    return fp.Gaussian(noise_multiplier=s) * rounds


@pytest.mark.parametrize(
    "make", [hundred(times), functools.partial(times, 100), lambda s, rounds=100: times(rounds, s)]
)
def test_what_takes_one_number_is_asked(make):
    """A decorated function was refused by what it hides."""
    assert fp.calibrate(make, **ASK) == fp.calibrate(lambda s: times(100, s), **ASK)


@pytest.mark.parametrize(
    "make", [times, fp.Gaussian, functools.partial(times, n=7), functools.partial(times, 1, 2)]
)
def test_what_takes_another_number_of_numbers_is_refused(make):
    with pytest.raises(fp.ParameterError, match=r"make_run must be a function of one number \("):
        fp.calibrate(make, **ASK)


def probability(q):
    return fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(q)) * 50


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-6, 1e-4])
def test_a_budget_below_the_tolerance_is_met(epsilon):
    """Delta allows some noise multiplier: TV of N(0, z^2) and N(1, z^2), over the rate."""
    found = fp.calibrate(
        lambda z: fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(0.25)),
        epsilon=epsilon,
        delta=1e-3,
        adjacency="zero_out",
    )
    assert found.bound.upper <= epsilon
    free = 1.0 / (2.0 * math.sqrt(2.0) * erfinv(1e-3 / 0.25))
    assert 0.9 * free < found.value < 1.01 * free


def test_probability_rises():
    found = fp.calibrate(probability, **ASK)
    certified(found, probability, **ASK)
    assert 0.0 < found.value < 1.0
    assert (
        fp.epsilon(probability(found.value * 1.01), delta=1e-5, adjacency="add_remove").upper > 2.0
    )


def test_probability_stops_at_one():
    def gentle(q):
        return fp.Gaussian(noise_multiplier=50.0).sampled(fp.Poisson(q)) * 10

    found = fp.calibrate(gentle, **ASK, domain=(0.0, 1.0))
    assert found.value == 1.0
    assert found.bound.upper < 2.0


def rounds(count):
    return fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.01)) * count


def test_rounds_are_whole_and_the_last_that_fit():
    found = fp.calibrate(rounds, **ASK, integer=True)
    assert isinstance(found.value, int)
    certified(found, rounds, **ASK)
    after = fp.epsilon(
        rounds(round(found.value * 1.01) + 1), delta=1e-5, adjacency="add_remove", tolerance=2e-3
    )
    assert after.upper > 2.0


def cohort(size):
    return fp.Gaussian(noise_multiplier=4.0).sampled(fp.FixedSize(size, population=200)) * 20


def test_cohort_is_bounded_by_the_population():
    small = fp.calibrate(cohort, **ASK, integer=True)
    assert 1 <= small.value < 200
    certified(small, cohort, **ASK)
    following = fp.epsilon(cohort(small.value + 1), delta=1e-5, adjacency="add_remove")
    assert following.upper > 2.0
    most = fp.calibrate(cohort, **{**ASK, "epsilon": 50.0}, integer=True, domain=(1, 199))
    assert most.value == 199  # a cohort of everybody cannot lose a client: add_remove is refused


def test_a_share_of_the_noise_in_a_mechanism():
    def colluders(count):
        step = fp.SparsifiedPerturbation(
            noise_multiplier=8.0,
            clip_norm=1.0,
            kept=1,
            dimension=1,
            cohort=30,
            colluding=count,
        )
        return step.sampled(fp.FixedSize(30, population=300)) * 10

    found = fp.calibrate(colluders, **ASK, integer=True, domain=(1, 29))
    certified(found, colluders, **ASK)
    assert fp.epsilon(colluders(found.value + 1), delta=1e-5, adjacency="add_remove").upper > 2.0


def test_known_multipliers():
    def analytic(s):
        return fp.Gaussian(noise_multiplier=s)

    for epsilon, printed in ((8.0, 0.600229), (1.0, 3.730632), (0.1, 30.7496)):
        found = fp.calibrate(analytic, epsilon=epsilon, delta=1e-5, adjacency="add_remove")
        assert printed * (1 - 2e-6) <= found.value <= printed * (1 + 1e-3)

    def steps(count):
        return fp.Gaussian(noise_multiplier=3.0).sampled(fp.Poisson(0.1)) * count

    found = fp.calibrate(steps, epsilon=2.0, delta=1e-6, adjacency="add_remove", integer=True)
    assert found.value in (154, 155)


def test_noise_where_no_client_may_be_hidden():
    """The published 1.01 of Fed-SMP needs 2.3209 at fixed-size sampling, not 1.4."""

    def published(s):
        step = fp.Gaussian(noise_multiplier=s).sampled(fp.FixedSize(100, population=6000))
        return step * 180

    found = fp.calibrate(published, epsilon=1.01, delta=6000**-1.1, adjacency="replace_one")
    assert 2.3209 * (1 - 1e-4) <= found.value <= 2.3209 * (1 + 5e-3)


@pytest.mark.parametrize(
    "make, extra",
    [
        (lambda q: fp.Gaussian(noise_multiplier=0.1).sampled(fp.Everyone()) * 10, {}),
        (rounds, {"epsilon": 1e-4, "integer": True}),
        (cohort, {"epsilon": 1e-3, "integer": True}),
        (noise, {"domain": (0.1, 0.3)}),
    ],
    ids=["parameter ignored", "no round", "no cohort", "domain too small"],
)
def test_impossible_budgets_are_clear_errors(make, extra):
    with pytest.raises(fp.ParameterError) as caught:
        fp.calibrate(make, **{**ASK, **extra})
    assert "epsilon" in str(caught.value)


def test_an_unbounded_parameter_is_told_to_be_bounded():
    with pytest.raises(ImpossibleBudget, match="pass a finite domain"):
        fp.calibrate(
            lambda s: fp.Gaussian(noise_multiplier=1.0 + 1.0 / s), **{**ASK, "epsilon": 10.0}
        )


def test_a_run_that_refuses_every_value_says_why():
    """Of another parameter, that one's refusal; else that of the value where it looked first."""
    with pytest.raises(fp.ParameterError, match=r"^probability must"):
        fp.calibrate(lambda s: fp.Gaussian(noise_multiplier=s).sampled(fp.Poisson(2.0)), **ASK)
    with pytest.raises(ImpossibleBudget, match="at 4: size must be at most population = 1, got 4"):
        fp.calibrate(cohort_of_one, **ASK, integer=True, domain=(4, 9))


def test_values_that_no_theorem_covers_bound_the_search():
    """Integer noise below some std has no theorem; the search once ended there."""

    def run(z):
        counts = {"dimension": 1024, "cohort": 100, "granularity": 0.5, "bits": 16}
        noise = fp.Skellam(noise_multiplier=z, clip_norm=1.0, rotated=True, **counts)
        return noise.sampled(fp.FixedSize(100, population=1000)) * 20

    ask = {"delta": 1e-3, "adjacency": "zero_out"}
    with pytest.raises(fp.UnsupportedCombination, match="are too small for every theorem here"):
        fp.epsilon(run(1.0), **ask)
    found = fp.calibrate(run, epsilon=8.0, **ask)
    certified(found, run, epsilon=8.0, **ask)
    # Where no value has a theorem, the refusal is the run's own.
    scheme = fp.Shuffled(5, partial=True)
    with pytest.raises(fp.UnsupportedCombination, match="add_remove"):
        fp.calibrate(lambda z: fp.Gaussian(noise_multiplier=z).sampled(scheme), **ASK)


def cohort_of_one(size):
    return fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(size, population=1))


def test_a_search_that_starts_far_below_the_budget_finds_the_last_cohort():
    """Coarse intervals overlap there; their upper ends do not say which way epsilon goes."""

    def run(cohort):
        return fp.Gaussian(noise_multiplier=1.4).sampled(fp.Poisson(cohort / 6000)) * 180

    ask = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove"}
    found = fp.calibrate(run, integer=True, domain=(1, 6000), **ask)
    assert found.value == 129 and found.bound.upper <= 1.0
    assert fp.epsilon(run(130), delta=1e-5, adjacency="add_remove").lower > 1.0


def test_a_value_is_the_same_however_slow_the_machine_is(monkeypatch):
    """Half a second passes with every look at the clock: no digit of the value depends on it."""

    def found(z):
        scheme = fp.TruncatedPoisson(0.01, population=1000, largest=30)
        return fp.Gaussian(noise_multiplier=z).sampled(scheme) * 500

    ask = {"epsilon": 0.5, "delta": 1e-6, "adjacency": "add_remove"}
    quick = fp.calibrate(found, **ask)
    now = itertools.count(0.0, 0.5)
    monkeypatch.setattr("fedprivacy.loss.clock.now", lambda: next(now))
    slow = fp.calibrate(found, **ask)
    assert slow.value == quick.value and slow.bound.upper == quick.bound.upper


def test_a_number_of_rounds_is_not_searched_among_parts():
    """It ended at a power of two, 512 of 970."""

    def run(rounds):
        return fp.Gaussian(noise_multiplier=20.0).sampled(fp.Poisson(0.05)) * rounds

    ask = {"epsilon": 0.5, "delta": 1e-5, "adjacency": "add_remove"}
    with pytest.raises(
        fp.ParameterError, match=r"integer must be True .*meets the budget as well, got False"
    ):
        fp.calibrate(run, **ask)
    found = fp.calibrate(run, integer=True, **ask)
    assert not math.log2(found.value).is_integer()
    with pytest.raises(fp.ParameterError, match="integer must be True or False, got 'yes'"):
        fp.calibrate(run, integer="yes", **ask)
