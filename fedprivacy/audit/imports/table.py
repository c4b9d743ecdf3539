"""Tables of rounds: CSV with a header line, or one JSON object per line.

Required columns: ``round`` (numbers that rise by one), and ``noise_multiplier`` or ``noise_std``
(std of the noise in the sum) with ``clip_norm``. Optional columns: ``cohort``, ``population``,
``sampling``, ``sampling_probability``, ``rounds_per_epoch``, ``steps_per_round`` and
``missing_shares``. Empty cells mean unknown values. The table is read line by line.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...errors import ConversionError
from .content import as_type, json_of, lines_of, unreadable
from .trace import Origin, Rounds, Sampling, Trace, in_order, multiplier_of

KIND = "table of rounds"

MAX_KINDS = 100_000
"""Limit for the number of kinds of rounds in a table. Each kind is composed separately."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Noise = Annotated[float, msgspec.Meta(ge=0)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round."""

    round: _Count
    noise_multiplier: _Noise | None = None
    noise_std: _Noise | None = None
    clip_norm: _Positive | None = None
    cohort: _Count | None = None
    population: _Size | None = None
    sampling: Sampling | None = None
    sampling_probability: _Rate | None = None
    rounds_per_epoch: _Size | None = None
    steps_per_round: _Size | None = None
    missing_shares: _Count | None = None


COLUMNS = Row.__struct_fields__


def recognises(first: str) -> bool:
    """Return whether the first line of a file is the header or the first round of a table."""
    names = _names(first)
    return "round" in names and not names.isdisjoint(_NOISE)


def _names(first: str) -> set[str]:
    if not first.startswith("{"):
        return {name.strip() for name in first.split(",")}
    # The first line may be any text. If it does not parse, the file has another format.
    try:
        data = json_of(first.encode(), "the first line")
    except ConversionError:
        return set()
    return set(data) if isinstance(data, dict) else set()


_NOISE = {"noise_multiplier", "noise_std"}


def read(path: Path, origin: Origin) -> Trace:
    """Return the trace of a table.

    Raises:
        ConversionError: if a line is not a round, or not the next one.
        ParameterError: if a value breaks its rule.
        LedgerError: if the file cannot be read.
    """
    missing: list[str] = []
    norms: dict[Rounds, Counter[float]] = {}
    found = in_order((each, 1) for each in _recorded(path, missing, norms))
    if not found:
        unreadable(path.name, "no round was recorded")
    rounds = tuple((each, times) for (_, each), times in found)
    return Trace(origin, rounds, missing=tuple(missing), by_round=True, norms=norms)


def _recorded(
    path: Path, missing: list[str], norms: dict[Rounds, Counter[float]]
) -> Iterator[tuple[int, Rounds]]:
    """Yield the rounds of a table and the number of gaps before; record gaps and clip norms."""
    # Each kind is built and checked only once, because a table may have millions of rounds.
    kinds: dict[tuple[Any, ...], Rounds] = {}
    last, many, gaps = None, 0, 0
    for where, row in _rows(path):
        gap = _gap(last, row.round, where)
        gaps += bool(gap)
        if gap and len(missing) < _MOST_GAPS:
            missing.append(gap)
        last = row.round
        facts = _facts(row, where)
        rounds = kinds.get(facts) or kinds.setdefault(facts, Rounds(*facts))
        if row.clip_norm is not None:
            counts = norms.setdefault(rounds, Counter())
            counts[row.clip_norm] += 1
            many += counts[row.clip_norm] == 1
        yield gaps, rounds
        # A limit, because an untrusted file determines the memory in use.
        if max(len(kinds), many) > MAX_KINDS:
            unreadable(path.name, f"more than {MAX_KINDS} kinds of rounds")


_MOST_GAPS = 10
"""Limit for the reported gaps, so that the report stays readable."""


def _gap(last: int | None, number: int, where: str) -> str:
    """Return the gap before a round in words; "" if there is none."""
    if last is None:
        # Numbers start at 0 or 1. A larger first number means that earlier rounds are missing.
        return f"the first round recorded is {number}" if number > 1 else ""
    if number <= last:
        unreadable(where, f"round {number} follows round {last}; numbers must rise")
    return f"round {number} follows round {last}" if number > last + 1 else ""


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    columns: list[str] | None = None
    for number, text in lines_of(path):
        where = f"{path.name}, line {number}"
        # The first character of a line determines its form.
        if text.startswith("{"):
            if columns is not None:
                unreadable(where, "a JSON object in a table of commas")
            yield where, as_type(json_of(text.encode(), where), Row, where)
        elif columns is None:
            columns = _columns(text, where)
        else:
            # Cells are text, so numbers are parsed from strings, here only.
            yield where, as_type(_cells(columns, text, where), Row, where, strict=False)


def _columns(text: str, where: str) -> list[str]:
    names = [name.strip() for name in _split(text, where)]
    unknown = [name for name in names if name not in COLUMNS]
    # A misspelt column would be ignored, and its fact assumed by default.
    if unknown or len(set(names)) != len(names):
        told = f"columns {str(names)[:120]}; these are read, once each: {', '.join(COLUMNS)}"
        unreadable(where, told)
    return names


def _cells(columns: list[str], text: str, where: str) -> dict[str, Any]:
    cells = [cell.strip() for cell in _split(text, where)]
    if len(cells) != len(columns):
        unreadable(where, f"{len(cells)} cells in a table of {len(columns)} columns")
    # Empty cells are left out, so that they count as unknown.
    return {name: cell for name, cell in zip(columns, cells, strict=True) if cell}


def _split(text: str, where: str) -> list[str]:
    try:
        # The csv module handles quoting. One line at a time bounds the memory.
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration) as error:
        unreadable(where, f"not a line of a table: {error}")


def _facts(row: Row, where: str) -> tuple[Any, ...]:
    """Return the fields of ``Rounds`` in a row."""
    return (
        multiplier_of(row.noise_multiplier, row.noise_std, row.clip_norm, where),
        row.sampling,
        row.sampling_probability,
        row.cohort,
        row.population,
        row.rounds_per_epoch,
        row.steps_per_round,
        row.missing_shares,
    )
