"""Tests of ``fedprivacy.training.release_files``."""

import numpy as np
import pytest
from torch import nn
from torch.nn.functional import cross_entropy

from fedprivacy import training
from tests.contract.test_kinds_of_data import Transformer, averaging, data
from tests.contract.test_leaks import loop

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.runs.jobs import job
from fedprivacy.training import save_model, train

DRAW = torch.Generator().manual_seed(0)
ROWS = tuple(np.arange(start, start + 8) for start in range(0, 64, 8))


def test_constant_buffers_are_handed_over_as_they_were():
    x = torch.randn(64, 6, generator=DRAW)
    loop = averaging(Transformer, cross_entropy)
    state = training.train(loop, data(x, (x > 0).long()), rounds=1).state
    found = training.released(loop, state)
    assert torch.equal(found["positions"], torch.arange(6))
    Transformer().load_state_dict(found)


class Remembers(nn.Linear):
    """Keeps its inputs, where zeros reveal no data."""

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
    told = r"running statistics, got 'layer 0 \(InstanceNorm1d\)'.*Constant buffers"
    with pytest.raises(ParameterError, match=told):
        norm.init()


def test_a_buffer_that_learns_unseen_is_not_handed_over():
    x = torch.full((64, 3), 7.0)
    loop = averaging(Remembers, nn.MSELoss())  # without test records it is tried on zeros
    state = training.train(loop, data(x, torch.ones(64, 1)), rounds=1).state
    assert float(training.released(loop, state)["seen"]) == 0.0


CLIENT = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}


# The model that is handed over


@pytest.mark.parametrize("method", ["dp-fedavg", "fa-ld", "fa-hmc", "fed-plt", "fedavg"])
def test_the_model_file_holds_the_model_and_nothing_else(tmp_path, method):
    task = job(method, rounds=3)
    level = None if method == "fedavg" else 1e-4 if method == "fa-ld" else 1.0
    own = task.loop(level, 1)
    state = train(own, task.data, rounds=3).state
    path = save_model(tmp_path / "model.pt", own, state)
    found = torch.load(path, weights_only=True)
    if method in ("dp-fedavg", "fedavg"):
        module = own.model()
        module.load_state_dict(found)
        joined = torch.nn.utils.parameters_to_vector(module.parameters())
        assert torch.equal(joined.detach(), state.parameters)
        assert list(found) == list(module.state_dict())
    elif method == "fed-plt":
        assert list(found) == ["models"] and torch.equal(found["models"], state.models)
    else:
        assert list(found) == ["draws"]
        assert torch.equal(found["draws"], state.draws[:, torch.isfinite(state.draws[0, :, 0])])
    again = save_model(tmp_path / "again.pt", own, state)
    assert again.read_bytes() == path.read_bytes()


def test_a_model_never_replaces_a_ledger(tmp_path):
    own = loop()
    with fp.Ledger.create(tmp_path / "run.ledger", **CLIENT):
        pass
    before = (tmp_path / "run.ledger").read_bytes()
    with pytest.raises(ParameterError, match="output must not be a ledger"):
        save_model(tmp_path / "run.ledger", own, own.init())
    for path in (tmp_path, tmp_path / "none" / "model.pt"):
        with pytest.raises(
            ParameterError, match=r"output must be (a file or|in an existing folder)"
        ):
            save_model(path, own, own.init())
    assert (tmp_path / "run.ledger").read_bytes() == before
