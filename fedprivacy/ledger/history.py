"""The state of a ledger after its lines, and the rules for their order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import msgspec

from ..errors import DamagedLedger, FedPrivacyError, ForeignLedger, LedgerError
from ..json_fields import RepeatedField, check_fields
from ..mechanisms import Mechanism
from ..outputs import printable
from ..registry import NOTHING, Held
from .blocks import take_rounds
from .files import ledger_errors
from .lines import (
    CHECK,
    DECODER,
    ENCODER,
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
    LiftLine,
    RepairLine,
    ResumeLine,
    VoidLine,
    body_of,
    check_unit,
    decoded,
    long_factors,
)
from .rounds import LedgerRounds


class _Probe(msgspec.Struct):
    # Unknown fields are accepted: from the header of a later release, only these two are read.
    """The first fields of a header of any schema."""

    format: str
    schema: int


class Resumed(NamedTuple):
    """A reopening of a ledger for writing.

    Attributes:
        when: time, ISO 8601, UTC.
        token: a value that differs between resumed copies of a ledger.
    """

    when: str
    token: str


class History:
    """The state after the lines read or written, with the order rules for both.

    Attributes:
        header: the first line; None before it.
        plan: the whole run as planned, if given.
        held: the long factors of the plan, for references from lines.
        rounds: every begun round.
        closed: whether the run is complete.
        voids: reasons why the run declared its record void, by number, without the lifted ones.
        voided: number of these declarations, lifted ones included.
        notes: sentences on repairs and on left-out lines.
        resumed: times of reopening for writing.
        check: checksum of the last line.
        size: bytes of all complete lines.
        lines: number of complete lines.
        torn: the half-written line after them.
        whole: SHA-256 of all complete lines.
    """

    def __init__(self) -> None:
        self.header: HeaderLine | None = None
        self.plan: Mechanism | None = None
        self.held: Held = NOTHING
        self.rounds = LedgerRounds()
        self.closed = False
        self.voids: dict[int, str] = {}
        self.voided = 0
        self.notes: list[str] = []
        self.resumed: list[Resumed] = []
        self.check = ""
        self.size = 0
        self.lines = 0
        self.torn = b""
        # By text, because looking up the JSON of a mechanism is much cheaper than decoding it
        # again.
        self._mechanisms: dict[bytes, int] = {}
        self.whole = sha256()

    def misplaced(self, event: Event) -> str:
        """Return why an event cannot come next; empty if it can."""
        if self.header is None:
            first = isinstance(event, HeaderLine)
            return "" if first else "the header must be the first line and no other"
        if self.closed:
            return "the ledger is closed, so no line may follow"
        rounds = self.rounds
        match event:
            case IntentLine() if event.round != rounds.count:
                return f"round {event.round} cannot begin now; the next round is {rounds.count}"
            case DoneLine() | AbortLine() if event.round != (now := rounds.open):
                text = (
                    ("no round is open; write its intent first")
                    if now is None
                    else (f"the open round is {now}")
                )
                return f"round {event.round} is not the open round ({text})"
            case VoidLine() if event.number != self.voided:
                return f"void line {event.number} cannot come now; the next one is {self.voided}"
            case LiftLine() if event.number not in self.voids:
                return f"void line {event.number} cannot be lifted; it is not in force"
            case CloseLine() if event.rounds != rounds.count:
                return (
                    f"the closing line counts {event.rounds} rounds, but {rounds.count} were begun"
                )
            case HeaderLine():
                return "the header must be the first line and no other"
        return ""

    def take(self, event: Event, check: str) -> None:
        """Add an event in its place; ``check`` is the checksum of its line."""
        match event:
            case IntentLine():
                number = self._known(event.mechanism)
                self.rounds.begin(number, event.clip_norm, event.noise_std, check)
            case DoneLine():
                # Plain tuples are hashable, so that equal rounds share one.
                counted = (event.cohort, event.arrived, event.refused)
                self.rounds.end((*counted, event.noise_std, event.denominator), event.mask, check)
            case AbortLine():
                self.rounds.end(event.reason)
            case HeaderLine():
                self.header = event
                self.plan = self._priced(event.plan) if bytes(event.plan) != b"null" else None
                self.held = long_factors(self.plan)
            case RepairLine():
                self.notes.append(
                    f"before line {self.lines + 1} a half-written line of {event.cut} bytes "
                    "was removed when the run resumed; it does not count"
                )
            case VoidLine():
                self.voids[event.number] = event.reason
                self.voided += 1
            case LiftLine():
                del self.voids[event.number]
            case ResumeLine():
                self.resumed.append(Resumed(event.when, event.token))
            case CloseLine():
                self.closed = True

    def known(self, text: bytes) -> int | None:
        """Return the number of a mechanism that a line had before; else None."""
        return self._mechanisms.get(text)

    def _known(self, raw: msgspec.Raw) -> int:
        text = bytes(raw)
        number = self.known(text)
        if number is None:
            number = self._mechanisms[text] = self.rounds.known(self._priced(raw))
        return number

    def _priced(self, raw: msgspec.Raw) -> Mechanism:
        check_fields(bytes(raw))
        mechanism = decoded(bytes(raw), self.held)
        check_unit("mechanism", mechanism, self.header.unit if self.header else None)
        return mechanism

    def advance(self, size: int, check: str) -> None:
        """Move the end of the chain past a line of ``size`` bytes."""
        self.check = check
        self.size += size
        self.lines += 1

    @property
    def digest(self) -> str:
        """SHA-256 of the file, a half-written line included, in hexadecimal."""
        # A copy: torn bytes belong to the read file, but never to the lines that follow.
        whole = self.whole.copy()
        whole.update(self.torn)
        return whole.hexdigest()


def read(path: Path) -> History:
    """Read and check a ledger file. A half-written last line is left out and noted.

    Raises:
        ForeignLedger: if the file is no ledger of this package, or has a later schema.
        DamagedLedger: if a line was changed or lost.
        LedgerError: if the file does not exist or cannot be read.
    """
    with ledger_errors(path, "read it"):
        # Opening a pipe would wait forever, and a folder fails with an unclear message.
        if path.exists() and not path.is_file():
            raise LedgerError(f"{path} is not a file; name the ledger of a run")
        with open(path, "rb") as file:
            return _read_lines(file, path)


def passes(path: Path, place: tuple[int, str], most: int) -> bool:
    """Return whether a ledger file contains this place (number of lines, checksum of the last).

    Args:
        path: a file that was read and found intact.
        place: a place of this or another ledger.
        most: number of lines in the file.

    Raises:
        LedgerError: if the file cannot be read.
    """
    lines, check = place
    # The place may come from an untrusted file, so negative or huge counts are refused.
    if not 0 < lines <= most:
        return False
    with ledger_errors(path, "read it"), open(path, "rb") as file:
        line = next(itertools.islice(file, lines - 1, None), b"")
    # A checksum covers all earlier lines, so the last one represents the whole past.
    return line.endswith(CHECK + check.encode() + b'"}\n')


def _read_lines(file: BinaryIO, path: Path) -> History:
    history = History()
    for line in _lines_of(file, history):
        if not history.lines:
            _recognise(line, path)
        if line.endswith(b"\n"):
            _read_line(history, line, path)
        elif len(line) >= MAX_LINE:
            _damaged(path, history, "the line is too long")
        else:
            # Only the last line can lack its end, after a crash. No line may follow a close.
            if history.closed:
                _damaged(path, history, "the line follows the end of a closed ledger")
            _leave_out(history, line)
    if not history.lines:
        raise ForeignLedger(f"{path} is empty, not a ledger; {_begin_anew(path)}")
    return history


def _lines_of(file: BinaryIO, history: History) -> Iterator[bytes]:
    """Yield lines with their ends; a half-written or too long last line has none.

    The file is read in blocks. Blocks of ordinary rounds are taken at once and not yielded.
    """
    rest = b""
    while block := file.read(_BLOCK):
        cut = block.rfind(b"\n") + 1
        # The text after the last line feed may continue in the next block.
        text, rest = (rest + block[:cut], block[cut:]) if cut else (b"", rest + block)
        history.whole.update(text)
        if not take_rounds(history, text):
            for line in text.split(b"\n")[:-1]:
                yield line + b"\n"
        # Stop here, because a file without line feeds would fill the memory.
        if len(rest) >= MAX_LINE:
            break
    if rest:
        yield rest


_BLOCK = 2**20
"""Number of bytes per read."""


def _recognise(line: bytes, path: Path) -> None:
    """Refuse a first line that is no complete header of a readable ledger."""
    if line.startswith(MAGIC) and line.endswith(b"\n"):
        return
    # The cut may be after the magic bytes or within them.
    if line.startswith(MAGIC) or MAGIC.startswith(line):
        raise ForeignLedger(
            f"{path} ends within its first line, so it records no round; {_begin_anew(path)}"
        )
    schema = _schema(line)
    if schema > SCHEMA:
        raise ForeignLedger(
            f"{path} has schema {schema}, but this release reads schema {SCHEMA} at most; "
            "upgrade fedprivacy"
        )
    raise ForeignLedger(f"{path} does not begin like a fedprivacy ledger; name another file")


def _schema(line: bytes) -> int:
    """Return the schema of a first line; 0 if it is no header of a ledger."""
    try:
        probe = msgspec.json.decode(line, type=_Probe)
    # Deeply nested JSON in an untrusted file raises RecursionError.
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
    return probe.schema if probe.format == FORMAT else 0


def _begin_anew(path: Path) -> str:
    return f"remove it and use Ledger.create({str(path)!r}, ...)"


def _read_line(history: History, line: bytes, path: Path) -> None:
    # The checksum comes before the content, because a decoder error for a changed line is
    # misleading.
    intact = body_of(line, history.check)
    if intact is None:
        _damaged(path, history, "its checksum is wrong")
    body, check = intact
    try:
        event = DECODER.decode(body)
        # The decoder takes the last of two fields with one name. A line of a release encodes to the
        # same bytes again, which is the cheaper test. Mechanisms stay raw in it: see ``_priced``.
        if ENCODER.encode(event) != body:
            check_fields(body)
        problem = history.misplaced(event)
        if not problem:
            history.take(event, check)
    except RepeatedField as error:
        raise DamagedLedger(
            f"{path}, line {history.lines + 1}: the field {error}, so two readers could read "
            "two records; no release writes this, so the line was forged. Restore a copy of "
            "the file"
        ) from error
    except (msgspec.MsgspecError, FedPrivacyError, ValueError, RecursionError) as error:
        # The checksum fits, so the line is undamaged but has content unknown to this release.
        raise ForeignLedger(
            f"{path}, line {history.lines + 1}, is complete but cannot be read: "
            f"{printable(error)}; a later release may have written it: upgrade fedprivacy"
        ) from error
    if problem:
        _damaged(path, history, problem)
    history.advance(len(line), check)


def _damaged(path: Path, history: History, what: str) -> NoReturn:
    raise DamagedLedger(
        f"{path}, line {history.lines + 1}: {what}; this line or an earlier one was changed "
        "after it was written. Restore a copy of the file; without a copy, the spent epsilon "
        "is unknown from this line on"
    )


def _leave_out(history: History, line: bytes) -> None:
    # Not parsed, because only the beginning of a cut line is known.
    kind = "an intent" if line.startswith(b'{"kind":"intent"') else "a line"
    history.torn = line
    history.notes.append(
        f"line {history.lines + 1} is incomplete ({len(line)} bytes of {kind}) and was "
        "ignored; no noise was drawn before its write returned, so it does not count"
    )
