"""Tests of ``fedprivacy.training.likelihoods``."""

import math

import pytest
import torch

from fedprivacy.training import Likelihood, SoftmaxRegression, classifier, logistic
from fedprivacy.training.likelihoods import clip_factor
from tests.property.test_clipping import true_norm
from tests.training.test_chains import by_torch

pytestmark = pytest.mark.usefixtures("one_thread")
MODEL = SoftmaxRegression(4, 3)


@pytest.mark.parametrize("clip", [None, 1.0, 0.2])
def test_closed_forms_are_torchs_gradients(clip):
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(3, MODEL.dimension, generator=generator)
    inputs = torch.randn(3, 7, 4, generator=generator)
    labels = torch.randint(3, (3, 7), generator=generator)
    mask = torch.ones(3, 7)
    mask[1, 5:] = 0.0
    models = (MODEL, Likelihood(by_torch, MODEL.dimension), classifier(logistic(4, 3)))
    closed, traced, module = (m.gradient_sums(points, inputs, labels, mask, clip) for m in models)
    assert torch.allclose(closed, traced, atol=2e-6) and torch.allclose(closed, module, atol=2e-6)
    one = points[1].clone().requires_grad_()
    total = torch.zeros(MODEL.dimension)
    for record in range(5):
        loss = -by_torch(one, inputs[1, record][None], labels[1, record][None])[0]
        (gradient,) = torch.autograd.grad(loss, one)
        total += gradient * min(1.0, math.inf if clip is None else clip / float(gradient.norm()))
    assert torch.allclose(closed[1], total.to(closed), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("model", [MODEL, Likelihood(by_torch, MODEL.dimension)])
def test_one_record_moves_a_sum_by_at_most_twice_the_clip_norm(model):
    generator = torch.Generator().manual_seed(3)
    inputs, labels = torch.randn(1, 2, 4, generator=generator), torch.tensor([[0, 1]])
    points, mask = torch.randn(1, MODEL.dimension, generator=generator), torch.ones(1, 2)
    base = model.gradient_sums(points, inputs, labels, mask, 0.3)
    for scale in (1.0, -50.0, 1e18, 3e38):
        other = inputs.clone()
        other[0, 0] = scale * inputs[0, 0].sign()
        moved = model.gradient_sums(points, other, labels, mask, 0.3)
        assert torch.isfinite(moved).all()
        assert float((moved.double() - base.double()).norm()) <= 0.6


@pytest.mark.parametrize("records", [100, 60_000])
def test_replacing_a_record_moves_a_gradient_sum_by_no_more_than_its_sensitivity(records):
    """Added up in single precision, 60,000 gradients once moved by 1.0003 times as much."""
    generator, clip = torch.Generator().manual_seed(3), 0.5
    model = SoftmaxRegression(30, 10)
    inputs = torch.randn(1, records, 30, generator=generator)
    labels = torch.randint(10, (1, records), generator=generator)
    mask, worst = torch.ones(1, records), 0.0
    for draw in range(8):
        point = 3.0 * torch.randn(1, model.dimension, generator=generator)
        before = model.gradient_sums(point, inputs, labels, mask, clip)
        for record in range(3):
            changed, other = inputs.clone(), labels.clone()
            other[0, record] = (labels[0, record] + 1 + draw) % 10
            changed[0, record] *= -100.0
            after = model.gradient_sums(point, changed, other, mask, clip)
            worst = max(worst, float((after - before).double().norm()))
    assert 0.5 * clip < worst <= 2.0 * clip


@pytest.mark.parametrize(("size", "clip"), [(1e18, 1e-7), (1e19, 1e-5)])
def test_a_residual_whose_square_vanishes_is_clipped_all_the_same(size, clip):
    """In single precision e^-53 squared is 0, and a long input makes its gradient long."""
    inputs, points = torch.tensor([[[size, 0.0]]]), torch.zeros(1, 9)
    points[0, 6] = 53.0
    labels, mask = torch.tensor([[0]]), torch.ones(1, 1)
    found = SoftmaxRegression(2, 3).gradient_sums(points, inputs, labels, mask, clip)
    assert float(found.norm()) <= clip


@pytest.mark.parametrize("clip", [1e-6, 1e-3, 1.0])
def test_a_records_gradient_is_never_longer_than_its_clip_norm(clip):
    for size in (1e-3, 1e10, 1e30, 1e34, 1e36, 1e38, 3e38):
        gradient = torch.full((1,), size)
        assert float((gradient * clip_factor(gradient.norm()[None], clip)).double()) <= clip


@pytest.mark.parametrize("features, size", [(150_528, 1.335), (1_000_000, 1.875)])
def test_a_long_gradient_of_equal_numbers_is_no_longer_than_its_clip_norm(features, size):
    """In single precision such squares add up to too little: the factor was too large by 9e-4."""
    inputs, mask = torch.full((1, 1, features), size), torch.ones(1, 1)
    softmax = SoftmaxRegression(features, 2)
    linear = Likelihood(lambda x, inputs, _: inputs @ x, features)
    for model in (softmax, linear):
        labels = torch.zeros((1, 1), dtype=torch.int64)
        point = torch.zeros(1, model.dimension)
        found = model.gradient_sums(point, inputs, labels, mask, 0.5)
        assert 0.499 < true_norm(found[0].numpy()) <= 0.5
