"""Files that list values to try: search spaces of Weights & Biases, Katib, NNI, Ray and Hydra."""

from __future__ import annotations

import re
from typing import Any

from ...outputs import printable
from .fields import Field, Fields, as_number, plain_name, setting_name
from .words import BATCH, CLIPS, EPSILON, NOISE, RATE, STEPS, UNCLEAR

_VALUES = {"values", "grid_search", "choices", "categories", "candidates", "options"}
_KINDS_OF_SEARCH = {"choice", "uniform", "loguniform", "quniform", "randint", "categorical"}
_ENDS = ({"min", "max"}, {"low", "high"}, {"lower", "upper"}, {"min_value", "max_value"})
_SEARCHED = {*NOISE, *UNCLEAR, *EPSILON, *CLIPS, *RATE, *BATCH, *STEPS, "epochs", "delta"}
_SEARCHES = {"grid", "random", "bayes", "bayesian", "tpe", "hyperband"}


_SPACE = re.compile(r"(?:choice|interval|range|uniform|loguniform|randint)\(", re.ASCII)
"""A value to search, in the words of Hydra's sweepers."""


def swept(fields: Fields) -> list[str]:
    """Return the settings for which a file gives several values to try, in words."""
    parts: dict[str, dict[str, Any]] = {}
    for one in fields.every:
        parts.setdefault(one.parent, {})[one.name] = one.value
    found = {one.place: _listed_in(one) for one in fields.every if one.name in _SEARCHED}
    search = next((str(one.value) for one in fields.every if one.place == "method"), "")
    for place, values in parts.items():
        outside, _, name = place.rpartition(".")
        # Katib names the setting beside its space.
        if plain_name(name) in ("feasible_space", "search_space"):
            place = name = str(parts.get(outside, {}).get("name", name))
        parameter = search.lower() in _SEARCHES and place.startswith("parameters")
        if (parameter or setting_name(name) in _SEARCHED) and (tried := _tried(values)):
            found[place] = tried
    return [printable(f"{place[-60:]}: {tried}") for place, tried in found.items() if tried]


_PLACES = {"matrix", "sweeper", "sweep", "grid", "search", "space", "loop", "tune", "tuner"}
"""Words of parts of a file whose lists are values to try."""


def _listed_in(one: Field) -> str:
    """Return the values to try of a setting that is one field; empty for other fields."""
    if isinstance(one.value, str) and _SPACE.match(one.value.strip()):
        return one.value.strip()[:40]
    listed = isinstance(one.value, str) or one.place_words & _PLACES
    return _listed(one.value) if listed else ""


def _listed(value: Any) -> str:
    """Return a list of numbers in words, also from ``0.5,1.0``; empty for other values."""
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list) or len(values) < 2 or None in map(as_number, values):
        return ""
    # 1,5 is a number with a decimal comma, and 1,500 one with a comma between thousands.
    if isinstance(value, str) and len(values) < 3 and "." not in value:
        return ""
    return ", ".join(str(each).strip() for each in values[:5]) + ", ..." * (len(values) > 5)


def _tried(values: dict[str, Any]) -> str:
    """Return the values to try of one setting in words; empty for other values."""
    lists = [value for name, value in values.items() if name in _VALUES]
    kinds = {str(values.get(name)) for name in ("type", "kind")}
    lists += [values.get("value")] if kinds & _KINDS_OF_SEARCH else []
    for value in lists:
        if isinstance(value, list) and len(value) > 1:
            return ", ".join(map(str, value[:5])) + ", ..." * (len(value) > 5)
    for least, most in map(sorted, _ENDS):
        ends = [values.get(least), values.get(most)]
        if None not in map(as_number, ends):
            return " to ".join(map(str, sorted(ends, key=lambda end: as_number(end) or 0.0)))
    return ""


def why(many: list[str]) -> str:
    """Return why a file of values to try is not audited."""
    return (
        f"it lists values to try ({'; '.join(many[:3])}) and not what ran; audit the settings of "
        "the runs, with --trials N for N runs on the same data"
    )
