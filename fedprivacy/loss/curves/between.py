"""Curves known only by others: by several of one side, or by one above and one below.

``LeastOf`` holds several pairs that each dominate the same round, ``MostOf`` several attained
pairs. ``Bracketed`` holds a pair that dominates and a pair that is dominated. Long compositions use
it: the law of an epoch, or of a round with a dozen labels, takes some tenths of a second to
compute, and a thousand different laws take too long. For a group of neighbours, a curve above all
and a curve below all (``order``) replace every round.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ...registry import registered
from ..moments.moments import MomentBounds, Moments
from .components import Components, Order, Position, Unordered, parts_of, shapes_of
from .composed import compose as composed
from .curve import TAIL_MASS, Curve
from .inner_draws import InnerDraws
from .lattice import Array, Lattice, Side, Tails
from .max_loss import MaxLoss
from .order import bound
from .support import Support

MOST = 48
"""Up to this number, different rounds of one kind are accounted separately."""

Group = list[tuple[Curve, int, Position]]


@registered
@dataclass(frozen=True)
class LeastOf(Curve):
    """Several pairs that each dominate the same round.

    A question about a run is answered with the first pair in every round of this kind, then with
    the second pair in every round, and so on (``readings``). The tightest answer counts. Inside
    another curve the first pair represents all.

    Args:
        curves: at least two, or one if there is a usual one.
        usual: a further pair, which gives the tightest answer unless it is out of its range.
    """

    curves: tuple[Curve, ...]
    usual: InnerDraws | None = None

    def __post_init__(self) -> None:
        if len(self.every) < 2:
            raise ValueError(f"LeastOf: there must be two curves or more, got {len(self.curves)}")

    @property
    def every(self) -> tuple[Curve, ...]:
        """All curves, the usual one at the end."""
        return self.curves if self.usual is None else (*self.curves, self.usual)

    @property
    def first(self) -> Curve:
        """The curve that represents all if one is needed."""
        return self.curves[0]

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the first curve."""
        return self.first.tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the lattice of the first curve."""
        return self.first.lattice(step, side, tail_mass)

    def moments(self) -> Moments:
        """Return the smallest of the log-moments."""
        each = [curve.moments() for curve in self.curves]
        return MomentBounds(lambda order: min(one.log_moment(order) for one in each))

    def support(self) -> Support:
        """Return the smallest of the largest losses of the curves, and the smallest cover."""
        each = [curve.support() for curve in self.curves]
        # The other curves may give less than the tails of the first.
        return Support(
            largest=lambda: _smallest([one.largest for one in each]),
            symmetric=lambda: all(one.symmetric for one in each),
            exact=False,
            cover=lambda: min(one.cover for one in each),
        )

    def components(self) -> Components:
        """Return the choices; among many different curves the first represents all."""
        return Components(
            choices=self.every, usual=self.usual is not None, simpler=lambda: self.first
        )

    def swap(self) -> Curve:
        """Return all curves swapped."""
        usual = None if self.usual is None else self.usual.swap()
        return LeastOf(tuple(curve.swap() for curve in self.curves), usual)


@registered
@dataclass(frozen=True)
class MostOf(Curve):
    """Several pairs that data sets attain, each with data sets of its own.

    Questions are answered as for ``LeastOf``, but the largest answer counts. Inside another curve
    the first pair represents all, which is valid from below.

    Args:
        curves: at least two; the last takes the least time if it has an order.
    """

    curves: tuple[Curve, ...]

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the first curve."""
        return self.curves[0].tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the lattice of the first curve."""
        return self.curves[0].lattice(step, side, tail_mass)

    def moments(self) -> Moments:
        """Return the largest of the log-moments."""
        each = [curve.moments() for curve in self.curves]
        return MomentBounds(lambda order: max(one.log_moment(order) for one in each))

    def support(self) -> Support:
        """Return the largest of the largest losses of the curves, and the largest cover."""
        each = [curve.support() for curve in self.curves]
        return Support(
            largest=lambda: max((one.largest for one in each), key=lambda one: one.certain),
            exact=False,
            cover=lambda: max(one.cover for one in each),
        )

    def components(self) -> Components:
        """Return the choices; among many different curves the last represents all."""
        return Components(choices=self.curves, most=True, simpler=lambda: self.curves[-1])

    def swap(self) -> Curve:
        """Return all curves swapped."""
        return MostOf(tuple(curve.swap() for curve in self.curves))


def _smallest(found: Sequence[MaxLoss]) -> MaxLoss:
    """Return the smallest of several largest losses, all of them valid."""
    return min(found, key=lambda one: (one.infinite_high, one.high))._replace(
        low=min(one.low for one in found), infinite_low=min(one.infinite_low for one in found)
    )


def readings(curve: Curve) -> tuple[Curve, ...]:
    """Return the curves to choose from; for a composition those with one choice throughout."""
    if not any(len(part.components().choices) > 1 for part, _ in shapes_of(curve)):
        return (curve,)
    parts = [(part.components().choices or (part,), count) for part, count in parts_of(curve)]
    most = max(len(choices) for choices, _ in parts)
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    every = range(most)
    return tuple(composed((each[min(k, len(each) - 1)], n) for each, n in parts) for k in every)


def usual_reading(curve: Curve) -> Curve | None:
    """Return the last of the ``readings`` if it is usually the tightest, else None."""
    made = [part.components() for part, _ in shapes_of(curve)]
    known = all(one.usual for one in made if one.choices) and any(one.choices for one in made)
    return readings(curve)[-1] if known else None


@registered
@dataclass(frozen=True)
class Bracketed(Curve):
    """A pair represented only by a curve above it and a curve below it.

    Args:
        above: dominates the pair.
        below: is dominated by the pair.
    """

    above: Curve
    below: Curve

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the curve on that side."""
        return self._on(side).tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the lattice of the curve on that side."""
        return self._on(side).lattice(step, side, tail_mass)

    def moments(self) -> Moments:
        """Return the log-moments of the curve above."""
        return MomentBounds(self.above.moments().log_moment)

    def support(self) -> Support:
        """Return the lower ends of the curve below and the upper ends of the curve above."""
        above, below = self.above.support(), self.below.support()
        return Support(
            largest=lambda: _within(below.largest, above.largest),
            exact=False,
            cover=lambda: above.cover,
        )

    def components(self) -> Components:
        """Return the curves on both sides."""
        return Components(sides=(self.above, self.below))

    def swap(self) -> Curve:
        """Return both curves swapped."""
        return Bracketed(self.above.swap(), self.below.swap())

    def _on(self, side: Side) -> Curve:
        return self.above if side is Side.UP else self.below


def _within(low: MaxLoss, high: MaxLoss) -> MaxLoss:
    return MaxLoss(low.low, high.high, low.infinite_low, high.infinite_high)


def one_side(curve: Curve, side: Side) -> Curve:
    """Return a curve with each bracketed part replaced by its curve on one side."""
    place = 0 if side is Side.UP else 1
    components = curve.components()
    if components.sides is not None:
        return components.sides[place]
    if not any(part.components().sides for part, _ in components.shapes):
        return curve
    return composed((one_side(part, side), count) for part, count in components.rounds)


def fewer(parts: Sequence[tuple[Curve, int]]) -> list[tuple[Curve, int]]:
    """Return parts of a composition, with groups in place of many different curves of one kind.

    A kind with more than ``MOST`` different curves is replaced by ``MOST`` groups (by a multiple of
    both for kinds that take less time, ``Order.groups``). Only curves that take long are grouped
    (``Order.position``). The pair that opposed data attain has no known order. With many rounds
    like that, the attained pair is instead that of data whose other units send 0.
    """
    if len(parts) <= MOST:
        return list(parts)
    parts = _orderly(parts)
    counts: dict[Curve, int] = {}
    for curve, count in parts:
        counts[curve] = counts.get(curve, 0) + count
    kinds: dict[type[Curve], tuple[Order, Group]] = {}
    for curve, count in counts.items() if len(counts) > MOST else ():
        order = curve.components().order
        if order is not None and order.position is not None:
            kinds.setdefault(type(curve), (order, []))[1].append((curve, count, order.position))
    many = [group for order, kind in kinds.values() for group in _groups(kind, order.groups)]
    together = {curve for group in many for curve, _, _ in group}
    left = [part for part in parts if part[0] not in together]
    return [*left, *itertools.chain.from_iterable(map(_between, many))]


def _orderly(parts: Sequence[tuple[Curve, int]]) -> Sequence[tuple[Curve, int]]:
    """Return the parts, with simpler curves in place of many different ones that state some."""
    several: dict[type[Curve], set[Curve]] = {}
    for curve, _ in parts:
        if curve.components().simpler is not None:
            several.setdefault(type(curve), set()).add(curve)
    many = {kind for kind, curves in several.items() if len(curves) > MOST}
    return [(_simpler(curve) if type(curve) in many else curve, count) for curve, count in parts]


def _simpler(curve: Curve) -> Curve:
    make = curve.components().simpler
    return curve if make is None else make()


def _groups(kind: Group, times: int) -> list[Group]:
    """Return rounds in ``MOST`` groups, or none if there are fewer rounds: the widest is halved."""
    most = MOST * times
    groups = [kind] if len(kind) > most else []
    while 0 < len(groups) < most:
        # Rounds that do not differ in doubles have width 0; a single round is never halved.
        widest = max(groups, key=lambda group: (len(group) > 1, max(_width(group))))
        groups.remove(widest)
        shift, chance = _width(widest)
        widest.sort(key=lambda one: one[2][0 if shift >= chance else 1])
        groups += [widest[: len(widest) // 2], widest[len(widest) // 2 :]]
    return groups


def _width(group: Group) -> Position:
    """Return the approximate spread of the rounds' losses: through the shift, and the chance."""
    shifts, chances = zip(*(at for _, _, at in group), strict=True)
    return max(shifts) - min(shifts), max(chances) - min(chances)


def _between(group: Group) -> list[tuple[Curve, int]]:
    """Return a curve that represents every round of a group, and the number of rounds."""
    curves = [curve for curve, _, _ in group]
    try:
        above, below = (bound(curves, side) for side in (Side.UP, Side.DOWN))
    except Unordered:
        return [(curve, count) for curve, count, _ in group]
    return [(above if above == below else Bracketed(above, below), sum(n for _, n, _ in group))]
