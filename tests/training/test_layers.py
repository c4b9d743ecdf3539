"""Tests of ``fedprivacy.training.layers``."""

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from fedprivacy import training
from fedprivacy.errors import ParameterError


def network():
    shared = nn.BatchNorm2d(6)
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), shared, nn.Conv2d(6, 6, 3, padding=1), shared),
        *(nn.InstanceNorm2d(6, track_running_stats=True), nn.Flatten()),
        *(nn.Linear(96, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)),
    )


def test_private_module_processes_each_record_separately_and_can_be_trained():
    model = network()
    nn.init.uniform_(model[1].weight)
    private, inputs = training.private_module(model), torch.randn(7, 1, 4, 4)
    assert torch.allclose(private(inputs)[:1], private(inputs[:1]), atol=1e-6)
    assert not torch.allclose(model(inputs)[:2], model(inputs[:2]), atol=1e-3)
    assert isinstance(model[1], nn.BatchNorm2d), "the given model stays"
    assert private[1] is private[3] and torch.equal(private[1].weight, model[1].weight)
    assert (private[1].num_groups, private[7].num_groups) == (6, 1)
    # More than the bias: normalised values of one group of five numbers differ.
    assert float(private(inputs).detach().std(0).min()) > 0.0
    with pytest.raises(ParameterError, match=r"got 'layer 1 \(BatchNorm2d\)'; use GroupNorm"):
        training.FlatModel(model, torch.device("cpu"))
    flat = training.FlatModel(private, torch.device("cpu"))
    flat.check_outputs(inputs, torch.zeros(7, dtype=torch.int64), 2)


def test_private_module_of_a_single_layer_and_what_it_refuses():
    assert training.private_module(nn.BatchNorm2d(64)).num_groups == 32
    assert training.private_module(nn.SyncBatchNorm(35)).num_groups == 7
    for wrong in (nn.BatchNorm1d(1), nn.LazyBatchNorm2d()):
        with pytest.raises(ParameterError, match=r"have at least|uninitialized"):
            training.private_module(nn.Sequential(wrong))
    with pytest.raises(ParameterError, match=r"build an nn\.Module"):
        training.private_module(network)
