"""A random campaign over the whole domain; every seed is one setting. Slow."""

import math
import random

import numpy as np
import pytest
from mpmath import mpf

import fedprivacy as fp
from fedprivacy.loss import Gdp, Sampled, Side
from fedprivacy.loss.strategies import direct
from tests import truth

pytestmark = pytest.mark.slow


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def setting(seed):
    """(a maker of the run from its noise and rounds, z, rounds, delta, adjacency)."""
    rng = random.Random(seed)
    adjacency = rng.choice([str(a) for a in fp.Adjacency])
    scheme = rng.choice(
        [
            fp.Poisson(log_uniform(rng, 1e-4, 1.0)),
            fp.FixedSize(rng.choice([1, rng.randint(1, 1000)]), population=1000),
            fp.Everyone(),
        ]
    )
    local = rng.choice([0, 0, rng.randint(1, 6)])
    cohort = fp.Poisson(log_uniform(rng, 1e-3, 1.0))

    def make(z, rounds):
        step = fp.Gaussian(noise_multiplier=z).sampled(scheme)
        return ((step * local).in_cohort(cohort) if local else step) * rounds

    z, rounds = log_uniform(rng, 0.6, 50.0), int(log_uniform(rng, 2, 1000))
    return make, z, rounds, log_uniform(rng, 1e-10, 0.3), adjacency


@pytest.mark.parametrize("seed", range(300))
def test_bounds_are_ordered_and_monotone(seed):
    make, z, rounds, delta, adjacency = setting(seed)
    ask = {"delta": delta, "adjacency": adjacency}
    exact = fp.epsilon(make(z, rounds), **ask)
    low, high = exact.resolution
    assert 0.0 <= exact.lower <= high and low <= high
    assert fp.epsilon(make(z, rounds), accountant="rdp", **ask).upper >= low
    if adjacency != "zero_out":  # there it takes minutes
        assert fp.epsilon(make(z, rounds), accountant="advanced", **ask).upper >= low
    assert fp.epsilon(make(1.1 * z, rounds), **ask).resolution[0] <= high
    assert fp.epsilon(make(z, rounds + 1), **ask).upper >= low
    back = fp.delta(make(z, rounds), epsilon=high, adjacency=adjacency)
    assert back.resolution[0] <= delta * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(100))
def test_coarse_and_fine_lattices_hold_each_other(seed):
    make, z, rounds, delta, adjacency = setting(seed + 5000)
    curve = make(z, rounds).privacy_loss(adjacency).curve
    if not hasattr(curve, "composition"):
        assert fp.epsilon(make(z, rounds), delta=delta, adjacency=adjacency).upper >= 0.0
        return
    for turned in (curve, curve.swap()):
        ends = {
            (side, step): turned.composition(step, side, 1e-7 * delta).epsilon(delta)
            for side in Side
            for step in (0.03, 0.003)
        }
        for coarse in (0.03, 0.003):
            for fine in (0.03, 0.003):
                assert ends[Side.DOWN, fine] <= ends[Side.UP, coarse]


@pytest.mark.parametrize("seed", range(500))
def test_one_round_holds_the_truth(seed):
    rng = random.Random(seed)
    mu, q = log_uniform(rng, 0.02, 4.0), log_uniform(rng, 1e-6, 1.0)
    epsilon = log_uniform(rng, 1e-4, 6.0)
    curve = Sampled(Gdp(mu), q)

    def forward(e):
        return truth.sampled_delta(e, mpf(mu), mpf(q))

    for turned, profile in ((curve, forward), (curve.swap(), truth.swapped(forward))):
        value = max(profile(epsilon), 0)
        low, high = (
            float(direct.delta(turned, np.array([epsilon]), side)[0])
            for side in (Side.DOWN, Side.UP)
        )
        assert low - 1e-28 <= value <= high + 1e-28


@pytest.mark.parametrize("seed", range(100))
def test_two_rounds_hold_the_truth(seed):
    rng = random.Random(seed)
    z, q = log_uniform(rng, 0.5, 5.0), log_uniform(rng, 1e-3, 0.9)
    epsilon = log_uniform(rng, 0.02, 2.0)
    stays = (mpf(1) - mpf(q), 0)
    pair = (
        truth.mixture(stays, (mpf(q), 1 / mpf(z))),
        truth.mixture(stays, (mpf(q), -1 / mpf(z))),
    )
    value = truth.HalfLines(pair).twice(epsilon)
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)) * 2
    low, high = fp.delta(run, epsilon=epsilon, adjacency="replace_one").resolution
    assert low * (1 - 1e-7) <= value + 1e-16
    assert value <= high * (1 + 1e-7) + 1e-16
