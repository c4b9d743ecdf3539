"""Sampling of records if the unit is a client: how often the client's records are drawn (T13)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..errors import UnsupportedCombination, refuse
from ..loss import Curve, Gdp, Mix, Side
from ..relations import Observer
from ..rounding import rounded_up
from . import pairs
from .binomial import Law, hypergeometric_law, law
from .everyone import Everyone
from .fixed_size import FixedSize
from .poisson import Poisson
from .replacement import (
    WithReplacement,
    against_none,
    by_way_of_none,
    multiplier_of,
    replaced_in_slots,
    seen,
    zeroed_in_slots,
)
from .scheme import VISIBLE, Cell, Lossy, Pair, Rows, Scheme, TableScheme, priced_as

MOST_HELD = 10**9
"""Largest number of records of a client."""

_RARE = (2e-30, 1e-22, 1e-17, 1e-13)
"""Largest masses of the labels for rare numbers. If a label is negligible, it is left out and a
shorter mixture remains."""

Counts = Callable[[Side], Law]


def holding(scheme: Scheme, held: int) -> TableScheme:
    """Return the scheme for a client that holds up to ``held`` of the units that are drawn.

    Args:
        scheme: the scheme that draws records.
        held: number of records, at least 2.

    Raises:
        ParameterError: ``held`` exceeds the number of records.
        UnsupportedCombination: no theorem gives the law of how many of the client's records are
            drawn together.
    """
    population = getattr(scheme, "population", None)
    if population is not None and held > population:
        refuse("held", held, f"be at most the scheme's population = {population}")
    kinds = (Poisson, Everyone, FixedSize, WithReplacement)
    # A subclass that draws differently has no theorem here.
    match scheme if any(priced_as(scheme, kind) for kind in kinds) else None:
        case Poisson(probability=q):
            return IndependentRecords(lambda side: law(held, q, side))
        case Everyone():
            return IndependentRecords(lambda side: ((1.0, held),))
        case FixedSize(size=size, population=n):
            return RecordsInSlots(
                lambda side: hypergeometric_law(size, held, n, side), size <= n - held
            )
        case WithReplacement() as drawn:
            return _drawn_apart(drawn, held)
    raise UnsupportedCombination(
        f"no theorem covers a client of held={held} records under {type(scheme).__name__}; draw "
        "the records with Poisson, FixedSize, WithReplacement or Everyone, or account for a record "
        "and use group privacy: (eps, delta) becomes (k eps, delta (e^(k eps) - 1)/(e^eps - 1))"
    )


def _drawn_apart(scheme: WithReplacement, held: int) -> WithReplacement:
    """Return independent draws that each take one of ``held`` units."""
    if scheme.population is not None:
        return WithReplacement(scheme.draws, probability=held / scheme.population)
    chance = held * scheme.chance
    if chance > 1.0:
        refuse("held", held, f"be at most 1 over the probability of a draw, {scheme.chance:g}")
    return WithReplacement(scheme.draws, probability=chance)


def _hidden(z: float, moves: float, back: float, law: Law) -> Curve:
    """Return the mixture over the number of records against none, or against its mirror image."""
    return by_way_of_none(z, moves, back, law) if back else against_none(z, moves, law)


def _pair(
    inner: Lossy, scheme: IndependentRecords | RecordsInSlots, moves: float, back: float
) -> Pair:
    """Return the mixture, with rare large numbers of records as labels."""
    z, (common, rare) = multiplier_of(inner), _split(scheme.law(Side.UP))
    up = _hidden(z, moves, back, common)
    if rare:
        labels = [(w, Gdp((moves + back) * s / z)) for w, s in rare]
        up = Mix(((1.0 - math.fsum(w for w, _ in rare), up), *labels))
    return Pair(up, _hidden(z, moves, back, scheme.law(Side.DOWN)))


def _split(found: Law) -> tuple[Law, Law]:
    """Return a law and separate rare numbers, whose mass is also added to the law's largest number.

    Let t be the mass of the rare numbers. Draw from the rare numbers with probability t, else from
    the law. The result lies above the given law: (1 - t) (W + t) + t >= W + t for every tail W of
    the law.
    """
    end, rare = len(found), []
    for most in _RARE:
        start, mass = end, 0.0
        while start > 1 and mass + found[start - 1][0] <= most:
            start -= 1
            mass += found[start][0]
        if start < end:
            rare.append((rounded_up(mass), found[end - 1][1]))
            end = start
    top, number = found[end - 1]
    moved = math.fsum(w for w, _ in rare)
    return (*found[: end - 1], (top + moved, number)), tuple(rare)


def _apart_added(inner: Lossy, scheme: IndependentRecords, observer: Observer) -> Pair:
    return _pair(inner, scheme, 1.0, 0.0)


def _exchanged(inner: Lossy, scheme: IndependentRecords, observer: Observer) -> Pair:
    return _pair(inner, scheme, 1.0, 1.0)


_SEEN: Rows = {
    (pairs.SERVER, pairs.ZERO): Cell(
        "Mix(P(s): G(s/z))", VISIBLE, pairs.SAME, pairs.APART, seen(1.0)
    ),
    (pairs.SERVER, pairs.SWAP): Cell(
        "Mix(P(s): G(2s/z))", VISIBLE, pairs.SAME, pairs.EXCHANGED, seen(2.0)
    ),
}
_MOVES = "sum_s P(s) N(s) against N(0), std z"

_APART: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell(_MOVES, "T13", pairs.SAME, pairs.APART, _apart_added),
    (pairs.AGGREGATE, pairs.ZERO): Cell(_MOVES, "T13", pairs.SAME, pairs.APART, _apart_added),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "sum_s P(s) N(s) against sum_s P(s) N(-s), std z",
        "T13",
        pairs.SAME,
        pairs.EXCHANGED,
        _exchanged,
    ),
    **_SEEN,
}


@dataclass(frozen=True)
class IndependentRecords(TableScheme):
    """Records drawn independently of each other; ``law`` counts the drawn records of the client."""

    law: Counts

    name: ClassVar[str] = "records of a client, drawn independently"
    assumption: ClassVar[str] = "every record is drawn independently, with the stated probability"
    rows: ClassVar[Rows] = _APART


def _slots_added(inner: Lossy, scheme: RecordsInSlots, observer: Observer) -> Pair:
    if not scheme.fills:
        raise UnsupportedCombination(
            "without the client's records, a cohort cannot be filled (size above population - "
            "held), so FixedSize has no add_remove here; account for zero_out or replace_one, "
            "or use smaller cohorts"
        )
    return _pair(inner, scheme, 2.0, 0.0)


_IN_SLOTS: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell(
        "sum_s P(s) N(2s) against N(0), std z", "T13", pairs.SAME, pairs.OPPOSED, _slots_added
    ),
    (pairs.AGGREGATE, pairs.ZERO): Cell(
        "F(up, down), as with replacement",
        "T5, T13, T19",
        "sum_s P(s) N(2s) against sum_s P(s) N(s), in cells (long laws: N(s) against N(0))",
        pairs.GIVEN_WAY,
        zeroed_in_slots,
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "F(S, S), as with replacement",
        "T5, T13, T19",
        "the add_remove pair",
        pairs.EXCHANGED_OPPOSED,
        replaced_in_slots,
    ),
    **_SEEN,
}


@dataclass(frozen=True)
class RecordsInSlots(TableScheme):
    """A cohort of records; each drawn record of the client takes the slot of another record.

    Args:
        law: law of the number of drawn records of the client.
        fills: whether the records of all others fill a cohort.
    """

    law: Counts
    fills: bool

    name: ClassVar[str] = "records of a client, in a cohort of a fixed size"
    assumption: ClassVar[str] = FixedSize.assumption
    rows: ClassVar[Rows] = _IN_SLOTS
