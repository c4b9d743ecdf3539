"""The loop over rounds, and the checkpoint it resumes from."""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from ..errors import ParameterError, integer, refuse, require
from ..ledger import Ledger
from ..outputs import in_folder, whole_file
from .private_sidecar import PrivateSidecar
from .rounds import (
    Dropout,
    Loop,
    RoundBudget,
    RoundInfo,
    RoundState,
    S,
    check_bookkeeping,
    check_called,
    has,
)
from .threads import limited

FORMAT = "fedprivacy checkpoint 5"

_UNKEYED_FORMAT = "fedprivacy checkpoint 4"
"""Format with an unkeyed hash of the data and the number of bytes sent."""


class EmptySum(UserWarning):
    """All contributions of a round were refused; the round is spent nevertheless."""


@dataclass(frozen=True)
class TrainingResult(Generic[S]):
    """Result of a run.

    Args:
        history: the rounds that this call ran, in order.
        state: state after the last round.
        upload_bytes: bytes of all rounds of the state, including those before a checkpoint; None if
            the notes on those are lost. Not covered by any epsilon.
    """

    history: tuple[RoundInfo, ...]
    state: S
    upload_bytes: int | None

    def then(self, state: S, history: Sequence[RoundInfo]) -> TrainingResult[S]:
        """Return the result after more rounds."""
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
    """Run until ``rounds`` rounds are complete; resume from ``checkpoint`` if the file exists.

    A run killed at any moment resumes from its last checkpoint. A round that was released after
    that checkpoint is run again, and the ledger counts both.

    Args:
        loop: the training loop, such as ``FederatedAveraging``.
        data: the clients and their records, in the form that the loop expects.
        rounds: total number of rounds, including those before the checkpoint.
        ledger: records every round; the caller closes it.
        budget: checked before every round. It is first charged for the spent rounds of the ledger
            that it was not charged for yet.
        checkpoint: file for the state, written before the first round and after every round. It is
            bound to the ledger and the data. A checkpoint trained under another ledger, or under
            none, is not resumed, since this ledger would not count its rounds. The file is private,
            and so is its sidecar (``PrivateSidecar``). ``save_model`` writes a file that
            may be shared.
        dropout: see the loop's ``step``.
        on_round: called after every round with the state and the server's view of the round. If it
            has a method ``interrupted``, that method is called when a round raises.
        on_release: see the loop's ``step``.
        description: text that describes the training; a checkpoint with another description is not
            resumed.
        threads: see ``threads.limited``.

    Warns:
        EmptySum: a round had no contribution that could be summed. It is raised after the first
            such round, whose state is then in the checkpoint.

    Raises:
        BudgetExhausted: a round does not fit; the state before it is in the checkpoint.
        ParameterError: the checkpoint is damaged or belongs to another model or another ledger.
    """
    total = integer(1, rounds=rounds)
    fits = has(loop, "init", "step")
    require(fits, "loop", loop, "be a training loop", "pass FederatedAveraging(...), for example")
    check_bookkeeping(ledger, budget)
    check_called(dropout=dropout, on_round=on_round, on_release=on_release)
    if checkpoint is not None:
        in_folder(checkpoint=checkpoint)
    kept = (
        _NoCheckpoint()
        if checkpoint is None
        else _FileCheckpoint.of(checkpoint, ledger, data, description)
    )
    past, history = kept.begun(loop), list[RoundInfo]()
    state = past.state
    # Rounds cannot be undone, so a total below the rounds already run is a mistake.
    rule = f"be at least {state.round}, the number of rounds in the checkpoint"
    require(state.round <= total, "rounds", total, rule)
    with _charged(loop, ledger, budget), limited(state, threads):
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
                # The round may have been released; a resumed run repeats it.
                getattr(on_round, "interrupted", lambda: None)()
                raise
            # After the checkpoint: if the caller raises here, the round is already saved.
            if on_round is not None:
                on_round(state, info)
            if _empty(info) and not any(map(_empty, history[:-1])):
                warnings.warn(_REFUSED, EmptySum, stacklevel=2)
    return past.then(state, history)


@contextmanager
def _charged(loop: Loop[S], ledger: Ledger | None, budget: RoundBudget | None) -> Iterator[None]:
    """Charge a budget for the spent rounds of the ledger, and confirm them after the last round."""
    if loop.round_mechanism is None or ledger is None or budget is None:
        yield
        return
    budget.charge(ledger)
    yield
    budget.confirm(ledger)


_REFUSED = (
    "all updates of a round were refused, usually because they were not finite. These rounds "
    "cost privacy but train no parameter; use a smaller learning rate or scale the inputs. No "
    "epsilon covers this warning, or a run that is stopped because of it"
)


def _empty(info: RoundInfo) -> bool:
    """Return whether a spent round had no contribution to sum; an aborted round is not spent."""
    return info.refused > 0 == info.arrived and not info.aborted


def resumed(
    loop: Loop[S],
    data: Any,
    checkpoint: str | Path,
    ledger: Ledger | None,
    description: str = "",
) -> TrainingResult[S]:
    """Return the content of a checkpoint, after checking that its run may be resumed.

    Raises:
        ParameterError: see ``train``.
    """
    return _FileCheckpoint.of(checkpoint, ledger, data, description).resumed(loop)


class _NoCheckpoint:
    """A run without a checkpoint on disk."""

    def begun(self, loop: Loop[S]) -> TrainingResult[S]:
        """Return the first state of the run."""
        return TrainingResult((), loop.init(), 0)

    def keep(self, state: RoundState, info: RoundInfo) -> None:
        """Write the state after a round to disk."""


@dataclass(frozen=True)
class _FileCheckpoint(_NoCheckpoint):
    """A run with a checkpoint and notes on disk."""

    path: str | Path
    notes: PrivateSidecar
    ledger: Ledger | None
    data: Any
    description: str

    @classmethod
    def of(
        cls, path: str | Path, ledger: Ledger | None, data: Any, description: str
    ) -> _FileCheckpoint:
        return cls(path, PrivateSidecar.beside(path, ledger), ledger, data, description)

    def begun(self, loop: Loop[S]) -> TrainingResult[S]:
        """Return the state of the checkpoint, or a new state that becomes the checkpoint."""
        if Path(self.path).exists():
            found = self.resumed(loop)
            self.notes.begin()
            return found
        # The key first: the checkpoint's digest of the data depends on it.
        self.notes.begin()
        fresh = super().begun(loop)
        # Written at once: an unwritable file raises before a round is spent.
        self._save(fresh.state)
        return fresh

    def resumed(self, loop: Loop[S]) -> TrainingResult[S]:
        found = Checkpoint.read(self.path, loop.device)
        found.check(self.ledger, self.notes, self.data, self.description)
        state = found.state(loop.init())
        return TrainingResult((), state, self.notes.sent(state.round))

    def keep(self, state: RoundState, info: RoundInfo) -> None:
        before = self.notes.sent(info.round)
        # Before the state: a crash between the two makes the count too large, never too small.
        if before is not None:
            self.notes.count(state.round, before + info.upload_bytes)
        self._save(state)

    def _save(self, state: RoundState) -> None:
        # The notes hash the data once, not after every round.
        known = self.notes.digest(self.data)
        save(self.path, state, ledger=self.ledger, data=known, description=self.description)


@dataclass(frozen=True)
class Checkpoint:
    """A file that ``save`` wrote, read once. It is untrusted: no code in it is executed.

    Args:
        path: path of the file.
        content: its entries, by name.
    """

    path: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, path: str | Path, device: str = "cpu") -> Checkpoint:
        """Read a file; its tensors are put on ``device``.

        Raises:
            ParameterError: no such file, or it is not a checkpoint of this format.
        """
        # Opening a pipe would block for ever.
        place = Path(path)
        require(place.is_file() or not place.exists(), "checkpoint", str(path), "be a file")
        content = _loaded(path, device)
        kind, number = content.get("format"), content.get("round")
        way_out = (
            "anyone can test guesses against its hash of the data, so delete it; its rounds "
            "stay spent"
        )
        rule = f"have format {FORMAT!r}, not the previous one"
        require(kind != _UNKEYED_FORMAT, "checkpoint", str(path), rule, way_out)
        rule = f"have format {FORMAT!r}"
        require(kind == FORMAT, "checkpoint", str(path), rule, "pass another path")
        # isinstance would accept True as 1.
        counted = type(number) is int and number >= 0
        rule = "contain a valid 'round'"
        require(counted, "checkpoint", str(path), rule, "pass another path")
        return cls(place, content)

    def check(
        self,
        ledger: Ledger | None,
        notes: PrivateSidecar,
        data: Any,
        description: str = "",
        *,
        private: bool = False,
    ) -> None:
        """Raise ParameterError unless its run may be resumed.

        Args:
            ledger: it must count every round of the checkpoint; None if there is no ledger, or if
                the ledger is created later (``private``).
            notes: notes of its run; they hold the key of its digest of the data.
            data: they must be the data of the earlier rounds.
            description: it must equal the description in the checkpoint.
            private: whether the rounds must be counted.
        """
        # The state before the first round does not depend on the data, so every ledger is accepted.
        if not self.content["round"]:
            return
        place = self.content.get("ledger")
        # Rounds without a ledger stay without one; a ledger must contain the checkpoint's place in
        # it.
        counted = place is None and not private if ledger is None else passes(ledger, place)
        place_of_run = "without a ledger" if place is None else "under a different ledger"
        rule = "be of the same run, since its rounds would not be counted"
        way_out = (
            f"it was trained {place_of_run}; pass the ledger of its run, or another checkpoint"
        )
        require(counted, "checkpoint", str(self.path), rule, way_out)
        rule = "exist, since its key shows whether the data are unchanged"
        way_out = "restore it, or name another checkpoint and another ledger"
        require(notes.begun, "private notes", str(notes.path), rule, way_out)
        # The digest is keyed: without the notes, guesses of the data cannot be tested against it.
        same = self.content.get("data") == notes.digest(data)
        rule = "be resumed with its own training data"
        way_out = "name another checkpoint and another ledger"
        require(same, "checkpoint", str(self.path), rule, way_out)
        known = self.content.get("description")
        if known != description:
            rule = (
                f"be resumed with its original settings, but {_differing(known, description)} "
                "differ"
            )
            refuse("checkpoint", str(self.path), rule, "name another checkpoint")

    def state(self, like: S) -> S:
        """Return the state; see ``load``."""
        if self.content.get("kind") != type(like).__name__:
            rule = f"contain a {type(like).__name__}"
            refuse("checkpoint", str(self.path), rule, "pass another path")
        wanted = _fields(like)
        wrong = [name for name, value in wanted.items() if not _fits(self.content.get(name), value)]
        if wrong:
            rule = f"contain a valid {wrong[0]!r}"
            refuse("checkpoint", str(self.path), rule, "pass another path")
        found = {name: self.content[name] for name in wanted}
        return replace(like, **found)  # type: ignore[type-var]


def _loaded(path: str | Path, device: str) -> dict[str, Any]:
    try:
        _check_unpacked(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about files of other formats
            # Without weights_only a pickle from an untrusted source could run code.
            content = torch.load(path, map_location=device, weights_only=True)
    # torch raises many kinds of errors for files of other formats.
    except Exception as error:
        raise ParameterError(
            f"checkpoint must be a readable fedprivacy checkpoint, got {str(path)!r} "
            f"({type(error).__name__}); delete it and name a new ledger to start again (the "
            "rounds of the old ledger stay spent)"
        ) from error
    return content if isinstance(content, dict) else {}


def _check_unpacked(path: str | Path) -> None:
    """Raise if a small file would unpack to a large one: torch saves without compression."""
    with zipfile.ZipFile(path) as archive:
        sizes = [(member.compress_size, member.file_size) for member in archive.infolist()]
    if any(packed != whole for packed, whole in sizes):
        raise ValueError("it is compressed")


def _differing(known: Any, wanted: str) -> str:
    """Return the names of the entries that differ in two descriptions, if both are JSON objects."""
    try:
        parts = [json.loads(text) for text in (known, wanted)]
        flat = [part | part.pop("settings", {}) for part in parts]
        return ", ".join(n for n in flat[1] if flat[0].get(n) != flat[1][n]) or "their parts"
    except (TypeError, ValueError, AttributeError):
        # Other callers describe the training in free text: show both in full.
        return f"{known!r} and {wanted!r}"


def passes(ledger: Ledger, place: Any) -> bool:
    """Return whether a ledger counts every round of a file: whether it contains the file's place.

    Args:
        ledger: the given ledger; it may be another ledger, or a copy that is older than the file.
        place: the untrusted file's entry for ``Ledger.place``, a pair or a list.
    """
    well = isinstance(place, tuple | list) and list(map(type, place)) == [int, str]
    # A checksum is hexadecimal; other text may not be encodable as bytes.
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

    Only the owner may read the file.

    Args:
        path: file to replace; ``path + ".tmp"`` holds the new content in the meantime.
        state: the state to write, a dataclass of tensors, numbers and None.
        ledger: the ledger that counts its rounds; None without a ledger.
        data: keyed digest of the training data, by ``PrivateSidecar.digest``.
        description: text that describes the training.

    Raises:
        OSError: it cannot be written; the error names the file.
    """
    content: dict[str, Any] = {"format": FORMAT, "kind": type(state).__name__}
    content["ledger"] = None if ledger is None else ledger.place
    content["data"], content["description"] = data, description
    content |= {name: _alone(value) for name, value in _fields(state).items()}
    # To memory first: the file is either replaced completely or not changed.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    whole_file(path, buffer.getbuffer(), mode=0o600)


def load(path: str | Path, like: S, device: str = "cpu") -> S:
    """Read a state. The file is untrusted: no code in it is executed.

    Args:
        path: a file that ``save`` wrote.
        like: a state of the same loop, such as ``loop.init()``; every field read must be of the
            same type, and tensors of the same shape.
        device: device of the returned tensors.

    Raises:
        ParameterError: no such file, or it is not a checkpoint of this format and loop.
    """
    return Checkpoint.read(path, device).state(like)


def _fields(state: RoundState) -> dict[str, Any]:
    return {f.name: getattr(state, f.name) for f in fields(state)}  # type: ignore[arg-type]


def _alone(value: Any) -> Any:
    """Return a copy of a tensor in new memory: torch saves the whole storage of a view."""
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def _fits(value: object, like: object) -> bool:
    if isinstance(value, Tensor) and isinstance(like, Tensor):
        # An empty row in a new state accepts any length, because the data decide the length.
        fits = value.dim() == 1 if like.shape == (0,) else value.shape == like.shape
        return fits and value.dtype == like.dtype
    # A number that is not finite would make all later results not finite.
    return type(value) is type(like) and math.isfinite(value if isinstance(value, float) else 0.0)
