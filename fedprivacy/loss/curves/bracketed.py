"""Many different rounds of one shape: put together, each between two rounds of its shape.

An epoch's law, or a round's of a dozen labels, takes some tenths of a second to make, so that a
thousand different ones are too many. ``ordered`` has what dominates each of several, and what each
of several dominates; of a group of neighbours these two are used in place of every one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...registry import registered
from .composed import Composed
from .composed import compose as composed
from .curve import TAIL_MASS, Curve
from .gaussian import GaussianMix
from .lattice import Array, Lattice, Side, Tails
from .least_of import LeastOf
from .max_loss import MaxLoss
from .opposed import Opposed
from .ordered import Unordered, bound, place

MOST = 48
"""So many different rounds of one kind are accounted one by one."""

_TIMES: dict[type[Curve], int] = {GaussianMix: 3}
"""Of what takes less time there are so many times as many."""

_PLAIN: dict[type[Curve], Callable[[Any], Curve]] = {
    Opposed: lambda curve: curve.plain,
    LeastOf: lambda curve: curve.first,
}
"""What many different curves of a kind without an order are replaced by."""

Place = tuple[float, float]
Kinds = list[tuple[Curve, int, Place]]


@registered
@dataclass(frozen=True)
class Bracketed(Curve):
    """A pair of which only one above it and one below it are used.

    Args:
        above: dominates it.
        below: is dominated by it.
    """

    above: Curve
    below: Curve

    # The two sides differ.
    exact = False

    def cover(self) -> float:
        """Return that of the curve above."""
        return self.above.cover()

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the curve on that side."""
        return self._on(side).tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the lattice of the curve on that side."""
        return self._on(side).lattice(step, side, tail_mass)

    def log_moment(self, order: float) -> float:
        """Return that of the curve above."""
        return self.above.log_moment(order)

    def swap(self) -> Curve:
        """Return both curves swapped."""
        return Bracketed(self.above.swap(), self.below.swap())

    def _on(self, side: Side) -> Curve:
        return self.above if side is Side.UP else self.below

    def max_loss(self) -> MaxLoss:
        """Return the lower curve's and the upper curve's."""
        low, high = self.below.max_loss(), self.above.max_loss()
        return MaxLoss(low.low, high.high, low.infinite_low, high.infinite_high)


def fewer(parts: Sequence[tuple[Curve, int]]) -> list[tuple[Curve, int]]:
    """Return parts of a composition, more than ``MOST`` different ones of a kind in as many groups.

    Only curves that take long are put together (``ordered.place``). What opposed data attain has no
    known order: of many such rounds it is shown what data attain that send nothing.
    """
    parts = _orderly(parts)
    counts: dict[Curve, int] = {}
    for curve, count in parts:
        counts[curve] = counts.get(curve, 0) + count
    kinds: dict[type[Curve], Kinds] = {}
    for curve, count in counts.items() if len(counts) > MOST else ():
        if (at := place(curve)) is not None:
            kinds.setdefault(type(curve), []).append((curve, count, at))
    many = [group for kind in kinds.values() for group in _groups(kind)]
    together = {curve for group in many for curve, _, _ in group}
    left = [part for part in parts if part[0] not in together]
    return [*left, *itertools.chain.from_iterable(map(_between, many))]


def _orderly(parts: Sequence[tuple[Curve, int]]) -> Sequence[tuple[Curve, int]]:
    """Return the parts, in place of many different ``Opposed`` what is attained besides.

    In place of many of which there are several that dominate the first.
    """
    for kind, plain in _PLAIN.items():
        if len({curve for curve, _ in parts if isinstance(curve, kind)}) > MOST:
            parts = [(plain(one) if isinstance(one, kind) else one, n) for one, n in parts]
    return parts


def one_side(curve: Curve, side: Side) -> Curve:
    """Return a curve with what it has between two curves replaced by that of one side."""
    if isinstance(curve, Bracketed):
        return curve.above if side is Side.UP else curve.below
    if not isinstance(curve, Composed) or not any(isinstance(c, Bracketed) for c, _ in curve.parts):
        return curve
    return composed((one_side(part, side), count) for part, count in curve.parts)


def _groups(kind: Kinds) -> list[Kinds]:
    """Return rounds in ``MOST`` groups, none if there are not so many: the widest is halved."""
    most = MOST * _TIMES.get(type(kind[0][0]), 1)
    groups = [kind] if len(kind) > most else []
    while 0 < len(groups) < most:
        # Of rounds that do not differ in doubles all widths are 0: one alone is not halved.
        widest = max(groups, key=lambda group: (len(group) > 1, max(_width(group))))
        groups.remove(widest)
        shift, chance = _width(widest)
        widest.sort(key=lambda one: one[2][0 if shift >= chance else 1])
        groups += [widest[: len(widest) // 2], widest[len(widest) // 2 :]]
    return groups


def _width(group: Kinds) -> Place:
    """Return how far apart the rounds' losses are, about: through the shift, and the chance."""
    shifts, chances = zip(*(at for _, _, at in group), strict=True)
    return max(shifts) - min(shifts), max(chances) - min(chances)


def _between(group: Kinds) -> list[tuple[Curve, int]]:
    """Return a curve that stands for every round of a group, and how many these are."""
    curves = [curve for curve, _, _ in group]
    try:
        above, below = (bound(curves, side) for side in (Side.UP, Side.DOWN))
    except Unordered:
        return [(curve, count) for curve, count, _ in group]
    return [(above if above == below else Bracketed(above, below), sum(n for _, n, _ in group))]
