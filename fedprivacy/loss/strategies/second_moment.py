"""A lower end for any number of rounds, from two moments on the real axis.

Let A(t) = E_P e^(t L). The inequality of Paley and Zygmund (1932) for the variable e^(t L) gives

    P(L >= x) >= (1 - e^-s)^2 A(t)^2 / A(2 t),  x = (log A(t) - s) / t,  for all t, s > 0,

and a profile satisfies delta(epsilon) >= P(L >= x) (1 - e^(epsilon - x)) for epsilon <= x. The only
condition is that A(2 t) is finite. The end is about one standard deviation of the loss above its
mean. It is used if rounding error exceeds the values on the line of ``inversion``, from about 1e11
rounds on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...rounding import HUNDREDS, Down, Up, rounded_down
from ..curves.curve import Curve
from ..moments.contour import Contour, NoMoments
from ..moments.moments import Moments

_TILTS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
"""Values of t that are tried, divided by the standard deviation of the loss."""
_CUTS = (0.02, 0.1, 0.3, 0.7, 1.5)
"""Values of s that are tried."""


def epsilon(curve: Curve, delta: float) -> Down:
    """Return an epsilon at which the profile of one orientation exceeds ``delta``, or 0.

    Args:
        curve: one orientation, certified from below.
        delta: in (0, 1).
    """
    # delta(epsilon) > delta where 1 - e^(epsilon - x) > delta / mass.
    ends = [x + math.log1p(-delta / mass) for x, mass in _shares(curve) if mass > delta]
    return Down(max([0.0, *(end - HUNDREDS * (1.0 + abs(end)) for end in ends)]))


def delta(curve: Curve, epsilon: float) -> Down:
    """Return a number that the profile of one orientation exceeds at ``epsilon``, or 0."""
    ends = [-mass * math.expm1(epsilon - x) for x, mass in _shares(curve) if x > epsilon]
    return Down(max([0.0, *(rounded_down(end, HUNDREDS) for end in ends)]))


def _shares(curve: Curve) -> Iterator[tuple[float, float]]:
    """Yield pairs (x, m) with P(L >= x) >= m."""
    try:
        moments = curve.moments()
        variance = float(moments.cumulants(1e-12).variance)
        if not 0.0 < variance < math.inf:
            return
        for tilt in (factor / math.sqrt(variance) for factor in _TILTS):
            low, high = _log_moment(moments, tilt)[0], _log_moment(moments, 2.0 * tilt)[1]
            # Differences of large logarithms: their rounding is subtracted.
            log_mass = 2.0 * low - high - HUNDREDS * (1.0 + 2.0 * abs(low) + abs(high))
            if not -600.0 < log_mass <= 0.0:
                continue
            for cut in _CUTS:
                x = (low - cut) / tilt
                yield x - HUNDREDS * (1.0 + abs(x)), math.exp(log_mass) * math.expm1(-cut) ** 2
    except (NoMoments, OverflowError):
        return


def _log_moment(moments: Moments, tilt: float) -> tuple[Down, Up]:
    """Return certified ends of log A at a tilt.

    Raises:
        NoMoments: the moment is not known.
    """
    found = moments.spectrum(Contour(tilt, 0.0, 1))
    size, error = abs(complex(found.values[0])), float(found.error[0])
    if not error < size:
        raise NoMoments
    return Down(float(found.log_size) + math.log(size - error)), Up(float(found.log_moment))
