"""The model of a run on disk: what was released, so that it is nobody's secret."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import ParameterError, refuse
from ...outputs import whole_file
from .wire import Arrays

FORMAT = "fedprivacy flower model 1"
_HEAD = "head"
_ARRAY = "array:"
"""Before the names of arrays, so that none can be taken for the head."""


class Held(NamedTuple):
    """What is on disk.

    Attributes:
        arrays: the model.
        rounds: how many are behind it.
        clip_norm: of the next round, where it is learned; else None.
    """

    arrays: Arrays
    rounds: int
    clip_norm: float | None


class Saved:
    """A model with the number of rounds behind it, bound to the ledger that counts them.

    Args:
        path: the file.
        nonce: of the ledger.
    """

    def __init__(self, path: Path, nonce: str) -> None:
        self.path, self.nonce = path, nonce

    def write(self, held: Held) -> None:
        """Put a model on disk; a crash leaves the old one or the new one."""
        told = {"rounds": held.rounds, "clip_norm": held.clip_norm}
        head = json.dumps({"format": FORMAT, "ledger": self.nonce, **told})
        named = {_ARRAY + name: array for name, array in held.arrays.items()}
        buffer = io.BytesIO()
        # A dictionary by keywords: arrays may have any names.
        np.savez(buffer, **{_HEAD: np.array(head), **named})  # type: ignore[arg-type]
        whole_file(self.path, buffer.getvalue())

    def read(self) -> Held | None:
        """Return the model, its rounds and norm, None where there is no file.

        Raises:
            ParameterError: it is damaged, or was trained under another ledger.
        """
        if not self.path.exists():
            return None
        try:
            # Opened here: of a damaged file numpy closes nothing.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                head = json.loads(str(held[_HEAD]))
                names = [name for name in held.files if name.startswith(_ARRAY)]
                arrays = {name.removeprefix(_ARRAY): held[name] for name in names}
                norm = head.get("clip_norm")
                found = Held(arrays, int(head["rounds"]), None if norm is None else float(norm))
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as problem:
            raise ParameterError(
                f"checkpoint must be a model of this run, got {str(self.path)!r} "
                f"({type(problem).__name__}); restore it, or remove it and begin with other arrays"
            ) from problem
        if head.get("format") != FORMAT or head.get("ledger") != self.nonce:
            rule = "be of this ledger's run: what another one spent is not counted here"
            refuse("checkpoint", str(self.path), rule, "name another file")
        return found
