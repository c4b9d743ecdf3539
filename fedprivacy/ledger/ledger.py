"""The ledger: writing what a run does, reading what it did."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Self

import msgspec
import numpy as np

from ..errors import LedgerError, claimed, integer, member, non_negative, positive, refuse
from ..mechanisms import Mechanism
from ..outputs import free, path_of, sync_folder
from ..relations import Adjacency, Observer, Unit
from ..version import VERSION
from . import files, lines
from .contents import Contents
from .history import History, passes, read

_RESUME = "release it and use Ledger.open(path, resume=True)"


class Ledger(Contents):
    """What a private run did, on disk: made by ``create``, read by ``open``.

    Use it in a ``with`` block, or call ``release``: both give the file and its lock back and leave
    the ledger open, to be resumed. Only ``close`` says that the run is complete.
    """

    def __init__(self, path: Path, history: History, fd: int | None) -> None:
        """Use ``create`` or ``open``."""
        super().__init__(path, history)
        # Absolute, so that a later chdir does not lead `estranged` to another file.
        self._place = path.absolute()
        self._fd = fd
        # A ledger that is dropped without `release` still gives its lock back when it is collected.
        self._finalizer = (
            None if fd is None else weakref.finalize(self, files.let_go, fd, os.getpid())
        )
        # A forked child has the open file and its lock too: two would write with one lock.
        self._writer = os.getpid()
        self._one_writer = Lock()
        # Of the file after our last write; None before the first one.
        self._stamp: files.Stamp | None = None
        # Whether a line was written that a crash of the machine might still lose.
        self._waiting = False
        self._begun: int | None = None
        self._text: tuple[Mechanism, bytes] | None = None
        self._why_not = "" if fd is not None else "it was opened for reading"
        self._before_close: list[Callable[[], None]] = []

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        *,
        unit: Unit | str,
        adjacency: Adjacency | str,
        observer: Observer | str = Observer.AGGREGATE,
        claim: tuple[float, float] | None = None,
        schedule: str = "fixed",
        budget_rule: str | None = None,
        seed_policy: str = "operating system",
        plan: Mechanism | None = None,
        description: str = "",
    ) -> Self:
        """Begin a ledger in a new file.

        Args:
            path: the file; it must not exist.
            unit: "client" or "record".
            adjacency: how neighbouring data sets differ.
            observer: who looks.
            claim: (epsilon, delta) that the run is meant to keep.
            schedule: "fixed" beforehand or "adaptive", depending on outputs.
            budget_rule: which rule decides whether a round fits the budget, in words.
            seed_policy: "operating system", or "fixed" for runs that are not private.
            plan: the whole run as planned.
            description: free text.

        Raises:
            ParameterError: a value out of its range.
            LedgerError: the file exists or cannot be written.
        """
        header = lines.HeaderLine(
            format=lines.FORMAT,
            schema=lines.SCHEMA,
            unit=member(Unit, unit=unit),
            adjacency=member(Adjacency, adjacency=adjacency),
            observer=member(Observer, observer=observer),
            claim=_claim(claim),
            schedule=member(lines.Schedule, schedule=schedule),
            budget_rule=None if budget_rule is None else _text(budget_rule=budget_rule),
            seed_policy=member(lines.SeedPolicy, seed_policy=seed_policy),
            versions=_versions(),
            created=_now(),
            description=_text(description=description),
            plan=msgspec.Raw(
                b"null" if plan is None else lines.encoded("plan", plan, member(Unit, unit=unit))
            ),
            # Headers alike in all else must still begin different chains of checksums.
            nonce=os.urandom(16).hex(),
        )
        target = path_of(path=path)
        # Under a hidden name first: whoever finds the real one finds a whole header behind it.
        unborn = target.with_name(f".{header.nonce}")
        with files.explained(target, "create it"):
            # Early and cheap; `born` asks again: its link fails where the name is taken by then.
            if target.exists():
                raise FileExistsError(f"{target} is there already")
            # O_APPEND: a write never lands on an earlier line, wherever the position stands.
            fd = os.open(
                unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | files.BINARY, 0o644
            )
        ledger = cls(target, History(), fd)
        # `_append` looks whether the name still leads to this file: for now that is the hidden one.
        ledger._place = unborn.absolute()
        with files.explained(target, "create it"):
            try:
                # Locked before it has its name, so that nobody can resume it in between.
                files.lock(fd, target)
                ledger._append(header)
                files.born(unborn, target)
            finally:
                # After a link two names lead to the file; after a rename this one is gone already.
                unborn.unlink(missing_ok=True)
            ledger._place = target.absolute()
            # Else a crash of the machine may lose the name, and with it what was spent.
            sync_folder(target.parent)
        return ledger

    @classmethod
    def open(cls, path: str | PathLike[str], *, resume: bool = False) -> Self:
        """Read a ledger, checking every line.

        A half-written last line is left out, and ``notes`` says so.

        Args:
            path: the file.
            resume: whether to go on writing. The file is then locked, and a half-written last line
                is moved to ``<name>.torn``. Reading alone needs no lock and changes nothing.

        Raises:
            ForeignLedger: not a ledger of ours, or of a later schema.
            DamagedLedger: a line was changed or lost; the message names it.
            LedgerError: no such file, or, when resuming, a closed or locked one.
        """
        target = path_of(path=path)
        if not resume:
            return cls(target, read(target), None)
        with files.explained(target, "resume it"):
            fd = os.open(target, os.O_RDWR | os.O_APPEND | files.BINARY)
        ledger = cls(target, History(), fd)
        try:
            with files.explained(target, "resume it"):
                files.lock(fd, target)
                # Read under the lock only: before it another writer may still be adding lines.
                ledger._history = read(target)
                ledger._resume()
        # An interrupt, too, has to give the lock back.
        except BaseException:
            ledger.release()
            raise
        return ledger

    def _resume(self) -> None:
        if self.closed:
            raise LedgerError(
                f"{self.path} is closed, its run is complete; create a new ledger, whose audit "
                "does not count these rounds (a budget does: budget.charge(Ledger.open(path)))"
            )
        if self._history.torn:
            self._cut(self._history.torn)
        # A copy that is resumed as well gets another token, so that the two differ from here on.
        self._append(lines.ResumeLine(token=_token(), when=_now()))

    def _cut(self, torn: bytes) -> None:
        """Move a half-written line out of the file."""
        # Set aside and synced before the cut: a crash between leaves the bytes twice, never lost.
        aside = self.path.with_name(self.path.name + ".torn")
        free(aside)
        with files.explained(aside, "set a half-written line aside"):
            # Through no link, and no pipe that would wait for a reader.
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | files.BINARY | files.NO_LINK
            fd = os.open(aside, how, 0o644)
            with os.fdopen(fd, "ab") as file:
                file.write(torn)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
        os.ftruncate(self._writable(), self._history.size)
        self._history.torn = b""
        # The last note says that the torn line was left out; the repair line's own replaces it.
        self._history.notes.pop()
        # In the chain itself: a reader sees that bytes were cut here, and how many.
        self._append(lines.RepairLine(cut=len(torn)))
        self._history.notes[-1] += f"; the cut bytes are in {aside}"

    # Writing

    def intent(self, mechanism: Mechanism, *, clip_norm: float, noise_std: float) -> int:
        """Begin a round; to be called before its noise is drawn. The line is on disk on return.

        Args:
            mechanism: this one round's mechanism as priced.
            clip_norm: norm that contributions are clipped to.
            noise_std: planned std of the noise in the sum.

        Returns:
            The round's number, for ``done`` or ``abort``.

        Raises:
            ParameterError: a value out of its range, or a mechanism for another unit.
            LedgerError: the line could not be written; then release nothing.
        """
        number = len(self._history.rounds)
        # Loops pass one object for every round: it is checked and encoded once.
        if self._text is None or self._text[0] is not mechanism:
            held = self._history.held
            self._text = (mechanism, lines.encoded("mechanism", mechanism, self.facts.unit, held))
        event = lines.IntentLine(
            round=number,
            clip_norm=positive(clip_norm=clip_norm),
            noise_std=positive(noise_std=noise_std),
            mechanism=msgspec.Raw(self._text[1]),
            token=_token(),
        )
        self._append(event)
        # After the append: an intent that is not on disk leaves no round to finish.
        self._begun = number
        return number

    def done(
        self,
        round: int,
        *,
        cohort: int,
        arrived: int,
        refused: int,
        noise_std: float,
        denominator: float | None = None,
        mask: str | None = None,
    ) -> None:
        """Confirm a round and record what happened. No identities are recorded.

        The line is on disk with the next one that must be: an intent, or a close; or once ``place``
        was asked for, or the ledger released. A crash of the machine before then leaves a round
        that was begun, which counts as spent all the same.

        Args:
            round: what ``intent`` returned.
            cohort: number of participants really drawn.
            arrived: number of contributions in the sum.
            refused: number of contributions left out, such as non-finite ones.
            noise_std: std of the noise really in the sum; colluders' shares count too.
            denominator: what the noisy sum was divided by: a public number. Under add_remove one
                that follows the number of units tells it, so an audit asks for this line.
            mask: fingerprint of the coordinates that travelled, where not all did.

        Raises:
            ParameterError: a value out of its range.
            LedgerError: not the round under way, or the line could not be written. Either way the
                round counts as spent.
        """
        event = lines.DoneLine(
            round=integer(0, round=round),
            cohort=integer(0, cohort=cohort),
            arrived=integer(0, arrived=arrived),
            refused=integer(0, refused=refused),
            noise_std=non_negative(noise_std=noise_std),
            denominator=None if denominator is None else positive(denominator=denominator),
            mask=None if mask is None else _text(mask=mask),
            token=_token(),
        )
        for name in ("arrived", "refused"):
            if getattr(event, name) > event.cohort:
                refuse(name, getattr(event, name), f"be at most cohort = {event.cohort}")
        self._finish(event)

    def abort(self, round: int, reason: str) -> None:
        """Record that nothing of a round was, or will be, released: it is not spent.

        Args:
            round: what ``intent`` returned.
            reason: why, in words.

        Raises:
            ParameterError: a value out of its range.
            LedgerError: not the round under way, or the line could not be written.
        """
        self._finish(lines.AbortLine(round=integer(0, round=round), reason=_text(reason=reason)))

    def _finish(self, event: lines.DoneLine | lines.AbortLine) -> None:
        # First: that a ledger is closed or released explains more than a round out of turn.
        self._writable()
        # In its turn by the file, yet begun by another object: what that one released is unknown.
        if self._history.misplaced(event) == "" and event.round != self._begun:
            raise LedgerError(
                f"round {event.round} of {self.path} was begun before the ledger was resumed; "
                "whether it was released is not known, so it stays spent"
            )
        self._append(event, wait=False)
        self._begun = None

    def void(self, reason: str) -> int:
        """Record that the rounds are not what was done: nothing is certified. They stay spent.

        For a release without an intent, or a cohort that was drawn, looked at and dropped.

        Args:
            reason: in words that anybody may read: audits print it.

        Returns:
            The number of the line, for ``lift``.

        Raises:
            ParameterError: the reason is not a string.
            LedgerError: the line could not be written.
        """
        number = self._history.voided
        self._append(lines.VoidLine(number=number, reason=_text(reason=reason)))
        return number

    def lift(self, number: int) -> None:
        """Record that the cause of an earlier ``void`` is gone: the rounds are what was done.

        Args:
            number: what ``void`` returned.

        Raises:
            ParameterError: the number is not a whole number.
            LedgerError: no such line is in force, or the line could not be written.
        """
        self._append(lines.LiftLine(number=integer(0, number=number)))

    def before_close(self, check: Callable[[], None]) -> None:
        """Call a check before this object closes the ledger; it raises where that is too early."""
        self._before_close.append(check)

    def close(self) -> None:
        """Write that the run is complete, and release the file; nothing can be added later.

        Raises:
            LedgerError: opened for reading, released, or already closed.
            ParameterError: a check of ``before_close`` refuses.
        """
        self._writable()
        for check in self._before_close:
            check()
        # The number of rounds shows a reader that none is missing.
        self._append(lines.CloseLine(rounds=len(self._history.rounds)))
        self.release()

    def release(self) -> None:
        """Give the file and its lock back without closing the ledger; again does no harm."""
        # Once only: by then the descriptor's number may be another file's.
        if self._finalizer is not None and self._finalizer.alive:
            try:
                # A forked child has written nothing; it only closes its copy of the descriptor.
                if self._writer == os.getpid():
                    self._sync()
            finally:
                self._finalizer()
            self._fd, self._why_not = None, "it was released"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _check_process(self) -> None:
        if self._fd is not None and self._writer != os.getpid():
            raise LedgerError(
                f"{self.path} belongs to process {self._writer}, and this is process "
                f"{os.getpid()}, forked from it: two processes cannot write one ledger; write in "
                "the process that opened it, and hand it what the child computed"
            )

    def _writable(self) -> int:
        self._check_process()
        if self._history.closed:
            raise LedgerError(f"{self.path} is closed, nothing may follow; create a new ledger")
        if self._fd is None or self._why_not:
            raise LedgerError(f"{self.path} cannot be written to, {self._why_not}; {_RESUME}")
        return self._fd

    def _append(self, event: lines.Event, wait: bool = True) -> None:
        """Write one line, and return when it is on disk, with all before it, unless not to wait."""
        # Before the lock: a thread of the parent may have held it when the child was forked.
        self._check_process()
        # One thread at a time: lines of two that follow the same checksum break the chain.
        with self._one_writer:
            self._write(event, wait)

    def _sync(self) -> None:
        """Wait until what was written is on disk."""
        if self._waiting and self._fd is not None:
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._why_not = f"an earlier write failed ({error})"
                raise LedgerError(
                    f"{self.path} could not be written: {error}; {_RESUME}"
                ) from error
            self._waiting = False

    def _write(self, event: lines.Event, wait: bool) -> None:
        fd = self._writable()
        # Asked before writing: a line out of order on disk makes the whole file unreadable.
        problem = self._history.misplaced(event)
        if problem:
            raise LedgerError(f"{self.path}: {problem}")
        line, check = lines.line_of(event, self._history.check)
        self._check_unchanged(fd)
        try:
            files.write_all(fd, line)
            if wait:
                os.fsync(fd)
            self._waiting = not wait
            self._stamp = files.stamp(fd)
        except OSError as error:
            # How much of the line is on disk is not known; only reading again, by resume, tells.
            self._why_not = f"an earlier write failed ({error})"
            raise LedgerError(f"{self.path} could not be written: {error}; {_RESUME}") from error
        except BaseException:
            # Such as Ctrl-C between the bytes: the line may be half written.
            self._why_not = "an earlier write was interrupted"
            raise
        # Memory follows disk: what was not written was not taken.
        self._history.take(event, check)
        self._history.advance(len(line), check)
        self._history.whole.update(line)

    def _check_unchanged(self, fd: int) -> None:
        # Bytes that are not ours: our checksum would not follow them, and what was spent is lost.
        with files.explained(self.path, "be read again"):
            changed = files.stamp(fd) != self._stamp and files.digest_of(fd) != self._history.digest
        why_not = "something else changed the file" if changed else files.estranged(fd, self._place)
        if why_not:
            # Kept, so that every later call refuses as well.
            self._why_not = why_not
            self._writable()

    # Reading

    @property
    def place(self) -> tuple[int, str]:
        """Where the ledger ends: its number of lines, and the checksum of the last of them.

        All of it is on disk on return: a checkpoint that names a place must not outlive it.
        """
        self._sync()
        return self.position

    def passes(self, place: tuple[int, str]) -> bool:
        """Return whether the ledger was at a place once: it holds all that was written up to there.

        Args:
            place: of this ledger or another one; no two ledgers share one.
        """
        # The end is known in memory; an earlier place is looked up in the file.
        return place == self.place or passes(self.path, place, self._history.lines)

    @property
    def writable(self) -> bool:
        """Whether this object may write another line: not closed, released or opened to read."""
        return self._fd is not None and not self._why_not and not self.closed


def _claim(claim: tuple[float, float] | None) -> tuple[float, float] | None:
    if claim is None:
        return None
    try:
        epsilon, delta = claim
    except (TypeError, ValueError):
        refuse("claim", claim, "be a pair (epsilon, delta) or None")
    return claimed(epsilon, delta)


def _text(**named: object) -> str:
    """Check one ``name=value`` that goes into the file as text."""
    ((name, value),) = named.items()
    if not isinstance(value, str):
        refuse(name, value, "be a string")
    # Lone surrogates, as in undecodable file names, are strings that UTF-8 does not hold.
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(name, value, "be text that UTF-8 can hold")
    return value


def _token() -> str:
    """Return what the lines of no copy of a ledger have from here on."""
    return os.urandom(8).hex()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {
        "fedprivacy": VERSION,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
