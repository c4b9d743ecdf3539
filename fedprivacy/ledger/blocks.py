"""Many ordinary rounds of a ledger at once: the same checks as line by line, in half the time.

A block of lines is taken only if nothing about it is unusual: begun and finished rounds in their
order, of known mechanisms, in the bytes that a release writes, with fitting checksums. Any other
block is read line by line, which names the fault.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from .lines import TAIL, DoneLine, IntentLine

if TYPE_CHECKING:
    from .history import History


# The lines of a block live for a moment, so the collector need not know them.
class _Intent(IntentLine, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="intent"):
    """An intent with its checksum."""

    check: str


class _Done(DoneLine, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="done"):
    """The end of a round with its checksum."""

    check: str


_Line = _Intent | _Done
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def take_rounds(history: History, text: bytes) -> bool:
    """Add the rounds of complete lines to a history; False, and no change, if any is unusual."""
    if not text or history.header is None or history.closed:
        return False
    try:
        lines = _DECODER.decode_lines(text)
    # Of an untrusted file: reading it line by line gives the reason.
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    # The decoder takes the last of two fields with one name; the encoder writes each once.
    if _ENCODER.encode_lines(lines) != text or not _chained(history.check, text, lines):
        return False
    mechanisms = _in_order(history, lines)
    if mechanisms is None:
        return False
    begin, end, each = history.rounds.begin, history.rounds.end, iter(mechanisms)
    for line in lines:
        if isinstance(line, _Intent):
            begin(next(each), line.clip_norm, line.noise_std, line.check)
        else:
            counted = (line.cohort, line.arrived, line.refused)
            end((*counted, line.noise_std, line.denominator), line.mask, line.check)
    history.check = lines[-1].check
    history.size += len(text)
    history.lines += len(lines)
    return True


def _chained(before: str, text: bytes, lines: list[_Line]) -> bool:
    """Return whether every checksum is that of the line and of the checksum before."""
    rows = text.split(b"\n")
    # Blank lines have no checksum, and the decoder leaves them out.
    if len(rows) != len(lines) + 1:
        return False
    for row, line in zip(rows, lines, strict=False):
        if sha256(before.encode() + row[:-TAIL]).hexdigest() != line.check:
            return False
        before = line.check
    return True


def _in_order(history: History, lines: list[_Line]) -> list[int] | None:
    """Return the numbers of the begun rounds' mechanisms; None if a line is out of place."""
    begun, now = history.rounds.count, history.rounds.open
    found: list[int] = []
    for line in lines:
        if isinstance(line, _Intent):
            number = history.known(bytes(line.mechanism))
            if number is None or line.round != begun:
                return None
            begun, now = begun + 1, begun
            found.append(number)
        elif line.round != now:
            return None
        else:
            now = None
    return found
