"""Wide linear layers kept as outer products train as with torch's own optimiser."""

import copy

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedprivacy.training.optimise import FlatModel, LocalSGD
from fedprivacy.training.outer_product_layers import FactoredLayers

WIDE = 256
"""Inputs and outputs: up to 64 records in all, factors are at most half of a weight."""


def tied():
    first, second = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Linear(WIDE, 3))


def repeated():
    wide = nn.Linear(WIDE, WIDE)
    return nn.Sequential(nn.Flatten(), wide, nn.Tanh(), wide, nn.Linear(WIDE, 3))


def hooked():
    module = nn.Sequential(nn.Flatten(), nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 3))
    module[1].register_forward_hook(lambda layer, _, out: out + layer.weight.sum())
    return module


def normalised():
    wide = nn.utils.parametrizations.weight_norm(nn.Linear(WIDE, WIDE))
    return nn.Sequential(nn.Flatten(), wide, nn.Linear(WIDE, 3))


class Peeking(nn.Module):
    """A layer that looks at another one's weight without owning it."""

    def __init__(self, other):
        super().__init__()
        self.others = [other]

    def forward(self, inputs):
        return inputs @ self.others[0].weight


def peeked():
    wide = nn.Linear(WIDE, WIDE)
    return nn.Sequential(nn.Flatten(), wide, Peeking(wide), nn.Linear(WIDE, 3))


class Own(nn.Sequential):
    """A sequence with its own forward."""

    def forward(self, inputs):
        return super().forward(inputs) + self[1].weight.mean()


def frozen():
    module = nn.Sequential(nn.Flatten(), nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 3))
    module[1].weight.requires_grad = False
    return module


FACTORED = {
    "first": lambda: nn.Sequential(nn.Flatten(), nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 3)),
    "two": lambda: nn.Sequential(
        nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, 3)
    ),
    "after a convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDE)),
        nn.Conv1d(1, 2, 3, padding=1),
        nn.Flatten(),
        nn.Linear(2 * WIDE, WIDE),
        nn.GELU(),
        nn.Linear(WIDE, 3),
    ),
    "beside frozen ones": lambda: nn.Sequential(
        *frozen()[:3], nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 3)
    ),
    "in double precision": lambda: nn.Sequential(
        nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 3)
    ).double(),
}
PLAIN = {
    "tied": tied,
    "repeated": repeated,
    "hooked": hooked,
    "normalised": normalised,
    "peeked": peeked,
    "own forward": lambda: Own(nn.Flatten(), nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 3)),
    "frozen": frozen,
    "several rows a record": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDE)), nn.Linear(WIDE, WIDE), nn.Flatten(), nn.Linear(WIDE, 3)
    ),
}


def trained(module, features, labels, batches, momentum):
    """Return what torch's optimiser makes of a copy of the module, flat."""
    module = copy.deepcopy(module)
    own = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(own, 0.3, momentum)
    for rows in batches:
        optimiser.zero_grad()
        cross_entropy(module(features[rows]), labels[rows]).backward()
        optimiser.step()
    return torch.cat([p.detach().reshape(-1) for p in own])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("name", "build"), [*FACTORED.items(), *PLAIN.items()])
def test_a_client_trains_as_with_torch_s_own_optimiser(name, build, momentum):
    """Three records in batches of two and one, so the steps' shares of the factors differ."""
    torch.manual_seed(5)
    module = build()
    dtype = next(module.parameters()).dtype
    features = torch.randn(9, WIDE, dtype=dtype)
    labels = torch.arange(9) % 3
    model = FlatModel(module, torch.device("cpu"))
    model.dense = None
    optimiser = LocalSGD(steps=6, batch_size=2, momentum=momentum)
    rows = np.array([7, 2, 5])
    batches = [rows[b] for b in optimiser.batches(3, np.random.default_rng(1))]
    start = model.flatten()
    truth = start - trained(module, features, labels, batches, momentum)
    schedule = optimiser.schedule([rows], np.random.default_rng(1))
    update = model.updates(start, (features, labels), schedule, 0.3, momentum)[0]
    torch.testing.assert_close(update, truth, rtol=1e-4, atol=2e-6)
    assert float(truth.abs().max()) > 0.01
    assert torch.equal(model.updates(start, (features, labels), schedule, 0.3, momentum)[0], update)
    factored = FactoredLayers(module, 9, 0.3, momentum)
    cross_entropy(factored(features[:1]), labels[:1]).backward()
    lost = [factored.lost(parameter) for parameter in module.parameters()]
    assert any(lost) == (name in FACTORED)


def test_only_weights_that_outweigh_their_factors_are_kept_as_such():
    module = FACTORED["first"]()
    for records, wide in [(64, True), (65, False)]:
        factored = FactoredLayers(module, records, 0.1, 0.0)
        factored(torch.randn(2, WIDE)).sum().backward()
        assert (factored.lost(module[1].weight) is not None) == wide
        assert factored.lost(module[2].weight) is None
