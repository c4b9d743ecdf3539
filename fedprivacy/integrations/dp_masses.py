"""Certified divergences of a run as masses on dp-accounting's lattice, and as an attacker's power.

The hockey-stick divergence h(a) is convex in a = e^epsilon. Certified upper ends at finitely many
points therefore bound h everywhere: h lies on or below the largest convex function below these
ends. This function is the divergence of a pair with finitely many losses, whose masses are its
changes of slope. The larger divergence of the two orientations is used, so one symmetric pair
dominates both. Its attacker has the true-positive rate t(x) = min over a of h(a) + a x (Dong, Roth
and Su 2022, Proposition 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from dp_accounting.pld import pld_pmf
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..errors import refuse
from ..questions.tradeoff import CurvePoints, lower_hull
from ..rounding import TENS, THOUSANDS

Array = NDArray[np.float64]
_MANY, _FINE = 800, 0.01
_FEW, _ROUGH = 100, 0.03
"""Number of epsilons, and relative width of each delta: if deltas are exact, and if not."""
_EXACT = 1e-6
_TAIL = 1e-18
_LARGEST = 500.0
_MOST = 1 << 26
_CELLS = 100_000


class CertifiedPmf(pld_pmf.DensePLDPmf):  # type: ignore[misc]
    """Dense masses of this module. dp-accounting's own masses do not compose with them."""

    def validate_composable(self, other: object) -> None:
        """Check that other masses can be composed with these.

        Raises:
            ValueError: dp-accounting's own masses, another spacing, or another estimate.
        """
        if not isinstance(other, CertifiedPmf):
            raise ValueError(
                f"masses of a {type(other).__name__} have no certificate; {_WAY_OUT}, or compose "
                "the distributions"
            )
        super().validate_composable(other)


_WAY_OUT = "make both with fedprivacy.integrations.dp_accounting"
# dp-accounting's refusal of these masses names the two classes and nothing else.
CertifiedPmf.__name__ = f"{CertifiedPmf.__qualname__} ({_WAY_OUT})"


class Divergence:
    """Upper ends of a run's divergence h, the larger of both orientations, at points of a lattice.

    Attributes:
        steps: multiples of the spacing, from 0 on, shape (n,).
        a: e^epsilon there.
        high: upper ends of h there.
        forever: upper end of the mass of infinite loss.

    Raises:
        ParameterError: the spacing has more than 2^26 points up to the largest loss.
    """

    def __init__(
        self,
        epsilon: Callable[[float], float],
        ends: Callable[[Array, float], tuple[Array, Array]],
        interval: float,
    ) -> None:
        self.interval = interval
        self.forever = float(ends(np.array([math.inf]), _FINE)[0][0])
        reach = epsilon(max(_TAIL, self.forever * (1.0 + 1e-9)))
        if not math.isfinite(reach):
            reach = epsilon(min(2.0 * self.forever + _TAIL, 1.0))
        reach = min(reach, _LARGEST)
        last = math.floor(reach / interval)
        if last > _MOST:
            refuse("value_discretization_interval", interval, f"be at least {reach / _MOST:.1g}")
        (high,), (low,) = ends(np.array([0.5 * reach]), _FINE)
        points, width = (_MANY, _FINE) if high <= low * (1.0 + _EXACT) else (_FEW, _ROUGH)
        even = np.rint(np.linspace(0, last, points)).astype(np.int64)
        # The largest loss may lie on the lattice or just above it.
        self.steps = np.unique(np.append(even, [last + 1, last + 2]))
        at: Array = np.asarray(self.steps * interval, dtype=np.float64)
        self.a: Array = np.exp(at)
        self.high: Array = np.minimum.accumulate(ends(at, width)[0])

    @cached_property
    def _corners(self) -> tuple[Array, Array]:
        """Corners (a, h) of the largest convex function below the upper ends, a from below 1."""
        a, high = self.a[1:], self.high[1:]
        # The swap of a symmetric pair: h(1/a) = 1 - 1/a + h(a) / a.
        turned = (-np.expm1(-self.steps[1:] * self.interval) + high / a) * (1.0 + TENS)
        both = np.concatenate([1.0 / a[::-1], self.a])
        ends = np.concatenate([turned[::-1], self.high])
        return lower_hull(CurvePoints(both, ends, ends))

    def true_positive_rates(self, rates: Array) -> Array:
        """Return upper ends of t at false-positive rates in [0, 1], shape (n,)."""
        a, high = self._corners
        # h + a x is smallest where x passes the negative slope of h.
        turns = -np.diff(high) / np.diff(a)
        at = np.searchsorted(-turns, -rates)
        found = (high[at] + a[at] * rates) * (1.0 + TENS)
        # At rate 0, only infinite losses count.
        found = np.where(rates > 0.0, found, self.forever)
        return np.asarray(np.clip(found, rates, 1.0))

    def gaussian_parameter(self, smallest: float) -> float:
        """Return a mu with t(x) <= Phi(Phi^-1(x) + mu) at every x from ``smallest`` to 1/2.

        t and Phi^-1 increase. In a small cell, t at the right end and Phi^-1 at the left end count.
        """
        ends = np.asarray(ndtr(np.linspace(ndtri(smallest), 0.0, _CELLS + 1)))
        ends[0], ends[-1] = smallest, 0.5
        found = float(np.max(ndtri(self.true_positive_rates(ends[1:])) - ndtri(ends[:-1])))
        found = max(found, 0.0)
        return found + THOUSANDS * (1.0 + found)

    def masses(self) -> CertifiedPmf:
        """Return masses at multiples of the spacing whose divergence is on or above h.

        They are exact up to the rounding of floating-point sums.
        """
        corners, _ = self._corners
        kept = np.isin(self.a, corners)
        kept[0] = kept[-1] = True
        steps, a, high = self.steps[kept], self.a[kept], self.high[kept]
        if len(steps) > 1 and 1.0 not in corners:
            # No mass at loss 0: h is a line across a = 1, from 1/a to a.
            left = -math.expm1(-float(steps[1]) * self.interval) + high[1] / a[1]
            high[0] = left + (high[1] - left) * (1.0 - 1.0 / a[1]) / (a[1] - 1.0 / a[1])
        return self._dense(steps, a, high)

    def _dense(self, steps: NDArray[np.int64], a: Array, high: Array) -> CertifiedPmf:
        """Return the masses of the symmetric pair whose h is the chords of ``high``."""
        last = int(steps[-1])
        probs = np.zeros(2 * last + 1)
        # The mass of Q at a loss is the change of slope; at a = 1 the left slope is the swap's.
        slopes = np.append(np.diff(high) / np.diff(a), 0.0)
        left = 2.0 * slopes[0] + 1.0 - high[0]
        lower = np.maximum(np.append(left, np.diff(slopes)), 0.0)
        probs[last - steps] = lower
        probs[last + steps] = a * lower
        return CertifiedPmf(self.interval, -last, probs, float(high[-1]), True)
