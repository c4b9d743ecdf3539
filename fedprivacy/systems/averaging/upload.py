"""Format of a client's upload: the kept numbers of its update; both ends know the mask."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import torch
from torch import Tensor

from ...errors import integer, refuse, require

# Little-endian and without padding: the same bytes on every machine.
_HEADER = struct.Struct("<4sIQ8s")
_MAGIC = b"fpu1"


def upload_size(kept: int) -> int:
    """Return the length in bytes of an upload of ``kept`` numbers: a header and four bytes each."""
    return _HEADER.size + 4 * kept


def pack(values: Tensor, *, round: int, mask: Tensor | None = None) -> bytes:
    """Return an upload: round, number of values, a fingerprint of the mask, the values.

    The mask is not part of the upload: rand_k's follows from a seed and top_k's is sent by the
    server.

    Args:
        values: the kept coordinates, shape (kept,); sent in single precision.
        round: the round's number, from 0.
        mask: indices of the kept coordinates, shape (kept,); None if all are kept.

    Raises:
        ParameterError: a round number below 0, or values of another shape than the mask's.
    """
    if values.dim() != 1 or (mask is not None and mask.shape != values.shape):
        refuse("values", tuple(values.shape), "have one number per kept coordinate")
    number = integer(0, round=round)
    header = _HEADER.pack(_MAGIC, number, len(values), _fingerprint(mask))
    return header + values.detach().cpu().numpy().astype("<f4").tobytes()


def unpack(upload: bytes, *, round: int, kept: int, mask: Tensor | None = None) -> Tensor:
    """Return the numbers of an upload, shape (kept,), after checking that it fits the round.

    Args:
        upload: result of ``pack``; untrusted.
        round: expected round.
        kept: expected number of values.
        mask: see ``pack``.

    Raises:
        ParameterError: it is truncated or too long, of another round, another length or another
            mask, or a number is not finite. Leave this client's upload out.
    """
    # First of all, because a truncated header cannot be unpacked.
    size, out = upload_size(kept), "leave it out"
    require(len(upload) == size, "upload", len(upload), f"be {size} bytes long", out)
    magic, number, count, fingerprint = _HEADER.unpack_from(upload)
    rule = f"start with {_MAGIC!r} and contain {kept} numbers"
    require((magic, count) == (_MAGIC, kept), "upload", upload[:4], rule)
    require(number == round, "upload.round", number, f"be {round}, the current round", out)
    fits = fingerprint == _fingerprint(mask)
    require(fits, "upload.mask", fingerprint.hex(), "match the mask of the round", out)
    # A copy, because an array over bytes is read-only.
    values = np.frombuffer(upload, "<f4", offset=_HEADER.size).astype(np.float32)
    require(np.isfinite(values).all(), "upload", "a non-finite number", "be finite", out)
    return torch.from_numpy(values)


def _fingerprint(mask: Tensor | None) -> bytes:
    content = b"" if mask is None else mask.cpu().numpy().astype("<i8").tobytes()
    return hashlib.blake2b(content, digest_size=8).digest()
