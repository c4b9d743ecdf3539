"""The command that searches the best setting of a system within a budget: choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..systems.settings import read, single
from .group import cli
from .options import (
    BUDGET,
    EXACT,
    METHOD,
    OBSERVERS,
    as_json,
    named_texts,
    option,
    say_lines,
    set_option,
    show,
)

SYSTEMS = ("fa-ld", "fa-hmc", "fed-plt")


@cli.command()
@option(
    "--method",
    click.Choice(SYSTEMS),
    METHOD,
    "The system: fa-ld and fa-hmc by w2, the distance to a Gaussian posterior; fed-plt by a bound "
    "on its error.",
    default="fa-ld",
)
@option("--epsilon", float, BUDGET, "The budget.", required=True)
@option("--delta", float, BUDGET, "Delta of the budget.", required=True)
@option("--observer", OBSERVERS, BUDGET, "What the attacker sees.", default="aggregate")
@set_option(
    "A number of the problem, for example records=100, or a parameter that is not searched, for "
    "example rounds=10. Repeat it for more. An unknown name lists the known ones.",
    several=False,
)
@option(
    "--deadline",
    float,
    EXACT,
    "Seconds after which no other setting is tried.",
    default=60.0,
)
@as_json
def choose(method: str, chosen: tuple[str, ...], as_json: bool, **budget: Any) -> None:
    """Search the setting of a system with the smallest error within a budget.

    No data are read and nothing is trained: the error follows from the system's exact law. The unit
    is a record, and a neighbour has one record replaced. The error of dp-fedavg and fed-smp has no
    formula: train a grid with `fedprivacy sweep`, or with `sweep --private` on protected data.

    \b
    Examples:
      fedprivacy choose --method fa-ld --epsilon 2 --delta 1e-5
      fedprivacy choose --method fa-hmc --epsilon 5 --delta 1e-5 \\
          --set records=100 --set rounds=10
    """  # noqa: D301
    from ..papers.choosing import choose as search

    problem, fixed = _problem(method, named_texts(chosen))
    found = search(method, problem=problem, fixed=fixed, **budget)
    show(found.to_dict(), as_json, lambda: say_lines(str(found)))


def _problem(method: str, texts: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """Return the problem with some numbers given, and the parameters that are not searched."""
    from ..papers.choosing import SYSTEMS

    kind = SYSTEMS[method].problem
    known = {**kind.known(), **SYSTEMS[method].fixed.known()}
    given = single(read(known, texts))
    facts = {name: value for name, value in given.items() if name in kind.known()}
    return kind(**facts), {name: value for name, value in given.items() if name not in facts}
