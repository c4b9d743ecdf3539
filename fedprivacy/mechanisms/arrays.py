"""Operations on arrays and tensors of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rounded import PART
from .tensors import is_tensor, placed_like

_SINGLE_EXACT = float(1 << 24)


def doubles(value: Any) -> Any:
    """Return numbers in double precision."""
    return value.detach().double() if is_tensor(value) else np.asarray(value, dtype=np.float64)


def jittered(value: Any, offsets: NDArray[np.int16]) -> None:
    """Add offsets / 2^16 in place, and round to the nearest integers."""
    if is_tensor(value):
        value.add_(placed_like(offsets, value), alpha=2.0**-16).round_()
    else:
        value += offsets * 2.0**-16
        np.rint(value, out=value)


def floored(value: Any) -> Any:
    """Return numbers rounded down."""
    return value.floor() if is_tensor(value) else np.floor(value)


def truncated(value: Any) -> Any:
    """Return numbers rounded towards 0."""
    return value.trunc() if is_tensor(value) else np.trunc(value)


def squared_norm(points: Any) -> float:
    """Return the squared norm of integers, exactly: in parts that fit a core's cache.

    Sums of squares below 2^24 are exact in single precision, and those below 2^53 in double. This
    holds in any order of addition. A sum at or above the limit also has a rounded value at or above
    the limit. Beyond 2^53 the result may be rounded, but it is far above any norm limit.
    """
    values, total = points.reshape(-1), 0.0
    # numpy products keep the stated precision; torch may reduce it for speed.
    flat = values.detach().cpu().numpy() if is_tensor(values) else values
    for start in range(0, len(flat), PART):
        part = flat[start : start + PART]
        found = float(part @ part)
        if part.itemsize < 8 and not found < _SINGLE_EXACT:
            found = float(doubles(part) @ doubles(part))
        total += found
    return total
