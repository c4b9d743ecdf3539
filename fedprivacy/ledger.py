"""An append-only file of what a private run really did.

One JSON object a line: a header (facts, claim, seed policy, versions, plan), then for every round
an ``intent`` before its noise is drawn and a ``done`` (or ``abort``) after, at the end ``close``.
Each line ends in the SHA-256 of the line before's checksum and its own bytes. The chain finds
damage, not forgery: whoever can rewrite the whole file can also recompute it.

**Never too little is counted.** ``intent`` returns only when its line is on disk (fsync), so
noise is drawn, and something released, only for rounds whose line is whole. A run killed later
leaves a whole ``intent``, and without an ``abort`` that counts as spent, at most one round too
much. A run killed earlier may leave half a line, without its newline: then ``intent`` had not
returned, nothing was released, and the half line does not count. Half a ``done`` leaves its
intent spent; half a ``close`` leaves the ledger open. A *whole* line that breaks the chain is no
torn write, it was changed afterwards and may stand for a release: that is refused, wherever it is.

A ledger is untrusted data: line kinds and record types are closed lists, and nothing is imported
or executed by name. Files are locked with ``fcntl``, so writing needs a POSIX system.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Annotated, Self

import msgspec

from .errors import (
    LedgerError,
    integer,
    member,
    non_negative,
    positive,
    refuse,
)
from .mechanisms import (
    CohortMechanism,
    Gaussian,
    Mechanism,
    Run,
    SampledMechanism,
    SparsifiedPerturbation,
)
from .relations import Adjacency, Facts, Observer, Unit
from .sampling import Everyone, FixedSize, Poisson

FORMAT = "fedprivacy ledger"
SCHEMA = 1
MAX_LINE = 16 * 2**20
"""Longest line in bytes."""

REGISTRY: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        CohortMechanism,
        Everyone,
        FixedSize,
        Gaussian,
        Poisson,
        Run,
        SampledMechanism,
        SparsifiedPerturbation,
    )
}
"""Every record type that a ledger may hold."""

_MAGIC = f'{{"kind":"header","format":"{FORMAT}","schema":{SCHEMA},'.encode()
_CHECK = b',"check":"'
_TAIL = len(_CHECK) + 64 + len(b'"}')
_RESUME = "release it and use Ledger.open(path, resume=True)"


class SeedPolicy(StrEnum):
    """Where the randomness of the noise comes from."""

    OPERATING_SYSTEM = "operating system"
    """The only private choice."""
    FIXED = "fixed"
    """Whoever knows the seed can subtract the noise."""


class Schedule(StrEnum):
    """Whether a round may depend on what earlier rounds released."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


# The lines of the file. msgspec checks kind, fields, types and ranges; NaN and inf are not JSON.

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NonNegative = Annotated[float, msgspec.Meta(ge=0)]
_Delta = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class _Header(_Line, tag="header"):
    format: str
    schema: int
    unit: Unit
    adjacency: Adjacency
    observer: Observer
    claim: tuple[_NonNegative, _Delta] | None
    schedule: Schedule
    budget_rule: str | None
    seed_policy: SeedPolicy
    versions: dict[str, str]
    created: str
    description: str
    plan: msgspec.Raw


class _Intent(_Line, tag="intent"):
    round: _Count
    clip_norm: _Positive
    noise_std: _Positive
    mechanism: msgspec.Raw


class _Done(_Line, tag="done"):
    round: _Count
    cohort: _Count
    arrived: _Count
    refused: _Count
    noise_std: _NonNegative


class _Abort(_Line, tag="abort"):
    round: _Count
    reason: str


class _Repair(_Line, tag="repair"):
    cut: _Count


class _Close(_Line, tag="close"):
    rounds: _Count


_Event = _Header | _Intent | _Done | _Abort | _Repair | _Close
_DECODER: msgspec.json.Decoder[_Event] = msgspec.json.Decoder(_Event)


class _Probe(msgspec.Struct):
    format: str
    schema: int


@dataclass(frozen=True, slots=True)
class Done:
    """What a round really did.

    Attributes:
        cohort: number of participants drawn.
        arrived: number of contributions in the sum.
        refused: number of contributions left out, such as non-finite ones.
        noise_std: std of the noise in the sum, colluders' shares included.
    """

    cohort: int
    arrived: int
    refused: int
    noise_std: float


@dataclass(frozen=True, slots=True)
class Round:
    """One recorded round.

    Attributes:
        index: its number, from 0.
        mechanism: the round's mechanism as priced.
        clip_norm: norm that contributions were clipped to.
        noise_std: planned std of the noise in the sum.
        done: what happened; None if that was never confirmed.
        aborted: why nothing was released; None if something was, or may have been.
    """

    index: int
    mechanism: Mechanism
    clip_norm: float
    noise_std: float
    done: Done | None = None
    aborted: str | None = None

    @property
    def spent(self) -> bool:
        """Whether the round counts: everything does that was not aborted."""
        return self.aborted is None

    @property
    def noise_used(self) -> float:
        """Std of the noise really used, as far as recorded."""
        return self.noise_std if self.done is None else self.done.noise_std


@dataclass
class _History:
    """What the lines so far amount to; keeps the order rules, for reading and writing alike."""

    header: _Header | None = None
    plan: Mechanism | None = None
    rounds: list[Round] = field(default_factory=list)
    closed: bool = False
    notes: list[str] = field(default_factory=list)
    check: str = ""
    size: int = 0
    lines: int = 0
    torn: bytes = b""
    mechanisms: dict[bytes, Mechanism] = field(default_factory=dict)

    def misplaced(self, event: _Event) -> str:
        """Return why an event cannot come next, empty if it can."""
        if isinstance(event, _Header) or self.header is None:
            first = isinstance(event, _Header) and self.header is None
            return "" if first else "the header must be the first line, and only that"
        if self.closed:
            return "the ledger is closed, nothing may follow"
        count = len(self.rounds)
        match event:
            case _Intent() if event.round != count:
                return f"round {event.round} cannot begin now; the next round is {count}"
            case _Done() | _Abort() if not self._is_open(event.round):
                return f"round {event.round} is not the one under way ({self._under_way()})"
            case _Close() if event.rounds != count:
                return f"it closes {event.rounds} rounds, but {count} were begun"
        return ""

    def _is_open(self, index: int) -> bool:
        last = self.rounds[-1] if self.rounds else None
        return last is not None and last.index == index and not (last.done or last.aborted)

    def _under_way(self) -> str:
        last = len(self.rounds) - 1
        return (
            f"that is round {last}" if self._is_open(last) else "there is none; begin with intent"
        )

    def take(self, event: _Event) -> None:
        """Add an event that is not misplaced."""
        match event:
            case _Header():
                self.header = event
                self.plan = self._mechanism(event.plan) if bytes(event.plan) != b"null" else None
            case _Intent():
                priced = self._mechanism(event.mechanism)
                self.rounds.append(Round(event.round, priced, event.clip_norm, event.noise_std))
            case _Done():
                done = Done(event.cohort, event.arrived, event.refused, event.noise_std)
                self.rounds[-1] = replace(self.rounds[-1], done=done)
            case _Abort():
                self.rounds[-1] = replace(self.rounds[-1], aborted=event.reason)
            case _Repair():
                self.notes.append(
                    f"before line {self.lines + 1} a half-written line of {event.cut} bytes was "
                    "cut when the run resumed; it counts nothing"
                )
            case _Close():
                self.closed = True

    def _mechanism(self, raw: msgspec.Raw) -> Mechanism:
        text = bytes(raw)
        known = self.mechanisms.get(text)
        if known is None:
            known = self.mechanisms[text] = _mechanism(msgspec.json.decode(text))
        return known

    def advance(self, line: bytes, check: str) -> None:
        """Move the end of the chain past a line."""
        self.check, self.size, self.lines = check, self.size + len(line), self.lines + 1


class Ledger:
    """What a private run did, on disk: made by ``create``, read by ``open``.

    Use it in a ``with`` block, or call ``release``: both give the file and its lock back and leave
    the ledger open, to be resumed. Only ``close`` says that the run is complete.
    """

    def __init__(self, path: Path, history: _History, fd: int | None) -> None:
        """Use ``create`` or ``open``."""
        self.path = path
        self._history = history
        self._fd = fd
        self._finalizer = weakref.finalize(self, os.close, fd) if fd is not None else None
        self._begun: int | None = None
        self._text: tuple[Mechanism, bytes] | None = None
        self._why_not = "" if fd is not None else "it was opened for reading"

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
        header = _Header(
            format=FORMAT,
            schema=SCHEMA,
            unit=member(Unit, unit=unit),
            adjacency=member(Adjacency, adjacency=adjacency),
            observer=member(Observer, observer=observer),
            claim=_claim(claim),
            schedule=member(Schedule, schedule=schedule),
            budget_rule=None if budget_rule is None else _text(budget_rule=budget_rule),
            seed_policy=member(SeedPolicy, seed_policy=seed_policy),
            versions=_versions(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            description=_text(description=description),
            plan=msgspec.Raw(
                b"null" if plan is None else _encoded("plan", plan, member(Unit, unit=unit))
            ),
        )
        target = Path(path)
        with _explained(target, "create it"):
            fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        ledger = cls(target, _History(), fd)
        with _explained(target, "create it"):
            _lock(fd, target)
            ledger._append(header)
            _sync_folder(target.parent)
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
        target = Path(path)
        if not resume:
            return cls(target, _read(target), None)
        with _explained(target, "resume it"):
            fd = os.open(target, os.O_RDWR | os.O_APPEND)
        ledger = cls(target, _History(), fd)
        try:
            with _explained(target, "resume it"):
                _lock(fd, target)
                ledger._history = _read(target)
                ledger._resume()
        except BaseException:
            ledger.release()
            raise
        return ledger

    def _resume(self) -> None:
        if self.closed:
            raise LedgerError(f"{self.path} is closed, its run is complete; create a new ledger")
        torn = self._history.torn
        if not torn:
            return
        aside = self.path.with_name(self.path.name + ".torn")
        with open(aside, "ab") as file:
            file.write(torn)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self.path.parent)
        os.ftruncate(self._writable(), self._history.size)
        self._history.torn = b""
        self._history.notes = [f"{note}; the cut bytes are in {aside}" for note in self.notes[-1:]]
        self._append(_Repair(cut=len(torn)))

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
        if self._text is None or self._text[0] is not mechanism:
            self._text = (mechanism, _encoded("mechanism", mechanism, self.facts.unit))
        event = _Intent(
            round=number,
            clip_norm=positive(clip_norm=clip_norm),
            noise_std=positive(noise_std=noise_std),
            mechanism=msgspec.Raw(self._text[1]),
        )
        self._append(event)
        self._begun = number
        return number

    def done(
        self, round: int, *, cohort: int, arrived: int, refused: int, noise_std: float
    ) -> None:
        """Confirm a round and record what happened. No identities are recorded.

        Args:
            round: what ``intent`` returned.
            cohort: number of participants really drawn.
            arrived: number of contributions in the sum.
            refused: number of contributions left out, such as non-finite ones.
            noise_std: std of the noise really in the sum; colluders' shares count too.

        Raises:
            ParameterError: a value out of its range.
            LedgerError: not the round under way, or the line could not be written. Either way the
                round counts as spent.
        """
        event = _Done(
            round=integer(0, round=round),
            cohort=integer(0, cohort=cohort),
            arrived=integer(0, arrived=arrived),
            refused=integer(0, refused=refused),
            noise_std=non_negative(noise_std=noise_std),
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
        self._finish(_Abort(round=integer(0, round=round), reason=_text(reason=reason)))

    def _finish(self, event: _Done | _Abort) -> None:
        self._writable()
        if self._history.misplaced(event) == "" and event.round != self._begun:
            raise LedgerError(
                f"round {event.round} of {self.path} was begun before the ledger was resumed; "
                "whether it was released is not known, so it stays spent"
            )
        self._append(event)
        self._begun = None

    def close(self) -> None:
        """Write that the run is complete, and release the file; nothing can be added later.

        Raises:
            LedgerError: opened for reading, released, or already closed.
        """
        self._append(_Close(rounds=len(self._history.rounds)))
        self.release()

    def release(self) -> None:
        """Give the file and its lock back without closing the ledger; again does no harm."""
        if self._finalizer is not None and self._finalizer.alive:
            self._finalizer()
            self._fd, self._why_not = None, "it was released"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _writable(self) -> int:
        if self._history.closed:
            raise LedgerError(f"{self.path} is closed, nothing may follow; create a new ledger")
        if self._fd is None or self._why_not:
            raise LedgerError(f"{self.path} cannot be written to, {self._why_not}; {_RESUME}")
        return self._fd

    def _append(self, event: _Event) -> None:
        """Write one line and return when it is on disk."""
        fd = self._writable()
        problem = self._history.misplaced(event)
        if problem:
            raise LedgerError(f"{self.path}: {problem}")
        line, check = _line(event, self._history.check)
        if os.fstat(fd).st_size != self._history.size:
            self._why_not = "something else changed the file"
            self._writable()
        try:
            _write_all(fd, line)
            os.fsync(fd)
        except OSError as error:
            self._why_not = f"an earlier write failed ({error})"
            raise LedgerError(f"{self.path} could not be written: {error}; {_RESUME}") from error
        except BaseException:
            self._why_not = "an earlier write was interrupted"
            raise
        self._history.take(event)
        self._history.advance(line, check)

    # Reading

    @property
    def _header(self) -> _Header:
        assert self._history.header is not None
        return self._history.header

    @property
    def facts(self) -> Facts:
        """Unit, adjacency and observer of the run."""
        return Facts(self._header.unit, self._header.adjacency, self._header.observer)

    @property
    def claim(self) -> tuple[float, float] | None:
        """The (epsilon, delta) that the run was meant to keep."""
        return self._header.claim

    @property
    def schedule(self) -> str:
        """Whether rounds were "fixed" beforehand or "adaptive"."""
        return self._header.schedule

    @property
    def budget_rule(self) -> str | None:
        """Which rule decided whether a round fits, in words."""
        return self._header.budget_rule

    @property
    def seed_policy(self) -> str:
        """Where the noise's randomness came from: "operating system" or "fixed"."""
        return self._header.seed_policy

    @property
    def reproducible(self) -> bool:
        """Whether the run had a fixed seed, and so no privacy against whoever knows it."""
        return self._header.seed_policy is SeedPolicy.FIXED

    @property
    def seed_statement(self) -> str:
        """What the seed policy means, for reports."""
        return (
            "reproducible: not private" if self.reproducible else "seeded by the operating system"
        )

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what created the ledger, by name."""
        return dict(self._header.versions)

    @property
    def created(self) -> str:
        """When the ledger was created, ISO 8601, UTC."""
        return self._header.created

    @property
    def description(self) -> str:
        """The free text given."""
        return self._header.description

    @property
    def plan(self) -> Mechanism | None:
        """The whole run as planned, if given."""
        return self._history.plan

    @property
    def closed(self) -> bool:
        """Whether the run was completed; if not, later rounds may be missing."""
        return self._history.closed

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Every round begun, in order."""
        return tuple(self._history.rounds)

    @property
    def spent_rounds(self) -> int:
        """How many rounds count."""
        return sum(r.spent for r in self._history.rounds)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: repairs, and rounds whose noise was less than priced."""
        return (*self._history.notes, *(group.note for group in self._groups() if group.note))

    def run(self) -> Mechanism | None:
        """Return the mechanism that was spent, equal rounds together; None if nothing was.

        The noise that was used counts: a round with less than its mechanism says is priced by what
        it had (and named in ``notes``), one with more as its mechanism says.

        Raises:
            LedgerError: a round was released with so little noise that no epsilon holds.
        """
        counts: dict[Mechanism, int] = {}
        for group in self._groups():
            if group.actual is None:
                raise LedgerError(f"{self.path} has no epsilon: {group.note}")
            counts[group.actual] = counts.get(group.actual, 0) + group.count
        steps = [
            (step, times * count)
            for mechanism, count in counts.items()
            for step, times in mechanism.steps()
        ]
        return Run(tuple(steps)) if steps else None

    def _groups(self) -> list[_Group]:
        """Return the spent rounds, those with the same mechanism and noise together."""
        first: dict[tuple[int, float, float, float], Round] = {}
        counts: dict[tuple[int, float, float, float], int] = {}
        for r in self._history.rounds:
            if r.aborted is None:
                key = (id(r.mechanism), r.clip_norm, r.noise_std, r.noise_used)
                first.setdefault(key, r)
                counts[key] = counts.get(key, 0) + 1
        return [_group(r, counts[key]) for key, r in first.items()]


@dataclass(frozen=True)
class _Group:
    """Spent rounds that are priced alike; ``actual`` None where no noise counts."""

    actual: Mechanism | None
    count: int
    note: str = ""


def _group(r: Round, count: int) -> _Group:
    actual = as_released(
        r.mechanism, clip_norm=r.clip_norm, planned_std=r.noise_std, used_std=r.noise_used
    )
    if actual == r.mechanism:
        return _Group(actual, count)
    which = f"round {r.index}" if count == 1 else f"{count} rounds, the first of them {r.index},"
    priced = "it is priced by what it had" if actual else "no noise counts in it"
    note = (
        f"{which} had noise of std {r.noise_used:.6g} at clip norm {r.clip_norm:.6g}, less than "
        f"its mechanism says; {priced}"
    )
    return _Group(actual, count, note)


# Lines


def _line(event: _Event, before: str) -> tuple[bytes, str]:
    """Return an event's line and its checksum."""
    body = msgspec.json.encode(event)[:-1]
    if len(body) + _TAIL >= MAX_LINE:
        raise LedgerError(f"a line of {len(body)} bytes is too long; the limit is {MAX_LINE}")
    check = sha256(before.encode() + body).hexdigest()
    return body + _CHECK + check.encode() + b'"}\n', check


def _read(path: Path) -> _History:
    with _explained(path, "read it"):
        if not path.is_file():
            raise LedgerError(f"{path} is not a file; name the ledger that a run wrote")
        with open(path, "rb") as file:
            return _read_lines(file, path)


def _read_lines(file: BinaryIO, path: Path) -> _History:
    history = _History()
    for line in iter(lambda: file.readline(MAX_LINE), b""):
        if not history.lines:
            _recognise(line, path)
        if line.endswith(b"\n"):
            _read_line(history, line, path)
        elif len(line) == MAX_LINE:
            _damaged(path, history, "it is too long")
        else:
            _leave_out(history, line)
    if not history.lines:
        raise ForeignLedger(f"{path} is empty, not a ledger; {_begin_anew(path)}")
    return history


def _recognise(line: bytes, path: Path) -> None:
    """Refuse a first line that is not the whole header of a ledger we can read."""
    if line.startswith(_MAGIC) and line.endswith(b"\n"):
        return
    if line.startswith(_MAGIC) or _MAGIC.startswith(line):
        raise ForeignLedger(
            f"{path} ends within its first line, no round was recorded; {_begin_anew(path)}"
        )
    try:
        probe = msgspec.json.decode(line, type=_Probe)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        probe = _Probe("", 0)
    if probe.format == FORMAT and probe.schema > SCHEMA:
        raise ForeignLedger(
            f"{path} has schema {probe.schema}, this release reads {SCHEMA}; upgrade fedprivacy"
        )
    raise ForeignLedger(f"{path} does not begin like a fedprivacy ledger; name another file")


def _begin_anew(path: Path) -> str:
    return f"remove it and use Ledger.create({str(path)!r}, ...)"


def _read_line(history: _History, line: bytes, path: Path) -> None:
    body, tail = line[: -_TAIL - 1], line[-_TAIL - 1 :]
    check = sha256(history.check.encode() + body).hexdigest()
    if tail != _CHECK + check.encode() + b'"}\n':
        _damaged(path, history, "its checksum does not fit")
    try:
        event = _DECODER.decode(body + b"}")
        problem = history.misplaced(event)
        if not problem:
            history.take(event)
    except (msgspec.MsgspecError, FedPrivacyError, ValueError, RecursionError) as error:
        raise ForeignLedger(
            f"{path}, line {history.lines + 1}, is whole but not understood: {error}; a later "
            "release may have written it: upgrade fedprivacy"
        ) from error
    if problem:
        _damaged(path, history, problem)
    history.advance(line, check)


def _damaged(path: Path, history: _History, what: str) -> NoReturn:
    raise DamagedLedger(
        f"{path}, line {history.lines + 1}: {what}; the line, or one before it, was changed after "
        "it was written. Go back to a copy of the file; without one, what was spent is unknown "
        "from this line on"
    )


def _leave_out(history: _History, line: bytes) -> None:
    kind = "an intent" if line.startswith(b'{"kind":"intent"') else "a line"
    history.torn = line
    history.notes.append(
        f"line {history.lines + 1} is half written ({len(line)} bytes of {kind}) and was left out; "
        "its write had not returned, so no noise was drawn on its account and it counts nothing"
    )


# Values


def _encoded(name: str, mechanism: object, unit: Unit | None) -> bytes:
    """Return a mechanism as JSON, once it is known to read back the same."""
    if not isinstance(mechanism, Mechanism):
        refuse(name, mechanism, "be a mechanism", "such as fp.Gaussian(noise_multiplier=1.0)")
    if mechanism.protects not in (None, unit):
        refuse(
            f"{name}.unit",
            str(mechanism.protects),
            f"be the ledger's unit {str(unit)!r}",
            "keep one ledger for each unit",
        )
    text = msgspec.json.encode(encode(mechanism, REGISTRY))
    if _mechanism(msgspec.json.decode(text)) != mechanism:
        raise LedgerError(f"{name} does not read back as it was: {mechanism!r}")
    return text


def _mechanism(data: object) -> Mechanism:
    mechanism = decode(data, REGISTRY)
    if not isinstance(mechanism, Mechanism):
        raise LedgerError(f"a mechanism was expected, got {type(mechanism).__name__}")
    _check_counts(mechanism)
    return mechanism


def _check_counts(mechanism: object) -> None:
    if isinstance(mechanism, Run):
        for part, count in mechanism.parts:
            integer(1, count=count)
            _check_counts(part)
        if not mechanism.parts:
            refuse("parts", mechanism.parts, "hold at least one mechanism")
    elif isinstance(mechanism, SampledMechanism | CohortMechanism):
        _check_counts(mechanism.inner)


def _claim(claim: tuple[float, float] | None) -> tuple[float, float] | None:
    if claim is None:
        return None
    try:
        epsilon, delta = claim
    except (TypeError, ValueError):
        refuse("claim", claim, "be a pair (epsilon, delta) or None")
    return non_negative(epsilon=epsilon), open_unit(delta=delta)


def _text(**named: object) -> str:
    """Check one ``name=value`` that goes into the file as text."""
    ((name, value),) = named.items()
    if not isinstance(value, str):
        refuse(name, value, "be a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(name, value, "be text that UTF-8 can hold")
    return value


def _versions() -> dict[str, str]:
    return {
        "fedprivacy": fedprivacy.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


# Files


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except FileExistsError as error:
        raise LedgerError(
            f"{path} exists and is never overwritten; name a new file, or go on with this one by "
            "Ledger.open(path, resume=True)"
        ) from error
    except OSError as error:
        raise LedgerError(f"{path}: could not {what}: {error.strerror or error}") from error


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LedgerError(
            f"{path} is being written by another ledger object or process; wait for it to end, or "
            "read without resume"
        ) from error


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
