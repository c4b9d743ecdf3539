"""How many of the processor's threads training takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from ..errors import integer

SMALL = 1_000_000
"""States of fewer numbers are small: several threads cost them more than they save."""


@contextmanager
def limited(state: Any, threads: int | None) -> Iterator[None]:
    """Train within a number of threads; afterwards there are as many as before.

    Args:
        state: where the run stands; what it holds says how large the model is.
        threads: how many; None for one where the model is small and the environment does not set
            OMP_NUM_THREADS, else as many as torch takes.

    Raises:
        ParameterError: fewer than one.
    """
    before = torch.get_num_threads()
    wanted = before if threads is None else integer(1, threads=threads)
    if threads is None and size_of(state) < SMALL and "OMP_NUM_THREADS" not in os.environ:
        wanted = 1
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def size_of(state: Any) -> int:
    """Return how many numbers a loop's state holds, at least in its largest tensor."""
    held = [getattr(state, each.name) for each in fields(state)] if is_dataclass(state) else []
    return max((each.numel() for each in held if isinstance(each, torch.Tensor)), default=0)
