"""Tables of rounds: CSV with a header line, or one JSON object per line.

Cells are separated by commas, semicolons or tabs. Required columns: ``round`` (numbers that rise by
one), and ``noise_multiplier`` or ``noise_std`` (std of the noise in the sum) with ``clip_norm``.
Optional columns: ``cohort``, ``population``, ``sampling``, ``sampling_probability``,
``rounds_per_epoch``, ``steps_per_round`` and ``missing_shares``. Empty cells mean unknown values.
Other programs' names of these columns are known, if they have one meaning. A column about something
else, for example a loss, is not read, and the result names it. The table is read line by line.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...errors import ConversionError
from ...outputs import printable
from . import unclear
from .content import as_type, json_of, lines_of, unreadable
from .fields import as_flag, as_number, plain_name, words_in
from .sentences import Known, is_clear, unclear_in
from .trace import Origin, Rounds, Sampling, Trace, in_order, multiplier_of
from .vocabulary import words_of

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

ALIASES = {
    "step": "round",
    "iteration": "round",
    "server_round": "round",
    "noise_mult": "noise_multiplier",
    "sample_rate": "sampling_probability",
    "sampling_rate": "sampling_probability",
    "max_grad_norm": "clip_norm",
    "clipping_norm": "clip_norm",
    "l2_norm_clip": "clip_norm",
}
"""Other programs' names of columns, where a name has one meaning."""

_DELICATE = words_of(
    """
    noise sigma std stddev clip clipping sampling sampled cohort population shares adjacency
    missing mechanism distribution enabled disabled dp private local client site party group
    optimizer layer phase laplace
    """
)
"""Words of columns that may change the price of a round, so that they are never skipped."""


def is_before_header(line: str) -> bool:
    """Return whether a line before a header is a comment, or the separator that Excel writes."""
    return line.startswith("#") or line.strip().lower() in ("sep=;", "sep=,", "sep=\t")


def separator_of(first: str) -> str | None:
    """Return the separator of a table's header: a tab, a semicolon or a comma; or None."""
    return next((one for one in ("\t", ";", ",") if one in first), None)


def _ours(names: Iterable[str]) -> dict[str, str]:
    """Return each column's name here; columns that are not read are missing."""
    plain = {name: plain_name(name) for name in names}
    here = {name: word for name, word in plain.items() if word in COLUMNS}
    for name, word in plain.items():
        ours = ALIASES.get(word)
        if ours is not None and ours not in here.values():
            here[name] = ours
    return here


def recognises(first: str) -> bool:
    """Return whether the first line of a file is the header or the first round of a table."""
    names = {*_ours(_names(first)).values()}
    plain = {*map(plain_name, _names(first))}
    noisy = any({*name.split("_")} & {*_NOISY} for name in plain)
    return "round" in names and noisy and not plain & _OF_RUNS


_OF_RUNS = {"state", "sweep", "created", "run_id", "trial_id", "start_time", "total_steps"}
_OF_RUNS |= {"steps", "rounds", "num_rounds", "num_steps", "total_rounds", "max_steps"}
"""Columns of a table with one run per line, which may also show the last step of a run."""


_NOISY = ("noise", "sigma", "std", "stddev")


def _names(first: str) -> set[str]:
    if not first.startswith("{"):
        separator = separator_of(first)
        return set() if separator is None else {name.strip(' "') for name in first.split(separator)}
    # The first line may be any text. If it does not parse, the file has another format.
    try:
        data = json_of(first.encode(), "the first line")
    except ConversionError:
        return set()
    return set(data) if isinstance(data, dict) else set()


def read(path: Path, origin: Origin) -> Trace:
    """Return the trace of a table.

    Raises:
        ConversionError: if a line is not a round, or not the next one.
        ParameterError: if a value breaks its rule.
        LedgerError: if the file cannot be read.
    """
    missing: list[str] = []
    norms: dict[Rounds, Counter[float]] = {}
    skipped = _Unread()
    found = in_order((each, 1) for each in _recorded(path, missing, norms, skipped))
    if not found:
        unreadable(path.name, "no round was recorded")
    rounds = tuple((each, times) for (_, each), times in found)
    named = printable(", ".join(skipped.names)[:300])
    return Trace(
        origin,
        rounds,
        missing=tuple(missing),
        by_round=True,
        norms=norms,
        other_facts={"columns that are not read": named} if named else {},
        contradictions=(*skipped.doubts.values(),),
        unclear=skipped.unclear(rounds),
    )


_TRIES = {"attempts", "attempt", "retries", "tries", "repeats", "restarts", "resets"}
_OFF_WORDS = {"off", "raw", "resumed", "restarted", "skipped", "disabled", "without", "plain"}
_OFF_WORDS |= {"unclipped", "noiseless", "nonprivate", "rerun", "retried", "bypassed", "reset"}
MAX_TEXTS = 10_000
"""Largest number of different texts of unread columns that are looked at."""


class _Unread:
    """The comments of a table and its columns that are not read, with the doubts in both."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.comments: list[str] = []
        self.doubts: dict[str, str] = {}
        self._epsilons: dict[str, float] = {}
        self._texts: set[tuple[str, str]] = set()

    def look(self, name: str, value: Any, where: str) -> None:
        """Look at one cell; keep the first doubt of each column."""
        if name in self.doubts or value in (None, ""):
            return
        words, number, why = words_in(name), as_number(value), ""
        if number is not None:
            if words & _TRIES and number > 1:
                why = "other sums may have been released"
            elif words & {"epsilon", "eps"}:
                falls = number < self._epsilons.get(name, -math.inf) * (1.0 - 1e-9)
                why = "it falls, so other rounds may count too" if falls else ""
                self._epsilons[name] = float(number)
        elif (key := (name, str(value)[:200])) not in self._texts:
            if len(self._texts) >= MAX_TEXTS:
                unreadable(where, f"more than {MAX_TEXTS} different texts in columns not read")
            self._texts.add(key)
            why = _against(words, key)
        if why:
            self.doubts[name] = printable(f"{where}: {name} = {str(value)[:80]}: {why}")

    def unclear(self, rounds: Iterable[tuple[Rounds, int]]) -> tuple[str, ...]:
        """Return the columns and comments that are not understood."""
        noises = frozenset(one.noise_multiplier for one, _ in rounds)
        known = Known(noises, rounds=sum(times for _, times in rounds))
        columns = (name for name in self.names if not unclear.name_is_clear(name))
        said = unclear_in(self.comments, known)
        return (*(printable(f"column {name[:60]}") for name in columns), *map(repr, said))


def _against(words: set[str], key: tuple[str, str]) -> str:
    """Return why a text of an unread column contradicts a round; empty if it does not."""
    flag = as_flag(key[1])
    about = any(map(_PRIVATE.match, words))
    if (flag is False and about) or words_in(key[1]) & _OFF_WORDS:
        return "the round may have had no noise, or other sums were released"
    clear = is_clear(": ".join(key), Known(), free=True)
    return "" if clear else "it may say that the round was another one"


_PRIVATE = re.compile(r"(?:un)?clip|nois|priv|dp$|secure|mask|poisson|account")


def _recorded(
    path: Path,
    missing: list[str],
    norms: dict[Rounds, Counter[float]],
    skipped: _Unread,
) -> Iterator[tuple[int, Rounds]]:
    """Yield the rounds of a table and the number of gaps before; record gaps and clip norms."""
    # Each kind is built and checked only once, because a table may have millions of rounds.
    kinds: dict[tuple[Any, ...], Rounds] = {}
    last, many, gaps = None, 0, 0
    for where, row in _rows(path, skipped):
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


def _rows(path: Path, skipped: _Unread) -> Iterator[tuple[str, Row]]:
    columns: dict[str, str] | None = None
    names: list[str] = []
    separator = ","
    for number, text in lines_of(path):
        where = f"{path.name}, line {number}"
        if columns is None and is_before_header(text):
            skipped.comments.append(text.lstrip("# "))
            continue
        # The first character of a line determines its form.
        if text.startswith("{"):
            if columns is not None:
                unreadable(where, "a JSON object in a table")
            yield where, as_type(_object(json_of(text.encode(), where), where, skipped), Row, where)
        elif columns is None:
            separator = separator_of(text) or ","
            names = [name.strip() for name in split(text, where, separator)]
            columns = _columns(names, where, skipped)
        else:
            # Cells are text, so numbers are parsed from strings, here only.
            cells = _cells(names, columns, split(text, where, separator), where, skipped)
            yield where, as_type(cells, Row, where, strict=False)


def _object(data: Any, where: str, skipped: _Unread) -> Any:
    """Return one JSON object with the names of this package."""
    if not isinstance(data, dict):
        return data
    here = _columns([str(name) for name in data], where, skipped)
    for name, value in data.items():
        if str(name) not in here and not isinstance(value, dict | list):
            skipped.look(str(name), value, where)
    return {here[str(name)]: value for name, value in data.items() if str(name) in here}


def _columns(names: list[str], where: str, skipped: _Unread) -> dict[str, str]:
    here = _ours(names)
    if any(plain_name(each).strip("_") == "epoch" for each in names):
        unreadable(
            where,
            "a column epoch: an epoch has many steps; if every row is one step, leave the column "
            "out, otherwise state the run: --noise-multiplier Z --rounds N",
        )
    twice = len({*names}) != len(names) or len({*here.values()}) != len(here)
    other = [name for name in names if name not in here]
    delicate = _delicate(other)
    if delicate or twice:
        which = (
            f"columns {str(delicate)[:160]} have no single meaning here{_meant(delicate)}"
            if delicate
            else "a name occurs twice"
        )
        unreadable(where, f"{which}; these are read, once each: {', '.join(COLUMNS)}")
    skipped.names |= dict.fromkeys(name for name in other if name)
    return here


def _delicate(names: list[str]) -> list[str]:
    """Return the columns that may be a fact of a round under another name, or a misspelt one."""
    # A misspelt column would be ignored, and its fact assumed by default.
    named = {name: {*plain_name(name).split("_")} for name in names}
    # An epsilon is not a fact of a round, whatever it is called.
    found = [name for name, each in named.items() if each & {*_DELICATE} and "epsilon" not in each]
    return found + [name for name in names if get_close_matches(plain_name(name), COLUMNS, 1, 0.8)]


def _meant(names: list[str]) -> str:
    """Return which of our columns other programs' names may mean, or nothing."""
    meant = {each: _MEANT.get(plain_name(each)) for each in names}
    told = ", ".join(f"{name}: {ours}" for name, ours in meant.items() if ours)
    return told and f" (perhaps {told}?)"


_MEANT = {
    "sigma": "noise_multiplier or noise_std",
    "q": "sampling_probability",
    "sample_rate": "sampling_probability",
    "sampling_rate": "sampling_probability",
    "batch_size": "cohort",
    "clip": "clip_norm",
    "steps": "steps_per_round",
    "noise": "noise_multiplier or noise_std",
    "clipping_value": "clip_norm",
    "users_per_round": "cohort",
    "clients_per_round": "cohort",
}
"""Names that other programs use, and what they may mean."""


def _cells(
    names: list[str], columns: dict[str, str], cells: list[str], where: str, skipped: _Unread
) -> dict[str, Any]:
    if len(cells) != len(names):
        unreadable(where, f"{len(cells)} cells in a table of {len(names)} columns")
    # Empty cells are left out, so that they count as unknown.
    found = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    for name in skipped.names:
        skipped.look(name, found[name], where)
    return {columns[name]: cell for name, cell in found.items() if name in columns and cell}


def split(text: str, where: str, separator: str = ",") -> list[str]:
    """Return the cells of one line.

    Raises:
        ConversionError: if the quotes of the line do not close.
    """
    try:
        # The csv module handles quoting. One line at a time bounds the memory.
        return next(csv.reader([text], strict=True, delimiter=separator))
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
