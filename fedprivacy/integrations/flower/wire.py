"""What travels between the private strategy and the client's mod, as plain arrays.

The server asks by a norm, a factor and maybe a mask; a client answers with one vector: the kept
coordinates of its start less its result, all arrays one after the other, in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...errors import refuse

ASKED = "fedprivacy"
"""Name of the server's configuration record; its presence says that the round is private."""
MASK = "fedprivacy-mask"
"""Name of the record with the coordinates that travel."""
UPDATE = "fedprivacy-update"
"""Name of the client's record, and of the one array in it."""
CLIP_NORM, FACTOR = "clip-norm", "factor"

Arrays = Mapping[str, NDArray[np.generic]]
Vector = NDArray[np.float32]

_HEADER = 4096
"""More bytes than the header of a saved vector has."""


def flat(arrays: Arrays) -> Vector:
    """Return arrays one after the other, shape (d,).

    Raises:
        ParameterError: one is not of single precision: it would be averaged in another than its
            own, or is a counter that no noise fits.
    """
    for name, array in arrays.items():
        if array.dtype != np.float32:
            rule = "be of single precision (float32)"
            way_out = "keep it at the client, or build the model without running statistics"
            refuse(f"array {name!r}", array.dtype, rule, way_out)
    if not arrays:
        refuse("arrays", "none", "be at least one")
    return np.concatenate([np.asarray(array, np.float32).ravel() for array in arrays.values()])


def shaped(vector: Vector, like: Arrays) -> dict[str, Vector]:
    """Return a flat vector as arrays of the names and shapes of others."""
    ends = np.cumsum([array.size for array in like.values()])
    parts = np.split(vector, ends[:-1])
    names = zip(like.items(), parts, strict=True)
    return {name: part.reshape(array.shape) for (name, array), part in names}


def clipped_update(
    before: Arrays,
    after: Arrays,
    *,
    clip_norm: float,
    factor: float = 1.0,
    mask: NDArray[np.int64] | None = None,
) -> Vector:
    """Return what a client sends: start less result, of one norm over all arrays.

    Args:
        before: what the server sent.
        after: what the app made of it.
        clip_norm: most norm of the kept coordinates times ``factor``.
        factor: what the server multiplies them with.
        mask: the coordinates that travel; None for all.

    Raises:
        ParameterError: other names or shapes than the server sent, or a value that is not finite.
    """
    layouts = [[(name, array.shape) for name, array in some.items()] for some in (before, after)]
    if layouts[0] != layouts[1]:
        sent, came = ({name for name, _ in layout} for layout in layouts)
        rule = "have the names, order and shapes of those that the server sent"
        way_out = (
            "a model of which each client keeps a part (as FedBN does) has no common sum: leave "
            "those arrays out of what the server sends"
        )
        told = sorted(sent ^ came) or "other shapes or another order"
        refuse("the app's arrays", told, rule, way_out)
    update = flat(before) - flat(after)
    if mask is not None:
        update = update[mask]
    # In double precision: the square of a large float32 overflows.
    norm = float(np.linalg.norm(update.astype(np.float64))) * factor
    if not np.isfinite(norm):
        refuse("the app's arrays", "a non-finite entry", "be finite", "train with a smaller step")
    return update if norm <= clip_norm else (update * np.float32(clip_norm / norm))


def spread(vector: Vector, dimension: int, mask: NDArray[np.int64] | None) -> Vector:
    """Return a client's vector with zeros where nothing travelled, shape (dimension,)."""
    if mask is None:
        return vector
    whole = np.zeros(dimension, np.float32)
    whole[mask] = vector
    return whole


def may_hold(data: bytes, kept: int) -> bool:
    """Return whether a saved vector of ``kept`` single-precision numbers may be so long."""
    return len(data) <= 4 * kept + _HEADER
