"""Files without the noise of a run: why they are not audited, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from ...errors import ConversionError
from ...outputs import printable
from . import doubts, sweeps, words
from .assembling import options_of
from .draft import Claim, tiny
from .fields import Field, Fields, absent
from .syntax import numbers_in
from .trace import Stated

_NAMES: dict[str, tuple[str, ...]] = {
    "noise_multiplier": words.NOISE,
    "rounds": (*words.STEPS, *words.ROUNDS),
    "sampling_probability": words.RATE,
    "epsilon": (*words.EPSILON, "\u03b5", "e"),
    "delta": (*words.DELTA, "\u03b4", "d"),
}
"""Fact -> its names in a file or in plain text."""
_LIBRARIES = re.compile(
    r"diffprivlib|tmlt|tumult|PureDPBudget|ApproxDPBudget|RhoZCDPBudget|protected_change"
    r"|pipeline_?dp|snsql|smartnoise|opendp",
    re.IGNORECASE,
)
"""Names of libraries that take a budget and draw their own noise."""


def _refuse(name: str, why: str) -> NoReturn:
    raise ConversionError(printable(f"{name}: no audit is possible, because {why}"))


def _command(given: Mapping[str, str], sampling: Any = None) -> str:
    """Return the command that states a run, with the known numbers."""
    rate = given.get("sampling_probability", "P")
    claim = f"{given.get('epsilon', 'EPSILON')},{given.get('delta', 'DELTA')}"
    ways = {
        "poisson": f"--sampling poisson --sampling-probability {rate}",
        "fixed": "--sampling fixed --population N --cohort M",
        "shuffled": "--sampling shuffled --rounds-per-epoch N",
        "everyone": "--sampling everyone",
    }
    first, *others = ways.values()
    drawn = f"{first} (or {', or '.join(others)})"
    if sampling is not None:
        drawn = options_of(sampling) or ways.get(str(sampling), f"--sampling {sampling}")
    return (
        f"fedprivacy audit --noise-multiplier {given.get('noise_multiplier', 'Z')} --rounds "
        f"{given.get('rounds', 'N')} {drawn} --adjacency {given.get('adjacency', 'NAME')} "
        f"--claim {claim}"
    )


# Plain text

_TEXT_WORDS = ("noise", "epsilon", "\u03b5", "differential", "privacy", "sigma", "dpsgd", "dp-sgd")
_OTHER_FORMS = (
    (
        re.compile(r"\\begin\{(?:tabular|longtable)|^[ \t]*\|.*\|[ \t]*$", re.M),
        " Save its table as CSV with one run a row.",
    ),
    (
        re.compile(r"^(?:resource|variable|module|provider|locals|data)\b[^\n{]{0,200}\{", re.M),
        " If it is Terraform, a run may replace its values.",
    ),
    (
        re.compile(r"^[ \t]{0,40}[\w.-]{1,80}[ \t]{0,9}[=:]?[ \t]{0,9}(?:\[[ \t]{0,9})?\{", re.M),
        " If it is HOCON, save it as JSON (pyhocon -i FILE -o FILE.json -f json).",
    ),
)
"""Signs of a format that is not read, and what to do."""
_SWITCHED_OFF = re.compile(
    r"\b(?:dp-?sgd|dp|use[_-]dp|private)\s*[=:]\s*(?:false|0|no|off)\b", re.I
)
"""A line of plain text that turns privacy off."""


def refuse_text(text: str, name: str, stated: Stated, claim: Claim) -> NoReturn:
    """Refuse plain text, with the options that state what it says, and those already stated."""
    about = [word for word in _TEXT_WORDS if word in text.lower()]
    if not about:
        _refuse(name, "it is text that mentions no noise, epsilon or privacy")
    numbers = numbers_in(text)
    given = _numbers_of(text, numbers)
    for fact in ("noise_multiplier", "rounds", "adjacency"):
        if getattr(stated, fact) is not None:
            given[fact] = str(getattr(stated, fact))
    claimed = zip(("epsilon", "delta"), claim or (), strict=False)
    given |= {key: f"{value:g}" for key, value in claimed if value is not None}
    said = [f"{key} = {value}" for key, value in numbers.items()][:8]
    way_out = next((way for sign, way in _OTHER_FORMS if sign.search(text)), "")
    library = _LIBRARIES.search(text)
    if library is not None and "noise_multiplier" not in given:
        way_out += f" It names {library[0]}, which draws its own noise."
    raise ConversionError(
        printable(
            f"{name}: plain text, which is no record; it mentions {', '.join(said or about)[:300]}."
            f"{way_out} State the run in place of the file: {_command(given, stated.sampling)}"
        )
    )


def _numbers_of(text: str, numbers: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers of a text by fact, each one that the text gives once."""
    given = {}
    for fact, names in _NAMES.items():
        values = {numbers[each] for each in names if each in numbers}
        if len(values) == 1:
            given[fact] = values.pop()
    # Text writes 10^-5, whose first number is no delta.
    if not 0 < float(given.get("delta", 0.5)) < 1:
        given.pop("delta")
    # Their noise is on another sum, or switched off: the number is not the multiplier.
    if "microbatches" in numbers or _SWITCHED_OFF.search(text):
        given.pop("noise_multiplier", None)
    return given


# Fields

_ANSWERS = {"epsilon", "eps", "dp", "privacy", "rho", "sigma", "noise"}
_PRIVACY_WORDS = _ANSWERS | {"delta", "clip", "clipping", "rounds", "std", "norm"}


def refuse_fields(fields: Fields, name: str) -> NoReturn:
    """Refuse a file without noise."""
    _refuse(name, _why(fields))


def _why(fields: Fields) -> str:
    other = doubts.other_noise(fields)
    if other is not None:
        return doubts.why_not_gaussian(other)
    off = next(filter(doubts.says_off, fields.every), None) or doubts.switched_off(fields)
    if off is not None:
        return f"{off} turns its privacy off"
    if many := sweeps.swept(fields):
        return sweeps.why(many)
    about = list(filter(_about_privacy, fields.every))
    shown = ", ".join(map(str, about[:6]))
    library = next(filter(_names_a_library, fields.every), None)
    if library is not None:
        return f"{library} draws its own noise, which is not recorded (found {shown})"
    if about:
        return _why_not(fields, about, shown)
    if fields.every:
        shown = ", ".join(printable(one.place)[:40] for one in fields.every[:4])
        return _NO_FIELD.format(shown)
    return "it has no fields; name the record of a private run"


def _about_privacy(one: Field) -> bool:
    """Return whether a field has a value about privacy, and not one of an optimizer."""
    return bool(one.words & _PRIVACY_WORDS) and not absent(one.value) and not tiny(one)


def _names_a_library(one: Field) -> bool:
    """Return whether a field names a library that draws its own noise."""
    return _LIBRARIES.search(f"{one.place} {one.value}") is not None


_NO_FIELD = (
    "no field states the noise or the epsilon of a run (found {}); name the record of a private run"
)


def _why_not(fields: Fields, about: list[Field], shown: str) -> str:
    """Return why fields about privacy do not describe a run."""
    if words.other_field(fields):
        why = f"its fields are not about differential privacy (found {shown})"
        return f"{why}; it has no noise of a private run"
    if any(one.words & _ANSWERS for one in about) or words.private(fields):
        why = _without_multiplier(fields, about, shown)
        return f"{why}state the run in place of the file: {_command(_known(fields))}"
    if all(one.name in words.CLIPS for one in about):
        return f"no field states noise or an epsilon, only gradient clipping ({shown})"
    return _NO_FIELD.format(shown)


def _without_multiplier(fields: Fields, about: list[Field], shown: str) -> str:
    noises = words.unclear(fields) or [one for one in about if one.name in words.NOISE]
    # A noise below 0 is a draw and no standard deviation.
    if noises and all((one.number or 0) >= 0 for one in noises):
        noisy = ", ".join(map(str, noises[:3]))
        why = f"{noisy} may be another noise than that of a private run (found {shown})"
        return f"{why}; if it is private, "
    private = "" if words.private(fields) else "if it is private, "
    return f"no noise is recorded (found {shown}); {private}"


def _known(fields: Fields) -> dict[str, str]:
    """Return the numbers of a file for the command that states its run."""
    numbers = {
        fact: fields.number(*names)
        for fact, names in _NAMES.items()
        if not any(map(tiny, fields.all(*names)))
    }
    if words.federated(fields):
        # A share of clients may be one of a fixed cohort, and a round has many steps.
        numbers |= dict.fromkeys(("sampling_probability", "rounds"))
    return {fact: f"{value:g}" for fact, value in numbers.items() if value is not None}
