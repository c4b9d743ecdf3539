"""Tests of ``fedprivacy.papers.fa_ld.bounds``."""

import math

import numpy as np
import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.papers.fa_ld import bounds as langevin
from fedprivacy.papers.fa_ld.bounds import LangevinProblem
from fedprivacy.systems.fa_ld.law import DecayingSteps, LangevinChain, w2_curve
from fedprivacy.theory.gaussian import point
from tests.systems.fa_ld.test_law import problem, random_target

# The bounds contain the exact values.


@pytest.mark.parametrize("seed", range(12))
def test_theorems_contain_the_exact_distance(seed):
    generator = np.random.default_rng(seed)
    target = random_target(seed, equal=True, low=0.5, high=float(generator.uniform(0.6, 4.0)))
    start = target.mean + generator.normal(size=2) * 2
    tau, rho = float(generator.uniform(0.2, 2.0)), float(generator.uniform(0, 1))
    problem = LangevinProblem.of(target, start, temperature=tau)
    eta, local = (
        float(generator.uniform(0.02, 1.0)) / (2 * target.smoothness),
        int(generator.integers(1, 8)),
    )
    common = {"step_size": eta, "local_steps": local, "correlation": rho}
    chain = LangevinChain(target=target, temperature=tau, **common)
    for rounds, exact in enumerate(w2_curve(chain, point(start), 30)):
        bound = langevin.constant_step_bound(problem, iterations=rounds * local, **common)
        assert exact <= bound.value
        assert bound.bound
    for way in ("I", "II"):
        partial = LangevinChain(target=target, temperature=tau, averaging=way, cohort=2, **common)
        for rounds, exact in enumerate(w2_curve(partial, point(start), 30)):
            bound = langevin.partial_participation_bound(
                problem, iterations=rounds * local, cohort=2, averaging=way, **common
            )
            assert exact <= bound.value
    steps = DecayingSteps(strong_convexity=problem.strong_convexity, smoothness=problem.smoothness)
    decaying = LangevinChain(target=target, temperature=tau, step_size=steps, local_steps=local)
    for rounds, exact in enumerate(w2_curve(decaying, point(start), 30)):
        bound = langevin.decaying_step_bound(problem, local_steps=local, iterations=rounds * local)
        assert exact <= bound.value


def test_the_formulas_by_hand():
    p = problem()
    assert p.h(0.0) == pytest.approx(1.5**2 + 2.0 / 0.25 + 9 / 2 + 0.25)
    assert p.h(0.6) == pytest.approx(1.5**2 + 2.0 * (0.36 + 0.64 / 0.25) + 9 / 2 + 0.25)
    eta, k = 0.1, 40
    transient = (1 - 0.025) ** 40 * math.sqrt(4) * (1.5 + math.sqrt(2))
    bias = 30 * 4 * math.sqrt(eta * 2 * (9 + 4) * p.h(0.0))
    found = langevin.constant_step_bound(p, step_size=eta, local_steps=4, iterations=k)
    assert found.value == pytest.approx(transient + bias)
    assert "5.7" in found.theorem
    last = 1 / (8 + 40 / 12)
    decayed = langevin.decaying_step_bound(p, local_steps=4, iterations=40)
    assert decayed.value == pytest.approx(45 * 4 * math.sqrt(13 * p.h() * last * 2))
    pace = 0.4 / (1 - math.exp(-0.2))
    extra = 2 * math.sqrt(pace * 2 * 2.0 / 2 * (0.36 + 4 * 0.64) * (2 / 3))
    partial = langevin.partial_participation_bound(
        p, step_size=eta, local_steps=4, iterations=k, cohort=2, averaging="II", correlation=0.6
    )
    full = langevin.constant_step_bound(
        p, step_size=eta, local_steps=4, iterations=k, correlation=0.6
    )
    assert partial.value - full.value == pytest.approx(extra)
    everyone = langevin.partial_participation_bound(
        p, step_size=eta, local_steps=4, iterations=k, cohort=4, averaging="II"
    )
    assert everyone.value == pytest.approx(found.value)


def test_bounds_move_as_the_paper_says():
    def at(**changes):
        settings = {
            "step_size": 0.1,
            "local_steps": 4,
            "iterations": 10,
            "correlation": 0.3,
            **changes,
        }
        return langevin.constant_step_bound(problem(), **settings).value

    assert at(correlation=0.9) < at() < at(local_steps=9)
    assert at(iterations=100) < at()
    hot = langevin.constant_step_bound(
        problem(heterogeneity=30.0), step_size=0.1, local_steps=4, iterations=10, correlation=0.3
    )
    assert hot.value > at()


@pytest.mark.parametrize("local", [1, 5, 30])
def test_iterations_needed_reach_the_accuracy(local):
    p = problem()
    step, found = langevin.iterations_needed(p, accuracy=0.5, local_steps=local)
    bound = langevin.constant_step_bound(
        p, step_size=step, local_steps=local, iterations=int(found.value)
    )
    assert bound.value <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("kappa", [1.0, 3.0, 50.0, 1e4])
def test_optimal_local_steps(kappa):
    p = problem(smoothness=kappa)
    best = int(langevin.optimal_local_steps(p).value)

    def rounds(k):
        return ((k - 1) ** 2 + kappa) / k

    assert best == min(range(1, 3 * best + 5), key=rounds)
    assert best == pytest.approx(math.sqrt(1 + kappa), abs=1)


# Bad input.


def test_conditions_of_theorems_are_checked():
    p = problem()
    with pytest.raises(ParameterError, match=r"be at most 1 / \(2 L\) = 0\.125"):
        langevin.constant_step_bound(p, step_size=0.13, local_steps=1, iterations=1)
    with pytest.raises(ParameterError, match="24 kappa"):
        langevin.decaying_step_bound(p, local_steps=98, iterations=98)
    langevin.decaying_step_bound(p, local_steps=97, iterations=97)
    for averaging, cohort in (("full", 2), ("II", 5)):
        with pytest.raises(ParameterError):
            langevin.partial_participation_bound(
                p, step_size=0.1, local_steps=1, iterations=1, cohort=cohort, averaging=averaging
            )
