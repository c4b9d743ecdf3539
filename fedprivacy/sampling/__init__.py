"""How the participants of a round are drawn, and what that does to the privacy loss.

One file holds one family of schemes: its rows of the reference table, what their pairs are made
of, and the drawing. ``TABLE`` is all the rows together: one cell for every scheme, observer and
adjacency. The schemes look their cell up; the documentation prints it; the contract suite runs it.
Theorem numbers (T1 ...) are explained in ``docs/theory/theorems.md``.
"""

from __future__ import annotations

from ..relations import Adjacency, Observer
from .clients import Apart, WeightedDraws, drawn_once
from .epoch import RandomAllocation, Shuffled
from .everyone import Everyone
from .fixed_size import FixedSize
from .held import MOST_HELD, holding
from .poisson import Poisson
from .replacement import WithReplacement
from .scheme import Cell, Indices, Lossy, Pair, Scheme, TableScheme, expected_size
from .truncated import TruncatedPoisson

SCHEMES: tuple[type[TableScheme], ...] = (
    Poisson,
    TruncatedPoisson,
    FixedSize,
    WithReplacement,
    Shuffled,
    RandomAllocation,
    Everyone,
)
"""Every scheme that has rows in the table."""

TABLE: dict[tuple[str, Observer, Adjacency], Cell] = {
    (scheme.name, observer, adjacency): cell
    for scheme in SCHEMES
    for (observer, adjacency), cell in scheme.rows.items()
}
"""The reference table: scheme's name, observer and adjacency -> cell."""

__all__ = [
    "MOST_HELD",
    "SCHEMES",
    "TABLE",
    "Apart",
    "Cell",
    "Everyone",
    "FixedSize",
    "Indices",
    "Lossy",
    "Pair",
    "Poisson",
    "RandomAllocation",
    "Scheme",
    "Shuffled",
    "TableScheme",
    "TruncatedPoisson",
    "WeightedDraws",
    "WithReplacement",
    "drawn_once",
    "expected_size",
    "holding",
]
