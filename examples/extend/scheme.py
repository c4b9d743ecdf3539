"""A sampling scheme of your own: public shifts.

A public rule assigns every unit to even or odd rounds. Participation is not secret, so there is no
amplification. One mechanism with this scheme is two rounds.

A demonstration: rounds are priced, and no data are used.

Prints::

    20 rounds cost 3.34...
    Shifts has no theorem for adjacency=add_remove, ...
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import fedprivacy as fp
from fedprivacy.registry import registered
from fedprivacy.sampling import Cell, TableScheme
from fedprivacy.sampling.pairs import (
    AGGREGATE,
    EXCHANGED,
    SAME,
    SERVER,
    SWAP,
    ZERO,
    unamplified_same,
)

PARALLEL = "parallel composition over a public split"


def cell(adjacency, datasets, pair):
    return Cell(
        pair,
        PARALLEL,
        SAME,
        datasets,
        lambda inner, _, seen: unamplified_same(inner, adjacency, seen),
    )


@registered
@dataclass(frozen=True)
class Shifts(TableScheme):
    """Units with even numbers in one round, those with odd numbers in the next."""

    name: ClassVar[str] = "Shifts"
    assumption: ClassVar[str] = "a unit's shift is public and does not depend on data"
    rows: ClassVar[dict] = {
        (seen, adjacency): cell(adjacency, EXCHANGED, pair)
        for seen in (AGGREGATE, SERVER)
        for adjacency, pair in ((ZERO, "G(1/z)"), (SWAP, "G(2/z)"))
    }

    @property
    def rate(self):
        return 1.0

    def draw(self, population, generator):
        return np.arange(population)


two_rounds = fp.Gaussian(noise_multiplier=4.0).sampled(Shifts())
print("20 rounds cost", fp.epsilon(two_rounds * 10, delta=1e-5, adjacency="zero_out").upper)
try:
    fp.epsilon(two_rounds, delta=1e-5, adjacency="add_remove")
except fp.errors.UnsupportedCombination as refusal:
    print(refusal)
