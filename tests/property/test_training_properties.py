"""Properties of local training, partitions, draws and checkpoints for all numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from torch import nn

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.training.optimise import EVALUATED_AT_ONCE

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
FEW = settings(derandomize=True, deadline=None, max_examples=8)
CPU = torch.device("cpu")


def federated(sizes, inputs=3, classes=2, seed=0):
    """Made-up records of clients of these sizes."""
    draw, count = torch.Generator().manual_seed(seed), sum(sizes)
    features = torch.randn(count, inputs, generator=draw)
    labels = torch.randint(classes, (count,), generator=draw)
    rows = np.split(np.arange(count), np.cumsum(sizes)[:-1])
    return training.FederatedData(
        features=features,
        labels=labels,
        clients=tuple(rows),
        test_features=features,
        test_labels=labels,
        num_classes=classes,
    )


def averaging(**changed):
    given = {
        "model": training.logistic(3, 2),
        "scheme": fp.Everyone(),
        "local_steps": 2,
        "batch_size": 64,
        "seed": 0,
    }
    return training.FederatedAveraging(**{**given, **changed})


# ---- the records of each step


@given(
    records=st.integers(1, 30),
    batch=st.integers(1, 12),
    passes=st.integers(1, 3),
    seed=st.integers(0, 5),
)
@SETTINGS
def test_every_pass_uses_every_record_once_and_its_last_batch_may_be_smaller(
    records, batch, passes, seed
):
    own = training.LocalSGD(epochs=passes, batch_size=batch)
    plan = own.batches(records, np.random.default_rng(seed))
    each = math.ceil(records / batch)
    assert len(plan) == passes * each
    for start in range(0, len(plan), each):
        one = plan[start : start + each]
        assert sorted(np.concatenate(one)) == list(range(records))
        assert [len(part) for part in one[:-1]] == [batch] * (each - 1)
        assert len(one[-1]) == (records - 1) % batch + 1
    steps = training.LocalSGD(steps=len(plan) - 1 or 1, batch_size=batch)
    cut = steps.batches(records, np.random.default_rng(seed))
    assert all(map(np.array_equal, cut, plan)) and len(cut) == (len(plan) - 1 or 1)


@given(
    size=st.integers(1, 9),
    clients=st.integers(1, 4),
    batch=st.integers(1, 5),
    seed=st.integers(0, 3),
)
@SETTINGS
def test_a_schedule_gives_clients_their_own_records_and_fills_up_with_the_first(
    size, clients, batch, seed
):
    rows = [100 * client + np.arange(size) for client in range(clients)]
    own = training.LocalSGD(epochs=1, batch_size=batch)
    found = own.schedule(rows, np.random.default_rng(seed))
    assert found.rows.shape == (len(found.sizes), clients, max(found.sizes))
    for client in range(clients):
        alone = found.alone(client).rows[:, 0]
        assert alone.shape == (len(found.sizes), max(found.sizes))
        used = torch.cat([alone[step, :width] for step, width in enumerate(found.sizes)])
        assert sorted(used.tolist()) == rows[client].tolist()
        beyond = [alone[step, width:] for step, width in enumerate(found.sizes)]
        assert torch.cat(beyond).eq(rows[client][0]).all()


# ---- a round of averaging


def one_round(own, **changed):
    loop = averaging(**changed)
    return loop.step(loop.init(), own)[0].parameters


@pytest.mark.parametrize("local", [{"local_steps": 3}, {"local_steps": 3, "momentum": 0.5}])
def test_one_client_of_one_record_takes_the_steps_of_a_formula(local):
    """Logistic regression from 0: p - y times (x, 1), and the next step from there."""
    own = federated([1])
    x, label = own.features[0].double(), int(own.labels[0])
    weights, velocity = torch.zeros(2, 4, dtype=torch.float64), torch.zeros(2, 4).double()
    inputs = torch.cat([x, torch.ones(1).double()])
    for _ in range(3):
        slope = torch.softmax(weights @ inputs, 0)
        slope[label] -= 1.0
        velocity = local.get("momentum", 0.0) * velocity + slope[:, None] * inputs
        weights = weights - 0.1 * velocity
    found = one_round(own, learning_rate=0.1, **local).double()
    wanted = torch.cat([weights[:, :3].reshape(-1), weights[:, 3]])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=6),
    seed=st.integers(0, 5),
    dense=st.booleans(),
)
@FEW
def test_the_order_of_clients_and_of_their_records_is_nothing_to_an_average(sizes, seed, dense):
    own, draw = federated(sizes, seed=seed), np.random.default_rng(seed)
    shuffled = tuple(draw.permutation(own.clients[c]) for c in draw.permutation(len(sizes)))
    model = training.logistic(3, 2) if dense else lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    first, second = (
        one_round(each, model=model, learning_rate=0.3)
        for each in (own, replace(own, clients=shuffled))
    )
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


@given(copies=st.integers(2, 5), size=st.integers(1, 4), seed=st.integers(0, 5))
@FEW
def test_clients_that_are_alike_average_to_one_of_them(copies, size, seed):
    own = federated([size], seed=seed)
    many = replace(
        own,
        features=own.features.repeat(copies, 1),
        labels=own.labels.repeat(copies),
        clients=tuple(np.split(np.arange(copies * size), copies)),
    )
    torch.testing.assert_close(one_round(own), one_round(many), rtol=1e-5, atol=1e-7)


@given(rate=st.sampled_from([0.25, 0.5, 2.0, 4.0]), seed=st.integers(0, 5))
@FEW
def test_a_server_s_rate_scales_the_step(rate, seed):
    own = federated([2, 3, 1], seed=seed)
    start = averaging().init().parameters
    plain, scaled = (one_round(own, server_learning_rate=r) for r in (1.0, rate))
    torch.testing.assert_close(scaled - start, rate * (plain - start), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "count", [1, EVALUATED_AT_ONCE, EVALUATED_AT_ONCE + 1, 2 * EVALUATED_AT_ONCE + 3]
)
def test_a_model_is_scored_over_all_records_whatever_goes_at_once(count):
    own = federated([count], seed=count)
    flat = training.FlatModel(training.mlp(3, 2, (4,))(), CPU)
    point = torch.randn(flat.dimension, generator=torch.Generator().manual_seed(1))
    accuracy, loss = flat.evaluate(point, own.features, own.labels)
    outputs = flat.logits(point, own.features)
    assert accuracy == pytest.approx(float((outputs.argmax(1) == own.labels).double().mean()))
    assert loss == pytest.approx(float(nn.functional.cross_entropy(outputs, own.labels)), rel=1e-5)
    assert all(map(math.isnan, flat.evaluate(point, own.features[:0], own.labels[:0])))
    mean = training.FlatModel(
        nn.Linear(3, 1), CPU, loss=lambda out, y: (out[:, 0] - y).square().mean()
    )
    right, squared = mean.evaluate(mean.flatten(), own.features, own.labels.float())
    wanted = (mean.logits(mean.flatten(), own.features)[:, 0] - own.labels).square().mean()
    assert math.isnan(right) and squared == pytest.approx(float(wanted.detach()), rel=1e-5)


@given(shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
@FEW
def test_a_flat_vector_is_its_module_s_parameters_in_order(shapes):
    module = nn.ModuleList([nn.Linear(*shape) for shape in shapes])
    flat = training.FlatModel(module, CPU)
    point = torch.arange(float(flat.dimension))
    flat.load(point)
    assert torch.equal(flat.flatten(), point)
    assert torch.equal(torch.cat([part.reshape(-1) for part in flat.split(point)]), point)
    whole = flat.whole(2.0 * point)
    assert list(whole) == list(module.state_dict())
    assert torch.equal(torch.cat([part.reshape(-1) for part in whole.values()]), 2.0 * point)
    # What the caller built is left as it was.
    assert not torch.equal(
        next(module.parameters()).reshape(-1), flat.flatten()[: math.prod(shapes[0])]
    )


# ---- a stopped run continues like an uninterrupted one


def sampler(kind, **changed):
    target = training.Posterior.of(
        lambda p, x: -0.5 * ((x - p) ** 2).sum(1),
        clients=[np.eye(3)[:, :2], -np.eye(3)[:, :2]],
        dimension=2,
        clip_norm=None,
    )
    return kind(target=target, step_size=0.05, seed=3, chains=2, **changed), None


def splitting():
    own = training.AgentData.of([(np.eye(3), np.array([1.0, -1.0, 1.0]))] * 2)
    solver = training.LocalSolver(method="stochastic", batch_size=2, steps=2)
    loss = training.Logistic(regularisation=0.5, feature_bound=1.0)
    return training.FederatedSplitting.on(own, loss=loss, solver=solver, seed=3), own


def scaffold():
    loop = training.Scaffold(
        model=training.logistic(3, 2), scheme=fp.Poisson(0.7), local_steps=2, batch_size=2, seed=3
    )
    return loop, federated([2, 3, 2, 3])


LOOPS = {
    "de-biased": lambda: sampler(training.DebiasedSampling, leapfrog_steps=2),
    "hamiltonian": lambda: sampler(training.HamiltonianSampling, draws=2, thinning=2, burn_in=1),
    "langevin": lambda: sampler(training.LangevinSampling, local_steps=2, correlation=0.5, draws=3),
    "splitting": splitting,
    "scaffold": scaffold,
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_that_was_stopped_ends_where_one_that_was_not_does(tmp_path, name, stop):
    loop, own = LOOPS[name]()
    whole = training.train(loop, own, rounds=5).state
    path = tmp_path / "run.pt"
    training.train(loop, own, rounds=stop, checkpoint=path)
    # Another process has only the file.
    again, own = LOOPS[name]()
    ended = training.train(again, own, rounds=5, checkpoint=path)
    assert len(ended.history) == 5 - stop and ended.state.round == 5
    for field in vars(whole):
        one, other = getattr(whole, field), getattr(ended.state, field)
        same = (
            torch.equal(one.nan_to_num(), other.nan_to_num())
            if torch.is_tensor(one)
            else one == other
        )
        assert same, field
    assert training.train(again, own, rounds=5, checkpoint=path).history == ()


@pytest.mark.parametrize("name", LOOPS)
def test_a_step_leaves_the_state_before_it_as_it_was(name):
    loop, own = LOOPS[name]()
    before = loop.init()
    after, _ = loop.step(before, own)
    kept = {key: value.clone() for key, value in vars(after).items() if torch.is_tensor(value)}
    loop.step(after, own)
    assert all(torch.equal(vars(after)[k].nan_to_num(), v.nan_to_num()) for k, v in kept.items())
    assert before.round == 0 and after.round == 1
