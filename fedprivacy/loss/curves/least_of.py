"""Several pairs that all dominate: each bound is valid, so the smallest is taken."""

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
    """Several pairs that each dominate the same round.

    A question about a run is answered with the first pair in every round of this kind, then with
    the second pair in every round, and so on (``readings``). The tightest answer counts. Inside
    another curve the first pair represents all.

    Args:
        curves: at least two.
    """

    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        if len(self.curves) < 2:
            raise ValueError(f"LeastOf: there must be two curves or more, got {len(self.curves)}")

    # The other curves may give less than the tails of the first.
    exact = False

    @property
    def first(self) -> Curve:
        """The curve that represents all if one is needed."""
        return self.curves[0]

    @property
    def symmetric(self) -> bool:
        """Whether every curve is symmetric."""
        return all(curve.symmetric for curve in self.curves)

    def cover(self) -> float:
        """Return the smallest of the covers."""
        return min(curve.cover() for curve in self.curves)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the first curve."""
        return self.first.tails(loss, side)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the lattice of the first curve."""
        return self.first.lattice(step, side, tail_mass)

    def log_moment(self, order: float) -> float:
        """Return the smallest of the log-moments."""
        return min(curve.log_moment(order) for curve in self.curves)

    def swap(self) -> Curve:
        """Return all curves swapped."""
        return LeastOf(tuple(curve.swap() for curve in self.curves))

    def max_loss(self) -> MaxLoss:
        """Return the smallest of the largest losses of the curves."""
        found = [one.max_loss() for one in self.curves]
        return min(found, key=lambda one: (one.infinite_high, one.high))._replace(
            low=min(one.low for one in found), infinite_low=min(one.infinite_low for one in found)
        )


def readings(curve: Curve) -> tuple[Curve, ...]:
    """Return the curves that all dominate; for a composition those with one choice throughout."""
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
