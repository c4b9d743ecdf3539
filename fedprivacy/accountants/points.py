"""The (epsilon, delta) points of a run's rounds, many at a time for rounds of Gaussian pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..loss import Curve, Side, orientations
from ..loss.curves.between import readings
from ..loss.curves.components import UnitDraws, parts_of
from ..loss.curves.lattice import Array
from ..loss.strategies import direct
from ..rounding import rounded_down

_SEVERAL = 16
"""From this number of kinds on, the epsilons of Gaussian pairs are searched together."""


class Point(NamedTuple):
    """``times`` rounds that are (epsilon, delta)-DP each."""

    epsilon: float
    delta: float
    times: int


class _Pair(NamedTuple):
    """A Gaussian pair that decides a curve's epsilons: a sampled one, or one of three means."""

    drawn: bool
    swapped: bool
    draws: UnitDraws
    weight: float
    """Probability of the only label that loses anything."""

    @classmethod
    def of(cls, half: Curve, swapped: bool) -> _Pair | None:
        """Return the pair of a curve, if it has one."""
        weight, components = 1.0, half.components()
        if len(components.labels) == 2 and components.inside[0].support().cover == 0.0:
            weight, components = components.labels[1], components.inside[1].components()
        draws = None if components.order is None else components.order.draws
        if draws is None or draws.shift <= 0.0 or draws.rank > 1:
            return None
        drawn = draws.rank == 0
        if drawn and (swapped or not 0.0 < draws.chance < 1.0):
            return None
        return cls(drawn, swapped, draws, weight)


def _pairs(curve: Curve) -> list[_Pair]:
    """Return the pairs that decide the epsilons of both orders; none if one is unknown.

    Only the epsilons that are at least 0 count, so one half of a fold answers in each order.
    """
    upper, symmetric = curve.components().upper, curve.support().symmetric
    found = [_Pair.of(upper or curve, False)]
    if not symmetric and upper is None:
        found.append(_Pair.of(curve, True))
    elif not symmetric:
        other = curve.swap().components().upper
        found.append(None if other is None else _Pair.of(other, False))
    known = [pair for pair in found if pair is not None]
    return known if len(known) == len(found) else []


class _Alike(NamedTuple):
    """Pairs of one form: the indices of their kinds of rounds, and a row of numbers for each.

    The numbers are the chance, the shift and the weight.
    """

    drawn: bool
    swapped: bool
    rows: NDArray[np.intp]
    numbers: Array

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, _Pair]]) -> _Alike:
        """Return pairs of one form with the indices of their kinds, which increase."""
        numbers = [(one.draws.chance, one.draws.shift, one.weight) for _, one in pairs]
        first = pairs[0][1]
        rows = np.array([k for k, _ in pairs])
        return cls(first.drawn, first.swapped, rows, np.array(numbers))

    def in_family(self, shifts: Array) -> _Alike:
        """Return the pairs of a family's kinds, which differ only in their shifts, from one."""
        numbers = np.repeat(self.numbers, len(shifts), axis=0)
        numbers[:, 1] = shifts * (2.0 if self.drawn else 1.0)
        return self._replace(rows=np.arange(len(shifts)), numbers=numbers)

    def begins(self, first: _Alike) -> bool:
        """Return whether the first of these pairs is that of others."""
        return bool((self.numbers[0] == first.numbers[0]).all())

    def chosen(self, kinds: list[int]) -> _Alike:
        """Return the pairs of some kinds, whose indices increase."""
        kept = np.isin(self.rows, kinds)
        rows = np.searchsorted(kinds, self.rows[kept])
        return self._replace(rows=rows, numbers=self.numbers[kept])

    def epsilons(self, deltas: Sequence[float]) -> Array:
        """Return the pairs' epsilons, one row for each delta; infinite if they are not found."""
        chance, shift, weight = np.tile(self.numbers, (len(deltas), 1)).T
        target = np.repeat(deltas, len(self.rows))
        target = np.where(weight == 1.0, target, rounded_down(target / weight))
        if self.drawn:
            ends = direct.drawn_epsilons(chance, 0.5 * shift, target)
        else:
            ends = direct.sampled_gaussian_epsilons(chance, shift, target, self.swapped)
        return np.where(np.isnan(ends), math.inf, ends).reshape(len(deltas), -1)


class RoundKinds(NamedTuple):
    """Kinds of rounds.

    Attributes:
        counts: number of rounds of each kind.
        pairs: the Gaussian pairs of the kinds for which those of both orders are known.
        parts: returns the parts of the run; those of a schedule are made only if they are needed.
        places: places of the kinds among the parts.
    """

    counts: list[int]
    pairs: list[_Alike]
    parts: Callable[[], Sequence[tuple[Curve, int]]]
    places: Sequence[int]

    @classmethod
    def of(cls, curve: Curve) -> RoundKinds:
        """Return the rounds of a composition."""
        made = curve.components()
        if made.places is not None:
            shifts, counts = made.places
            (first, _), *_ = made.shapes
            alone = [_Alike.of([(0, pair)]) for pair in _pairs(first)]
            alike = [one.in_family(shifts) for one in alone]
            # The place of the first round must have its pairs.
            if alike and all(map(_Alike.begins, alike, alone)):
                return cls(counts.tolist(), alike, lambda: parts_of(curve), range(len(counts)))
        return cls.listed(parts_of(curve))

    @classmethod
    def listed(cls, parts: Sequence[tuple[Curve, int]]) -> RoundKinds:
        """Return rounds from their curves; the pairs of a few are not needed."""
        forms: dict[tuple[bool, bool], list[tuple[int, _Pair]]] = {}
        for k, (curve, _) in enumerate(parts if len(parts) >= _SEVERAL else ()):
            for pair in _pairs(curve):
                forms.setdefault((pair.drawn, pair.swapped), []).append((k, pair))
        alike = [_Alike.of(pairs) for pairs in forms.values()]
        return cls([count for _, count in parts], alike, lambda: parts, range(len(parts)))

    @property
    def number(self) -> int:
        """Number of all rounds."""
        return sum(self.counts)

    @property
    def curves(self) -> list[Curve]:
        """The kinds' curves."""
        parts = self.parts()
        return [parts[k][0] for k in self.places]

    def middles(self, step: int) -> RoundKinds:
        """Return the middle of every ``step`` kinds, with the number of their rounds."""
        every = range(len(self.counts))
        groups = [every[i : i + step] for i in every[::step]]
        kinds = [group[len(group) // 2] for group in groups]
        return self._replace(
            counts=[sum(self.counts[k] for k in group) for group in groups],
            pairs=[few for one in self.pairs if len((few := one.chosen(kinds)).rows)],
            places=[self.places[k] for k in kinds],
        )


def points_of(rounds: RoundKinds, delta: float) -> list[Point]:
    """Return each kind's epsilon at the same per-round delta, in the worse orientation."""
    return points_at(rounds, [delta])[0]


def points_at(rounds: RoundKinds, deltas: Sequence[float]) -> list[list[Point]]:
    """Return ``points_of`` at several per-round deltas, many at a time where that is possible."""
    found = _together(rounds, deltas)
    for ends, delta in zip(found, deltas, strict=True):
        left = np.flatnonzero(~np.isfinite(ends))
        if len(left):
            ends[left] = _one_by_one(rounds, delta, left.tolist())
    return [
        [Point(end, delta, count) for end, count in zip(ends, rounds.counts, strict=True)]
        for ends, delta in zip(found.tolist(), deltas, strict=True)
    ]


def _one_by_one(rounds: RoundKinds, delta: float, left: list[int]) -> list[float]:
    """Return the epsilons of some kinds; of many kinds each one gives a guess for the next."""
    curves = rounds.curves
    many = len(curves) >= _SEVERAL and delta > 0.0
    near, found = _Near(), dict[int, float]()
    for k in sorted(left, key=lambda k: curves[k].support().cover) if many else left:
        guess = near.guess(curves[k]) if many else math.nan
        found[k] = min(_worse(one, delta, guess) for one in readings(curves[k]))
        near.known(curves[k], found[k])
    return [found[k] for k in left]


def _together(rounds: RoundKinds, deltas: Sequence[float]) -> Array:
    """Return the epsilons of kinds with known pairs, one row for each delta.

    Those of other kinds are not finite, nor are those that only a search of one curve finds.
    """
    found = np.full((len(deltas), len(rounds.counts)), -math.inf)
    for alike in rounds.pairs if min(deltas) > 0.0 else ():
        for known, ends in zip(found, alike.epsilons(deltas), strict=True):
            np.maximum.at(known, alike.rows, ends)
    return found


def _worse(curve: Curve, delta: float, near: float = math.nan) -> float:
    """Return the epsilon at a delta in the worse orientation; ``near`` is a guess."""
    first, *others = orientations(curve)
    found = direct.epsilon(first, delta, Side.UP, near)
    for other in others:
        # If the epsilon found also suffices here, a second search would not raise it.
        if math.isfinite(found) and not direct.delta(other, np.array([found]), Side.UP)[0] <= delta:
            found = max(found, direct.epsilon(other, delta, Side.UP))
    return found


class _Near:
    """Guesses the epsilons of similar curves in turn, by a power of the cover."""

    def __init__(self) -> None:
        self._last: list[tuple[float, float]] = []

    def guess(self, curve: Curve) -> float:
        """Return a guess, NaN if nothing is known."""
        cover = curve.support().cover
        if len(self._last) < 2 or not 0.0 < cover < math.inf:
            return math.nan
        (x, a), (y, b) = self._last
        power = math.log(b / a) / math.log(y / x) if x != y else 0.0
        return float(b * (cover / y) ** min(max(power, 0.0), 10.0))

    def known(self, curve: Curve, epsilon: float) -> None:
        """Keep the last two epsilons."""
        cover = curve.support().cover
        if 0.0 < cover < math.inf and 0.0 < epsilon < math.inf:
            self._last = [*self._last[-1:], (cover, epsilon)]
