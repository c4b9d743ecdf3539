"""Settings as values: the fields of a dataclass, each with its unit, its rule and its help.

A method, a problem or a point of a grid declares its settings once, with ``setting``. The checks,
the command line (``--set``, ``--help``), sweeps, grids and the tables of the documentation use this
declaration.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from ..errors import (
    closed_unit,
    count,
    integer,
    listed,
    moderate,
    moderate_or_zero,
    non_negative,
    open_unit,
    positive,
    refuse,
    require,
)
from ..errors import probability as share
from ..mechanisms import Mechanism

Priced = list[tuple[dict[str, Any], tuple[Mechanism, dict[str, float]]]]
"""(parameters, (run, costs by name)) of each setting, the input format of ``fp.pareto``."""

Axis = float | None | Sequence[float | None]
"""One axis of a grid: one value, or several."""


@dataclass(frozen=True)
class SettingRule:
    """Rule for a value.

    Args:
        text: text after "must be".
        check: takes one ``name=value`` and returns the value, or raises ParameterError.
        kind: int, float or str.
    """

    text: str
    check: Callable[..., Any]
    kind: type = float


def _whole(at_least: int) -> Callable[..., int]:
    return lambda **named: integer(at_least, **named)


COUNT = SettingRule("an integer of at least 1", _whole(1), int)
WHOLE = SettingRule("an integer of at least 0", _whole(0), int)
SIZE = SettingRule("an integer from 1 to 1e15", count, int)
MODERATE = SettingRule("from 1e-50 to 1e50", moderate)
MODERATE_OR_ZERO = SettingRule("0, or from 1e-50 to 1e50", moderate_or_zero)
POSITIVE = SettingRule("above 0", positive)
NON_NEGATIVE = SettingRule("at least 0", non_negative)
SHARE = SettingRule("in (0, 1]", share)
OPEN_SHARE = SettingRule("strictly between 0 and 1", open_unit)
CLOSED_SHARE = SettingRule("in [0, 1]", closed_unit)


def choice(*names: str) -> SettingRule:
    """Return the rule for one of some names."""
    text = f"one of {', '.join(names)}"

    def check(**named: object) -> str:
        ((name, value),) = named.items()
        require(value in names, name, value, f"be {text}")
        return str(value)

    return SettingRule(text, check, str)


def setting(
    rule: SettingRule, text: str, *, default: Any = MISSING, unit: str = "", symbol: str = ""
) -> Any:
    """Return a dataclass field that declares a setting.

    Args:
        rule: rule for its value.
        text: help, in a few words.
        default: default value; None for a setting that may be left open.
        unit: unit of the value.
        symbol: symbol of the paper.
    """
    held = {"rule": rule, "help": text, "unit": unit, "symbol": symbol}
    return field(metadata=held) if default is MISSING else field(default=default, metadata=held)


@dataclass(frozen=True)
class Setting:
    """One setting, as shown in help and tables.

    Args:
        name: as in ``--set NAME=VALUE``.
        rule: rule for its value.
        help: short description.
        unit: unit of its value, empty for plain numbers.
        default: MISSING without a default, None for a setting that may be left open.
        symbol: symbol of the paper, empty if it has none.
    """

    name: str
    rule: SettingRule
    help: str
    unit: str
    default: Any
    symbol: str = ""

    def checked(self, value: Any) -> Any:
        """Return a value that satisfies the rule.

        Raises:
            ParameterError: it does not.
        """
        if value is None and self.default is None:
            return None
        return self.rule.check(**{self.name: value})

    def read(self, text: str) -> Any:
        """Return the value of a text; "all" and "none" are None if the setting may be left open.

        Raises:
            ParameterError: the text is not a number, or the number breaks the rule.
        """
        if self.default is None and text.strip() in ("all", "none"):
            return None
        if self.rule.kind is str:
            return self.checked(text)
        try:
            # int first: a large integer would lose digits as a float.
            value = int(text) if text.strip().lstrip("+-").isdigit() else float(text)
        except ValueError:
            refuse(self.name, text, f"be {self.rule.text}", "pass a number")
        return self.checked(value)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        shown = "" if self.default in (None, MISSING) else f", {self.default}{unit} by default"
        return f"{self.help}; {self.rule.text}{shown}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of all settings: checks every field by its rule when it is created."""

    def __post_init__(self) -> None:
        for name, known in self.known().items():
            object.__setattr__(self, name, known.checked(getattr(self, name)))

    @classmethod
    def known(cls) -> dict[str, Setting]:
        """Return every setting by its name."""
        return {
            each.name: Setting(
                each.name,
                each.metadata["rule"],
                each.metadata["help"],
                each.metadata["unit"],
                each.default,
                each.metadata["symbol"],
            )
            for each in fields(cls)
            if "rule" in each.metadata
        }

    @classmethod
    def own(cls) -> dict[str, Setting]:
        """Return the settings that the class itself declares, by name."""
        return {name: each for name, each in cls.known().items() if name in cls.__annotations__}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings with some given by name, the rest by default.

        Raises:
            ParameterError: an unknown name, a value that breaks its rule, or a missing value
                without default.
        """
        # First, because an unknown name explains more than a missing one.
        check_names(cls.known(), given)
        for name, known in cls.known().items():
            if known.default is MISSING and name not in given:
                refuse(name, None, f"be {known.rule.text}", "pass it, since it has no default")
        return cls(**given)

    @classmethod
    def grid(cls, axes: Mapping[str, Any]) -> list[Self]:
        """Return every combination of the values of some axes; the first axis changes slowest.

        Raises:
            ParameterError: see ``of``; or an axis without values.
        """
        check_names(cls.known(), axes)
        # In the order of the fields, independent of the order of the axes.
        ordered = {name: axis(name, axes[name]) for name in cls.known() if name in axes}
        points = itertools.product(*ordered.values())
        return [cls.of(dict(zip(ordered, values, strict=True))) for values in points]

    def changed(self, given: Mapping[str, Any]) -> Self:
        """Return the settings with some changed.

        Raises:
            ParameterError: see ``of``.
        """
        check_names(self.known(), given)
        return replace(self, **given)

    def values(self) -> dict[str, Any]:
        """Return every setting's value by name."""
        return {name: getattr(self, name) for name in self.known()}


def check_names(known: Mapping[str, Setting], names: Iterable[str]) -> None:
    """Refuse a name that is not a known setting.

    Raises:
        ParameterError: a name is unknown.
    """
    for name in names:
        if name not in known:
            refuse("setting", name, f"be one of {listed(known)}")


def read(known: Mapping[str, Setting], texts: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return the values of texts; each text has one or more values, separated by commas.

    Raises:
        ParameterError: an unknown name, a text that is not a number, or a number that breaks its
            rule.
    """
    check_names(known, texts)
    return {
        name: [known[name].read(part) for part in text.split(",")] for name, text in texts.items()
    }


def single(values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the single value of every name.

    Raises:
        ParameterError: a name has several values.
    """
    for name, found in values.items():
        require(len(found) == 1, name, list(found), "be one value")
    return {name: found[0] for name, found in values.items()}


def axis(name: str, values: Any) -> list[Any]:
    """Return the values of one axis of a grid; a single value is an axis of length 1."""
    # A text is a sequence of letters, but one value.
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        return [values]
    require(len(values) != 0, name, values, "contain at least one value")
    return list(values)


def table(kind: type[Settings]) -> str:
    """Return the settings that a class declares as rows of a Markdown table."""
    rows = ["| setting | symbol | meaning | rule | default |", "|---|---|---|---|---|"]
    for name, each in kind.own().items():
        shown = "" if each.default in (None, MISSING) else f"{each.default} {each.unit}".strip()
        rows.append(f"| `{name}` | {each.symbol} | {each.help} | {each.rule.text} | {shown} |")
    return "\n".join(rows)
