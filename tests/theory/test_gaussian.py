"""Tests of ``fedprivacy.theory.gaussian``."""

import math

import mpmath
import numpy as np
import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.theory import gaussian
from fedprivacy.theory.gaussian import AffineMap, Normal, point, w2
from tests import truth
from tests.systems.fa_ld.test_law import spd, symmetric

# Gaussian laws.


def mp_root(matrix):
    return mpmath.sqrtm(mpmath.matrix(matrix.tolist()))


@pytest.mark.parametrize("seed", range(3))
def test_w2_against_extended_precision(seed):
    generator = np.random.default_rng(seed)
    a, b = symmetric(spd(generator, 3)), symmetric(spd(generator, 3, 0.1, 9.0))
    apart = generator.normal(size=3)
    half = mp_root(a)
    cross = mpmath.sqrtm(half * mpmath.matrix(b.tolist()) * half)
    squared = sum(a[i, i] + b[i, i] - 2 * cross[i, i] for i in range(3)) + sum(apart**2)
    found = w2(Normal(mean=apart, covariance=a), Normal(mean=np.zeros(3), covariance=b))
    assert float(found) == pytest.approx(float(mpmath.sqrt(mpmath.re(squared))), rel=1e-12)


def test_w2_of_near_laws_keeps_its_digits():
    """Nearly equal covariances: traces would leave the square root of the rounding."""
    generator = np.random.default_rng(5)
    a = symmetric(spd(generator, 4))
    assert float(gaussian.bures(a, a)) < 1e-14
    # to first order scaling by 1 + t moves the root by t / 2 of itself
    t = 1e-9
    expected = t / 2 * math.sqrt(np.trace(a))
    assert float(gaussian.bures(a, a * (1 + t))) == pytest.approx(expected, rel=1e-5)


def test_w2_of_a_point_and_of_batches():
    law = Normal(mean=np.zeros(2), covariance=np.diag([4.0, 9.0]))
    assert float(w2(point([3.0, 0.0]), law)) == pytest.approx(math.sqrt(9 + 13), rel=1e-14)
    batch = Normal(mean=np.array([[3.0, 0.0], [0.0, 0.0]]), covariance=np.zeros((2, 2, 2)))
    assert w2(batch, law) == pytest.approx([math.sqrt(22), math.sqrt(13)], rel=1e-14)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 101])
def test_powers_are_repetitions(count):
    generator = np.random.default_rng(count)
    once = AffineMap(
        matrix=0.4 * generator.normal(size=(3, 3)),
        offset=generator.normal(size=3),
        noise=symmetric(spd(generator, 3)),
    )
    law = start = Normal(mean=generator.normal(size=3), covariance=symmetric(spd(generator, 3)))
    for _ in range(count):
        law = once.apply(law)
    jumped = once.power(count).apply(start)
    assert jumped.mean == pytest.approx(law.mean, rel=1e-10, abs=1e-12)
    assert jumped.covariance == pytest.approx(law.covariance, rel=1e-10, abs=1e-12)


def test_the_stationary_law_stays():
    generator = np.random.default_rng(3)
    once = AffineMap(
        matrix=np.eye(3) - 0.2 * symmetric(spd(generator, 3)),
        offset=generator.normal(size=3),
        noise=symmetric(spd(generator, 3)),
    )
    law = once.stationary()
    assert float(w2(once.apply(law), law)) < 1e-12
    assert float(w2(once.power(2000).apply(point(np.ones(3))), law)) < 1e-10
    with pytest.raises(ParameterError, match="spectral radius below 1"):
        AffineMap(matrix=np.eye(2), offset=np.zeros(2), noise=np.eye(2)).stationary()


def test_mu_of_two_gaussians():
    generator = np.random.default_rng(0)
    covariance, shift = symmetric(spd(generator, 4)), generator.normal(size=4)
    squared = shift @ np.linalg.solve(covariance, shift)
    assert gaussian.gdp(shift, covariance) == pytest.approx(math.sqrt(squared), rel=1e-12)
    flat = np.diag([1.0, 0.0])
    assert gaussian.gdp([2.0, 0.0], flat) == 2.0
    assert gaussian.gdp([2.0, 1e-3], flat) == math.inf
    assert gaussian.gdp([0.0, 0.0], flat) == 0.0


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 4.0, 30.0])
def test_gaussian_profile(mu, epsilon):
    true = float(truth.gaussian_delta(epsilon, mu))
    assert gaussian.delta(mu, epsilon) == pytest.approx(true, rel=1e-9, abs=1e-300)
    if 1e-12 < true < 0.9 and epsilon:
        assert gaussian.epsilon(mu, true) == pytest.approx(epsilon, rel=1e-8)


def test_infinitely_far_apart():
    assert gaussian.delta(math.inf, 3.0) == 1.0
    assert gaussian.epsilon(math.inf, 1e-5) == math.inf
