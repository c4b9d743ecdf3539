"""Tests of ``fedprivacy.systems.fed_plt.solvers``."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedprivacy.errors import ParameterError
from fedprivacy.systems.fed_plt.solvers import LocalProblem
from fedprivacy.training import (
    AgentData,
    FederatedSplitting,
    LeastSquares,
    LocalSolver,
    Logistic,
    ModuleLoss,
)
from tests.systems.fed_plt.test_loop import agents, run

pytestmark = pytest.mark.usefixtures("one_thread")


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
    """No Hessian is computed: the rest of the local gradient after some thirty steps."""
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
