"""Random allocation: a unit takes part in some rounds of an epoch, drawn uniformly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import integer, refuse
from ..loss import Allocated, Curve, Exchanged, Gdp, LeastOf, MostOf, Side, SummedRounds, compose
from ..loss.curves.summed import MOST, MOST_ROUNDS
from ..registry import registered
from ..relations import Adjacency, Observer
from ..rounding import TENS, rounded_down
from .epoch import EpochScheme
from .pairs import (
    ADD,
    AGGREGATE,
    APART,
    EXCHANGED,
    SAME,
    SERVER,
    SWAP,
    ZERO,
    sampled_zero_out,
    unamplified_same,
    visible,
)
from .scheme import Builder, Cell, Indices, Lossy, Pair, Rows, asked_of


def _repeated(curve: Curve | None, times: int) -> Curve | None:
    return None if curve is None else compose([(curve, times)])


def _known(inner: Lossy, scheme: RandomAllocation, adjacency: Adjacency, seen: Observer) -> Pair:
    """Return the pair of a unit whose rounds are known: as many runs of the inner mechanism."""
    pair = unamplified_same(inner, adjacency, seen)
    return Pair(compose([(pair.curve, scheme.take)]), _repeated(pair.witness, scheme.take))


def _multiplier(inner: Lossy) -> float | None:
    """Return the multiplier of one Gaussian sum a round; None if there is no curve for it."""
    z = inner.traits.sum_multiplier
    # The inverse of a tiny multiplier may overflow.
    return None if z is None or not math.isfinite(1.0 / z) else z


def _sizes(scheme: RandomAllocation) -> list[tuple[int, int]]:
    """Return (rounds, number of blocks) of ``take`` blocks, with one round of the unit in each."""
    length, longer = divmod(scheme.rounds_per_epoch, scheme.take)
    parts = [(length, scheme.take - longer), (length + 1, longer)]
    return [(size, count) for size, count in parts if count]


def _blocks(scheme: RandomAllocation, mu: float, one: Callable[[float, int], Curve]) -> Curve:
    """Return the composition over the blocks, each of a curve of ``one``; mu if it is one round."""
    # In a block of one round the unit's round is known.
    return compose(
        (Gdp(mu) if size == 1 else one(mu, size), count) for size, count in _sizes(scheme)
    )


def _exchanged(scheme: RandomAllocation, mu: float) -> list[Curve]:
    """Return the blocks' own pairs of a replaced unit; none if one of them is not computed."""
    sizes = [size for size, _ in _sizes(scheme) if size > 1]
    if not all(Exchanged.serves(mu, size) for size in sizes):
        return []
    return [_blocks(scheme, 2.0 * mu, lambda twice, size: Exchanged(0.5 * twice, size))]


def _shown(scheme: RandomAllocation, z: float, opposite: bool) -> Curve:
    """Return an attained curve of ``take`` rounds of mean C u, against 0 or the opposite."""
    mu, rounds = 1.0 / z, scheme.rounds_per_epoch
    apart = (2.0 if opposite else 1.0) * mu
    # The sum of all outcomes is one normal number.
    plain = Gdp(rounded_down(apart * scheme.take / math.sqrt(rounds), TENS))
    if rounds > MOST_ROUNDS:
        return plain
    # A larger mean shows at least as much: more noise is post-processing.
    mu = min(mu, MOST)
    return MostOf((SummedRounds(mu, -mu if opposite else 0.0, rounds, scheme.take), plain))


def _attained(inner: Lossy, scheme: RandomAllocation, observer: Observer) -> Curve | None:
    """Return an attained curve under zero_out; for other mechanisms what one round shows."""
    z = _multiplier(inner)
    if z is None:
        return sampled_zero_out(inner, scheme.take / scheme.rounds_per_epoch, observer)
    if scheme.take == 1:
        return Allocated(1.0 / z, scheme.rounds_per_epoch)
    return _shown(scheme, z, opposite=False)


def _absent(adjacency: Adjacency) -> Builder:
    def build(inner: Lossy, scheme: RandomAllocation, observer: Observer) -> Pair:
        known = _known(inner, scheme, adjacency, observer)
        if scheme.take == scheme.rounds_per_epoch:
            return known
        z = _multiplier(inner)
        curve = known.curve if z is None else _blocks(scheme, 1.0 / z, Allocated)
        return Pair(curve, _attained(inner, scheme, observer))

    return build


def _replaced(inner: Lossy, scheme: RandomAllocation, observer: Observer) -> Pair:
    known = _known(inner, scheme, SWAP, observer)
    if scheme.take == scheme.rounds_per_epoch:
        return known
    z = _multiplier(inner)
    if z is None:
        zeroing = inner.traits.zeroing_replaces
        return Pair(known.curve, _attained(inner, scheme, observer) if zeroing else None)
    # A replaced unit leaves and another one joins: two steps of the pair of every block. The own
    # pairs of blocks are closer, but have no order and a floor of delta. Where laws reveal too
    # much, nothing is gained by not knowing the unit's rounds.
    steps = _blocks(
        scheme, 2.0 / z, lambda twice, size: Allocated(0.5 * twice, size, replaced=True)
    )
    curve = LeastOf((steps, *_exchanged(scheme, 1.0 / z), known.curve))
    return Pair(curve, _shown(scheme, z, opposite=True))


_SPREAD = "(1/t) sum_i N(e_i) against N(0) in t dimensions, std z"
_T11 = (
    "T11 (one Gaussian sum; else no amplification: joint convexity over the unit's rounds); "
    "several rounds: a random partition of the epoch, one round in each part"
)
_KNOWN = "parallel composition: the rounds of a unit are known; no amplification"
_EITHER = f"{EXCHANGED} (other mechanisms: C u or 0)"
_ONE = "the same pair (several rounds: their sum in cells; else: S of the zero-out pair)"


@registered
@dataclass(frozen=True)
class RandomAllocation(EpochScheme):
    """Every unit draws its rounds of the epoch uniformly, independently of all others.

    With one round this scheme is known as "balls in bins". A mechanism sampled this way is one
    EPOCH of ``rounds_per_epoch`` rounds (T11).

    Args:
        rounds_per_epoch: t, at least 1.
        take: k, the number of different rounds of an epoch that every unit takes part in, from 1
            to t.
    """

    take: int = 1

    name: ClassVar[str] = "RandomAllocation"
    assumption: ClassVar[str] = (
        "each unit draws its rounds of every epoch uniformly and independently; round sizes are "
        "not released, and the noise does not depend on them"
    )
    rows: ClassVar[Rows] = {
        (AGGREGATE, ADD): Cell(_SPREAD, _T11, _ONE, APART, _absent(ADD)),
        (AGGREGATE, ZERO): Cell(_SPREAD, _T11, _ONE, APART, _absent(ZERO)),
        (AGGREGATE, SWAP): Cell(
            "(1/t) sum_i N(e_i) against (1/t) sum_i N(-e_i) in t dimensions, std z; or the "
            "zero-out pair twice, at one quantile (else: G(2/z) a round of the unit)",
            "T11; or group privacy of tests (else: joint convexity over the unit's rounds)",
            "a sum over all rounds, in cells (else: the zero-out pair)",
            _EITHER,
            _replaced,
        ),
        (SERVER, ZERO): Cell("G(1/z) a round of the unit", _KNOWN, SAME, APART, visible(ZERO)),
        (SERVER, SWAP): Cell("G(2/z) a round of the unit", _KNOWN, SAME, EXCHANGED, visible(SWAP)),
    }

    independent_draws = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "take", integer(1, take=self.take))
        if self.take > self.rounds_per_epoch:
            rule = f"be at most rounds_per_epoch = {self.rounds_per_epoch}"
            refuse("take", self.take, rule)

    @property
    def secret_size(self) -> bool:
        """Whether the number of drawn units is random and must stay secret; see ``TableScheme``."""
        return self.rounds_per_epoch > self.take

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """Return ``take`` runs of the inner pair; see ``TableScheme``."""
        del side
        return compose([(inner, self.take)])

    def epoch(self, population: int, generator: np.random.Generator) -> list[Indices]:
        """Return the participants of each round of one epoch; some rounds may be empty."""
        units, source = asked_of(population, generator)
        rounds = _drawn(units, self.rounds_per_epoch, self.take, source)
        ends = np.cumsum(np.bincount(rounds.ravel(), minlength=self.rounds_per_epoch))
        # A stable sort leaves each round's units in rising order.
        order = np.argsort(rounds, axis=None, kind="stable") // self.take
        return np.split(order, ends[:-1])


def _drawn(units: int, rounds: int, take: int, source: np.random.Generator) -> Indices:
    """Return ``take`` different rounds of every unit, shape (units, take): Floyd's algorithm.

    Every set is equally likely. Each step draws one of the first rounds, and takes the last of them
    if the draw repeats an earlier one.
    """
    drawn = np.empty((units, take), dtype=np.int64)
    for k, last in enumerate(range(rounds - take, rounds)):
        fresh = source.integers(last + 1, size=units)
        repeated = (drawn[:, :k] == fresh[:, None]).any(axis=1)
        drawn[:, k] = np.where(repeated, last, fresh)
    return drawn
