"""The lines of a ledger file: line types, record types, and the chain of checksums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

import msgspec

from ..errors import LedgerError, refuse
from ..factors import Factor, Participation
from ..mechanisms import Mechanism, Trials
from ..outputs import BEGINNING
from ..registry import NOTHING, Held, Registry, decode, encode
from ..relations import Adjacency, Observer, Unit

FORMAT = "fedprivacy ledger"
SCHEMA = 1
# Without a limit, a file without line ends would be read into memory completely.
MAX_LINE = 16 * 2**20
"""Longest line in bytes."""

_KINDS = (Mechanism, Trials, Factor, Participation)
# A sampling scheme is a protocol without a base class; ``amplify`` identifies one.
REGISTRY = Registry(lambda kind: issubclass(kind, _KINDS) or hasattr(kind, "amplify"))
"""Every record type that a ledger may hold."""

_LONG = 1024
"""Longest factor record, in bytes, that lines repeat. Longer ones are only in the plan."""

# msgspec writes the kind and then the fields in order, so every header begins like this.
MAGIC = BEGINNING + f'"schema":{SCHEMA},'.encode()
CHECK = b',"check":"'
TAIL = len(CHECK) + 64 + len(b'"}')


class SeedPolicy(StrEnum):
    """Source of the randomness of the noise."""

    OPERATING_SYSTEM = "operating system"
    """The only private choice."""
    FIXED = "fixed"
    """An observer who knows the seed can subtract the noise."""


class Schedule(StrEnum):
    """Whether a round may depend on the releases of earlier rounds."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


# The lines of the file. msgspec checks kind, fields, types and ranges; NaN and inf are not JSON.

# Up to 2^53, because readers that store JSON numbers as doubles lose larger counts.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NonNegative = Annotated[float, msgspec.Meta(ge=0)]
_Delta = Annotated[float, msgspec.Meta(ge=0, lt=1)]


# Unknown fields are refused, because they may affect the account.
class LedgerLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Any line; ``kind`` is its type."""


class HeaderLine(LedgerLine, frozen=True, tag="header"):
    """The first line: the facts of the run."""

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
    # Files from before nonces have none.
    nonce: str = ""


# Files from before tokens have none.
class IntentLine(LedgerLine, frozen=True, omit_defaults=True, tag="intent"):
    """A round is about to draw its noise. A random token distinguishes copied runs."""

    round: _Count
    clip_norm: _Positive
    noise_std: _Positive
    mechanism: msgspec.Raw
    token: str = ""


# Default fields are left out, because rounds are most of a file.
class DoneLine(LedgerLine, frozen=True, omit_defaults=True, tag="done"):
    """The recorded facts of a finished round."""

    round: _Count
    cohort: _Count
    arrived: _Count
    refused: _Count
    noise_std: _NonNegative
    denominator: _Positive | None = None
    mask: str | None = None
    # A machine that is cloned during a round releases it twice: one intent, two ends.
    token: str = ""


class AbortLine(LedgerLine, frozen=True, tag="abort"):
    """The round releases no value."""

    round: _Count
    reason: str


class RepairLine(LedgerLine, frozen=True, tag="repair"):
    """A half-written line was cut here."""

    cut: _Count


class VoidLine(LedgerLine, frozen=True, tag="void"):
    """The run declares that its recorded rounds differ from the real ones."""

    number: _Count
    reason: str


class LiftLine(LedgerLine, frozen=True, tag="lift"):
    """The cause of an earlier void line is gone."""

    number: _Count


class ResumeLine(LedgerLine, frozen=True, tag="resume"):
    """The ledger was reopened for writing. A random token distinguishes copies."""

    token: str
    when: str


class CloseLine(LedgerLine, frozen=True, tag="close"):
    """The run is complete."""

    rounds: _Count


Event = (
    HeaderLine
    | IntentLine
    | DoneLine
    | AbortLine
    | RepairLine
    | ResumeLine
    | VoidLine
    | LiftLine
    | CloseLine
)
ENCODER = msgspec.json.Encoder()
DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def line_of(event: Event, before: str) -> tuple[bytes, str]:
    """Return the line of an event and its checksum, given the checksum of the line before.

    Raises:
        LedgerError: if the line would be too long.
    """
    # Without the closing brace, because the checksum becomes the last field of the object.
    body = ENCODER.encode(event)[:-1]
    if len(body) + TAIL >= MAX_LINE:
        raise LedgerError(
            f"a line must have at most {MAX_LINE} bytes, got {len(body)}; record fewer values in it"
        )
    # The checksum includes the one before, so a changed, moved or dropped line breaks all later
    # ones.
    check = sha256(before.encode() + body).hexdigest()
    return body + CHECK + check.encode() + b'"}\n', check


def body_of(line: bytes, before: str) -> tuple[bytes, str] | None:
    """Return a line's JSON without its checksum, and the checksum; None if it does not fit."""
    # The tail has a fixed length, so the body is found without parsing possibly forged content.
    body, tail = line[: -TAIL - 1], line[-TAIL - 1 :]
    check = sha256(before.encode() + body).hexdigest()
    return (body + b"}", check) if tail == CHECK + check.encode() + b'"}\n' else None


def encoded(name: str, mechanism: object, unit: Unit | None, held: Held = NOTHING) -> bytes:
    """Return a mechanism as JSON, after a check that it reads back unchanged.

    Args:
        name: name for error messages.
        mechanism: the mechanism.
        unit: unit of the ledger.
        held: objects that may be referred to; see ``long_factors``.

    Raises:
        ParameterError: if the value is no mechanism, or has another unit.
        LedgerError: if it contains types that a ledger may not hold.
    """
    if not isinstance(mechanism, Mechanism):
        refuse(name, mechanism, "be a mechanism", "such as fp.Gaussian(noise_multiplier=1.0)")
    check_unit(name, mechanism, unit)
    text = msgspec.json.encode(encode(mechanism, REGISTRY, held))
    # Checked before the round: a spent round that cannot be read back could never be priced.
    if decoded(text, held) != mechanism:
        raise LedgerError(f"{name} changes when it is written and read back: {mechanism!r}")
    return text


def check_unit(name: str, mechanism: Mechanism, unit: Unit | None) -> None:
    """Refuse a mechanism with another unit than the ledger."""
    # Losses for different units do not add up.
    if mechanism.protects not in (None, unit):
        refuse(
            f"{name}.unit",
            str(mechanism.protects),
            f"be the ledger's unit {str(unit)!r}",
            "keep one ledger for each unit",
        )


def decoded(text: bytes, held: Held = NOTHING) -> Mechanism:
    """Return the mechanism that JSON from an untrusted file describes.

    Raises:
        LedgerError: if it describes no mechanism of this package, or refers to an unknown object.
    """
    mechanism = decode(msgspec.json.decode(text), REGISTRY, held)
    if not isinstance(mechanism, Mechanism):
        raise LedgerError(f"a mechanism was expected, got {type(mechanism).__name__}")
    return mechanism


def long_factors(plan: object) -> dict[str, object]:
    """Return the factors of a plan that are too long for every line, by digest of their record."""
    found: dict[str, object] = {}
    for factor in _factors(plan):
        text = msgspec.json.encode(encode(factor, REGISTRY))
        if len(text) > _LONG:
            found[sha256(text).hexdigest()] = factor
    return found


def _factors(value: object) -> Iterator[Factor]:
    """Yield the factors in a mechanism."""
    if isinstance(value, Factor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _factors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _factors(getattr(value, field.name))
