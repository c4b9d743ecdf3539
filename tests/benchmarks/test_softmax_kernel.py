"""The compiled gradients of the long chains are those of double precision, up to rounding."""

import sys

import pytest

from tests.common import ROOT

torch = pytest.importorskip("torch")

from fedprivacy.training import SoftmaxRegression  # noqa: E402

PAPERS = ROOT / "benchmarks" / "papers"
SEATS, PIXELS = 3, 784


@pytest.fixture(scope="module")
def chains():
    sys.path.insert(0, str(PAPERS))
    try:
        import kernels
        import long_chains
    finally:
        sys.path.remove(str(PAPERS))
    if kernels.compiled("softmax.cpp") is None:
        pytest.skip("needs g++")
    return long_chains


@pytest.fixture(params=[False, True], ids=["lanes", "tiles"])
def tiles(request, chains):
    if request.param and not chains.kernels.compiled("softmax_tiles.cpp").ready():
        pytest.skip("needs a processor that multiplies tiles")
    return request.param


@pytest.fixture
def images(tiles):
    # Levels of a picture, which tiles hold exactly, the darkest and the brightest too.
    levels = torch.randint(0, 256, (300, PIXELS), generator=torch.Generator().manual_seed(1))
    levels[0, :2] = torch.tensor([0, 255])
    # A little brighter they are none, and not for tiles.
    return levels / 255.0 if tiles else levels / 255.0 + 1e-3


def drawn(images, copies, records, size):
    """Return points, row numbers, labels and a mask with batches that differ in size."""
    generator = torch.Generator().manual_seed(copies)
    points = size * torch.randn(SEATS, copies * 7850, generator=generator)
    rows = torch.randint(0, len(images), (SEATS, records), generator=generator)
    labels = torch.randint(0, 10, (SEATS, records), generator=generator)
    ends = torch.tensor([[records], [max(records - 5, 1)], [1]])
    return points, rows, labels, (torch.arange(records) < ends).float()


@pytest.mark.parametrize("records", [1, 31, 56, 57, 129])
@pytest.mark.parametrize("copies", [1, 2, 3, 4, 5, 6, 7, 13])
def test_gradients_are_those_of_double_precision(chains, tiles, images, copies, records):
    scales = [2.0**-k for k in range(copies)]
    points, rows, labels, mask = drawn(images, copies, records, size=0.3)
    model = SoftmaxRegression(PIXELS, 10)
    numbers = rows[..., None].float()
    ladder = chains.CompiledLadder(model, scales, images)
    assert ladder.images.dtype == (torch.uint8 if tiles else torch.float32)
    found = ladder.gradient_sums(points, numbers, labels, mask, None)
    # Every copy by itself, by the library, in double precision.
    for copy, scale in enumerate(scales):
        part = slice(copy * 7850, (copy + 1) * 7850)
        own = scale * points[:, part].double()
        inputs = images[rows].double()
        truth = scale * model.gradient_sums(own, inputs, labels, mask.double(), None)
        assert (found[:, part] - truth).norm() <= 2e-6 * truth.norm()


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_scores_that_are_far_apart_overflow_nothing(chains, images, size):
    points, rows, labels, mask = drawn(images, 2, 60, size)
    model = chains.CompiledLadder(SoftmaxRegression(PIXELS, 10), [1.0, 1.0], images)
    found = model.gradient_sums(points, rows[..., None].float(), labels, mask, None)
    plain = chains.Ladder(SoftmaxRegression(PIXELS, 10), [1.0, 1.0])
    truth = plain.gradient_sums(points, images[rows], labels, mask, None)
    assert torch.isfinite(truth).all()
    # Scores of 10^4 and more are off by thousandths, and chances next to a tie with them.
    assert torch.allclose(found, truth, rtol=1e-3, atol=0.02)


def test_what_is_no_number_stays_none(chains, images):
    points, rows, labels, mask = drawn(images, 2, 60, size=0.3)
    points[1, 100] = float("nan")
    model = chains.CompiledLadder(SoftmaxRegression(PIXELS, 10), [1.0, 1.0], images)
    found = model.gradient_sums(points, rows[..., None].float(), labels, mask, None)
    assert torch.isfinite(found[0]).all() and torch.isfinite(found[1, 7850:]).all()
    assert found[1, :7850].isnan().any()
