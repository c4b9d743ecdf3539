"""Tests of ``fedprivacy.theory.hidden_state``."""

import numpy as np
import pytest
import torch

from fedprivacy.mechanisms import NoisyGradientDescent
from fedprivacy.theory.hidden_state import contraction_gap
from fedprivacy.training import AgentData, LeastSquares, LocalSolver, ModuleLoss
from tests.mechanisms.test_gradient_descent import steep
from tests.systems.fed_plt.test_loop import Bowl, agents, bounded, clip_solver

NOISY = LocalSolver(method="noisy", steps=5, step_size=0.4, noise_scale=0.3)
pytestmark = pytest.mark.usefixtures("one_thread")


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
