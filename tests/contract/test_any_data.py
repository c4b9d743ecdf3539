"""Data of any kind: responses, columns, sequences, or no targets; any loss; any likelihood."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.errors import ParameterError
from fedprivacy.training import FederatedAveraging, FederatedData, Posterior

DRAW = torch.Generator().manual_seed(0)
ROWS = tuple(np.arange(start, start + 8) for start in range(0, 64, 8))


def data(features, labels, **others):
    return FederatedData(features=features, labels=labels, clients=ROWS, **others)


def averaging(model, loss, noise=0.01, rate=0.1):
    return FederatedAveraging(
        model=model,
        scheme=fp.Everyone(),
        perturbation=fp.Gaussian(noise_multiplier=noise, clip_norm=1.0, unit="client"),
        local_steps=4,
        learning_rate=rate,
        loss=loss,
        seed=0,
    )


def trained(loop, held, rounds=8):
    """Return the mean loss before and after."""
    before = loop.evaluate(loop.init(), held)
    after = loop.evaluate(training.train(loop, held, rounds=rounds).state, held)
    assert math.isnan(before[0]) and math.isnan(after[0])
    return before[1], after[1]


def test_a_regression():
    x = torch.randn(64, 3, generator=DRAW)
    y = (x @ torch.tensor([1.0, -1.0, 0.5]) + 2.0).unsqueeze(1)
    held = data(x, y, test_features=x[:20], test_labels=y[:20])
    before, after = trained(averaging(lambda: nn.Linear(3, 1), nn.MSELoss()), held)
    assert after < 0.2 * before


def test_several_labels_a_record():
    x = torch.randn(64, 3, generator=DRAW)
    y = (x > 0).float()
    held = data(x, y, test_features=x, test_labels=y)
    loop = averaging(lambda: nn.Linear(3, 3), nn.BCEWithLogitsLoss(), rate=0.5)
    before, after = trained(loop, held)
    assert after < 0.6 * before


class Tagger(nn.Module):
    """Labels per position: an LSTM over a sequence."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, sequences):
        return self.out(self.inner(sequences.unsqueeze(2))[0]).transpose(1, 2)


class Transformer(nn.Module):
    """A causal transformer: its mask and its position numbers are buffers that never change."""

    def __init__(self, length=6, width=8):
        super().__init__()
        self.embed, self.place = nn.Linear(1, width), nn.Embedding(length, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, 2)
        self.register_buffer("positions", torch.arange(length))
        causal = torch.full((length, length), -math.inf).triu(1)
        self.register_buffer("mask", causal)

    def forward(self, sequences):
        inputs = self.embed(sequences.unsqueeze(2)) + self.place(self.positions)
        return self.out(self.layer(inputs, src_mask=self.mask)).transpose(1, 2)


@pytest.mark.parametrize("model", [Tagger, Transformer])
def test_labels_of_every_position(model):
    x = torch.randn(64, 6, generator=DRAW)
    y = (x > 0).long()
    held = data(x, y, test_features=x, test_labels=y)
    before, after = trained(averaging(model, cross_entropy, rate=1.0), held, rounds=6)
    assert after < before


def test_constant_buffers_are_handed_over_as_they_were():
    x = torch.randn(64, 6, generator=DRAW)
    loop = averaging(Transformer, cross_entropy)
    state = training.train(loop, data(x, (x > 0).long()), rounds=1).state
    found = training.released(loop, state)
    assert torch.equal(found["positions"], torch.arange(6))
    Transformer().load_state_dict(found)


class Remembers(nn.Linear):
    """Keeps what it saw, where zeros show nothing."""

    def __init__(self):
        super().__init__(3, 1)
        self.register_buffer("seen", torch.tensor(0.0))

    def forward(self, inputs):
        self.seen.copy_(torch.maximum(self.seen, inputs.abs().max()))
        return super().forward(inputs)


def test_a_buffer_that_learns_is_refused_by_its_name():
    x, y = torch.ones(64, 3), torch.ones(64, 1)
    loop = averaging(Remembers, nn.MSELoss())
    with pytest.raises(ParameterError, match="no running statistics, got 'seen'"):
        loop.step(loop.init(), data(x, y, test_features=x, test_labels=y))
    norm = averaging(
        lambda: nn.Sequential(nn.InstanceNorm1d(3, track_running_stats=True), nn.Linear(3, 1)),
        nn.MSELoss(),
    )
    with pytest.raises(ParameterError, match=r"running statistics, got '0'.*Constant buffers"):
        norm.init()


def test_a_buffer_that_learns_unseen_is_not_handed_over():
    x = torch.full((64, 3), 7.0)
    loop = averaging(Remembers, nn.MSELoss())  # without test records it is tried on zeros
    state = training.train(loop, data(x, torch.ones(64, 1)), rounds=1).state
    assert float(training.released(loop, state)["seen"]) == 0.0


def test_names_and_classes_need_not_be_said():
    x = torch.randn(64, 3, generator=DRAW)
    labels = torch.arange(64) % 5
    held = data(x, labels, test_features=x, test_labels=labels)
    assert held.name == "data" and held.num_classes is None and held.classes == 5
    loop = averaging(training.logistic(3, 5), None)
    assert 0.0 <= loop.evaluate(training.train(loop, held, rounds=1).state, held)[0] <= 1.0
    assert data(x, torch.zeros(64, dtype=torch.int64)).classes == 2


def test_no_targets_and_no_test_set():
    held = data(torch.randn(64, 3, generator=DRAW), torch.empty(0))
    assert held.labels.shape == (64, 0) and held.test_features.shape == (0, 3)
    loop = averaging(lambda: nn.Linear(3, 3), lambda outputs, _: outputs.square().mean())
    state = training.train(loop, held, rounds=1).state
    with pytest.raises(ParameterError, match="test_features must be given"):
        loop.evaluate(state, held)


@pytest.mark.parametrize(
    ("labels", "advice"),
    [
        (torch.rand(64) + 0.25, "leave out num_classes for other targets"),
        (torch.arange(64.0) % 2, "labels.to\\(torch.int64\\) if these are classes"),
        (torch.zeros(64, 2, dtype=torch.int64), "leave out num_classes for other targets"),
    ],
)
def test_advice_does_not_destroy_a_response(labels, advice):
    with pytest.raises(ParameterError, match=advice) as told:
        data(torch.zeros(64, 1), labels, num_classes=2)
    assert "long()" not in str(told.value)


def test_cross_entropy_of_a_response_is_refused():
    held = data(torch.zeros(64, 1), torch.rand(64))
    with pytest.raises(ParameterError, match=r"be class numbers for cross-entropy.*nn\.MSELoss"):
        held.classes  # noqa: B018
    loop = averaging(training.logistic(1, 2), None)
    with pytest.raises(ParameterError, match=r"nn\.MSELoss"):
        loop.step(loop.init(), held)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            nn.MSELoss(reduction="none"),
            r"loss must return one (differentiable )?real number.*of shape \(2, 1\)'",
        ),
        (
            lambda outputs, targets: 1.0,
            "loss must return one (differentiable )?real number.*got 'float'",
        ),
        (
            lambda outputs, targets: outputs @ targets,
            "loss must return one (differentiable )?real number.*RuntimeError",
        ),
    ],
)
def test_losses_that_are_none(loss, message):
    loop = averaging(lambda: nn.Linear(3, 1), loss)
    with pytest.raises(ParameterError, match=message):
        loop.step(loop.init(), data(torch.zeros(64, 3), torch.zeros(64, 1)))


def gaussian(parameters, inputs, responses):
    return -0.5 * ((responses - inputs @ parameters) / 0.5) ** 2


def test_a_posterior_of_any_likelihood():
    rng = np.random.default_rng(0)
    truth, clients = np.array([1.0, -2.0]), []
    for count in (300, 200, 500):
        x = rng.normal(size=(count, 2))
        clients.append((x, x @ truth + 0.5 * rng.normal(size=count)))
    target = Posterior.of(gaussian, clients=clients, dimension=2)
    assert target.shares == pytest.approx([0.3, 0.2, 0.5])
    sampler = training.LangevinSampling(
        target=target, step_size=2e-5, local_steps=5, burn_in=20, draws=60, chains=4, seed=0
    )
    draws = training.train(sampler, target, rounds=sampler.rounds).state.draws.reshape(-1, 2)
    assert draws.mean(0).numpy() == pytest.approx(truth, abs=0.05)
    assert draws.std(0).numpy() == pytest.approx(0.5 / math.sqrt(1000), rel=0.35)


def test_a_posterior_without_targets():
    clients = [np.ones((10, 3)), np.ones((5, 3))]
    target = Posterior.of(lambda mean, x: -((x - mean) ** 2).sum(1), clients=clients, dimension=3)
    assert target.data.labels.shape == (15, 0) and list(target.counts) == [10, 5]


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (lambda p, x, y: gaussian(p, x, y).sum(), r"return shape \(2,\) for two records"),
        (lambda p, x, y: p[7] * y, "function of tensors.*IndexError"),
        (lambda p, x, y: None, "got 'NoneType'"),
    ],
)
def test_likelihoods_that_are_none(likelihood, message):
    with pytest.raises(ParameterError, match=message):
        Posterior.of(likelihood, clients=[(np.zeros((4, 2)), np.zeros(4))], dimension=2)


def test_clients_that_do_not_agree():
    ragged = [(np.zeros((4, 2)), np.zeros(4)), (np.zeros((4, 2)), np.zeros(3))]
    with pytest.raises(ParameterError, match=r"clients\[1\] must have one target for every input"):
        Posterior.of(gaussian, clients=ragged, dimension=2)
