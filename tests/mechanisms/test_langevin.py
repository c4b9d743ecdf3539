"""Tests of ``fedprivacy.mechanisms.langevin``."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.theory.gaussian import epsilon as gdp_epsilon
from tests.mechanisms.test_upload import descent, epsilon, hamiltonian, langevin

DELTA = 1e-5


# Numbers that were verified elsewhere


@pytest.mark.parametrize(
    "cohort, clients, fraction, target, truth",
    [
        (1, 100, 1.0, 1e-7, 0.750977),
        (10, 1000, 1.0, 1e-7, 0.750977),
        (10, 100, 0.1, 1e-7, 0.106077),
    ],
)
def test_counterexamples_to_theorem_6_1(cohort, clients, fraction, target, truth):
    one = langevin(4.84480526, batch_fraction=fraction).in_cohort(fp.FixedSize(cohort, clients))
    bound = fp.epsilon(one, delta=target, adjacency="replace_one")
    assert bound.lower <= bound.upper
    assert bound.upper == pytest.approx(truth, rel=1e-5)


def test_linear_losses_are_no_lower_end_of_strongly_convex_ones():
    """1.4764 was once attained by losses that are not of the class; a quadratic of it is exact."""
    sizes = tuple(1 / (20 + k / 12) for k in range(200))
    shape = {"temperature": 1.0, "correlation": 0.0, "weight": 1.0, "gradient_sensitivity": 0.2}
    convex = {"strong_convexity": 1.0, "smoothness": 10.0}
    given = fp.FederatedLangevin(step_size=sizes, batch_fraction=1.0, steps=200, **shape, **convex)
    shift = variance = 0.0
    for size in sizes:
        shift = (1 - size) * shift + 0.2 * size
        variance = (1 - size) ** 2 * variance + 2 * size
    truth = gdp_epsilon(shift / math.sqrt(variance), DELTA)
    found = epsilon(given)
    assert truth == pytest.approx(0.719387, abs=1e-6)
    assert found.lower <= truth * (1 + 1e-9) and truth <= found.upper * (1 + 1e-9)
    assert found.upper - found.lower <= 1e-5
    batches = epsilon(replace(given, batch_fraction=0.999))
    assert batches.lower == 0.0 and batches.witness is None


# Releases


@pytest.mark.parametrize(
    "client",
    [langevin(3.0), hamiltonian(leapfrog_steps=1), descent()],
    ids=lambda c: type(c).__name__,
)
def test_releases_carry_the_step_noise(client):
    generator = np.random.default_rng(5)
    at = np.full(20_000, 0.25)
    noise = (client.release(at, generator) - at) / client.step_noise_std
    assert abs(noise.mean()) * math.sqrt(len(at)) < 6.2  # fails by chance once in 1e9
    assert abs((noise**2).mean() - 1.0) * math.sqrt(len(at) / 2.0) < 6.5
    with pytest.raises(ParameterError, match="non-finite"):
        client.release(np.array([math.nan]), generator)


def test_noise_that_hides_its_own_rounding_no_more_is_refused():
    mechanism = fp.FederatedLangevin(
        step_size=(1e-8, 1e-3),
        temperature=1.0,
        correlation=0.0,
        weight=1.0,
        batch_fraction=1.0,
        gradient_sensitivity=0.1,
        steps=2,
        strong_convexity=0.5,
        smoothness=1.0,
    )
    assert 1.0 < mechanism.widening(4) < 1.25
    with pytest.raises(
        ParameterError, match="leave out strong_convexity and smoothness, so that the"
    ):
        mechanism.widening(10_000)
    drawn = replace(mechanism, batch_fraction=0.5)
    assert drawn.widening(10_000) == 1.0  # T6 does not serve it: its steps are composed
