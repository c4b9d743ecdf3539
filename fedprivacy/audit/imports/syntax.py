"""The syntax of a text file: JSON, lines of JSON, a table, TOML, YAML, or plain text.

The content decides, not the name of the file. Every syntax is tried whole: a first character such
as ``[`` begins a list of JSON, a table of TOML and a line of a log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConversionError
from . import table
from .content import MAX_TEXT, MAX_TOML, json_of, toml_of, unreadable, whole, yaml_of
from .fields import NUMBER, as_number, plain_name

MAX_ROWS = 10_000
"""Largest number of runs that are read from one file."""


@dataclass(frozen=True)
class Content:
    """The plain values of a file.

    Attributes:
        kind: the syntax.
        values: the plain values; a list of objects for lines of JSON and for tables.
        problems: why other syntaxes do not fit, for messages.
    """

    kind: str
    values: Any
    problems: tuple[str, ...] = ()


def content_of(path: Path) -> Content:
    """Return the values of a text file.

    Raises:
        ConversionError: if the file is too long, or its text breaks the syntax that it begins.
        LedgerError: if the file cannot be read.
    """
    text = whole(path)
    start = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    problems: list[str] = []
    if start.startswith(b"{"):
        return _of_braces(start, path.name)
    if start.startswith(b"["):
        try:
            return Content("JSON", json_of(start, path.name))
        except ConversionError as error:
            problems.append(str(error))
    if len(text) > MAX_TEXT:
        # Only tables and JSON may be long.
        found = _table(start, path.name)
        if found is not None:
            return found
        unreadable(path.name, f"longer than {MAX_TEXT} bytes, the most that is read of plain text")
    return _of_words(start, path.name, problems)


def _of_braces(text: bytes, name: str) -> Content:
    """Return JSON, or lines of JSON."""
    try:
        return Content("JSON", json_of(text, name))
    except ConversionError:
        lines = [line for line in text.splitlines() if line.strip()]
        # One object over several lines is no list of objects; its own error is the useful one.
        if len(lines) < 2 or not all(line.strip().startswith(b"{") for line in lines[:20]):
            raise
    if len(lines) > MAX_ROWS:
        unreadable(name, f"more than {MAX_ROWS} lines that are no rounds")
    rows = [json_of(line, f"{name}, line {at}") for at, line in enumerate(lines, start=1)]
    return Content("lines of JSON", rows)


def _of_words(text: bytes, name: str, problems: list[str]) -> Content:
    if b"\x00" in text:
        unreadable(name, "not a text file, and no checkpoint of torch")
    found = _table(text, name)
    if found is not None:
        return found
    tries = (
        (("TOML", toml_of), ("YAML", yaml_of)) if len(text) <= MAX_TOML else (("YAML", yaml_of),)
    )
    for kind, parse in tries:
        try:
            values = parse(text, name)
        except ConversionError as error:
            problems.append(str(error).removeprefix(f"{name}: "))
            continue
        # Plain words are YAML too: only fields make a record.
        if isinstance(values, dict | list) and values:
            return Content(kind, values, tuple(problems))
    try:
        words = text.decode("utf-8")
    except UnicodeDecodeError:
        unreadable(name, "not UTF-8 text, and no checkpoint of torch")
    return Content("plain text", words, tuple(problems))


_NAME = re.compile(r"[A-Za-z_][\w ./%()\[\]-]{0,59}", re.ASCII)


def _table(text: bytes, name: str) -> Content | None:
    """Return the rows of a table with a header, or None."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or len(lines[0]) > 4096:
        return None
    header = lines[0].decode("utf-8", "replace").strip()
    separator = table.separator_of(header)
    if separator is None:
        return None
    names = [each.strip().strip('"') for each in header.split(separator)]
    # A header consists of names. A line of text with a comma has other characters or no rows.
    if not all(_NAME.fullmatch(each) for each in names if each) or not names[-1]:
        return None
    if len(lines) > MAX_ROWS + 1:
        unreadable(name, f"a table of more than {MAX_ROWS} rows that are no rounds")
    plain = {plain_name(each) for each in names}
    if "epoch" in plain and plain & {"noise_multiplier", "sigma"} and len(lines) > 2:
        unreadable(
            name,
            "rows are epochs of one run, and an epoch has many steps; write a row for each step "
            "with a column round, or state the run: --noise-multiplier Z --rounds N",
        )
    rows = []
    for at, line in enumerate(lines[1:], start=2):
        cells = table.split(line.decode("utf-8", "replace"), f"{name}, line {at}", separator)
        if len(cells) != len(names):
            if at == 2:
                return None
            unreadable(f"{name}, line {at}", f"{len(cells)} cells under {len(names)} names")
        values = {key: _cell(cell) for key, cell in zip(names, cells, strict=True) if key}
        rows.append({key: value for key, value in values.items() if value != ""})
    if len({*names}) != len(names):
        unreadable(name, "a column occurs twice")
    return Content("table", rows)


def _cell(text: str) -> Any:
    number = as_number(text)
    return text.strip() if number is None else number


_SAID = re.compile(rf"([A-Za-z][\w-]{{1,40}})\s*[=:]\s*({NUMBER.pattern})", re.ASCII)


def numbers_in(text: str) -> dict[str, str]:
    """Return the last number after each name in plain text, by plain name."""
    return {plain_name(name): number for name, number in _SAID.findall(text[:MAX_TEXT])}
