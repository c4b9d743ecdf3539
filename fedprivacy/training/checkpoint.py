"""The loop over rounds, and the checkpoint it resumes from."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from ..errors import ParameterError, integer, refuse
from ..ledger import Ledger
from ..outputs import whole_file
from .notes import Notes
from .rounds import Dropout, Loop, RoundBudget, RoundInfo, RoundState, S, charge_past
from .threads import limited

FORMAT = "fedprivacy checkpoint 5"

_TELLING = "fedprivacy checkpoint 4"
"""Held a hash of the data without a key, and how many bytes were sent."""


@dataclass(frozen=True)
class TrainingResult(Generic[S]):
    """What a run ended with.

    Args:
        history: the rounds that this call ran, in order.
        state: after the last one.
        upload_bytes: of all rounds behind the state, those before a checkpoint included; None
            where the notes on those are lost. Not covered by any epsilon.
    """

    history: tuple[RoundInfo, ...]
    state: S
    upload_bytes: int | None


def train(
    loop: Loop[S],
    data: Any,
    *,
    rounds: int,
    ledger: Ledger | None = None,
    budget: RoundBudget | None = None,
    checkpoint: str | Path | None = None,
    dropout: Dropout | None = None,
    on_round: Callable[[S, RoundInfo], None] | None = None,
    on_release: Callable[[S], None] | None = None,
    description: str = "",
    threads: int | None = None,
) -> TrainingResult[S]:
    """Run rounds until ``rounds`` were run, resuming from ``checkpoint`` where it exists.

    A run killed at any moment resumes from its last checkpoint; a round that was released after
    that checkpoint is run again, and both count in the ledger.

    Args:
        loop: what a round does: ``FederatedAveraging`` or another loop.
        data: the clients and their records, as the loop wants them.
        rounds: total number of rounds, those before the checkpoint included.
        ledger: records every round; the caller closes it.
        budget: asked before every round. It is first charged with the rounds that the ledger says
            were spent and that it was not charged with.
        checkpoint: file for the state, written before the first round and after every round. It
            is bound to the ledger and the data: what was trained under another ledger, or under
            none, is not gone on with, since this one would not count it. It is private, and so are
            the notes beside the ledger (``notes.Notes``); ``save_model`` writes what may be handed
            over.
        dropout: see the loop's ``step``.
        on_round: called after every round with the state and what the server saw.
        on_release: see the loop's ``step``.
        description: what is trained, in words; a checkpoint of another one is not gone on with.
        threads: see ``threads.limited``.

    Raises:
        BudgetExhausted: a round does not fit; the state before it is in the checkpoint.
        ParameterError: the checkpoint is damaged or belongs to another model or another ledger.
    """
    total = integer(1, rounds=rounds)
    notes = None if checkpoint is None else Notes.beside(checkpoint, ledger)
    start = _start(loop, data, checkpoint, notes, ledger, description)
    state, sent, history = start.state, start.upload_bytes, list[RoundInfo]()
    # Rounds cannot be undone: to ask for fewer than were run is a slip.
    if state.round > total:
        refuse("rounds", total, f"be at least {state.round}, which the checkpoint has behind it")
    if ledger is not None and budget is not None and loop.round_mechanism is not None:
        charge_past(ledger, budget)
    # The data are hashed once, not after every round.
    known = "" if notes is None else notes.digest(data)
    with limited(state, threads):
        while state.round < total:
            state, info = loop.step(
                state, data, ledger=ledger, budget=budget, dropout=dropout, on_release=on_release
            )
            history.append(info)
            sent = None if sent is None else sent + info.upload_bytes
            if checkpoint is not None and notes is not None:
                # Before the state: a crash between the two leaves a count too many, never too few.
                notes.count(state.round, sent)
                save(checkpoint, state, ledger=ledger, data=known, description=description)
            # After the checkpoint: a caller that raises here loses no round.
            if on_round is not None:
                on_round(state, info)
    return TrainingResult(tuple(history), state, sent)


def resumed(
    loop: Loop[S],
    data: Any,
    checkpoint: str | Path,
    ledger: Ledger | None,
    description: str = "",
    notes: Notes | None = None,
) -> TrainingResult[S]:
    """Return what a checkpoint holds, after checking that its run may be gone on with.

    Raises:
        ParameterError: see ``train``.
    """
    found, notes = (
        Checkpoint.read(checkpoint, loop.device),
        notes or Notes.beside(checkpoint, ledger),
    )
    found.check(ledger, notes, data, description)
    state = found.state(loop.init())
    return TrainingResult((), state, notes.sent(state.round))


def _start(
    loop: Loop[S],
    data: Any,
    checkpoint: str | Path | None,
    notes: Notes | None,
    ledger: Ledger | None,
    description: str,
) -> TrainingResult[S]:
    """Return where a run begins: at its checkpoint, or at a fresh state that is then it."""
    if checkpoint is None or notes is None:
        return TrainingResult((), loop.init(), 0)
    if Path(checkpoint).exists():
        found = resumed(loop, data, checkpoint, ledger, description, notes)
        notes.begin()
        return found
    # The key first: the checkpoint's digest of the data is made with it.
    notes.begin()
    state = loop.init()
    # Written at once: a file that cannot be written is found out before a round is spent.
    save(checkpoint, state, ledger=ledger, data=notes.digest(data), description=description)
    return TrainingResult((), state, 0)


@dataclass(frozen=True)
class Checkpoint:
    """A file that ``save`` wrote, read once; it is untrusted, nothing in it is executed.

    Args:
        path: where it was read.
        content: what it holds, by name.
    """

    path: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, path: str | Path, device: str = "cpu") -> Checkpoint:
        """Read a file; its tensors are put on ``device``.

        Raises:
            ParameterError: no such file, or it is not a checkpoint of this format.
        """
        # Opening a pipe waits for ever.
        if Path(path).exists() and not Path(path).is_file():
            refuse("checkpoint", str(path), "be a file")
        try:
            _check_unpacked(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's own words on files that are not its own
                # Without weights_only a stranger's pickle would run code.
                content = torch.load(path, map_location=device, weights_only=True)
        # Foreign bytes make torch raise errors of many kinds.
        except Exception as error:
            raise ParameterError(
                f"checkpoint must be a readable fedprivacy checkpoint, got {str(path)!r} "
                f"({type(error).__name__}); delete it and name a new ledger to start again (what "
                "the old one counted stays spent)"
            ) from error
        kind = content.get("format") if isinstance(content, dict) else None
        if kind == _TELLING:
            way_out = "anybody can check its hash of the data, so delete it; its rounds stay spent"
            refuse("checkpoint", str(path), f"have format {FORMAT!r}, not the one before", way_out)
        if kind != FORMAT:
            refuse("checkpoint", str(path), f"have format {FORMAT!r}", "pass another path")
        # Not isinstance: True would pass for 1.
        number = content.get("round")
        if type(number) is not int or number < 0:
            refuse("checkpoint", str(path), "hold a fitting 'round'", "pass another path")
        return cls(Path(path), content)

    def check(
        self,
        ledger: Ledger | None,
        notes: Notes,
        data: Any,
        description: str = "",
        *,
        private: bool = False,
    ) -> None:
        """Raise ParameterError unless it may be gone on with.

        Args:
            ledger: it must count every round behind the checkpoint; None where there is none, or
                where it is yet to be created (``private``).
            notes: of its run; the key to its digest of the data is in them.
            data: they must be those of the rounds before.
            description: what is trained must be as it was described then.
            private: whether the rounds must be counted.
        """
        # A fresh state holds nothing of the data: any ledger may begin with it.
        if not self.content["round"]:
            return
        place = self.content.get("ledger")
        # Rounds without a ledger stay without one; a ledger must have been where they ended.
        counted = place is None and not private if ledger is None else _passes(ledger, place)
        if not counted:
            told = "without a ledger"
            if place is not None:
                told = "under a ledger that is not the one given"
            refuse(
                "checkpoint",
                str(self.path),
                "be of this run: its rounds would not be counted",
                f"it was trained {told}; give its own, or another checkpoint",
            )
        if not notes.begun:
            rule = "be there: the key in it tells whether the data are those of before"
            way_out = "restore it, or name another checkpoint and another ledger"
            refuse("private notes", str(notes.path), rule, way_out)
        # With a key: without the notes nobody can try guesses of the data on it.
        if self.content.get("data") != notes.digest(data):
            rule = "be gone on with on the data that it was trained on"
            way_out = "name another checkpoint and another ledger"
            refuse("checkpoint", str(self.path), rule, way_out)
        known = self.content.get("description")
        if known != description:
            rule = f"be gone on with as it was begun: {_differing(known, description)} differ"
            refuse("checkpoint", str(self.path), rule, "name another checkpoint")

    def state(self, like: S) -> S:
        """Return the state; see ``load``."""
        if self.content.get("kind") != type(like).__name__:
            rule = f"hold a {type(like).__name__}"
            refuse("checkpoint", str(self.path), rule, "pass another path")
        wanted = _fields(like)
        wrong = [name for name, value in wanted.items() if not _fits(self.content.get(name), value)]
        if wrong:
            refuse(
                "checkpoint", str(self.path), f"hold a fitting {wrong[0]!r}", "pass another path"
            )
        found = {name: self.content[name] for name in wanted}
        return replace(like, **found)  # type: ignore[type-var]


def _check_unpacked(path: str | Path) -> None:
    """Raise where a small file would unpack to a large one: torch packs nothing that it saves."""
    with zipfile.ZipFile(path) as archive:
        sizes = [(member.compress_size, member.file_size) for member in archive.infolist()]
    if any(packed != whole for packed, whole in sizes):
        raise ValueError("it is packed")


def _differing(known: Any, asked: str) -> str:
    """Return the names of what differs in two descriptions, where they are JSON objects."""
    try:
        parts = [json.loads(text) for text in (known, asked)]
        flat = [part | part.pop("settings", {}) for part in parts]
        return ", ".join(n for n in flat[1] if flat[0].get(n) != flat[1][n]) or "their parts"
    except (TypeError, ValueError, AttributeError):
        # Descriptions of other callers are plain words: both are told whole.
        return f"{known!r} and {asked!r}"


def _passes(ledger: Ledger, place: Any) -> bool:
    well = isinstance(place, tuple) and len(place) == 2
    return well and ledger.passes(place)


def save(
    path: str | Path,
    state: RoundState,
    *,
    ledger: Ledger | None = None,
    data: str = "",
    description: str = "",
) -> None:
    """Write a state so that a crash leaves either the old file or the new one.

    Nobody but its owner may read the file.

    Args:
        path: file to replace; ``path + ".tmp"`` is used on the way.
        state: what to write: a dataclass of tensors, numbers and None.
        ledger: where the rounds behind it are counted; None if nowhere.
        data: keyed digest of what it was trained on, by ``notes.Notes.digest``.
        description: what is trained, in words.

    Raises:
        OSError: it cannot be written; the error names the file.
    """
    content: dict[str, Any] = {"format": FORMAT, "kind": type(state).__name__}
    content["ledger"] = None if ledger is None else ledger.place
    content["data"], content["description"] = data, description
    content |= {name: _alone(value) for name, value in _fields(state).items()}
    # To memory first: the file is replaced by all of it, or stays.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    whole_file(path, buffer.getvalue(), mode=0o600)


def load(path: str | Path, like: S, device: str = "cpu") -> S:
    """Read a state; the file is untrusted, nothing in it is executed.

    Args:
        path: a file that ``save`` wrote.
        like: a state of the same loop, such as ``loop.init()``; every field read must be of the
            same type, and tensors of the same shape.
        device: where to put the tensors.

    Raises:
        ParameterError: no such file, or it is not a checkpoint of this format and loop.
    """
    return Checkpoint.read(path, device).state(like)


def _fields(state: RoundState) -> dict[str, Any]:
    return {f.name: getattr(state, f.name) for f in fields(state)}  # type: ignore[arg-type]


def _alone(value: Any) -> Any:
    """Return a tensor in memory of its own: torch saves the whole storage that a view is of."""
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def _fits(value: object, like: object) -> bool:
    if isinstance(value, Tensor) and isinstance(like, Tensor):
        # An empty row of a fresh state is one whose length the data decide.
        grows = like.shape == (0,) and value.dim() == 1
        return (grows or value.shape == like.shape) and value.dtype == like.dtype
    # A number that is not finite would spread into all that is computed from it.
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return type(value) is type(like)
