"""Sampling with replacement: one unit may be drawn several times in a round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from ..errors import UnsupportedCombination, integer, probability, refuse
from ..loss import IDENTITY, Curve, Fold, GaussianMix, Gdp, Mix, Side, compose
from ..relations import Observer
from .pairs import (
    ADD,
    AGGREGATE,
    APART,
    EXCHANGED,
    EXCHANGED_OPPOSED,
    OPPOSED,
    SAME,
    SERVER,
    SWAP,
    ZERO,
    sampled,
)
from .scheme import VISIBLE, Builder, Cell, Indices, Lossy, Pair, Rows, TableScheme

_RARE = 1e-30
"""Draw counts rarer than this together are taken for the largest possible one."""


def _many_draws(inner: Lossy, scheme: WithReplacement) -> tuple[float, list[tuple[float, int]]]:
    """Return the multiplier of a Gaussian sum and the law of how often one unit is drawn."""
    if inner.sum_multiplier is None:
        raise UnsupportedCombination(
            "WithReplacement has theorems for one Gaussian sum of clipped contributions only; "
            "use Poisson or FixedSize for this mechanism"
        )
    return inner.sum_multiplier, scheme.law()


def _add_remove(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
    z, law = _many_draws(inner, scheme)
    if scheme.chance == 1.0:
        raise UnsupportedCombination(
            "without the only unit there is nobody to draw, so WithReplacement has no add_remove "
            "for a population of 1; these work: zero_out, replace_one"
        )
    curve = GaussianMix(z, tuple((w, 2.0 * s) for w, s in law), ((1.0, 0.0),))
    return Pair(curve, curve)


def _visible(moves: float) -> Builder:
    def build(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
        z, law = _many_draws(inner, scheme)
        curve = Mix(tuple((w, Gdp(moves * s / z)) for w, s in law))
        return Pair(curve, curve)

    return build


def _folded(moves: float) -> Builder:
    """F(S, S) of the labelled number of draws (T5); attained with shifts of ``moves``."""

    def build(inner: Lossy, scheme: WithReplacement, observer: Observer) -> Pair:
        z, law = _many_draws(inner, scheme)
        drawn = Mix(tuple((w / scheme.rate, Gdp(2.0 * s / z)) for w, s in law if s))
        once = sampled(drawn, scheme.rate)
        witness = GaussianMix(z, tuple((w, moves * s) for w, s in law), ((1.0, 0.0),))
        return Pair(Fold(once, once), witness)

    return build


_LABELLED = "F(S, S), S = S(Mix(Bin(r,p)(s)/q: G(2s/z), s >= 1), q), q = 1 - (1-p)^r"
_ROWS: Rows = {
    (AGGREGATE, ADD): Cell(
        "sum_s Bin(r,p)(s) N(2s) against N(0), std z", "T9", SAME, OPPOSED, _add_remove
    ),
    (AGGREGATE, ZERO): Cell(
        _LABELLED, "T5", "sum_s Bin(r,p)(s) N(s) against N(0), std z", APART, _folded(1.0)
    ),
    (AGGREGATE, SWAP): Cell(
        _LABELLED, "T5", "the add_remove pair", EXCHANGED_OPPOSED, _folded(2.0)
    ),
    (SERVER, ZERO): Cell("Mix(Bin(r,p)(s): G(s/z))", VISIBLE, SAME, APART, _visible(1.0)),
    (SERVER, SWAP): Cell("Mix(Bin(r,p)(s): G(2s/z))", VISIBLE, SAME, EXCHANGED, _visible(2.0)),
}


@dataclass(frozen=True)
class WithReplacement(TableScheme):
    """``draws`` units are drawn one after the other, each time from everybody; repeats count.

    A unit drawn s times contributes its clipped update s times.

    Args:
        draws: how many draws a round has, at least 1.
        population: how many units there are, drawn uniformly; or
        probability: the unit's probability in one draw, in (0, 1]. Exactly one of the two.
    """

    draws: int
    population: int | None = None
    probability: float | None = None

    name: ClassVar[str] = "WithReplacement"
    assumption: ClassVar[str] = "participants are drawn independently with replacement every round"
    rows: ClassVar[Rows] = _ROWS

    def __post_init__(self) -> None:
        object.__setattr__(self, "draws", integer(1, draws=self.draws))
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
        if self.chance == 1.0:
            return 1.0
        return -math.expm1(self.draws * math.log1p(-self.chance))

    def law(self) -> list[tuple[float, int]]:
        """Return (probability, number of times a given unit is drawn), sums to 1.

        Numbers rarer than 1e-30 together are given to the largest, ``draws``, which only adds
        loss: likelihood ratios grow with every mean (T9).
        """
        times = np.arange(self.draws + 1)
        log_choose = gammaln(self.draws + 1) - gammaln(times + 1) - gammaln(self.draws - times + 1)
        chance = self.chance
        if chance == 1.0:
            return [(1.0, self.draws)]
        logs = log_choose + times * math.log(chance) + (self.draws - times) * math.log1p(-chance)
        weights = np.exp(logs)
        tails = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
        last = int(np.argmax(tails <= _RARE))
        kept = [
            (float(w), int(s)) for w, s in zip(weights[: last + 1], times, strict=False) if w > 0
        ]
        if last < self.draws:
            kept.append((_RARE, self.draws))
        total = math.fsum(w for w, _ in kept[1:])
        return [(1.0 - total, kept[0][1]), *kept[1:]] if kept[0][0] > 0.5 else kept

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """Return the labelled mixture over how often the client runs."""
        del side
        parts = ((w, compose([(inner, s)]) if s else IDENTITY) for w, s in self.law())
        return Mix(tuple(parts))

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted, one entry for each draw.

        Raises:
            ParameterError: there are not ``self.population`` units, or only a probability is known.
        """
        if population != self.population:
            refuse("population", population, f"equal the scheme's population = {self.population}")
        return np.sort(generator.integers(population, size=self.draws))
