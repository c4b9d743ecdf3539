"""Sentences of a file: comments, notes, captions and lines of a log.

No number is taken from a sentence. ``sentences`` decides which ones must be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...outputs import printable
from .fields import Field, Fields
from .sentences import Known, known_in, unclear_in

KEY = "remarks of the file"
"""Name under which the sentences of a file are passed on with its values."""


class Doubt(NamedTuple):
    """A fact in doubt, with the sentence that doubts it.

    Attributes:
        fact: the fact, as ``Question`` names it.
        text: the sentence.
        why: what it may mean.
    """

    fact: str
    text: str
    why: str

    def __str__(self) -> str:
        return printable(f"{self.text[:160]!r}: {self.why}")


def texts_of(one: Field, *, named: bool = True) -> list[str]:
    """Return the texts of a field that may hold a sentence, each with the field's name or without.

    Args:
        one: the field.
        named: whether the name belongs to the sentence.
    """
    values = one.value if isinstance(one.value, list) else [one.value]
    name = f"{one.name}: " if named else ""
    return [f"{name}{each}" for each in values if isinstance(each, str) and " " in each]


_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#+|//|;(?=\s*\w)|%(?=\s))(?!!)(.*)$")
_BLOCKS = (("<!--", "-->"), ("/*", "*/"))
_BEFORE = re.compile(r"\s*[-\"'\[(]*([A-Za-z][\w.-]{0,60})[\"']?\s*[:=]")
_SETTINGS = re.compile(r"\w\s{0,9}=(?!=)|\w['\"]\s{0,9}:|--[A-Za-z]")
MAX_SENTENCE = 2000
"""Longest line of a text that is looked at whole, in characters; a longer one overlaps itself."""
_STEP = 1500


def comments_in(text: str) -> list[str]:
    """Return the comments of a text, each with the name that is set on its line."""
    found = []
    for line in text.splitlines():
        comment = _COMMENT.search(line)
        if comment is not None:
            said = comment[1].strip()
            before = _BEFORE.match(line[: comment.start()])
            found.append(f"{before[1]}: {said}" if before else said)
    return [each for each in [*found, *_blocks(text)] if each]


def _blocks(text: str) -> Iterator[str]:
    """Yield the comments that may go over several lines."""
    for begin, end in _BLOCKS:
        start = text.find(begin)
        while start >= 0 and (stop := text.find(end, start + len(begin))) >= 0:
            yield " ".join(text[start + len(begin) : stop].split())
            start = text.find(begin, stop + len(end))


def lines_in(text: str) -> list[str]:
    """Return the lines of a log or of prose; lines of settings are read by others."""
    lines = (line for line in text.splitlines() if line)
    cut = (line[at : at + MAX_SENTENCE] for line in lines for at in range(0, len(line), _STEP))
    return [line for line in cut if len(_SETTINGS.findall(line)) < 3]


def with_remarks(
    runs: list[tuple[str, Any]], texts: Sequence[str | Doubt]
) -> list[tuple[str, Any]]:
    """Return the runs of a file with those of its sentences that put one of them in doubt."""
    # A sentence may be about another run, or count the runs.
    known = known_in(Fields([data for _, data in runs]).every, {}, None)._replace(several=True)
    doubtful = [text for text in texts if _in_doubt(text, known)]
    if not doubtful:
        return runs
    return [
        (name, {**data, KEY: doubtful} if isinstance(data, Mapping) else data)
        for name, data in runs
    ]


def _in_doubt(text: str | Doubt, known: Known) -> bool:
    return text.fact != "trials" if isinstance(text, Doubt) else bool(unclear_in([text], known))


def apart(values: Any) -> tuple[Any, list[str | Doubt]]:
    """Return plain values without the sentences of their file, and these."""
    own = values.get(KEY) if isinstance(values, Mapping) else None
    if not isinstance(own, list) or not all(isinstance(each, str | Doubt) for each in own):
        return values, []
    return {key: value for key, value in values.items() if key != KEY}, own
