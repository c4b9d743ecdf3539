"""The network for images in channels-last memory equals the plain network."""

import pytest

from fedprivacy.training import FlatModel
from tests.common import ROOT

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedprivacy.training import cnn, logistic

BENCHMARKS = ROOT / "benchmarks"


def written_out(padded):
    """The network of ``cnn`` as one writes it, in torch's default memory."""
    around, side = (2, 7) if padded else (0, 4)
    return nn.Sequential(
        nn.Unflatten(1, torch.Size((1, 28))),
        nn.Conv2d(1, 32, 5, padding=around),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=around),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * side * side, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def seeded(build):
    torch.manual_seed(3)
    return build()


@pytest.fixture(params=[True, False], ids=["padded", "unpadded"])
def both(request):
    """The package's network and the one written out, built from one seed."""
    return seeded(cnn(padded=request.param)), seeded(lambda: written_out(request.param))


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(5, 28, 28, generator=generator)


def gradients(module, images):
    labels = torch.arange(len(images))
    return torch.autograd.grad(cross_entropy(module(images), labels), list(module.parameters()))


def test_names_shapes_and_initial_values_are_those_of_the_plain_network(both):
    ours, plain = (module.state_dict() for module in both)
    assert list(ours) == list(plain)
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_outputs_and_gradients_are_those_of_the_plain_network(both, images):
    ours, plain = both
    assert torch.allclose(ours(images), plain(images), atol=1e-6)
    for mine, theirs in zip(gradients(ours, images), gradients(plain, images), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("cut", [slice(None), slice(0, 1), slice(1, 4, 2)])
def test_every_layer_works_in_channels_last_memory(both, images, cut):
    """Batches of one and batches that are themselves strided views included."""
    module, _ = both
    kinds = []
    for layer in module:
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            layer.register_forward_hook(lambda _, __, output: kinds.append(output.stride()[1]))
    module(images[cut])
    assert kinds == [1, 1, 1, 1]


def test_the_gradient_of_the_images_comes_back_in_their_shape(both, images):
    found = []
    for module in both:
        at = images.clone().requires_grad_()
        found += torch.autograd.grad(module(at).square().sum(), at)
    assert found[0].shape == images.shape
    assert torch.allclose(*found, atol=1e-6)


def test_several_networks_at_once(both, images):
    """Under ``vmap``, as for a model small enough to train several clients side by side."""
    ours, plain = both
    stacked = {name: torch.stack([p, 2 * p]) for name, p in ours.named_parameters()}

    def outputs(named, batch):
        return torch.func.functional_call(ours, named, (batch,))

    found = torch.vmap(outputs)(stacked, torch.stack([images, images]))
    assert torch.allclose(found[0], plain(images), atol=1e-6)
    assert not torch.allclose(found[1], plain(images), atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 784), (28, 28), (4, 1, 28, 28)])
def test_other_shapes_are_refused(shape):
    with pytest.raises((RuntimeError, IndexError)):
        cnn()()(torch.zeros(shape))


@pytest.mark.parametrize("layout", ["plain", "ours"])
def test_the_benchmark_lets_the_peers_train_the_same_networks(monkeypatch, images, layout):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import training_peers

    for name, build in (("cnn", cnn()), ("logistic", logistic(784, 10))):
        ours, theirs = build(), training_peers.module_of(name, layout)
        state = ours.state_dict()
        assert list(state) == list(theirs.state_dict())
        theirs.load_state_dict(state)
        assert torch.allclose(ours(images), theirs(images), atol=1e-6)


pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_cnn_is_the_paper_s():
    model = FlatModel(cnn()(), torch.device("cpu"))
    assert model.dimension == 1_663_370
    flat = model.flatten()
    assert model.logits(flat, torch.rand(2, 28, 28)).shape == (2, 10)
