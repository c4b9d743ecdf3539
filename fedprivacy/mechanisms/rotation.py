"""Fast random rotations: public signs, then a Hadamard matrix, padded to a power of two.

Rotations spread a vector's norm over all coordinates. Privacy does not depend on them: the sent
values are checked after the rotation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tensors import is_tensor, loaded_torch, placed_like

_NEAR, _FAR = 5, 4
"""Powers of two of one small matrix product; larger products cost more than they save."""


def padded(count: int) -> int:
    """Return the least power of two that is at least ``count``."""
    return 1 << max(count - 1, 0).bit_length()


@functools.lru_cache(maxsize=4)
def signs_of(seed: int, width: int) -> NDArray[np.float32]:
    """Return ``width`` public random signs, determined by a seed."""
    drawn = np.random.Generator(np.random.PCG64DXSM(seed)).integers(0, 2, width, dtype=np.int8)
    return (1 - 2 * drawn).astype(np.float32)


def rotated(value: Any, signs: NDArray[np.float32], width: int, scale: float = 1.0) -> Any:
    """Return scale H D x for x padded with zeros to ``width``, H orthonormal.

    Args:
        value: shape (n,), n at most ``width``; an array of doubles or a tensor.
        signs: D's diagonal, shape (width,).
        width: a power of two.
        scale: a factor.
    """
    block = _block(width)
    count = len(value)
    # Blocks with only padding stay 0 until the last step, and are left out.
    held = block * -(-count // block)
    if is_tensor(value):
        full = value.new_empty(held)
        loaded_torch().mul(value, _as(signs[:count], value), out=full[:count])
    else:
        full = np.empty(held)
        np.multiply(value, signs[:count], out=full[:count])
    full[count:] = 0.0
    return _transformed(full, width, scale)


def rotated_back(value: Any, signs: NDArray[np.float32], count: int) -> Any:
    """Return the first ``count`` entries of D H y, the inverse of ``rotated``."""
    return hadamard(value)[:count] * _as(signs[:count], value)


def hadamard(value: Any) -> Any:
    """Return the orthonormal Walsh-Hadamard transform of a vector of 2^k numbers."""
    copy = value.clone() if is_tensor(value) else value.copy()
    return _transformed(copy, len(value), 1.0)


def _block(width: int) -> int:
    """Return the length of the parts that the last step of a transform combines."""
    return max(width >> _FAR, 1)


def _transformed(value: Any, width: int, scale: float) -> Any:
    """Return ``scale`` times the transform of ``value``, padded; overwrites ``value``.

    Args:
        value: complete blocks, only those with data.
        width: of the transform.
        scale: a factor.
    """
    rows = value.reshape(-1, _block(width))
    multiply, spare = _product(rows[0])
    # The first matrix includes the scale, so that huge numbers are scaled before they are summed.
    first = scale if len(spare) > 1 else 1.0
    # Block by block, so that both buffers fit a core's cache.
    for row in rows:
        _in_place(row, spare, multiply, first)
    last = _matrix(width // len(spare)) * (scale / first)
    return multiply(_as(last, value)[:, : len(rows)], rows).reshape(-1)


def _in_place(value: Any, spare: Any, multiply: Callable[..., Any], scale: float) -> None:
    """Overwrite ``value`` with scale times its orthonormal transform, using ``spare``."""
    here, there, done = value, spare, 1
    while done < len(value):
        size = min(1 << (_NEAR if done == 1 else _FAR), len(value) // done)
        # A Kronecker product acts on one axis at a time; the innermost axis needs no batch.
        if done == 1:
            matrix = _as(_matrix(size) * scale, value)
            multiply(here.reshape(-1, size), matrix, out=there.reshape(-1, size))
        else:
            matrix, shape = _as(_matrix(size), value), (len(value) // (done * size), size, done)
            multiply(matrix, here.reshape(shape), out=there.reshape(shape))
        here, there, done = there, here, done * size
    if here is spare:
        value[:] = spare


def _product(value: Any) -> tuple[Callable[..., Any], Any]:
    """Return the matrix product for an array or a tensor, and an empty array of the same shape."""
    if not is_tensor(value):
        return np.matmul, np.empty_like(value)
    torch = loaded_torch()
    return torch.matmul, torch.empty_like(value)


@functools.lru_cache(maxsize=8)
def _matrix(size: int) -> NDArray[np.float64]:
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(matrix / np.sqrt(size))


def _as(array: NDArray[Any], like: Any) -> Any:
    return placed_like(array, like, like.dtype)
