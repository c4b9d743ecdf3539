"""How a curve is made of others: what mixing, trimming, ordering and cutting need to know."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...rounding import THOUSANDS, rounded_up
from .lattice import Side

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .curve import Curve
    from .lattice import Array
    from .triangles import Triangles

T = TypeVar("T")

Position = tuple[float, float]
"""Approximate logs of the loss's dependence on shift and probability."""


class Trimmed(NamedTuple):
    """A curve without its rarest components.

    Args:
        curve: the curve that is left.
        slack: bound on the error of its profile at every epsilon from 0 to ``reach``.
        reach: an epsilon.
    """

    curve: Curve
    slack: float
    reach: float = math.inf


class UnitDraws(NamedTuple):
    """A pair of one unit's draws: if every entry is at least as large, the pair dominates.

    Args:
        rank: 0 for draws that give way to others, 1 for samples of a Gaussian pair.
        chance: probability of a draw.
        shift: distance of the means, in standard deviations.
    """

    rank: int
    chance: float
    shift: float


class Unordered(Exception):
    """The curves are not of one shape, or their shape has no known order."""


@dataclass(frozen=True, eq=False)
class Order:
    """How curves of one shape are ordered by domination.

    Args:
        bound: returns, for curves of this shape, one that dominates each (UP), or that each
            dominates (DOWN). Labels beyond a number are merged. Raises ``Unordered``.
        position: where the curve lies among others of its shape; None for curves that take little
            time, because these need no grouping. A loss is about proportional to the shift. It is
            also about proportional to the root of the probability of a round of an epoch, or to the
            fourth root of the probability of draws. (For 2,000 rounds epsilon grows with powers 3
            and .8 of shift and probability.)
        half_position: the position of a fold that has the curve as its lower half.
        first_shift: of a labelled mixture, the shift of its first pair if that is Gaussian.
        draws: the unit's draws, for a curve that is a label of a mixture.
        rising: returns the number of leading labels of one shape, each dominating the one before.
            Raises ``Unordered`` if they do not rise. None for a curve without labels.
        groups: number of groups, in units of the usual one, for curves that take less time.
    """

    bound: Callable[[Sequence[Any], Side, int], Curve]
    position: Position | None = None
    half_position: Position | None = None
    first_shift: float | None = None
    draws: UnitDraws | None = None
    rising: Callable[[], int] | None = None
    groups: int = 1


@dataclass(frozen=True, eq=False)
class Components:
    """The parts of a curve. The defaults are those of a curve that is not made of others.

    Args:
        inside: the curves that the curve is built from.
        rounds: (curve, number of runs) of a composition.
        kinds: curves of which one applies, but it is not known which.
        choices: curves that all dominate the same round, or that are all attained.
        most: whether the largest answer of the choices counts, and not the smallest.
        usual: whether the last choice gives the smallest answer, if it gives one; the others
            matter outside of its range.
        sides: a curve that dominates and one that is dominated, if these represent the curve.
        upper: the curve that gives the profile from epsilon 0 on, if another gives the rest.
        pair: returns the dominating pair behind the tails, if the moments are not its own but those
            of a stated guarantee.
        simpler: returns a curve that may replace this one where many different ones are composed.
        labels: weights of the labels that every observer sees.
        trim: removes rare components whose mass moves the profile by at most a number.
        swapped_trim: the same for the swapped curve.
        order: how curves of this shape are ordered.
        adaptive: the family of pairs from which an adaptive adversary may choose in each round.
        levels: returns what a certificate states of the curve: the levels of a tree of a unit's
            places, or the number of rounds of an epoch with the points of its profile.
    """

    inside: tuple[Curve, ...] = ()
    rounds: tuple[tuple[Curve, int], ...] = ()
    kinds: tuple[Curve, ...] = ()
    choices: tuple[Curve, ...] = ()
    most: bool = False
    usual: bool = False
    sides: tuple[Curve, Curve] | None = None
    upper: Curve | None = None
    pair: Callable[[], Curve] | None = None
    simpler: Callable[[], Curve] | None = None
    labels: tuple[float, ...] = ()
    trim: Callable[[float], Trimmed] | None = None
    swapped_trim: Callable[[float], Trimmed] | None = None
    order: Order | None = None
    adaptive: Triangles | None = None
    levels: Callable[[], tuple[tuple[int, Any], ...]] | None = None

    @property
    def shapes(self) -> tuple[tuple[Curve, int], ...]:
        """The rounds, or one curve for each shape with the number of its rounds."""
        return self.rounds

    @property
    def places(self) -> tuple[Array, NDArray[np.int64]] | None:
        """Shifts of all rounds in one family, with counts; None if there is none."""
        return None

    @property
    def different(self) -> int:
        """The number of different rounds; 0 for a curve that is no composition."""
        return len(self.rounds)


class Later(Components):
    """The components of a composition that lists its rounds when they are first read.

    Args:
        shapes: one curve for each shape, with the number of its rounds.
        places: the shifts of the rounds in their family, and their counts.
        listed: returns the rounds.
    """

    def __init__(
        self,
        shapes: tuple[tuple[Curve, int], ...],
        places: tuple[Array, NDArray[np.int64]],
        listed: Callable[[], tuple[tuple[Curve, int], ...]],
    ) -> None:
        object.__setattr__(self, "_shapes", shapes)
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_listed", listed)

    @property
    def shapes(self) -> tuple[tuple[Curve, int], ...]:
        """One curve for each shape, with the number of its rounds."""
        found: tuple[tuple[Curve, int], ...] = self.__dict__["_shapes"]
        return found

    @property
    def different(self) -> int:
        """The number of different rounds."""
        return len(self.places[0])

    @property
    def places(self) -> tuple[Array, NDArray[np.int64]]:
        """Shifts of all rounds in their family, with counts."""
        found: tuple[Array, NDArray[np.int64]] = self.__dict__["_places"]
        return found

    @property
    def rounds(self) -> tuple[tuple[Curve, int], ...]:
        """The curves of all rounds with their counts."""
        found: tuple[tuple[Curve, int], ...] = self.__dict__["_listed"]()
        return found

    @property
    def inside(self) -> tuple[Curve, ...]:
        """The curves of all rounds."""
        return tuple(curve for curve, _ in self.rounds)


ONE = Components()
"""The components of a curve that is not made of others."""


def parts_of(curve: Curve) -> tuple[tuple[Curve, int], ...]:
    """Return the composed curves with their counts; for a single round, itself and 1."""
    return curve.components().rounds or ((curve, 1),)


def shapes_of(curve: Curve) -> tuple[tuple[Curve, int], ...]:
    """Return ``parts_of``, or one curve for each shape of a composition with many rounds."""
    return curve.components().shapes or ((curve, 1),)


def different_in(curve: Curve) -> int:
    """Return the number of different rounds of a composition; 1 for any other curve."""
    return curve.components().different or 1


def is_composed(curve: Curve) -> bool:
    """Return whether the curve is a composition of several rounds."""
    return bool(curve.components().shapes)


def count_of(curve: Curve) -> int:
    """Return the number of composed rounds."""
    return sum(count for _, count in shapes_of(curve))


def kinds(curve: Curve) -> tuple[Curve, ...]:
    """Return the curves of all kinds; the curve itself if there is only one kind."""
    return curve.components().kinds or (curve,)


def gaussian_shift(curve: Curve) -> float | None:
    """Return mu if the curve is known to be N(mu, 1) against N(0, 1), else None."""
    order = curve.components().order
    draws = None if order is None else order.draws
    return draws.shift if draws is not None and draws[:2] == (1, 1.0) else None


def any_inside(curve: Curve, holds: Callable[[Curve], bool]) -> bool:
    """Return whether a property holds for the curve or for any curve that it is built from."""
    made = curve.components()
    inside = [one for one, _ in made.shapes] or made.inside
    return holds(curve) or any(any_inside(one, holds) for one in inside)


def trim(curve: Curve, allowed: float) -> Trimmed:
    """Return a curve without its rarest components, whose mass moves to the likeliest one.

    One round in a billion with a hundredfold shift makes every moment huge but does not matter for
    delta = 1e-5. Its mass m is moved to the likeliest component. This changes P, or the law of a
    label that both data sets share, by at most m in total variation. Over T rounds the change is at
    most T m. A profile H_a(P, Q) is 1-Lipschitz in P, and in the law of the shared label, so it
    moves by at most T m in either direction. It is a-Lipschitz in Q, with a = e^epsilon. So mass
    moved within Q counts e^epsilon times, which is bounded up to the largest relevant epsilon.

    Args:
        curve: one orientation.
        allowed: largest allowed error of the profile.
    """
    remove = curve.components().trim
    return Trimmed(curve, 0.0) if remove is None else remove(allowed)


def moved(
    weighted: Sequence[tuple[float, T]], allowed: float
) -> tuple[tuple[tuple[float, T], ...], float]:
    """Return the parts, the rarest weights moved to the largest, and that mass, rounded up."""
    weights = [weight for weight, _ in weighted]
    kept, mass = list(weights), 0.0
    largest = weights.index(max(weights))
    # The rarest first, as long as the moved mass stays within the allowed error.
    for k in sorted(range(len(weights)), key=weights.__getitem__):
        if k == largest or rounded_up(mass + weights[k], THOUSANDS) > allowed:
            # In increasing order: after the first that does not fit, none does; the likeliest is
            # last.
            break
        mass += weights[k]
        kept[k] = 0.0
    kept[largest] += mass
    left = tuple((w, part) for w, (_, part) in zip(kept, weighted, strict=True) if w > 0)
    return left, rounded_up(mass, THOUSANDS)
