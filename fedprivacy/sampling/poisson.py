"""Poisson sampling: every unit takes part independently of all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import integer, probability, validate_fields
from ..loss import Curve, GaussianMix, Gdp, LaplaceExchanged, LaplacePair
from ..registry import registered
from ..relations import Observer
from . import pairs
from .cohorts import excluded
from .scheme import (
    Cell,
    Indices,
    Lossy,
    Pair,
    Rows,
    Scheme,
    TableScheme,
    UnlikelySizes,
    asked_of,
    at_least_once,
)

AT_ONCE = 1 << 16
"""Number of units drawn at a time, so that memory does not grow with the population."""


SPACING = 2.0**-53
"""Spacing of the numbers that ``numpy.random.Generator.random`` draws: its multiples below 1."""


def taken(numbers: NDArray[np.float64], chance: ArrayLike) -> NDArray[np.bool_]:
    """Return which uniform numbers select a unit: a share of at most ``chance`` of all numbers.

    The number of multiples of ``SPACING`` below the chance is too large by one, unless the chance
    is itself a multiple. At a chance of 1e-17, units would be selected with eleven times the
    accounted probability.
    """
    return np.asarray(numbers <= np.asarray(chance) - SPACING)


def drawn_apart(population: int, probability: float, generator: np.random.Generator) -> Indices:
    """Return the drawn units, each decided by a separate random number; memory O(units drawn)."""
    found = []
    for start in range(0, population, AT_ONCE):
        numbers = generator.random(min(AT_ONCE, population - start))
        found.append(np.flatnonzero(taken(numbers, probability)) + start)
    return np.concatenate(found) if found else np.arange(0)


def _add_remove(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    return pairs.sampled_pair(inner.privacy_loss(pairs.ADD, observer), scheme.rate)


def _zero_out(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    if not inner.traits.zeroed_is_absent:
        return pairs.unamplified(inner, scheme, observer)
    return pairs.sampled_pair(inner.privacy_loss(pairs.ZERO, observer), scheme.rate)


def _replace(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    q = scheme.rate
    if q == 1.0:
        return pairs.unamplified_same(inner, pairs.SWAP, observer)
    if make := opposite(inner, observer):
        curve = make(q)
        return Pair(curve, curve)
    return Pair(
        pairs.folded(inner, scheme, observer).curve, pairs.sampled_zero_out(inner, q, observer)
    )


def opposite(inner: Lossy, observer: Observer) -> Callable[[float], Curve] | None:
    """Return a function from the rate to the pair of a unit that sends C u or -C u.

    T9 gives it for one Gaussian sum, and T1 for a Laplace sum. The result is None for other
    mechanisms: a curve does not show that both numbers are possible.
    """
    if inner.traits.sum_multiplier is not None:
        return partial(_gaussian, inner.traits.sum_multiplier)
    # For all other mechanisms, leaving a unit out must be a special case of replacing it.
    pairs.removable(inner)
    if not inner.traits.laplace_sum:
        return None
    alone = inner.privacy_loss(pairs.ZERO, observer).curve
    if isinstance(alone, LaplacePair) and LaplaceExchanged.serves(alone.shift):
        return partial(_laplace, alone)
    return None


def _laplace(alone: LaplacePair, q: float) -> Curve:
    # At probability 1 the unit always takes part: one pair, twice as far apart.
    if q == 1.0:
        return LaplacePair(2.0 * alone.shift, alone.rounded)
    return LaplaceExchanged(q, alone.shift, alone.shift)


def _gaussian(multiplier: float, q: float) -> Curve:
    if q == 1.0:
        return Gdp(2.0 / multiplier)
    stays = (1.0 - q, 0.0)
    return GaussianMix(multiplier, (stays, (q, 1.0)), (stays, (q, -1.0)))


_ROWS: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell("S(G(1/z), q)", "T2", pairs.SAME, pairs.APART, _add_remove),
    (pairs.AGGREGATE, pairs.ZERO): Cell(
        "S(G(1/z), q)",
        "T2 (if a zeroed unit equals an absent one; else T4: no amplification)",
        pairs.SAME,
        pairs.APART,
        _zero_out,
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        "(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), std z",
        "T9 (one Gaussian sum), T1 (Laplace noise likewise; else F(S, S), removal losing no more "
        "than replacement)",
        "the same pair (F(S, S): the zero-out pair)",
        pairs.EXCHANGED,
        _replace,
    ),
    **pairs.server_rows(),
}


@registered
@dataclass(frozen=True)
class Poisson(TableScheme):
    """Every unit takes part with the same probability, independently, in every round.

    Args:
        probability: in (0, 1].
    """

    probability: float

    name: ClassVar[str] = "Poisson"
    assumption: ClassVar[str] = "participants are drawn independently with the stated probability"
    rows: ClassVar[Rows] = _ROWS

    def __post_init__(self) -> None:
        validate_fields(self, probability, "probability")

    @classmethod
    def of_draws(cls, draws: int, chance: float) -> Poisson:
        """Return the scheme of a unit that takes part once if any of ``draws`` draws selects it.

        Args:
            draws: number of independent draws, at least 1.
            chance: probability in each draw, in (0, 1].
        """
        return cls(at_least_once(integer(1, draws=draws), probability(chance=chance)))

    independent_draws = True

    @property
    def rate(self) -> float:
        """The sampling probability."""
        return self.probability

    @property
    def secret_size(self) -> bool:
        """Whether the number of drawn units is random and must stay secret; see ``TableScheme``."""
        return self.probability < 1.0

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
        """Return a fault if no single population fits the sizes; see ``TableScheme.unlikely``."""
        reason = excluded(sizes, self.probability, chance)
        return [UnlikelySizes(reason, tuple(sizes))] if reason else []

    def among_free(self, free: int) -> Poisson:
        """Return the scheme itself: available units are drawn as before."""
        del free
        return self

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants among ``population`` units; may be empty."""
        units, source = asked_of(population, generator)
        return drawn_apart(units, self.probability, source)
