"""What is true of local training, partitions, draws and checkpoints whatever the numbers are."""

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
from fedprivacy.training import private_sidecar, threads
from fedprivacy.training.optimise import EVALUATED_AT_ONCE
from fedprivacy.training.posterior import checked_shares

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


# ---- which records are in which step


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


# ---- who has which records


@given(records=st.integers(1, 60), clients=st.integers(1, 60), seed=st.integers(0, 9))
@SETTINGS
def test_an_even_split_is_one_of_sizes_that_differ_by_one(records, clients, seed):
    clients = min(clients, records)
    parts = training.partition_iid(records, clients, seed=seed)
    assert sorted(np.concatenate(parts)) == list(range(records))
    sizes = set(map(len, parts))
    assert len(parts) == clients and max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    again = training.partition_iid(records, clients, seed=seed)
    assert all(map(np.array_equal, parts, again))


@given(
    each=st.integers(1, 4),
    clients=st.integers(1, 6),
    runs=st.integers(1, 3),
    seed=st.integers(0, 9),
)
@SETTINGS
def test_a_split_by_label_deals_runs_of_sorted_labels(each, clients, runs, seed):
    """As many classes as runs: every run is a class, so a client has exactly that many."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(clients * runs), each))
    parts = training.partition_by_label(labels, clients, classes_per_client=runs, seed=seed)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert [len(part) for part in parts] == [each * runs] * clients
    assert all(len(set(labels[part])) == runs for part in parts)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    most=st.integers(1, 4),
    seed=st.integers(0, 5),
)
@SETTINGS
def test_groups_hold_every_client_once_beside_those_of_its_size(sizes, most, seed):
    own = federated(sizes)
    made = training.LazyData(
        client=own.records,
        population=len(sizes),
        test_features=own.test_features,
        test_labels=own.test_labels,
        num_classes=2,
    )
    asked = np.random.default_rng(seed).permutation(len(sizes)).tolist()
    for data in (own, made):
        groups = list(data.groups(asked, most))
        assert sorted(client for group in groups for client in group.clients) == sorted(asked)
        for group in groups:
            assert 1 <= len(group.clients) <= most
            assert len({sizes[client] for client in group.clients}) == 1
            for client, rows in zip(group.clients, group.rows, strict=True):
                mine = [part[torch.from_numpy(rows)] for part in group.records]
                assert all(map(torch.equal, mine, own.records(client)))


def test_no_more_made_clients_wait_than_four_groups_hold():
    asked = []

    def client(number):
        asked.append(number)
        return torch.zeros(number + 1, 1), torch.zeros(number + 1).long()

    own = training.LazyData(
        client=client,
        population=20,
        test_features=torch.zeros(0, 1),
        test_labels=torch.zeros(0).long(),
    )
    # Nobody has the size of another: the first group is made by the wait alone.
    groups = own.groups(range(20), 2)
    assert len(next(groups).clients) == 1 and len(asked) == 8
    assert len(list(groups)) == 19 and sorted(asked) == list(range(20))


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


# ---- a run that is stopped goes on as if it were not


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
    # Another process: nothing is left but the file.
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


# ---- what a key makes of data

PLACES = ["features", "labels", "clients", "name", "num_classes"]


@pytest.mark.parametrize("place", PLACES)
def test_a_fingerprint_follows_every_part_of_the_data_and_the_key(place):
    own = federated([2, 2])
    other = {
        "features": own.features + torch.eye(4, 3) * 1e-6,
        "labels": 1 - own.labels,
        "clients": (own.clients[0], own.clients[1][::-1].copy()),
        "name": "datb",
        "num_classes": 3,
    }[place]
    key = bytes(32)
    first = private_sidecar.digest(own, key)
    assert first == private_sidecar.digest(federated([2, 2]), key) and len(first) == 64
    assert first != private_sidecar.digest(replace(own, **{place: other}), key)
    assert first != private_sidecar.digest(own, bytes(31) + b"\x01")


def test_a_fingerprint_tells_equal_bytes_of_other_kinds_apart():
    parts = [
        np.zeros(2),
        np.zeros(2, np.int64),
        np.zeros((2, 1)),
        torch.zeros(2, dtype=torch.float64),
        [0.0, 0.0],
        [[0.0], 0.0],
        [0.0, [0.0]],
        {"a": 0.0},
        [("a", 0.0)],
        "0.0",
        0.0,
        0,
        False,
        None,
    ]
    found = [private_sidecar.digest(part, bytes(32)) for part in parts]
    # A mapping is the list of its pairs, and numpy's doubles are torch's but for the type's name.
    assert found[7] == found[8] and len(set(found)) == len(parts) - 1


# ---- posteriors


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    fraction=st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 0.5, 0.7, 1.0]),
)
@SETTINGS
def test_a_batch_is_the_fraction_of_a_client_s_records_rounded_up(sizes, fraction):
    from fractions import Fraction

    exact = Fraction(fraction).limit_denominator(10)
    target = training.Posterior(model=training.SoftmaxRegression(3, 2), data=federated(sizes))
    counts, shares = target.batch_sizes(fraction)
    assert counts.tolist() == [math.ceil(exact * size) for size in sizes]
    assert shares.tolist() == [count / size for count, size in zip(counts, sizes, strict=True)]
    assert (
        target.shares.sum() == pytest.approx(1.0)
        and checked_shares(target.shares, len(sizes)) is not None
    )


@pytest.mark.parametrize(("fraction", "wanted"), [(0.07, 7), (0.55, 55), (0.56, 56), (0.071, 8)])
def test_a_product_that_rounds_up_adds_no_record(fraction, wanted):
    """Of 100 records 0.07 are 7.000000000000001 in doubles."""
    target = training.Posterior(model=training.SoftmaxRegression(3, 2), data=federated([100]))
    assert target.batch_sizes(fraction)[0].tolist() == [wanted]


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    clip=st.sampled_from([None, 0.3, 2.0]),
    seed=st.integers(0, 5),
)
@FEW
def test_a_client_s_gradient_is_that_of_its_clipped_records(sizes, clip, seed):
    """By autograd, record by record; the weighted mean over clients is the whole gradient."""
    own = federated(sizes, classes=3, seed=seed)
    target = training.Posterior(model=training.SoftmaxRegression(3, 3), data=own, clip_norm=clip)
    point = torch.randn(12, generator=torch.Generator().manual_seed(seed))
    clients = np.arange(len(sizes))[None]
    local = target.local(clients, point[None], 1.0, np.random.default_rng(0))
    found, prior = local.parts(local.points, 1.0)
    assert prior == 1.0
    whole = torch.zeros(12, dtype=torch.float64)
    for client in range(len(sizes)):
        mine = torch.zeros(12, dtype=torch.float64)
        for x, y in zip(*own.records(client), strict=True):
            at = point.double().requires_grad_()
            scores = at[:9].view(3, 3) @ x.double() + at[9:]
            (slope,) = torch.autograd.grad(-torch.log_softmax(scores, 0)[y], at)
            mine += slope if clip is None else slope * min(1.0, clip / float(slope.norm()))
        scaled = mine / target.shares[client]
        torch.testing.assert_close(found[0, client], scaled, rtol=1e-4, atol=1e-5)
        whole += mine
    mean = (torch.from_numpy(target.shares)[:, None] * found[0]).sum(0)
    torch.testing.assert_close(mean, whole, rtol=1e-4, atol=1e-5)


# ---- what draws are worth


@given(seed=st.integers(0, 20), records=st.integers(1, 30), bins=st.sampled_from([1, 2, 15]))
@SETTINGS
def test_scores_are_those_of_their_definitions(seed, records, bins):
    draw = np.random.default_rng(seed)
    chances, labels = draw.dirichlet(np.ones(3), size=records), draw.integers(3, size=records)
    found = training.score(torch.from_numpy(chances), torch.from_numpy(labels), bins=bins)
    sure, guess = chances.max(1), chances.argmax(1)
    assert found.accuracy == pytest.approx((guess == labels).mean())
    assert found.brier == pytest.approx(((chances - np.eye(3)[labels]) ** 2).sum(1).mean())
    assert found.nll == pytest.approx(-np.log(chances[np.arange(records), labels]).mean())
    gap = 0.0
    for low in range(bins):
        inside = (sure > low / bins) & (sure <= (low + 1) / bins)
        gap += abs((sure[inside] - (guess == labels)[inside]).sum()) / records
    assert found.ece == pytest.approx(gap, abs=1e-12)
    order = draw.permutation(records)
    again = training.score(
        torch.from_numpy(chances[order]), torch.from_numpy(labels[order]), bins=bins
    )
    assert vars(again) == pytest.approx(vars(found), abs=1e-12)


def test_whoever_is_always_right_and_sure_has_nothing_to_pay():
    labels = torch.tensor([0, 2, 1])
    found = training.score(torch.eye(3)[labels], labels)
    assert found == training.Scores(accuracy=1.0, brier=0.0, ece=0.0, nll=0.0)
    wrong = training.score(torch.eye(3)[(labels + 1) % 3], labels)
    # A truth that was given no chance costs 690, not infinity.
    assert (wrong.accuracy, wrong.brier, wrong.ece) == (0.0, 2.0, 1.0) and 690 < wrong.nll < 691


def test_predictions_are_a_mean_over_the_draws_that_are_there():
    model = training.SoftmaxRegression(2, 3)
    draws = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    each = torch.stack([model.logits(one, inputs).softmax(-1) for one in draws.reshape(-1, 9)])
    torch.testing.assert_close(training.predictive(model.logits, draws, inputs), each.mean(0))
    draws[1, 2:] = torch.nan
    kept = training.predictive(model.logits, draws, inputs)
    torch.testing.assert_close(kept, each[:6].mean(0))
    torch.testing.assert_close(kept.sum(1), torch.ones(5))


@given(seed=st.integers(0, 9), count=st.integers(2, 30), size=st.integers(1, 3))
@SETTINGS
def test_a_fit_moves_with_the_draws(seed, count, size):
    draw = np.random.default_rng(seed)
    points, shift = draw.normal(size=(count, size)), draw.normal(size=size)
    turn = draw.normal(size=(size, size))
    plain = training.gaussian_fit(torch.from_numpy(points))
    moved = training.gaussian_fit(torch.from_numpy(points @ turn.T + shift))
    np.testing.assert_allclose(plain.mean, points.mean(0), atol=1e-12)
    np.testing.assert_allclose(plain.covariance, np.cov(points.T).reshape(size, size), atol=1e-12)
    np.testing.assert_allclose(moved.mean, turn @ plain.mean + shift, atol=1e-9)
    np.testing.assert_allclose(moved.covariance, turn @ plain.covariance @ turn.T, atol=1e-9)
    assert training.fitted_w2(torch.from_numpy(points), plain) == pytest.approx(0.0, abs=1e-6)
    far = training.fitted_w2(torch.from_numpy(points + shift), plain)
    assert far == pytest.approx(np.linalg.norm(shift), rel=1e-6)


def squares(records, size, clip):
    """Records whose gradients are p - x: curvature 1 each, on every coordinate."""
    return training.Posterior.of(
        lambda p, x: -0.5 * ((x - p) ** 2).sum(1),
        clients=[records],
        dimension=size,
        clip_norm=clip,
        prior_precision=0.5,
    )


@pytest.mark.filterwarnings("ignore::fedprivacy.training.FlattenedPosterior")
@pytest.mark.parametrize("size", [1, 16, 40])
@pytest.mark.parametrize(("far", "share"), [(0, 0.0), (3, 0.3), (10, 1.0)])
def test_clipping_flattens_by_the_records_whose_gradients_it_cuts(size, far, share):
    """Along any direction a cut record keeps (1 - 1/d) clip / distance of its curvature."""
    records = np.zeros((10, size))
    records[:far, 0] = 100.0
    found = training.clipping(squares(records, size, 1.0), np.zeros(size), probes=400)
    assert found.share == share
    left = (10 - far) + far * (size - 1) / size / 100.0
    assert found.widening == pytest.approx(math.sqrt(10.5 / (left + 0.5)), rel=0.01)
    assert f"{share:.1%} of the records" in str(found)


def test_one_chain_is_judged_by_its_halves_and_the_worst_coordinate_counts():
    draw = torch.Generator().manual_seed(0)
    good = torch.randn(4, 200, 2, generator=draw, dtype=torch.float64)
    stuck = good.clone()
    stuck[0, :, 1] += 9.0
    assert training.diagnose(good).worst[0] < 1.05
    found = training.diagnose(stuck)
    assert found.r_hat[0] < 1.05 < found.r_hat[1] == found.worst[0]
    assert "in 1 of 2 coordinates, so the chains have not mixed" in str(found)
    sizes = np.minimum(found.bulk_ess, found.tail_ess)
    assert found.worst[1] == sizes.min() and found.clipping is None
    drifting = torch.linspace(0, 9, 100).double()[None, :, None] + good[:1, :100, :1]
    assert training.diagnose(drifting).worst[0] > 1.5
    # Of an odd chain the middle draw is in neither half.
    odd = torch.cat([good[:1, :4, :1], torch.full((1, 1, 1), 1e9), good[:1, 4:8, :1]], dim=1)
    halves = torch.stack([odd[0, :4], odd[0, -4:]])
    assert vars(training.diagnose(odd)) == vars(training.diagnose(halves))


# ---- threads


@pytest.mark.parametrize(
    ("wanted", "size", "variable", "taken"),
    [
        (1, 10**7, None, 1),
        (None, 10, None, 1),
        (None, 10, "2", 2),
        (None, 10**6, None, 2),
        (2, 1, None, 2),
    ],
)
def test_threads_are_as_asked_within_and_as_before_behind(
    monkeypatch, wanted, size, variable, taken
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    now = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    state = training.State(0, torch.empty(size, device="meta"), 0.1)
    with pytest.raises(ZeroDivisionError), threads.limited(state, wanted):
        assert now == [taken]
        _ = 1 // 0
    assert now == [2]


def test_no_thread_is_refused_and_a_state_s_size_is_its_largest_tensor():
    state = training.State(0, torch.zeros(7), 0.1)
    assert threads.size_of(state) == 7 and threads.size_of("no state") == 0
    with (
        pytest.raises(fp.ParameterError, match="threads must be an integer of at least 1, got 0"),
        threads.limited(state, 0),
    ):
        pass
