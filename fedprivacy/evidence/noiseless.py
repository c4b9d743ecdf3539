"""Rounds that released a sum without noise: no finite epsilon holds, as two data sets show.

Assume that every unit but one sends 0. Without noise the sum is 0 if that unit does not take part
or is zeroed out, and C u if it takes part. Under ``replace_one`` the unit's two data sets give C u
and -C u. So at every epsilon, delta(epsilon) is at least the chance that the unit takes part in one
of these rounds. If this chance exceeds the given delta, epsilon is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..bound import Bound, exactly
from ..mechanisms import (
    CohortMechanism,
    HeldMechanism,
    Mechanism,
    Parallel,
    Perturbation,
    Run,
    SampledMechanism,
)
from ..mechanisms.base import mechanisms_in
from ..mechanisms.clear import CLEAR_WITNESS, SHOWN, WithoutNoise
from ..mechanisms.upload import Upload
from ..relations import Facts, Observer
from ..rounding import HUNDREDS, rounded_down
from ..sampling import Scheme, TableScheme, TruncatedPoisson, round_rate


@dataclass(frozen=True)
class Noiseless:
    """The rounds without noise.

    Attributes:
        rounds: number of these rounds.
        chance: lower end of the probability that a unit takes part in one of the rounds; 0 if
            unknown.
    """

    rounds: int
    chance: float

    @property
    def description(self) -> str:
        """The rounds and their release, in words."""
        return f"{self.rounds} round{'' if self.rounds == 1 else 's'} released a sum without noise"

    def bound(self, delta: float, facts: Facts) -> Bound:
        """Return an infinite Bound; its lower end is infinite if the chance exceeds delta.

        Args:
            delta: delta of the question.
            facts: unit, adjacency and observer.
        """
        # An observer of only the last release may not see the sum without noise.
        seen = self.chance > delta and facts.observer is not Observer.FINAL
        lower = math.inf if seen else 0.0
        why = "" if seen else self._open(delta, facts)
        return Bound(
            quantity="epsilon",
            given=delta,
            upper=math.inf,
            lower=lower,
            resolution=(lower, math.inf),
            witness=CLEAR_WITNESS if seen else None,
            method="no noise",
            theorems=(SHOWN,),
            assumptions=(),
            facts=facts,
            reason=f"{self.description}{why}",
        )

    def _open(self, delta: float, facts: Facts) -> str:
        if facts.observer is Observer.FINAL:
            return "; it is not known how much the last release reveals about it"
        return (
            "; no lower bound shows that a unit is in one of these rounds with a probability "
            f"above delta = {exactly(delta)}"
        )


def noiseless(found: Iterable[tuple[float, int, bool]]) -> Noiseless | None:
    """Return a summary of the rounds without noise; None if there are none.

    Args:
        found: for each kind of these rounds: a lower end of the probability that a unit takes part
            in one, their number, and whether they are drawn independently.
    """
    kinds = list(found)
    if not kinds:
        return None
    # Kinds may share a draw, so only the largest chance counts.
    chances = [_in_any(chance, times) if apart else chance for chance, times, apart in kinds]
    return Noiseless(sum(times for _, times, _ in kinds), max(chances))


def _in_any(chance: float, times: int) -> float:
    """Return the chance to take part in one of several independent rounds, rounded down."""
    if chance >= 1.0:
        return 1.0
    return max(chance, rounded_down(-math.expm1(times * math.log1p(-chance)), HUNDREDS))


def noiseless_rounds(parts: Iterable[tuple[Mechanism, int]]) -> list[tuple[float, int, bool]]:
    """Return the rounds of a run that hold ``WithoutNoise``, in the form for ``noiseless``."""
    return [(least_chance(one), n, drawn_apart(one)) for one, n in parts if _is_noiseless(one)]


def _is_noiseless(mechanism: Mechanism) -> bool:
    return isinstance(mechanism, WithoutNoise) or any(map(_is_noiseless, mechanisms_in(mechanism)))


def without_noise(mechanism: Mechanism) -> Mechanism:
    """Return the description of a mechanism that released its sum without noise."""
    match mechanism:
        case Parallel():
            return Parallel(tuple(map(without_noise, mechanism.mechanisms)))
        case Run():
            return Run(tuple((without_noise(part), count) for part, count in mechanism.parts))
        case CohortMechanism():
            return without_noise(mechanism.inner).in_cohort(mechanism.scheme)
        case SampledMechanism() | HeldMechanism():
            return WithoutNoise(unit=mechanism.protects).sampled(mechanism.scheme)
    return WithoutNoise(unit=mechanism.protects)


def least_chance(mechanism: Mechanism) -> float:
    """Return the chance that a unit takes part in one round of a mechanism, rounded down.

    The result is 0 if the chance is unknown, or if a sum without noise would not show the unit.
    """
    match mechanism:
        # At least one of a client's several records is drawn as often as a single record.
        case HeldMechanism():
            return least_drawn_with(mechanism.scheme)
        case SampledMechanism() | CohortMechanism():
            return least_drawn_with(mechanism.scheme) * least_chance(mechanism.inner)
        # The neighbouring data sets may differ in a unit of the kind with the most frequent draw.
        case Parallel() | Run():
            return max(map(least_chance, mechanisms_in(mechanism)))
        case WithoutNoise() | Perturbation() | Upload():
            return 1.0
    return 0.0


def drawn_apart(mechanism: Mechanism) -> bool:
    """Return whether participation is drawn independently in each round of a mechanism."""
    scheme = getattr(mechanism, "scheme", None)
    return scheme is not None and not hasattr(scheme, "rounds_per_epoch")


def least_drawn_with(scheme: Scheme) -> float:
    """Return the chance that a unit is drawn for one round, rounded down; 0 if unknown."""
    if not isinstance(scheme, TableScheme) or getattr(scheme, "partial", False):
        return 0.0
    if isinstance(scheme, TruncatedPoisson):
        return scheme.surely
    length = getattr(scheme, "rounds_per_epoch", 1)
    population = getattr(scheme, "population", None)
    share = round_rate(scheme)
    # Batches of a pass may differ by one unit.
    if length > 1 and population is not None:
        share = (population // length) / population
    return rounded_down(float(share), HUNDREDS)
