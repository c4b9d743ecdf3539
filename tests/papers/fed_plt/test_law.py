"""Tests of ``fedprivacy.papers.fed_plt.law``."""

import itertools
import math

import numpy as np
import pytest

from fedprivacy.papers.fed_plt.law import QuadraticSplitting, View, mixed_delta
from fedprivacy.theory.splitting_privacy import final_models_mu, rounds_mu
from tests import truth
from tests.theory.test_splitting_privacy import private, quadratic, simulate

TINY = 1e-12


def dense_mu(curves, rho, gamma, steps, rounds, start_std, shifts, view, active=None):
    """mu by pushing every unit noise through the algorithm, one run a noise."""
    agents = len(curves)
    count = agents + rounds * steps * agents
    unit = np.eye(count)
    starts = start_std * unit[:, :agents]
    noise = math.sqrt(2 * gamma) * unit[:, agents:].reshape(count, rounds, steps, agents)
    zero = np.zeros((count, agents))
    x, z, y = simulate(curves, rho, gamma, steps, rounds, (starts, zero), noise, active=active)
    one = np.zeros((1, rounds, steps, agents))
    pushed = simulate(
        curves,
        rho,
        gamma,
        steps,
        rounds,
        (zero[:1], zero[:1]),
        one,
        lambda w, k, step: shifts[k, step],
        active,
    )
    pick = {
        View.TRANSCRIPT: lambda x, z, y: z.reshape(len(x), -1),
        View.UPLOADS: lambda x, z, y: z[:, :, 0],
        View.FINAL_MODELS: lambda x, z, y: x,
        View.FINAL_MODEL: lambda x, z, y: x[:, :1],
        View.FINAL_AVERAGE: lambda x, z, y: y[:, None],
    }[view]
    rows, moved = pick(x, z, y).T, pick(*pushed)[0]
    whitened = np.linalg.lstsq(rows @ rows.T, moved, rcond=1e-13)[0]
    return math.sqrt(float(moved @ whitened))


@pytest.mark.parametrize("view", list(View))
@pytest.mark.parametrize("partial", [False, True])
def test_the_law_is_that_of_the_algorithm(view, partial):
    generator = np.random.default_rng(2)
    for agents, rounds, steps in ((1, 3, 4), (3, 4, 2), (2, 1, 5)):
        curves = generator.uniform(0.5, 3.0, agents)
        rho, gamma = generator.uniform(0.3, 5.0), 0.2
        active = generator.random((rounds, agents)) < 0.6 if partial else None
        if active is not None:
            active[0, 0] = True
        shifts = generator.normal(size=(rounds, steps))
        for start in (0.0, 1.3):
            law = QuadraticSplitting(
                curvatures=curves,
                penalty=rho,
                step_size=gamma,
                noise_scale=1.0,
                local_steps=steps,
                rounds=rounds,
                start_std=start,
                active=active,
            )
            exact = dense_mu(curves, rho, gamma, steps, rounds, start, shifts, view, active)
            assert law.mu(shifts, view) == pytest.approx(exact, rel=1e-7, abs=1e-9)


def test_what_is_seen_of_more_is_more():
    law = quadratic(3.0, 0.2, 6, 4, agents=3)
    mus = {view: law.mu(1.0, view) for view in View}
    assert mus[View.FINAL_MODEL] <= mus[View.FINAL_MODELS] <= mus[View.TRANSCRIPT]
    assert mus[View.UPLOADS] <= mus[View.TRANSCRIPT]
    assert mus[View.FINAL_AVERAGE] <= mus[View.TRANSCRIPT]
    assert mus[View.TRANSCRIPT] <= quadratic(3.0, 0.2, 6, 4, agents=3, secret=False).mu(
        1.0, View.TRANSCRIPT
    )


def test_random_participation_is_a_mixture_of_patterns():
    """With x_0 public every round weighs the same, so the patterns collapse to a binomial."""
    rounds, p, laws = 4, 0.3, []
    for pattern in itertools.product((False, True), repeat=rounds):
        law = quadratic(1.0, 0.2, 5, rounds, secret=False, active=np.array(pattern)[:, None])
        laws.append((p ** sum(pattern) * (1 - p) ** (rounds - sum(pattern)), law))
    mixed = [(weight, law.mu(1.0, "transcript") if any(law.active) else 0) for weight, law in laws]
    one = rounds_mu(private(1.0, 0.2, 5, 1))
    for epsilon in (0.1, 1.0, 3.0):
        exact = float(truth.erased_delta(epsilon, one, rounds, p))
        assert mixed_delta(mixed, epsilon) == pytest.approx(exact, rel=1e-7)


def best_signs(law, view):
    """A local maximum of mu over patterns of signs, from the constant one."""
    rows = law.rows(view)
    _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    kept = basis[sizes > sizes.max() * 1e-12]
    shape = (law.rounds, law.local_steps)
    units = np.zeros((law.rounds * law.local_steps, rows.shape[1]))
    for at in range(len(units)):
        one = np.zeros(len(units))
        one[at] = 1.0
        units[at] = law.moved(one.reshape(shape))
    pull, signs = units @ kept.T, np.ones(len(units))
    for _ in range(30):
        signs = np.where(pull @ (signs @ pull) >= 0.0, 1.0, -1.0)
    return signs.reshape(shape)


def test_the_final_models_of_many_agents_are_contained():
    """Any drift of at most g is allowed for, so every pattern of signs is, for every N and h."""
    generator, closest = np.random.default_rng(43), 0.0
    for _ in range(60):
        low, agents = generator.uniform(0.3, 2.0), int(generator.integers(1, 5))
        high, rho = low * generator.uniform(1.0, 1.5), math.exp(generator.uniform(-2, 3)) / low
        gamma = generator.uniform(0.05, 0.97) * 2 / (high + 1 / rho)
        steps, rounds = int(generator.integers(1, 12)), int(generator.integers(1, 9))
        run = private(rho, gamma, steps, rounds, low=low, high=high)
        law = QuadraticSplitting(
            curvatures=generator.uniform(low, high, agents),
            penalty=rho,
            step_size=gamma,
            noise_scale=1.0,
            local_steps=steps,
            rounds=rounds,
            regulariser=generator.choice([0.0, 1.0, 1e6]),
        )
        bound = min(rounds_mu(run), final_models_mu(run))
        for view in ("final_model", "final_models"):
            mu = law.mu(best_signs(law, view), view)
            assert mu <= bound * (1 + TINY)
            closest = max(closest, mu / bound)
    assert closest > 0.9
