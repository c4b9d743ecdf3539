"""What a method of ``fedprivacy train`` is, and the list of all methods.

Every method has one file in this folder. The file declares the settings of the method and its job,
and calls ``register``. Nothing here needs torch at import, so the command line lists the methods
without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from ...errors import listed, refuse
from ...relations import Unit
from ...systems.settings import POSITIVE, Setting, Settings, check_names, table


@dataclass(frozen=True)
class Method:
    """A training method.

    Args:
        name: the value of ``--method``.
        title: the name for people.
        settings: the class of its settings.
        knob: the parameter that a budget sets; None if the method is not private.
        unit: the protected unit.
        job: the class of its jobs; see ``runs.jobs.Job``.
        with_noise: the private counterpart of a method that is not private.
        compared: whether the demo trains it.
    """

    name: str
    title: str
    settings: type[Settings]
    knob: Setting | None
    unit: Unit
    job: Any
    with_noise: str = "dp-fedavg"
    compared: bool = False

    @property
    def knob_name(self) -> str | None:
        """The name of the knob."""
        return None if self.knob is None else self.knob.name

    @property
    def private(self) -> bool:
        """Whether the method has a privacy budget."""
        return self.knob is not None

    @property
    def known(self) -> dict[str, Setting]:
        """Every setting by its name, the knob first."""
        knob = {} if self.knob is None else {self.knob.name: self.knob}
        return knob | self.settings.known()

    def of(self, given: Mapping[str, Any]) -> Settings:
        """Return the method's settings, some of them given.

        Raises:
            ParameterError: the knob, a setting of other methods only, an unknown name, or a value
                that breaks its rule.
        """
        if self.knob_name in given:
            knob = str(self.knob_name)
            refuse(
                knob,
                given[knob],
                "be left out",
                f"it is the calibrated setting of {self.title}; pass level",
            )
        self.check_names(given)
        return self.settings.of(given)

    def check_names(self, given: Mapping[str, Any]) -> None:
        """Refuse names that are not settings of the method.

        Raises:
            ParameterError: a name is not a setting of the method.
        """
        for name, value in given.items():
            # A setting of another method gets its own message, not the one for unknown names.
            if name not in self.known and name in all_settings():
                way_out = f"its settings are {listed(self.settings.known())}"
                refuse(name, value, f"be left out, since {self.name} does not use it", way_out)
        check_names(self.known, given)


METHODS: dict[str, Method] = {}
"""Every method by its name, in the order of registration."""

DECLARED: list[type[Settings]] = []
"""The classes that declare settings, in the order of the help. Other classes combine these."""


def register(*methods: Method, declares: Iterable[type[Settings]] = ()) -> None:
    """Add methods, and the classes that declare settings of their own."""
    METHODS.update({each.name: each for each in methods})
    DECLARED.extend(declares)


def knob(name: str, description: str) -> Setting:
    """Return the parameter that a budget sets, with its help."""
    return Setting(name, POSITIVE, description, "", None)


def all_settings() -> set[str]:
    """Return the names of all methods' settings."""
    return {name for each in METHODS.values() for name in each.settings.known()}


def users(kind: type[Settings]) -> list[str]:
    """Return the methods that have the settings of a class."""
    return [name for name, each in METHODS.items() if issubclass(each.settings, kind)]


def settings_in_words(method: str | None = None, width: int = 78) -> str:
    """Return the settings of one method, or of all, with symbol, help and rule, as lines."""
    whose = "the methods" if method is None else METHODS[method].title
    lines = [f"Settings of {whose} (--set NAME=VALUE):"]
    for kind in DECLARED:
        if method is not None and method not in users(kind):
            continue
        lines += ["", *(wrap(", ".join(users(kind)) + ":", width) if method is None else ())]
        for name, each in kind.own().items():
            # A class of settings may replace one of another class.
            if method is not None and METHODS[method].known[name] != each:
                continue
            symbol = f" ({each.symbol})" if each.symbol else ""
            lines += wrap(
                f"{name}{symbol}: {each}", width, initial_indent="  ", subsequent_indent="      "
            )
    return "\n".join(lines)


def tables() -> str:
    """Return every method's settings as Markdown tables, for docs/command_line.md."""
    tables = [f"{', '.join(f'`{u}`' for u in users(kind))}\n\n{table(kind)}" for kind in DECLARED]
    knobs = ["| method | calibrated setting | |", "|---|---|---|"]
    knobs += [
        f"| `{each.name}` | `{each.knob.name}` | {each.knob.help} |"
        for each in METHODS.values()
        if each.knob is not None
    ]
    return "\n\n".join([*tables, "\n".join(knobs)])


def names(*, private: bool) -> list[str]:
    """Return the methods' names, all of them or only the private ones."""
    return [name for name, each in METHODS.items() if each.private or not private]


def method_named(name: str, known: Iterable[str] | None = None) -> Method:
    """Return a method.

    Raises:
        ParameterError: the name is not a known method.
    """
    known = METHODS if known is None else known
    if name not in known:
        refuse("method", name, f"be one of {listed(known)}")
    return METHODS[name]
