"""Privacy-loss distributions: a certified interval around the dominating pair's number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ..loss import Curve, orientations
from ..loss.clock import left, time_limit
from ..loss.curves.between import usual_reading
from ..loss.strategies.queries import DeltaAt, EpsilonAt, Interval
from ..loss.strategies.search import deltas, interval
from ..privacy_loss import PrivacyLoss
from .base import NOTHING, Accountant, Answer

_ATTAINED = 1e-3
"""Acceptable relative distance of an attained pair's number below its supremum."""
_ROUGH = 100.0
"""In tolerances: width of a first answer that shows the size of an attained number."""


_MOST = 0.9
"""Largest floor of a delta: no delta is above 1, and a floor of 1 has no tilt."""


_Ask = Callable[[Curve, float, float], Interval]
"""Brackets one orientation of a curve: (curve, floor, tolerance)."""


class PldAccountant(Accountant):
    """Composes privacy-loss distributions.

    Both ends are certified. ``fedprivacy.loss.strategies`` has one file for each strategy.
    ``search`` decides their order:

    - a single curve is answered from its tails;
    - ``inversion`` takes the moments of a composition on a line of the complex plane, in
      milliseconds for any number of rounds;
    - ``tail_splitting`` splits rounds where their loss becomes large, if no line suits them all;
    - ``convolution`` refines a lattice that dominates the pair and another that it dominates.
    """

    name: ClassVar[str] = "pld"
    interruptible: ClassVar[bool] = True
    spares: ClassVar[bool] = True

    def __init__(self, *, tolerance: float = 1e-3, deadline: float | None = None) -> None:
        super().__init__(tolerance=tolerance, deadline=deadline)
        self._foreseen: dict[Curve, dict[float, Interval]] = {}

    def foresee(self, epsilons: Sequence[float]) -> None:
        """Compute delta at many epsilons for everything composed, with shared work."""
        at = np.array(epsilons, dtype=np.float64)
        # At infinity the answer is the mass at infinite loss, so no line must reach that far.
        at = at[np.isfinite(at)]
        self._foreseen = {}
        for loss in self._kinds(self.loss):
            curves = [loss.curve] + ([loss.witness.curve] if loss.witness else [])
            # A witness is often the pair itself: each curve is computed once.
            for one in {one: None for curve in curves for one in orientations(curve)}:
                with time_limit(self.deadline):
                    self._foreseen[one] = deltas(one, at, self.tolerance)

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        def ask(curve: Curve, floor: float, tolerance: float) -> Interval:
            beside = (self.ceiling, self.spare)
            return interval(EpsilonAt.of(curve, delta, tolerance, floor, *beside))

        return _answer(loss, ask, self.tolerance, relative=False)

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        def ask(curve: Curve, floor: float, tolerance: float) -> Interval:
            known = self._foreseen.get(curve, {}).get(epsilon)
            return known or interval(DeltaAt(curve, tolerance, min(floor, _MOST), epsilon))

        return _answer(loss, ask, self.tolerance, relative=True)


def epsilon_interval(curve: Curve, delta: float, tolerance: float = 1e-3) -> tuple[float, float]:
    """Return certified (low, high) of epsilon at a delta for this one orientation of a curve."""
    found = interval(EpsilonAt.of(curve, delta, tolerance, 0.0))
    return found.low, found.high


def delta_interval(curve: Curve, epsilon: float, tolerance: float = 1e-3) -> tuple[float, float]:
    """Return certified (low, high) of delta at an epsilon >= 0 for this one orientation."""
    found = interval(DeltaAt(curve, tolerance, 0.0, epsilon))
    return found.low, min(found.high, 1.0)


def _answer(loss: PrivacyLoss, ask: _Ask, tolerance: float, relative: bool) -> Answer:
    """Bracket the worse orientation of the dominating pair, then the attained pair from below.

    If the two pairs are equal, the first bracket suffices. Otherwise the second only gives the
    attained end. Its tolerance is a share of the answer, if that is larger.
    """
    worst = _worst(loss.curve, ask, tolerance)
    attained = NOTHING
    if loss.witness is not None and loss.witness.curve == loss.curve:
        attained = worst.low
    # Out of time: the attained pair is left out, because 0 is also a lower end.
    elif loss.witness is not None and left() > 0.0:
        shown = loss.witness.curve
        wanted = tolerance
        if not relative:
            # An attained end is compared and shown, not refined. A share of the answer is enough.
            wanted = max(tolerance, _ATTAINED * _size(loss.curve, worst, shown, ask, tolerance))
        attained = _worst(shown, ask, wanted).low
    return Answer(worst.high, max(worst.low, attained), attained, worst.method, worst.reason)


def _size(curve: Curve, worst: Interval, shown: Curve, ask: _Ask, tolerance: float) -> float:
    """Return about the number that a curve of data sets shows.

    It is near the number of the dominating curve, unless that says little about it.
    """
    if math.isinf(worst.high) or usual_reading(curve) is not None:
        return _worst(shown, ask, _ROUGH * tolerance).low
    return worst.low


def _worst(curve: Curve, ask: _Ask, tolerance: float) -> Interval:
    """Return the interval of the larger of the orientations' numbers."""
    first, *others = orientations(curve)
    worst = ask(first, 0.0, tolerance)
    above = usual_reading(curve) is not None
    for one in others:
        # The second orientation matters only if it can be the larger one.
        found = ask(one, worst.high if above else worst.low, tolerance)
        top = found if found.high > worst.high else worst
        worst = top._replace(low=max(worst.low, found.low))
    return worst
