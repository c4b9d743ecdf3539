"""What whole numbers need of arrays and of tensors alike."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .rounded import PART


def is_tensor(value: Any) -> bool:
    """Return whether it is a torch tensor."""
    return hasattr(value, "detach")


def doubles(value: Any) -> Any:
    """Return numbers in double precision."""
    return value.detach().double() if is_tensor(value) else np.asarray(value, dtype=np.float64)


def floor(value: Any) -> None:
    """Round down in place."""
    if is_tensor(value):
        value.floor_()
    else:
        np.floor(value, out=value)


def floored(value: Any) -> Any:
    """Return numbers rounded down."""
    return value.floor() if is_tensor(value) else np.floor(value)


def truncated(value: Any) -> Any:
    """Return numbers rounded towards 0."""
    return value.trunc() if is_tensor(value) else np.trunc(value)


def squared_norm(points: Any) -> float:
    """Return the squared norm of whole numbers: exact in doubles, part by part in a core's cache.

    Beyond 2^53 it may round, and is far above any limit.
    """
    flat, total = points.reshape(-1), 0.0
    for start in range(0, len(flat), PART):
        part = doubles(flat[start : start + PART])
        total += float(part @ part)
    return total


def placed_like(array: np.ndarray, like: Any) -> Any:
    """Return an array, as a tensor on its device where the other is one."""
    if not is_tensor(like):
        return array
    torch = sys.modules["torch"]  # whoever has a tensor has imported it
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)
