"""Clipping: what comes out is never longer than the limit, whatever goes in."""

import math

import numpy as np
import pytest
import torch

from fedprivacy.mechanisms.rounded import grid_for, on_grid
from fedprivacy.training.likelihoods import clip_factor

LIMITS = [1e-6, 1e-3, 1.0, 1e3]
SIZES = [10.0**k for k in range(-38, 39, 2)] + [3e38, 1e34, 1e35]
KINDS = [np.float64, np.float32, np.float16, torch.float64, torch.float32]
KINDS += [torch.float16, torch.bfloat16]


def made(kind, numbers):
    """An array or tensor of a kind, what does not fit being the largest that does."""
    if isinstance(kind, torch.dtype):
        return (
            torch.from_numpy(numbers).clamp(*(torch.finfo(kind).max * s for s in (-1, 1))).to(kind)
        )
    most = float(np.finfo(kind).max)
    return np.clip(numbers, -most, most).astype(kind)


def clipped(value, limit):
    """What a mechanism makes of an update: clipped, on the grid, in doubles."""
    return on_grid(value, clip_norm=limit, grid=grid_for(limit, limit, 24))


def true_points(found, limit):
    """What was found in spacings of its grid: whole numbers."""
    array = found.double().numpy() if isinstance(found, torch.Tensor) else found
    return array / grid_for(limit, limit, 24)


def true_norm(value):
    """The norm of the numbers as they are stored, in double, by the exact sum of squares."""
    array = (value.double().numpy() if isinstance(value, torch.Tensor) else value).astype(float)
    top = float(np.abs(array).max())
    return top * math.sqrt(math.fsum(((array / top) ** 2).tolist())) if top else 0.0


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("dimension", [1, 52, 650])
def test_no_norm_exceeds_the_limit(kind, limit, dimension):
    generator = np.random.default_rng([dimension, int(1e6 * limit)])
    for size in SIZES:
        shapes = (np.ones(dimension), generator.standard_normal(dimension))
        for shape in (*shapes, generator.pareto(0.5, dimension)):
            numbers = np.clip(size * shape, -3e38, 3e38)
            value = made(kind, numbers)
            found = clipped(value, limit)
            wide = torch.float64 if isinstance(kind, torch.dtype) else np.float64
            assert found.dtype in (wide, torch.float32) and found.shape == value.shape
            before, after = true_norm(value), true_norm(found)
            assert after <= limit
            if before <= 0.9 * limit:
                plain = value.double() if wide is torch.float64 else value.astype(wide)
                assert float(abs(found - plain).max()) <= limit * 2.0**-25
            elif before > limit:
                assert after >= 0.99999 * limit
            points = true_points(found, limit)
            assert (points == np.rint(points)).all()


@pytest.mark.parametrize("kind", [np.float32, torch.float32, np.float64])
@pytest.mark.parametrize("limit", [1e-6, 1e-3, 1.0])
def test_no_norm_exceeds_the_limit_in_many_dimensions(kind, limit):
    for size in (1e-5, 1e30, 1e35, 1e38):
        found = clipped(made(kind, np.full(2_000_000, size)), limit)
        assert 0.98 * min(limit, size * math.sqrt(2e6)) <= true_norm(found) <= limit


@pytest.mark.parametrize("limit", [1e-38, 1e-36, 1e-30])
def test_tiny_limits_hold_in_many_dimensions(limit):
    found = clipped(np.ones(2_000_000, dtype=np.float32), limit)
    assert true_norm(found) <= limit


@pytest.mark.parametrize("clip", [1e-6, 1e-3, 1.0])
def test_a_records_gradient_is_never_longer_than_its_clip_norm(clip):
    for size in (1e-3, 1e10, 1e30, 1e34, 1e36, 1e38, 3e38):
        gradient = torch.full((1,), size)
        assert float((gradient * clip_factor(gradient.norm()[None], clip)).double()) <= clip
