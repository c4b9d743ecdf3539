"""The compiled network of Fed-SMP's benchmark equals the library's, up to rounding."""

import sys

import numpy as np
import pytest

from tests.common import ROOT

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.training import (  # noqa: E402
    FederatedAveraging,
    FederatedData,
    FlatModel,
    LocalSGD,
    cnn,
)

PAPERS = ROOT / "benchmarks" / "papers"


@pytest.fixture(scope="module")
def network():
    sys.path.insert(0, str(PAPERS))
    try:
        import network
    finally:
        sys.path.remove(str(PAPERS))
    if network.compiled() is None:
        pytest.skip("needs g++")
    return network


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(5)
    # Flat backgrounds, where many outputs of a convolution are equal, and two kinds of shapes.
    images = torch.zeros(60, 28, 28)
    images[:, 6:22, 6:22] = torch.rand(60, 16, 16, generator=generator)
    labels = torch.arange(60) % 10
    return (images - 0.286) / 0.353, labels


def models(network):
    torch.manual_seed(3)
    module, device = cnn()(), torch.device("cpu")
    double = FlatModel(module.double(), device)
    start = double.flatten()
    return double, network.PaperNetwork(cnn()(), device), start


def apart(found, truth):
    """How far each client's update is from the truth, smallest first."""
    return sorted(((found - truth).norm(dim=1) / truth.norm(dim=1)).tolist())


def agree(found, truth):
    """Whether clients agree but for rounding, or for one that rounding sent another way.

    Two outputs that nearly tie in a pooling may change places by a rounding, and the slope then
    goes elsewhere: of three clients here that may happen to one, and torch's own single precision
    has it as well.
    """
    *most, last = apart(found, truth)
    return max(most) < 5e-5 and last < 0.02


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("factors", [256, 0], ids=["outer products", "written"])
@pytest.mark.parametrize("records", [10, 9, 1])
def test_updates_are_those_of_double_precision(network, data, records, factors, monkeypatch):
    monkeypatch.setattr(network, "FACTORS", factors)
    double, quick, start = models(network)
    inputs, labels = data
    groups = [np.arange(first, first + records) for first in (0, 20, 40)]
    plan = LocalSGD(steps=4, batch_size=10, momentum=0.5)
    schedule = plan.schedule(groups, np.random.default_rng(0))
    truth = double.updates(start, (inputs.double(), labels), schedule, 0.125, 0.5)
    found = quick.updates(start.float(), data, schedule, 0.125, 0.5)
    assert agree(found, truth)
    # Every layer, not only the large ones.
    layers = torch.split(found - truth, list(map(torch.Size.numel, quick.shapes.values())), dim=1)
    for shape, off in zip(double.split(truth[0]), layers, strict=True):
        assert sorted(off.norm(dim=1).tolist())[1] < 1e-4 * float(shape.norm())


def test_a_client_is_trained_alone(network, data):
    _, quick, start = models(network)
    plan = LocalSGD(steps=3, batch_size=10, momentum=0.5)
    groups = [np.arange(10), np.arange(20, 30)]
    rules = np.random.default_rng(0)
    both = quick.updates(start.float(), data, plan.schedule(groups, rules), 0.125, 0.5)
    for client, own in enumerate(groups):
        alone = quick.updates(start.float(), data, plan.schedule([own], rules), 0.125, 0.5)
        assert torch.equal(both[client], alone[0])


@pytest.mark.parametrize("factors", [256, 0], ids=["outer products", "written"])
def test_a_client_leaves_nothing_behind(network, data, factors, monkeypatch):
    """Neither one whose update is not finite nor a batch that was larger."""
    monkeypatch.setattr(network, "FACTORS", factors)
    _, quick, start = models(network)
    images, labels = data[0].clone(), data[1]
    images[:12] *= 1e25
    groups = [np.arange(first, first + 12) for first in (0, 20, 40)]
    plan = LocalSGD(epochs=2, batch_size=8, momentum=0.5)
    schedule = plan.schedule(groups, np.random.default_rng(1))
    found = quick.updates(start.float(), (images, labels), schedule, 0.005, 0.5)
    assert [bool(one.isfinite().all()) for one in found] == [False, True, True]
    for client in (1, 2):
        own = schedule.alone(client)
        alone = quick.updates(start.float(), (images, labels), own, 0.005, 0.5)
        assert torch.equal(found[client], alone[0])


def test_a_round_is_that_of_torch(network, data):
    """The same clients and the same batches, drawn in the same order."""
    images, labels = data
    # Of two sizes, and batches that have to be drawn.
    clients = tuple(np.split(np.arange(40), [9, 18, 27]))
    records = FederatedData(
        features=images[:40],
        labels=labels[:40],
        clients=clients,
        test_features=images[40:],
        test_labels=labels[40:],
    )
    states = []
    for kind in (FederatedAveraging, network.PaperAveraging):
        loop = kind(
            model=cnn(),
            scheme=fp.FixedSize(4, population=4),
            local_epochs=1,
            batch_size=5,
            learning_rate=0.01,
            momentum=0.5,
            seed=1,
            device="cpu",
        )
        assert isinstance(loop.flat, network.PaperNetwork) == (kind is not FederatedAveraging)
        start = loop.init()
        state, info = loop.step(start, records)
        assert info.arrived == 4
        states.append(state.parameters)
    moved = (states[0] - start.parameters).norm()
    assert float((states[0] - states[1]).norm() / moved) < 0.01


def test_another_network_is_refused(network):
    loop = network.PaperAveraging(
        model=cnn(padded=False),
        scheme=fp.FixedSize(1, population=2),
        local_steps=1,
        seed=1,
        device="cpu",
    )
    with pytest.raises(AssertionError):
        loop.init()


def test_batches_of_several_sizes(network, data):
    double, quick, start = models(network)
    plan = LocalSGD(epochs=2, batch_size=8, momentum=0.5)
    groups = [np.arange(first, first + 12) for first in (0, 20, 40)]
    schedule = plan.schedule(groups, np.random.default_rng(1))
    assert set(schedule.sizes) == {8, 4}
    inputs, labels = data
    truth = double.updates(start, (inputs.double(), labels), schedule, 0.005, 0.5)
    found = quick.updates(start.float(), data, schedule, 0.005, 0.5)
    assert agree(found, truth)


def test_scores(network, data):
    double, quick, start = models(network)
    inputs, labels = data
    accuracy, loss = double.evaluate(start, inputs.double(), labels)
    found = quick.evaluate(start.float(), inputs[:47], labels[:47])
    wanted = double.evaluate(start, inputs[:47].double(), labels[:47])
    assert found == pytest.approx(wanted, abs=1e-5)
    assert quick.evaluate(start.float(), *data) == pytest.approx((accuracy, loss), abs=1e-5)


def test_an_overflow_is_not_hidden(network, data):
    _, quick, start = models(network)
    plan = LocalSGD(steps=4, batch_size=10, momentum=0.5)
    schedule = plan.schedule([np.arange(10)], np.random.default_rng(0))
    found = quick.updates(start.float(), data, schedule, 1e12, 0.5)
    assert not bool(torch.isfinite(found).all())


def test_what_is_no_number_goes_all_the_way(network, data):
    """No maximum and no ReLU drops it: it reaches the scores, and every parameter as in torch."""
    double, quick, start = models(network)
    images, labels = data[0].clone(), data[1]
    images[3, 14, 14] = torch.nan
    schedule = LocalSGD(steps=1, batch_size=10).schedule([np.arange(10)], np.random.default_rng(0))
    truth = double.updates(start, (images.double(), labels), schedule, 0.125)
    found = quick.updates(start.float(), (images, labels), schedule, 0.125)
    assert torch.equal(found.isnan(), truth.isnan())
    assert bool(found[0, -10:].isnan().all())
    assert np.isnan(quick.evaluate(start.float(), images, labels)[1])


def test_other_records_are_refused(network, data):
    _, quick, start = models(network)
    inputs, labels = data
    with pytest.raises(AssertionError):
        quick.evaluate(start.float(), inputs.double(), labels)
    with pytest.raises(AssertionError):
        quick.evaluate(start.float(), inputs, labels + 1)
    with pytest.raises(AssertionError):
        quick.evaluate(start.float(), inputs[:, :27], labels)


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize(
    ("gap", "ends"),
    [
        # Where a probability is 0, at 101.8, and where its inverse is infinite: at 86.5 for the
        # label of one record, at 87.6 for one of three.
        (60.0, ""),
        (87.0, "single"),
        (88.0, "single, triple"),
        (101.5, "single, triple"),
        (102.0, "single, triple, other"),
    ],
)
def test_probabilities_that_are_0_end_a_client_as_they_do_in_torch(network, data, gap, ends, every):
    """A softmax as a separate layer, and its logarithm."""
    torch.manual_seed(3)
    module = network.softmax_cnn(network.Logarithm if every else network.LabelLogarithm)
    plain = FlatModel(module, torch.device("cpu"))
    quick = network.PaperNetwork(module, torch.device("cpu"))
    start = plain.flatten()
    # The last layer sets one score apart from the others, whatever the images are.
    start[-10 * 513 :] = 0.0
    start[-1] = -gap
    inputs, labels = data
    # Clients without a record of the last class, with one, and with no other.
    groups = {"other": [0, 1, 2], "triple": [7, 8, 9], "single": [9]}
    plan = LocalSGD(steps=1, batch_size=3, momentum=0.0)
    for name, rows in groups.items():
        schedule = plan.schedule([np.array(rows)], np.random.default_rng(0))
        truth = plain.updates(start, data, schedule, 1e-3, 0.0)
        found = quick.updates(start, data, schedule, 1e-3, 0.0)
        lasts = name not in ends or (name == "other" and not every)
        assert bool(truth.isfinite().all()) is lasts, name
        assert bool(found.isfinite().all()) is lasts, name
        assert not lasts or torch.allclose(found, truth, atol=1e-6)
    mean_loss = functional.cross_entropy(plain.logits(start, inputs), labels)
    right, loss = quick.evaluate(start, inputs, labels)
    assert (right, loss) == (plain.evaluate(start, inputs, labels)[0], pytest.approx(mean_loss))


def test_another_last_layer_is_another_model(network):
    module = torch.nn.Sequential(*cnn()(), torch.nn.Tanh())
    with pytest.raises(KeyError):
        _ = network.PaperNetwork(module, torch.device("cpu")).logarithms
