"""Cohorts of a fixed size, drawn without replacement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..errors import UnsupportedCombination, natural, refuse, validate_fields
from ..loss import Gdp, Sampled, Triangles, given_way
from ..registry import registered
from ..relations import Adjacency, Observer
from . import pairs
from .scheme import (
    FLOOR,
    Cell,
    Indices,
    Lossy,
    Pair,
    Rows,
    Scheme,
    TableScheme,
    UnlikelySizes,
    asked_of,
    beyond,
)


def _add_remove(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    # The cohort needs the whole population, so the neighbour with one unit less cannot fill it.
    if scheme.rate == 1.0:
        raise UnsupportedCombination(
            f"a cohort of the whole population ({scheme}) cannot be filled from a data set "
            "with one unit less, so FixedSize has no add_remove here. These are covered: "
            "zero_out, replace_one, a size below the population, and Everyone() if all present "
            "units take part"
        )
    return pairs.sampled_pair(inner.privacy_loss(pairs.SWAP, observer), scheme.rate)


def _zero_out(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    q = scheme.rate
    z = inner.traits.sum_multiplier
    # Every unit takes part, so there is no amplification.
    if q == 1.0:
        return pairs.unamplified_same(inner, pairs.ZERO, observer)
    # T9 needs a Gaussian sum. T1 needs zeroing to be a special case of replacing.
    if z is None and not inner.traits.zeroing_replaces:
        return pairs.unamplified(inner, scheme, observer)
    if z is None:
        # The attained pair is the pair of zeroing; the curve is the pair of replacing.
        attained = pairs.sampled_pair(inner.privacy_loss(pairs.ZERO, observer), q).witness
        return Pair(pairs.folded(inner, scheme, observer).curve, attained)
    # If the unit is not drawn, another unit takes its place and may send the opposite.
    up = given_way(z, q)
    return Pair(Triangles(up, Sampled(Gdp(1.0 / z), q)), up)


_ROWS: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell(
        "S(G(2/z), q)", "T3, T9", pairs.SAME, pairs.OPPOSED, _add_remove
    ),
    (pairs.AGGREGATE, pairs.ZERO): Cell(
        "F(A, B): A = (1-q) N(-1) + q N(1) against (1-q) N(-1) + q N(0), std z; B = S(G(1/z), q)",
        "T9 (one Gaussian sum; else T1: F(S, S), if zeroing is a replacement; else T4)",
        "A (F(S, S): the zero-out pair)",
        pairs.GIVEN_WAY,
        _zero_out,
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "F(S, S), S = S(G(2/z), q)", "T1", "S", pairs.EXCHANGED_OPPOSED, pairs.fixed_size_replace
    ),
    **pairs.server_rows(),
}


@registered
@dataclass(frozen=True)
class FixedSize(TableScheme):
    """A fixed number of units is drawn uniformly without replacement, independently in every round.

    Args:
        size: cohort size, from 1 to ``population``.
        population: number of units, or a public lower bound on the number of units in every data
            set. The exact number is not public under ``add_remove``.
    """

    size: int
    population: int

    name: ClassVar[str] = "FixedSize"
    assumption: ClassVar[str] = "participants are drawn uniformly without replacement every round"
    rows: ClassVar[Rows] = _ROWS

    def __post_init__(self) -> None:
        validate_fields(self, natural, "size", "population")
        # Without replacement no unit can be drawn twice.
        if self.size > self.population:
            refuse("size", self.size, f"be at most population = {self.population}")

    @property
    def rate(self) -> float:
        """Cohort size over population."""
        return self.size / self.population

    @property
    def max_cohort(self) -> int:
        """The cohort size."""
        return self.size

    @property
    def min_cohort(self) -> int:
        """The cohort size."""
        return self.size

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return size and population; under add_remove the population is a floor."""
        name = FLOOR if adjacency is Adjacency.ADD_REMOVE else "population"
        return {"size": self.size, name: self.population}

    def grown(self, population: int) -> FixedSize:
        """Return the scheme with the same cohort size and more units; see ``scheme.among``."""
        return replace(self, population=population)

    def among_free(self, free: int) -> FixedSize:
        """Return the scheme with the same cohort size, drawn from the available units.

        Raises:
            ParameterError: fewer than ``size`` units are available.
        """
        if free < self.size:
            rule = f"be at most {free}, the number of clients that may take part now"
            refuse("cohort", self.size, rule, "draw fewer clients, or allow a smaller separation")
        return replace(self, population=free)

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
        """Return a fault for each size other than ``size``; see ``TableScheme.unlikely``."""
        return beyond(sizes, lambda size: size == self.size, str(self.size))

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted.

        Raises:
            ParameterError: the population is not ``self.population``; see ``among`` for more units.
        """
        units, source = asked_of(population, generator, self.population)
        return np.sort(source.choice(units, size=self.size, replace=False))

    def draw_rows(self, rows: int, population: int, generator: np.random.Generator) -> Indices:
        """Return independent cohorts, shape (rows, size), not sorted; see ``draw``."""
        units, source = asked_of(population, generator, self.population)
        # One permutation for each row gives all independent cohorts in one call.
        order = np.tile(np.arange(units), (rows, 1))
        return source.permuted(order, axis=1)[:, : self.size]
