"""Fed-PLT as a loop: where it converges to, what its rounds cost, what it refuses."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, ParameterError
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import CohortMechanism, NoisyGradientDescent, Parallel
from fedprivacy.systems.fed_plt import proximal
from fedprivacy.systems.fed_plt.bounds import find_parameters
from fedprivacy.systems.fed_plt.law import QuadraticSplitting
from fedprivacy.systems.fed_plt.solvers import LocalProblem
from fedprivacy.theory.gaussian import epsilon as gaussian_epsilon
from fedprivacy.theory.hidden_state import contraction_gap
from fedprivacy.training import (
    AgentData,
    FederatedSplitting,
    LeastSquares,
    LocalSolver,
    Logistic,
    ModuleLoss,
    train,
)

from .kills import kill_often

NOISY = LocalSolver(method="noisy", steps=5, step_size=0.4, noise_scale=0.3)
LIMIT = 6.5  # standard errors: exceeded by a sound run with probability below 1e-10


pytestmark = pytest.mark.usefixtures("one_thread")


def agents(kind="regression", sizes=(7, 12, 12, 5), dimension=3, seed=0):
    """Agents of different sizes whose truths differ."""
    chance = np.random.default_rng(seed)
    found = []
    for size in sizes:
        inputs = chance.normal(size=(size, dimension))
        outputs = inputs @ chance.normal(size=dimension) + chance.normal(size=size)
        found.append((inputs, outputs if kind == "regression" else np.where(outputs > 0, 1, -1)))
    return found


def normal_equations(parts, regularisation):
    """The sum of the agents' least squares: matrix and right-hand side."""
    inner = sum(a.T @ a / len(a) + regularisation * np.eye(a.shape[1]) for a, _ in parts)
    return inner, sum(a.T @ b / len(a) for a, b in parts)


def run(loop, data, rounds):
    return train(loop, data, rounds=rounds).state


# Where it converges to

DIFFERENT = (
    LocalSolver(steps=5),
    LocalSolver(steps=9, step_size=0.1),
    LocalSolver(method="accelerated", steps=20),
    LocalSolver(method="quasi_newton", steps=6),
)
WAYS = {
    "found": {},
    "accelerated": {"solver": LocalSolver(method="accelerated")},
    "newton": {"solver": LocalSolver(method="newton", steps=1), "penalty": 0.7},
    "both": {
        "solver": (LocalSolver(method="newton", steps=2),) * 2
        + (LocalSolver(method="quasi_newton", steps=7),) * 2,
        "penalty": 0.7,
    },
    "each its own": {"solver": DIFFERENT, "penalty": 0.7},
    "partial": {"participation": (0.3, 0.9, 1.0, 0.5), "seed": 4},
    "two of four": {"participation": fp.FixedSize(2, population=4), "seed": 4},
    "full batches": {"solver": LocalSolver(method="stochastic", batch_size=99)},
}


@pytest.mark.parametrize("way", WAYS)
def test_least_squares_reach_the_closed_form(way):
    parts = agents()
    data = AgentData.of(parts)
    loop = FederatedSplitting.on(data, loss=LeastSquares(regularisation=0.5), **WAYS[way])
    state = run(loop, data, 300 if "participation" in WAYS[way] else 60)
    best = np.linalg.solve(*normal_equations(parts, 0.5))
    for found in (loop.average(state), loop.consensus(state), *state.models):
        np.testing.assert_allclose(found, best, atol=1e-7)


def test_logistic_regression_reaches_scipys_optimum():
    parts = agents("classes")
    data = AgentData.of(parts)
    loop = FederatedSplitting.on(data, loss=Logistic(regularisation=0.2), participation=0.8, seed=1)

    def total(x):
        losses = [np.logaddexp(0.0, -b * (a @ x)).mean() + 0.1 * x @ x for a, b in parts]
        slopes = [-(a * (b * expit(-b * (a @ x)))[:, None]).mean(0) + 0.2 * x for a, b in parts]
        return sum(losses), sum(slopes)

    best = minimize(total, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10})
    np.testing.assert_allclose(loop.average(run(loop, data, 100)), best.x, atol=1e-7)


@pytest.mark.parametrize("loss", [Logistic(regularisation=0.2), LeastSquares()])
def test_hessians_are_those_of_the_gradients(loss):
    apart = [AgentData.of(agents("classes", (6, 6, 6), seed=seed)) for seed in range(2)]
    data = AgentData(
        torch.stack([each.features for each in apart]), torch.stack([a.targets for a in apart])
    )
    points = torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = loss.hessian(points, data)
    for at in range(3):
        moved = torch.zeros(3, dtype=torch.float64)
        moved[at] = 1e-6
        rise = loss.gradient(points + moved, data) - loss.gradient(points - moved, data)
        torch.testing.assert_close(found[..., at], rise / 2e-6, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("far", [0.0, 40.0])
def test_newton_solves_the_local_problems_that_gradient_steps_solve(far):
    """From far off too, where a whole step would overshoot: logistic losses are flat there."""
    data = AgentData.of(agents("classes"))
    loss = Logistic(regularisation=1e-3)
    ends = []
    for solver in (
        LocalSolver(method="newton", steps=12),
        LocalSolver(method="quasi_newton", steps=25),
        LocalSolver(steps=600, step_size=0.3),
    ):
        loop = FederatedSplitting.on(data, loss=loss, solver=solver, penalty=10.0)
        state = loop.init()
        begun = replace(state, models=state.models + far)
        ends.append(loop.step(begun, data)[0].models)
    torch.testing.assert_close(ends[0], ends[1], rtol=0.0, atol=1e-12)
    torch.testing.assert_close(ends[0], ends[2], rtol=0.0, atol=1e-6)
    assert float(ends[0].abs().max()) > 0.1


def test_quasi_newton_solves_a_networks_local_problems():
    """No Hessian is asked for: what is left of the local gradient after some thirty steps."""
    data = AgentData.of(agents("classes"))
    data = replace(data, targets=data.targets.clamp(min=0.0))
    loss = ModuleLoss(model=lambda: torch.nn.Linear(3, 2))
    problem = LocalProblem(loss, data, torch.zeros(4, 8, dtype=torch.float64), 2.0, None)
    start = torch.full((4, 8), 3.0, dtype=torch.float64)
    solver = LocalSolver(method="quasi_newton", steps=30)
    ends, _ = problem.solve(start, [solver] * 4, np.random.default_rng(0), None)
    assert float(problem.slope(ends).abs().max()) < 1e-10 < float(problem.slope(start).abs().min())


def test_newton_is_refused_where_it_has_nothing_to_go_by():
    data = AgentData.of(agents())
    with pytest.raises(ParameterError, match="hessian"):
        FederatedSplitting(
            loss=ModuleLoss(model=lambda: torch.nn.Linear(3, 2)),
            records=data.records,
            dimension=8,
            penalty=1.0,
            solver=LocalSolver(method="newton", steps=1),
        )
    for method in ("newton", "quasi_newton"):
        for given in ({"step_size": 0.1}, {"noise_scale": 1.0}, {"clip_norm": 1.0}):
            with pytest.raises(ParameterError, match=next(iter(given))):
                LocalSolver(method=method, steps=1, **given)


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


# Batches of runs, batches of records


def test_a_batch_of_runs_is_its_runs():
    loss, solver = Logistic(regularisation=0.3), LocalSolver(steps=3, step_size=0.2)
    apart = [AgentData.of(agents("classes", (6, 6, 6), seed=seed)) for seed in range(4)]
    stacked = AgentData(
        torch.stack([each.features for each in apart]),
        torch.stack([each.targets for each in apart]),
    )
    options = {"loss": loss, "solver": solver, "penalty": 0.8}
    together = run(FederatedSplitting.on(stacked, runs=4, **options), stacked, 5)
    shared = run(FederatedSplitting.on(apart[2], runs=4, **options), apart[2], 5)
    for number, one in enumerate(apart):
        alone = run(FederatedSplitting.on(one, **options), one, 5)
        torch.testing.assert_close(together.models[number], alone.models)
        if number == 2:
            torch.testing.assert_close(shared.auxiliary[3], alone.auxiliary)


def test_batches_are_drawn_without_replacement_and_without_padding():
    seen = []

    class Spy(LeastSquares):
        def gradient(self, points, data, clip_norm=None):
            seen.append((data.features[..., 0], data.weights))
            return super().gradient(points, data, clip_norm)

    sizes = (7, 12, 3)
    data = AgentData.of([(np.arange(q)[:, None] + 1.0, np.zeros(q)) for q in sizes])
    solver = LocalSolver(method="stochastic", batch_size=5, steps=40, step_size=0.01)
    loop = FederatedSplitting.on(data, loss=Spy(regularisation=1.0), solver=solver, penalty=1.0)
    loop.step(loop.init(), data)
    for inputs, weights in seen:
        for agent, size in enumerate(sizes):
            kept = inputs[agent][weights[agent] > 0]
            assert len(set(kept.tolist())) == min(5, size) and kept.max() <= size
            assert float(weights[agent].sum()) == pytest.approx(1.0)
    drawn = [inputs[1][weights[1] > 0] for inputs, weights in seen]
    assert {float(x) for each in drawn for x in each} == set(range(1, 13))


# The exact law


def line_agents(values, targets):
    """Agents on the line with one record a_i, so that f_i has curvature a_i^2 + regularisation."""
    pairs = zip(values, targets, strict=True)
    return AgentData.of([([[a]], [b]) for a, b in pairs])


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


# What a round costs


def bounded(**options):
    settings = {
        "loss": Logistic(regularisation=0.5, feature_bound=1.0),
        "records": (100,) * 4,
        "dimension": 3,
        "penalty": 1.0,
        "solver": NOISY,
    }
    return FederatedSplitting(**(settings | options))


class Single(Logistic):
    """A loss whose start is in single precision, as torch makes it."""

    def start(self, generator):
        return torch.rand(3, generator=generator)


def test_a_loss_s_own_start_is_stepped_from_in_double_precision():
    """The first round refused the loop's own first state."""
    loop = bounded(loss=Single(regularisation=0.5, feature_bound=1.0), records=(7, 12, 12, 5))
    begun = loop.init()
    assert begun.models.dtype is torch.float64 and bool((begun.models != 0.0).all())
    state, _ = loop.step(begun, AgentData.of(agents("classification")))
    assert bool(torch.isfinite(state.models).all())


def test_a_round_is_t6_with_the_losss_own_sensitivity():
    step, noise = 0.4, math.sqrt(0.8) * 0.3
    solve = NoisyGradientDescent(
        step_size=step,
        noise_std=noise,
        sensitivity=0.02,
        strong_convexity=1.5,
        smoothness=1.75,
        steps=5,
    )
    assert bounded().round_mechanism == solve
    c = 1 - 0.4 * 1.5
    mu = step * 0.02 / noise * math.sqrt((1 - c**5) / (1 + c**5) * (1 + c) / (1 - c))
    found = fp.epsilon(bounded().round_mechanism * 20, delta=1e-5, adjacency="replace_one")
    exact = gaussian_epsilon(mu * math.sqrt(20), 1e-5)
    assert exact <= found.upper * (1 + 1e-12) and found.upper == pytest.approx(exact, rel=1e-3)


def test_agents_that_differ_are_kinds_apart():
    loop = bounded(records=(100, 50, 100, 100), participation=(1.0, 0.5, 0.2, 0.2))
    whole = loop.round_mechanism
    assert isinstance(whole, Parallel) and len(whole.mechanisms) == 3
    alone = [bounded(records=(q,), participation=p) for q, p in ((100, 1.0), (50, 0.5), (100, 0.2))]
    ask = {"delta": 1e-5, "adjacency": "replace_one", "observer": "server"}
    each = [fp.epsilon(one.round_mechanism * 30, **ask).upper for one in alone]
    assert fp.epsilon(whole * 30, **ask).upper == pytest.approx(max(each), rel=1e-6)
    assert isinstance(alone[1].round_mechanism, CohortMechanism)
    assert alone[1].round_mechanism.scheme == fp.Poisson(0.5)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_two_bounds_over_the_records_is_the_logistic_sensitivity(dimension):
    """Never exceeded on random pairs, nearly attained by opposed records from two dimensions on."""
    chance, loss, bound = np.random.default_rng(3), Logistic(feature_bound=2.0), 2.0
    size, limit = 10, loss.sensitivity(10)
    assert limit == pytest.approx(2 * bound / size)
    largest = 0.0
    for trial in range(200):
        pair = chance.normal(size=(2, dimension))
        point = chance.normal(size=dimension) * 10.0 ** chance.uniform(-1, 3)
        if trial % 2 and dimension > 1:
            side = np.linalg.svd(point[None])[2][1]
            lean = -point / np.linalg.norm(point) * 0.02
            pair = np.stack([side + lean, -side + lean])
            point = point / np.linalg.norm(point) * 1e4
        pair *= bound / np.linalg.norm(pair, axis=1, keepdims=True)
        rest = chance.normal(size=(size - 1, dimension))
        labels = np.ones(size)
        points = torch.from_numpy(point)[None]
        ends = [
            loss.gradient(points, loss.prepared(AgentData.of([(np.vstack([rest, one]), labels)])))
            for one in pair
        ]
        largest = max(largest, float((ends[0] - ends[1]).norm()))
    assert largest <= limit
    if dimension > 1:
        assert largest >= 0.999 * limit
    else:
        assert largest <= 1.0518 / 2 * limit


def clip_solver(clip, **options):
    return replace(NOISY, clip_norm=clip, **options)


class Bowl(nn.Module):
    """Its output is its two parameters, whatever the input."""

    def __init__(self):
        super().__init__()
        self.place = nn.Parameter(torch.tensor([3.0, 3.0]))

    def forward(self, inputs):
        return self.place[None] + 0.0 * inputs


def steep(outputs, targets):
    return (outputs[0, 0] ** 2 + 20.0 * outputs[0, 1] ** 2) / 2


def test_clipped_steps_are_composed_one_by_one():
    """c = .95, s / sd = .1, t = 1000, delta = 1e-5: 17.857, where contraction would say 2.558."""
    size, clip, gamma, tau = 40, 0.3, 0.05, None
    moves = gamma * 2 * clip / size
    noise = 10.0 * moves
    tau = noise / math.sqrt(2 * gamma)
    solver = LocalSolver(
        method="noisy", steps=1000, step_size=gamma, noise_scale=tau, clip_norm=clip
    )
    loop = FederatedSplitting(
        loss=ModuleLoss(model=Bowl, criterion=steep),
        records=(size,),
        dimension=2,
        penalty=1.0,
        solver=solver,
    )
    one = loop.round_mechanism
    assert one == NoisyGradientDescent(
        step_size=gamma, noise_std=noise, sensitivity=2 * clip / size, steps=1000
    )
    assert one.step_multiplier == pytest.approx(10.0)
    with pytest.raises(fp.UnsupportedCombination, match="replace_one"):
        fp.epsilon(one, delta=1e-5, adjacency="add_remove")
    found = fp.epsilon(one, delta=1e-5, adjacency="replace_one", observer="server")
    assert found.lower <= 17.857 + 5e-4 and found.upper == pytest.approx(17.857, abs=2e-3)
    assert gaussian_epsilon(math.sqrt(1000) * 0.1, 1e-5) == pytest.approx(17.857, abs=5e-4)
    if_it_contracted = NoisyGradientDescent(
        step_size=gamma,
        noise_std=noise,
        sensitivity=2 * clip / size,
        strong_convexity=1.0,
        smoothness=1.0,
        steps=1000,
    )
    too_little = fp.epsilon(if_it_contracted, delta=1e-5, adjacency="replace_one")
    assert too_little.upper == pytest.approx(2.558, abs=2e-3)


def test_clipping_destroys_contraction_but_not_of_one_linear_output():
    loss = ModuleLoss(model=Bowl, criterion=steep)
    data, chance = AgentData.of([([[0.0]], [0.0])]), np.random.default_rng(5)
    place, apart = torch.from_numpy(chance.normal(size=(2, 500, 1, 2)))
    pair = (2.0 * place, 2.0 * place + 1e-3 * apart)
    ends = [p - 0.05 * loss.gradient(p, data, 1.0) for p in pair]
    worst = float(((ends[0] - ends[1]).norm(dim=-1) / (pair[0] - pair[1]).norm(dim=-1)).max())
    assert 1.05 < worst < 1.2
    linear = LeastSquares(regularisation=0.2, feature_bound=2.0)
    data = linear.prepared(AgentData.of(agents(sizes=(9,))))
    low, high = linear.curvature()
    gap = contraction_gap(0.3, low, high)
    sizes = 10.0 ** chance.uniform(-2, 2, size=(500, 1, 1))
    pair = torch.from_numpy(chance.normal(size=(2, 500, 1, 3)) * sizes)
    ends = [p - 0.3 * linear.gradient(p, data, 0.4) for p in pair]
    before, after = ((p[0] - p[1]).norm(dim=-1) for p in (pair, ends))
    assert bool((after <= (1 - gap) * before * (1 + 1e-12)).all())
    assert float((after / before).max()) > 0.99 * (1 - gap)


def test_clipped_linear_outputs_keep_t6_with_the_regulariser_alone():
    loss = LeastSquares(regularisation=0.5, feature_bound=1.0)
    one = bounded(loss=loss, solver=clip_solver(0.25)).round_mechanism
    assert isinstance(one, NoisyGradientDescent)
    assert (one.sensitivity, one.strong_convexity, one.smoothness) == (0.005, 1.5, 2.5)
    both = bounded(solver=clip_solver(7.0)).round_mechanism
    assert both.sensitivity == 0.02
    unknown = bounded(loss=LeastSquares(regularisation=0.5), solver=clip_solver(0.25))
    one = unknown.round_mechanism
    assert (one.steps, one.strong_convexity, one.sensitivity) == (5, None, 0.005)


def test_the_books_of_a_private_run(tmp_path):
    data = AgentData.of(agents("classes", (100, 100, 100, 100)))
    loop = bounded(participation=0.5)
    path = tmp_path / "run.ledger"
    with Ledger.create(path, unit="record", adjacency="replace_one", observer="server") as ledger:
        train(loop, data, rounds=12, ledger=ledger)
        ledger.close()
    expected = fp.epsilon(
        loop.round_mechanism * 12, delta=1e-6, adjacency="replace_one", observer="server"
    )
    found = fp.audit(path, claim=(expected.upper, 1e-6))
    assert found.verdict == "HOLDS"
    assert fp.account(path, delta=1e-6).upper == pytest.approx(expected.upper, rel=1e-9)
    assert fp.audit(path, claim=(0.9 * expected.lower, 1e-6)).verdict == "FAILS"


@pytest.mark.parametrize(
    "loss", [LeastSquares(regularisation=0.5), Logistic(feature_bound=1.0, regularisation=0.5)]
)
def test_what_clipped_and_contracted_rounds_leave_in_the_ledger(tmp_path, loss):
    kind = "regression" if isinstance(loss, LeastSquares) else "classes"
    data = AgentData.of(agents(kind, (100, 80, 100, 100)))
    loop = bounded(loss=loss, records=data.records, solver=clip_solver(0.3))
    with Ledger.create(tmp_path / "l", unit="record", adjacency="replace_one") as ledger:
        train(loop, data, rounds=3, ledger=ledger)
    with_notes = Ledger.open(tmp_path / "l")
    assert with_notes.spent_rounds == 3 and with_notes.notes == ()
    expected = fp.epsilon(loop.round_mechanism * 3, delta=1e-5, adjacency="replace_one")
    assert fp.account(with_notes, delta=1e-5).upper == pytest.approx(expected.upper, rel=1e-9)


def test_a_budget_stops_it_before_anything_is_released():
    data = AgentData.of(agents("classes", (100,) * 4))
    loop, seen = bounded(), []
    three = fp.epsilon(loop.round_mechanism * 3, delta=1e-5, adjacency="replace_one").upper
    budget = fp.Budget(three * 1.001, 1e-5, adjacency="replace_one")
    with pytest.raises(BudgetExhausted):
        train(loop, data, rounds=9, budget=budget, on_release=seen.append)
    assert len(seen) == 3


@pytest.mark.parametrize("parameter", ["tau", "N_e", "K"])
def test_calibrate_any_one_of_noise_steps_and_rounds(parameter):
    def setting(tau=0.3, steps=5, rounds=20):
        solver = replace(NOISY, noise_scale=float(tau), steps=int(steps))
        return bounded(solver=solver).round_mechanism * int(rounds)

    ways = {
        "tau": (lambda t: setting(tau=t), {}),
        "N_e": (lambda n: setting(steps=n), {"integer": True, "domain": (1, 10_000)}),
        "K": (lambda k: setting(rounds=k), {"integer": True, "domain": (1, 10_000)}),
    }
    make, options = ways[parameter]
    budget = {"tau": 0.3, "N_e": 0.70, "K": 1.5}[parameter]
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    found = fp.calibrate(make, epsilon=budget, **ask, **options)
    assert found.bound.upper <= budget
    beyond = found.value * 0.99 if parameter == "tau" else found.value + 1
    assert fp.epsilon(make(beyond), **ask).upper > budget


# Parameters found, states kept


def test_what_is_not_given_is_searched():
    loop = FederatedSplitting(
        loss=Logistic(regularisation=0.5, feature_bound=3.0), records=(9, 9), dimension=2
    )
    found = find_parameters(
        strong_convexity=0.5, smoothness=2.75, gradient_cost=1.0, round_cost=10.0
    )
    assert loop.found == found and loop.rho == found.penalty
    assert {(s.steps, s.step_size) for s in loop.solvers} == {(found.local_steps, found.step_size)}
    own = replace(loop, solver=LocalSolver(steps=3), penalty=2.0)
    assert own.found is None and own.solvers[0].step_size == pytest.approx(2 / (0.5 + 2.75 + 1.0))


def test_agents_that_do_not_take_part_keep_their_state():
    data = AgentData.of(agents())
    options = {"loss": LeastSquares(regularisation=0.5), "participation": 0.5, "seed": 2}
    loop = FederatedSplitting.on(data, **options)
    state = replace(loop.init(), models=torch.ones(4, 3).double())
    after, info = loop.step(state, data, dropout=lambda cohort: cohort[:1])
    moved = (after.models != state.models).any(1)
    assert int(moved.sum()) == info.arrived == info.cohort - 1 < 4
    assert torch.equal(after.auxiliary[~moved], state.auxiliary[~moved])
    assert info.upload_bytes == info.arrived * 3 * 8
    drawn = np.mean([loop._draw(k, None).cohort for k in range(2000)]) / 4
    assert abs(drawn - 0.5) < LIMIT * math.sqrt(0.25 / 8000)


def test_a_solve_that_is_not_finite_changes_nothing_but_the_count():
    class Broken(LeastSquares):
        def gradient(self, points, data, clip_norm=None):
            found = super().gradient(points, data, clip_norm)
            found[1] = math.nan
            return found

    data = AgentData.of(agents())
    loop = FederatedSplitting.on(data, loss=Broken(regularisation=0.5))
    after, info = loop.step(loop.init(), data)
    assert info.refused == 1 and info.arrived == 3
    assert bool(torch.isfinite(after.models).all()) and not after.models[1].any()


def test_resumed_is_as_if_never_stopped(tmp_path):
    data = AgentData.of(agents("classes", (100,) * 4))
    loop = bounded(participation=0.6, seed=5)
    train(loop, data, rounds=3, checkpoint=tmp_path / "state")
    resumed = train(loop, data, rounds=7, checkpoint=tmp_path / "state")
    assert len(resumed.history) == 4
    straight = run(loop, data, 7)
    assert torch.equal(resumed.state.models, straight.models)
    assert torch.equal(resumed.state.auxiliary, straight.auxiliary)


# Torch modules


class OneOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1, bias=False)

    def forward(self, inputs):
        return self.linear(inputs)[..., 0]


def log_loss(outputs, targets):
    return nn.functional.softplus(-outputs * targets)[0]


@pytest.mark.parametrize("runs", [None, 2])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_modules_have_the_gradients_of_the_formula(runs, clip):
    data = AgentData.of([(a, b.astype(float)) for a, b in agents("classes")])
    module = ModuleLoss(model=OneOutput, criterion=log_loss, regularisation=0.3)
    lead = () if runs is None else (runs,)
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(*lead, 4, 3)))
    formula = Logistic(regularisation=0.3).gradient(points, data, clip)
    torch.testing.assert_close(module.gradient(points, data, clip), formula)


def test_a_module_with_several_outputs_learns():
    chance = np.random.default_rng(0)
    inputs = chance.normal(size=(3, 40, 2))
    labels = (inputs[..., 0] > 0).astype(int) + (inputs[..., 1] > 0)
    data = AgentData.of(list(zip(inputs, labels, strict=True)))
    loss = ModuleLoss(
        model=lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)),
        regularisation=1e-3,
    )
    solver = LocalSolver(method="stochastic", batch_size=20, steps=5, step_size=0.3)
    loop = FederatedSplitting.on(data, loss=loss, solver=solver, penalty=2.0, seed=0)
    model = loop.average(run(loop, data, 40))
    guessed = loss.flat.logits(model, data.features.flatten(0, 1)).argmax(1)
    assert float((guessed == data.targets.flatten()).double().mean()) > 0.9


# What is refused

PARTS = agents("classes")
REFUSED = {
    "step size outside the contraction range": (
        lambda: bounded(solver=replace(NOISY, step_size=1.2)),
        r"step_size must lie in \(0, 1.14286\)",
    ),
    "step size of zero": (lambda: LocalSolver(step_size=0.0), "step_size must be .* above 0"),
    "no strong convexity": (
        lambda: bounded(loss=Logistic(feature_bound=1.0)),
        "strong_convexity must be .* above 0.*regularise",
    ),
    "negative strong convexity": (
        lambda: bounded(
            loss=ModuleLoss(model=Bowl), constants=(-0.1, 1.0), solver=LocalSolver(steps=2)
        ),
        "strong_convexity must be .* above 0",
    ),
    "probability of zero": (
        lambda: bounded(participation=0.0),
        r"participation must be a probability in \(0, 1\]",
    ),
    "probability above one": (
        lambda: bounded(participation=(0.5, 0.5, 1.1, 1.0)),
        r"participation must be a probability in \(0, 1\]",
    ),
    "too few probabilities": (
        lambda: bounded(participation=(0.5, 0.5)),
        "participation must be one, or one per agent, 4",
    ),
    "prox of another shape": (
        lambda: bounded(regulariser=lambda point, step: point[..., :2]),
        r"regulariser must return a tensor of the shape of its input, \(3,\)",
    ),
    "prox that is not a tensor": (
        lambda: bounded(regulariser=lambda point, step: 0.0),
        "regulariser must return a tensor",
    ),
    "prox of NaN": (
        lambda: bounded(regulariser=lambda point, step: point * math.nan),
        "regulariser must return a finite point",
    ),
    "an agent without data": (
        lambda: AgentData.of([*PARTS, (np.zeros((0, 3)), np.zeros(0))]),
        r"agents\[4\] must contain .* at least one, got \(0, 0\); leave out agents without data",
    ),
    "an agent of size zero": (
        lambda: AgentData(torch.zeros(2, 3, 1).double(), torch.ones(2, 3), (3, 0)),
        r"sizes\[1\] must be an integer of at least 1",
    ),
    "a declared size of zero": (
        lambda: bounded(records=(9, 9, 0, 9)),
        r"records\[2\] must be an integer of at least 1, got 0; leave out agents without data",
    ),
    "no agents": (lambda: AgentData.of([]), "agents must contain at least one agent"),
    "no sensitivity: least squares": (
        lambda: bounded(loss=LeastSquares(regularisation=0.5, feature_bound=1.0)),
        "solver.clip_norm must be given if the loss has no sensitivity",
    ),
    "no sensitivity: inputs without a bound": (
        lambda: bounded(loss=Logistic(regularisation=0.5)),
        r"solver.clip_norm must be given.*feature_bound",
    ),
    "no sensitivity: a module": (
        lambda: bounded(loss=ModuleLoss(model=OneOutput)),
        "solver.clip_norm must be given",
    ),
    "private and other agents": (
        lambda: bounded(solver=(NOISY, NOISY, NOISY, LocalSolver(steps=2))),
        "solver must be noisy for all agents or for none",
    ),
    "noise of another method": (
        lambda: LocalSolver(noise_scale=1.0),
        "noise_scale must be None for the gradient solver",
    ),
    "noisy without noise": (
        lambda: LocalSolver(method="noisy"),
        "noise_scale must be given",
    ),
    "unknown curvature": (
        lambda: FederatedSplitting(loss=LeastSquares(), records=(3,), dimension=1),
        "penalty, steps must be given if the curvature of the loss is unknown",
    ),
    "labels of zero and one": (
        lambda: Logistic().dimension(AgentData(torch.ones(1, 2, 1).double(), torch.zeros(1, 2))),
        "targets must be -1 or 1",
    ),
    "features that are not finite": (
        lambda: AgentData(torch.full((1, 2, 1), math.nan).double(), torch.ones(1, 2)),
        "features must be finite",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_prox_that_fails_late_is_refused_before_anything_is_spent():
    data = AgentData.of(agents("classes", (100,) * 4))
    calls = []

    def prox(point, step):
        calls.append(step)
        return point if len(calls) < 4 else point * math.nan

    loop, seen = bounded(regulariser=prox), []
    with pytest.raises(ParameterError, match="regulariser must return a finite point"):
        train(loop, data, rounds=9, on_release=seen.append)
    assert len(seen) == 2 or len(seen) == 3


@pytest.mark.parametrize(
    "name, facts",
    [
        ("runs", {}),
        ("add_remove", {"adjacency": "add_remove"}),
        ("unit", {"unit": "client"}),
    ],
)
def test_books_that_do_not_fit_are_refused(tmp_path, name, facts):
    data = AgentData.of(agents("classes", (100,) * 4))
    loop = bounded(runs=2 if name == "runs" else None)
    header = {"unit": "record", "adjacency": "replace_one"} | facts
    with Ledger.create(tmp_path / "l", **header) as ledger, pytest.raises(ParameterError):
        loop.step(loop.init(), data, ledger=ledger)
    assert Ledger.open(tmp_path / "l").spent_rounds == 0


def test_private_parameters_are_not_taken_from_the_data():
    data = AgentData.of(agents())
    loss, solver = LeastSquares(regularisation=0.5), clip_solver(0.3)
    with pytest.raises(ParameterError, match="penalty, steps"):
        FederatedSplitting.on(data, loss=loss, solver=solver)
    assert FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0).constants is None


# The algorithms it is compared with

PAPERS = Path(__file__).parents[2] / "benchmarks" / "papers"


@pytest.fixture
def competitors(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPERS))
    import competitors

    return competitors


RIVALS = {
    "FedPD": {"step_size": 0.2, "penalty": 0.5},
    "FedLin": {"step_size": 0.2},
    "Tamuna": {"step_size": 0.1, "mixing": 0.7},
    "Led": {"step_size": 0.1, "correction": 0.3},
    "FiveGcs": {"step_size": 0.1, "local_penalty": 3.0, "outer_step": 0.3},
}


@pytest.mark.parametrize("name", RIVALS)
def test_competitors_reach_the_same_optimum(competitors, name):
    parts = agents()
    problem = competitors.Problem(LeastSquares(regularisation=0.5), AgentData.of(parts), 2)
    algorithm = getattr(competitors, name)(**RIVALS[name])
    state, generator = algorithm.start(problem), np.random.default_rng(0)
    for _ in range(150):
        state = algorithm.round(state, problem, generator)
    best = np.linalg.solve(*normal_equations(parts, 0.5))
    np.testing.assert_allclose(state["model"][:, 0], np.stack([best, best]), atol=1e-6)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("cached, parts", [(1, 12), (200, 6), (700, 3)])
def test_competitors_go_through_parts_as_through_all(competitors, monkeypatch, name, cached, parts):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(3, 4, 6, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    found = []
    for size in (2**21, cached):
        monkeypatch.setattr(competitors, "CACHED", size)
        loss = LeastSquares(regularisation=0.5)
        problem = competitors.Problem(loss, AgentData(features, targets), 3)
        assert len(problem.parts) == (parts if size == cached else 1)
        algorithm = getattr(competitors, name)(**RIVALS[name])
        state, chosen = algorithm.start(problem), np.random.default_rng(0)
        for _ in range(4):
            state = algorithm.round(state, problem, chosen)
        found.append(state["model"])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_the_smallest_cell_of_the_papers_tables_is_as_recorded():
    command = [sys.executable, str(PAPERS / "fed_plt.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "the same as recorded" in done.stdout


# Killed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments_it_never_counts_too_little(tmp_path, seed):
    kill_often("splitting", tmp_path, 120, seed)


@pytest.mark.parametrize(("tiny", "target"), [(1e-170, 1e168), (1e-161, 1e161), (0.0, 1e300)])
def test_an_input_whose_square_vanishes_is_clipped_all_the_same(tiny, target):
    """A norm that underflows would clip nothing, and slopes of squares have no bound."""
    inputs, targets = torch.ones(1, 2, 3, dtype=torch.float64), torch.ones(1, 2)
    inputs[0, 0], targets = tiny, targets.double()
    targets[0, 0] = target
    data = AgentData(inputs, targets, (2,))
    found = LeastSquares().gradient(torch.zeros(1, 3, dtype=torch.float64), data, 0.2)
    other = LeastSquares().gradient(torch.zeros(1, 3, dtype=torch.float64), data, 1e-9)
    assert float(found.norm()) <= 0.2 and float(other.norm()) <= 1e-9
