"""The compiled network of Fed-SMP's benchmark does what the library's own does, up to rounding."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedprivacy.training import FlatModel, LocalSGD, cnn  # noqa: E402

PAPERS = Path(__file__).parent.parent.parent / "benchmarks" / "papers"


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
    # Every layer, not the large ones alone.
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


def test_other_records_are_refused(network, data):
    _, quick, start = models(network)
    inputs, labels = data
    with pytest.raises(AssertionError):
        quick.evaluate(start.float(), inputs.double(), labels)
    with pytest.raises(AssertionError):
        quick.evaluate(start.float(), inputs, labels + 1)
    with pytest.raises(AssertionError):
        quick.evaluate(start.float(), inputs[:, :27], labels)
