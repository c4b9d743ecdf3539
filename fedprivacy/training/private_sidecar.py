"""What a run keeps for itself beside its ledger: a key, and what its clients sent.

A checkpoint holds a model, and people hand models over. A hash of the data in it would tell which
of two candidate data sets was trained on, whatever the noise. So the hash has a key, and the key
lies with the ledger, in a file that is neither the ledger's nor the model's: the ledger goes to an
auditor, who may hold a checkpoint too.
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
"""Behind the name of the ledger, or, where a run has none, of the checkpoint."""

_KEY_BYTES = 32


class Notes:
    """The private notes of a run: a random key, and after every round the bytes sent so far.

    Without the key a ``digest`` tells nothing of the data to anybody who cannot tell keyed BLAKE2
    from a random function. What was sent is the sum of the cohorts that were really drawn, which
    no epsilon covers.
    """

    def __init__(self, path: Path, key: bytes | None, sums: dict[int, int]) -> None:
        """Use ``beside``."""
        self.path = path
        self._key, self._sums = key, sums
        self._digest: tuple[object, str] | None = None

    @classmethod
    def beside(cls, checkpoint: str | Path, ledger: Ledger | None) -> Self:
        """Read the notes of a run; ``begun`` is False where there are none yet.

        Args:
            checkpoint: of the run.
            ledger: its ledger; the notes lie beside that, or beside the checkpoint without one.

        Raises:
            ParameterError: there is a file, and it holds no notes.
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
        # Lines that were cut are left out: a count may be lost, never made up.
        return cls(path, key, {at: sent for at, sent in counted if type(at) is type(sent) is int})

    @property
    def begun(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    def begin(self) -> None:
        """Draw a key and put it on disk, where there is none; only the owner may read the file."""
        if self._key is not None:
            return
        key = secrets.token_bytes(_KEY_BYTES)
        head = json.dumps({"format": FORMAT, "key": key.hex()}) + "\n"
        whole_file(self.path, head.encode(), mode=0o600)
        self._key = key

    def digest(self, data: Any) -> str:
        """Return a keyed fingerprint of arrays, numbers and texts in a dataclass, and within."""
        assert self._key is not None
        # By identity: hashing a data set may take longer than a round.
        if self._digest is None or self._digest[0] is not data:
            self._digest = (data, digest(data, self._key))
        return self._digest[1]

    def count(self, round: int, sent: int) -> None:
        """Note how many bytes were sent up to a round."""
        # A line that a crash cut ends where the next one begins.
        line = f"\n{json.dumps({'round': round, 'sent': sent})}\n"
        # Not synced: a count that is lost costs no privacy.
        with named(self.path), open(self.path, "ab") as file:
            file.write(line.encode())
        self._sums[round] = sent

    def sent(self, round: int) -> int | None:
        """Return how many bytes were sent up to a round; None where that is not known."""
        return self._sums.get(round, None if round else 0)


def digest(data: Any, key: bytes) -> str:
    """Return a keyed fingerprint of arrays, numbers and texts in a dataclass, and within."""
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
    """Return a line's JSON object; an empty one for what is none, as where a crash cut it."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _fold(value: Any, add: Callable[[bytes], None]) -> None:
    if isinstance(value, Tensor):
        # With type and shape: equal bytes of other arrays are other data.
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
        # What is no argument is a cache, and depends on what was asked before.
        for name in (one.name for one in fields(value) if one.init):
            _fold(getattr(value, name), add)
    elif isinstance(value, None | bool | int | float | str | np.generic):
        add(repr(value).encode())
    else:
        # Of anything else its kind alone: a repr may hold an address in memory.
        add(f"{type(value).__module__}.{type(value).__qualname__}".encode())


def _fold_all(parts: Sequence[Any], add: Callable[[bytes], None]) -> None:
    # How many there are, so that nested parts cannot pass for others.
    add(f"{len(parts)}".encode())
    for part in parts:
        _fold(part, add)
