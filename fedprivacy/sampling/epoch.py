"""Schemes that draw a whole epoch at once: each unit takes part in one of its rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..errors import UnsupportedCombination, integer, natural, require, validate_fields
from ..loss import DISJOINT, Allocated, Curve, LargestRound, MostOf
from ..privacy_loss import NO_UPPER, PrivacyLoss
from ..registry import registered
from ..relations import Adjacency, Observer
from .pairs import (
    ADD,
    AGGREGATE,
    APART,
    EXCHANGED,
    EXCHANGED_OPPOSED,
    GIVEN_WAY,
    LEFT,
    SAME,
    SERVER,
    SWAP,
    ZERO,
    sampled_zero_out,
    unamplified_same,
    visible,
)
from .scheme import Builder, Cell, Indices, Lossy, Pair, Rows, TableScheme, asked_of, checked_cohort

_ONCE = "parallel composition: each unit is in one round of the epoch; no amplification"
_ZEROED = Cell("G(1/z) once an epoch", _ONCE, SAME, APART, visible(ZERO))
_NO_UPPER = f"{NO_UPPER}, because one unit more moves others to later rounds (one round: G(1/z))"
_SECRET = "T11's zero-out pair, or the largest round of an epoch (one round: the same pair)"
_BUT_ONE = "T11's pair at z/2 of all rounds but one, or their largest (one round: the same pair)"
_OPPOSED = "T11's zero-out pair at z/2 (not one Gaussian sum: at z)"
_FARTHEST = 30.0
"""In stds: more noise is post-processing, so a unit that moves farther shows at least as much."""
_REPLACED = Cell("G(2/z) once an epoch", _ONCE, SAME, EXCHANGED, visible(SWAP))


@dataclass(frozen=True)
class EpochScheme(TableScheme):
    """A scheme that draws ``rounds_per_epoch`` rounds at once, each unit in one of the rounds."""

    rounds_per_epoch: int

    def __post_init__(self) -> None:
        checked = integer(1, rounds_per_epoch=self.rounds_per_epoch)
        object.__setattr__(self, "rounds_per_epoch", checked)

    # Every unit takes part in every epoch.
    rate = 1.0

    def draw(self, population: int, generator: np.random.Generator) -> Indices:
        """Refuse: an epoch is drawn as a whole; use ``epoch``."""
        del generator
        raise UnsupportedCombination(
            f"{self.name} draws {self.rounds_per_epoch} rounds together from {population} "
            "units; use epoch(population, generator)"
        )

    def epoch(self, population: int, generator: np.random.Generator) -> list[Indices]:
        """Return the participants of each round of one epoch."""
        raise NotImplementedError


def epoch_of(scheme: EpochScheme, population: int, generator: np.random.Generator) -> list[Indices]:
    """Return the clients of each round of one epoch.

    Raises:
        ParameterError: the cohorts do not match the accounting. They are no numbers of clients, a
            client is in more rounds than accounted, or the number of rounds differs.
    """
    name, take = f"{type(scheme).__name__}.epoch", getattr(scheme, "take", 1)
    drawn = list(scheme.epoch(population, generator))
    cohorts = [checked_cohort(name, cohort, population) for cohort in drawn]
    length = scheme.rounds_per_epoch
    require(len(cohorts) == length, name, f"{len(cohorts)} rounds", f"return {length} rounds")
    most = int(np.bincount(np.concatenate(cohorts), minlength=1).max())
    rule = f"draw each client for at most {take} of the rounds"
    require(most <= take, name, f"a client in {most} rounds", rule)
    return cohorts


def _spread(inner: Lossy, scheme: EpochScheme, moves: float = 1.0) -> Allocated | None:
    """Return the curve of T11 for one Gaussian sum a round, None for other mechanisms."""
    z = inner.traits.sum_multiplier
    mu = math.inf if z is None else moves / z
    # The inverse of a tiny multiplier may overflow; the result is then None.
    return Allocated(mu, scheme.rounds_per_epoch) if math.isfinite(mu) else None


def _attained(inner: Lossy, scheme: EpochScheme, observer: Observer) -> Curve | None:
    """Return the zero-out pair; for other mechanisms the part that one round shows.

    If rounds differ in length, it is less than the attained pair ("A shuffled epoch", theorems.md).
    """
    one_round = 1.0 / scheme.rounds_per_epoch
    return _spread(inner, scheme) or sampled_zero_out(inner, one_round, observer)


def _attained_by_replacing(inner: Lossy, scheme: EpochScheme, observer: Observer) -> Curve | None:
    """Return the same pair if zeroing is a special case of replacing, else None."""
    return _attained(inner, scheme, observer) if inner.traits.zeroing_replaces else None


def _hidden_order(adjacency: Adjacency) -> Builder:
    def build(inner: Lossy, scheme: Shuffled, observer: Observer) -> Pair:
        # If units may be left out, one more may leave out another, in a single round as well.
        if adjacency is ADD and (scheme.partial or scheme.rounds_per_epoch > 1):
            return _moved(inner, scheme)
        # With one round every unit takes part in it, so there is no secret order.
        if scheme.rounds_per_epoch == 1:
            return unamplified_same(inner, adjacency, observer)
        curve = inner.privacy_loss(adjacency, observer).curve
        if adjacency is ZERO:
            return Pair(curve, _zeroed_among_others(inner, scheme, observer))
        # If all other units send the opposite, only the round of the unit differs, by two clip
        # norms.
        opposed = _spread(inner, scheme, 2.0)
        return Pair(curve, opposed or _attained_by_replacing(inner, scheme, observer))

    return build


def _zeroed_among_others(inner: Lossy, scheme: Shuffled, observer: Observer) -> Curve | None:
    """Return the pair if all others send 0, and the largest round if they send the opposite."""
    silent, z = _attained(inner, scheme, observer), inner.traits.sum_multiplier
    if silent is None or z is None:
        return silent
    mu = min(1.0 / z, _FARTHEST)
    # Others that send -C u make the unit's round larger by 2 C, that of a zeroed unit by C.
    return MostOf((LargestRound(2.0 * mu, mu, scheme.rounds_per_epoch), silent))


def _moved(inner: Lossy, scheme: Shuffled) -> Pair:
    """Return no upper end, and the attained pair if the others send the opposite.

    Without the unit one round has one unit less. It is not looked at.
    """
    z, rounds = inner.traits.sum_multiplier, scheme.rounds_per_epoch
    if z is None or scheme.partial:
        raise UnsupportedCombination(
            f"{scheme.name} has no theorem for adjacency=add_remove (one unit more moves others to "
            "later rounds), and a lower end is known only for complete passes of one Gaussian sum "
            "a round; these are covered: zero_out/aggregate, replace_one/aggregate"
        )
    # The data set with the unit has a multiple of the rounds, or the stated number of units.
    units = scheme.population or rounds
    idle = -(-units // rounds) / units
    if idle == 1.0:
        return Pair(DISJOINT, None)
    shown: Curve = LargestRound(2.0 * min(1.0 / z, _FARTHEST), 0.0, rounds - 1, idle)
    if (whole := _spread(inner, scheme, 2.0)) is not None:
        # The laws of the whole epoch end at a multiplier of 1/4.
        shown = MostOf((shown, replace(whole, rounds=rounds - 1, idle=idle)))
    return Pair(DISJOINT, shown)


_AT_MOST = (
    "each unit takes part in at most one round of every epoch; the order does not depend on data"
)


@registered
@dataclass(frozen=True)
class Shuffled(EpochScheme):
    """Units are shuffled and split into rounds: each unit is in one round of an epoch.

    A mechanism sampled this way is one EPOCH of ``rounds_per_epoch`` rounds.

    Args:
        rounds_per_epoch: at least 1.
        population: number of units, if known. Mechanisms whose noise depends on the length of a
            round require it. The lengths differ by one unless ``rounds_per_epoch`` divides it.
        partial: whether an epoch may leave units out, as ``drop_last`` of torch does. The cost is
            not larger, but no attained pair is known: ``Bound.lower`` is 0.
    """

    population: int | None = None
    partial: bool = False

    name: ClassVar[str] = "Shuffled"
    assumption: ClassVar[str] = (
        "each unit takes part in exactly one round of every epoch; the order does not "
        "depend on data"
    )
    rows: ClassVar[Rows] = {
        (AGGREGATE, ADD): Cell("not bounded", _NO_UPPER, _BUT_ONE, LEFT, _hidden_order(ADD)),
        (AGGREGATE, ZERO): Cell(
            "G(1/z) once an epoch", _ONCE, _SECRET, GIVEN_WAY, _hidden_order(ZERO)
        ),
        (AGGREGATE, SWAP): Cell(
            "G(2/z) once an epoch", _ONCE, _OPPOSED, EXCHANGED_OPPOSED, _hidden_order(SWAP)
        ),
        (SERVER, ZERO): _ZEROED,
        (SERVER, SWAP): _REPLACED,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_fields(self, natural, "population", or_none=True)
        require(isinstance(self.partial, bool), "partial", self.partial, "be True or False")

    def amplify(
        self, inner: Lossy, adjacency: Adjacency, observer: Observer = Observer.AGGREGATE
    ) -> PrivacyLoss:
        """See ``TableScheme``; if a unit may be in no round, no pair is certain to be attained."""
        return self._left_out(super().amplify(inner, adjacency, observer))

    def group(self, inner: PrivacyLoss) -> PrivacyLoss:
        """See ``TableScheme``, and ``amplify``."""
        return self._left_out(super().group(inner))

    def _left_out(self, loss: PrivacyLoss) -> PrivacyLoss:
        if not self.partial:
            return loss
        assumptions = tuple(_AT_MOST if one == self.assumption else one for one in loss.assumptions)
        return replace(loss, witness=None, assumptions=assumptions)

    def epoch(self, population: int, generator: np.random.Generator) -> list[Indices]:
        """Return the participants of each round of one epoch.

        Raises:
            ParameterError: ``self.population`` is given and differs from ``population``.
        """
        units, source = asked_of(population, generator, self.population)
        # One order for the whole epoch puts each unit in exactly one round.
        order = source.permutation(units)
        # Round lengths differ by at most one unit, for every order.
        return [np.sort(part) for part in np.array_split(order, self.rounds_per_epoch)]
