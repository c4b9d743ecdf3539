"""Tables inside Markdown, LaTeX and reStructuredText, and XML, as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any
from xml.etree import ElementTree

from .content import MAX_DEPTH, MAX_YAML, unreadable
from .fields import as_number, headed, like_thousands, plain_name, turned

MAX_TABLES = 20
"""Largest number of tables of one text that are tried."""
MAX_TABLE = 100_000
"""Longest table in LaTeX, in characters."""

_RULE = re.compile(r"\|?(?:\s*:?-{2,}:?\s*[|+])+(?:\s*:?-{2,}:?\s*)?", re.ASCII)
_GRID = re.compile(r"\+(?:[-=]{2,}\+)+", re.ASCII)
_COLUMNS = re.compile(r"={2,}(?:[ \t]+={2,})+", re.ASCII)
_TABULAR = re.compile(r"\\begin\{(tabular[xy*]?|longtable)\}", re.ASCII)
_LINES = re.compile(
    r"\\(?:top|mid|cmid|bottom|h|c)(?:rule|line)(?:\[[^\]]{0,40}\]|\{[^}]{0,40}\}|\([^)]{0,40}\))*"
)
_STYLE = re.compile(r"\\(?:textbf|textit|emph|text|mathrm|mathbf|underline|num)\{([^{}]*)\}")
_SYMBOL = re.compile(r"(.*[A-Za-z]{3}.*?)\s*[(,]?\s*(\$[^$]{1,40}\$|[\u03b1-\u03c9])\)?", re.DOTALL)
_KEPT = re.compile(r"epsilon|delta|[\u03b5\u03f5\u03b4=]")
_POWER = re.compile(r"(?:([\d.]+)\s*(?:\\times|\\cdot|x)\s*)?10\^\{?(-?\d{1,3})\}?", re.ASCII)
_TEN = re.compile(r"(?<![\d.x] )(?<![\d.])(?<!times )(?<!cdot )10\^(?=\{?-?\d)", re.ASCII)
"""A power of ten without a factor."""
_SIGN = re.compile(r"\\(?:var)?(epsilon|sigma|delta)\b", re.ASCII)


def tables_in(text: str) -> list[list[dict[str, Any]]]:
    """Return the rows of every whole table of a text in Markdown, LaTeX or reStructuredText.

    A table is whole if every row has one cell for each name of the header.
    """
    every = (*_of_markdown(text), *_of_latex(text), *_of_grid(text), *_of_columns(text))
    found = (_table(rows) for rows in every)
    return [table for table in found if table]


def _of_markdown(text: str) -> Iterator[list[list[str]]]:
    lines = text.splitlines()
    rules = [at for at, line in enumerate(lines) if at and _RULE.fullmatch(line.strip())]
    for at in rules[:MAX_TABLES]:
        rows = [lines[at - 1]]
        for line in lines[at + 1 :]:
            if "|" not in line:
                break
            rows.append(line)
        yield [row.strip().strip("|").split("|") for row in rows]


def _of_grid(text: str) -> Iterator[list[list[str]]]:
    """Yield the tables whose lines have ``+`` at their corners; a row has one line."""
    lines = [line.strip() for line in text.splitlines()]
    rules = [at for at, line in enumerate(lines) if _GRID.fullmatch(line)]
    last = -1
    for at in rules[: MAX_TABLES * 50]:
        if at <= last:
            continue
        rows = []
        for last in range(at, len(lines)):
            if not lines[last].startswith(("|", "+")):
                break
            if lines[last].startswith("|"):
                rows.append(lines[last].strip("|").split("|"))
        yield rows


def _of_columns(text: str) -> Iterator[list[list[str]]]:
    """Yield the tables whose columns are under rules of ``=``."""
    lines = text.splitlines()
    rules = [at for at, line in enumerate(lines) if _COLUMNS.fullmatch(line.strip())]
    for first, second, third in list(zip(rules, rules[1:], rules[2:], strict=False))[:MAX_TABLES]:
        if second == first + 2:
            ends = [found.span() for found in re.finditer("=+", lines[first])]
            # The last column may be wider than its rule.
            ends[-1] = (ends[-1][0], 10_000)
            rows = [lines[first + 1], *lines[second + 1 : third]]
            yield [[row[start:end] for start, end in ends] for row in rows if row.strip()]


def _of_latex(text: str) -> Iterator[list[list[str]]]:
    for found in islice(_TABULAR.finditer(text), MAX_TABLES):
        end = text.find(f"\\end{{{found[1]}}}", found.end(), found.end() + MAX_TABLE)
        if end < 0:
            continue
        # The columns come first, in braces.
        columns = r"^(?:\s*(?:\[[^\]]*\]|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}))+"
        body = re.sub(columns, "", text[found.end() : end])
        rows = (_LINES.sub("", row).strip() for row in body.split("\\\\"))
        yield [re.split(r"(?<!\\)&", row) for row in rows if row]


def _table(rows: list[list[str]]) -> list[dict[str, Any]]:
    """Return rows as mappings; an empty list if one of them is not plain."""
    plain = [[_plain(cell) for cell in row] for row in rows[1:]]
    names, stated = headed(_header(rows[0]) if rows else [])
    lengths = {len(row) for row in plain}
    if lengths != {len({*names})} or not plain or any("\\" in name for name in names):
        return []
    if [plain_name(name) for name in names[1:]] in (["value"], ["setting"], ["values"]):
        return _settings(rows[1:])
    return turned([stated | _row(names, row) for row in plain])


def _header(cells: list[str]) -> list[str]:
    """Return names; one may state a number for all rows, as in "epsilon (delta = 10^{-5})"."""
    names = (_plain(_name(cell)) for cell in cells)
    return [_POWER.sub(r"\g<1>e\g<2>", _TEN.sub("1 x 10^", name)) for name in names]


def _settings(rows: list[list[str]]) -> list[dict[str, Any]]:
    """Return the settings of one run, one a row; an empty list if one of them occurs twice."""
    settings = {_plain(_name(row[0])): _value(_plain(row[1])) for row in rows}
    return [settings] if len(settings) == len(rows) else []


def _row(names: list[str], cells: list[str]) -> dict[str, Any]:
    pairs = zip(names, cells, strict=True)
    return {name: _value(cell) for name, cell in pairs if name and cell}


def _name(cell: str) -> str:
    """Return a name without the symbol after it, as in "clip norm $C$"."""
    found = _SYMBOL.fullmatch(cell.strip()) if len(cell) <= 200 else None
    return cell if found is None or _KEPT.search(found[2]) else found[1]


def _plain(cell: str) -> str:
    """Return a cell without its style."""
    text = _STYLE.sub(r"\1", _STYLE.sub(r"\1", _SIGN.sub(r"\1", cell.replace("$", ""))))
    text = text.replace("\\%", "%").replace("\\_", "_").replace("\\#", "#").replace("\\,", "")
    # A star without another one leads to a footnote, which may change the number.
    return _EMPHASIS.sub(r"\2", text.strip(" {}`")).strip(" {}`")


_EMPHASIS = re.compile(r"^(\*{1,3})([^*]+)\1$")


def _value(cell: str) -> Any:
    power = _POWER.fullmatch(cell)
    text = f"{power[1] or 1}e{power[2]}" if power else cell
    number = as_number(text)
    return cell if number is None or like_thousands(cell) else number


def xml_of(text: bytes, name: str) -> Any:
    """Return XML as plain values: attributes and elements by name.

    Raises:
        ConversionError: if the text is not XML, is too long, is nested too deeply, or defines
            entities.
    """
    if len(text) > MAX_YAML:
        unreadable(name, f"longer than {MAX_YAML} bytes, the most that is read of XML")
    # A definition may expand to far more text than the file has.
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        unreadable(name, "XML that defines a document type; remove the definition")
    parser: Any = ElementTree.XMLPullParser(["start", "end"])
    root: Any = None
    depth = 0
    try:
        parser.feed(text)
        parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        unreadable(name, f"not readable as XML: {error}")
    for event, element in parser.read_events():
        depth += 1 if event == "start" else -1
        if depth > MAX_DEPTH:
            unreadable(name, f"nested deeper than {MAX_DEPTH} levels")
        root = element
    return {_tag(root.tag): _element(root)}


def _tag(name: str) -> str:
    return name.rpartition("}")[2]


def _element(element: Any) -> Any:
    found: dict[str, Any] = dict(element.attrib)
    text = (element.text or "").strip()
    for child in element:
        name, value = _tag(child.tag), _element(child)
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    if not found:
        return text
    return found | ({"value": text} if text else {})
