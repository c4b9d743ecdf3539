"""Messages between the private strategy and the client's mod, as plain arrays.

The server sends a norm, a factor and optionally a mask. A client answers with one vector: the kept
coordinates of its start minus its result, all arrays concatenated, in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...errors import refuse

ASKED = "fedprivacy"
"""Name of the server's configuration record. Its presence marks a private round."""
MASK = "fedprivacy-mask"
"""Name of the record with the coordinates to send."""
UPDATE = "fedprivacy-update"
"""Name of the client's record, and of the single array in it."""
CLIP_NORM, FACTOR = "clip-norm", "factor"

Arrays = Mapping[str, NDArray[np.generic]]
Vector = NDArray[np.float32]

_HEADER = 4096
"""Upper bound on the bytes in the header of a saved vector."""


def flat(arrays: Arrays) -> Vector:
    """Return arrays concatenated, shape (d,).

    Raises:
        ParameterError: an array is not of single precision. It would be averaged in another
            precision, or is a counter that cannot take noise.
    """
    for name, array in arrays.items():
        if array.dtype != np.float32:
            rule = "be of single precision (float32)"
            way_out = "keep it on the client, or build the model without running statistics"
            refuse(f"array {name!r}", array.dtype, rule, way_out)
    if not arrays:
        refuse("arrays", "none", "be at least one")
    return np.concatenate([np.asarray(array, np.float32).ravel() for array in arrays.values()])


def shaped(vector: Vector, like: Arrays) -> dict[str, Vector]:
    """Return a flat vector as arrays with the names and shapes of others."""
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
    """Return a client's message: start minus result, with one norm over all arrays.

    Args:
        before: the arrays from the server.
        after: the app's result.
        clip_norm: largest norm of the kept coordinates times ``factor``.
        factor: the server multiplies the coordinates with it.
        mask: the coordinates to send; None for all.

    Raises:
        ParameterError: other names or shapes than the server sent, or a value that is not finite.
    """
    layouts = [[(name, array.shape) for name, array in some.items()] for some in (before, after)]
    if layouts[0] != layouts[1]:
        sent, came = ({name for name, _ in layout} for layout in layouts)
        rule = "have the names, order and shapes of the arrays that the server sent"
        way_out = (
            "a model with client-specific parts (as in FedBN) has no common sum; remove these "
            "arrays from the server's message"
        )
        differing = sorted(sent ^ came) or "other shapes or a different order"
        refuse("the app's arrays", differing, rule, way_out)
    update = flat(before) - flat(after)
    if mask is not None:
        update = update[mask]
    # In double precision: the square of a large float32 overflows.
    norm = float(np.linalg.norm(update.astype(np.float64))) * factor
    if not np.isfinite(norm):
        refuse(
            "the app's arrays",
            "a non-finite entry",
            "be finite",
            "train with a smaller learning rate",
        )
    return update if norm <= clip_norm else (update * np.float32(clip_norm / norm))


def spread(vector: Vector, dimension: int, mask: NDArray[np.int64] | None) -> Vector:
    """Return a client's vector with zeros at the coordinates not sent, shape (dimension,)."""
    if mask is None:
        return vector
    whole = np.zeros(dimension, np.float32)
    whole[mask] = vector
    return whole


def may_hold(data: bytes, kept: int) -> bool:
    """Return whether a saved vector of ``kept`` single-precision numbers may have this length."""
    return len(data) <= 4 * kept + _HEADER
