"""One of several pairs that all dominate: each is true, so the one that says least is taken."""

from __future__ import annotations

from dataclasses import dataclass

from ...registry import registered
from .composed import Composed
from .composed import compose as composed
from .curve import TAIL_MASS, Curve
from .lattice import Array, Lattice, Side, Tails
from .max_loss import MaxLoss


@registered
@dataclass(frozen=True)
class LeastOf(Curve):
    """Pairs of which each dominates the same round.

    A question is asked of a run with the first in every such round, with the second in every such
    round and so on (``readings``), and the closest answer counts. Inside another curve the first
    stands for all.

    Args:
        curves: at least two.
    """

    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        if len(self.curves) < 2:
            raise ValueError(f"LeastOf: there must be two curves or more, got {len(self.curves)}")

    # The others may say less than its tails.
    exact = False

    @property
    def first(self) -> Curve:
        """What stands for all where one is needed."""
        return self.curves[0]

    @property
    def symmetric(self) -> bool:
        """Whether every curve is."""
        return all(curve.symmetric for curve in self.curves)

    def cover(self) -> float:
        """Return the least of theirs."""
        return min(curve.cover() for curve in self.curves)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the first's."""
        return self.first.tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the first's."""
        return self.first.lattice(step, side, tail_mass)

    def log_moment(self, order: float) -> float:
        """Return the least of theirs."""
        return min(curve.log_moment(order) for curve in self.curves)

    def swap(self) -> Curve:
        """Return all curves swapped."""
        return LeastOf(tuple(curve.swap() for curve in self.curves))

    def max_loss(self) -> MaxLoss:
        """Return the least of the curves'."""
        found = [one.max_loss() for one in self.curves]
        return min(found, key=lambda one: (one.infinite_high, one.high))._replace(
            low=min(one.low for one in found), infinite_low=min(one.infinite_low for one in found)
        )


def readings(curve: Curve) -> tuple[Curve, ...]:
    """Return the curves that all dominate; of a composition those with one choice throughout."""
    if isinstance(curve, LeastOf):
        return curve.curves
    parts = curve.parts if isinstance(curve, Composed) else ()
    several = [part for part, _ in parts if isinstance(part, LeastOf)]
    if not several:
        return (curve,)
    most = max(len(one.curves) for one in several)
    return tuple(composed((_choice(part, k), n) for part, n in parts) for k in range(most))


def _choice(curve: Curve, k: int) -> Curve:
    return curve.curves[min(k, len(curve.curves) - 1)] if isinstance(curve, LeastOf) else curve
