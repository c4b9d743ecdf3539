"""A composition that was sampled as one: the certified lower end is valid, and close."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants.pld import epsilon_interval
from fedprivacy.loss import Composed, Gdp, LaplacePair, Mix, Sampled, Side
from fedprivacy.loss.strategies import direct

EPSILONS = [0.0, 0.05, 0.4, 1.5]


@pytest.mark.parametrize(("mu", "count", "q"), [(0.3, 4, 0.2), (1.1, 3, 0.01), (0.05, 50, 0.7)])
def test_gaussians_one_by_one_are_as_one(mu, count, q):
    apart = Sampled(Composed(((Gdp(mu), count),)), q)
    at_once = Sampled(Gdp(mu * math.sqrt(count)), q)
    x = np.array(EPSILONS)
    low, high = (direct.delta(apart, x, side) for side in (Side.DOWN, Side.UP))
    truth = direct.delta(at_once, x, Side.UP)
    assert np.all(low <= truth * (1 + 1e-9)) and np.all(truth <= high * (1 + 1e-9))
    assert np.all(low >= 0.9 * truth)


@pytest.mark.parametrize("rounds", [2, 30])
def test_so_they_are_round_after_round(rounds):
    low, high = epsilon_interval(
        Composed(((Sampled(Composed(((Gdp(0.4), 6),)), 0.1), rounds),)), 1e-6
    )
    truth = epsilon_interval(Composed(((Sampled(Gdp(0.4 * math.sqrt(6)), 0.1), rounds),)), 1e-6)
    assert low <= truth[1] and truth[0] <= high
    assert 0.98 * truth[0] <= low and high <= 1.02 * truth[1]


def two_laplace_delta(shift, x):
    """delta(x) of two Laplace mechanisms: one loss has atoms at its ends, between them a density.

    Under P the loss is ``shift`` with probability 1/2, ``-shift`` with e^-shift / 2, and has the
    density e^{(l - shift) / 2} / 4 between.
    """
    nodes, weights = np.polynomial.legendre.leggauss(400)
    inner = shift * nodes
    density = shift * weights * np.exp((inner - shift) / 2) / 4
    losses = np.concatenate([inner, [shift, -shift]])
    masses = np.concatenate([density, [0.5, 0.5 * math.exp(-shift)]])
    total, mass = losses[:, None] + losses, masses[:, None] * masses
    return float(np.sum(mass * np.maximum(-np.expm1(x - total), 0.0)))


@pytest.mark.parametrize(("shift", "q"), [(0.5, 0.1), (2.0, 0.4)])
@pytest.mark.parametrize("x", EPSILONS)
def test_two_laplace_mechanisms_on_one_sample(shift, q, x):
    curve = Sampled(Composed(((LaplacePair(shift), 2),)), q)
    low, high = (
        float(direct.delta(curve, np.array([x]), side)[0]) for side in (Side.DOWN, Side.UP)
    )
    truth = q * two_laplace_delta(shift, math.log1p(math.expm1(x) / q))
    off = 1e-4 * truth + 1e-12
    assert low <= truth + off and truth - off <= high
    assert low >= 0.95 * truth - off


def test_labels_and_mixed_mechanisms():
    inner = Composed(((Gdp(0.5), 1), (LaplacePair(0.4), 3)))
    labelled = Sampled(Mix(((0.3, inner), (0.7, Gdp(0.2)))), 0.2)
    low, high = epsilon_interval(Composed(((labelled, 10),)), 1e-5)
    assert 0.9 * high < low <= high
    assert not Composed(((Sampled(inner, 0.5), 2),)).support().amplifiable
    assert (
        Sampled(Composed(((Sampled(inner, 0.5), 2),)), 0.1).lattice(0.1, Side.DOWN).mass.sum() == 0
    )


def test_a_mechanism_of_two_kinds_on_one_sample():
    release = fp.Gaussian(noise_multiplier=2.0) + fp.Laplace(noise_multiplier=4.0)
    run = release.sampled(fp.Poisson(0.1)) * 50
    bound = fp.epsilon(run, delta=1e-6, adjacency="add_remove")
    alone = fp.epsilon(
        fp.Gaussian(noise_multiplier=2.0).sampled(fp.Poisson(0.1)) * 50,
        delta=1e-6,
        adjacency="add_remove",
    )
    assert alone.resolution[0] < bound.resolution[0] <= bound.upper
    assert bound.upper - bound.resolution[0] < 0.02 * bound.upper
