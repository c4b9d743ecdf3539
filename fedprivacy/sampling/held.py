"""Who is drawn by records but protected as a client: how often its records are drawn (T13)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..errors import UnsupportedCombination, refuse
from ..loss import Curve, Fold, GaussianMix, Gdp, Mix, Side
from ..relations import Observer
from ..rounding import FEW
from . import pairs
from .binomial import Law, hypergeometric_law, law
from .everyone import Everyone
from .fixed_size import FixedSize
from .poisson import Poisson, exchanged
from .replacement import (
    FAR,
    WithReplacement,
    against_none,
    drawn_at_all,
    multiplier_of,
    replaced_in_slots,
    seen,
    zeroed_in_slots,
)
from .scheme import VISIBLE, Cell, Lossy, Pair, Rows, Scheme, TableScheme

MOST_HELD = 10**9
"""Most records of a client."""

_RARE = (2e-30, 1e-22, 1e-17, 1e-13)
"""Masses of labels: where they do not count they are left out, and a mixture of fewer is left."""

Counts = Callable[[Side], Law]


def holding(scheme: Scheme, held: int) -> TableScheme:
    """Return the scheme as a client meets it that holds up to ``held`` of the units it draws.

    Args:
        scheme: draws records.
        held: at least 2.

    Raises:
        ParameterError: more than there are records.
        UnsupportedCombination: no theorem says how often the client's records are drawn together.
    """
    population = getattr(scheme, "population", None)
    if population is not None and held > population:
        refuse("held", held, f"be at most the scheme's population = {population}")
    match scheme:
        case Poisson(probability=q):
            return RecordsApart(lambda side: law(held, q, side))
        case Everyone():
            return RecordsApart(lambda side: ((1.0, held),))
        case FixedSize(size=size, population=n):
            return RecordsInSlots(
                lambda side: hypergeometric_law(size, held, n, side), size <= n - held
            )
        case WithReplacement(draws=draws, population=n) if n is not None:
            return WithReplacement(draws, probability=held / n)
        case WithReplacement(draws=draws, probability=chance) if held * (chance or 1.0) <= 1.0:
            return WithReplacement(draws, probability=held * (chance or 1.0))
        case WithReplacement():
            refuse("held", held, f"be at most 1 over the chance of a draw, {scheme.chance:g}")
    raise UnsupportedCombination(
        f"no theorem covers a client of held={held} records under {type(scheme).__name__}; draw "
        "the records with Poisson, FixedSize, WithReplacement or Everyone, or account for a record "
        "and use group privacy: (eps, delta) becomes (k eps, delta (e^(k eps) - 1)/(e^eps - 1))"
    )


def _against_none(z: float, moves: float, scheme: RecordsApart | RecordsInSlots) -> Pair:
    """Return the mixture over the number of records against none; rare large ones are labels."""
    common, rare = _split(scheme.law(Side.UP))
    up = against_none(z, moves, common)
    if rare:
        labels = [(w, Gdp(moves * s / z)) for w, s in rare]
        up = Mix(((1.0 - math.fsum(w for w, _ in rare), up), *labels))
    return Pair(up, against_none(z, moves, scheme.law(Side.DOWN)))


def _split(found: Law) -> tuple[Law, Law]:
    """Return a law and rare numbers beside it, whose mass the law's largest number gets too.

    Drawn from the rare numbers with their mass t, else from the law, a number lies above the given
    law: (1 - t) (W + t) + t >= W + t for every tail W of the law.
    """
    end, rare = len(found), []
    for most in _RARE:
        start, mass = end, 0.0
        while start > 1 and mass + found[start - 1][0] <= most:
            start -= 1
            mass += found[start][0]
        if start < end:
            rare.append((mass * (1.0 + FEW), found[end - 1][1]))
            end = start
    top, number = found[end - 1]
    moved = math.fsum(w for w, _ in rare)
    return (*found[: end - 1], (top + moved, number)), tuple(rare)


def _apart_added(inner: Lossy, scheme: RecordsApart, observer: Observer) -> Pair:
    return _against_none(multiplier_of(inner), 1.0, scheme)


def _exchanged(inner: Lossy, scheme: RecordsApart, observer: Observer) -> Pair:
    """Every number of drawn records is a label; drawn at all or not is hidden."""
    z, (q, times) = multiplier_of(inner), drawn_at_all(scheme.law(Side.UP))
    far = any(s > FAR * z for _, s in times)

    def label(s: int) -> Curve:
        # by T1's proof, at positive losses; the fold below has no others
        return pairs.sampled(exchanged(z / (2 * s), 1.0), q) if s > FAR * z else exchanged(z / s, q)

    up = Mix(tuple((w, label(s)) for w, s in times))
    down = scheme.law(Side.DOWN)
    p, other = (tuple((w, sign * s) for w, s in down) for sign in (1.0, -1.0))
    return Pair(Fold(up, up) if far else up, GaussianMix(z, p, other))


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
        "Mix(P(s)/q: (1-q) N(0) + q N(s) against (1-q) N(0) + q N(-s), std z; s >= 1)",
        "T13",
        "sum_s P(s) N(s) against sum_s P(s) N(-s), std z",
        pairs.EXCHANGED,
        _exchanged,
    ),
    **_SEEN,
}


@dataclass(frozen=True)
class RecordsApart(TableScheme):
    """Records drawn independently of each other; ``law`` is of how many of the client's."""

    law: Counts

    name: ClassVar[str] = "records of a client, drawn apart"
    assumption: ClassVar[str] = "every record is drawn independently, with the stated probability"
    rows: ClassVar[Rows] = _APART


def _slots_added(inner: Lossy, scheme: RecordsInSlots, observer: Observer) -> Pair:
    if not scheme.fills:
        raise UnsupportedCombination(
            "without the client's records there are too few to fill a cohort (size above "
            "population - held), so FixedSize has no add_remove there; account for zero_out or "
            "replace_one, or make the cohorts smaller"
        )
    return _against_none(multiplier_of(inner), 2.0, scheme)


_IN_SLOTS: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell(
        "sum_s P(s) N(2s) against N(0), std z", "T13", pairs.SAME, pairs.OPPOSED, _slots_added
    ),
    (pairs.AGGREGATE, pairs.ZERO): Cell(
        "F(up, down), as with replacement",
        "T5, T13",
        "sum_s P(s) N(2s) against sum_s P(s) N(s), in cells (long laws: N(s) against N(0))",
        pairs.GIVEN_WAY,
        zeroed_in_slots,
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "F(S, S), as with replacement",
        "T5, T13",
        "the add_remove pair",
        pairs.EXCHANGED_OPPOSED,
        replaced_in_slots,
    ),
    **_SEEN,
}


@dataclass(frozen=True)
class RecordsInSlots(TableScheme):
    """A cohort of records; a record of the client's that is drawn takes another's slot.

    Args:
        law: of how many of the client's records are drawn.
        fills: whether the records of all others fill a cohort.
    """

    law: Counts
    fills: bool

    name: ClassVar[str] = "records of a client, in a cohort of a fixed size"
    assumption: ClassVar[str] = FixedSize.assumption
    rows: ClassVar[Rows] = _IN_SLOTS
