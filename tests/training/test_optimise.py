"""Modules that could break the independence of clients, or of earlier runs."""

import copy
import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.training import FederatedAveraging, FederatedData, FlatModel, LocalSGD, train
from fedprivacy.training.optimise import BatchSchedule
from fedprivacy.training.outer_product_layers import FactoredLayers

CPU = torch.device("cpu")
REMEMBERED = ["tensor", "in place", "list", "dict", "new", "frozen", "past torch", "object"]


class Centred(nn.Module):
    """Mixes the records of a batch, in a way that no type shows."""

    def forward(self, inputs):
        return inputs - inputs.mean(0)


class Scaling(nn.Module):
    """Writes to its inputs."""

    def forward(self, inputs):
        return inputs.mul_(0.5)


class Branching(nn.Module):
    """Looks at its numbers, which several clients at once do not allow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, inputs):
        return self.layer(inputs) if inputs.sum() > 0 else -self.layer(inputs)


class Remembering(nn.Module):
    """Keeps something of what it saw, in one way or another."""

    def __init__(self, how):
        super().__init__()
        self.how, self.layer = how, nn.Linear(3, 2)
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.mean, self.seen, self.facts = torch.zeros(3), [], {"count": 0}
        self.object = SimpleNamespace(mean=torch.zeros(3))

    def forward(self, inputs):
        with torch.no_grad():
            if self.how == "tensor":
                self.mean = self.mean + inputs.mean(0)
            elif self.how == "in place":
                self.mean.add_(inputs.mean(0))
            elif self.how == "list":
                self.seen.append(1)
            elif self.how == "dict":
                self.facts["count"] += 1
            elif self.how == "new":
                self.last = inputs
            elif self.how == "frozen":
                self.frozen.add_(inputs.mean(0))
            elif self.how == "past torch":
                self.frozen.data.mul_(0.5).add_(inputs.mean(0))
            elif self.how == "object":
                self.object.mean = self.object.mean + inputs.mean(0)
            elif self.how == "freezes" and inputs.sum() > 1:
                self.layer.bias.requires_grad_(False)
        return self.layer(inputs + self.mean + self.frozen + self.object.mean)


def data(sizes=(4, 2, 4, 1, 3), features=3):
    generator = np.random.default_rng(7)
    ends = np.cumsum(sizes)
    inputs = torch.from_numpy(generator.normal(size=(ends[-1], features)).astype(np.float32))
    labels = torch.from_numpy(generator.integers(2, size=ends[-1]))
    return FederatedData(
        name="made up",
        features=inputs,
        labels=labels,
        clients=tuple(np.split(np.arange(ends[-1]), ends[:-1])),
        test_features=inputs[:6].clone(),
        test_labels=labels[:6],
        num_classes=2,
    )


def loop(build, **options):
    facts = {"local_steps": 3, "batch_size": 2, "learning_rate": 0.3, "seed": 3} | options
    from fedprivacy import Everyone

    return FederatedAveraging(model=build, scheme=Everyone(), **facts)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(Centred(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        lambda: nn.Sequential(Scaling(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        lambda: nn.Sequential(nn.ELU(inplace=True), nn.Linear(3, 2)),
        Branching,
        *(partial(Remembering, how) for how in REMEMBERED),
    ],
    ids=["mixes records", "writes to its inputs", "in place", "branches", *REMEMBERED],
)
def test_a_client_s_update_is_what_it_is_alone(build):
    """Written out with torch's optimiser, one client after the other, every batch afresh."""
    own = data()
    averaging = loop(build, batch_size=99)
    before = own.features.clone()
    state = averaging.init()
    after, info = averaging.step(state, own)
    assert info.arrived == 5
    updates = []
    for rows in own.clients:
        module = build()
        own_parameters = [p for p in module.parameters() if p.requires_grad]
        nn.utils.vector_to_parameters(state.parameters.clone(), own_parameters)
        optimiser = torch.optim.SGD(own_parameters, 0.3)
        for _ in range(3):
            optimiser.zero_grad()
            outputs = module(own.features[rows].clone())
            nn.functional.cross_entropy(outputs, own.labels[rows]).backward()
            optimiser.step()
        updates.append(state.parameters - nn.utils.parameters_to_vector(own_parameters))
    truth = state.parameters - torch.stack(updates).mean(0)
    torch.testing.assert_close(after.parameters, truth.detach(), rtol=1e-4, atol=1e-6)
    assert torch.equal(own.features, before)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_smaller_last_batch_is_not_filled_up(momentum):
    """With others or by itself: a layer that mixes records must not see padding."""
    module = nn.Sequential(Centred(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model, own = FlatModel(module, CPU), data(sizes=(5, 5, 5, 2))
    optimiser, order = LocalSGD(epochs=2, batch_size=3), np.random.default_rng(0)
    start, records = model.flatten(), (own.features, own.labels)
    truth = module
    for rows in own.clients:
        plan = optimiser.schedule([rows], order)
        (update,) = model.updates(start, records, plan, 0.3, momentum)
        truth = copy.deepcopy(module)
        trainer = torch.optim.SGD(truth.parameters(), 0.3, momentum)
        for chosen, size in zip(plan.rows[:, 0], plan.sizes, strict=True):
            trainer.zero_grad()
            outputs = truth(own.features[chosen[:size]])
            nn.functional.cross_entropy(outputs, own.labels[chosen[:size]]).backward()
            trainer.step()
        after = nn.utils.parameters_to_vector(truth.parameters()).detach()
        torch.testing.assert_close(update, start - after, rtol=1e-4, atol=1e-6)


def test_looking_at_the_test_set_leaves_it_as_it_was():
    own = data()
    averaging = loop(lambda: nn.Sequential(Scaling(), nn.Linear(3, 2)))
    state, before = averaging.init(), own.test_features.clone()
    assert averaging.evaluate(state, own) == averaging.evaluate(state, own)
    assert torch.equal(own.test_features, before)


class Weighing(nn.Module):
    """A loss over a running mean of itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(()))

    def forward(self, outputs, targets):
        loss = nn.functional.cross_entropy(outputs, targets)
        self.mean.mul_(0.5).add_(0.5 * loss.detach())
        return loss / self.mean


@pytest.mark.parametrize(
    "of", [lambda loss: loss, lambda loss: loss.forward], ids=["object", "method"]
)
def test_a_loss_tells_no_client_of_the_one_before(of):
    """With one loss for all the others' updates moved with one client's records."""

    def updates(size):
        own = data()
        own.features[own.clients[0]] *= size
        averaging = loop(lambda: nn.Linear(3, 2), loss=of(Weighing()))
        parts = {}
        averaging._collect(averaging.init(), own, None, None, parts)
        return parts

    few, many = updates(1.0), updates(100.0)
    moved = [client for client in few if not torch.equal(few[client], many[client])]
    assert sorted(few) == [0, 1, 2, 3, 4] and moved == [0]


def test_a_loss_that_a_copy_does_not_hold_must_forget():
    weighing = Weighing()
    averaging = loop(lambda: nn.Linear(3, 2), loss=lambda *both: weighing(*both))
    with pytest.raises(ParameterError, match="loss must be a deterministic function of outputs"):
        averaging.step(averaging.init(), data())


def test_a_loss_may_draw_from_torch():
    def noisy(outputs, targets):
        return nn.functional.cross_entropy(outputs + torch.randn_like(outputs), targets)

    averaging = loop(lambda: nn.Linear(3, 2), loss=noisy)
    assert averaging.step(averaging.init(), data())[1].arrived == 5


@pytest.mark.parametrize("hidden", [(), (1,), (1, 24), (24, 1), (24,), (5, 7)])
def test_a_client_s_update_does_not_depend_on_its_company(hidden):
    """Of layers of one unit it did, by rounding: one hundredth of a clip norm after 1000 steps."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        sizes = (30, *hidden)
        pairs = itertools.pairwise(sizes)
        layers = [part for pair in pairs for part in (nn.Linear(*pair), nn.ReLU())]
        model = FlatModel(nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], 5)), CPU)
        records = torch.randn(40 * 9, 30), torch.randint(0, 5, (40 * 9,))
    rows = np.arange(40 * 9).reshape(40, 9)
    schedule = LocalSGD(steps=10).schedule(rows, np.random.default_rng(0))
    start = model.flatten()

    def of(few):
        part = BatchSchedule(schedule.rows[:, :few], schedule.sizes)
        return model.updates(start, records, part, 0.8)

    whole = of(40)
    assert (model.dense is None) == (1 in hidden)
    assert all(torch.equal(of(few), whole[:few]) for few in (1, 2, 39))


def test_dropout_draws_from_the_run_s_randomness_alone():
    def build():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))

    def once(seed):
        torch.manual_seed(0)
        averaging = loop(build, seed=seed)
        start = replace(averaging.init(), parameters=torch.full((8,), 0.1))
        after = averaging.step(start, data())[0].parameters
        assert torch.equal(torch.rand(3), known)
        return after

    torch.manual_seed(0)
    known = torch.rand(3)
    assert torch.equal(once(5), once(5)) and not torch.equal(once(5), once(6))
    assert not torch.equal(once(None), once(None))


def test_a_module_that_is_handed_out_twice_is_not_trained_twice():
    """A private run must not start from where one without privacy ended."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    before = copy.deepcopy(module.state_dict())
    averaging = loop(lambda: module)
    start = averaging.init()
    state = train(averaging, data(), rounds=3).state
    averaging.evaluate(state, data())
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.items())
    assert torch.equal(loop(lambda: module).init().parameters, start.parameters)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: nn.Linear(3, 2).bfloat16(), "precision must be torch.float32 throughout"),
        (lambda: nn.Linear(3, 2).half(), "precision must be torch.float32 throughout"),
        (lambda: nn.Linear(3, 2).double(), "precision must be torch.float32 throughout"),
        (
            lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2).double()),
            "precision must be torch.float32 throughout",
        ),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 2)),
            "process each record separately",
        ),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)),
            "process each record separately",
        ),
    ],
)
def test_modules_whose_updates_cannot_be_bounded_are_refused(build, told):
    with pytest.raises(ParameterError, match=told):
        loop(build).init()


def frozen(pretrained=None):
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    if pretrained is not None:
        module[0].load_state_dict(pretrained)
    module[0].requires_grad_(False)
    return module


def test_frozen_layers_must_be_the_same_after_a_restart():
    with pytest.raises(ParameterError, match="be equal for every build of the model"):
        loop(frozen, seed=None).init()
    pretrained = nn.Linear(3, 4).state_dict()
    averaging = loop(lambda: frozen(pretrained), seed=None)
    state = train(averaging, data(), rounds=2).state
    assert len(state.parameters) == 10
    assert torch.equal(averaging.flat.module[0].weight, pretrained["weight"])


def test_layers_that_fold_rows_together_are_trained_as_they_are():
    module = nn.Sequential(nn.Flatten(0, 1), nn.Linear(256, 256), nn.Unflatten(0, (2, 5)))
    factored = FactoredLayers(module, 2, 0.1, 0.0)
    factored(torch.randn(2, 5, 256)).sum().backward()
    assert factored.lost(module[1].weight) is None
    assert module[1].weight.grad is not None


def test_what_depends_on_the_numbers_trains_too():
    model, own = FlatModel(Branching(), CPU), data(sizes=(3, 3))
    plan = LocalSGD(steps=2, batch_size=3).schedule(own.clients, np.random.default_rng(0))
    updates = model.updates(model.flatten(), (own.features, own.labels), plan, 0.3)
    assert torch.isfinite(updates).all() and not torch.equal(*updates)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": nn.Linear(3, 2)}, "model must be a function that builds the module"),
        ({"model": None}, "model must be a function that builds the module"),
        ({"device": "cuda"}, "device must be a device that torch finds"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(options, words):
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    given = {"model": lambda: nn.Linear(3, 2), "scheme": fp.Everyone(), "local_steps": 1} | options
    with pytest.raises(ParameterError, match=words):
        FederatedAveraging(**given)


@pytest.mark.parametrize(
    ("changed", "build", "words"),
    [
        ({"features": torch.zeros(14, 3).double()}, None, "features must be torch.float32"),
        ({}, lambda: nn.Linear(4, 2), "model must be called on inputs of shape"),
        (
            {},
            lambda: nn.Linear(3, 1),
            r"model's output must return shape \(records, k\) with k at least 2",
        ),
        ({}, lambda: Tupled(), "model's output must return shape"),
    ],
)
def test_what_does_not_fit_costs_no_round(tmp_path, changed, build, words):
    own = replace(data(), **changed)
    loop = FederatedAveraging(
        model=build or (lambda: nn.Linear(3, 2)),
        scheme=fp.Poisson(0.5),
        perturbation=fp.Gaussian(noise_multiplier=1.0, unit="client"),
        local_steps=1,
    )
    path = tmp_path / "run.ledger"
    with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
        with pytest.raises(ParameterError, match=words):
            loop.step(loop.init(), own, ledger=ledger)
        assert not ledger.rounds


class Tupled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, inputs):
        return self.linear(inputs), inputs
