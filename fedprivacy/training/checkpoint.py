"""The loop over rounds, and the checkpoint it resumes from."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from ..errors import ParameterError, integer, refuse, require
from ..ledger import Ledger
from ..outputs import in_folder, whole_file
from .private_sidecar import Notes
from .rounds import (
    Dropout,
    Loop,
    RoundBudget,
    RoundInfo,
    RoundState,
    S,
    check_books,
    check_called,
    has,
)
from .threads import limited

FORMAT = "fedprivacy checkpoint 5"

_TELLING = "fedprivacy checkpoint 4"
"""Held a hash of the data without a key, and how many bytes were sent."""


class EmptySum(UserWarning):
    """Whatever came of a round's clients was refused, and the round is spent all the same."""


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

    def then(self, state: S, history: Sequence[RoundInfo]) -> TrainingResult[S]:
        """Return what it is after some rounds more."""
        more = sum(info.upload_bytes for info in history)
        sent = None if self.upload_bytes is None else self.upload_bytes + more
        return TrainingResult((*self.history, *history), state, sent)


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
        on_round: called after every round with the state and what the server saw. Where it has a
            method ``interrupted``, that is called where a round raised.
        on_release: see the loop's ``step``.
        description: what is trained, in words; a checkpoint of another one is not gone on with.
        threads: see ``threads.limited``.

    Warns:
        EmptySum: a round had no contribution that could be summed; after the first such round, with
            its state in the checkpoint.

    Raises:
        BudgetExhausted: a round does not fit; the state before it is in the checkpoint.
        ParameterError: the checkpoint is damaged or belongs to another model or another ledger.
    """
    total = integer(1, rounds=rounds)
    fits = has(loop, "init", "step")
    require(fits, "loop", loop, "be a training loop", "FederatedAveraging(...), for instance")
    check_books(ledger, budget)
    check_called(dropout=dropout, on_round=on_round, on_release=on_release)
    if checkpoint is not None:
        in_folder(checkpoint=checkpoint)
    kept = _Unkept() if checkpoint is None else _Kept.of(checkpoint, ledger, data, description)
    past, history = kept.begun(loop), list[RoundInfo]()
    state = past.state
    # Rounds cannot be undone: to ask for fewer than were run is a slip.
    rule = f"be at least {state.round}, which the checkpoint has behind it"
    require(state.round <= total, "rounds", total, rule)
    if loop.round_mechanism is not None and ledger is not None and budget is not None:
        budget.charge(ledger)
    with limited(state, threads):
        while state.round < total:
            try:
                state, info = loop.step(
                    state,
                    data,
                    ledger=ledger,
                    budget=budget,
                    dropout=dropout,
                    on_release=on_release,
                )
                history.append(info)
                kept.keep(state, info)
            except BaseException:
                # It may have been released, and is run again where this is gone on with.
                getattr(on_round, "interrupted", lambda: None)()
                raise
            # After the checkpoint: a caller that raises here loses no round.
            if on_round is not None:
                on_round(state, info)
            if _empty(info) and not any(map(_empty, history[:-1])):
                warnings.warn(_REFUSED, EmptySum, stacklevel=2)
    if loop.round_mechanism is not None and ledger is not None and budget is not None:
        budget.confirm(ledger)
    return past.then(state, history)


_REFUSED = (
    "all that came of a round's clients was refused: not finite, as a rule, or no update at all. "
    "Nothing is learned in such rounds, which cost what others do; take a smaller learning rate or "
    "scale the inputs. No epsilon covers this warning, nor a run that is stopped because of it"
)


def _empty(info: RoundInfo) -> bool:
    """Return whether a round that was spent, as an aborted one is not, had nothing to sum."""
    return info.refused > 0 == info.arrived and not info.aborted


def resumed(
    loop: Loop[S],
    data: Any,
    checkpoint: str | Path,
    ledger: Ledger | None,
    description: str = "",
) -> TrainingResult[S]:
    """Return what a checkpoint holds, after checking that its run may be gone on with.

    Raises:
        ParameterError: see ``train``.
    """
    return _Kept.of(checkpoint, ledger, data, description).resumed(loop)


class _Unkept:
    """A run that is not kept on disk."""

    def begun(self, loop: Loop[S]) -> TrainingResult[S]:
        """Return where a run begins."""
        return TrainingResult((), loop.init(), 0)

    def keep(self, state: RoundState, info: RoundInfo) -> None:
        """Put the state after a round on disk."""


@dataclass(frozen=True)
class _Kept(_Unkept):
    """Where a run is kept: its checkpoint, and its notes."""

    path: str | Path
    notes: Notes
    ledger: Ledger | None
    data: Any
    description: str

    @classmethod
    def of(cls, path: str | Path, ledger: Ledger | None, data: Any, description: str) -> _Kept:
        return cls(path, Notes.beside(path, ledger), ledger, data, description)

    def begun(self, loop: Loop[S]) -> TrainingResult[S]:
        """Return where a run begins: at its checkpoint, or at a fresh state that is then it."""
        if Path(self.path).exists():
            found = self.resumed(loop)
            self.notes.begin()
            return found
        # The key first: the checkpoint's digest of the data is made with it.
        self.notes.begin()
        fresh = super().begun(loop)
        # Written at once: a file that cannot be written is found out before a round is spent.
        self._save(fresh.state)
        return fresh

    def resumed(self, loop: Loop[S]) -> TrainingResult[S]:
        found = Checkpoint.read(self.path, loop.device)
        found.check(self.ledger, self.notes, self.data, self.description)
        state = found.state(loop.init())
        return TrainingResult((), state, self.notes.sent(state.round))

    def keep(self, state: RoundState, info: RoundInfo) -> None:
        before = self.notes.sent(info.round)
        # Before the state: a crash between the two leaves a count too many, never too few.
        if before is not None:
            self.notes.count(state.round, before + info.upload_bytes)
        self._save(state)

    def _save(self, state: RoundState) -> None:
        # The notes hash the data once, not after every round.
        known = self.notes.digest(self.data)
        save(self.path, state, ledger=self.ledger, data=known, description=self.description)


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
        place = Path(path)
        require(place.is_file() or not place.exists(), "checkpoint", str(path), "be a file")
        content = _loaded(path, device)
        kind, number = content.get("format"), content.get("round")
        way_out = "anybody can check its hash of the data, so delete it; its rounds stay spent"
        rule = f"have format {FORMAT!r}, not the one before"
        require(kind != _TELLING, "checkpoint", str(path), rule, way_out)
        rule = f"have format {FORMAT!r}"
        require(kind == FORMAT, "checkpoint", str(path), rule, "pass another path")
        # Not isinstance: True would pass for 1.
        counted = type(number) is int and number >= 0
        rule = "hold a fitting 'round'"
        require(counted, "checkpoint", str(path), rule, "pass another path")
        return cls(place, content)

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
        counted = place is None and not private if ledger is None else passes(ledger, place)
        told = "without a ledger" if place is None else "under a ledger that is not the one given"
        rule = "be of this run: its rounds would not be counted"
        way_out = f"it was trained {told}; give its own, or another checkpoint"
        require(counted, "checkpoint", str(self.path), rule, way_out)
        rule = "be there: the key in it tells whether the data are those of before"
        way_out = "restore it, or name another checkpoint and another ledger"
        require(notes.begun, "private notes", str(notes.path), rule, way_out)
        # With a key: without the notes nobody can try guesses of the data on it.
        same = self.content.get("data") == notes.digest(data)
        rule = "be gone on with on the data that it was trained on"
        way_out = "name another checkpoint and another ledger"
        require(same, "checkpoint", str(self.path), rule, way_out)
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
            rule = f"hold a fitting {wrong[0]!r}"
            refuse("checkpoint", str(self.path), rule, "pass another path")
        found = {name: self.content[name] for name in wanted}
        return replace(like, **found)  # type: ignore[type-var]


def _loaded(path: str | Path, device: str) -> dict[str, Any]:
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
    return content if isinstance(content, dict) else {}


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


def passes(ledger: Ledger, place: Any) -> bool:
    """Return whether a ledger counts all that a file of its run does: it was at the file's place.

    Args:
        ledger: the one given; it may be another one, or its copy of before the file.
        place: what the untrusted file has in the place of ``Ledger.place``, a pair or a list.
    """
    well = isinstance(place, tuple | list) and list(map(type, place)) == [int, str]
    # A checksum is of hexadecimal digits: other text may have no bytes at all.
    return well and place[1].isascii() and ledger.passes((place[0], place[1]))


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
        fits = value.dim() == 1 if like.shape == (0,) else value.shape == like.shape
        return fits and value.dtype == like.dtype
    # A number that is not finite would spread into all that is computed from it.
    return type(value) is type(like) and math.isfinite(value if isinstance(value, float) else 0.0)
