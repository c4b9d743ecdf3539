"""Clipping: the result never exceeds the limit, for any input."""

import math

import numpy as np
import pytest
import torch

from fedprivacy.errors import ParameterError
from fedprivacy.mechanisms import rounded
from fedprivacy.mechanisms.rounded import grid_for, on_grid

LIMITS = [1e-6, 1e-3, 1.0, 1e3]
SIZES = [10.0**k for k in range(-38, 39, 2)] + [3e38, 1e34, 1e35]
KINDS = [np.float64, np.float32, np.float16, torch.float64, torch.float32]
KINDS += [torch.float16, torch.bfloat16]


def made(kind, numbers):
    """An array or tensor of a kind; the largest one that fits replaces one that does not."""
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
    """The values in spacings of the grid: integers."""
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


@pytest.mark.fast_cells(3)
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


LONG = 3 * rounded.PART + 77
"""More than two parts of a tensor, and no whole number of rows."""


@pytest.mark.parametrize("length", [0.3, 1.0, 1.0 + 2.0**-20, 7.0, 1e6])
def test_long_updates_of_single_precision_are_put_on_the_grid_in_single_precision(length):
    value = torch.randn(LONG, generator=torch.Generator().manual_seed(1))
    value *= length / float(value.double().norm())
    grid = 2.0**-24
    found = on_grid(value, clip_norm=1.0, grid=grid)
    points = found.double().numpy() / grid
    assert found.dtype == torch.float32 and (points == np.rint(points)).all()
    # Integers below 2^53: the sum is exact.
    squares = int((points.astype(np.int64) ** 2).sum())
    assert (1.0 - 2.0**-13) * min(length, 1.0) ** 2 < squares * grid * grid <= 1.0
    # Rounded once in single precision, and once to the grid.
    wanted = value.double() * min(1.0, (1.0 - rounded.ROW_ERROR) / length)
    assert float((found.double() - wanted).abs().max()) <= 0.55 * grid
    assert not np.signbit(points[points == 0.0]).any()


def test_an_entry_that_is_too_large_for_single_precision_goes_the_careful_way():
    value = torch.full((LONG,), 1e-6)
    value[5] = 0.9
    assert rounded._quick(value, 1.0, 2.0**-24) is None
    found = on_grid(value, clip_norm=1.0, grid=2.0**-24)
    assert float(found[5]) == pytest.approx(0.9) and true_norm(found) <= 1.0


@pytest.mark.parametrize("share", [0.5, 0.9999])
def test_a_norm_that_was_measured_wrongly_is_noticed(share, monkeypatch):
    """The norm is too small, so too little is clipped: the result is checked."""
    value, real, calls = torch.randn(LONG), rounded._row_norms, []

    def wrong(flat):
        calls.append(len(flat))
        return real(flat) * (share if len(calls) == 1 else 1.0)

    monkeypatch.setattr(rounded, "_row_norms", wrong)
    assert rounded._quick(value, 1.0, 2.0**-24) is None and len(calls) > 1
    calls.clear()
    assert true_norm(on_grid(value, clip_norm=1.0, grid=2.0**-24)) <= 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_long_update_that_is_not_finite_is_refused(bad):
    value = torch.zeros(LONG)
    value[-1] = bad
    with pytest.raises(ParameterError):
        on_grid(value, clip_norm=1.0, grid=2.0**-24)
