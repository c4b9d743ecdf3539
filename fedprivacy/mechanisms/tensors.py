"""Tensors beside arrays, without importing torch: whoever has a tensor has done that."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(value: Any) -> bool:
    """Return whether it is a torch tensor."""
    return hasattr(value, "detach")


def loaded_torch() -> Any:
    """Return torch, where there is a tensor or a generator of it."""
    return sys.modules["torch"]


def numbers_of(value: Any) -> np.ndarray:
    """Return an array of what an array, a number or a tensor on any device holds."""
    return np.asarray(value.detach().cpu() if is_tensor(value) else value)


def placed_like(array: np.ndarray, like: Any, dtype: Any = None) -> Any:
    """Return an array, as a tensor on its device where the other is one.

    Args:
        array: any shape.
        like: an array, a number or a tensor.
        dtype: of the tensor; None for the array's.
    """
    if not is_tensor(like):
        return array
    tensor = loaded_torch().from_numpy(np.asarray(array))
    return tensor.to(device=like.device, dtype=dtype)
