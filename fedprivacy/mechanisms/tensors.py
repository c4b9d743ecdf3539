"""Support for tensors without importing torch: a caller with a tensor has imported it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(value: Any) -> bool:
    """Return whether it is a torch tensor."""
    return hasattr(value, "detach")


def loaded_torch() -> Any:
    """Return torch; call it only if a tensor or a torch generator exists."""
    return sys.modules["torch"]


def numbers_of(value: Any) -> np.ndarray:
    """Return the content of an array, a number or a tensor on any device, as an array."""
    return np.asarray(value.detach().cpu() if is_tensor(value) else value)


def placed_like(array: np.ndarray, like: Any, dtype: Any = None) -> Any:
    """Return the array, as a tensor on the device of ``like`` if that is a tensor.

    Args:
        array: any shape.
        like: an array, a number or a tensor.
        dtype: of the tensor; None for the array's.
    """
    if not is_tensor(like):
        return array
    tensor = loaded_torch().from_numpy(np.asarray(array))
    return tensor.to(device=like.device, dtype=dtype)
