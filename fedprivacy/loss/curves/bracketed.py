"""Groups of many different rounds of one shape, each group between two rounds of its shape.

The law of an epoch, or of a round with a dozen labels, takes some tenths of a second to compute. A
thousand different laws take too long. ``ordered`` gives a curve that dominates each of several
curves, and a curve that each of these dominates. For a group of neighbours, these two replace every
round.
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
"""Up to this number, different rounds of one kind are accounted separately."""

_TIMES: dict[type[Curve], int] = {GaussianMix: 3}
"""Factors for kinds that take less time."""

_PLAIN: dict[type[Curve], Callable[[Any], Curve]] = {
    Opposed: lambda curve: curve.plain,
    LeastOf: lambda curve: curve.first,
}
"""Replacements for many different curves of a kind without an order."""

Place = tuple[float, float]
Kinds = list[tuple[Curve, int, Place]]


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

    # The two sides differ.
    exact = False

    def cover(self) -> float:
        """Return the cover of the curve above."""
        return self.above.cover()

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the curve on that side."""
        return self._on(side).tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the lattice of the curve on that side."""
        return self._on(side).lattice(step, side, tail_mass)

    def log_moment(self, order: float) -> float:
        """Return the log-moment of the curve above."""
        return self.above.log_moment(order)

    def swap(self) -> Curve:
        """Return both curves swapped."""
        return Bracketed(self.above.swap(), self.below.swap())

    def _on(self, side: Side) -> Curve:
        return self.above if side is Side.UP else self.below

    def max_loss(self) -> MaxLoss:
        """Return the lower end of the curve below and the upper end of the curve above."""
        low, high = self.below.max_loss(), self.above.max_loss()
        return MaxLoss(low.low, high.high, low.infinite_low, high.infinite_high)


def fewer(parts: Sequence[tuple[Curve, int]]) -> list[tuple[Curve, int]]:
    """Return parts of a composition, with groups in place of many different curves of one kind.

    A kind with more than ``MOST`` different curves is replaced by ``MOST`` groups (a multiple of
    both, in ``_TIMES``, for kinds that take less time). Only curves that take long are grouped
    (``ordered.place``). The pair that opposed data attain has no known order. With many rounds like
    that, the attained pair is instead that of data whose other units send 0.
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
    """Return the parts, with a simpler attained pair in place of many different ``Opposed``.

    Many different ``LeastOf`` are replaced by their first curves.
    """
    for kind, plain in _PLAIN.items():
        if len({curve for curve, _ in parts if isinstance(curve, kind)}) > MOST:
            parts = [(plain(one) if isinstance(one, kind) else one, n) for one, n in parts]
    return parts


def one_side(curve: Curve, side: Side) -> Curve:
    """Return a curve with each bracketed part replaced by its curve on one side."""
    if isinstance(curve, Bracketed):
        return curve.above if side is Side.UP else curve.below
    if not isinstance(curve, Composed) or not any(isinstance(c, Bracketed) for c, _ in curve.parts):
        return curve
    return composed((one_side(part, side), count) for part, count in curve.parts)


def _groups(kind: Kinds) -> list[Kinds]:
    """Return rounds in ``MOST`` groups, or none if there are fewer rounds: the widest is halved."""
    most = MOST * _TIMES.get(type(kind[0][0]), 1)
    groups = [kind] if len(kind) > most else []
    while 0 < len(groups) < most:
        # Rounds that do not differ in doubles have width 0; a single round is never halved.
        widest = max(groups, key=lambda group: (len(group) > 1, max(_width(group))))
        groups.remove(widest)
        shift, chance = _width(widest)
        widest.sort(key=lambda one: one[2][0 if shift >= chance else 1])
        groups += [widest[: len(widest) // 2], widest[len(widest) // 2 :]]
    return groups


def _width(group: Kinds) -> Place:
    """Return the approximate spread of the rounds' losses: through the shift, and the chance."""
    shifts, chances = zip(*(at for _, _, at in group), strict=True)
    return max(shifts) - min(shifts), max(chances) - min(chances)


def _between(group: Kinds) -> list[tuple[Curve, int]]:
    """Return a curve that represents every round of a group, and the number of rounds."""
    curves = [curve for curve, _, _ in group]
    try:
        above, below = (bound(curves, side) for side in (Side.UP, Side.DOWN))
    except Unordered:
        return [(curve, count) for curve, count, _ in group]
    return [(above if above == below else Bracketed(above, below), sum(n for _, n, _ in group))]
