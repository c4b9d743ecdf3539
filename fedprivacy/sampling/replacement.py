"""Sampling with replacement: one unit may be drawn several times in a round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from ..errors import UnsupportedCombination, integer, natural, probability, refuse, settle
from ..loss import IDENTITY, Curve, Fold, GaussianMix, Gdp, LeastOf, Mix, Opposed, Side, compose
from ..privacy_loss import PrivacyLoss
from ..registry import plain_fields, registered
from ..relations import Adjacency, Observer
from ..rounding import FEW, THOUSANDS
from . import pairs
from .binomial import Law
from .binomial import law as binomial_law
from .scheme import (
    FLOOR,
    VISIBLE,
    Builder,
    Cell,
    Indices,
    Lossy,
    Odd,
    Pair,
    Rows,
    TableScheme,
    asked_of,
    at_least_once,
    beyond,
)

FAR = 30.0
"""So many stds apart T5's pair of a label, which dominates too, loses no more that counts."""


class Counted(Protocol):
    """A scheme that draws a unit several times in a round."""

    def law(self, side: Side) -> Law:
        """Return (probability, number of times the unit is drawn), rounded to a side."""


def multiplier_of(inner: Lossy) -> float:
    """Return the noise multiplier of one Gaussian sum; refuse everything else."""
    if inner.sum_multiplier is None:
        raise UnsupportedCombination(
            "WithReplacement has theorems for one Gaussian sum of clipped contributions only, got "
            f"{inner}; use Poisson or FixedSize for this mechanism"
        )
    return inner.sum_multiplier


def against_none(z: float, moves: float, law: Law) -> Curve:
    """Return the mixture over how often the unit moves the sum, against the sum without it."""
    if len(law) == 1:
        return Gdp(moves * law[0][1] / z)
    return GaussianMix(z, tuple((w, moves * s) for w, s in law), ((1.0, 0.0),))


_LONG = 40
"""Numbers in a law, about three draws of a unit a round, beyond which a point of a mixture of them
against a mixture takes seconds. The pair that is known then may cost more, and never too little."""


def closer(known: Curve, z: float, back: float, law: Law) -> Curve:
    """Return the known pair, or that by way of none where it is less; long laws have no other."""
    if len(law) > _LONG:
        return known
    return LeastOf((known, by_way_of_none(z, 2.0, back, law)))


def by_way_of_none(z: float, moves: float, back: float, law: Law) -> Curve:
    """Return the mixture over how often the unit moves the sum, against its mirror image (T5)."""
    if len(law) == 1:
        return Gdp((moves + back) * law[0][1] / z)
    there, here = (tuple((w, side * s) for w, s in law) for side in (moves, -back))
    return GaussianMix(z, there, here)


def _add_remove(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
    # All draws hit this unit: without it nothing could be drawn.
    if scheme.chance == 1.0:
        raise UnsupportedCombination(
            f"WithReplacement has nobody to draw but this unit, got {scheme} (population or "
            "probability = 1), so without it there is no round; account for zero_out"
        )
    z = multiplier_of(inner)
    # Every draw of the unit takes the place of another, who may send the opposite.
    up, down = (against_none(z, 2.0, scheme.law(side)) for side in (Side.UP, Side.DOWN))
    return Pair(up, down)


def seen(moves: float) -> Builder:
    """Return the builder for somebody who sees how often the unit is drawn (T4)."""

    def build(inner: Lossy, scheme: Counted, observer: Observer) -> Pair:
        z = multiplier_of(inner)
        up, down = (
            Mix(tuple((w, Gdp(moves * s / z)) for w, s in scheme.law(side)))
            for side in (Side.UP, Side.DOWN)
        )
        return Pair(up, down)

    return build


def drawn_at_all(law: Law) -> tuple[float, list[tuple[float, int]]]:
    """Return the chance that the unit is drawn at all, and how often it is if so."""
    # Not to be drawn at all is 1 - q, and no label of its own.
    drawn = [(w, s) for w, s in law if s]
    q = 1.0 if len(drawn) == len(law) else min(math.fsum(w for w, _ in drawn), 1.0)
    return q, [(w / q, s) for w, s in drawn]


def zeroed_in_slots(inner: Lossy, scheme: Counted, observer: Observer) -> Pair:
    """F(up, down), or by way of none (T5)."""
    z, (q, times) = multiplier_of(inner), drawn_at_all(scheme.law(Side.UP))

    def leaving(s: int) -> Curve:
        if q == 1.0:
            return Gdp(s / z)
        # So far apart the three-point mixture gains nothing that counts.
        if s > FAR * z:
            return pairs.sampled(Gdp(2.0 * s / z), q)
        stays = (1.0 - q, float(-s))
        return GaussianMix(z, (stays, (q, float(s))), (stays, (q, 0.0)))

    up = Mix(tuple((w, leaving(s)) for w, s in times))
    down = pairs.sampled(Mix(tuple((w, Gdp(s / z)) for w, s in times)), q)
    law = scheme.law(Side.DOWN)
    shown = Opposed(z, law) if Opposed.serves(z, law) else against_none(z, 1.0, law)
    # Drawn as often every time, the unit is in no mixture: one label, and nothing else, is exact.
    if q == 1.0 and len(times) == 1:
        return Pair(leaving(times[0][1]), shown)
    return Pair(closer(Fold(up, down), z, 1.0, scheme.law(Side.UP)), shown)


def replaced_in_slots(inner: Lossy, scheme: Counted, observer: Observer) -> Pair:
    """F(S, S), without the fold where nobody else is drawn, or by way of none (T5)."""
    z, (q, times) = multiplier_of(inner), drawn_at_all(scheme.law(Side.UP))
    once = pairs.sampled(Mix(tuple((w, Gdp(2.0 * s / z)) for w, s in times)), q)
    # Without others nobody is mistaken for the unit, and both halves are one pair.
    curve = once if q == 1.0 else Fold(once, once)
    dominating = closer(curve, z, 2.0, scheme.law(Side.UP))
    return Pair(dominating, against_none(z, 2.0, scheme.law(Side.DOWN)))


_ROWS: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell(
        "sum_s Bin(r,p)(s) N(2s) against N(0), std z", "T9", pairs.SAME, pairs.OPPOSED, _add_remove
    ),
    (pairs.AGGREGATE, pairs.ZERO): Cell(
        "F(up, down), q = 1 - (1-p)^r, s >= 1 of weight Bin(r,p)(s)/q: up = Mix of (1-q) N(-s) + "
        "q N(s) against (1-q) N(-s) + q N(0), std z; down = S(Mix of G(s/z), q); or, where that is "
        "less and a law short, sum_s Bin(r,p)(s) N(2s) against sum_s Bin(r,p)(s) N(-s)",
        "T5, T9",
        "sum_s Bin(r,p)(s) N(2s) against sum_s Bin(r,p)(s) N(s), in cells (long laws: N(s) against "
        "N(0))",
        pairs.GIVEN_WAY,
        zeroed_in_slots,
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "F(S, S), S = S(Mix(Bin(r,p)(s)/q: G(2s/z), s >= 1), q), q = 1 - (1-p)^r; or, where that "
        "is less and a law short, sum_s Bin(r,p)(s) N(2s) against sum_s Bin(r,p)(s) N(-2s)",
        "T5",
        "the add_remove pair",
        pairs.EXCHANGED_OPPOSED,
        replaced_in_slots,
    ),
    (pairs.SERVER, pairs.ZERO): Cell(
        "Mix(Bin(r,p)(s): G(s/z))", VISIBLE, pairs.SAME, pairs.APART, seen(1.0)
    ),
    (pairs.SERVER, pairs.SWAP): Cell(
        "Mix(Bin(r,p)(s): G(2s/z))", VISIBLE, pairs.SAME, pairs.EXCHANGED, seen(2.0)
    ),
}


@registered
@dataclass(frozen=True)
class WithReplacement(TableScheme):
    """``draws`` units are drawn one after the other, each time from everybody; repeats count.

    A unit drawn s times contributes its clipped update s times.

    Args:
        draws: how many draws a round has, at least 1.
        population: how many units there are, drawn uniformly, or a public number that no data set
            falls short of, see ``FixedSize``; or
        probability: the unit's probability in one draw, in (0, 1]. Exactly one of the two.
    """

    draws: int
    population: int | None = None
    probability: float | None = None

    repeats: ClassVar[bool] = True
    name: ClassVar[str] = "WithReplacement"
    assumption: ClassVar[str] = "participants are drawn independently with replacement every round"
    rows: ClassVar[Rows] = _ROWS

    def __post_init__(self) -> None:
        settle(self, natural, "draws")
        # Both might contradict each other; neither leaves the law unknown.
        if (self.population is None) == (self.probability is None):
            given = (self.population, self.probability)
            refuse("population, probability", given, "be given one without the other")
        if self.population is not None:
            object.__setattr__(self, "population", integer(1, population=self.population))
        else:
            object.__setattr__(self, "probability", probability(probability=self.probability))

    @property
    def chance(self) -> float:
        """Probability of a given unit in one draw."""
        return self.probability if self.probability is not None else 1.0 / (self.population or 1)

    @property
    def rate(self) -> float:
        """Probability that a given unit is drawn at least once."""
        return at_least_once(self.draws, self.chance)

    @property
    def most(self) -> int:
        """The number of draws: all may be different units."""
        return self.draws

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return draws and population, or probability; under add_remove population is a floor."""
        found = plain_fields(self)
        if adjacency is Adjacency.ADD_REMOVE and "population" in found:
            found[FLOOR] = found.pop("population")
        return found

    def grown(self, population: int) -> WithReplacement:
        """Return what draws as often from more units; see ``scheme.among``."""
        return replace(self, population=population)

    def law(self, side: Side = Side.UP) -> Law:
        """Return (probability, number of times a given unit is drawn), see ``binomial.law``.

        Every row of the table grows with that number's law in the usual order (T5): UP serves the
        dominating pair, DOWN an attained one.
        """
        return binomial_law(self.draws, self.chance, side)

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """Return the labelled mixture over how often the client runs."""
        parts = ((w, compose([(inner, s)]) if s else IDENTITY) for w, s in self.law(side))
        return Mix(tuple(parts))

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of a client's runs, off by as much as they are on average together."""
        runs = max(1.0, self.draws * self.chance) * (1.0 + FEW)
        return replace(super().group(inner), off=inner.off * runs)

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[Odd]:
        """Return sizes above ``draws``, and too few different units; see ``TableScheme.unlikely``.

        All draws lie in one of C(n, s) sets of s units with probability at most C(n, s) (s/n)^r.
        """
        found = beyond(sizes, lambda size: size <= self.most, f"at most {self.most}")
        # A probability alone says nothing of how many different units there are.
        if self.population is None:
            return found
        # A union bound over all rounds.
        least = math.log(chance / sum(sizes.values()))
        return found + beyond(
            sizes,
            lambda size: size >= 1 and self._log_within(size) >= least,
            f"{self.draws} times from {self.population}",
        )

    def _log_within(self, size: int) -> float:
        """Return an upper end of the log-probability that a round has at most ``size`` units."""
        population = self.population or size
        if size >= min(population, self.draws):
            # No round holds more different units than draws, or than there are.
            return 0.0
        terms = [math.lgamma(n + 1.0) for n in (population, size, population - size)]
        error = THOUSANDS * math.fsum(map(abs, terms))
        share = self.draws * math.log(size / population)
        return terms[0] - terms[1] - terms[2] + share * (1.0 - THOUSANDS) + FEW * self.draws + error

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted, one entry for each draw.

        Raises:
            ParameterError: there are not ``self.population`` units (see ``among`` for more), or
                only a probability is known.
        """
        units, source = asked_of(population, generator)
        if units != self.population:
            refuse("population", population, f"equal the scheme's population = {self.population}")
        return np.sort(source.integers(units, size=self.draws))
