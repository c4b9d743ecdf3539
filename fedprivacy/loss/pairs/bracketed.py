"""Many different epochs of random allocation: put together, each between two epochs of its kind.

An epoch's law takes some tenths of a second to make, so that a thousand different ones are too
many. ``Allocated`` grows with mu and falls with the number of rounds (docs/theory/allocation.md):
of several epochs the one with the largest mu and the fewest rounds of any dominates each, and the
one with the least mu and the most rounds is dominated by each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...registry import registered
from .allocation import Allocated, with_few_bits
from .curve import TAIL_MASS, Curve
from .lattice import Array, Lattice, Side, Tails

MOST = 48
"""So many different epochs are accounted one by one."""

_BITS = 6
"""So many of a group's number of rounds are kept: it is off by 1 in 32 at most."""

Epochs = list[tuple[Allocated, int]]


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

    @property
    def exact(self) -> bool:
        """False: the two sides differ."""
        return False

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


def fewer(parts: Sequence[tuple[Curve, int]]) -> list[tuple[Curve, int]]:
    """Return parts of a composition, more than ``MOST`` different epochs in as many groups."""
    counts: dict[Allocated, int] = {}
    for curve, count in parts:
        if isinstance(curve, Allocated) and not curve.swapped:
            counts[curve] = counts.get(curve, 0) + count
    if len(counts) <= MOST:
        return list(parts)
    others = [part for part in parts if part[0] not in counts]
    return others + [_between(group) for group in _groups(list(counts.items()))]


def _groups(epochs: Epochs) -> list[Epochs]:
    """Return epochs in ``MOST`` groups: again and again the widest is halved."""
    groups = [epochs]
    while len(groups) < MOST:
        # Of losses that do not differ in doubles all widths are 0: one epoch alone is not halved.
        widest = max(groups, key=lambda group: (len(group) > 1, max(_width(group))))
        groups.remove(widest)
        by_mu = _width(widest)[0] >= _width(widest)[1]
        widest.sort(key=lambda epoch: epoch[0].mu if by_mu else epoch[0].rounds)
        groups += [widest[: len(widest) // 2], widest[len(widest) // 2 :]]
    return groups


def _width(group: Epochs) -> tuple[float, float]:
    """Return how far apart the epochs' losses are, about: through mu, and through the rounds."""
    mus, rounds = zip(*((epoch.mu, epoch.rounds) for epoch, _ in group), strict=True)
    # A loss is about in proportion to mu and to one over the root of the rounds.
    most, least = (max(mu, 1e-300) for mu in (max(mus), min(mus)))
    through_mu = math.log(most) - math.log(least)
    return through_mu, 0.5 * math.log(max(rounds) / min(rounds))


def _between(group: Epochs) -> tuple[Curve, int]:
    """Return a curve that stands for every epoch of a group, and how many these are."""
    mus, rounds = zip(*((epoch.mu, epoch.rounds) for epoch, _ in group), strict=True)
    fewest = with_few_bits(min(rounds), Side.UP, _BITS)
    most = with_few_bits(max(rounds), Side.DOWN, _BITS)
    kind = group[0][0]
    above = replace(kind, mu=max(mus), rounds=fewest, coarse=True)
    below = replace(kind, mu=min(mus), rounds=most, coarse=True)
    return above if above == below else Bracketed(above, below), sum(n for _, n in group)
