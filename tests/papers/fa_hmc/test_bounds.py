"""Tests of ``fedprivacy.papers.fa_hmc.bounds``."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import ParameterError
from fedprivacy.papers.fa_hmc import bounds
from fedprivacy.systems.fa_hmc import law as hamiltonian
from fedprivacy.systems.fa_hmc.law import DynamicSteps, HamiltonianChain
from tests.systems.fa_hmc.test_law import problem, random_target

pytest.importorskip("torch")


def test_theorem_4_4_by_hand():
    p = problem()
    eta = 0.05
    found = bounds.convergence_rate(
        p, step_size=eta, iterations=21, start=30.0, gradient_bound=7.0, constants=(2.0, 3.0)
    )
    delta = 2.0 * 100 * 25 * (7.0 / 2.0 * 0.0625 + 0.1 * 4 * 100) + 3.0 * 5 * 0.25 * 0.09 * 100
    assert found.value == pytest.approx((1 - 0.5 * 0.0625 / 4) ** 20 * 30.0 + eta**2 * delta)
    assert not found.bound
    with pytest.raises(ParameterError, match=r"be at most 1 / \(K sqrt\(L\)\)"):
        bounds.convergence_rate(p, step_size=0.2, iterations=1, start=1.0, gradient_bound=1.0)


def test_theorem_4_1_by_hand():
    p = problem()
    step, found = bounds.iteration_rate(p, accuracy=0.5)
    noise = 4 * 0.0625 * 0.09
    gamma = min(0.5, 0.5 / (10 * 10), 0.25 / (100 * 100 * 0.4), 0.25 * 5 / (100 * noise))
    assert step == pytest.approx(math.sqrt(gamma) / 5)
    value = 100 * math.log(400) / 0.25 * (100 * (gamma + 0.4) + noise / 5)
    assert found.value == pytest.approx(value)
    with pytest.raises(ParameterError, match="accuracy"):
        bounds.iteration_rate(p, accuracy=10.0)


def test_local_iterations_have_an_optimum_only_with_noise():
    """Theorem 4.1's rounds first fall and then rise in T; Proposition 4.3's do not move."""
    noisy = [
        bounds.iteration_rate(problem(iterations=t, gradient_std=5.0), accuracy=0.5)[1].value / t
        for t in (1, 2, 4, 8, 16, 32, 64)
    ]
    best = int(np.argmin(noisy))
    assert 0 < best < len(noisy) - 1
    vanilla = [
        bounds.vanilla_rate(problem(iterations=t, correlation=1.0, gradient_std=0.0), accuracy=0.5)[
            1
        ].value
        / t
        for t in (1, 8, 64)
    ]
    assert vanilla == pytest.approx([vanilla[0]] * 3)
    assert vanilla[0] == pytest.approx(10 * math.log(400) / 0.5)


def test_proposition_4_3_asks_for_its_setting():
    with pytest.raises(ParameterError, match="correlation"):
        bounds.vanilla_rate(problem(gradient_std=0.0), accuracy=0.5)
    with pytest.raises(ParameterError, match="gradient_std"):
        bounds.vanilla_rate(problem(correlation=1.0), accuracy=0.5)
    easy = problem(correlation=1.0, gradient_std=0.0)
    wide = problem(correlation=1.0, gradient_std=0.0, dimension=400)
    values = [bounds.vanilla_rate(p, accuracy=0.5)[1].value for p in (easy, wide)]
    assert values[1] / values[0] == pytest.approx(2 * math.log(1600) / math.log(400))


def test_dynamic_steps_halve_the_error_in_every_stage():
    """The recursion of the proposition, E <- (1 - mu (K eta)^2 / 4) E + ..., run stage by stage."""
    p = problem()
    steps, found = bounds.dynamic_step_sizes(p, start=50.0, accuracy=0.5, stages=5)
    gamma = p._trajectory(0.5, 1.0)
    total = 100 * (100 * (gamma + p.momentum) + p.gradient / 5) * math.log(100) ** 2
    error = 50.0
    for stage, (eta, count) in enumerate(steps.stages):
        length = (5 * eta) ** 2
        assert count % 10 == 0
        error = (1 - 0.5 * length / 4) ** count * error + length * total
        assert error <= 50.0 / 2 ** (stage + 1)
        if stage:
            assert eta == pytest.approx(steps.stages[0][0] / math.sqrt(2) ** stage)
            assert count == steps.stages[0][1] * 2**stage
    assert steps.at(0) == steps.stages[0][0]
    assert steps.at(10**12) == steps.stages[-1][0]
    assert found.value == pytest.approx(total / 0.25)


def test_dynamic_steps_need_a_start_within_range():
    with pytest.raises(ParameterError, match="step_size"):
        bounds.dynamic_step_sizes(problem(), start=1e9, accuracy=0.5, stages=2)


# Bad input.


@pytest.mark.parametrize(
    "change, message",
    [
        ({"step_size": 10.0}, "unstable"),
        ({"step_size": DynamicSteps(stages=((0.1, 1), (9.0, 1)))}, "unstable"),
        ({"leapfrog_steps": 0}, "leapfrog_steps"),
        ({"iterations": 0}, "iterations"),
        ({"correlation": -0.1}, "correlation"),
        ({"gradient_std": -1.0}, "gradient_std"),
        ({"averaging": "I"}, "cohort"),
    ],
)
def test_chains_that_are_none(change, message):
    with pytest.raises(ParameterError, match=message):
        HamiltonianChain(**{"target": random_target(0), "step_size": 0.1, **change})


def test_stages_must_be_there():
    with pytest.raises(ParameterError, match="stages"):
        DynamicSteps(stages=())
    dynamic = HamiltonianChain(target=random_target(0), step_size=DynamicSteps(stages=((0.1, 2),)))
    with pytest.raises(ParameterError, match="constant"):
        hamiltonian.transcript_gdp(dynamic, client=0, difference=1.0, rounds=2)
    with pytest.raises(ParameterError, match="client"):
        hamiltonian.upload_gdp(dynamic, client=7, difference=1.0)


# Theorem C.1, on its own task.


def ideal_round(length, local):
    """Contraction, fixed point and variance of a round: half of the clients have curvature 2 and
    centre 2, the others 1 and 1; exact dynamics over ``length``, momentum shared."""
    kinds = ((2.0, 2.0), (1.0, 1.0))
    turns = [math.cos(math.sqrt(bend) * length) for bend, _ in kinds]
    factor = sum(turn**local for turn in turns) / 2
    pull = sum(at * (1 - turn**local) for (_, at), turn in zip(kinds, turns, strict=True)) / 2
    reach = sum(
        math.sin(math.sqrt(bend) * length) / math.sqrt(bend) * turn ** np.arange(local)
        for (bend, _), turn in zip(kinds, turns, strict=True)
    )
    return factor, pull / (1 - factor), float(np.square(reach / 2).sum()) / (1 - factor**2)


def least_rounds(dimension, local, accuracy):
    """Fewest rounds from N(0, I) to W2 = accuracy over a grid of trajectories' lengths."""
    mean, std = 5 / 3, math.sqrt(2 / 3)

    def apart(law, rounds):
        factor, fixed, variance = law
        gone = factor ** (2 * rounds)
        mine = math.sqrt(gone + variance * (1 - gone))
        return math.sqrt(dimension) * math.hypot(fixed * (1 - factor**rounds) - mean, mine - std)

    best = math.inf
    for length in np.geomspace(1e-4, 0.7, 250):
        law = ideal_round(float(length), local)
        if apart(law, 10**12) >= accuracy:
            continue
        low, high = 0, 1
        while apart(law, high) > accuracy:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if apart(law, middle) > accuracy else (low, middle)
        best = min(best, high)
    return best


@pytest.mark.parametrize("local", [1, 4, 16])
def test_the_exact_law_needs_as_many_iterations_as_theorem_c1_says(local):
    """A factor of 2 either way, over two decades of d and one of the accuracy."""
    shares = []
    for dimension, accuracy in itertools.product((1000, 10_000, 100_000), (0.3, 0.1, 0.03)):
        said = bounds.ideal_lower_rate(dimension=dimension, iterations=local, accuracy=accuracy)
        shares.append(local * least_rounds(dimension, local, accuracy) / said.value)
    assert max(shares) <= 2 * min(shares) and min(shares) > 0.01
    assert not said.bound


def test_theorem_c1_is_refused_out_of_its_range():
    with pytest.raises(ParameterError, match="accuracy"):
        bounds.ideal_lower_rate(dimension=4, iterations=1, accuracy=2.0)


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


@given(stages=st.lists(st.tuples(st.floats(1e-3, 1.0), st.integers(1, 4)), min_size=1, max_size=4))
@SETTINGS
def test_steps_by_stage_are_those_of_the_stages_written_out(stages):
    steps = DynamicSteps(stages=tuple(stages))
    whole = [step for step, count in stages for _ in range(count)]
    beyond = [*whole, *[stages[-1][0]] * 3]
    assert [steps.at(number) for number in range(len(beyond))] == beyond
    for first, count in itertools.product(range(len(beyond)), (0, 1, 3)):
        wanted = tuple((beyond + beyond[-1:] * 3)[first : first + count])
        assert steps.sizes(first, count) == wanted
