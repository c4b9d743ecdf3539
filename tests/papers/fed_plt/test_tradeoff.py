"""Tests of ``fedprivacy.papers.fed_plt.tradeoff``."""

import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.papers.fed_plt.tradeoff import (
    SplittingProblem,
    SplittingSetting,
    predict,
    trade_off,
)
from fedprivacy.theory.splitting_privacy import final_models_mu, rounds_mu

PROBLEM = SplittingProblem(
    sensitivity=0.1, strong_convexity=1.0, smoothness=1.3, coordinates=50, accuracy=1e-4
)
AXES = dict(
    penalty=(0.5, 1.0, 2.0),
    step_share=(0.1, 0.4),
    local_steps=(1, 20, 60),
    noise_scale=(0.05, 0.2),
)
GRID = SplittingSetting.grid(AXES)


def test_the_trade_off_s_parts():
    for observer in ("server", "final"):
        found = list(trade_off(PROBLEM, GRID, observer=observer))
        assert 12 <= len(found) <= 36
        for each in found:
            run = each.run
            assert each.remaining <= 1e-4
            assert each.time == (run.local_steps + 10.0) * run.rounds
            limits = [rounds_mu(run)] + ([final_models_mu(run)] if observer == "final" else [])
            assert each.mu == min(limits)
            again = predict(run, PROBLEM, observer=observer)
            assert again == each
        pairs = zip(found[::2], found[1::2], strict=True)
        for quiet, noisy in pairs:  # tau four times as large
            assert noisy.error == pytest.approx(4 * quiet.error, rel=1e-12)
            assert noisy.mu == pytest.approx(quiet.mu / 4, rel=1e-12)
            assert noisy.epsilon(1e-5) < quiet.epsilon(1e-5)


def test_the_trade_off_goes_into_the_toolkit_s_front():
    settings = {}
    for each in trade_off(PROBLEM, GRID):
        run = each.run
        upload = fp.NoisyGradientDescent(
            step_size=run.step_size,
            noise_std=run.noise_std,
            sensitivity=run.sensitivity,
            strong_convexity=run.strong_convexity + 1 / run.penalty,
            smoothness=run.smoothness + 1 / run.penalty,
            steps=run.local_steps,
        )
        label = (run.penalty, run.step_size, run.local_steps, run.noise_scale)
        settings[label] = (upload * run.rounds, each.costs)
        bound = fp.epsilon(upload * run.rounds, delta=1e-5, adjacency="replace_one")
        assert each.epsilon(1e-5) == pytest.approx(bound.upper, rel=2e-3)
    found = fp.pareto(settings, delta=1e-5, adjacency="replace_one", observer="server")
    assert 2 <= len(found.front) < len(settings) and not found.refused


def test_a_grid_without_a_stable_setting_is_refused():
    with pytest.raises(ParameterError, match="local_steps must be enough for stability"):
        few = SplittingSetting.grid(AXES | {"local_steps": 1, "step_share": 0.01})
        list(trade_off(PROBLEM, few))
