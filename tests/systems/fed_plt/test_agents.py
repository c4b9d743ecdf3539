"""Tests of ``fedprivacy.systems.fed_plt.agents``."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

import fedprivacy as fp
from fedprivacy.training import (
    AgentData,
    FederatedSplitting,
    LeastSquares,
    LocalSolver,
    Logistic,
    ModuleLoss,
)
from tests.systems.fed_plt.test_loop import OneOutput, agents, run

pytestmark = pytest.mark.usefixtures("one_thread")


def normal_equations(parts, regularisation):
    """The sum of the agents' least squares: matrix and right-hand side."""
    inner = sum(a.T @ a / len(a) + regularisation * np.eye(a.shape[1]) for a, _ in parts)
    return inner, sum(a.T @ b / len(a) for a, b in parts)


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


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.float16, np.int64])
def test_targets_of_any_type_give_bounded_gradients(kind):
    """The negative of an unsigned 1 is 255."""
    data = AgentData.of([(np.eye(3), np.ones(3, dtype=kind))])
    loss = Logistic(feature_bound=1.0)
    assert loss.dimension(data) == 3
    found = loss.gradient(torch.full((1, 3), 5.0, dtype=torch.float64), data)
    assert found[0] == pytest.approx(-expit(-5.0) / 3 * np.ones(3), rel=1e-12)
