"""Several runs in one file: rows of a table of settings, a sweep, or one state for each client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import events, flower, opacus
from .doubts import is_part
from .fields import Fields, as_number, plain_name, setting_name, words_in
from .words import NOISE

MAX_RUNS = 1000
"""Largest number of runs of one file."""

NOISES = {*NOISE, "noise_std", "sigma", "dp_sigma", "noise_sigma"}
"""Names that make a part of a file a run."""


def is_state(data: Any) -> bool:
    """Return whether plain values are the state of an accountant, or an event."""
    return any(format_.recognises(data) for format_ in (flower, events, opacus))


def states_in(data: Any, place: str = "", depth: int = 0) -> list[tuple[str, Any]]:
    """Return the states of accountants inside plain values, with their places."""
    if depth > 8:
        return []
    # Any list of triples may be inside a file, so only a whole file may be a bare history.
    if is_state(data) and (not depth or isinstance(data, Mapping) or events.recognises(data)):
        return [(place or "the whole", data)]
    found: list[tuple[str, Any]] = []
    for name, value in _parts(data, place):
        if isinstance(value, Mapping | list):
            found += states_in(value, name, depth + 1)
        if len(found) > MAX_RUNS:
            break
    return found


def _parts(data: Any, place: str) -> list[tuple[str, Any]]:
    """Return the parts of a mapping or a list, with their places."""
    if isinstance(data, Mapping):
        return [(f"{place}.{key}" if place else str(key), value) for key, value in data.items()]
    if isinstance(data, list):
        return [(f"{place}[{at}]", value) for at, value in enumerate(data)]
    return []


def split(data: Any, kind: str = "") -> list[tuple[str, Any]]:
    """Return the runs of a file with their names; empty if the file is about one run.

    Args:
        data: plain values.
        kind: the syntax, which names the rows.
    """
    if is_state(data):
        return []
    if found := states_in(data):
        return found if len(found) > 1 else []
    if isinstance(data, list):
        return _of_list(data, kind)
    return _of_parts(data) if isinstance(data, Mapping) else []


def _of_list(rows: list[Any], kind: str) -> list[tuple[str, Any]]:
    if kind == "table":
        # A run without noise has an empty cell, and is a row all the same.
        return _rows(rows, {}, "row") if any(map(_noisy_row, rows)) else []
    # A document of YAML may hold its noise in a part; a line of JSON is often one epoch.
    parts = kind == "YAML" and all(
        isinstance(row, Mapping) and Fields(row).has(*NOISES) for row in rows
    )
    whole = parts or (_all_runs(rows) and (_flat(rows) or not _progress(rows)))
    return _rows(rows, {}, "run") if whole else []


def _of_parts(data: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    lists = [key for key, value in data.items() if _lists_runs(key, value)]
    if len(lists) == 1:
        # The other parts may put every run in doubt, for example a switch or a list of seeds.
        common = {key: value for key, value in data.items() if key != lists[0]}
        return _rows(data[lists[0]], common, "run")
    found = _by_name(data)
    inside = [key for key in data if plain_name(key) in _OF_RUNS]
    if found or len(inside) != 1 or not isinstance(data[inside[0]], Mapping):
        return found
    common = {key: value for key, value in data.items() if key != inside[0]}
    return [(name, _whole(common, run)) for name, run in _by_name(data[inside[0]])]


def _lists_runs(key: object, rows: Any) -> bool:
    """Return whether a part is a list of runs by its name; results may be those of one run."""
    if not isinstance(rows, list) or not _all_runs(rows) or is_part(key):
        return False
    words = words_in(key)
    if words & {"step", "steps", "epochs", "round", "rounds"}:
        return False
    return bool(words & _RUNS or (words & _LISTS and not _progress(rows)))


def _flat(rows: list[Any]) -> bool:
    return all({setting_name(key) for key in row} & NOISES for row in rows)


def _all_runs(rows: list[Any]) -> bool:
    return bool(rows) and all(isinstance(row, Mapping) and _noisy(row) for row in rows)


def _noisy_row(row: Mapping[Any, Any]) -> bool:
    """Return whether a row of a table has a noise; the unclear ones are asked for."""
    return _noisy(row) or "noise_scale" in {setting_name(key) for key in row}


def _noisy(row: Mapping[Any, Any]) -> bool:
    if {setting_name(key) for key in row} & NOISES:
        return True
    # MLflow and Optuna write the settings of a run into a part of it.
    parts = [row[key] for key in row if plain_name(key) in _OF_A_RUN]
    return any(_noisy(part) for part in parts if isinstance(part, Mapping))


_OF_A_RUN = {"params", "data", "config", "settings", "args", "hparams", "dp", "privacy"}
_OF_A_RUN |= {"hyperparameters", "hyperparams", "cfg", "parameters"}
"""Names of parts with the settings of one run."""
_OF_RUNS = {"settings", "runs", "experiments", "configs", "results", "trials", "variants"}
_OF_RUNS |= {"datasets", "models", "grid"}
"""Names of parts with one run for each name."""
_RUNS = {"runs", "run", "experiments", "experiment", "trials", "trial"}
_LISTS = {*_OF_RUNS, "jobs", "job", "sweep", "clients", "sites"}
_LISTS |= {"rows", "records", "entries", "users", "list", "arms", "cases", "candidates", "points"}
_LISTS |= {"seeds", "data", "items", "tasks", "executions", "children", "studies", "ablations"}
"""Words of a list of runs. Any other list has the parts of one run."""
_COUNTERS = {"epoch", "training_iteration", "iteration", "step", "global_step", "round"}


def _progress(rows: list[Any]) -> bool:
    """Return whether rows show one run at several times: a counter rises from row to row."""
    for name in _COUNTERS:
        seen = [as_number(row.get(name)) for row in rows]
        counts = [number for number in seen if number is not None]
        if len(counts) == len(rows) > 1 and counts == sorted({*counts}):
            return True
    return False


def _rows(rows: list[Any], common: Mapping[Any, Any], word: str) -> list[tuple[str, Any]]:
    if len(rows) < 2:
        return []
    return [(_named(row, word, at), _whole(common, row)) for at, row in enumerate(rows, start=1)]


def _whole(common: Mapping[Any, Any], row: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a run with the fields of the whole file; its own fields take precedence."""
    names = Fields(row).names() if any(map(_is_template, common)) else set()
    kept = {
        key: _without(value, names) if _is_template(key) else value for key, value in common.items()
    }
    return {**kept, **row}


def _named(row: Mapping[Any, Any], word: str, at: int) -> str:
    names = {plain_name(key): value for key, value in row.items()}
    name = next((names[key] for key in ("name", "run", "id", "client") if key in names), "")
    return f"{word} {at}" + (f" ({str(name)[:40]})" if name not in ("", None) else "")


_TEMPLATES = {"default", "defaults", "template", "templates"}
_SHARED = {"base", "common", "shared"}
_SIZES = {"tiny", "small", "medium", "large", "huge", "xl"}
"""Names of parts that other parts refer to, and that did not run. A base model may have run."""


def _is_template(key: object, names: set[str] = _TEMPLATES | _SHARED) -> bool:
    """Return whether a part is one that others refer to, by its name."""
    hidden = str(key).startswith((".", "_", "x-")) or plain_name(key) in _TEMPLATES
    return hidden or bool(words_in(key) & names)


def without_templates(data: Any) -> Any:
    """Return a file of one run without the values of templates that another part replaces."""
    if not isinstance(data, Mapping):
        return data
    parts = {
        key: value
        for key, value in data.items()
        if isinstance(value, Mapping) and _is_template(key, set())
    }
    if not parts:
        return data
    replaced = Fields({key: value for key, value in data.items() if key not in parts}).names()
    return {**data, **{key: _without(value, replaced) for key, value in parts.items()}}


def _without(data: Any, names: set[str], depth: int = 0) -> Any:
    if not isinstance(data, Mapping) or depth > 8:
        return data
    return {
        key: _without(value, names, depth + 1)
        for key, value in data.items()
        if isinstance(value, Mapping) or setting_name(key) not in names
    }


def _templates_among(parts: Iterable[Any]) -> set[Any]:
    """Return the parts of a file that others refer to; next to other sizes, base is a size."""
    sized = _SIZES & {*map(plain_name, parts)}
    names = _TEMPLATES | _SHARED - ({"base"} if sized else set())
    return {key for key in parts if _is_template(key, names)}


def _by_name(data: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return runs by name: parts of a file that have the same fields, a noise among them."""
    parts = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    templates = _templates_among(parts)
    runs = {key: part for key, part in parts.items() if key not in templates}
    if any(map(is_part, runs)) or len(runs) < 2 or not all(map(_noisy, runs.values())):
        return []
    given = Fields([parts[key] for key in templates]).names()
    if len({frozenset(Fields(part).names() | given) for part in runs.values()}) > 1:
        return []
    common = {key: value for key, value in data.items() if key not in runs}
    return [(str(key)[:60], _whole(common, part)) for key, part in runs.items()]
