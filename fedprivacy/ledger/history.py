"""What the lines of a ledger amount to, and the rules of their order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from ..errors import DamagedLedger, FedPrivacyError, ForeignLedger, LedgerError
from ..mechanisms import Mechanism
from .files import explained
from .lines import (
    DECODER,
    FORMAT,
    MAGIC,
    MAX_LINE,
    SCHEMA,
    AbortLine,
    CloseLine,
    DoneLine,
    Event,
    HeaderLine,
    IntentLine,
    RepairLine,
    body_of,
    check_unit,
    decoded,
)


@dataclass(frozen=True, slots=True)
class Done:
    """What a round really did.

    Attributes:
        cohort: number of participants drawn.
        arrived: number of contributions in the sum.
        refused: number of contributions left out, such as non-finite ones.
        noise_std: std of the noise in the sum, colluders' shares included.
        denominator: what the noisy sum was divided by; None where that was not recorded.
        mask: fingerprint of the coordinates that travelled; None where all did, or not recorded.
    """

    cohort: int
    arrived: int
    refused: int
    noise_std: float
    denominator: float | None = None
    mask: str | None = None


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


class _Probe(msgspec.Struct):
    """What a header of any schema begins with."""

    format: str
    schema: int


@dataclass
class History:
    """What the lines so far amount to; keeps the order rules, for reading and writing alike."""

    header: HeaderLine | None = None
    plan: Mechanism | None = None
    rounds: list[Round] = field(default_factory=list)
    closed: bool = False
    notes: list[str] = field(default_factory=list)
    check: str = ""
    checks: list[str] = field(default_factory=list)
    """The checksum of every line so far."""
    size: int = 0
    lines: int = 0
    torn: bytes = b""
    mechanisms: dict[bytes, Mechanism] = field(default_factory=dict)

    def misplaced(self, event: Event) -> str:
        """Return why an event cannot come next, empty if it can."""
        if isinstance(event, HeaderLine) or self.header is None:
            first = isinstance(event, HeaderLine) and self.header is None
            return "" if first else "the header must be the first line, and only that"
        if self.closed:
            return "the ledger is closed, nothing may follow"
        count = len(self.rounds)
        match event:
            case IntentLine() if event.round != count:
                return f"round {event.round} cannot begin now; the next round is {count}"
            case DoneLine() | AbortLine() if not self._is_open(event.round):
                return f"round {event.round} is not the one under way ({self._under_way()})"
            case CloseLine() if event.rounds != count:
                return f"it closes {event.rounds} rounds, but {count} were begun"
        return ""

    def _is_open(self, index: int) -> bool:
        last = self.rounds[-1] if self.rounds else None
        if last is None or last.index != index:
            return False
        return last.done is None and last.aborted is None

    def _under_way(self) -> str:
        last = len(self.rounds) - 1
        return (
            f"that is round {last}" if self._is_open(last) else "there is none; begin with intent"
        )

    def take(self, event: Event) -> None:
        """Add an event that is not misplaced."""
        match event:
            case HeaderLine():
                self.header = event
                self.plan = self._priced(event.plan) if bytes(event.plan) != b"null" else None
            case IntentLine():
                priced = self._priced(event.mechanism)
                self.rounds.append(Round(event.round, priced, event.clip_norm, event.noise_std))
            case DoneLine():
                done = Done(
                    event.cohort,
                    event.arrived,
                    event.refused,
                    event.noise_std,
                    event.denominator,
                    event.mask,
                )
                self.rounds[-1] = replace(self.rounds[-1], done=done)
            case AbortLine():
                self.rounds[-1] = replace(self.rounds[-1], aborted=event.reason)
            case RepairLine():
                self.notes.append(
                    f"before line {self.lines + 1} a half-written line of {event.cut} bytes was "
                    "cut when the run resumed; it counts nothing"
                )
            case CloseLine():
                self.closed = True

    def _priced(self, raw: msgspec.Raw) -> Mechanism:
        text = bytes(raw)
        if text not in self.mechanisms:
            mechanism = decoded(text)
            check_unit("mechanism", mechanism, self.header.unit if self.header else None)
            self.mechanisms[text] = mechanism
        return self.mechanisms[text]

    def advance(self, line: bytes, check: str) -> None:
        """Move the end of the chain past a line."""
        self.checks.append(check)
        self.check, self.size, self.lines = check, self.size + len(line), self.lines + 1


def read(path: Path) -> History:
    """Read and check a ledger file; a half-written last line is left out and noted.

    Raises:
        ForeignLedger: not a ledger of ours, or of a later schema.
        DamagedLedger: a line was changed or lost.
        LedgerError: no such file, or it cannot be read.
    """
    with explained(path, "read it"):
        if path.exists() and not path.is_file():
            raise LedgerError(f"{path} is not a file; name the ledger that a run wrote")
        with open(path, "rb") as file:
            return _read_lines(file, path)


def _read_lines(file: BinaryIO, path: Path) -> History:
    history = History()
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
    if line.startswith(MAGIC) and line.endswith(b"\n"):
        return
    if line.startswith(MAGIC) or MAGIC.startswith(line):
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


def _read_line(history: History, line: bytes, path: Path) -> None:
    intact = body_of(line, history.check)
    if intact is None:
        _damaged(path, history, "its checksum does not fit")
    body, check = intact
    try:
        event = DECODER.decode(body)
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


def _damaged(path: Path, history: History, what: str) -> NoReturn:
    raise DamagedLedger(
        f"{path}, line {history.lines + 1}: {what}; the line, or one before it, was changed after "
        "it was written. Go back to a copy of the file; without one, what was spent is unknown "
        "from this line on"
    )


def _leave_out(history: History, line: bytes) -> None:
    kind = "an intent" if line.startswith(b'{"kind":"intent"') else "a line"
    history.torn = line
    history.notes.append(
        f"line {history.lines + 1} is half written ({len(line)} bytes of {kind}) and was left out; "
        "its write had not returned, so no noise was drawn on its account and it counts nothing"
    )
