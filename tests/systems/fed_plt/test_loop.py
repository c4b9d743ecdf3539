"""Fed-PLT as a loop: its limits, the cost of its rounds, its refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedprivacy as fp
from fedprivacy.errors import BudgetExhausted, ParameterError
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import CohortMechanism, Parallel
from fedprivacy.training import (
    AgentData,
    FederatedSplitting,
    LeastSquares,
    LocalSolver,
    Logistic,
    ModuleLoss,
    train,
)
from tests.contract.kills import kill_often

NOISY = LocalSolver(method="noisy", steps=5, step_size=0.4, noise_scale=0.3)
LIMIT = 6.5  # standard errors: exceeded by a sound run with probability below 1e-10
pytestmark = pytest.mark.usefixtures("one_thread")


def agents(kind="regression", sizes=(7, 12, 12, 5), dimension=3, seed=0):
    """Agents of different sizes whose truths differ."""
    chance = np.random.default_rng(seed)
    found = []
    for size in sizes:
        inputs = chance.normal(size=(size, dimension))
        outputs = inputs @ chance.normal(size=dimension) + chance.normal(size=size)
        found.append((inputs, outputs if kind == "regression" else np.where(outputs > 0, 1, -1)))
    return found


def run(loop, data, rounds):
    return train(loop, data, rounds=rounds).state


# What a round costs


def bounded(**options):
    settings = {
        "loss": Logistic(regularisation=0.5, feature_bound=1.0),
        "records": (100,) * 4,
        "dimension": 3,
        "penalty": 1.0,
        "solver": NOISY,
    }
    return FederatedSplitting(**(settings | options))


class Single(Logistic):
    """A loss whose start is in single precision, as torch makes it."""

    def start(self, generator):
        return torch.rand(3, generator=generator)


def test_a_loss_s_own_start_is_stepped_from_in_double_precision():
    """The first round refused the loop's own first state."""
    loop = bounded(loss=Single(regularisation=0.5, feature_bound=1.0), records=(7, 12, 12, 5))
    begun = loop.init()
    assert begun.models.dtype is torch.float64 and bool((begun.models != 0.0).all())
    state, _ = loop.step(begun, AgentData.of(agents("classification")))
    assert bool(torch.isfinite(state.models).all())


def test_agents_that_differ_are_kinds_apart():
    loop = bounded(records=(100, 50, 100, 100), participation=(1.0, 0.5, 0.2, 0.2))
    whole = loop.round_mechanism
    assert isinstance(whole, Parallel) and len(whole.mechanisms) == 3
    alone = [bounded(records=(q,), participation=p) for q, p in ((100, 1.0), (50, 0.5), (100, 0.2))]
    ask = {"delta": 1e-5, "adjacency": "replace_one", "observer": "server"}
    each = [fp.epsilon(one.round_mechanism * 30, **ask).upper for one in alone]
    assert fp.epsilon(whole * 30, **ask).upper == pytest.approx(max(each), rel=1e-6)
    assert isinstance(alone[1].round_mechanism, CohortMechanism)
    assert alone[1].round_mechanism.scheme == fp.Poisson(0.5)


def clip_solver(clip, **options):
    return replace(NOISY, clip_norm=clip, **options)


class Bowl(nn.Module):
    """Its output is its two parameters, whatever the input."""

    def __init__(self):
        super().__init__()
        self.place = nn.Parameter(torch.tensor([3.0, 3.0]))

    def forward(self, inputs):
        return self.place[None] + 0.0 * inputs


def test_the_books_of_a_private_run(tmp_path):
    data = AgentData.of(agents("classes", (100, 100, 100, 100)))
    loop = bounded(participation=0.5)
    path = tmp_path / "run.ledger"
    with Ledger.create(path, unit="record", adjacency="replace_one", observer="server") as ledger:
        train(loop, data, rounds=12, ledger=ledger)
        ledger.close()
    expected = fp.epsilon(
        loop.round_mechanism * 12, delta=1e-6, adjacency="replace_one", observer="server"
    )
    found = fp.audit(path, claim=(expected.upper, 1e-6))
    assert found.verdict == "HOLDS"
    assert fp.account(path, delta=1e-6).upper == pytest.approx(expected.upper, rel=1e-9)
    assert fp.audit(path, claim=(0.9 * expected.lower, 1e-6)).verdict == "FAILS"


@pytest.mark.parametrize(
    "loss", [LeastSquares(regularisation=0.5), Logistic(feature_bound=1.0, regularisation=0.5)]
)
def test_what_clipped_and_contracted_rounds_leave_in_the_ledger(tmp_path, loss):
    kind = "regression" if isinstance(loss, LeastSquares) else "classes"
    data = AgentData.of(agents(kind, (100, 80, 100, 100)))
    loop = bounded(loss=loss, records=data.records, solver=clip_solver(0.3))
    with Ledger.create(tmp_path / "l", unit="record", adjacency="replace_one") as ledger:
        train(loop, data, rounds=3, ledger=ledger)
    with_notes = Ledger.open(tmp_path / "l")
    assert with_notes.spent_rounds == 3 and with_notes.notes == ()
    expected = fp.epsilon(loop.round_mechanism * 3, delta=1e-5, adjacency="replace_one")
    assert fp.account(with_notes, delta=1e-5).upper == pytest.approx(expected.upper, rel=1e-9)


def test_a_budget_stops_it_before_anything_is_released():
    data = AgentData.of(agents("classes", (100,) * 4))
    loop, seen = bounded(), []
    three = fp.epsilon(loop.round_mechanism * 3, delta=1e-5, adjacency="replace_one").upper
    budget = fp.Budget(three * 1.001, 1e-5, adjacency="replace_one")
    with pytest.raises(BudgetExhausted):
        train(loop, data, rounds=9, budget=budget, on_release=seen.append)
    assert len(seen) == 3


@pytest.mark.parametrize("parameter", ["tau", "N_e", "K"])
def test_calibrate_any_one_of_noise_steps_and_rounds(parameter):
    def setting(tau=0.3, steps=5, rounds=20):
        solver = replace(NOISY, noise_scale=float(tau), steps=int(steps))
        return bounded(solver=solver).round_mechanism * int(rounds)

    ways = {
        "tau": (lambda t: setting(tau=t), {}),
        "N_e": (lambda n: setting(steps=n), {"integer": True, "domain": (1, 10_000)}),
        "K": (lambda k: setting(rounds=k), {"integer": True, "domain": (1, 10_000)}),
    }
    make, options = ways[parameter]
    budget = {"tau": 0.3, "N_e": 0.70, "K": 1.5}[parameter]
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    found = fp.calibrate(make, epsilon=budget, **ask, **options)
    assert found.bound.upper <= budget
    beyond = found.value * 0.99 if parameter == "tau" else found.value + 1
    assert fp.epsilon(make(beyond), **ask).upper > budget


def test_agents_that_do_not_take_part_keep_their_state():
    data = AgentData.of(agents())
    options = {"loss": LeastSquares(regularisation=0.5), "participation": 0.5, "seed": 2}
    loop = FederatedSplitting.on(data, **options)
    state = replace(loop.init(), models=torch.ones(4, 3).double())
    after, info = loop.step(state, data, dropout=lambda cohort: cohort[:1])
    moved = (after.models != state.models).any(1)
    assert int(moved.sum()) == info.arrived == info.cohort - 1 < 4
    assert torch.equal(after.auxiliary[~moved], state.auxiliary[~moved])
    assert info.upload_bytes == info.arrived * 3 * 8
    drawn = np.mean([loop._draw(k, None).cohort for k in range(2000)]) / 4
    assert abs(drawn - 0.5) < LIMIT * math.sqrt(0.25 / 8000)


def test_a_solve_that_is_not_finite_changes_nothing_but_the_count():
    class Broken(LeastSquares):
        def gradient(self, points, data, clip_norm=None):
            found = super().gradient(points, data, clip_norm)
            found[1] = math.nan
            return found

    data = AgentData.of(agents())
    loop = FederatedSplitting.on(data, loss=Broken(regularisation=0.5))
    after, info = loop.step(loop.init(), data)
    assert info.refused == 1 and info.arrived == 3
    assert bool(torch.isfinite(after.models).all()) and not after.models[1].any()


def test_resumed_is_as_if_never_stopped(tmp_path):
    data = AgentData.of(agents("classes", (100,) * 4))
    loop = bounded(participation=0.6, seed=5)
    train(loop, data, rounds=3, checkpoint=tmp_path / "state")
    resumed = train(loop, data, rounds=7, checkpoint=tmp_path / "state")
    assert len(resumed.history) == 4
    straight = run(loop, data, 7)
    assert torch.equal(resumed.state.models, straight.models)
    assert torch.equal(resumed.state.auxiliary, straight.auxiliary)


# Torch modules


class OneOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1, bias=False)

    def forward(self, inputs):
        return self.linear(inputs)[..., 0]


# Refusals

PARTS = agents("classes")
REFUSED = {
    "step size outside the contraction range": (
        lambda: bounded(solver=replace(NOISY, step_size=1.2)),
        r"step_size must lie in \(0, 1.14286\)",
    ),
    "step size of zero": (lambda: LocalSolver(step_size=0.0), "step_size must be .* above 0"),
    "no strong convexity": (
        lambda: bounded(loss=Logistic(feature_bound=1.0)),
        "strong_convexity must be .* above 0.*regularise",
    ),
    "negative strong convexity": (
        lambda: bounded(
            loss=ModuleLoss(model=Bowl), constants=(-0.1, 1.0), solver=LocalSolver(steps=2)
        ),
        "strong_convexity must be .* above 0",
    ),
    "probability of zero": (
        lambda: bounded(participation=0.0),
        r"participation must be a probability in \(0, 1\]",
    ),
    "probability above one": (
        lambda: bounded(participation=(0.5, 0.5, 1.1, 1.0)),
        r"participation must be a probability in \(0, 1\]",
    ),
    "too few probabilities": (
        lambda: bounded(participation=(0.5, 0.5)),
        "participation must be one, or one per agent, 4",
    ),
    "prox of another shape": (
        lambda: bounded(regulariser=lambda point, step: point[..., :2]),
        r"regulariser must return a tensor of the shape of its input, \(3,\)",
    ),
    "prox that is not a tensor": (
        lambda: bounded(regulariser=lambda point, step: 0.0),
        "regulariser must return a tensor",
    ),
    "prox of NaN": (
        lambda: bounded(regulariser=lambda point, step: point * math.nan),
        "regulariser must return a finite point",
    ),
    "an agent without data": (
        lambda: AgentData.of([*PARTS, (np.zeros((0, 3)), np.zeros(0))]),
        r"agents\[4\] must contain .* at least one, got \(0, 0\); leave out agents without data",
    ),
    "an agent of size zero": (
        lambda: AgentData(torch.zeros(2, 3, 1).double(), torch.ones(2, 3), (3, 0)),
        r"sizes\[1\] must be an integer of at least 1",
    ),
    "a declared size of zero": (
        lambda: bounded(records=(9, 9, 0, 9)),
        r"records\[2\] must be an integer of at least 1, got 0; leave out agents without data",
    ),
    "no agents": (lambda: AgentData.of([]), "agents must contain at least one agent"),
    "no sensitivity: least squares": (
        lambda: bounded(loss=LeastSquares(regularisation=0.5, feature_bound=1.0)),
        "solver.clip_norm must be given if the loss has no sensitivity",
    ),
    "no sensitivity: inputs without a bound": (
        lambda: bounded(loss=Logistic(regularisation=0.5)),
        r"solver.clip_norm must be given.*feature_bound",
    ),
    "no sensitivity: a module": (
        lambda: bounded(loss=ModuleLoss(model=OneOutput)),
        "solver.clip_norm must be given",
    ),
    "private and other agents": (
        lambda: bounded(solver=(NOISY, NOISY, NOISY, LocalSolver(steps=2))),
        "solver must be noisy for all agents or for none",
    ),
    "noise of another method": (
        lambda: LocalSolver(noise_scale=1.0),
        "noise_scale must be None for the gradient solver",
    ),
    "noisy without noise": (
        lambda: LocalSolver(method="noisy"),
        "noise_scale must be given",
    ),
    "unknown curvature": (
        lambda: FederatedSplitting(loss=LeastSquares(), records=(3,), dimension=1),
        "penalty, steps must be given if the curvature of the loss is unknown",
    ),
    "labels of zero and one": (
        lambda: Logistic().dimension(AgentData(torch.ones(1, 2, 1).double(), torch.zeros(1, 2))),
        "targets must be -1 or 1",
    ),
    "features that are not finite": (
        lambda: AgentData(torch.full((1, 2, 1), math.nan).double(), torch.ones(1, 2)),
        "features must be finite",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_prox_that_fails_late_is_refused_before_anything_is_spent():
    data = AgentData.of(agents("classes", (100,) * 4))
    calls = []

    def prox(point, step):
        calls.append(step)
        return point if len(calls) < 4 else point * math.nan

    loop, seen = bounded(regulariser=prox), []
    with pytest.raises(ParameterError, match="regulariser must return a finite point"):
        train(loop, data, rounds=9, on_release=seen.append)
    assert len(seen) == 2 or len(seen) == 3


@pytest.mark.parametrize(
    "name, facts",
    [
        ("runs", {}),
        ("add_remove", {"adjacency": "add_remove"}),
        ("unit", {"unit": "client"}),
    ],
)
def test_books_that_do_not_fit_are_refused(tmp_path, name, facts):
    data = AgentData.of(agents("classes", (100,) * 4))
    loop = bounded(runs=2 if name == "runs" else None)
    header = {"unit": "record", "adjacency": "replace_one"} | facts
    with Ledger.create(tmp_path / "l", **header) as ledger, pytest.raises(ParameterError):
        loop.step(loop.init(), data, ledger=ledger)
    assert Ledger.open(tmp_path / "l").spent_rounds == 0


def test_private_parameters_are_not_taken_from_the_data():
    data = AgentData.of(agents())
    loss, solver = LeastSquares(regularisation=0.5), clip_solver(0.3)
    with pytest.raises(ParameterError, match="penalty, steps"):
        FederatedSplitting.on(data, loss=loss, solver=solver)
    assert FederatedSplitting.on(data, loss=loss, solver=solver, penalty=1.0).constants is None


# Killed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments_it_never_counts_too_little(tmp_path, seed):
    kill_often("splitting", tmp_path, 120, seed)


@pytest.mark.parametrize(("tiny", "target"), [(1e-170, 1e168), (1e-161, 1e161), (0.0, 1e300)])
def test_an_input_whose_square_vanishes_is_clipped_all_the_same(tiny, target):
    """A norm that underflows would not clip, and slopes of squares have no bound."""
    inputs, targets = torch.ones(1, 2, 3, dtype=torch.float64), torch.ones(1, 2)
    inputs[0, 0], targets = tiny, targets.double()
    targets[0, 0] = target
    data = AgentData(inputs, targets, (2,))
    found = LeastSquares().gradient(torch.zeros(1, 3, dtype=torch.float64), data, 0.2)
    other = LeastSquares().gradient(torch.zeros(1, 3, dtype=torch.float64), data, 1e-9)
    assert float(found.norm()) <= 0.2 and float(other.norm()) <= 1e-9
