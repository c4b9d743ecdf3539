"""How the participants of a round are drawn, and what that does to the privacy loss.

One file holds one family of schemes: its rows of the reference table, what their pairs are made
of, and the drawing. ``TABLE`` is all the rows together: one cell for every scheme, observer and
adjacency. The schemes look their cell up; the documentation prints it; the contract suite runs it.
Theorem numbers (T1 ...) are explained in ``docs/theory/theorems.md``.
What ``__all__`` names is ``fp.NAME`` as well.
"""

from __future__ import annotations

from ..relations import Adjacency, Observer
from .clients import Apart as Apart
from .clients import WeightedDraws as WeightedDraws
from .clients import drawn_once as drawn_once
from .epoch import RandomAllocation, Shuffled
from .everyone import Everyone
from .fixed_size import FixedSize
from .held import MOST_HELD as MOST_HELD
from .held import holding as holding
from .poisson import Poisson
from .replacement import WithReplacement
from .scheme import Cell as Cell
from .scheme import Indices as Indices
from .scheme import Lossy as Lossy
from .scheme import Pair as Pair
from .scheme import Scheme as Scheme
from .scheme import TableScheme as TableScheme
from .scheme import expected_size as expected_size
from .scheme import priced_as as priced_as
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
    "Everyone",
    "FixedSize",
    "Poisson",
    "RandomAllocation",
    "Shuffled",
    "TruncatedPoisson",
    "WithReplacement",
]
