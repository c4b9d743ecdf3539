"""Tests of ``fedprivacy.mechanisms.hamiltonian``."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import UnsupportedCombination
from fedprivacy.theory.gaussian import epsilon as gdp_epsilon
from tests.mechanisms.test_upload import epsilon, hamiltonian

DELTA = 1e-5


# One against another


@pytest.mark.parametrize("fraction", [1.0, 0.3])
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_one_leapfrog_step_is_a_langevin_step(fraction, rho):
    eta, times = 0.05, 4
    shape = {"weight": 0.2, "batch_fraction": fraction, "gradient_sensitivity": 2.0}
    first = fp.FederatedHamiltonian(
        step_size=eta, leapfrog_steps=1, correlation=rho**2, iterations=times, **shape
    )
    second = fp.FederatedLangevin(
        step_size=eta**2 / 2.0, temperature=1.0, correlation=rho, steps=times, **shape
    )
    assert first.step_noise_std == pytest.approx(second.step_noise_std, rel=1e-12)
    one, other = epsilon(first), epsilon(second)
    assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper), rel=1e-9)


def test_noise_on_the_gradient_joins_the_momentum_of_one_step():
    alone, both = (
        hamiltonian(leapfrog_steps=1, gradient_noise_multiplier=z, step_size=0.5)
        for z in (0.0, 2.0)
    )
    mu = 1.0 / math.hypot(alone.momentum_multiplier, 2.0)
    assert epsilon(both).upper == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-9)
    sensitivity = 0.5**2 / 2.0 * 2.0 / 0.2
    assert both.step_noise_std / sensitivity == pytest.approx(1.0 / mu, rel=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_straight_lines_of_leapfrog(steps):
    """The weights of the queries come from the integrator itself, with constant gradients."""
    client = hamiltonian(leapfrog_steps=steps)
    eta, queries = client.step_size, 2 * steps - 1
    moved = []
    for nonzero in range(queries):
        answers = iter([float(k == nonzero) for k in range(queries)])
        place, momentum = 0.0, 0.0
        gradient = next(answers)
        for k in range(steps):
            place += eta * momentum - eta**2 / 2.0 * gradient
            if k < steps - 1:
                momentum -= eta / 2.0 * (gradient + next(answers))
                gradient = next(answers)
        moved.append(-place)
    unit = client.gradient_sensitivity / (client.batch_fraction * client.weight)
    noise = math.hypot(
        steps * eta * math.sqrt((1.0 - client.correlation) / client.weight),
        math.hypot(*moved) * client.gradient_noise_std,
    )
    mu = sum(moved) * unit / noise
    assert epsilon(client).lower == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-6)
    assert epsilon(client).upper >= epsilon(client).lower


def test_trajectories_of_different_step_sizes():
    sizes = (0.05, 0.02)
    one = hamiltonian(leapfrog_steps=1, gradient_noise_multiplier=0.0)
    varied = replace(one, step_size=sizes, iterations=2)
    squares = [replace(one, step_size=s).momentum_multiplier ** -2 for s in sizes]
    assert epsilon(varied).upper == pytest.approx(
        gdp_epsilon(math.sqrt(sum(squares)), DELTA), rel=1e-9
    )
    assert epsilon(varied).lower <= epsilon(varied).upper
    long = hamiltonian(step_size=sizes, iterations=2)
    parts = [replace(long, step_size=size, iterations=1) for size in sizes]
    assert epsilon(long).upper == pytest.approx(epsilon(parts[0] + parts[1]).upper, rel=1e-9)
    assert 0.0 < epsilon(long).lower <= epsilon(long).upper
    assert epsilon(replace(long, batch_fraction=0.5)).lower == 0.0


def test_momentum_alone_guarantees_nothing_over_trajectories():
    with pytest.raises(UnsupportedCombination, match="gradient_noise_multiplier above 0"):
        epsilon(hamiltonian(gradient_noise_multiplier=0.0))


def test_a_trajectory_is_no_single_release():
    with pytest.raises(UnsupportedCombination, match="noise is added to every gradient of a"):
        hamiltonian().release(np.zeros(2))
