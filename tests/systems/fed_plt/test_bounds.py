"""Fed-PLT's convergence: runs on quadratics, exact matrices, and two misprinted constants."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.systems.fed_plt.bounds import (
    asymptotic_error,
    convergence,
    fewest_local_steps,
    find_parameters,
    largest_stable_contraction,
    local_contraction,
    local_noise,
    participation_rate,
    splitting_contraction,
)
from fedprivacy.training import FederatedSplitting, LocalSolver, Logistic

pytestmark = pytest.mark.usefixtures("one_thread")


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


def run_quadratic(curvatures, rho, steps, rounds, start, gamma=None, active=None, noise=None):
    """Run Fed-PLT as the algorithm reads, agents with lambda_i x^2 / 2, h = 0; distances."""
    curves = np.asarray(curvatures, float)
    x, z = (np.array(part, float) for part in start)
    low, high = curves.min() + 1 / rho, curves.max() + 1 / rho
    gamma = 2 / (low + high) if gamma is None else gamma
    distances = [math.hypot(np.linalg.norm(x), np.linalg.norm(z))]
    for k in range(rounds):
        y = z.mean()
        v = 2 * y - z
        w = x.copy()
        for step in range(steps):
            w = w - gamma * (curves * w + (w - v) / rho)
            if noise is not None:
                w = w + noise[k, step]
        on = np.ones(len(x), bool) if active is None else active[k]
        x, z = np.where(on, w, x), np.where(on, z + 2 * (w - y), z)
        distances.append(math.hypot(np.linalg.norm(x), np.linalg.norm(z)))
    return np.array(distances), x, z


def nesterov(low, high, steps, curvature, start=1.0):
    """Return w after ``steps`` accelerated steps on a quadratic, as eq. (12) of the paper."""
    u = w = start
    beta = (math.sqrt(high) - math.sqrt(low)) / (math.sqrt(high) + math.sqrt(low))
    points = []
    for _ in range(steps):
        new = w - curvature * w / high
        w = new + beta * (new - u)
        u = new
        points.append((u, w))
    return points


SETTINGS = [
    dict(strong_convexity=low, smoothness=low * r, penalty=rho)
    for low in (0.3, 1.0, 4.0)
    for r in (1.0, 1.5, 10.0)
    for rho in (0.05, 0.4, 1.0, 7.0)
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_one_round_stays_below_the_matrix(setting):
    generator = np.random.default_rng(5)
    low, high, rho = setting["strong_convexity"], setting["smoothness"], setting["penalty"]
    for steps in (1, 3, 30):
        matrix = convergence(**setting, local_steps=steps).array
        for _ in range(4):
            curves = generator.uniform(low, high, 3)
            curves[:2] = low, high
            before = generator.normal(size=(2, 3))
            _, x, z = run_quadratic(curves, rho, steps, 1, before)
            bound = matrix @ np.linalg.norm(before, axis=1)
            assert np.linalg.norm(x) <= bound[0] * (1 + 1e-12) + 1e-15
            assert np.linalg.norm(z) <= bound[1] * (1 + 1e-12) + 1e-15


def test_the_printed_matrix_is_below_the_truth_where_the_penalty_is_below_one():
    setting = dict(strong_convexity=1.0, smoothness=1.0, penalty=0.1, local_steps=400)
    before = np.array([[0.0], [1.0]])
    _, x, z = run_quadratic([1.0], 0.1, 400, 1, before, gamma=0.01)
    printed = convergence(**setting, step_size=0.01, as_printed=True)
    ours = convergence(**setting, step_size=0.01)
    assert abs(x[0]) > 5 * printed.array[0, 1]
    assert abs(x[0]) <= ours.array[0, 1]
    assert math.hypot(x[0], z[0]) > 1.2 > 1 > printed.norm  # Proposition 1's own conclusion
    assert ours.norm > 1.2 and ours.stable
    assert f"{math.hypot(x[0], z[0]):.4f} {printed.norm:.4f}" == "1.2231 0.8232"


def test_both_matrices_are_one_at_penalty_one():
    setting = dict(strong_convexity=0.5, smoothness=2.0, penalty=1.0, local_steps=7)
    assert convergence(**setting) == convergence(**setting, as_printed=True)


def test_the_printed_accelerated_factor_is_below_the_truth():
    low, high = 1.0, 4.0
    setting = dict(strong_convexity=low - 1e-9, smoothness=high - 1e-9, penalty=1e9)
    for steps, (u, _) in enumerate(nesterov(low, high, 40, low), 1):
        assert u == pytest.approx((1 + 0.5 * steps) * 0.5**steps, rel=1e-9)
        options = dict(**setting, local_steps=steps, solver="accelerated")
        printed = local_contraction(**options, as_printed=True)
        assert (u > printed) == (steps > 8)
        assert u <= local_contraction(**options)


@pytest.mark.parametrize("ratio", [1.0, 1.3, 4.0, 30.0, 400.0])
def test_accelerated_steps_stay_below_the_factor(ratio):
    setting = dict(strong_convexity=0.7, smoothness=0.7 * ratio + ratio - 1, penalty=1.0)
    low, high = setting["strong_convexity"] + 1, setting["smoothness"] + 1
    for curvature in np.linspace(low, high, 23):
        for steps, (_, w) in enumerate(nesterov(low, high, 60, curvature), 1):
            bound = local_contraction(**setting, local_steps=steps, solver="accelerated")
            assert abs(w) <= bound * (1 + 1e-12) + 1e-300


@pytest.mark.parametrize("setting", SETTINGS)
def test_stability_begins_where_it_is_said_to(setting):
    limit = largest_stable_contraction(**setting)
    for solver in ("gradient", "accelerated"):
        fewest = fewest_local_steps(**setting, solver=solver)
        at = convergence(**setting, local_steps=fewest, solver=solver)
        assert at.stable and at.local_contraction < limit
        assert np.abs(np.linalg.eigvals(at.array)).max() == pytest.approx(at.spectral_radius)
        if fewest > 1:
            before = convergence(**setting, local_steps=fewest - 1, solver=solver)
            assert not before.stable and before.local_contraction >= limit


@pytest.mark.parametrize("setting", SETTINGS[::3])
def test_enough_rounds_are_enough(setting):
    steps = fewest_local_steps(**setting) + 1
    rate = convergence(**setting, local_steps=steps)
    rounds = rate.rounds(1e-4)
    assert rate.remaining(rounds) <= 1e-4 < rate.remaining(rounds - 1)
    power = np.linalg.matrix_power(rate.array, rounds)
    assert np.linalg.norm(power, 2) <= 1e-4
    start = np.random.default_rng(1).normal(size=(2, 3))
    curves = [setting["strong_convexity"], setting["smoothness"], setting["smoothness"]]
    distances, _, _ = run_quadratic(curves, setting["penalty"], steps, rounds, start)
    assert distances[-1] <= 1e-4 * distances[0]


def test_the_search_beats_every_other_setting():
    problem = dict(strong_convexity=0.5, smoothness=3.0)
    for solver in ("gradient", "accelerated"):
        for cost in (0.1, 1.0, 100.0):
            found = find_parameters(
                **problem, gradient_cost=1.0, round_cost=cost, solver=solver, accuracy=1e-6
            )
            assert found.time == (found.local_steps + cost) * found.rounds
            assert found.convergence.stable and found.local_steps >= found.fewest_local_steps
            for rho in np.geomspace(0.02, 20, 25):
                for steps in range(1, 60):
                    rate = convergence(
                        **problem, penalty=float(rho), local_steps=steps, solver=solver
                    )
                    if rate.stable:
                        time = (steps + cost) * rate.rounds(1e-6)
                        assert found.time <= 1.02 * time


def test_dearer_rounds_are_fewer():
    problem = dict(strong_convexity=0.5, smoothness=3.0, gradient_cost=1.0)
    found = [find_parameters(**problem, round_cost=cost) for cost in (0.1, 1.0, 10.0, 100.0)]
    rounds = [each.rounds for each in found]
    assert rounds == sorted(rounds, reverse=True) and rounds[0] > rounds[-1]


def test_what_is_given_is_kept():
    problem = dict(strong_convexity=0.5, smoothness=3.0, gradient_cost=1.0, round_cost=1.0)
    found = find_parameters(**problem, penalty=0.9, local_steps=9)
    assert (found.penalty, found.local_steps) == (0.9, 9)
    with pytest.raises(
        ParameterError, match=r"local_steps must be large enough to make S stable, got 1"
    ):
        find_parameters(**problem, penalty=0.9, local_steps=1)


def test_random_participation_stays_below_proposition_two():
    """The mean of 400 runs; a distance is below 6, so 1.5 is 5 standard errors by Hoeffding."""
    setting = dict(strong_convexity=1.0, smoothness=2.0, penalty=0.7, local_steps=30)
    p = np.array([0.4, 0.9, 0.6])
    bound = participation_rate(convergence(**setting), p.tolist())
    generator, rounds, total = np.random.default_rng(11), 25, np.zeros(26)
    start = np.array([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0]])
    for _ in range(400):
        active = generator.random((rounds, 3)) < p
        distances, _, _ = run_quadratic(
            [1.0, 2.0, 1.5], 0.7, 30, rounds, start, active=active, gamma=None
        )
        total += distances / 400
    limits = [bound.error(k, total[0]) for k in range(rounds + 1)]
    assert np.all(total <= np.array(limits) + 1.5 * (np.arange(rounds + 1) > 0))
    assert limits[-1] < limits[1]
    assert bound.factor == pytest.approx(1.5)


def test_noise_keeps_the_distance_that_is_said():
    """300 rounds of 200 runs: the mean square of the last 100 rounds against the bound."""
    setting = dict(strong_convexity=1.0, smoothness=2.0, penalty=0.7)
    tau, gamma, steps = 0.3, 0.2, 25
    noise = local_noise(
        **setting, noise_scale=tau, step_size=gamma, local_steps=steps, coordinates=3
    )
    rate = convergence(**setting, local_steps=steps, step_size=gamma)
    bound = asymptotic_error(rate, noise)
    generator, seen = np.random.default_rng(3), []
    for _ in range(60):
        drawn = generator.normal(size=(60, steps, 3)) * math.sqrt(2 * gamma) * tau
        distances, _, _ = run_quadratic(
            [1.0, 2.0, 1.4], 0.7, steps, 60, np.zeros((2, 3)), gamma=gamma, noise=drawn
        )
        seen.append(np.mean(distances[30:] ** 2))
    assert 0.2 * bound < math.sqrt(np.mean(seen)) < bound
    printed = local_noise(
        **setting,
        noise_scale=tau,
        step_size=gamma,
        local_steps=steps,
        coordinates=3,
        as_printed=True,
    )
    assert printed > noise
    full = participation_rate(rate)
    c = local_contraction(**setting, local_steps=1, step_size=gamma)
    corollary = tau * math.sqrt(10 * 3 * gamma) * (1 - c**steps) / (1 - c) / (1 - rate.norm)
    assert full.asymptotic_error(math.sqrt(5) * printed) == pytest.approx(corollary, rel=1e-12)
    assert bound < corollary


def test_lemma_three():
    for low, high, rho in ((0.5, 3.0, 1.0), (1.0, 1.0, 4.0), (2.0, 9.0, 0.1)):
        curvatures = np.linspace(low, high, 50)
        reflections = np.abs(2 / (1 + rho * curvatures) - 1)
        zeta = splitting_contraction(strong_convexity=low, smoothness=high, penalty=rho)
        assert zeta == pytest.approx(reflections.max(), rel=1e-12)


BASE = dict(strong_convexity=1.0, smoothness=2.0, penalty=1.0)


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: convergence(**BASE, local_steps=3, step_size=0.7),
            r"below 2 / smoothness = 0.666",
        ),
        (lambda: convergence(**BASE, local_steps=3, step_size=-0.1), "step_size must be"),
        (lambda: convergence(**BASE, local_steps=0), "local_steps must be an integer"),
        (
            lambda: convergence(**BASE | {"strong_convexity": 0.0}, local_steps=3),
            "strong_convexity",
        ),
        (lambda: convergence(**BASE | {"strong_convexity": 3.0}, local_steps=3), "be at most"),
        (
            lambda: convergence(**BASE, local_steps=3, step_size=0.1, solver="accelerated"),
            "step_size must be None",
        ),
        (lambda: convergence(**BASE, local_steps=3, solver="newton"), "solver must be one of"),
        (
            lambda: participation_rate(convergence(**BASE, local_steps=30), [0.5, 0.0]),
            r"probability in \(0, 1\]",
        ),
        (
            lambda: participation_rate(convergence(**BASE, local_steps=30), [0.5, 1.1]),
            r"probability in \(0, 1\]",
        ),
        (lambda: participation_rate(convergence(**BASE, local_steps=30), []), "at least one agent"),
        (
            lambda: participation_rate(convergence(**BASE | {"penalty": 0.1}, local_steps=30)),
            "be below 1 for Proposition 2",
        ),
        (
            lambda: convergence(**BASE, local_steps=1, step_size=0.1).rounds(1e-5),
            "be below 1 for Fed-PLT",
        ),
        (lambda: convergence(**BASE, local_steps=9).rounds(1.5), "accuracy"),
        (
            lambda: find_parameters(
                strong_convexity=1.0, smoothness=2.0, gradient_cost=0.0, round_cost=1.0
            ),
            "gradient_cost",
        ),
    ],
)
def test_bad_input_names_the_range(call, words):
    with pytest.raises(ParameterError, match=words):
        call()
