"""Where a formula gives the answer, the certified interval contains it."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import fedprivacy as fp
from fedprivacy.loss import Fold, Gdp, Mix, Sampled, Side, compose
from fedprivacy.loss.strategies import direct
from tests import truth


def holds_epsilon(bound, profile, delta):
    """Whether the truth lies in the interval, decided by the true deltas at its ends."""
    low, high = bound.resolution
    assert profile(high) <= delta * (1 + 1e-25)
    assert low == 0.0 or profile(low) >= delta * (1 - 1e-25)


def holds_delta(bound, value):
    low, high = bound.resolution
    assert low <= value <= high


GAUSSIAN = [
    ("add_remove", 1, 50.0, 10_000, 1e-5, "9.99725614643"),
    ("add_remove", 1, 1.0, 1, 1e-5, "4.377178095681"),
    ("zero_out", 1, 30.0, 900, 1e-5, "4.3771781"),
    ("replace_one", 2, 100.0, 10_000, 1e-5, "9.99725614643"),
    ("add_remove", 1, 0.600229, 1, 1e-5, "8.0000"),
    ("add_remove", 1, 30.7496, 1, 1e-5, "0.10000"),
    ("add_remove", 1, 243.785, 1, 1e-5, "0.010000"),
]


@pytest.mark.parametrize("adjacency, moves, sigma, rounds, delta, printed", GAUSSIAN)
def test_gaussian_composition_is_exactly_gdp(adjacency, moves, sigma, rounds, delta, printed):
    bound = fp.epsilon(
        fp.Gaussian(noise_multiplier=sigma) * rounds, delta=delta, adjacency=adjacency
    )
    with mp.workdps(40):
        mu = moves * mp.sqrt(rounds) / mpf(sigma)
        low, high = bound.resolution
        assert truth.gaussian_delta(high, mu) <= mpf(delta)
        assert truth.gaussian_delta(low, mu) >= mpf(delta)
    assert high - low <= 1e-9 * max(high, 1.0)
    assert bound.lower == low
    unit = 10.0 ** -len(printed.partition(".")[2])
    assert low - unit <= float(printed) <= high + unit


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 12.0])
@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_gaussian_delta_is_certified(mu, epsilon):
    bound = fp.delta(fp.Gaussian(noise_multiplier=1 / mu), epsilon=epsilon, adjacency="add_remove")
    with mp.workdps(40):
        holds_delta(bound, truth.gaussian_delta(epsilon, 1 / mpf(1 / mu)))


def test_gaussian_kinds_add_in_squared_mu():
    run = fp.Gaussian(noise_multiplier=2.0) * 3 + fp.Gaussian(noise_multiplier=5.0) * 7
    mu = mp.sqrt(mpf(3) / 4 + mpf(7) / 25)
    bound = fp.epsilon(run, delta=1e-6, adjacency="add_remove")
    holds_epsilon(bound, lambda e: truth.gaussian_delta(e, mu), mpf(1e-6))
    assert bound.upper - bound.lower < 1e-9


ERASED = [(0.1, 1.0, 1), (0.3, 0.5, 7), (0.5, 2.0, 25), (0.02, 1.0 / 1.4, 60), (0.9, 0.1, 40)]


@pytest.mark.parametrize("q, mu, rounds", ERASED)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
def test_visible_cohorts_have_the_binomial_closed_form(q, mu, rounds, delta):
    step = fp.Gaussian(noise_multiplier=1 / mu)
    run = step.sampled(fp.Poisson(q)) * rounds
    bound = fp.epsilon(run, delta=delta, adjacency="zero_out", observer="server")
    holds_epsilon(bound, lambda e: truth.erased_delta(e, 1 / mpf(1 / mu), rounds, q), mpf(delta))
    grouped = fp.epsilon(step.in_cohort(fp.Poisson(q)) * rounds, delta=delta, adjacency="zero_out")
    assert grouped.resolution == bound.resolution
    assert bound.upper - bound.lower <= 1e-3


@pytest.mark.parametrize("q, mu, rounds", ERASED)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_visible_cohorts_delta_has_the_binomial_closed_form(q, mu, rounds, epsilon):
    run = fp.Gaussian(noise_multiplier=1 / mu).sampled(fp.Poisson(q)) * rounds
    bound = fp.delta(run, epsilon=epsilon, adjacency="zero_out", observer="server")
    holds_delta(bound, truth.erased_delta(epsilon, 1 / mpf(1 / mu), rounds, q))


def test_nested_visible_cohorts_of_gaussian_blocks_have_a_closed_form():
    """(K Gaussian steps inside a client) x R rounds: a mixture over the rounds that happen."""
    run = (fp.Gaussian(noise_multiplier=6.0) * 9).in_cohort(fp.FixedSize(2, population=10)) * 30
    bound = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    holds_epsilon(bound, lambda e: truth.erased_delta(e, 1, 30, mpf(2) / 10), mpf(1e-5))
    assert bound.upper - bound.lower <= 1e-3


def test_cohorts_inside_cohorts_multiply():
    inner = fp.Gaussian(noise_multiplier=1.0).in_cohort(fp.Poisson(0.5))
    run = inner.in_cohort(fp.Poisson(0.25)) * 12
    bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove")
    holds_epsilon(bound, lambda e: truth.erased_delta(e, 1, 12, mpf(1) / 8), mpf(1e-5))


PROFILES = [(1.0, 0.1), (0.2, 0.5), (3.0, 0.01), (5.0, 1e-6)]


def at(curve, epsilon, side):
    return float(direct.delta(curve, np.array([epsilon]), side)[0])


@pytest.mark.parametrize("mu, q", PROFILES)
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.3, 2.0])
def test_sampled_profile_in_both_orientations(mu, q, epsilon):
    pair = Sampled(Gdp(mu), q)

    def forward(e):
        return truth.sampled_delta(e, mu, q)

    for curve, exact in ((pair, forward(epsilon)), (pair.swap(), truth.swapped(forward)(epsilon))):
        noise = mpf(10) ** -29
        assert at(curve, epsilon, Side.DOWN) <= exact + noise
        assert exact - noise <= at(curve, epsilon, Side.UP)


@pytest.mark.parametrize("mu, q", PROFILES)
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.3, 2.0])
def test_fold_of_one_pair_has_the_profile_of_theorem_t1(mu, q, epsilon):
    pair = Sampled(Gdp(mu), q)
    fold = Fold(pair, pair)
    exact = truth.sampled_delta(epsilon, mu, q)
    assert fold.support().symmetric
    assert at(fold, epsilon, Side.DOWN) <= exact <= at(fold, epsilon, Side.UP)


@pytest.mark.parametrize("mu, q", PROFILES)
def test_fold_has_the_mirrored_profile_below_zero(mu, q):
    """T1: delta(-e) = 1 - exp(-e) + exp(-e) delta(e), read off the tails."""
    pair = Sampled(Gdp(mu), q)
    for epsilon in (0.01, 0.5, 1.7):
        tails = Fold(pair, pair).tails(np.array([-epsilon]))
        found = math.exp(tails.p_above[0]) - math.exp(tails.q_above[0] - epsilon)
        exact = truth.swapped(lambda e: truth.sampled_delta(e, mu, q))(-epsilon)
        assert abs(found - exact) <= 1e-14


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.5])
def test_mixture_profile_is_the_weighted_sum(epsilon):
    curve = Mix(((0.25, Gdp(2.0)), (0.75, Sampled(Gdp(1.0), 0.125))))
    exact = truth.gaussian_delta(epsilon, 2) / 4
    exact += 3 * truth.sampled_delta(epsilon, 1, mpf(1) / 8) / 4
    assert at(curve, epsilon, Side.DOWN) <= exact <= at(curve, epsilon, Side.UP)


WHOLE = fp.FixedSize(7, population=7)


@pytest.mark.parametrize(
    "scheme, adjacency",
    [
        (fp.Poisson(1.0), "zero_out"),
        (fp.Poisson(1.0), "replace_one"),
        (WHOLE, "zero_out"),
        (WHOLE, "replace_one"),
        (fp.Everyone(), "add_remove"),
        (fp.Everyone(), "zero_out"),
        (fp.Everyone(), "replace_one"),
    ],
)
def test_probability_one_is_no_sampling(scheme, adjacency):
    step = fp.Gaussian(noise_multiplier=0.9)
    plain = fp.epsilon(step * 5, delta=1e-6, adjacency=adjacency)
    sampled = fp.epsilon(step.sampled(scheme) * 5, delta=1e-6, adjacency=adjacency)
    assert sampled.upper == plain.upper


def test_one_gaussian_has_the_known_advantage():
    """delta(0) of 1-GDP is 2 Phi(1/2) - 1 = .382924923; delta(1) = .126936737."""
    step = fp.Gaussian(noise_multiplier=1.0)
    for epsilon, printed in ((0.0, 0.382924923), (1.0, 0.126936737)):
        low, high = fp.delta(step, epsilon=epsilon, adjacency="add_remove").resolution
        assert low - 1e-9 <= printed <= high + 1e-9


def test_rdp_of_a_gaussian_is_the_closed_form():
    assert Gdp(0.7).moments().log_moment(3.5) == pytest.approx(3.5 * 2.5 * 0.49 / 2, rel=1e-15)


def test_advanced_composition_of_one_round_is_the_exact_profile():
    bound = fp.epsilon(
        fp.Gaussian(noise_multiplier=1.0), delta=1e-5, adjacency="add_remove", accountant="advanced"
    )
    assert truth.gaussian_delta(bound.upper, 1) <= mpf(1e-5)
    assert bound.upper < 4.3771781


def test_composing_nothing_is_the_identity():
    assert compose([]).moments().log_moment(2.0) == 0.0
    assert compose([]).support().symmetric


@pytest.mark.parametrize("count", [1, 2])
def test_a_delta_below_every_double_is_not_called_zero(count):
    run = fp.Gaussian(noise_multiplier=1.0) * count
    assert fp.delta(run, epsilon=60.0, adjacency="add_remove").upper > 0.0
