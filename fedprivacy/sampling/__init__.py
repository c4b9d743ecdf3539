"""Sampling schemes: how the participants of a round are drawn, and the privacy loss of that.

Each file holds one family of schemes: its rows of the reference table, the builders of their pairs,
and the draw. ``TABLE`` joins the rows of all schemes: one cell for each scheme, observer and
adjacency. The schemes look up their cell, the documentation prints it, and the contract suite runs
it. Theorem numbers (T1 ...) refer to ``docs/theory/theorems.md``. The names in ``__all__`` are
available as ``fp.NAME``.
"""

from __future__ import annotations

from ..relations import Adjacency, Observer
from .allocation import RandomAllocation
from .clients import SeparateProbabilities as SeparateProbabilities
from .clients import WeightedDraws as WeightedDraws
from .clients import drawn_once as drawn_once
from .epoch import Shuffled
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
from .scheme import round_rate as round_rate
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
"""The reference table: (name of the scheme, observer, adjacency) -> cell."""

__all__ = [
    "Everyone",
    "FixedSize",
    "Poisson",
    "RandomAllocation",
    "Shuffled",
    "TruncatedPoisson",
    "WithReplacement",
]
