"""The ledger: write the rounds of a run, and read them back."""

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
from ..outputs import path_of, refuse_overwrite, sync_folder
from ..relations import Adjacency, Observer, Unit
from ..version import VERSION
from . import files, lines
from .contents import Contents
from .history import History, passes, read

_LEFT: dict[str, list[Callable[[Ledger], None]]] = {}
"""What is to be done once this process resumes a ledger that it released, by nonce."""

_RESUME = "release it and use Ledger.open(path, resume=True)"


class Ledger(Contents):
    """The record of a private run on disk: made by ``create``, read by ``open``.

    Use it in a ``with`` block, or call ``release``. Both free the file and its lock and leave the
    ledger open, so that it can be resumed. Only ``close`` records that the run is complete.
    """

    def __init__(self, path: Path, history: History, fd: int | None) -> None:
        """Use ``create`` or ``open`` instead."""
        super().__init__(path, history)
        # Absolute, so that a later chdir does not lead `estranged` to another file.
        self._place = path.absolute()
        self._fd = fd
        # A ledger that is dropped without `release` frees its lock when it is collected.
        self._finalizer = (
            None if fd is None else weakref.finalize(self, files.unlock_and_close, fd, os.getpid())
        )
        # A forked child also has the open file and its lock, so two processes could write.
        self._writer = os.getpid()
        self._one_writer = Lock()
        # Stamp of the file after our last write; None before the first one.
        self._stamp: files.Stamp | None = None
        # Whether a crash of the machine could still lose a written line.
        self._waiting = False
        self._begun: int | None = None
        self._text: tuple[Mechanism, bytes] | None = None
        self._why_not = "" if fd is not None else "it was opened for reading"
        self._before_close: list[Callable[[], None]] = []
        self._before_release: list[Callable[[], Callable[[Ledger], None] | None]] = []

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
        """Create a ledger in a new file.

        Args:
            path: the file; it must not exist.
            unit: "client" or "record".
            adjacency: the difference between neighbouring data sets.
            observer: the observer.
            claim: (epsilon, delta) that the run should keep.
            schedule: "fixed" beforehand or "adaptive", depending on outputs.
            budget_rule: the rule that decides whether a round fits the budget, in words.
            seed_policy: "operating system", or "fixed" for runs that are not private.
            plan: the whole run as planned.
            description: free text.

        Raises:
            ParameterError: if a value is out of range.
            LedgerError: if the file exists or cannot be written.
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
            # Equal headers must still start different chains of checksums.
            nonce=os.urandom(16).hex(),
        )
        target = path_of(path=path)
        # Written under a hidden name first, so that a file with the real name has a complete
        # header.
        temporary = target.with_name(f".{header.nonce}")
        with files.ledger_errors(target, "create it"):
            # An early, cheap check. `born` checks again: its link fails if the name is taken by
            # then.
            if target.exists():
                raise FileExistsError(f"{target} already exists")
            # O_APPEND: a write never lands on an earlier line, wherever the position stands.
            fd = os.open(
                temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | files.BINARY, 0o644
            )
        ledger = cls(target, History(), fd)
        # `_append` checks that the name leads to this file. For now, that is the hidden name.
        ledger._place = temporary.absolute()
        with files.ledger_errors(target, "create it"):
            try:
                # Locked before it gets its name, so that no other process can resume it in between.
                files.lock(fd, target)
                ledger._append(header)
                files.publish(fd, temporary, target)
            finally:
                # After a link the file has two names; after a rename the hidden one no longer
                # exists.
                temporary.unlink(missing_ok=True)
            ledger._place = target.absolute()
            # Without the sync, a crash of the machine may lose the name, and with it the spent
            # rounds.
            sync_folder(target.parent)
        return ledger

    @classmethod
    def open(cls, path: str | PathLike[str], *, resume: bool = False) -> Self:
        """Read a ledger and check every line.

        A half-written last line is left out and reported in ``notes``.

        Args:
            path: the file.
            resume: whether to continue writing. The file is then locked, and a half-written last
                line is moved to ``<name>.torn``. Reading needs no lock and changes no file.

        Raises:
            ForeignLedger: if the file is no ledger of this package, or has a later schema.
            DamagedLedger: if a line was changed or lost; the message names it.
            LedgerError: if the file does not exist, or, when resuming, is closed or locked.
        """
        target = path_of(path=path)
        if not resume:
            return cls(target, read(target), None)
        with files.ledger_errors(target, "resume it"):
            fd = os.open(target, os.O_RDWR | os.O_APPEND | files.BINARY)
        ledger = cls(target, History(), fd)
        try:
            with files.ledger_errors(target, "resume it"):
                files.lock(fd, target)
                # Read only under the lock, because before it another writer may still add lines.
                ledger._history = read(target)
                ledger._resume()
        # An interrupt must also free the lock.
        except BaseException:
            ledger.release()
            raise
        return ledger

    def _resume(self) -> None:
        if self.closed:
            raise LedgerError(
                f"{self.path} is closed, since its run is complete; create a new ledger. Its "
                "audit does not count these rounds; budget.charge(Ledger.open(path)) adds them "
                "to a budget"
            )
        if self._history.torn:
            self._cut(self._history.torn)
        # A copy that is also resumed gets another token, so that the two differ from here.
        self._append(lines.ResumeLine(token=_token(), when=_now()))
        for then in _LEFT.pop(self.nonce, ()):
            then(self)

    def _cut(self, torn: bytes) -> None:
        """Move a half-written line out of the file."""
        # The line is saved and synced before the cut. A crash in between duplicates it but never
        # loses it.
        aside = self.path.with_name(self.path.name + ".torn")
        refuse_overwrite(aside)
        with files.ledger_errors(aside, "move an incomplete line to another file"):
            # Through no link, and no pipe that would wait for a reader.
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | files.BINARY | files.NO_LINK
            fd = os.open(aside, how, 0o644)
            with os.fdopen(fd, "ab") as file:
                file.write(torn)
                file.flush()
                files.sync(file.fileno())
            sync_folder(self.path.parent)
        os.ftruncate(self._writable(), self._history.size)
        self._history.torn = b""
        # The last note reports the torn line. The note of the repair line replaces it.
        self._history.notes.pop()
        # The repair is part of the chain: a reader sees that bytes were cut, and how many.
        self._append(lines.RepairLine(cut=len(torn)))
        self._history.notes[-1] += f"; the removed bytes are in {aside}"

    # Writing

    def intent(self, mechanism: Mechanism, *, clip_norm: float, noise_std: float) -> int:
        """Begin a round. Call this before its noise is drawn. The line is on disk on return.

        Args:
            mechanism: the mechanism of this round, as priced.
            clip_norm: clip norm of the contributions.
            noise_std: planned std of the noise in the sum.

        Returns:
            The number of the round, for ``done`` or ``abort``.

        Raises:
            ParameterError: if a value is out of range, or the mechanism has another unit.
            LedgerError: if the line could not be written. Do not release the round then.
        """
        number = len(self._history.rounds)
        # Loops pass one object for every round, so it is checked and encoded once.
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
        # Set after the append, because an intent that is not on disk leaves no round to finish.
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
        """Confirm a round and record its numbers. No identities are recorded.

        The line reaches the disk together with the next intent or close, with the next call of
        ``place``, or when the ledger is released. A crash of the machine before then leaves a begun
        round, which counts as spent in any case.

        Args:
            round: the result of ``intent``.
            cohort: number of drawn participants.
            arrived: number of contributions in the sum.
            refused: number of contributions left out, for example non-finite ones.
            noise_std: std of the real noise in the sum; colluders' shares count too.
            denominator: divisor of the noisy sum: a public number. Under add_remove, a divisor that
                depends on the number of units reveals it, so an audit requires this field.
            mask: fingerprint of the sent coordinates, if not all were sent.

        Raises:
            ParameterError: if a value is out of range.
            LedgerError: if this is not the current round, or the line could not be written. In both
                cases the round counts as spent.
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
        """Record that a round released no value and never will: it is not spent.

        Args:
            round: the result of ``intent``.
            reason: the reason, in words.

        Raises:
            ParameterError: if a value is out of range.
            LedgerError: if this is not the current round, or the line could not be written.
        """
        self._finish(lines.AbortLine(round=integer(0, round=round), reason=_text(reason=reason)))

    def _finish(self, event: lines.DoneLine | lines.AbortLine) -> None:
        # This check comes first, because a closed or released ledger is the better explanation.
        self._writable()
        # The round is current in the file, but another object began it, and its release is unknown.
        if self._history.misplaced(event) == "" and event.round != self._begun:
            raise LedgerError(
                f"round {event.round} of {self.path} was begun before the ledger was resumed; "
                "it may have been released, so it counts as spent"
            )
        self._append(event, wait=False)
        self._begun = None

    def void(self, reason: str) -> int:
        """Record that the rounds differ from the real run. No number is certified; they stay spent.

        Use it for a release without an intent, or for a cohort that was drawn, inspected and
        dropped.

        Args:
            reason: the reason in words that every reader may see, because audits print it.

        Returns:
            The number of the line, for ``lift``.

        Raises:
            ParameterError: if the reason is not a string.
            LedgerError: if the line could not be written.
        """
        number = self._history.voided
        self._append(lines.VoidLine(number=number, reason=_text(reason=reason)))
        return number

    def lift(self, number: int) -> None:
        """Record that the cause of an earlier ``void`` is gone: the rounds match the real run.

        Args:
            number: the result of ``void``.

        Raises:
            ParameterError: if the number is not an integer.
            LedgerError: if no line with this number is in force, or the line could not be written.
        """
        self._append(lines.LiftLine(number=integer(0, number=number)))

    def before_close(self, check: Callable[[], None]) -> None:
        """Register a check to run before this object closes the ledger; it may raise."""
        self._before_close.append(check)

    def before_release(self, ask: Callable[[], Callable[[Ledger], None] | None]) -> None:
        """Ask, as this object releases the ledger, what a resume by this process has to do first.

        Args:
            ask: returns what to call with the resumed ledger; None where there is nothing to do.
        """
        self._before_release.append(ask)

    def close(self) -> None:
        """Record that the run is complete, and release the file. No line can be added later.

        Raises:
            LedgerError: if the ledger was opened for reading, released, or already closed.
            ParameterError: if a check of ``before_close`` refuses.
        """
        self._writable()
        for check in self._before_close:
            check()
        # The number of rounds shows a reader that none is missing.
        self._append(lines.CloseLine(rounds=len(self._history.rounds)))
        self.release()

    def release(self) -> None:
        """Free the file and its lock without closing the ledger. Repeated calls have no effect."""
        # Only once, because the descriptor may belong to another file later.
        if self._finalizer is not None and self._finalizer.alive:
            try:
                # A forked child has written no line, so it only closes its copy of the descriptor.
                if self._writer == os.getpid():
                    self._leave()
                    self._sync()
            finally:
                self._finalizer()
            self._fd, self._why_not = None, "it was released"

    def _leave(self) -> None:
        left = [then for ask in self._before_release if (then := ask()) is not None]
        if left and not self.closed:
            _LEFT.setdefault(self.nonce, []).extend(left)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _check_process(self) -> None:
        if self._fd is not None and self._writer != os.getpid():
            raise LedgerError(
                f"{self.path} belongs to process {self._writer}, and this is process "
                f"{os.getpid()}, forked from it; two processes cannot write one ledger. Write "
                "in the process that opened it, and send it the results of the child"
            )

    def _writable(self) -> int:
        self._check_process()
        if self._history.closed:
            raise LedgerError(f"{self.path} is closed, so no line may follow; create a new ledger")
        if self._fd is None or self._why_not:
            raise LedgerError(f"{self.path} cannot be written, since {self._why_not}; {_RESUME}")
        return self._fd

    def _append(self, event: lines.Event, wait: bool = True) -> None:
        """Write one line; if ``wait``, return when it and all lines before are on disk."""
        # Checked before the lock, because a thread of the parent may have held it during the fork.
        self._check_process()
        # One thread at a time: two lines after the same checksum would break the chain.
        with self._one_writer:
            self._write(event, wait)

    def _sync(self) -> None:
        """Wait until all written lines are on disk."""
        if self._waiting and self._fd is not None:
            try:
                files.sync(self._fd)
            except OSError as error:
                self._why_not = f"an earlier write failed ({error})"
                raise LedgerError(
                    f"{self.path} could not be written: {error}; {_RESUME}"
                ) from error
            self._waiting = False

    def _write(self, event: lines.Event, wait: bool) -> None:
        fd = self._writable()
        # Checked before writing, because a line out of order makes the whole file unreadable.
        problem = self._history.misplaced(event)
        if problem:
            raise LedgerError(f"{self.path}: {problem}")
        line, check = lines.line_of(event, self._history.check)
        self._check_unchanged(fd)
        try:
            files.write_all(fd, line)
            if wait:
                files.sync(fd)
            self._waiting = not wait
            self._stamp = files.stamp(fd)
        except OSError as error:
            # The number of written bytes is unknown, so the file must be read again, by resuming.
            self._why_not = f"an earlier write failed ({error})"
            raise LedgerError(f"{self.path} could not be written: {error}; {_RESUME}") from error
        except BaseException:
            # For example Ctrl-C between the bytes: the line may be half written.
            self._why_not = "an earlier write was interrupted"
            raise
        # Memory follows the disk: only written lines count.
        self._history.take(event, check)
        self._history.advance(len(line), check)
        self._history.whole.update(line)

    def _check_unchanged(self, fd: int) -> None:
        # Foreign bytes: our checksum would not follow them, and the file would lose spent rounds.
        with files.ledger_errors(self.path, "be read again"):
            changed = files.stamp(fd) != self._stamp and files.digest_of(fd) != self._history.digest
        why_not = (
            ("another program changed the file")
            if changed
            else files.replaced_on_disk(fd, self._place)
        )
        if why_not:
            # Kept, so that every later call refuses as well.
            self._why_not = why_not
            self._writable()

    # Reading

    @property
    def place(self) -> tuple[int, str]:
        """The end of the ledger: its number of lines, and the checksum of the last line.

        All lines are on disk on return, because a checkpoint with this place must not outlive them.
        """
        self._sync()
        return self.position

    def passes(self, place: tuple[int, str]) -> bool:
        """Return whether the ledger was once at this place and contains all lines up to there.

        Args:
            place: a place of this or another ledger; no two ledgers share one.
        """
        # The end is known in memory. An earlier place is looked up in the file.
        return place == self.place or passes(self.path, place, self._history.lines)

    @property
    def writable(self) -> bool:
        """Whether this object may write: not closed, not released, and not opened for reading."""
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
    # Lone surrogates, as in undecodable file names, are strings that UTF-8 cannot encode.
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(name, value, "be text that UTF-8 can encode")
    return value


def _token() -> str:
    """Return a random token that no copy of the ledger shares."""
    return os.urandom(8).hex()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {
        "fedprivacy": VERSION,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
