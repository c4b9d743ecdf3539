"""What a user's module keeps outside its parameters: between clients it must not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_OWN = frozenset(vars(nn.Module()))
"""Attributes of every module; parameters and buffers are looked at elsewhere."""


def kept_by(module: nn.Module) -> dict[str, Any]:
    """Return a copy of the attributes of a user's own layers, by dotted name.

    Torch's layers keep what they learn in parameters and buffers. Of an object that is neither a
    number, a text, a tensor nor a container of such only the identity is known.
    """
    return {
        f"{name}.{key}".lstrip("."): _copied(value)
        for name, layer in module.named_modules()
        if not type(layer).__module__.startswith("torch.nn.")
        for key, value in vars(layer).items()
        if key not in _OWN
    }


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the name of an attribute that was changed, added or removed; empty if none was."""
    for name in {**before, **after}:
        if name not in before or name not in after or not _same(before[name], after[name]):
            return name
    return ""


def _copied(value: Any) -> Any:
    if isinstance(value, nn.Parameter | nn.Module):
        return value
    if isinstance(value, Tensor):
        try:
            return value.detach().clone()
        except RuntimeError:  # it belongs to several clients at once and has escaped from there
            return object()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple, set) else value


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, nn.Parameter | nn.Module):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
