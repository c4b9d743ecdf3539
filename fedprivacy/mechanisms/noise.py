"""Where the randomness of a release comes from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_LAST_PLACE = {8: 2.0**-44, 4: 2.0**-23}
"""Relative size of a unit in the last place, by a number's bytes; fewer bytes: 2^-7.

Of double precision: of a norm, whose sum of squares has many terms.
"""
_FULL_DIGITS = 2.0**-90
"""Above this no number of single precision that matters is stored with fewer digits."""


def private_generator() -> np.random.Generator:
    """Return a generator seeded by the operating system, as every private release must be."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence()))


def normal_like(value: Any, std: float, generator: Any = None) -> Any:
    """Return N(0, std^2) noise of the shape and kind of ``value`` (numpy array or torch tensor).

    Args:
        value: whose shape, dtype and device are taken.
        std: standard deviation, same unit as ``value``.
        generator: a ``numpy.random.Generator``; None for a fresh one seeded by the system. For a
            tensor a ``torch.Generator`` is taken too.
    """
    generator = private_generator() if generator is None else generator
    if isinstance(generator, np.random.Generator):
        noise = generator.normal(0.0, std, size=tuple(value.shape))
        return noise if isinstance(value, np.ndarray) else value.new_tensor(noise)
    return value.new_empty(value.shape).normal_(0.0, std, generator=generator)


def norm(value: Any) -> float:
    """Return the Euclidean norm of an array or tensor; infinite or NaN where an entry is.

    Squares of single precision neither overflow nor vanish in double; of double they are scaled.
    """
    if isinstance(value, np.ndarray) and value.itemsize < 8:
        return float(np.linalg.norm(value.reshape(-1).astype(np.float64)))
    if not isinstance(value, np.ndarray) and value.element_size() < 8:
        double = value.new_empty(0).double().dtype
        return float(value.norm(dtype=double))
    largest = float(abs(value).max()) if len(value.reshape(-1)) else 0.0
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    scaled = value.reshape(-1) / largest
    return largest * math.sqrt(float((scaled * scaled).sum()))


def clipped(value: Any, limit: float) -> Any:
    """Return an array or tensor scaled down to a norm of at most ``limit``, rounding included.

    Rounding is paid for by clipping four units in the last place lower; double precision leaves
    room for the rounding of a sum of squares too. Where the factor or the limit is so small that
    numbers without all their digits come in, or a number has few digits anyway, the norm is
    computed again, and what is still too long is shortened once more. An array with an entry that
    is not finite is returned as it is.
    """
    bytes_each = value.itemsize if isinstance(value, np.ndarray) else value.element_size()
    allowed = limit * (1.0 - 4.0 * _LAST_PLACE.get(bytes_each, 2.0**-7))
    size = norm(value)
    if size <= allowed or not is_finite(value):
        return value
    if bytes_each >= 4 and min(limit, allowed / size) > _FULL_DIGITS:
        return value * (allowed / size)
    return _shortened(value, limit, allowed)


def _shortened(value: Any, limit: float, allowed: float) -> Any:
    """Return ``clipped`` by way of double precision, its norm looked at; zeros if nothing else."""
    wide: Any = value.astype(np.float64) if isinstance(value, np.ndarray) else value.double()
    wide = wide / float(abs(wide).max())
    factor = allowed / norm(wide)
    for share in (1.0, 0.99, 0.5, 0.0):
        found = wide * (factor * share)
        found = found.astype(value.dtype) if isinstance(value, np.ndarray) else found.to(value)
        if norm(found) <= limit * (1.0 - 2.0**-43):
            break
    return found


def is_finite(value: Any) -> bool:
    """Return whether every entry of an array or tensor is finite."""
    if not len(value.reshape(-1)):
        return True
    ends = (value.min(), value.max()) if isinstance(value, np.ndarray) else value.aminmax()
    return all(math.isfinite(float(end)) for end in ends)
