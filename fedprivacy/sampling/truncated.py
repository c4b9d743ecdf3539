"""Truncated Poisson sampling: independent draws, and a largest cohort (T10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ..errors import count, natural, probability, validate_fields
from ..loss import (
    IDENTITY,
    Curve,
    Fold,
    Gdp,
    LeastOf,
    Mix,
    Sampled,
    Side,
    compose,
    given_way,
)
from ..loss.curves.components import gaussian_shift
from ..registry import registered
from ..relations import Adjacency, Observer
from ..rounding import FEW
from . import aslant, pairs
from .binomial import (
    NEVER,
    Interval,
    add,
    complement,
    log_below,
    log_mass,
    log_share,
    log_tail,
    widened,
)
from .cohorts import excluded
from .crowded import crowded_chance
from .poisson import Poisson, drawn_apart, opposite
from .scheme import (
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
    beyond,
)

_RARE = 1e-300
"""Probabilities of labels below this value are raised to it."""
_UP = 1.0 + FEW
_LOSSES = np.array([-0.05, 0.0, 0.1, 0.4, 1.0, 2.0, 4.0, 8.0])
"""Losses at which two pairs of a round are compared."""
_DECLARED = "population (the number of units, declared public, which add_remove does not hide)"


def _unless_it_never_truncates(adjacency: Adjacency, build: Builder) -> Builder:
    """Return the builder, or Poisson's builder if the cohort may hold the whole population.

    Under ``add_remove`` the population is that of the neighbour with one unit more.
    """
    more = 1 if adjacency is pairs.ADD else 0

    def either(inner: Lossy, scheme: TruncatedPoisson, observer: Observer) -> Pair:
        # If no cohort is truncated, the law is that of Poisson sampling, whose pairs are tighter.
        truncates = scheme.largest < scheme.population + more
        chosen = build if truncates else Poisson.rows[pairs.AGGREGATE, adjacency].build
        return chosen(inner, scheme, observer)

    return either


def _add_remove(inner: Lossy, scheme: TruncatedPoisson, observer: Observer) -> Pair:
    """Mix over the label: do the others fill the cohort? If so, the unit takes another unit's slot.

    Let m of n - 1 others be drawn, and M of n others, because the neighbour may have one unit more.
    The cohort has B places. The labels are M < B, m >= B, and m < B <= M between these two, which
    gets the worse pair.
    """
    alone = inner.privacy_loss(pairs.ADD, observer).curve
    slot = inner.privacy_loss(pairs.SWAP, observer).curve
    low, high = scheme.full
    # The probability of the label is known up to an interval. Its width gets the worse of both
    # pairs.
    removes = inner.traits.zeroed_is_absent and inner.traits.zeroing_replaces
    # If removal is a special case of replacement, an exchanged slot loses at least as much.
    either = slot if removes else _above(alone, slot)
    parts = (
        (1.0 - high, pairs.sampled(alone, scheme.probability)),
        (low, pairs.sampled(slot, scheme.kept)),
        (high - low, pairs.sampled(either, scheme.probability)),
    )
    witness = _shown(inner, scheme, observer, pairs.ADD)
    labelled = Mix(tuple(part for part in parts if part[0] > 0.0))
    by_others = _by_others(alone, scheme)
    if by_others is None:
        return Pair(labelled, witness)
    return Pair(_smaller(labelled, by_others), witness)


def _smaller(usual: Curve, other: Curve) -> Curve:
    """Return both pairs, first the usual one unless the other's profile is nowhere larger."""
    # Where one pair represents both, it is the first.
    return LeastOf((other, usual) if _below(other, usual) else (usual, other))


def _below(one: Curve, other: Curve) -> bool:
    """Return whether the profile of one is at most that of another at some losses."""
    tails = (curve.tails(_LOSSES) for curve in (one, other))
    first, second = (np.exp(t.p_above) - np.exp(_LOSSES + t.q_above) for t in tails)
    return bool(np.all(first <= second))


def _by_others(alone: Curve, scheme: TruncatedPoisson) -> Mix | None:
    """Return a pair that also shows which others take part (T10); None if there is none.

    This set has another law with the unit than without. Where truncation is rare, the laws hardly
    differ.
    """
    mu = gaussian_shift(alone)
    if mu is None or scheme.probability == 1.0:
        return None
    size, q = scheme.largest, scheme.probability
    found = []
    for others in (scheme.population - 1, scheme.population):
        if size > others:
            continue
        full, near = log_tail(others, q, size), log_mass(others, q, size - 1)
        taken = add(log_share(size, others + 1), log_tail(others + 1, q, size + 1))
        if min(full[0], near[0], taken[0]) < -600.0:
            return None
        chance = crowded_chance(mu, q, full, near, taken)
        if chance is None:
            return None
        found.append((math.exp(full[0]) / _UP**4, math.exp(near[1]) * _UP**4, chance))
    nobody, one, chances = zip(*found, strict=True)
    # Weight on labels that lose more only adds loss.
    crowded = max(one)
    none = 0.0 if size > scheme.population - 1 else min(*nobody, 1.0 - crowded)
    parts = (
        (none, IDENTITY),
        (1.0 - crowded - none, pairs.sampled(alone, q)),
        (crowded, pairs.sampled(alone, max(chances))),
    )
    return Mix(tuple(part for part in parts if part[0] > 0.0)) if parts[1][0] > 0.0 else None


def _above(first: Curve, second: Curve) -> Curve:
    """Return a curve that dominates both: the larger of two Gaussians, else their composition."""
    shifts = gaussian_shift(first), gaussian_shift(second)
    if None not in shifts:
        return Gdp(max(filter(None, shifts), default=0.0))
    # A composition dominates each of its parts.
    return compose([(first, 1), (second, 1)])


def _zero_out(inner: Lossy, scheme: TruncatedPoisson, observer: Observer) -> Pair:
    # T10 treats a zeroed unit as an absent unit. If it may be visible, there is no amplification.
    if not inner.traits.zeroed_is_absent:
        return pairs.unamplified(inner, scheme, observer)
    curve = inner.privacy_loss(pairs.ZERO, observer).curve
    by_room = scheme.by_room(lambda q: pairs.sampled(curve, q))
    alone = pairs.sampled(curve, scheme.probability)
    found = _in_slots(by_room, alone, inner, scheme, _given_way)
    return Pair(found, _shown(inner, scheme, observer, pairs.ZERO))


def _replace(inner: Lossy, scheme: TruncatedPoisson, observer: Observer) -> Pair:
    if make := opposite(inner, observer):
        shown = _beside(make(scheme.surely), inner, scheme, pairs.SWAP)
        alone = make(scheme.probability)
        found = _in_slots(scheme.by_room(make), alone, inner, scheme, _exchanged)
        return Pair(found, shown)
    loss = pairs.symmetric_replacement(inner, observer)
    curve = scheme.by_room(lambda q: _twice(pairs.sampled(loss.curve, q)))
    return Pair(curve, pairs.sampled_zero_out(inner, scheme.surely, observer))


def _in_slots(
    by_room: Curve,
    alone: Curve,
    inner: Lossy,
    scheme: TruncatedPoisson,
    slot: Callable[[float, float], Curve],
) -> Curve:
    """Return the pair by the places left, and for one Gaussian sum also that of a slot (T10).

    Args:
        by_room: the pair by the places that the others leave.
        alone: the pair if they do not fill the cohort.
        inner: the mechanism.
        scheme: of the draws.
        slot: function from multiplier and rate to the pair of a cohort of a fixed size.
    """
    z = inner.traits.sum_multiplier
    if z is None or not scheme.often_full:
        return by_room
    return _smaller(by_room, scheme.by_slots(alone, lambda q: slot(z, q)))


def _given_way(z: float, q: float) -> Curve:
    """Return the pair of a unit of a fixed-size cohort that sends C u or 0 (T9)."""
    return Gdp(1.0 / z) if q == 1.0 else Fold(given_way(z, q), Sampled(Gdp(1.0 / z), q))


def _exchanged(z: float, q: float) -> Curve:
    """Return the pair of a unit of a fixed-size cohort that is replaced (T1)."""
    return _twice(pairs.sampled(Gdp(2.0 / z), q))


def _shown(
    inner: Lossy, scheme: TruncatedPoisson, observer: Observer, adjacency: Adjacency
) -> Curve | None:
    """Return what a unit shows whose contribution appears or vanishes."""
    plain = pairs.sampled_zero_out(inner, scheme.surely, observer)
    return None if plain is None else _beside(plain, inner, scheme, adjacency)


def _beside(plain: Curve, inner: Lossy, scheme: TruncatedPoisson, adjacency: Adjacency) -> Curve:
    """Return the pair if all others send 0, and the pairs of data sets that show more."""
    z = inner.traits.sum_multiplier
    if z is None or not scheme.often_full:
        return plain
    numbers = (scheme.population - 1, scheme.probability, scheme.largest)
    return aslant.shown(plain, z, numbers, adjacency, plane=not inner.traits.one_coordinate)


def _twice(curve: Curve) -> Curve:
    return curve if curve.support().symmetric else Fold(curve, curve)


_ROOM = "r = places left by the others: Mix(P(r > 1): {0} at q, P(r = 1): {0} at p*, P(r = 0): id)"
_OTHERS = (
    "m of n-1 others drawn, M of n: Mix(P(M < B): S(G(1/z), q), P(m >= B): S(G(2/z), P(kept | m >= "
    "B)), P(m < B <= M): S(G(2/z), q)); or r = places left by the others: Mix(P(r > 1): S(G(1/z), "
    "q), P(r = 1): S(G(1/z), b), P(r = 0): id)"
)
_SLOTS = (
    "or m of n-1 others drawn: Mix(P(m < B): {0} at q, P(m >= B): FixedSize's at P(kept | m >= B))"
)
_PLANE = "or the sum in a plane, in cells"
_KEPT = f"the same at P(takes part), {_PLANE}"


def _server(adjacency: Adjacency, pair: str, datasets: str) -> Cell:
    text = f"Mix(1-p: id, p: {pair}), p = E min(N, B) / n, N ~ Bin(n, q)"
    return Cell(text, VISIBLE, pairs.SAME, datasets, pairs.visible(adjacency))


_ROWS: Rows = {
    (pairs.AGGREGATE, pairs.ADD): Cell(
        _OTHERS,
        "T10",
        f"S(G(1/z), P(takes part)), {_PLANE}",
        f"{pairs.APART}, {pairs.ASLANT}",
        _unless_it_never_truncates(pairs.ADD, _add_remove),
    ),
    (pairs.AGGREGATE, pairs.ZERO): Cell(
        f"{_ROOM}; {_SLOTS}".format("S(G(1/z), .)"),
        "T10 (if a zeroed unit equals an absent one; else T4: no amplification)",
        _KEPT,
        f"{pairs.APART}, {pairs.ASLANT}",
        _unless_it_never_truncates(pairs.ZERO, _zero_out),
    ),
    (pairs.AGGREGATE, pairs.SWAP): Cell(
        f"{_ROOM}; {_SLOTS}".format("Poisson's replace_one pair"),
        "T10, T9 (one Gaussian sum; else T1: F(S, S), removal losing no more than replacement)",
        f"{_KEPT} (F(S, S): the zero-out pair)",
        f"{pairs.EXCHANGED}, {pairs.ASLANT}",
        _unless_it_never_truncates(pairs.SWAP, _replace),
    ),
    (pairs.SERVER, pairs.ZERO): _server(pairs.ZERO, "G(1/z)", pairs.APART),
    (pairs.SERVER, pairs.SWAP): _server(pairs.SWAP, "G(2/z)", pairs.EXCHANGED),
}


@registered
@dataclass(frozen=True)
class TruncatedPoisson(TableScheme):
    """Poisson sampling with a largest cohort: if more units are drawn, a uniform choice is kept.

    In every round, every one of ``population`` units is drawn independently with the same
    probability. If more than ``largest`` units are drawn, a uniform choice of ``largest`` of them
    takes part. Under ``add_remove`` neighbours have one unit less, or one more. Probabilities of
    the law are rounded to the safe side (T10).

    Args:
        probability: probability that a unit is drawn, in (0, 1].
        population: number of units.
        largest: the largest cohort, at least 1. From ``population`` on, the scheme is Poisson
            sampling.
    """

    probability: float
    population: int
    largest: int

    name: ClassVar[str] = "TruncatedPoisson"
    assumption: ClassVar[str] = (
        "participants are drawn independently with the stated probability from the stated "
        "population; of too many, a uniform subset takes part; the others have no influence"
    )
    rows: ClassVar[Rows] = _ROWS

    def __post_init__(self) -> None:
        validate_fields(self, probability, "probability")
        validate_fields(self, natural, "largest")
        # For a larger population the laws of cohorts would have no correct digits.
        validate_fields(self, count, "population")

    @property
    def truncates(self) -> bool:
        """Whether a cohort can be truncated."""
        return self.largest < self.population

    @property
    def rate(self) -> float:
        """Probability that a given unit takes part in a round, rounded up."""
        return self._takes_part[1]

    @property
    def surely(self) -> float:
        """Probability that a given unit takes part in a round, rounded down."""
        return self._takes_part[0]

    @cached_property
    def _takes_part(self) -> Interval:
        """P(m < B) q + (B/n) P(N > B), for m ~ Bin(n-1, q) others drawn and N ~ Bin(n, q)."""
        q, share = self.probability, self.largest / self.population
        # No unit is ever left out, so every drawn unit takes part.
        if not self.truncates:
            return q, q
        log_full, log_chosen = self._log_full, self._log_chosen
        room = [math.exp(end) * q for end in complement(log_full)]
        # At most four roundings at either end.
        low, high = (a + math.exp(b) for a, b in zip(room, log_chosen, strict=True))
        # A participant was drawn, and it has one of B places. Both facts cap the rate.
        return low / _UP**4, min(high * _UP**4, q, share * _UP)

    @cached_property
    def _log_full(self) -> Interval:
        """Log-probability that the others fill the cohort."""
        return log_tail(self.population - 1, self.probability, self.largest)

    @cached_property
    def _log_chosen(self) -> Interval:
        """Log-probability that too many units are drawn and the unit is among those kept."""
        too_many = log_tail(self.population, self.probability, self.largest + 1)
        return add(log_share(self.largest, self.population), too_many)

    @property
    def often_full(self) -> bool:
        """Whether the others fill the cohort often enough for slots to matter."""
        return self.truncates and self._log_full[1] >= aslant.RARE

    @property
    def full(self) -> Interval:
        """Probability that the others fill the cohort; low for n - 1 others, high for n others."""
        more = log_tail(self.population, self.probability, self.largest)
        low, high = math.exp(self._log_full[0]), math.exp(more[1])
        return low / _UP, min(max(high * _UP, _RARE), 1.0)

    @property
    def kept(self) -> float:
        """Upper bound on P(the unit is drawn and kept | the others fill the cohort)."""
        # The others never fill the cohort, so a drawn unit is kept.
        if self._log_full[0] == -math.inf:
            return self.probability
        ratio = math.exp(min(self._log_chosen[1] - self._log_full[0], 0.0)) * _UP**4
        return min(ratio, self.probability)

    def by_room(self, at: Callable[[float], Curve]) -> Curve:
        """Return the mixture over the places that the others leave: many, one, or none (T10).

        Rounding moves weight from labels with less loss to labels with more loss. The weight of no
        place is rounded down. The weight of one place and its probability p* are rounded up.

        Args:
            at: function from the probability of taking part to the pair; it must grow with the
                probability.
        """
        n, q, largest = self.population, self.probability, self.largest
        filled = log_tail(n, q, largest)
        takes = add(log_share(largest, n), filled)
        leaves = NEVER if q == 1.0 else add(_log_not(q), log_mass(n - 1, q, largest - 1))
        one = min(max((math.exp(takes[1]) + math.exp(leaves[1])) * _UP**4, _RARE), 1.0)
        none = math.exp(filled[0]) * ((n - largest) / n) / _UP**4
        none = min(none, 1.0 - one)
        parts = ((none, IDENTITY), (1.0 - one - none, at(q)), (one, at(_chance(takes, leaves))))
        return Mix(tuple(part for part in parts if part[0] > 0.0))

    def by_slots(self, alone: Curve, slot: Callable[[float], Curve]) -> Mix:
        """Return the mixture over the label whether the others fill the cohort (T10).

        Args:
            alone: the pair if they do not.
            slot: function from the probability of taking part to the pair of a fixed-size cohort.
                At the probability of a draw it must dominate ``alone``.
        """
        low, high = (math.exp(end) for end in self._log_full)
        low, high = low / _UP, min(max(high * _UP, _RARE), 1.0)
        q = self.probability
        parts = ((1.0 - high, alone), (low, slot(self.kept)), (high - low, slot(q)))
        return Mix(tuple(part for part in parts if part[0] > 0.0))

    def visible(self, inner: Curve, side: Side = Side.UP) -> Curve:
        """T4 with the probability of taking part, rounded up or down."""
        rate = self.rate if side is Side.UP else self.surely
        return inner if rate == 1.0 else Mix(((1.0 - rate, IDENTITY), (rate, inner)))

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the parameters; under add_remove the population is labelled as not secret."""
        found = super().public(adjacency)
        if adjacency is pairs.ADD:
            found[_DECLARED] = found.pop("population")
        return found

    @property
    def secret_size(self) -> bool:
        """Whether the number of drawn units is random and must stay secret; see ``TableScheme``."""
        return self.probability < 1.0

    @property
    def max_cohort(self) -> int:
        """The largest cohort, or the population if that is smaller."""
        return min(self.largest, self.population)

    def unlikely(self, sizes: Mapping[int, int], chance: float) -> list[UnlikelySizes]:
        """Return sizes above ``largest``, and sizes that are too unlikely for the population.

        A full round may have been truncated. For it, only the event that at least that many were
        drawn counts.
        """
        found = beyond(sizes, lambda size: size <= self.max_cohort, f"at most {self.max_cohort}")
        if found:
            return found
        drawn = {size: count for size, count in sizes.items() if size < self.largest}
        # No round is full, so no cohort was truncated and the sizes are those of plain Poisson
        # sampling.
        if len(drawn) == len(sizes):
            reason = excluded(sizes, self.probability, chance, self.population)
            return [UnlikelySizes(reason, tuple(sizes))] if reason else []
        # Half of the chance goes to each end of the law, over all rounds.
        limit = math.log(chance / (2.0 * sum(sizes.values())))
        n, q = self.population, self.probability
        few = [size for size in drawn if log_below(n, q, size + 1)[1] < limit]
        many = [self.largest] if log_tail(n, q, self.largest)[1] < limit else []
        rest = f"participants, which is improbable for probability {q:g} and {n} units"
        return [UnlikelySizes(f"{size} {rest}", (size,)) for size in (*few, *many)]

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Return the participants, sorted; may be empty.

        Raises:
            ParameterError: the population is not ``self.population``.
        """
        units, source = asked_of(population, generator, self.population)
        drawn = drawn_apart(units, self.probability, source)
        # No truncation is needed. A choice would only advance the generator.
        if len(drawn) <= self.largest:
            return drawn
        # The choice is uniform among the drawn units, as T10 requires.
        return np.sort(source.choice(drawn, size=self.largest, replace=False))


def _log_not(chance: float) -> Interval:
    return widened((math.log1p(-chance),) * 2, FEW)


def _chance(takes: Interval, leaves: Interval) -> float:
    """Return the probability, rounded up, of the first of two cases, given their logarithms."""
    if leaves[0] == -math.inf:
        return 1.0
    log_odds = takes[1] - leaves[0]
    chance = 1.0 / (1.0 + math.exp(-log_odds)) if log_odds > -700.0 else 1e-300
    return min(chance * _UP**4, 1.0)
