"""The syntax of a text file: JSON, lines of JSON, a table, TOML, YAML, or plain text.

The content decides, not the name of the file. Every syntax is tried whole: a first character such
as ``[`` begins a list of JSON, a table of TOML and a line of a log.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ConversionError
from . import remarks, scripts, table
from .content import (
    MAX_DEPTH,
    MAX_TEXT,
    MAX_TOML,
    MAX_YAML,
    ini_of,
    json_of,
    toml_of,
    unreadable,
    whole,
    yaml_of,
)
from .fields import (
    NUMBER,
    as_number,
    headed,
    like_thousands,
    plain_name,
    setting_name,
    turned,
    unwrapped,
)
from .markup import tables_in, xml_of
from .printed import (
    ABOUT,
    about_privacy,
    commands_inside,
    plain_words,
    settings_in,
    warnings_of,
)

MAX_ROWS = 10_000
"""Largest number of runs that are read from one file."""


@dataclass(frozen=True)
class Content:
    """The plain values of a file.

    Attributes:
        kind: the syntax.
        values: the plain values; a list of objects for lines of JSON and for tables.
        remarks: sentences outside the values: comments, captions, lines of a log.
    """

    kind: str
    values: Any
    remarks: tuple[str | remarks.Doubt, ...] = ()


def content_of(path: Path) -> Content:
    """Return the values of a text file.

    Raises:
        ConversionError: if the file is too long, or its text breaks the syntax that it begins.
        LedgerError: if the file cannot be read.
    """
    text = _utf8(whole(path), path.name)
    found = _content(path, text)
    said: list[str | remarks.Doubt] = [*_remarks(path, text, found)]
    if found.kind == "printed settings" and path.suffix.lower() not in _SHOWS:
        script = text[:MAX_TEXT].decode("utf-8", "replace")
        said += [*scripts.doubts_in(script), *scripts.others_in(script)]
        switches = scripts.switches_in(script)
        if switches and isinstance(found.values, dict):
            found = replace(found, values={**found.values, "environment": switches})
    return replace(found, remarks=tuple(said))


def _content(path: Path, text: bytes) -> Content:
    found = _parsed(path, text)
    front = _FRONT.match(text) if path.suffix.lower() in (".md", ".markdown") else None
    if front is not None and not about_privacy(found.values):
        # A model card begins with facts for its catalogue.
        text = text[front.end() :]
        found = _parsed(path, text)
    values = _with_documents(unwrapped(found.values))
    if _is_notebook(values):
        values = _code(values["cells"])
        text, found = values.encode("utf-8", "replace"), Content("notebook", values)
    if not isinstance(values, str) and about_privacy(values):
        return Content(found.kind, _with_commands(path, values, text))
    # Settings that a program printed are inside a text, or inside the strings of a file.
    short = len(text) <= MAX_TEXT
    shown = _printed(found.kind, values, text.decode("utf-8", "replace")) if short else None
    return shown or Content(found.kind, values)


def _with_documents(values: Any) -> Any:
    """Return plain values, with the documents in their texts if only those are about privacy."""
    if isinstance(values, str) or about_privacy(values):
        return values
    inside = unwrapped(_documents(values))
    return inside if about_privacy(inside) else values


def _is_notebook(values: Any) -> bool:
    """Return whether plain values are a notebook of Jupyter."""
    return (
        isinstance(values, dict) and "nbformat" in values and isinstance(values.get("cells"), list)
    )


def _with_commands(path: Path, values: Any, text: bytes) -> Any:
    """Return settings with those of commands, which may replace them, and of sentences of a log."""
    if not isinstance(values, dict):
        return values
    more = warnings_of(text.decode("utf-8", "replace")) if path.suffix.lower() in _LOGS else {}
    return {**values, **commands_inside(values), **more}


def _printed(kind: str, values: Any, text: str) -> Content | None:
    """Return the settings, or the only table, that a text shows; None if it shows none."""
    shown = settings_in(text)
    if isinstance(shown, dict) and isinstance(values, dict):
        # The rest of the file may be about clients, or turn the noise off.
        return Content(kind, {**values, "command": shown})
    if shown is not None:
        return Content("printed settings", shown)
    if not isinstance(values, str):
        return None
    tables = [rows for rows in tables_in(values) if about_privacy(rows)]
    if len(tables) != 1:
        return None
    return Content("table", tables[0] if len(tables[0]) > 1 else tables[0][0])


def _documents(values: Any, depth: int = 0) -> Any:
    """Return plain values with the documents that their texts hold, as a ConfigMap has them."""
    if depth > MAX_DEPTH:
        return values
    if isinstance(values, dict):
        return {key: _documents(value, depth + 1) for key, value in values.items()}
    if isinstance(values, list):
        return [_documents(value, depth + 1) for value in values]
    if not isinstance(values, str) or not re.match(r"\s*\{|[^\n]*:[^\n]*\n", values):
        return values
    try:
        shown = yaml_of(values.encode("utf-8", "replace"), "a text")
    except ConversionError:
        return values
    said = remarks.comments_in(values)
    return (shown | ({"comments": said} if said else {})) if isinstance(shown, dict) else values


_LOGS = {".log", ".txt", ".out", ".err"}
"""Endings of files that programs write while they run."""
_SHOWS = {".md", ".markdown", ".rst", ".tex", ".log", ".out", ".err", ".ipynb", ".py"}
"""Endings of files that show commands and are no scripts of a shell."""
_PROSE = {".md", ".markdown", ".rst", ".tex", *_LOGS, ""}
"""Endings of files whose lines are sentences, and not code."""
_TABULAR = re.compile(r"\\begin\{(tabular[xy*]?|longtable)\}.*?\\end\{\1\}", re.DOTALL)


def _remarks(path: Path, text: bytes, found: Content) -> list[str]:
    """Return the sentences of a text outside its values: comments, captions, lines of a log."""
    if found.kind in ("JSON", "lines of JSON"):
        return []
    suffix = path.suffix.lower()
    lines = text.splitlines()
    if found.kind == "table" and suffix not in _PROSE:
        return [line.decode("utf-8", "replace") for line in lines if line.startswith(b"#")]
    words = text[:MAX_TEXT].decode("utf-8", "replace")
    if found.kind == "notebook":
        words = str(_code(json_of(text, path.name)["cells"]))
    prose = found.kind in ("table", "plain text", "printed settings") and suffix in _PROSE
    if not prose or words.startswith("#!"):
        return remarks.comments_in(words)
    return remarks.lines_in(_TABULAR.sub(" ", words))


_FRONT = re.compile(rb"\A---[ \t]*\r?\n.{0,20000}?\n---[ \t]*\r?\n", re.DOTALL)


def _code(cells: list[Any]) -> str:
    """Return the code of a notebook, and the text that it printed after the code."""
    known = [cell for cell in cells if isinstance(cell, dict)]
    every = [each.get("outputs") for each in known]
    outputs = [each for some in every if isinstance(some, list) for each in some]
    data = [(each, each.get("data")) for each in outputs if isinstance(each, dict)]
    printed = [
        shown.get("text/plain", "") if isinstance(shown, dict) else each.get("text", "")
        for each, shown in data
    ]
    texts = [*(cell.get("source", "") for cell in known), *printed]
    return "\n".join("".join(map(str, one)) if isinstance(one, list) else str(one) for one in texts)


def _utf8(text: bytes, name: str) -> bytes:
    """Return a text in UTF-8. Windows writes UTF-16 with a byte order mark."""
    if not text.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return text
    try:
        return text.decode("utf-16").encode()
    except UnicodeError:
        unreadable(name, "damaged UTF-16; save it as UTF-8")


def _parsed(path: Path, text: bytes) -> Content:
    start = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    problems: dict[str, ConversionError] = {}
    if start.startswith(b"{"):
        return _of_braces(start, path.name)
    if start.startswith(b"["):
        try:
            return Content("JSON", json_of(start, path.name))
        except ConversionError as error:
            problems["JSON"] = error
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
    except ConversionError as error:
        problem = error
    lines = [line for line in text.splitlines() if line.strip()]
    # One object over several lines is no list of objects; its own error is the useful one.
    if len(lines) < 2 or not all(line.strip().startswith(b"{") for line in lines[:20]):
        return _in_braces(text, name, problem)
    if len(lines) > MAX_ROWS:
        unreadable(name, f"more than {MAX_ROWS} lines that are no rounds")
    rows = [_line(line, f"{name}, line {at}") for at, line in enumerate(lines, start=1)]
    return Content("lines of JSON", rows)


def _line(line: bytes, name: str) -> Any:
    try:
        return json_of(line, name)
    except ConversionError as problem:
        return _in_braces(line, name, problem).values


def _in_braces(text: bytes, name: str, problem: ConversionError) -> Content:
    """Return a mapping of YAML in braces, as Python prints one; else raise the problem of JSON."""
    # A repeated key is repeated in YAML too. JSON has no NaN, and no comma after the last value.
    if len(text) <= MAX_YAML:
        try:
            shown = _without_comments(text.decode("utf-8", "replace"))
            values = yaml_of(plain_words(shown).encode("utf-8", "replace"), name)
        except ConversionError as error:
            raise (error if _PYTHON.match(text) else problem) from None
        if isinstance(values, dict) and values:
            return Content("YAML", values)
    raise problem


_BEGINS = re.compile(r"[\"']|//|/\*")
_QUOTED = {sign: re.compile(rf"(?:\\.|[^{sign}\\])*{sign}", re.DOTALL) for sign in "\"'"}


def _without_comments(text: str) -> str:
    """Return JSON without the comments that JSON5 allows; texts in quotes stay."""
    kept, start, at = [], 0, 0
    while (found := _BEGINS.search(text, at)) is not None:
        sign = found[0]
        if sign in _QUOTED:
            whole_text = _QUOTED[sign].match(text, found.end())
            end = -1 if whole_text is None else whole_text.end()
        else:
            end = text.find("\n" if sign == "//" else "*/", found.end())
            kept.append(text[start : found.start()])
            start = end = len(text) if end < 0 else end + (0 if sign == "//" else 2)
        # An open quote ends the search, so that every sign is looked at once.
        if end < 0:
            break
        at = end
    return "".join([*kept, text[start:]])


_PYTHON = re.compile(rb"\{\s*('|[A-Za-z_][\w.-]*:\s)", re.ASCII)
"""Beginnings that JSON does not have: a single quote, or a bare name."""


def _of_words(text: bytes, name: str, problems: dict[str, ConversionError]) -> Content:
    if b"\x00" in text:
        unreadable(name, "not a text file, and no checkpoint of torch")
    _check_merged(text, name)
    found = _table(text, name) or _fields_in(text, name, problems)
    if found is not None:
        return found
    try:
        words = text.decode("utf-8")
    except UnicodeDecodeError:
        unreadable(name, "not UTF-8 text, and no checkpoint of torch")
    # A file with a suffix is taken for what it says; other text has no syntax to complain about.
    expected = _SYNTAX.get(Path(name).suffix.lower(), "")
    if expected and re.search(rb":[ \t]{0,9}\{\{|\{%", text):
        unreadable(name, "a template with values in {{ }}; name the file that was made from it")
    for kind, problem in problems.items():
        if kind == expected or "is there twice" in str(problem):
            raise problem
    return Content("plain text", words)


def _fields_in(text: bytes, name: str, problems: dict[str, ConversionError]) -> Content | None:
    """Return the fields of a text by the first syntax that finds some, and note its problems."""
    for kind, parse in _parsers(text):
        try:
            values = parse(text, name)
        except ConversionError as error:
            problems[kind] = error
            continue
        # Plain words are YAML too: only fields make a record.
        if kind == "XML" or (isinstance(values, dict | list) and values and not _is_prose(values)):
            return Content(kind, values)
    return None


def _parsers(text: bytes) -> Iterator[tuple[str, Callable[[bytes, str], Any]]]:
    """Yield the readers of each syntax that a text may have."""
    short = len(text) <= MAX_TOML
    if short:
        yield "TOML", toml_of
    yield "YAML", yaml_of
    if short:
        yield "INI", ini_of
    if text.startswith(b"<") and not text[:200].lower().startswith((b"<html", b"<!doctype html")):
        yield "XML", xml_of


def _check_merged(text: bytes, name: str) -> None:
    conflict = re.search(rb"^(?:<{7}|>{7}) ", text, re.M)
    if conflict is not None:
        line = text.count(b"\n", 0, conflict.start()) + 1
        unreadable(name, f"an unresolved merge in line {line}; keep one of its sides")


_SYNTAX = {".json": "JSON", ".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".xml": "XML"}


_NAME = re.compile(
    r"[A-Za-z_\u03b5\u03f5\u03b4\u03c3][A-Za-z0-9_ ./%()\[\]\u03b5\u03b4\u03c3-]{0,59}"
)


def _table(text: bytes, name: str) -> Content | None:
    """Return the rows of a table with a header, or None."""
    lines = _from_header(text)
    header = _header(lines)
    if header is None:
        return None
    separator, names, stated = header
    settings = {setting_name(each) for each in names}
    _check_rows(names, len(lines) - 1, name)
    decimal, rows = _decimal_comma(lines[1:], separator), []
    for at, line in enumerate(lines[1:], start=2):
        cells = table.split(line.decode("utf-8", "replace"), f"{name}, line {at}", separator)
        if len(cells) != len(names):
            # A line of a script may have a semicolon too.
            if at == 2 or settings.isdisjoint(ABOUT):
                return None
            unreadable(f"{name}, line {at}", f"{len(cells)} cells under {len(names)} names")
        values = zip(names, map(_cell, map(decimal, cells)), strict=True)
        rows.append(stated | {key: value for key, value in values if key and value != ""})
    if len({*names}) != len(names):
        unreadable(name, "a column occurs twice")
    return Content("table", turned(rows))


def _from_header(text: bytes) -> list[bytes]:
    """Return the lines of a text that are not empty, without those before a header."""
    lines = [line for line in text.splitlines() if line.strip()]
    while lines and table.is_before_header(lines[0].decode("utf-8", "replace")):
        lines.pop(0)
    return lines


def _check_rows(names: list[str], count: int, name: str) -> None:
    """Refuse too many rows, and rows that are epochs of one run."""
    if count > MAX_ROWS:
        unreadable(name, f"a table of more than {MAX_ROWS} rows that are no rounds")
    epochs = {plain_name(each) for each in names} & {"epoch", "training_iteration"}
    noisy = {setting_name(each) for each in names} & {"noise_multiplier", "sigma"}
    if epochs and noisy and count > 1:
        unreadable(
            name,
            "rows are epochs of one run, and an epoch has many steps; write a row for each step "
            "with a column round, or state the run: --noise-multiplier Z --rounds N",
        )


def _header(lines: list[bytes]) -> tuple[str, list[str], dict[str, Any]] | None:
    """Return a header's separator, its names, and its numbers for all rows; None for other text."""
    if len(lines) < 2 or len(lines[0]) > 4096:
        return None
    header = lines[0].decode("utf-8", "replace").strip()
    separator = table.separator_of(header)
    if separator is None:
        return None
    names, stated = headed([each.strip().strip('"') for each in header.split(separator)])
    # A header consists of names. A line of text with a comma has other characters or no rows.
    plain = names[-1] and all(_NAME.fullmatch(each) for each in names if each)
    return (separator, names, stated) if plain else None


_COMMA = re.compile(
    rb"(?<=[;\t\"])-?\d+,(?:\d{1,2}|\d{4,})(?=[;\t\"]|$)|(?<=[;\t\"])0,\d+", re.ASCII
)
"""A number with a decimal comma; 1,500 is left out, because it may be a thousand and a half."""


def _decimal_comma(lines: list[bytes], separator: str) -> Callable[[str], str]:
    """Return the function that writes a point for the decimal comma of a table.

    A table has one only if commas do not separate its cells, one number has a decimal comma without
    doubt, and no number has a point.
    """
    text = b"\n".join(lines)
    if (
        separator == ","
        or b"." in text
        or not re.search(_COMMA, b"\n".join(b";" + x for x in lines))
    ):
        return str
    return lambda cell: re.sub(r"^(\s*-?\d+),(\d+\s*)$", r"\1.\2", cell)


def _is_prose(values: Any) -> bool:
    """Return whether all names of a mapping are parts of sentences."""
    return isinstance(values, dict) and all(len(str(name).split()) > 2 for name in values)


def _cell(text: str) -> Any:
    number = as_number(text)
    return text.strip() if number is None or like_thousands(text) else number


_SAID = re.compile(
    rf"((?:[A-Za-z][\w-]{{0,40}}|[\u03b5\u03b4]))\s*[=:\u2248]\s*\"?({NUMBER.pattern})(?!\w|\.\w)",
    re.ASCII,
)
"""A name and a number, which Terraform may write in quotes."""


_PERCENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s?%", re.ASCII)
_SPOKEN = re.compile(r"noise multiplier(?: of| is|:)? (?=[\d.])", re.ASCII | re.IGNORECASE)


_ARGUMENT = re.compile(
    r"add_argument\(\s*(?:[\"']-\w[\"'],\s*)?[\"']--?([\w-]{1,60})[\"'][^()]{0,300}?"
    rf"\bdefault\s*=\s*({NUMBER.pattern})(?![\w.])",
    re.ASCII,
)
_TERRAFORM = re.compile(
    r"^variable[ \t]+\"([\w-]{1,60})\"[ \t]*\{[^{}]{0,400}?"
    rf"\bdefault[ \t]*=[ \t]*\"?({NUMBER.pattern})(?![\w.])",
    re.ASCII | re.MULTILINE,
)
"""A variable with its default."""
_COUNTED = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+) (steps|rounds|iterations)\b", re.ASCII)


def numbers_in(text: str) -> dict[str, str]:
    """Return the last number after each name in plain text, by plain name."""
    plain = _PERCENT.sub(lambda found: f"{float(found[1]) / 100.0:.9g}", text[:MAX_TEXT])
    plain = re.sub(r"\b(sampling|sample) (rate|probability)\b", r"\1_\2", plain)
    plain = plain.replace(" <- ", " = ")
    plain = _TERRAFORM.sub(r"\1 = \2 ", _ARGUMENT.sub(r"\1 = \2 ", plain))
    # A field of a Python class has a type between its name and its default.
    plain = re.sub(r"\b(\w+): (?:float|int)(?: \| None)? = ", r"\1 = ", plain)
    said = _SAID.findall(_SPOKEN.sub("noise_multiplier = ", plain))
    counted = {name: number.replace(",", "") for number, name in _COUNTED.findall(plain)}
    return counted | {plain_name(name) or name: number for name, number in said}
