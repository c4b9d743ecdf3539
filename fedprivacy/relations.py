"""The facts that decide whether an epsilon is true: unit, adjacency, observer.

They label a privacy loss and travel with it to the Bound, the ledger and the report.
Past ``Mechanism.privacy_loss(adjacency, observer)`` no arithmetic reads them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Unit(StrEnum):
    """Whose data is one unit of protection."""

    CLIENT = "client"
    RECORD = "record"


class Adjacency(StrEnum):
    """How two neighbouring data sets differ by one unit."""

    ADD_REMOVE = "add_remove"
    """The unit is there, or it is not."""
    ZERO_OUT = "zero_out"
    """The unit's contribution is replaced by nothing; the number of units is public."""
    REPLACE_ONE = "replace_one"
    """The unit's data are exchanged for any other data."""

    @property
    def moves(self) -> int:
        """How many clip norms one unit moves a sum by: replaced, from C u to -C u, it is two."""
        return 2 if self is Adjacency.REPLACE_ONE else 1


class Observer(StrEnum):
    """Who looks at the run, and at how much of it."""

    AGGREGATE = "aggregate"
    """Sees every release, but not who took part."""
    SERVER = "server"
    """Sees every release and who took part."""
    FINAL = "final"
    """Sees the last release only."""


class Facts(NamedTuple):
    """What a privacy statement is about. Statements with different facts do not add."""

    unit: Unit | None
    adjacency: Adjacency
    observer: Observer


def is_add_remove(book: object) -> bool:
    """Return whether a ledger, a budget or an adjacency is add_remove; None is about nothing."""
    # A ledger has its facts in a field, a budget is asked itself.
    return bool(getattr(getattr(book, "facts", book), "adjacency", book) == Adjacency.ADD_REMOVE)
