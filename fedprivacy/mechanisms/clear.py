"""A sum that is released without noise: no accountant prices it, and an audit has to name it."""

from __future__ import annotations

from dataclasses import dataclass

from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Facts, Unit
from .base import UnitGiven
from .upload import NO_NOISE

SHOWN = "without noise a sum reveals whether the unit is in it, so epsilon is infinite"
"""Why no finite epsilon holds."""
CLEAR_WITNESS = "one unit sends C u, every other sends 0, and no noise hides the difference"
"""Two neighbouring data sets that the sum tells apart for certain."""


@dataclass(frozen=True, kw_only=True)
class WithoutNoise(UnitGiven):
    """A sum of clipped contributions without noise; records of other programs may hold one.

    Args:
        unit: "client" or "record"; may be left out.
    """

    unit: Unit | str | None = None

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return an unbounded loss."""
        return PrivacyLoss(NO_NOISE, facts, Witness(NO_NOISE, CLEAR_WITNESS, free=True), (SHOWN,))
