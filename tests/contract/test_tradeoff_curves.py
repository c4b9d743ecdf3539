"""Trade-off curves and attack risk against closed forms, exact tests and a simulated attack."""

import functools
import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import beta

import fedprivacy as fp
from fedprivacy.loss import Allocated, Fold, GaussianMix, Gdp, LaplacePair, Mix, Sampled, compose
from tests import truth

RATES = [0.0, 1e-12, 1e-5, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 0.99, 0.999, 1.0]
INSIDE = RATES[1:-1]


def quantile(x):
    """The normal quantile, to many digits far out too."""
    x = mpf(x)
    if x <= 0 or x >= 1:
        return -mpmath.inf if x <= 0 else mpmath.inf
    start = -mpmath.sqrt(-2 * mpmath.log(x)) if x < 0.5 else mpmath.sqrt(-2 * mpmath.log1p(-x))
    with mp.workdps(50):
        return mpmath.findroot(lambda t: mpmath.log(truth.phi(t)) - mpmath.log(x), start / 1.2)


def gaussian_power(x, mu):
    """The best true-positive rate of N(mu) against N(0)."""
    return mpf(x) if x in (0, 1) else truth.phi(quantile(x) + mpf(mu))


def laplace_power(x, s):
    """The best true-positive rate of Laplace(s) against Laplace(0)."""
    x, s = mpf(x), mpf(s)
    if x <= mpmath.exp(-s) / 2:
        return mpmath.exp(s) * x
    if x <= 0.5:
        return 1 - mpmath.exp(-s) / (4 * x)
    return 1 - mpmath.exp(-s) * (1 - x)


def threshold(components, x):
    """The y that a unit-variance mixture exceeds with probability x."""

    x = mpf(x)
    sign = 1 if x < 0.5 else -1
    share = mpmath.log(min(x, 1 - x))

    def beyond(y):
        return mpmath.log(sum(w * truth.phi(sign * (m - y)) for w, m in components)) - share

    means = [m for _, m in components]
    far = mpmath.sqrt(-2 * share) + 1
    return mpmath.findroot(beyond, (min(means) - far, max(means) + far), solver="anderson")


def threshold_power(alternative, null, x):
    """The true-positive rate of {y > t} where that is the best test."""
    t = threshold(null, x)
    return sum(w * truth.phi(m - t) for w, m in alternative)


def mirrored(components):
    return tuple((w, -m) for w, m in components)


def holds(ends, x, power):
    """Whether every false-negative interval holds 1 - power."""
    for low, high, attained, rate in zip(*ends, x, strict=True):
        missed = 1 - power(rate)
        assert mpf(float(low)) <= missed <= mpf(float(high)) <= mpf(float(attained)), rate


@pytest.mark.parametrize("mu", [1e-4, 0.1, 1.0, 3.0, 7.5])
def test_gaussian(mu):
    curve = fp.tradeoff_curve(fp.Gaussian(noise_multiplier=1 / mu), adjacency="zero_out", fpr=RATES)
    for ends in (curve.present_to_absent, curve.absent_to_present, curve.worst):
        holds(ends, RATES, lambda x: gaussian_power(x, 1 / mpf(1 / mu)))
        assert np.all(ends.upper - ends.lower <= 0.01)
    exact = [1 - gaussian_power(x, 1 / mpf(1 / mu)) for x in RATES]
    assert all(mpf(float(f)) <= missed for f, missed in zip(curve.f_dp, exact, strict=True))


@pytest.mark.parametrize("multiplier", [0.2, 1.0, 20.0])
def test_laplace(multiplier):
    curve = fp.tradeoff_curve(
        fp.Laplace(noise_multiplier=multiplier), adjacency="add_remove", fpr=RATES
    )
    for ends in (curve.present_to_absent, curve.absent_to_present):
        holds(ends, RATES, lambda x: laplace_power(x, 1 / mpf(multiplier)))


ONE_ROUND = [(1.0, 0.1), (1.4, 1 / 60), (0.5, 0.4), (5.0, 1e-3)]


def sampled_powers(z, q):
    """The powers of both orientations for one Poisson round, add_remove."""
    present, absent = truth.sampled_pair(1 / mpf(z), mpf(q))
    return (
        lambda x: threshold_power(present, absent, x),
        lambda x: threshold_power(mirrored(absent), mirrored(present), x),
    )


@pytest.mark.parametrize("z, q", ONE_ROUND)
def test_one_poisson_round_against_neyman_and_pearson(z, q):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q))
    curve = fp.tradeoff_curve(run, adjacency="add_remove", fpr=INSIDE)
    claims, denies = sampled_powers(z, q)
    holds(curve.present_to_absent, INSIDE, claims)
    holds(curve.absent_to_present, INSIDE, denies)
    for x, worst, both in zip(INSIDE, curve.worst.lower, curve.f_dp, strict=True):
        assert both <= worst + 1e-12 and worst <= 1 - max(claims(x), denies(x))


@pytest.mark.parametrize("z, q", ONE_ROUND)
def test_one_replaced_round_against_neyman_and_pearson(z, q):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q))
    curve = fp.tradeoff_curve(run, adjacency="replace_one", fpr=INSIDE)
    one = ((1 - mpf(q), mpf(0)), (mpf(q), 1 / mpf(z)))
    for ends in (curve.present_to_absent, curve.absent_to_present):
        holds(ends, INSIDE, lambda x: threshold_power(one, mirrored(one), x))


def test_a_round_whose_best_test_has_two_thresholds():
    z, q = 1.4, 1 / 60
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.FixedSize(1, population=60))
    curve = fp.tradeoff_curve(run, adjacency="zero_out", fpr=INSIDE)
    stays = (1 - q, -1 / z)
    exact = truth.HalfLines((((stays), (q, 1 / z)), ((stays), (q, 0.0))))
    epsilons = np.linspace(0.0, 12.0, 30_001)
    deltas = exact.delta(epsilons)
    for rate, low, high in zip(INSIDE, *curve.present_to_absent[:2], strict=True):
        if rate < 0.3:  # where the best test has a likelihood ratio above 1
            power = float(np.min(deltas + np.exp(epsilons) * rate))
            assert 1 - high <= power * (1 + 1e-9)
            assert 1 - low >= power * (1 - 1e-6)


@pytest.mark.parametrize("adjacency, shift", [("zero_out", 1), ("replace_one", 2)])
def test_composed_rounds_whose_participants_are_seen(adjacency, shift):
    """Given how often the unit took part, the best test is a Gaussian one at a common ratio."""
    z, q, rounds = 2.0, 0.1, 30
    seen = [math.comb(rounds, j) * q**j * (1 - q) ** (rounds - j) for j in range(1, rounds + 1)]
    mus = [shift / z * math.sqrt(j) for j in range(1, rounds + 1)]
    rates, powers = [], []
    for e in (0.05, 0.5, 1.5, 4.0):
        parts = list(zip(seen, mus, strict=True))
        rates.append(float(sum(w * truth.phi(-e / mpf(m) - mpf(m) / 2) for w, m in parts)))
        powers.append(sum(w * truth.phi(-e / mpf(m) + mpf(m) / 2) for w, m in parts))
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)) * rounds
    curve = fp.tradeoff_curve(run, adjacency=adjacency, observer="server", fpr=rates)
    at = dict(zip(rates, powers, strict=True))
    for ends in (curve.present_to_absent, curve.absent_to_present):
        holds(ends, rates, at.__getitem__)
        assert np.all(ends.upper - ends.lower <= 0.01 * (1 - ends.lower) + 1e-9)


def test_the_two_orientations_are_inverse_functions():
    run = fp.Gaussian(noise_multiplier=1.4).sampled(fp.Poisson(1 / 60)) * 180
    x = [1e-3, 0.1, 0.5, 0.9]
    there = fp.tradeoff_curve(run, adjacency="add_remove", fpr=x).present_to_absent
    missed = np.concatenate([there.upper, there.lower])
    back = fp.tradeoff_curve(run, adjacency="add_remove", fpr=missed).absent_to_present
    assert np.all(back.lower[:4] <= x) and np.all(back.upper[4:] >= x)
    assert np.all(back.upper[:4] - x <= 0.02) and np.all(x - back.lower[4:] <= 0.02)


BILLIONTH = 1e-9
"""Chance that one confidence bound below is wrong; there are 24 of them in each orientation."""


def clopper_pearson(hits, trials):
    low = beta.ppf(BILLIONTH, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(1 - BILLIONTH, hits + 1, trials - hits) if hits < trials else 1.0
    return float(low), float(high)


@functools.cache
def simulated_losses(z, q, rounds, trials):
    """Sums of the exact loss over the rounds, of runs with the unit and without."""
    generator = np.random.default_rng(20240229)
    found = []
    for present in (True, False):
        total = np.zeros(trials)
        for _ in range(rounds):
            y = generator.standard_normal(trials)
            if present:
                y += (generator.random(trials) < q) / z
            total += np.log1p(q * np.expm1(y / z - 0.5 / z**2))
        found.append(total)
    return found


@pytest.mark.parametrize("orientation", ["present_to_absent", "absent_to_present"])
def test_a_simulated_attack_at_the_anchor(orientation):
    z, q, rounds, trials = 1.4, 1 / 60, 180, 100_000
    with_unit, without = simulated_losses(z, q, rounds, trials)
    if orientation == "absent_to_present":
        with_unit, without = -without, -with_unit
    cuts = np.quantile(without, [0.05, 0.5, 0.9, 0.99, 0.999, 0.9999])
    counts = [(np.sum(without > cut), np.sum(with_unit > cut)) for cut in cuts]
    false = [clopper_pearson(int(count), trials) for count, _ in counts]
    true = [clopper_pearson(int(count), trials) for _, count in counts]
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)) * rounds
    x = [high for _, high in false] + [low for low, _ in false]
    missed = getattr(fp.tradeoff_curve(run, fpr=x, adjacency="add_remove"), orientation)
    assert np.all(1 - np.array([low for low, _ in true]) >= missed.lower[:6])
    assert np.all(1 - np.array([high for _, high in true]) <= missed.upper[6:])
    assert np.all(missed.attained == missed.upper)


@pytest.mark.parametrize("mu", [1e-3, 0.5, 1.0, 6.0])
def test_the_gaussian_equivalent_of_a_gaussian_is_itself(mu):
    risk = fp.attack_risk(fp.Gaussian(noise_multiplier=1 / mu), adjacency="zero_out")
    assert risk.mu.lower <= mu <= risk.mu.upper <= mu * (1 + 1e-12)
    assert risk.mu.lower >= 0.98 * mu
    assert risk.mu_within.upper <= risk.mu.upper
    exact = mpmath.erf(mpf(mu) / mpmath.sqrt(8))
    assert risk.advantage.lower <= exact <= risk.advantage.upper


@pytest.mark.parametrize("s", [0.05, 1.0, 4.0])
def test_the_gaussian_equivalent_of_laplace(s):
    risk = fp.attack_risk(fp.Laplace(noise_multiplier=1 / s), adjacency="zero_out")
    exact = -2 * quantile(mpmath.exp(-mpf(s) / 2) / 2)
    assert risk.mu.lower <= exact <= risk.mu.upper <= exact * (1 + 1e-9)
    for x in np.geomspace(1e-12, 0.999, 60):
        assert laplace_power(x, 1 / mpf(1 / s)) <= gaussian_power(x, risk.mu.upper)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("z, q", ONE_ROUND)
@pytest.mark.parametrize("slack", [1e-3, 1e-6])
def test_the_gaussian_equivalent_of_a_sampled_round(z, q, slack):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q))
    risk = fp.attack_risk(run, adjacency="add_remove", slack=slack)
    rates = [10.0**-k for k in (200, 50, 12)] + list(np.geomspace(1e-9, 0.5, 40))
    rates += list(1 - np.geomspace(1e-9, 0.4, 20))
    excess = [
        power(x) - gaussian_power(x, mu)
        for mu in (risk.mu_within.upper, 0.97 * risk.mu_within.lower)
        for power in sampled_powers(z, q)
        for x in rates
    ]
    assert max(excess[: len(excess) // 2]) <= slack
    assert risk.mu_within.lower == 0 or max(excess[len(excess) // 2 :]) > slack
    assert risk.mu_within.upper - risk.mu_within.lower <= 0.02 * risk.mu_within.upper + 1e-9
    for x in rates[:30]:
        assert sampled_powers(z, q)[0](x) <= gaussian_power(x, risk.mu.upper)


def test_without_slack_sampling_does_not_lower_mu():
    """At vanishing false-positive rates the best test believes that the unit was drawn."""
    claims, _ = sampled_powers(1.0, 0.5)
    found = [quantile(claims(mpf(10) ** -k)) - quantile(mpf(10) ** -k) for k in (5, 50, 300)]
    assert found[0] < 0.9 < found[1] < found[2] < 1.0 and found[2] > 0.98


def test_curves_below_a_gaussian():
    half = 1 - 0.25, 0.0
    mixed = GaussianMix(0.5, (half, (0.25, 1.0)), (half, (0.25, -1.0)))
    assert mixed.support().cover == pytest.approx(2.0, rel=1e-12)
    for rare in (1e-12, 1e-17, 1e-30, 5e-324):
        # A sum of weights in doubles is 1 before the component that lies farthest out.
        far = GaussianMix(2.0, ((1.0 - rare, 0.0), (rare, 100.0)), ((1.0, 0.0),))
        assert far.support().cover == pytest.approx(50.0, rel=1e-12)
    assert Sampled(Gdp(1.5), 0.1).support().cover == 1.5
    assert Allocated(1.5, 10).support().cover == Allocated(1.5, 10).swap().support().cover == 1.5
    assert Sampled(Gdp(1.5), 0.1).swap().support().cover == 1.5
    assert Fold(Gdp(1.0), Sampled(Gdp(2.0), 0.1)).support().cover == 2.0
    assert Mix(((0.9, Gdp(0.0)), (0.1, Gdp(3.0)))).support().cover == 3.0
    both = compose([(Sampled(Gdp(3.0), 0.1), 4), (Mix(((0.5, Gdp(0.0)), (0.5, Gdp(4.0)))), 4)])
    assert both.support().cover == pytest.approx(10.0, rel=1e-12)
    assert 1.0300 < LaplacePair(1.0).support().cover < 1.0301


def test_positive_predictive_value():
    risk = fp.attack_risk(fp.Gaussian(noise_multiplier=1.0), adjacency="zero_out", fpr=[0.0, 0.01])
    value = risk.positive_predictive_value(0.1)
    power = float(gaussian_power(0.01, 1.0))
    exact = 0.1 * power / (0.1 * power + 0.9 * 0.01)
    assert value.lower[1] <= exact <= value.upper[1]
    assert value.upper[0] == 1.0
    assert math.isclose(exact, 0.5064, abs_tol=1e-3)
