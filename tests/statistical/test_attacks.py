"""Error rates and power of attacks. Slow; the seeds are fixed, and no test is retried."""

import numpy as np
import pytest
from scipy.special import bdtrc

import fedprivacy as fp
from tests.common import noisy, told

pytestmark = pytest.mark.slow

NULLS, LEVEL = 400, 0.05
STD = 1.0815413087653432
"""Noise of a sum of norm 1 at epsilon 4, delta 1e-5."""


def all_or_nothing(chance):
    """Tell every coin at once, rarely: (0, chance)-DP, and no independence between canaries."""

    def train(included, generator):
        if generator.random() < chance:
            return included
        return generator.random(len(included))

    return train


CASES = {
    "nothing": (lambda included, generator: generator.random(len(included)), 0.0, 0.0),
    "told at 0.5": (told(0.5), 0.5, 0.0),
    "told at 2": (told(2.0), 2.0, 0.0),
    "gaussian": (noisy(STD), 4.0, 1e-5),
    "all or nothing": (all_or_nothing(0.04), 0.0, 0.04),
}


WAYS = [("guesses", 200, 1, None), ("guesses", 200, 1, 60), ("rates", 1, 200, None)]


@pytest.mark.parametrize("estimator, m, runs, guesses", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_null_runs_are_inside_the_binomial_interval(name, estimator, m, runs, guesses):
    """At the exact level one sound attack in 10^4 would fail; seeds are those of the loop."""
    train, truth, delta = CASES[name]
    settings = {"level": LEVEL, "delta": delta, "runs": runs, "estimator": estimator}
    above = 0
    for seed in range(NULLS):
        rng = np.random.default_rng([seed, runs])
        found = fp.attack(train, m, **settings, guesses=guesses, generator=rng)
        above += found.lower > truth
    assert bdtrc(above - 1, NULLS, LEVEL) > 1e-4 if above else True


@pytest.mark.parametrize("mu", [0.0, 0.5, 1.0])
def test_null_runs_of_curves_are_inside_the_binomial_interval(mu):
    """At the exact level one sound attack in 10^4 would fail; seeds are those of the loop."""
    above = 0
    for seed in range(NULLS):
        rng = np.random.default_rng([seed, 3])
        train = noisy(1.0 / mu) if mu else CASES["nothing"][0]
        found = fp.attack(train, 200, level=LEVEL, runs=1, estimator="gdp", generator=rng)
        above += found.mu > mu
    assert bdtrc(above - 1, NULLS, LEVEL) > 1e-4 if above else True


def test_power_on_the_gaussian_mechanism_at_epsilon_4():
    claim = fp.epsilon(fp.Gaussian(noise_multiplier=STD), delta=1e-5, adjacency="zero_out")
    found = [
        fp.attack(noisy(STD), 1000, claim=claim, generator=np.random.default_rng(seed))
        for seed in range(50)
    ]
    assert sum(one.lower >= 2.0 for one in found) >= 40
    assert {str(one.verdict) for one in found} == {"CONSISTENT"}
