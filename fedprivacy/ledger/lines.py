"""The lines of a ledger file: their kinds, the record types in them, the checksum chain."""

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
# A file without line ends would otherwise be read into memory whole.
MAX_LINE = 16 * 2**20
"""Longest line in bytes."""

_KINDS = (Mechanism, Trials, Factor, Participation)
# A scheme of sampling is a protocol, which nobody must inherit: what amplifies is one.
REGISTRY = Registry(lambda kind: issubclass(kind, _KINDS) or hasattr(kind, "amplify"))
"""Every record type that a ledger may hold."""

_LONG = 1024
"""Bytes of a factor's record that every line may repeat; a longer one is in the plan alone."""

# msgspec writes the kind and then the fields in order, so every header begins so.
MAGIC = BEGINNING + f'"schema":{SCHEMA},'.encode()
CHECK = b',"check":"'
TAIL = len(CHECK) + 64 + len(b'"}')


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

# Up to 2^53: readers that hold JSON numbers as doubles lose counts beyond.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NonNegative = Annotated[float, msgspec.Meta(ge=0)]
_Delta = Annotated[float, msgspec.Meta(gt=0, lt=1)]


# Fields that are not known are refused: they may say something that counts.
class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Any line; ``kind`` says which."""


class HeaderLine(Line, frozen=True, tag="header"):
    """The first line: what the ledger is about."""

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
    # Files written before there were nonces have none.
    nonce: str = ""


# Files written before there were tokens have none.
class IntentLine(Line, frozen=True, omit_defaults=True, tag="intent"):
    """A round is about to draw its noise. A random token tells it from a copied run's round."""

    round: _Count
    clip_norm: _Positive
    noise_std: _Positive
    mechanism: msgspec.Raw
    token: str = ""


# Fields that say nothing are left out: rounds are most of a file.
class DoneLine(Line, frozen=True, omit_defaults=True, tag="done"):
    """What the round did."""

    round: _Count
    cohort: _Count
    arrived: _Count
    refused: _Count
    noise_std: _NonNegative
    denominator: _Positive | None = None
    mask: str | None = None
    # A machine that is cloned within a round releases it twice: from one intent, with two ends.
    token: str = ""


class AbortLine(Line, frozen=True, tag="abort"):
    """Nothing of the round is released."""

    round: _Count
    reason: str


class RepairLine(Line, frozen=True, tag="repair"):
    """A half-written line was cut here."""

    cut: _Count


class VoidLine(Line, frozen=True, tag="void"):
    """The run says that its rounds are not what was done."""

    number: _Count
    reason: str


class LiftLine(Line, frozen=True, tag="lift"):
    """The cause of an earlier void line is gone."""

    number: _Count


class ResumeLine(Line, frozen=True, tag="resume"):
    """The ledger was opened again to be written to. A random token tells copies apart."""

    token: str
    when: str


class CloseLine(Line, frozen=True, tag="close"):
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
    """Return an event's line and its checksum, given the checksum of the line before.

    Raises:
        LedgerError: the line would be too long.
    """
    # Without its closing brace: the checksum becomes the object's last field.
    body = ENCODER.encode(event)[:-1]
    if len(body) + TAIL >= MAX_LINE:
        raise LedgerError(f"a line of {len(body)} bytes is too long; the limit is {MAX_LINE}")
    # Over the checksum before too: a line that is changed, moved or dropped breaks all that follow.
    check = sha256(before.encode() + body).hexdigest()
    return body + CHECK + check.encode() + b'"}\n', check


def body_of(line: bytes, before: str) -> tuple[bytes, str] | None:
    """Return a line's JSON without its checksum, and the checksum; None if that does not fit."""
    # The tail has a fixed length: the body is found without parsing what may be forged.
    body, tail = line[: -TAIL - 1], line[-TAIL - 1 :]
    check = sha256(before.encode() + body).hexdigest()
    return (body + b"}", check) if tail == CHECK + check.encode() + b'"}\n' else None


def encoded(name: str, mechanism: object, unit: Unit | None, held: Held = NOTHING) -> bytes:
    """Return a mechanism as JSON, once it is known to read back the same.

    Args:
        name: what to call it in errors.
        mechanism: the mechanism.
        unit: of the ledger.
        held: what may be referred to; see ``long_factors``.

    Raises:
        ParameterError: not a mechanism, or one for another unit.
        LedgerError: not made of types that a ledger may hold.
    """
    if not isinstance(mechanism, Mechanism):
        refuse(name, mechanism, "be a mechanism", "such as fp.Gaussian(noise_multiplier=1.0)")
    check_unit(name, mechanism, unit)
    text = msgspec.json.encode(encode(mechanism, REGISTRY, held))
    # Tried before the round: what cannot be read back is spent and can never be priced.
    if decoded(text, held) != mechanism:
        raise LedgerError(f"{name} does not read back as it was: {mechanism!r}")
    return text


def check_unit(name: str, mechanism: Mechanism, unit: Unit | None) -> None:
    """Refuse a mechanism whose unit is not the ledger's."""
    # Losses of another unit do not add up with the ledger's.
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
        LedgerError: it describes no mechanism of ours, or refers to what is not held.
    """
    mechanism = decode(msgspec.json.decode(text), REGISTRY, held)
    if not isinstance(mechanism, Mechanism):
        raise LedgerError(f"a mechanism was expected, got {type(mechanism).__name__}")
    return mechanism


def long_factors(plan: object) -> dict[str, object]:
    """Return a plan's factors by the digests of their records, those too long for every line."""
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
