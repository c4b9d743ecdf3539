"""No sampling: every unit takes part in every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..registry import registered
from ..relations import Adjacency
from .pairs import ADD, AGGREGATE, APART, EXCHANGED, SAME, SERVER, SWAP, ZERO, visible
from .scheme import Cell, Indices, Rows, TableScheme, UnlikelySizes, asked_of

_GAUSS = "Gaussian mechanism; no amplification when everyone takes part"


def _cell(adjacency: Adjacency, datasets: str, pair: str) -> Cell:
    return Cell(pair, _GAUSS, SAME, datasets, visible(adjacency))


_ROWS: Rows = {
    (AGGREGATE, ADD): _cell(ADD, APART, "G(1/z)"),
    (AGGREGATE, ZERO): _cell(ZERO, APART, "G(1/z)"),
    (AGGREGATE, SWAP): _cell(SWAP, EXCHANGED, "G(2/z)"),
    (SERVER, ZERO): _cell(ZERO, APART, "G(1/z)"),
    (SERVER, SWAP): _cell(SWAP, EXCHANGED, "G(2/z)"),
}


@registered
@dataclass(frozen=True)
class Everyone(TableScheme):
    """Every unit takes part in every round."""

    name: ClassVar[str] = "Everyone"
    assumption: ClassVar[str] = "every unit takes part in every round"
    rows: ClassVar[Rows] = _ROWS

    independent_draws = True

    rate = 1.0

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
        """Return a fault if the sizes differ; see ``TableScheme.unlikely``."""
        # The number of units is unknown here, but it must be the same in every round.
        if len(sizes) < 2:
            return []
        reason = (
            f"{min(sizes)} to {max(sizes)} participants, although all units take part in every "
            "round"
        )
        return [UnlikelySizes(reason, tuple(sizes))]

    def among_free(self, free: int) -> Everyone:
        """Return the scheme itself: available units are drawn as before."""
        del free
        return self

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return all indices."""
        return np.arange(asked_of(population, generator)[0])
