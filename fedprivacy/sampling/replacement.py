"""Sampling with replacement: one unit may be drawn several times in a round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from ..errors import UnsupportedCombination, integer, natural, probability, refuse, validate_fields
from ..loss import (
    IDENTITY,
    Curve,
    Fold,
    GaussianMix,
    Gdp,
    InnerDraws,
    LeastOf,
    Mix,
    Opposed,
    Side,
    compose,
)
from ..privacy_loss import PrivacyLoss
from ..registry import plain_fields, registered
from ..relations import Adjacency, Observer
from ..rounding import FEW, THOUSANDS, rounded_down, rounded_up
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
    Pair,
    Rows,
    TableScheme,
    UnlikelySizes,
    asked_of,
    at_least_once,
    beyond,
)

FAR = 30.0
"""Beyond this distance in stds, T5's sampled Gaussian pair replaces the pair of a label. It
dominates too, and its additional loss is negligible."""


class RepeatedDraws(Protocol):
    """A scheme that may draw a unit several times in a round."""

    def law(self, side: Side) -> Law:
        """Return (probability, number of times the unit is drawn), rounded to a side."""


def multiplier_of(inner: Lossy) -> float:
    """Return the noise multiplier of one Gaussian sum; refuse every other mechanism."""
    if inner.traits.sum_multiplier is None:
        raise UnsupportedCombination(
            "WithReplacement has theorems only for one Gaussian sum of clipped contributions, "
            f"got {inner}; use Poisson or FixedSize for this mechanism"
        )
    return inner.traits.sum_multiplier


def against_none(z: float, moves: float, law: Law) -> Curve:
    """Return the mixture over how often the unit moves the sum, against the sum without it."""
    if len(law) == 1:
        return Gdp(moves * law[0][1] / z)
    return GaussianMix(z, tuple((w, moves * s) for w, s in law), ((1.0, 0.0),))


_LONG = 40
"""Largest number of atoms in a law, about three draws of a unit per round, for a mixture against a
mixture. For longer laws one point of that pair takes seconds. The known pair is then used, which
may cost more but never too little."""


def closer(known: Curve, z: float, back: float, law: Law) -> Curve:
    """Return the smallest of the known pair, T5's by way of the round without the unit, and T19's.

    Only short laws have the second, and only common noise and laws the third.
    """
    every = (known,) if len(law) > _LONG else (known, by_way_of_none(z, 2.0, back, law))
    inside = InnerDraws(z, law, back == 2.0) if InnerDraws.serves(z, law) else None
    return LeastOf(every, inside) if len(every) > 1 or inside else known


def by_way_of_none(z: float, moves: float, back: float, law: Law) -> Curve:
    """Return the mixture over how often the unit moves the sum, against its mirror image (T5)."""
    if len(law) == 1:
        return Gdp((moves + back) * law[0][1] / z)
    there, here = (tuple((w, side * s) for w, s in law) for side in (moves, -back))
    return GaussianMix(z, there, here)


def _add_remove(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
    # All draws select this unit, so no round is possible without it.
    if scheme.chance == 1.0:
        raise UnsupportedCombination(
            f"WithReplacement can draw only this unit, got {scheme} (population or probability "
            "= 1), so there is no round without it; account for zero_out"
        )
    z = multiplier_of(inner)
    # Each draw of the unit takes the place of another unit, which may send the opposite.
    up, down = (against_none(z, 2.0, scheme.law(side)) for side in (Side.UP, Side.DOWN))
    return Pair(up, down)


def seen(moves: float) -> Builder:
    """Return the builder for an observer who sees how often the unit is drawn (T4)."""

    def build(inner: Lossy, scheme: RepeatedDraws, observer: Observer) -> Pair:
        z = multiplier_of(inner)
        up, down = (
            Mix(tuple((w, Gdp(moves * s / z)) for w, s in scheme.law(side)))
            for side in (Side.UP, Side.DOWN)
        )
        return Pair(up, down)

    return build


def drawn_at_all(law: Law) -> tuple[float, list[tuple[float, int]]]:
    """Return the probability that the unit is drawn at all, and the law of its draws given that."""
    # Not being drawn has probability 1 - q and is not a label.
    drawn = [(w, s) for w, s in law if s]
    q = 1.0 if len(drawn) == len(law) else min(math.fsum(w for w, _ in drawn), 1.0)
    return q, [(w / q, s) for w, s in drawn]


def zeroed_in_slots(inner: Lossy, scheme: RepeatedDraws, observer: Observer) -> Pair:
    """F(up, down), or a smaller one of T5's second pair and T19's."""
    z, (q, times) = multiplier_of(inner), drawn_at_all(scheme.law(Side.UP))

    def leaving(s: int) -> Curve:
        if q == 1.0:
            return Gdp(s / z)
        # At this distance the three-point mixture gains no relevant amount.
        if s > FAR * z:
            return pairs.sampled(Gdp(2.0 * s / z), q)
        stays = (1.0 - q, float(-s))
        return GaussianMix(z, (stays, (q, float(s))), (stays, (q, 0.0)))

    up = Mix(tuple((w, leaving(s)) for w, s in times))
    down = pairs.sampled(Mix(tuple((w, Gdp(s / z)) for w, s in times)), q)
    law = scheme.law(Side.DOWN)
    shown = Opposed(z, law) if Opposed.serves(z, law) else against_none(z, 1.0, law)
    # If the unit is always drawn equally often, there is no mixture and the one label is exact.
    if q == 1.0 and len(times) == 1:
        return Pair(leaving(times[0][1]), shown)
    return Pair(closer(Fold(up, down), z, 1.0, scheme.law(Side.UP)), shown)


def replaced_in_slots(inner: Lossy, scheme: RepeatedDraws, observer: Observer) -> Pair:
    """F(S, S), or a smaller one of T5's second pair and T19's.

    If no other unit is drawn, F(S, S) is S without the fold.
    """
    z, (q, times) = multiplier_of(inner), drawn_at_all(scheme.law(Side.UP))
    once = pairs.sampled(Mix(tuple((w, Gdp(2.0 * s / z)) for w, s in times)), q)
    # Without other units none can be confused with the unit, and both halves are one pair.
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
        "less and a law short, sum_s Bin(r,p)(s) N(2s) against sum_s Bin(r,p)(s) N(-s); or draws "
        "inside draws",
        "T5, T9, T19",
        "sum_s Bin(r,p)(s) N(2s) against sum_s Bin(r,p)(s) N(s), in cells (long laws: N(s) against "
        "N(0))",
        pairs.GIVEN_WAY,
        zeroed_in_slots,
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "F(S, S), S = S(Mix(Bin(r,p)(s)/q: G(2s/z), s >= 1), q), q = 1 - (1-p)^r; or, where that "
        "is less and a law short, sum_s Bin(r,p)(s) N(2s) against sum_s Bin(r,p)(s) N(-2s); or "
        "draws inside draws",
        "T5, T19",
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
    """``draws`` units are drawn one after the other, each time from all units; repeats count.

    A unit drawn s times contributes its clipped update s times.

    Args:
        draws: number of draws in a round, at least 1.
        population: number of units, drawn uniformly, or a public lower bound on the number of units
            in every data set; see ``FixedSize``.
        probability: the unit's probability in one draw, in (0, 1]. Exactly one of ``population``
            and ``probability`` is given.
    """

    draws: int
    population: int | None = None
    probability: float | None = None

    repeats: ClassVar[bool] = True
    name: ClassVar[str] = "WithReplacement"
    assumption: ClassVar[str] = "participants are drawn independently with replacement every round"
    rows: ClassVar[Rows] = _ROWS

    def __post_init__(self) -> None:
        validate_fields(self, natural, "draws")
        # Both values could contradict each other, and without either the law is unknown.
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
    def max_cohort(self) -> int:
        """The number of draws: all may be different units."""
        return self.draws

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return draws and population, or probability; under add_remove population is a floor."""
        found = plain_fields(self)
        if adjacency is Adjacency.ADD_REMOVE and "population" in found:
            found[FLOOR] = found.pop("population")
        return found

    def grown(self, population: int) -> WithReplacement:
        """Return the scheme with the same draws and more units; see ``scheme.among``."""
        return replace(self, population=population)

    def law(self, side: Side = Side.UP) -> Law:
        """Return (probability, number of times a given unit is drawn), see ``binomial.law``.

        Every row of the table grows with the law of that number in the usual order (T5). UP serves
        the dominating pair, DOWN an attained one.
        """
        return binomial_law(self.draws, self.chance, side)

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """Return the labelled mixture over the number of runs of the client."""
        parts = ((w, compose([(inner, s)]) if s else IDENTITY) for w, s in self.law(side))
        return Mix(tuple(parts))

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """Return the loss of a client's runs; ``tv_error`` grows by the mean number of runs."""
        runs = rounded_up(max(1.0, self.draws * self.chance))
        return replace(super().group(inner), tv_error=inner.tv_error * runs)

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
        """Return sizes above ``draws``, and too few different units; see ``TableScheme.unlikely``.

        All draws lie in one of C(n, s) sets of s units with probability at most C(n, s) (s/n)^r.
        """
        found = beyond(sizes, lambda size: size <= self.max_cohort, f"at most {self.max_cohort}")
        # A probability without a population does not bound the number of different units.
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
        """Return an upper bound on the log-probability that a round has at most ``size`` units."""
        population = self.population or size
        if size >= min(population, self.draws):
            # The number of different units is at most the number of draws and of units.
            return 0.0
        terms = [math.lgamma(n + 1.0) for n in (population, size, population - size)]
        error = THOUSANDS * math.fsum(map(abs, terms))
        # The logarithm is negative, so this raises it.
        share = -rounded_down(-self.draws * math.log(size / population), THOUSANDS)
        return terms[0] - terms[1] - terms[2] + share + FEW * self.draws + error

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted, one entry for each draw.

        Raises:
            ParameterError: the population is not ``self.population`` (see ``among`` for more
                units), or the scheme was given a probability and no population.
        """
        units, source = asked_of(population, generator)
        if units != self.population:
            refuse("population", population, f"equal the scheme's population = {self.population}")
        return np.sort(source.integers(units, size=self.draws))
