"""Number of the processor's threads that training uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from ..errors import integer

SMALL = 1_000_000
"""States of fewer numbers are small: several threads cost them more time than they save."""


@contextmanager
def limited(state: Any, threads: int | None) -> Iterator[None]:
    """Train with a number of threads; restore the old number afterwards.

    Args:
        state: state of the run, which determines the size of the model.
        threads: number of threads. None for one thread if the model is small and the environment
            does not set OMP_NUM_THREADS, else for torch's own number.

    Raises:
        ParameterError: fewer than one thread.
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
    """Return the number of values in the largest tensor of a loop's state."""
    held = [getattr(state, each.name) for each in fields(state)] if is_dataclass(state) else []
    return max((each.numel() for each in held if isinstance(each, torch.Tensor)), default=0)
