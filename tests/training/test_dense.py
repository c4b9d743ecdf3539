"""Tests of ``fedprivacy.training.dense``."""

import copy

import pytest
import torch

from fedprivacy.training import cnn
from tests.systems.averaging.test_loop import factory

pytest.importorskip("torch")

from torch import nn

from fedprivacy.training import mlp
from fedprivacy.training.dense import DenseNetwork
from fedprivacy.training.outer_product_layers import wide_layers


def test_a_layer_used_twice_is_not_taken_for_two_uses_of_once():
    """A walk through ``children`` skips the second use."""
    first, relu, second = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)
    assert DenseNetwork.of(nn.Sequential(nn.Flatten(), first, relu, second)) is not None
    assert DenseNetwork.of(nn.Sequential(nn.Flatten(), first, relu, second, relu, first)) is None
    again = DenseNetwork.of(nn.Sequential(nn.Flatten(), first, relu, second, relu, nn.Linear(4, 2)))
    assert again == DenseNetwork.of(mlp(4, 2, hidden=(4, 4))())


def test_the_closed_form_wants_weight_and_bias_in_this_order():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert DenseNetwork.of(module) is not None
    nn.utils.parametrizations.weight_norm(module[1])
    nn.utils.parametrize.remove_parametrizations(module[1], "weight")
    assert [name for name, _ in module[1].named_parameters()] == ["bias", "weight"]
    assert DenseNetwork.of(module) is None


@pytest.mark.parametrize("what", ["forward", "everywhere", "gradient", "accumulated", "storage"])
def test_what_is_attached_is_not_passed_over(what):
    def build():
        module = nn.Sequential(nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
        return copy.deepcopy(module)

    assert len(wide_layers(build(), 8)) == 2 and DenseNetwork.of(build()) is not None
    module, handle = build(), None
    if what == "forward":
        module[1].forward = lambda inputs: nn.functional.linear(inputs, module[1].weight + 1)
    elif what == "everywhere":
        handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    elif what == "gradient":
        module[1].weight.register_hook(lambda slope: slope * 2)
    elif what == "accumulated":
        module[1].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    else:
        module[3].weight = nn.Parameter(module[1].weight.data)
    try:
        assert wide_layers(module, 8) == []
        assert (DenseNetwork.of(module) is None) == (what != "storage")
    finally:
        if handle is not None:
            handle.remove()


pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_closed_form_is_used_for_what_it_holds_for_only():
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    fits = factory(linear(3, 4), relu(), linear(4, 2))()
    assert DenseNetwork.of(fits) == DenseNetwork(((4, 3), (2, 4)))
    shared = linear(3, 3)
    frozen, hooked = factory(linear(3, 2))(), factory(linear(3, 2))()
    frozen[1].bias.requires_grad = False
    hooked[1].register_forward_hook(lambda *_: None)
    others = [
        factory(linear(3, 4), torch.nn.Tanh(), linear(4, 2))(),
        factory(linear(3, 2, bias=False))(),
        factory(linear(3, 4), relu(), linear(4, 2), relu())(),
        factory(shared, relu(), shared)(),
        torch.nn.Sequential(torch.nn.Flatten(2), linear(3, 2)),
        torch.nn.Sequential(linear(3, 2)),
        factory(linear(3, 2))().double(),
        cnn()(),
        frozen,
        hooked,
    ]
    assert [DenseNetwork.of(module) for module in others] == [None] * len(others)
