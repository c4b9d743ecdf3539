"""Private notes of a run, next to its ledger: a key, and the bytes that its clients sent.

A checkpoint contains a model, and models are shared. An unkeyed hash of the data in the checkpoint
would reveal which of two candidate data sets was used for training, independently of the noise. So
the hash is keyed. The key is stored next to the ledger, in a file that is part of neither the
ledger nor the model, because the ledger goes to an auditor who may also have a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..errors import require
from ..ledger import Ledger
from ..outputs import named, whole_file

FORMAT = "fedprivacy private notes 1"
SUFFIX = ".private"
"""Suffix added to the name of the ledger, or of the checkpoint if a run has no ledger."""

_KEY_BYTES = 32


class PrivateSidecar:
    """The private notes of a run: a random key, and after every round the bytes sent until then.

    Without the key a ``digest`` reveals no information about the data, as long as keyed BLAKE2
    cannot be distinguished from a random function. The bytes sent are the sum over the cohorts that
    were really drawn, which no epsilon covers.
    """

    def __init__(self, path: Path, key: bytes | None, sums: dict[int, int]) -> None:
        """Use ``beside``."""
        self.path = path
        self._key, self._sums = key, sums
        self._digest: tuple[object, str] | None = None

    @classmethod
    def beside(cls, checkpoint: str | Path, ledger: Ledger | None) -> Self:
        """Read the notes of a run; ``begun`` is False if it has no notes yet.

        Args:
            checkpoint: checkpoint of the run.
            ledger: ledger of the run; the notes are next to it, or next to the checkpoint without
                one.

        Raises:
            ParameterError: the file exists, but does not hold notes.
        """
        place = Path(checkpoint) if ledger is None else ledger.path
        path = place.with_name(place.name + SUFFIX)
        if not path.exists():
            return cls(path, None, {})
        require(path.is_file(), "private notes", str(path), "be a file", "name another ledger")
        head, *lines = _objects(path.read_bytes())
        known = head.get("format") == FORMAT and len(key := _key(head)) == _KEY_BYTES
        rule = f"have format {FORMAT!r}"
        require(known, "private notes", str(path), rule, "restore the file")
        counted = [(line.get("round"), line.get("sent")) for line in lines]
        # Truncated lines are left out: a count may be lost, but never invented.
        return cls(path, key, {at: sent for at, sent in counted if type(at) is type(sent) is int})

    @property
    def begun(self) -> bool:
        """Whether the notes have a key."""
        return self._key is not None

    def begin(self) -> None:
        """Draw a key and write it to disk, unless one exists; only the owner may read the file."""
        if self._key is not None:
            return
        key = secrets.token_bytes(_KEY_BYTES)
        head = json.dumps({"format": FORMAT, "key": key.hex()}) + "\n"
        whole_file(self.path, head.encode(), mode=0o600)
        self._key = key

    def digest(self, data: Any) -> str:
        """Return a keyed fingerprint of the arrays, numbers and texts in a (nested) dataclass."""
        assert self._key is not None
        # Compared by identity: hashing a data set may take longer than a round.
        if self._digest is None or self._digest[0] is not data:
            self._digest = (data, digest(data, self._key))
        return self._digest[1]

    def count(self, round: int, sent: int) -> None:
        """Record the number of bytes sent up to a round."""
        # If a crash truncated a line, the newline ends it before the next.
        line = f"\n{json.dumps({'round': round, 'sent': sent})}\n"
        # Not synced: a lost count costs no privacy.
        with named(self.path), open(self.path, "ab") as file:
            file.write(line.encode())
        self._sums[round] = sent

    def sent(self, round: int) -> int | None:
        """Return the number of bytes sent up to a round; None if it is not known."""
        return self._sums.get(round, None if round else 0)


def digest(data: Any, key: bytes) -> str:
    """Return a keyed fingerprint of the arrays, numbers and texts in a (nested) dataclass."""
    found = hashlib.blake2b(key=key, digest_size=32)
    _fold(data, found.update)
    return found.hexdigest()


def _key(head: dict[str, Any]) -> bytes:
    try:
        return bytes.fromhex(head.get("key", ""))
    except (TypeError, ValueError):
        return b""


def _objects(content: bytes) -> list[dict[str, Any]]:
    """Return a file's lines, at least one; counts have blank ones between them, see ``count``."""
    return [_object(line) for line in content.splitlines() if line] or [{}]


def _object(line: bytes) -> dict[str, Any]:
    """Return a line's JSON object; an empty one for another value or a truncated line."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _fold(value: Any, add: Callable[[bytes], None]) -> None:
    if isinstance(value, Tensor):
        # With dtype and shape: equal bytes of different arrays are different data.
        add(f"{value.dtype}{tuple(value.shape)}".encode())
        value = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        add(f"{value.dtype}{value.shape}".encode())
        add(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        _fold_all(list(value.items()), add)
    elif isinstance(value, list | tuple):
        _fold_all(value, add)
    else:
        _fold_one(value, add)


def _fold_one(value: Any, add: Callable[[bytes], None]) -> None:
    if is_dataclass(value) and not isinstance(value, type):
        # Fields that are not arguments are caches, and depend on earlier calls.
        for name in (one.name for one in fields(value) if one.init):
            _fold(getattr(value, name), add)
    elif isinstance(value, None | bool | int | float | str | np.generic):
        add(repr(value).encode())
    else:
        # For every other value only its type: a repr may contain an address in memory.
        add(f"{type(value).__module__}.{type(value).__qualname__}".encode())


def _fold_all(parts: Sequence[Any], add: Callable[[bytes], None]) -> None:
    # The number of parts, so that different nestings have different hashes.
    add(f"{len(parts)}".encode())
    for part in parts:
        _fold(part, add)
