"""Settings that a program printed: ``Namespace(...)`` in a log, options of a command, a dict.

Each one becomes a mapping, which the readers of configurations take like a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...errors import ConversionError
from .content import yaml_of
from .fields import Fields, arguments, as_number, plain_name
from .words import CLIPS, DELTA, EPSILON, NOISE, UNCLEAR

MAX_CALL = 20_000
"""Longest text of one call, in characters."""
MAX_FOUND = 100
"""Largest number of places of one text that are tried, for each of the three forms."""

_CALL = re.compile(r"\b([A-Za-z_]\w{0,60})\((?=(?:[\w\s.,]{0,200},)?\s*[A-Za-z_]\w*\s*=)", re.ASCII)
_DICT = re.compile(r"\{\s*['\"]?[A-Za-z_][\w./-]*['\"]?\s*:", re.ASCII)
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*", re.ASCII)
_WORDS = {"None": None, "True": True, "False": False}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ABOUT = (*NOISE, *UNCLEAR, *EPSILON, *DELTA, *CLIPS)


def settings_in(text: str) -> Any:
    """Return the settings of runs that a text shows: a mapping, or a list of them; else None."""
    every = [*_calls(text), *_dicts(text), *_commands(text)]
    found = list(_different(every))
    if not found:
        return None
    names = [name for name, _ in found]
    # The rest of the text may say that the noise is one of clients.
    about = _CLIENTS.search(text)
    more = {} if about is None else {"federated": about[0]}
    if len(found) == 1:
        name, settings = found[0]
        # A switch in DPConfig(enabled=False) is about privacy by the name of the call.
        own = {*plain_name(name).split("_")} & _PRIVATE and settings.keys() & _SWITCHES
        return {**({name: settings} if own else settings), **more}
    # Parts of one run have different names. Settings of one name are several runs.
    if len({*names}) == len(names):
        return {**dict(found), **more}
    return [{**settings, **more} for _, settings in found]


_PRIVATE = {"dp", "privacy", "private", "dpsgd", "ldp"}
_SWITCHES = {"enable", "enabled", "use", "active", "on", "apply"}
_CLIENTS = re.compile(
    r"\b(?:federated|fedavg|fedprox|fedsgd|flwr|clients_per_round|num_clients|client_fraction)\b",
    re.ASCII | re.IGNORECASE,
)
"""Words of a federated run."""


def about_privacy(values: Any) -> bool:
    """Return whether plain values have a noise, an epsilon, a delta or a clip norm."""
    return Fields(values).has(*_ABOUT)


def _different(found: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the settings that are about privacy, each once."""
    seen: list[tuple[str, Any]] = []
    for each in found:
        if each not in seen and about_privacy(each[1]):
            seen.append(each)
            yield each


def _calls(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the named arguments of every call in a text."""
    end, constants = 0, _constants(text)
    for found in islice(_CALL.finditer(text), MAX_FOUND):
        if found.start() < end:
            continue
        close = _closing(text, found.end() - 1)
        if close is not None:
            end = close
            named = _named(text[found.end() : close])
            named = {
                key: constants.get(value, value) if isinstance(value, str) else value
                for key, value in named.items()
            }
            # Only Opacus has a function of this name.
            yield found[1], named | ({found[1]: True} if "make_private" in found[1] else {})


def _constants(text: str) -> dict[str, float]:
    """Return the names that a text sets to one number, wherever it sets them."""
    found: dict[str, set[str]] = {}
    for name, value in _CONSTANT.findall(text):
        found.setdefault(name, set()).add(value.strip())
    numbers = {
        name: as_number(next(iter(values))) for name, values in found.items() if len(values) == 1
    }
    return {name: number for name, number in numbers.items() if number is not None}


_CONSTANT = re.compile(
    r"^[ \t]{0,40}([A-Za-z_]\w{0,60})[ \t]*=[ \t]*([^=#\n][^#\n]{0,60})", re.ASCII | re.MULTILINE
)


def _dicts(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the mappings that lines of a text show in braces."""
    end = read = 0
    for found in islice(_DICT.finditer(text), MAX_FOUND):
        close = _closing(text, found.start()) if found.start() >= end else None
        if close is None or read > MAX_CALL:
            continue
        end, read = close, read + close - found.start()
        try:
            shown = plain_words(text[found.start() : close + 1]).encode("utf-8", "replace")
            values = yaml_of(shown, "a line")
        except ConversionError:
            continue
        if isinstance(values, dict):
            yield "settings", values


def plain_words(text: str) -> str:
    """Return a mapping of Python with the words that YAML has for None, True and False."""
    return _PYTHON.sub(lambda found: _YAML[found[0]], text)


_YAML = {"None": "null", "True": "true", "False": "false"}
_PYTHON = re.compile(r"(?<=[\s:\[])(?:None|True|False)(?=[\s,}\]])", re.ASCII)


def _closing(text: str, start: int) -> int | None:
    """Return the place of the bracket that closes the one at a place; None if there is none."""
    waiting: list[str] = []
    quote = ""
    for at in range(start, min(len(text), start + MAX_CALL)):
        sign = text[at]
        if quote:
            quote = "" if sign == quote and text[at - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _CLOSING:
            waiting.append(_CLOSING[sign])
            if len(waiting) > 20:
                return None
        elif sign in ")]}":
            if waiting.pop() != sign:
                return None
            if not waiting:
                return at
    return None


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its outer commas."""
    at = last = 0
    while at < len(text):
        sign = text[at]
        if sign in _CLOSING:
            at = _closing(text, at) or at
        elif sign in "'\"":
            end = text.find(sign, at + 1)
            at = end if end > 0 else at
        elif sign == ",":
            yield text[last:at]
            last = at + 1
        at += 1
    yield text[last:]


def _named(text: str) -> dict[str, Any]:
    found = {}
    for part in _parts(text):
        name = _NAME.match(part)
        if name is not None:
            found[name[1]] = _value(part[name.end() :].strip())
    return found


def _value(text: str) -> Any:
    call = _CALL.match(text)
    if call is not None and text.endswith(")"):
        return _named(text[call.end() : -1])
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if len(text) > 1 and text[0] == "[" and text[-1] == "]":
        return [_value(part.strip()) for part in _parts(text[1:-1]) if part.strip()][:20]
    number = as_number(text)
    return _WORDS.get(text, text) if number is None else number


def _commands(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the options of the commands in a text, for example of a script."""
    tried = 0
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        # A list of arguments has quotes and commas.
        line = re.sub(r"[\[\]\",]", " ", line) if '"--' in line else line
        start = line[:MAX_CALL]
        overrides = _PROGRAM.search(start) is not None and len(_OVERRIDE.findall(start)) > 1
        if len(re.findall(r"(?:^|\s)--[A-Za-z]", start)) < 2 and not overrides:
            continue
        tried += 1
        if tried > MAX_FOUND:
            return
        try:
            words = shlex.split(line[:MAX_CALL], comments=True)
        except ValueError:
            continue
        options = arguments(words)
        given = [
            word.lstrip("+").partition("=") for word in words if _OVERRIDE.fullmatch(f" {word}")
        ]
        names = {name for name, _, _ in given}
        if overrides and len(names) == len(given) and not names & options.keys():
            options |= {name: value for name, _, value in given}
        if options:
            yield "command", options


_PROGRAM = re.compile(r"\.py\b|\bpython\d?\b|\s-m\s", re.ASCII)
_OVERRIDE = re.compile(r"\s\+{0,2}[A-Za-z_][\w./-]*=[^\s=]+", re.ASCII)
"""A setting of Hydra on a command line."""
