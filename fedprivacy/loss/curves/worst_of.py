"""One of several curves: if units differ, neighbouring data sets differ in one unit of one kind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from ...errors import UnsupportedCombination
from ...registry import registered
from ...rounding import Up
from ..moments.moments import MomentBounds, Moments
from . import composed
from .between import fewer
from .components import Components
from .curve import Curve
from .discrete import Atoms
from .lattice import Array, Side, Tails
from .support import Support

DISJOINT = Atoms((), infinite=1.0, vanishing=1.0)
"""Two laws without a common outcome: the loss is infinite, and other outcomes cannot change that.
"""


@registered
@dataclass(frozen=True)
class AnyOf(Curve):
    """Several curves; one of these applies, but it is not known which.

    The k-th curve belongs to units of the k-th kind, in every round: ``compose`` adds them up for
    each kind, and accountants take the worst kind at the end. The supremum of the curves is not the
    profile of a pair, so there are no tails.

    Args:
        curves: one for each kind, at least one.
    """

    curves: tuple[Curve, ...]

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Refuse: the worst of several pairs is not a pair.

        Raises:
            UnsupportedCombination: always.
        """
        del loss, side
        self._refuse()

    def moments(self) -> Moments:
        """Return the largest moment of any kind: an upper bound for each."""
        return MomentBounds(self._log_moment)

    def _log_moment(self, order: float) -> Up:
        # Many kinds share a curve, so each curve is evaluated once.
        found = [curve.moments().log_moment(order) for curve in set(self.curves)]
        # max() of a NaN depends on the order; infinity is always a bound.
        return Up(math.inf if any(map(math.isnan, found)) else max(found))

    def support(self) -> Support:
        """Return whether every curve is symmetric; no other fact holds for all kinds."""
        each = [curve.support() for curve in set(self.curves)]
        return Support(
            symmetric=lambda: all(one.symmetric for one in each),
            above_only=lambda: any(one.above_only for one in each),
        )

    def components(self) -> Components:
        """Return the curves of all kinds."""
        return Components(inside=self.curves, kinds=self.curves)

    def swap(self) -> Curve:
        """Return the curves swapped, kind by kind."""
        return AnyOf(tuple(curve.swap() for curve in self.curves))

    def _refuse(self) -> NoReturn:
        raise UnsupportedCombination(
            f"the worst of {len(set(self.curves))} kinds of units has no curve, so it cannot be "
            "sampled, selected or mixed; apply the operation inside each kind of Parallel, or "
            "query one kind at a time"
        )


def compose(parts: Iterable[tuple[Curve, int]]) -> Curve:
    """Compose curves kind by kind; see ``composed.compose`` for one kind.

    Args:
        parts: (curve, count) pairs; a curve that is no ``AnyOf`` is the same for every kind.

    Raises:
        UnsupportedCombination: parts for different numbers of kinds.
    """
    given = list(parts)
    several = [(curve.components().kinds, curve, count) for curve, count in given]
    widths = sorted({len(each) for each, _, _ in several if each})
    if not widths:
        return _composed(given)
    # The k-th kind must be the same unit in every round, or sums would mix units.
    if len(widths) > 1:
        raise UnsupportedCombination(
            f"rounds for {widths} kinds of units do not compose; let every round list the same "
            "kinds in the same order"
        )
    return AnyOf(
        tuple(
            _composed([(each[k] if each else curve, count) for each, curve, count in several])
            for k in range(widths[0])
        )
    )


def _composed(parts: list[tuple[Curve, int]]) -> Curve:
    # A round that reveals everything composes to itself, and has no moments to add.
    return (
        DISJOINT if any(curve == DISJOINT for curve, _ in parts) else composed.compose(fewer(parts))
    )
