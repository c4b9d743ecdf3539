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
from fedprivacy.training import FederatedAveraging, FederatedData

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
