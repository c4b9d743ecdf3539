"""The algorithms that Fed-PLT is compared with."""

import numpy as np
import pytest
import torch

from fedprivacy.reproductions.fed_plt import algorithms
from fedprivacy.training import AgentData, LeastSquares
from tests.systems.fed_plt.test_agents import normal_equations
from tests.systems.fed_plt.test_loop import agents

pytestmark = pytest.mark.usefixtures("one_thread")

RIVALS = {
    "FedPD": {"step_size": 0.2, "penalty": 0.5},
    "FedLin": {"step_size": 0.2},
    "Tamuna": {"step_size": 0.1, "mixing": 0.7},
    "Led": {"step_size": 0.1, "correction": 0.3},
    "FiveGcs": {"step_size": 0.1, "local_penalty": 3.0, "outer_step": 0.3},
}


@pytest.mark.parametrize("name", RIVALS)
def test_competitors_reach_the_same_optimum(name):
    parts = agents()
    problem = algorithms.Problem(LeastSquares(regularisation=0.5), AgentData.of(parts), 2)
    algorithm = getattr(algorithms, name)(**RIVALS[name])
    state, generator = algorithm.start(problem), np.random.default_rng(0)
    for _ in range(150):
        state = algorithm.round(state, problem, generator)
    best = np.linalg.solve(*normal_equations(parts, 0.5))
    np.testing.assert_allclose(state["model"][:, 0], np.stack([best, best]), atol=1e-6)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("cached, parts", [(1, 12), (200, 6), (700, 3)])
def test_competitors_go_through_parts_as_through_all(monkeypatch, name, cached, parts):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(3, 4, 6, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    found = []
    for size in (2**21, cached):
        monkeypatch.setattr(algorithms, "CACHED", size)
        loss = LeastSquares(regularisation=0.5)
        problem = algorithms.Problem(loss, AgentData(features, targets), 3)
        assert len(problem.parts) == (parts if size == cached else 1)
        algorithm = getattr(algorithms, name)(**RIVALS[name])
        state, chosen = algorithm.start(problem), np.random.default_rng(0)
        for _ in range(4):
            state = algorithm.round(state, problem, chosen)
        found.append(state["model"])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-14)
