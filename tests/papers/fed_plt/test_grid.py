"""Tests of ``fedprivacy.papers.fed_plt.grid``."""

import pytest

import fedprivacy as fp
from fedprivacy.papers.fed_plt.grid import splitting_settings
from fedprivacy.papers.fed_plt.law import QuadraticSplitting, View
from fedprivacy.papers.fed_plt.tradeoff import SplittingProblem
from fedprivacy.theory.gaussian import delta as gaussian_delta
from fedprivacy.theory.gaussian import epsilon as gaussian_epsilon
from fedprivacy.theory.splitting_privacy import PrivateSplitting, final_models_mu, rounds_mu

ASK = {"delta": 1e-5, "adjacency": "replace_one"}
SPLIT = SplittingProblem(sensitivity=0.02, strong_convexity=0.5, smoothness=2.0, coordinates=100)
GRID = {
    "penalty": [0.5, 1.0],
    "local_steps": [1, 5, 20],
    "noise_scale": [0.03, 0.3],
}


@pytest.mark.parametrize("observer", ["aggregate", "server", "final"])
def test_fed_plts_epsilon_is_that_of_the_proved_mu(observer):
    settings = splitting_settings(SPLIT, **GRID)
    assert {label["local_steps"] for label, _ in settings} == {5, 20}  # 1 is not stable
    for label, (run, costs) in settings:
        proved = PrivateSplitting(sensitivity=0.02, strong_convexity=0.5, smoothness=2.0, **label)
        mu = rounds_mu(proved)
        if observer == "final":
            mu = min(mu, final_models_mu(proved))
        exact = gaussian_epsilon(mu, 1e-5)
        bound = fp.epsilon(run, **ASK, observer=observer)
        assert exact * (1 - 1e-8) <= bound.upper <= exact * (1 + 1e-6) + 1e-3
        assert costs["time"] == (label["local_steps"] + 10.0) * label["rounds"]


def test_fed_plts_epsilon_contains_exact_transcripts():
    for label, (run, _) in splitting_settings(SPLIT, **GRID):
        upper = fp.epsilon(run, **ASK).upper
        for curvature in (0.5, 1.0, 2.0):
            law = QuadraticSplitting(
                curvatures=(curvature, 0.5),
                penalty=label["penalty"],
                step_size=label["step_size"],
                noise_scale=label["noise_scale"],
                local_steps=label["local_steps"],
                rounds=label["rounds"],
            )
            mu = law.mu(0.02, View.TRANSCRIPT)
            assert gaussian_delta(mu, upper) <= 1e-5


def test_fed_plts_error_grows_with_the_noise_in_proportion():
    costs = {
        (label["penalty"], label["local_steps"], label["noise_scale"]): costs
        for label, (_, costs) in splitting_settings(SPLIT, **GRID)
    }
    for penalty, steps in ((0.5, 5), (0.5, 20), (1.0, 5), (1.0, 20)):
        if (penalty, steps, 0.03) in costs:
            quiet, loud = costs[penalty, steps, 0.03], costs[penalty, steps, 0.3]
            assert loud["error"] == pytest.approx(10.0 * quiet["error"], rel=1e-12)
            assert loud["time"] == quiet["time"]
