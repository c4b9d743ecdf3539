"""Tests of ``fedprivacy.systems.fed_plt.proximal``."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedprivacy.papers.fed_plt.law import QuadraticSplitting
from fedprivacy.systems.fed_plt import proximal
from fedprivacy.training import AgentData, FederatedSplitting, LeastSquares, LocalSolver
from tests.systems.fed_plt.test_agents import normal_equations
from tests.systems.fed_plt.test_loop import agents, run

pytest.importorskip("torch")

import torch

from fedprivacy.systems.fed_plt.proximal import checked_prox

LIMIT = 6.5  # standard errors: exceeded by a sound run with probability below 1e-10
pytestmark = pytest.mark.usefixtures("one_thread")


def penalty_value(name, x):
    values = {
        "l2": lambda: 1.5 * (x @ x) / 2,
        "l1": lambda: 1.5 * np.abs(x).sum(),
        "box": lambda: 0.0 if np.all(np.abs(x) <= 0.2 + 1e-12) else math.inf,
        "group": lambda: 1.5 * (np.linalg.norm(x[:2]) + np.abs(x[2])),
    }
    return values[name]()


REGULARISERS = {
    "l2": proximal.L2(1.5),
    "l1": proximal.L1(1.5),
    "box": proximal.Box(-0.2, 0.2),
    "group": proximal.Group(1.5, ((0, 1), (2,))),
}


@pytest.mark.parametrize("name", REGULARISERS)
def test_composite_problems_reach_their_optimum(name):
    """No point around it is better: the problem is convex, so it is the optimum."""
    parts = agents()
    data, chance = AgentData.of(parts), np.random.default_rng(1)
    loss = LeastSquares(regularisation=0.5)
    loop = FederatedSplitting.on(data, loss=loss, regulariser=REGULARISERS[name])
    state = run(loop, data, 80)
    inner, right = normal_equations(parts, 0.5)

    def value(x):
        return x @ inner @ x / 2 - right @ x + penalty_value(name, x)

    best = loop.consensus(state).numpy()
    np.testing.assert_allclose(loop.average(state), best, atol=1e-9)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(60):
            assert value(best) <= value(best + size * chance.normal(size=3)) + 1e-12
    unpenalised = np.linalg.solve(inner, right)
    assert value(best) < value(unpenalised) - 1e-3


@pytest.mark.parametrize("name", REGULARISERS)
def test_proximal_operators_minimise_what_they_should(name):
    chance = np.random.default_rng(2)
    for step in (0.01, 0.4, 3.0):
        for point in chance.normal(size=(20, 3)):
            found = REGULARISERS[name](torch.from_numpy(point), step).numpy()

            def value(x, point=point, step=step):
                return penalty_value(name, x) + ((x - point) ** 2).sum() / (2 * step)

            tried = [found + size * chance.normal(size=3) for size in (1e-4, 1e-2, 1.0)]
            assert all(value(found) <= value(other) + 1e-13 for other in tried)


def test_an_own_operator_is_any_function():
    data = AgentData.of(agents())
    loss = LeastSquares(regularisation=0.5)
    own = FederatedSplitting.on(data, loss=loss, regulariser=lambda point, step: point / (1 + step))
    ours = replace(own, regulariser=proximal.L2(1.0))
    torch.testing.assert_close(run(own, data, 9).models, run(ours, data, 9).models)


# The exact law


def line_agents(values, targets):
    """Agents on the line with one record a_i, so that f_i has curvature a_i^2 + regularisation."""
    pairs = zip(values, targets, strict=True)
    return AgentData.of([([[a]], [b]) for a, b in pairs])


@pytest.mark.fast_cells("True")
@pytest.mark.parametrize("partial", [False, True])
def test_noisy_runs_have_the_oracles_means_and_covariances(partial):
    """Sample moments of 20 000 runs, each within 6.5 standard errors; in all below 1e-7."""
    values, rho, gamma, tau, rounds, runs = (0.3, 1.2, 0.8), 0.9, 0.35, 0.4, 4, 20_000
    active = np.ones((rounds, 3), bool)
    if partial:
        active[1, 0] = active[2, 1:] = False
    law = QuadraticSplitting(
        curvatures=[a * a + 0.5 for a in values],
        penalty=rho,
        step_size=gamma,
        noise_scale=tau,
        local_steps=3,
        rounds=rounds,
        active=active,
        regulariser=0.7,
    )
    solver = LocalSolver(method="noisy", steps=3, step_size=gamma, noise_scale=tau, clip_norm=1e6)

    def final(targets, **options):
        data = line_agents(values, targets)
        loop = FederatedSplitting(
            loss=LeastSquares(regularisation=0.5),
            records=(1, 1, 1),
            dimension=1,
            penalty=rho,
            regulariser=proximal.L2(0.7),
            **options,
        )
        state = loop.init()
        for row in active:
            state, _ = loop.step(state, data, dropout=lambda _, row=row: np.flatnonzero(~row))
        return torch.cat([state.models[..., 0], state.auxiliary[..., 0]], -1).numpy()

    sample = final((1.0, -0.5, 2.0), solver=solver, runs=runs, seed=11)
    quiet = final((1.0, -0.5, 2.0), solver=LocalSolver(steps=3, step_size=gamma))
    x, z = law._law
    rows = np.concatenate([x[-1], z[-1]])
    covariance = rows @ rows.T
    spread = np.sqrt(np.diag(covariance))
    off = np.abs(sample.mean(0) - quiet) / (spread / math.sqrt(runs))
    assert off.max() < LIMIT
    centred = sample - quiet
    found = centred.T @ centred / runs
    error = np.sqrt((covariance**2 + np.outer(spread**2, spread**2)) / runs)
    assert (np.abs(found - covariance) / error).max() < LIMIT
    other = final((1.0 + 0.6, -0.5, 2.0), solver=LocalSolver(steps=3, step_size=gamma))
    assert np.allclose(other - quiet, rows @ law.moved(-0.3 * 0.6), atol=1e-12)


def test_a_regulariser_s_point_has_the_point_s_precision():
    point = torch.zeros(2, dtype=torch.float64)
    assert checked_prox(None, point, 1.0) is point
    found = checked_prox(lambda p, step: p.float() + step, point, 2.0)
    assert found.dtype is torch.float64 and found.tolist() == [2.0, 2.0]
    # An input that is not finite already is not the regulariser's fault.
    assert checked_prox(lambda p, step: p, point * math.nan, 1.0).isnan().all()
