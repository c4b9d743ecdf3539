"""The facts that decide whether an epsilon holds: unit, adjacency, observer.

They label a privacy loss and stay with it in the Bound, the ledger and the report. After
``Mechanism.privacy_loss(adjacency, observer)`` no arithmetic uses them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Unit(StrEnum):
    """The privacy unit: the data that are protected together."""

    CLIENT = "client"
    RECORD = "record"


class Adjacency(StrEnum):
    """How two neighbouring data sets differ by one unit."""

    ADD_REMOVE = "add_remove"
    """The unit is present or absent."""
    ZERO_OUT = "zero_out"
    """The unit's contribution is replaced by zero; the number of units is public."""
    REPLACE_ONE = "replace_one"
    """The unit's data are replaced by any other data."""

    @property
    def moves(self) -> int:
        """Change of a sum by one unit, in clip norms: 2 if replaced (from C u to -C u), else 1."""
        return 2 if self is Adjacency.REPLACE_ONE else 1


class Observer(StrEnum):
    """Who observes the run, and which outputs."""

    AGGREGATE = "aggregate"
    """Sees every release, but not who took part."""
    SERVER = "server"
    """Sees every release and who took part."""
    FINAL = "final"
    """Sees only the last release."""


class Facts(NamedTuple):
    """The subject of a privacy statement. Statements with different facts do not add up."""

    unit: Unit | None
    adjacency: Adjacency
    observer: Observer


def is_add_remove(book: object) -> bool:
    """Return whether a ledger, a budget or an adjacency is add_remove; False for None."""
    # A ledger has its facts in a field, a budget has the adjacency itself.
    return bool(getattr(getattr(book, "facts", book), "adjacency", book) == Adjacency.ADD_REMOVE)
