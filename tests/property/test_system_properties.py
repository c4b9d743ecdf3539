"""Properties of the systems for all numbers: units, order of agents, closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.papers.fa_ld import bounds as ld
from fedprivacy.runs.methods import METHODS
from fedprivacy.systems.fa_ld.law import DecayingSteps
from fedprivacy.systems.fed_plt.proximal import L1, L2, Box, Group
from fedprivacy.systems.settings import Settings, axis, single
from fedprivacy.training import (
    AgentData,
    FederatedSplitting,
    LeastSquares,
    LocalSolver,
    Logistic,
    cnn,
    colour_cnn,
    logistic,
    lstm,
    mlp,
)

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
FEW = settings(derandomize=True, deadline=None, max_examples=8)
SCALES = st.sampled_from([1e-3, 0.5, 3.0, 1e4])


def problem(scale=1.0):
    """A target whose parameters are measured in other units."""
    return ld.LangevinProblem(
        dimension=3,
        strong_convexity=1.0 / scale**2,
        smoothness=4.0 / scale**2,
        smallest_weight=0.25,
        clients=4,
        start_distance=2.0 * scale,
        heterogeneity=0.5 / scale,
        gradient_std=0.3 / scale,
    )


@given(
    scale=SCALES,
    rho=st.sampled_from([0.0, 0.5, 1.0]),
    local=st.integers(1, 5),
    iterations=st.integers(0, 300),
)
@SETTINGS
def test_parameters_in_other_units_are_as_far_in_those(scale, rho, local, iterations):
    """W2 is a length: s times as long where every parameter is."""
    ask = {"local_steps": local, "iterations": iterations}
    for make in (
        lambda p, s: ld.constant_step_bound(p, step_size=0.01 * s * s, correlation=rho, **ask),
        lambda p, s: ld.decaying_step_bound(p, **ask),
        lambda p, s: ld.partial_participation_bound(
            p, step_size=0.01 * s * s, correlation=rho, cohort=2, averaging="II", **ask
        ),
    ):
        one, other = make(problem(), 1.0).value, make(problem(scale), scale).value
        assert other == pytest.approx(scale * one, rel=1e-9)
    step, needed = ld.iterations_needed(
        problem(scale), accuracy=0.1 * scale, local_steps=local, correlation=rho
    )
    plain, same = ld.iterations_needed(problem(), accuracy=0.1, local_steps=local, correlation=rho)
    assert step == pytest.approx(scale**2 * plain, rel=1e-9)
    assert needed.value == pytest.approx(same.value, rel=1e-6, abs=1.0)


@given(
    local=st.integers(1, 4), rho=st.sampled_from([0.0, 0.7]), accuracy=st.sampled_from([0.5, 5.0])
)
@FEW
def test_the_iterations_that_are_needed_are_enough_and_one_less_is_not(local, rho, accuracy):
    step, needed = ld.iterations_needed(
        problem(), accuracy=accuracy, local_steps=local, correlation=rho
    )
    count = int(needed.value)

    def bound(iterations):
        return ld.constant_step_bound(
            problem(), step_size=step, local_steps=local, iterations=iterations, correlation=rho
        ).value

    assert count == needed.value and bound(count) <= accuracy * (1.0 + 1e-9)
    bias = bound(10**15)
    # One step before, the transient is above its half.
    assert count == 0 or bound(count - 1) - bias > 0.5 * accuracy * (1.0 - 1e-9)


@given(clients=st.integers(1, 9), cohort=st.integers(1, 9), iterations=st.integers(0, 50))
@FEW
def test_a_cohort_of_everybody_costs_nothing_more_under_scheme_two(clients, cohort, iterations):
    cohort = min(cohort, clients)
    own = replace(problem(), clients=clients, smallest_weight=1.0 / clients)
    ask = {"step_size": 0.01, "local_steps": 2, "iterations": iterations}
    full = ld.constant_step_bound(own, **ask).value
    drawn = ld.partial_participation_bound(own, cohort=cohort, averaging="II", **ask).value
    again = ld.partial_participation_bound(own, cohort=cohort, averaging="I", **ask).value
    assert full <= drawn <= again
    assert (drawn == full) == (cohort == clients)


@given(
    kappa=st.floats(1.0, 1e4),
)
@SETTINGS
def test_no_other_number_of_local_steps_needs_fewer_rounds_by_the_bound(kappa):
    own = replace(problem(), smoothness=kappa)
    best = int(ld.optimal_local_steps(own).value)

    def rounds(k):
        return ((k - 1) ** 2 + own.condition_number) / k

    assert best >= 1 and all(rounds(best) <= rounds(k) for k in range(1, best + 40))


def test_steps_that_fall_are_those_of_the_theorem():
    steps = DecayingSteps(strong_convexity=0.5, smoothness=3.0)
    wanted = [1.0 / (6.0 + 0.5 * k / 12.0) for k in range(2, 7)]
    np.testing.assert_allclose(steps.at(2, 5), wanted, rtol=1e-15)
    assert steps.sizes(2, 5) == tuple(steps.at(2, 5).tolist()) and steps.sizes(4, 0) == ()


# ---- settings as values


@given(
    axes=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(st.integers(1, 9), min_size=1))
)
@SETTINGS
def test_one_value_is_an_axis_and_an_axis_of_one_is_its_value(axes):
    for name, values in axes.items():
        assert axis(name, values) == values == axis(name, tuple(values))
        assert axis(name, np.array(values)) == values
        assert axis(name, values[0]) == [values[0]]
        assert axis(name, "123") == ["123"]
    alone = {name: values[:1] for name, values in axes.items()}
    assert single(alone) == {name: values[0] for name, values in axes.items()}


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_s_default_keeps_its_rule_and_reads_as_itself(name):
    kind: type[Settings] = METHODS[name].settings
    for setting in kind.known().values():
        if setting.default is None:
            assert setting.read("all") is None is setting.checked(None)
        elif isinstance(setting.default, int | float | str):
            assert setting.read(str(setting.default)) == setting.default
            assert f"{setting.default}" in str(setting)
        assert setting.help in str(setting) and setting.rule.text in str(setting)


# ---- proximal operators

PROXES = {
    "l2": (L2(0.7), lambda x: 0.35 * (x**2).sum(-1)),
    "l1": (L1(0.7), lambda x: 0.7 * x.abs().sum(-1)),
    "box": (Box(-0.5, 0.3), None),
    "group": (
        Group(0.7, groups=((0, 2), (1,))),
        lambda x: 0.7 * (x[..., [0, 2]].norm(dim=-1) + x[..., 1].abs()),
    ),
    "nothing": (L1(0.0), lambda x: 0.0 * x.sum(-1)),
}


@given(
    seed=st.integers(0, 20),
    step=st.sampled_from([0.1, 1.0, 5.0]),
    name=st.sampled_from(sorted(PROXES)),
)
@SETTINGS
def test_no_point_is_better_than_the_proximal_one(seed, step, name):
    prox, cost = PROXES[name]
    draw = torch.Generator().manual_seed(seed)
    point = torch.randn(4, generator=draw, dtype=torch.float64)
    found = prox(point, step)
    tries = found + torch.randn(300, 4, generator=draw, dtype=torch.float64) * 0.3
    if cost is None:
        tries = tries.clamp(prox.low, prox.high)
        assert bool(((found >= prox.low) & (found <= prox.high)).all())

    def worth(x):
        return (0.0 if cost is None else cost(x)) + ((x - point) ** 2).sum(-1) / (2.0 * step)

    assert float(worth(found)) <= float(worth(tries).min()) + 1e-12
    # Two points come no further apart, and rows are done one by one.
    other = torch.randn(4, generator=draw, dtype=torch.float64)
    assert float((prox(other, step) - found).norm()) <= float((other - point).norm()) + 1e-12
    both = prox(torch.stack([point, other]), step)
    torch.testing.assert_close(both[0], found, rtol=1e-14, atol=0)


# ---- agents


def agents(sizes, size=3, seed=0):
    draw = np.random.default_rng(seed)
    return [(draw.normal(size=(q, size)), draw.choice([-1.0, 1.0], size=q)) for q in sizes]


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(sizes=SIZES, bound=st.sampled_from([0.1, 1.0, 100.0]), seed=st.integers(0, 9))
@SETTINGS
def test_inputs_are_scaled_into_the_ball_one_by_one(sizes, bound, seed):
    own = AgentData.of([*agents(sizes, seed=seed), (np.zeros((1, 3)), np.ones(1))])
    inside = own.bounded(bound)
    before, after = (each.features.norm(dim=-1) for each in (own, inside))
    assert float(after.max()) <= bound
    short = before < bound * (1.0 - 1e-6)
    assert torch.equal(inside.features[short], own.features[short])
    long = ~short
    torch.testing.assert_close(
        inside.features[long] / after[long][:, None], own.features[long] / before[long][:, None]
    )
    assert inside is own.bounded(bound) and torch.equal(inside.targets, own.targets)
    assert inside.records == own.records == (*sizes, 1)


@given(sizes=SIZES, seed=st.integers(0, 9))
@SETTINGS
def test_an_agent_s_gradient_is_the_mean_over_its_own_records(sizes, seed):
    """Padding has no effect, whatever the other agents have."""
    parts, draw = agents(sizes, seed=seed), np.random.default_rng(seed)
    own = AgentData.of(parts)
    points = torch.from_numpy(draw.normal(size=(len(sizes), 3)))
    torch.testing.assert_close(own.weights.sum(-1), torch.ones(len(sizes)).double())
    for loss in (LeastSquares(regularisation=0.3), Logistic(regularisation=0.3)):
        found, bend = loss.gradient(points, own), loss.hessian(points, own)
        for agent, (a, b) in enumerate(parts):
            x = points[agent].clone().requires_grad_()
            a, b = torch.from_numpy(a), torch.from_numpy(b)
            each = (
                (a @ x - b) ** 2 / 2
                if isinstance(loss, LeastSquares)
                else torch.log1p(torch.exp(-b * (a @ x)))
            )
            whole = each.mean() + 0.15 * (x**2).sum()
            (slope,) = torch.autograd.grad(whole, x, create_graph=True)
            torch.testing.assert_close(found[agent], slope.detach())
            rows = [torch.autograd.grad(part, x, retain_graph=True)[0] for part in slope]
            torch.testing.assert_close(bend[agent], torch.stack(rows))
        alone = loss.gradient(points[:1], AgentData.of(parts[:1]))
        torch.testing.assert_close(found[:1], alone)
    torch.testing.assert_close(
        Logistic().gradient(points, own, 0.05).norm(dim=-1).clamp(max=0.05),
        Logistic().gradient(points, own, 0.05).norm(dim=-1),
    )


@given(sizes=SIZES, seed=st.integers(0, 9))
@SETTINGS
def test_curvature_is_the_hessian_s_where_it_is_largest(sizes, seed):
    own = AgentData.of(agents(sizes, seed=seed))
    loss = LeastSquares(regularisation=0.3)
    values = torch.linalg.eigvalsh(loss.hessian(torch.zeros(len(sizes), 3).double(), own))
    low, high = loss.curvature(own)
    assert low == 0.3 and high == pytest.approx(float(values.max()))
    steep = Logistic(regularisation=0.3).curvature(own)
    assert steep[1] == pytest.approx(0.25 * (high - 0.3) + 0.3)
    assert LeastSquares().curvature() is None
    assert Logistic(feature_bound=2.0).curvature() == (0.0, 1.0)
    assert Logistic(feature_bound=2.0).sensitivity(8) == 0.5


@pytest.mark.parametrize("method", ["newton", "quasi_newton", "gradient", "accelerated"])
def test_one_agent_s_fixed_point_is_the_minimiser(method):
    """Least squares with a regulariser, by the normal equations."""
    ((a, b),) = agents((20,))
    own, loss = AgentData.of([(a, b)]), LeastSquares(regularisation=0.5)
    solver = LocalSolver(method=method, steps=1 if method == "newton" else 30)
    loop = FederatedSplitting.on(own, loss=loss, solver=solver, penalty=1.0, seed=0)
    state = loop.init()
    for _ in range(60):
        state, info = loop.step(state, own)
    assert info.arrived == 1 and info.upload_bytes == 8 * 3
    wanted = np.linalg.solve(a.T @ a / 20 + 0.5 * np.eye(3), a.T @ b / 20)
    np.testing.assert_allclose(loop.consensus(state).numpy(), wanted, atol=1e-7)
    np.testing.assert_allclose(loop.average(state).numpy(), wanted, atol=1e-7)


@given(order=st.permutations(range(3)), seed=st.integers(0, 5))
@FEW
def test_agents_in_another_order_have_their_models_in_that_order(order, seed):
    parts = agents((4, 4, 2), seed=seed)
    loss, solver = Logistic(regularisation=0.5), LocalSolver(steps=3)
    found = []
    for own in (AgentData.of(parts), AgentData.of([parts[n] for n in order])):
        loop = FederatedSplitting.on(own, loss=loss, solver=solver, penalty=1.0, seed=0)
        state = loop.init()
        for _ in range(3):
            state, _ = loop.step(state, own)
        found.append(state)
    for name in ("models", "auxiliary"):
        one, other = (getattr(state, name) for state in found)
        torch.testing.assert_close(one[list(order)], other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("participation", [fp.FixedSize(1, population=3), [1.0, 1e-9, 1e-9]])
def test_whoever_is_away_keeps_its_model(participation):
    own = AgentData.of(agents((4, 4, 2)))
    loss, solver = Logistic(regularisation=0.5), LocalSolver(steps=3)
    loop = FederatedSplitting.on(
        own, loss=loss, solver=solver, penalty=1.0, participation=participation, seed=1
    )
    state = loop.init()
    after, info = loop.step(state, own)
    moved = (after.models != state.models).any(-1)
    assert int(moved.sum()) == info.arrived == info.cohort == 1
    gone, told = loop.step(state, own, dropout=lambda cohort: set(cohort.tolist()))
    assert torch.equal(gone.models, state.models) and (told.cohort, told.arrived) == (1, 0)


# ---- what docstrings say


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (logistic(64, 10), 650),
        (mlp(784, 10, (32,)), 25_450),
        (mlp(3, 2, ()), 8),
        (mlp(784, 10, (200, 200)), 199_210),
        (cnn(10), 1_663_370),
        (colour_cnn(), 3_431_754),
        (lstm(), 822_570),
        (lstm(80), 819_920),
    ],
)
def test_models_have_as_many_parameters_as_they_say(build, parameters):
    with torch.device("meta"):
        found = build()
    assert sum(each.numel() for each in found.parameters()) == parameters
