"""A run on disk: its ledger, and its model, which was released and is therefore not secret."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import LedgerError, ParameterError, refuse
from ...ledger import Ledger
from ...outputs import whole_file
from ...questions.budget import Budget
from ...training.checkpoint import passes
from .wire import Arrays

FORMAT = "fedprivacy flower model 2"
_HEAD = "head"
_ARRAY = "array:"
"""Prefix of the names of arrays, so that no array can be taken for the head."""


class SavedContent(NamedTuple):
    """The content of the file.

    Attributes:
        arrays: the model.
        rounds: number of rounds of the model.
        clip_norm: of the next round if it is learned; otherwise None.
    """

    arrays: Arrays
    rounds: int
    clip_norm: float | None


class Saved:
    """A model with its number of rounds, bound to a place in the ledger that counts them.

    The place is a checksum of lines with a random nonce. It reveals no content without the ledger.

    Args:
        path: the file.
        ledger: of the run.
    """

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger

    def write(self, held: SavedContent) -> None:
        """Write a model to disk; a crash leaves the old one or the new one."""
        fields = {"rounds": held.rounds, "clip_norm": held.clip_norm}
        head = json.dumps({"format": FORMAT, "ledger": self.ledger.place, **fields})
        named = {_ARRAY + name: array for name, array in held.arrays.items()}
        buffer = io.BytesIO()
        # A dictionary by keywords, because arrays may have any names.
        np.savez(buffer, **{_HEAD: np.array(head), **named})  # type: ignore[arg-type]
        whole_file(self.path, buffer.getvalue())

    def read(self) -> SavedContent | None:
        """Return the model, its rounds and norm; None if there is no file.

        Raises:
            ParameterError: it is damaged, or the ledger does not count its rounds.
        """
        if not self.path.exists():
            return None
        try:
            # Opened here, because numpy does not close a damaged file.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                head = json.loads(str(held[_HEAD]))
                names = [name for name in held.files if name.startswith(_ARRAY)]
                arrays = {name.removeprefix(_ARRAY): held[name] for name in names}
                norm = head.get("clip_norm")
                found = SavedContent(
                    arrays, int(head["rounds"]), None if norm is None else float(norm)
                )
        except Exception as problem:  # a damaged file may raise any exception of its reader
            raise ParameterError(
                f"checkpoint must be a model of this run, got {str(self.path)!r} "
                f"({type(problem).__name__}); restore it, or remove it and start with new "
                "arrays"
            ) from problem
        if head.get("format") != FORMAT:
            way_out = "finish the run with the version that started it"
            refuse("checkpoint", head.get("format"), f"be a {FORMAT!r}", way_out)
        if not passes(self.ledger, head.get("ledger")):
            rule = "be of the run of this ledger, which must count the rounds before the checkpoint"
            way_out = "pass the unchanged ledger of that run, or name another file"
            refuse("checkpoint", str(self.path), rule, way_out)
        return found


def opened(
    path: Path, budget: Budget, seed: int | None, engine: str, unit: str = "client"
) -> Ledger:
    """Return the ledger of a run, a new one or the existing one.

    Raises:
        LedgerError: it has another unit, adjacency or observer, or cannot be resumed.
    """
    if not path.exists():
        return Ledger.create(
            path,
            unit=unit,
            adjacency=budget.adjacency,
            observer=budget.observer,
            claim=(budget.epsilon, budget.delta),
            schedule="adaptive" if budget.adaptive else "fixed",
            budget_rule=budget.rule,
            seed_policy="operating system" if seed is None else "fixed",
            description=f"{engine}, by fedprivacy",
        )
    found = Ledger.open(path, resume=True)
    wanted = (unit, str(budget.adjacency), str(budget.observer))
    if tuple(map(str, found.facts)) != wanted:
        found.release()
        raise LedgerError(
            f"{path} is of {tuple(map(str, found.facts))}, but the budget is of {wanted}; "
            "resume with the original budget, or name another file"
        )
    return found
