"""Read untrusted files in bounded memory, with an error of this package for every problem."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import numpy as np

from ...errors import ConversionError, LedgerError
from ...json_fields import check_fields
from ...outputs import printable

MAX_WHOLE = 64 * 2**20
"""Largest file that is read completely, in bytes."""
MAX_TOML = 64 * 2**10
"""Largest TOML file, in bytes."""
MAX_YAML = 256 * 2**10
"""Largest YAML file, in bytes."""
MAX_TEXT = 2**20
"""Largest file of plain text, in bytes."""
MAX_ALIASES = 100
"""Largest number of references to other parts of a YAML file."""
MAX_LINE = 64 * 2**10
"""Longest line of a file of rounds, in bytes."""
MAX_DEPTH = 64
"""Deepest nesting of brackets."""

T = TypeVar("T")


def unreadable(name: str, why: object) -> NoReturn:
    """Raise ConversionError with the reason, limited to 300 characters.

    The message is one line, whatever text the file contains.
    """
    raise ConversionError(printable(f"{name}: {str(why)[:300]}"))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks.

    Raises:
        LedgerError: if the file cannot be read.
    """
    found = sha256()
    try:
        with open(path, "rb") as file:
            # Read in blocks, because a ledger may be larger than memory.
            while piece := file.read(2**20):
                found.update(piece)
    except OSError as error:
        raise LedgerError(f"{path}: could not read it: {error.strerror or error}") from error
    return found.hexdigest()


def beginning(path: Path, length: int = MAX_LINE) -> bytes:
    """Return the first bytes of a file.

    Raises:
        LedgerError: if the path is no file, or cannot be read.
    """
    try:
        # A folder or a device has no content to hash and audit.
        if path.exists() and not path.is_file():
            way_out = (
                "fp.audit.each(folder) judges its records" if path.is_dir() else "name a record"
            )
            raise LedgerError(f"{path} is not a file; {way_out}")
        with open(path, "rb") as file:
            return file.read(length)
    except OSError as error:
        raise LedgerError(f"{path}: could not read it: {error.strerror or error}") from error
    # Python raises ValueError for a zero byte in a name.
    except ValueError as error:
        raise LedgerError(f"{str(path)!r}: could not read it: {error}") from error


def whole(path: Path, most: int = MAX_WHOLE) -> bytes:
    """Return the bytes of a file.

    Raises:
        ConversionError: if the file is too long.
        LedgerError: if the file cannot be read.
    """
    # One byte more than allowed shows that a file is too long, without reading all its content.
    found = beginning(path, most + 1)
    if len(found) > most:
        unreadable(path.name, f"longer than {most} bytes, the most that is read of this kind")
    return found


def json_of(text: bytes, name: str) -> Any:
    """Return JSON as plain values; NaN, Infinity and deep nesting are refused.

    Raises:
        ConversionError: if the text is not JSON, or nested too deeply.
    """
    # Checked before parsing, because deep nesting could exhaust the stack.
    check_depth(text, name)
    try:
        check_fields(text)
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        unreadable(name, f"not readable as JSON: {error}")


def check_depth(text: bytes, name: str) -> None:
    """Refuse text with more than MAX_DEPTH open brackets, before it is parsed.

    Brackets inside strings count too. No supported format has many of these.
    """
    depth = 0
    # All other bytes are deleted first. This is fast and leaves only brackets for the loop.
    for bracket in text.translate(None, _OTHERS):
        depth += 1 if bracket in _OPENING else -1
        if depth > MAX_DEPTH:
            unreadable(name, f"nested deeper than {MAX_DEPTH} levels")


def check_nesting(data: Any, name: str) -> None:
    """Refuse plain values with more than MAX_DEPTH levels, which no supported format has."""
    waiting, known = [(data, 0)], set[int]()
    while waiting:
        one, depth = waiting.pop()
        if not isinstance(one, Mapping | list) or id(one) in known:
            continue
        known.add(id(one))
        if depth > MAX_DEPTH:
            unreadable(name, f"nested deeper than {MAX_DEPTH} levels")
        parts = one.values() if isinstance(one, Mapping) else one
        waiting += [(part, depth + 1) for part in parts]


_OPENING = b"[{"
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def toml_of(text: bytes, name: str) -> dict[str, Any]:
    """Return TOML as plain values.

    Raises:
        ConversionError: if the text is not TOML, too long, or nested too deeply.
    """
    # The time of tomllib may grow with the square of the length, so only short files are read.
    if len(text) > MAX_TOML:
        unreadable(name, f"longer than {MAX_TOML} bytes, the most that is read of TOML")
    check_depth(text, name)
    try:
        return tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        unreadable(name, f"not readable as TOML: {error}")


def ini_of(text: bytes, name: str) -> dict[str, Any]:
    """Return lines ``name = value``, perhaps in sections, as mappings of texts.

    Raises:
        ConversionError: if a line is something else, or a name occurs twice.
    """
    found: dict[str, Any] = {}
    part = found
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        known = _INI.fullmatch(line.strip())
        # A value that ends so goes over several lines of a program.
        if known is None or (known["value"] or "").rstrip().endswith(("(", "[", ",")):
            unreadable(name, f"line {number} is neither a section nor name = value")
        if known["section"]:
            part = found.setdefault(known["section"], {})
        elif known["name"]:
            if known["name"] in part or not isinstance(part, dict):
                unreadable(name, f"the field {known['name']!r:.60} occurs twice; remove one")
            part[known["name"]] = known["value"].strip().rstrip(";").strip("\"'")
    return found


_INI = re.compile(
    r"(?:[#;].*|\[(?P<section>[A-Za-z_][\w .:/-]{0,60})\]"
    r"|(?:export\s+|set\s+)?(?P<name>-{0,2}@?[A-Za-z_][\w.-]{0,80})\s*(?:=|:\s)\s*(?P<value>[^#{]*)(?:#.*)?)?",
    re.ASCII,
)


def yaml_of(text: bytes, name: str) -> Any:
    """Return YAML as plain values, read by PyYAML's safe loader; several documents as a list.

    Raises:
        ConversionError: if the text is no YAML of plain values, is too long, is nested too deeply,
            refers to other parts too often, or has a key twice.
    """
    import yaml

    if len(text) > MAX_YAML:
        unreadable(name, f"longer than {MAX_YAML} bytes, the most that is read of YAML")
    parser = _loader()
    depth, aliases = 0, 0
    try:
        # The events come first: they need no recursion, so deep nesting cannot exhaust the stack.
        for event in yaml.parse(text, Loader=parser):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > MAX_DEPTH:
                unreadable(name, f"nested deeper than {MAX_DEPTH} levels")
            if aliases > MAX_ALIASES:
                unreadable(name, f"more than {MAX_ALIASES} references to other parts of the file")
        for node in yaml.compose_all(text, Loader=parser):
            _check_keys(node, name)
        documents = [each for each in yaml.load_all(text, Loader=parser) if each is not None]
        return documents if len(documents) > 1 else next(iter(documents), None)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError) as error:
        first = str(getattr(error, "problem", None) or error).split("\n", 1)[0]
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        unreadable(name, f"not readable as YAML: {first}{where}")


@cache
def _loader() -> Any:
    """Return PyYAML's safe loader, without numbers that other readers of YAML read otherwise.

    YAML 1.1 reads 0100 as 64 and 1:40 as 100; YAML 1.2 reads 100 and a text. Both are texts here.
    """
    import yaml

    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in known]
        for first, known in safe.yaml_implicit_resolvers.items()
    }
    loader: Any = type("Loader", (safe,), {"yaml_implicit_resolvers": resolvers})
    # Objects of Python are read as their plain values, and nothing is built or called.
    for prefix in ("tag:yaml.org,2002:python/", "!"):
        loader.add_multi_constructor(prefix, _untagged)
    return loader


def _untagged(loader: Any, _: str, node: Any) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z"),
    "tag:yaml.org,2002:float": re.compile(
        # Without 1.000, which may be one or a thousand.
        r"(?!(?:[1-9]\d{0,2}(?:\.\d{3})+)\Z)(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?"
        r"|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}
"""Tag of YAML -> the texts that are numbers of it."""


def _check_keys(node: Any, name: str) -> None:
    """Refuse a mapping that has a key twice: YAML would silently keep the last one."""
    import yaml

    waiting, known = [node], set()
    while waiting:
        one = waiting.pop()
        if id(one) in known or not isinstance(one, yaml.CollectionNode):
            continue
        known.add(id(one))
        if isinstance(one, yaml.MappingNode):
            keys = [key.value for key, _ in one.value if isinstance(key, yaml.ScalarNode)]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                unreadable(name, f"the field {twice!r:.60} occurs twice; remove one")
            waiting += [part for pair in one.value for part in pair]
        else:
            waiting += one.value


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of the nonempty lines of a file.

    Raises:
        ConversionError: if a line is too long or not UTF-8.
        LedgerError: if the file cannot be read.
    """
    for number, line in enumerate(_raw_lines(path), start=1):
        if len(line) > MAX_LINE:
            unreadable(path.name, f"line {number} is longer than {MAX_LINE} bytes")
        text = _text(line, f"{path.name}, line {number}").strip()
        if text:
            yield number, text


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; a line longer than ``MAX_LINE`` comes in parts."""
    try:
        with open(path, "rb") as file:
            # The limit of readline prevents that a line without an end fills the memory.
            yield from iter(lambda: file.readline(MAX_LINE + 1), b"")
    except OSError as error:
        raise LedgerError(f"{path}: could not read it: {error.strerror or error}") from error


def _text(line: bytes, name: str) -> str:
    try:
        # Spreadsheets write a byte order mark, which is not part of the first column's name.
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        unreadable(name, "not UTF-8 text")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no plain value")


def as_type(data: Any, kind: type[T], name: str, *, strict: bool = True) -> T:
    """Return plain values as a record of a closed type.

    Args:
        data: plain values.
        kind: a msgspec struct.
        name: name of the file, for messages.
        strict: False to convert strings to numbers, as a table needs.

    Raises:
        ConversionError: if the values do not fit.
    """
    try:
        # Values of a running program are often numpy numbers.
        plain = msgspec.to_builtins(data, enc_hook=_plain)
        return msgspec.convert(plain, kind, strict=strict)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as error:
        unreadable(name, error)
