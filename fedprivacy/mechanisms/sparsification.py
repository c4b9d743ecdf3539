"""Choice of an update's coordinates to send: at random, or the largest of public data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import member, natural, refuse, validate_fields
from .noise import is_finite, private_generator, readable
from .tensors import is_tensor

Indices = NDArray[np.int64]


class Sparsifier(StrEnum):
    """Choice of the kept coordinates; all clients of a round keep the same ones."""

    RAND_K = "rand_k"
    """k coordinates at random, scaled by d/k."""
    TOP_K = "top_k"
    """The k largest of an update on public data, which belong to no client; not scaled."""


def fingerprint(indices: Indices | None) -> str | None:
    """Return a hash that identifies a mask in the ledger; None for no mask."""
    if indices is None:
        return None
    # Fixed byte order, so that all machines agree on fingerprints.
    return hashlib.blake2b(indices.astype("<i8").tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Sparsification:
    """Choice and scaling of the coordinates sent; no noise, no privacy.

    Args:
        kept: k, from 1 to ``dimension``.
        dimension: d, number of coordinates.
        sparsifier: "rand_k" or "top_k".

    Raises:
        ParameterError: a value out of its range.
    """

    kept: int
    dimension: int
    sparsifier: Sparsifier | str = Sparsifier.RAND_K

    def __post_init__(self) -> None:
        validate_fields(self, natural, "dimension", "kept")
        validate_fields(self, partial(member, Sparsifier), "sparsifier")
        if self.kept > self.dimension:
            refuse("kept", self.kept, f"be at most dimension = {self.dimension}")

    @property
    def factor(self) -> float:
        """Factor on kept coordinates: d/k for rand_k, else 1."""
        return self.dimension / self.kept if self.sparsifier is Sparsifier.RAND_K else 1.0

    def draw_mask(self, generator: np.random.Generator | None = None) -> Indices:
        """Return ``kept`` of ``dimension`` indices, sorted, uniformly at random (public)."""
        generator = private_generator() if generator is None else generator
        if self.kept == self.dimension:
            return np.arange(self.dimension)
        # Sorted: a mask is a set, and memory is read in order.
        return np.sort(generator.choice(self.dimension, size=self.kept, replace=False))

    def select(self, update: Any, mask: Any = None) -> Any:
        """Return the kept coordinates of a flat update, scaled by d/k for rand_k, shape (kept,).

        Args:
            update: flat array or tensor of shape (dimension,).
            mask: the round's indices, shape (kept,); None if every coordinate is kept.

        Raises:
            ParameterError: a wrong shape, an entry that is not finite, or a mask that does not hold
                ``kept`` different indices.
        """
        # Detach: sent values must not lead back to the data they were made from.
        update = readable("update", update)
        if tuple(update.shape) != (self.dimension,):
            refuse("update", tuple(update.shape), f"have shape ({self.dimension},)")
        whole = mask is None and self.kept == self.dimension
        if not whole:
            self.check_mask(mask)
        if not is_finite(update):
            refuse(
                "update", "a non-finite entry", "be finite", "leave out the update of this client"
            )
        kept = update if whole else _taken(update, mask)
        if self.factor == 1.0:
            return kept
        # Entries that overflow are refused later, with all that are not finite.
        with np.errstate(over="ignore"):
            return kept * self.factor

    def check_mask(self, mask: Any) -> None:
        """Raise ParameterError unless a mask holds ``kept`` different indices below ``dimension``.

        Args:
            mask: array or tensor of shape (kept,).
        """
        shape = None if mask is None else tuple(getattr(mask, "shape", ()))
        if shape != (self.kept,):
            refuse("mask", shape, f"have shape ({self.kept},)", "pass the kept indices")
        # Compare types by name, because torch is not imported here.
        whole = ("int",) if isinstance(mask, np.ndarray) else ("torch.int32", "torch.int64")
        if not str(mask.dtype).startswith(whole):
            refuse("mask", mask.dtype, "contain integers", "pass the kept indices as int64")
        # Drawn masks are sorted, so they are checked without a search or a sort.
        rising = bool((mask[1:] > mask[:-1]).all())
        ends = (mask[0], mask[-1]) if rising else (mask.min(), mask.max())
        low, high = map(int, ends)
        if low < 0 or high >= self.dimension:
            refuse("mask", (low, high), f"contain indices from 0 to {self.dimension - 1}")
        if not rising and len(np.unique(np.asarray(mask.tolist()))) < self.kept:
            refuse(
                "mask",
                "an index twice",
                "contain every index at most once",
                "pass the kept indices",
            )


def _taken(update: Any, mask: Any) -> Any:
    """Return the coordinates of a checked mask, faster than torch's indexing."""
    both = is_tensor(update) and is_tensor(mask)
    return update.index_select(0, mask) if both else update[mask]
