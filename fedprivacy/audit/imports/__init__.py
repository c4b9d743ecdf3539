"""Read records of other programs: a closed list of formats, recognised by their content.

Each format has one module. No code is imported or run by name, and only tensors and plain values
are unpickled. Every file ends in bounded memory with a trace or with an error of this package.
Missing facts are requested, never guessed.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ...errors import ConversionError
from ...ledger.lines import FORMAT
from ...outputs import printable
from . import events, flower, opacus, statement, table
from .assembling import Assembled, assemble
from .content import beginning, digest, json_of, toml_of, unreadable, whole
from .trace import (
    Denominator,
    Origin,
    Rounds,
    Sampling,
    Stated,
    Trace,
    Unseen,
    with_unit,
)

__all__ = [
    "FORMATS",
    "Assembled",
    "Denominator",
    "Origin",
    "Rounds",
    "Sampling",
    "Stated",
    "Trace",
    "Unseen",
    "assemble",
    "is_ledger",
    "read",
    "read_data",
    "with_unit",
]

FORMATS = ("fedprivacy ledger", opacus.KIND, flower.KIND, events.KIND, table.KIND, statement.KIND)
"""Every format that an audit reads."""

_OF_VALUES: tuple[tuple[Callable[[Any], bool], str, Callable[[Any, Origin], Trace]], ...] = (
    (flower.recognises, flower.KIND, flower.read),
    (events.recognises, events.KIND, events.read),
    (opacus.recognises, opacus.KIND, opacus.read),
    (statement.recognises, statement.KIND, statement.read),
)
"""Formats of plain values: test function, name, reader."""

_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_NEEDED = re.compile(b"noise_multiplier|noise_std")


def is_ledger(start: bytes) -> bool:
    """Return whether these first bytes belong to a ledger of this package."""
    return FORMAT.encode() in start[:120]


def read(path: Path, by: str = "") -> Trace:
    """Return the trace in a file.

    Args:
        path: the file.
        by: name of the importer; empty for the login name of this process.

    Raises:
        ConversionError: if the format is not supported, or a value does not fit it.
        LedgerError: if the file cannot be read.
        ParameterError: if a value breaks its rule.
    """
    start = beginning(path)
    if not start.removeprefix(BOM_UTF8).strip():
        unreadable(path.name, "empty; name the record of a run")
    # A pickle is refused by its first byte, before any code could unpickle it.
    if start.startswith(_PICKLE):
        told = "a pickle, which is not read: it can run any program"
        unreadable(path.name, f"{told}; save the state as JSON, or by torch.save")

    # The digest is computed only for a known format, because untrusted files may be long.
    def origin(kind: str) -> Origin:
        return Origin.imported(kind, path.name, digest(path), by)

    if start.startswith(_ZIP):
        return opacus.read(opacus.from_checkpoint(path), origin(opacus.KIND))
    # Only the first line decides. It does not include a byte order mark.
    first = start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n").split("\n", 1)[0].strip()
    if table.recognises(first):
        return table.read(path, origin(table.KIND))
    if first.startswith(("{", "[")):
        return read_data(json_of(whole(path), path.name), origin, path.name)
    # TOML has no typical first character, so the required names of a statement must be present.
    if _NEEDED.search(start):
        return read_data(_statement_of(path), origin, path.name)
    _unknown(path.name)


def _statement_of(path: Path) -> Any:
    """Return the values of a TOML file, or raise an error that lists the supported formats."""
    text = whole(path)
    try:
        return toml_of(text, path.name)
    except ConversionError as error:
        # The same names also occur in YAML, in tables with other separators, and in printed
        # objects.
        _unknown(path.name, f" ({error})")


def read_data(data: Any, origin: Callable[[str], Origin], name: str) -> Trace:
    """Return the trace in plain values, for example a state that was never written to a file.

    Args:
        data: plain JSON values.
        origin: makes the origin from the name of the format.
        name: name of the source, for messages.

    Raises:
        ConversionError: if the format is not supported, or a value does not fit it.
        ParameterError: if a value breaks its rule.
    """
    # The order matters: a more specific format comes before one that would also accept it.
    for recognises, kind, reader in _OF_VALUES:
        if recognises(data):
            return reader(data, origin(kind))
    _unknown(name)


def _unknown(name: str, why: str = "") -> NoReturn:
    formats = ", ".join(FORMATS)
    raise ConversionError(
        f"{printable(name)} is none of the formats that are read: {formats}; see "
        f"docs/auditing.md{why}"
    )
