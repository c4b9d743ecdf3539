"""Read records of other programs: a closed list of formats, recognised by their content.

Each format has one module, and ``readers`` has one file for each program's configuration. No code
is imported or run by name, and only tensors and plain values are unpickled. Every file ends in
bounded memory with a trace or with an error of this package. Missing facts are requested, never
guessed.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import ParameterError, refuse
from ...ledger.lines import FORMAT
from ...outputs import printable
from ...relations import Unit
from . import (
    doubts,
    events,
    flower,
    nothing,
    opacus,
    remarks,
    runs,
    sentences,
    statement,
    table,
    unclear,
    words,
)
from .assembling import Assembled, assemble
from .content import beginning, check_nesting, digest, unreadable
from .draft import Claim, Draft, check_asked, complete, name_of
from .fields import MAX_FIELDS, Field, Fields, as_number, unwrapped
from .questions import review
from .readers import READERS, nvflare, tensorflow_privacy
from .syntax import Content, content_of
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
    "Claim",
    "Denominator",
    "Origin",
    "Rounds",
    "Sampling",
    "Stated",
    "Trace",
    "Unseen",
    "assemble",
    "check_asked",
    "is_configuration",
    "is_ledger",
    "is_record",
    "read",
    "read_data",
    "several",
    "values_of",
    "with_unit",
]

FORMATS = (
    "fedprivacy ledger",
    *(one.KIND for one in (opacus, flower, events, table, statement)),
    *(reader.kind for reader in READERS),
)
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


def is_ledger(start: bytes) -> bool:
    """Return whether these first bytes belong to a ledger of this package."""
    return FORMAT.encode() in start[:120]


def read(path: Path, by: str = "", stated: Stated | None = None, claim: Claim = None) -> Trace:
    """Return the trace in a file.

    Args:
        path: the file.
        by: name of the importer; empty for the login name of this process.
        stated: facts that the user states; they complete a configuration.
        claim: the claim that the user states, with None for a part that the file may have.

    Raises:
        ConversionError: if the format is not supported, or a value does not fit it.
        LedgerError: if the file cannot be read.
        ParameterError: if a value breaks its rule, if facts are missing, or if the file holds
            several runs.
    """
    start = _beginning(path)

    # The digest is computed only for a known format, because untrusted files may be long.
    def origin(kind: str) -> Origin:
        return Origin.imported(kind, path.name, digest(path), by)

    if start.startswith(_ZIP):
        return opacus.read(opacus.from_checkpoint(path), origin(opacus.KIND))
    if table.recognises(_first(start)):
        return table.read(path, origin(table.KIND))
    content = content_of(path)
    if runs.split(content.values, content.kind):
        count = len(runs.split(content.values, content.kind))
        raise ParameterError(
            f"{printable(path.name)} holds {count} runs; fp.audit.each(path) judges each one, "
            "as fedprivacy audit does"
        )
    return _read_content(content, origin, path.name, stated or Stated(), claim)


def is_record(path: Path) -> bool:
    """Return whether a file states noise in a supported format, or an accountant's state.

    Raises:
        ConversionError: if the file has no supported syntax.
        LedgerError: if the file cannot be read.
    """
    start = _beginning(path)
    if start.startswith(_ZIP) or table.recognises(_first(start)):
        return True
    values = content_of(path).values
    if isinstance(values, str):
        return (nvflare.of_text(values) or tensorflow_privacy.of_statement(values)) is not None
    known = any(recognises(values) for recognises, _, _ in _OF_VALUES)
    return known or bool(runs.states_in(values)) or is_configuration(values)


def is_configuration(values: Any) -> bool:
    """Return whether plain values are a configuration with a noise, or of a known program."""
    fields = Fields(values)
    return any(reader.recognises(fields, values) for reader in READERS)


def several(path: Path) -> list[tuple[str, Any]]:
    """Return the runs of a file with their names; empty if the file is about one run.

    Raises:
        ConversionError: if the file has no supported syntax, or too many runs.
        LedgerError: if the file cannot be read.
    """
    start = _beginning(path)
    if start.startswith(_ZIP) or table.recognises(_first(start)):
        return []
    content = content_of(path)
    found = runs.split(content.values, content.kind)
    if len(found) > runs.MAX_RUNS:
        unreadable(path.name, f"more than {runs.MAX_RUNS} runs")
    return remarks.with_remarks(found, list(content.remarks)) if found else []


def values_of(path: Path) -> Any:
    """Return the plain values of a file; None for a checkpoint, which has none.

    Raises:
        ConversionError: if the file has no supported syntax.
        LedgerError: if the file cannot be read.
    """
    return None if _beginning(path).startswith(_ZIP) else content_of(path).values


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a file; refuse an empty file, and a pickle."""
    start = beginning(path)
    if not start.removeprefix(BOM_UTF8).strip():
        unreadable(path.name, "empty; name the record of a run")
    # A pickle is refused by its first byte, before any code could unpickle it.
    if start.startswith(_PICKLE):
        reason = "a pickle, which is not read: it can run any program"
        unreadable(path.name, f"{reason}; save the state as JSON, or by torch.save")
    return start


def _first(start: bytes) -> str:
    """Return the first line of content, without a byte order mark."""
    lines = start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n").split("\n")
    return next((line.strip() for line in lines if not table.is_before_header(line)), "")


def _read_content(
    content: Content, origin: Callable[[str], Origin], name: str, stated: Stated, claim: Claim
) -> Trace:
    if not isinstance(content.values, str):
        return read_data(content.values, origin, name, stated, claim, content.remarks)
    text = content.values
    data = nvflare.of_text(text)
    if data is None:
        data = tensorflow_privacy.of_statement(text)
        # A statement has fixed sentences, so that any other one counts.
        content = replace(content, remarks=tuple(tensorflow_privacy.other_sentences(text)))
    if data is None:
        nothing.refuse_text(content.values, name, stated, claim)
    return read_data(data, origin, name, stated, claim, content.remarks)


def _read_by(reader: Callable[[Any, Origin], Trace], data: Any, origin: Origin, name: str) -> Trace:
    """Return an importer's trace; a value that it cannot use is an error of the file."""
    try:
        return reader(data, origin)
    except (LookupError, TypeError, ArithmeticError, AttributeError) as error:
        unreadable(name, f"a value does not fit ({type(error).__name__}: {error})")


def read_data(
    data: Any,
    origin: Callable[[str], Origin],
    name: str,
    stated: Stated | None = None,
    claim: Claim = None,
    texts: Iterable[str | remarks.Doubt] = (),
) -> Trace:
    """Return the trace in plain values, for example a state that was never written to a file.

    Args:
        data: plain JSON values.
        origin: makes the origin from the name of the format.
        name: name of the source, for messages.
        stated: facts that the user states; they complete a configuration.
        claim: the claim that the user states, with None for a part that the values may have.
        texts: sentences outside the values, for example comments of their file.

    Raises:
        ConversionError: if the format is not supported, or a value does not fit it.
        ParameterError: if a value breaks its rule, or if facts are missing.
    """
    check_nesting(data, name)
    stated = stated or Stated()
    data, own = remarks.apart(unwrapped(data))
    texts = [*texts, *own]
    # The order matters: a more specific format comes before one that would also accept it.
    for recognises, kind, reader in _OF_VALUES:
        if recognises(data):
            _check_around_state(data, kind, name, stated)
            trace = _read_by(reader, data, origin(kind), name)
            return _with_unclear(_without_answers(trace, stated), texts, claim)
    inside = runs.states_in(data)
    if len(inside) == 1:
        place, state = inside[0]
        _check_outside(state, data, place, name, stated)
        trace = read_data(state, origin, name, stated, claim, texts)
        return replace(
            trace, other_facts={"found in the file at": printable(place)[:80], **trace.other_facts}
        )
    if len(inside) > 1:
        raise ParameterError(
            f"{printable(name)} holds {len(inside)} states; fp.audit.each judges each of them"
        )
    fields = Fields(runs.without_templates(data))
    if not fields.whole:
        unreadable(name, f"more than {MAX_FIELDS} fields, which no configuration has")
    for one in READERS:
        if one.recognises(fields, data):
            draft = one.read(fields, name)
            words.settle(draft, name)
            doubts.check(draft, name, texts)
            draft.unclear = unclear.of_draft(draft, stated, claim)
            return complete(draft, origin(one.kind), stated, claim)
    nothing.refuse_fields(fields, name)


def _with_unclear(trace: Trace, texts: list[str | remarks.Doubt], claim: Claim) -> Trace:
    """Return a trace with the sentences of its file, or of its description, to be looked at."""
    claimed = ((one or (None,))[0] for one in (claim, trace.claim))
    judged = next((epsilon for epsilon in claimed if epsilon is not None), math.inf)
    noises = frozenset(rounds.noise_multiplier for rounds, _ in trace.rounds)
    rounds = sum(times for _, times in trace.rounds)
    rates = frozenset(rounds.rate for rounds, _ in trace.rounds if rounds.rate is not None)
    drawn = {rounds.sampling for rounds, _ in trace.rounds}
    known = sentences.Known(noises, rounds=rounds or math.inf, epsilon=judged, numbers=rates)
    known = known._replace(shuffled=bool(drawn & {Sampling.SHUFFLED, Sampling.EVERYONE}))
    found = sentences.unclear_in((each for each in texts if isinstance(each, str)), known)
    found += [each.text for each in texts if isinstance(each, remarks.Doubt)]
    description = trace.other_facts.get("description", "")
    found += [description] * (not sentences.is_clear(description, known, free=True))
    return replace(trace, unclear=(*trace.unclear, *map(repr, found)))


def _check_around_state(data: Any, kind: str, name: str, stated: Stated) -> None:
    """Check the fields next to the state of an Opacus accountant; other formats have none."""
    if isinstance(data, dict) and opacus.INSIDE in data:
        _check_outside(data[opacus.INSIDE], data, opacus.INSIDE, name, stated)
    elif isinstance(data, dict) and kind == opacus.KIND:
        _check_outside(data, opacus.outside(data), "the whole", name, stated)


def _check_outside(state: Any, data: Any, place: str, name: str, stated: Stated) -> None:
    """Refuse fields outside a state that contradict it, or that count several runs."""
    fields = Fields(data)
    others = [one for one in fields.every if not one.place.startswith(place)]
    other = _other_noise(others, state)
    if other is not None:
        unreadable(name, f"{other}, where the state at {place} has another noise; pass only it")
    off = doubts.switched_off(fields)
    if off is not None:
        unreadable(name, f"{off} turns the noise off, where the state at {place} has noise")
    poisson = name_of(stated.sampling) is Sampling.POISSON
    for one in others:
        if doubts.clip_off(one):
            unreadable(name, f"{one} turns the clip off, where the state at {place} assumes one")
        if doubts.without_poisson(one) and poisson:
            unreadable(name, f"{one} is another sampling than poisson, which was stated")
    trials = doubts.trials_in(fields)
    if trials is not None and stated.trials is None:
        known = "how many runs were made on these data"
        raise ParameterError(printable(f"{name}: {trials}: {known}. State it: --trials N"))
    _check_doubts(fields.outside(place), state, name, stated)


def _other_noise(others: list[Field], state: Any) -> Field | None:
    """Return a field with a noise that is not in the history of a state; None if all agree."""
    noises = {as_number(entry[0]) for entry in _history(state) if entry}
    stated = [one for one in others if one.name in runs.NOISES] if noises else []
    return next((one for one in stated if one.number not in (None, *noises)), None)


def _check_doubts(fields: Fields, state: Any, name: str, stated: Stated) -> None:
    """Refuse fields outside a state that would put the same facts of a configuration in doubt."""
    facts = _facts_of(_history(state))
    if not facts:
        return
    draft = Draft(fields, opacus.KIND, facts=facts)
    fields.all(*runs.NOISES)
    words.settle(draft, name)
    doubts.check(draft, name)
    draft.unclear = unclear.of_draft(draft, stated, None)
    drawn, said = draft.sampling, name_of(stated.sampling)
    if drawn is not None and said not in (None, drawn):
        unreadable(name, f"the sampling outside the state is {drawn}, where {said} was stated")
    open_ = [one for one in draft.questions if one.name != "trials" or stated.trials is None]
    open_ = open_ or review(draft.unclear, stated.reviewed)
    if open_:
        unreadable(name, f"outside the state of an accountant, {open_[0].meaning}; pass only it")


def _facts_of(history: list[Any]) -> dict[str, Any]:
    """Return the facts that the history of a state gives in the worst case; empty without noise."""
    entries = [tuple(map(as_number, entry)) for entry in history if len(entry) == 3]
    noises = [noise for noise, _, _ in entries if noise is not None]
    if not noises:
        return {}
    return {
        "noise_multiplier": min(noises),
        "unit": Unit.RECORD,
        "rounds": sum(steps or 0 for _, _, steps in entries),
        "sampling_probability": max(rate or 0.0 for _, rate, _ in entries),
    }


def _history(state: Any) -> list[Any]:
    """Return the triples of an Opacus state; empty for other states."""
    inside = state.get(opacus.INSIDE, state) if isinstance(state, dict) else None
    history = inside.get("history") if isinstance(inside, dict) else None
    return [each for each in history or [] if isinstance(each, list | tuple)]


def _without_answers(trace: Trace, stated: Stated) -> Trace:
    """Return a trace that has its own noise and rounds; refuse a statement of these."""
    for fact in ("noise_multiplier", "rounds"):
        if getattr(stated, fact) is not None:
            refuse(fact, getattr(stated, fact), "be left out with a record that has it")
    return trace
