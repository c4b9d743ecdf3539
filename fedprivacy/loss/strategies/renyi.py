"""Conversion of Renyi divergences at the best order: fast, within a few per cent, only from above.

By Proposition 12 of Canonne, Kamath and Steinke (2020), for every order a > 1:

    epsilon = rdp + log(1 - 1/a) - (log delta + log a) / (a - 1).

The order is found by a continuous search. Any order gives a valid bound, so the search needs no
guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...rounding import FEW, Up, rounded_up
from ..curves.between import one_side, readings
from ..curves.components import different_in, trim
from ..curves.curve import Curve
from ..curves.lattice import Side
from ..moments.contour import NoMoments
from ..moments.moments import Moments
from .convolution import golden
from .direct import TINY
from .too_large import given_up

_NEAR = (0.99, 1.0, 1.01)
"""Multiples of the recommended power: the recommendation from a few parts has an error of 0.5 %."""
_LOW = (1.0001, 1.01)
"""Orders for a hopelessly large loss, where no other order is much better."""
_TINY = 1e-12
"""A tilt at which the derivative of the log-moment is the mean loss."""
_ROUGH = 0.05
"""Relative excess of a certified value over the estimate from which on other orders are tried."""
_LOOSE = 1e-6
"""Relative error of means, with a margin."""
_SHARE = 1e-6
"""Share of delta that may be left out; it costs less than a millionth of epsilon."""
_MANY = 256
"""For more kinds of rounds only the recommended order is certified; it costs 1e-4 of epsilon."""

Orders = tuple[float, ...]
_Conversion = Callable[[float, float], Up]
"""Converts a log-moment at an order to the number."""


def epsilon(curve: Curve, delta: float, orders: Orders = ()) -> tuple[Up, float]:
    """Return (an epsilon that suffices at a delta, the order that shows it).

    Args:
        curve: one orientation.
        delta: in (0, 1).
        orders: tried first; no other order is tried if one of these gives a finite number.
    """
    return min(_epsilon_of(one_side(one, Side.UP), delta, orders) for one in readings(curve))


def _epsilon_of(curve: Curve, delta: float, orders: Orders) -> tuple[Up, float]:
    # Moments are dominated by events much rarer than delta, so these events are left out.
    few, slack, reach = trim(curve, _SHARE * delta)
    if slack > 0.0:
        found = _epsilon(few, delta - slack, orders)
        if found[0] <= reach:
            return found
    return _epsilon(curve, delta, orders)


def _epsilon(curve: Curve, delta: float, orders: Orders) -> tuple[Up, float]:
    def at(log_moment: float, order: float) -> Up:
        power = order - 1.0
        terms = (log_moment / power, math.log1p(-1.0 / order))
        # Kept separate: their sizes give the rounding error, but their sum is often near 0.
        gains = (-math.log(delta) / power, -math.log(order) / power)
        return max(_sum_up((*terms, *gains)), Up(0.0))

    return _best(curve, at, orders)


def delta(curve: Curve, epsilon: float, orders: Orders = ()) -> tuple[Up, float]:
    """Return (a delta that suffices at an epsilon, the order that shows it); see ``epsilon``."""

    def at(log_moment: float, order: float) -> Up:
        power = order - 1.0
        terms = (log_moment, -power * epsilon)
        return _sum_up((*terms, power * math.log1p(-1.0 / order), -math.log(order)))

    every = [one_side(one, Side.UP) for one in readings(curve)]
    value, order = min(_best(one, at, orders) for one in every)
    return max(rounded_up(math.exp(min(value, 0.0))), Up(TINY)), order


def _sum_up(terms: tuple[float, ...]) -> Up:
    """Return a sum of terms that are right to a few units, rounded up; inf if one is not finite."""
    if not all(map(math.isfinite, terms)):
        return Up(math.inf)
    # fsum rounds once, so only the errors of the terms remain.
    return Up(math.fsum(terms) + FEW * math.fsum(map(abs, terms)))


def _best(curve: Curve, at: _Conversion, orders: Orders) -> tuple[Up, float]:
    """Return (value, order): certified moments at the order that uncertified ones recommend.

    Cumulants cost a tenth of a certified moment, and for a long run only a few parts are used.
    """
    moments = curve.moments()

    def certified(order: float) -> Up:
        return _finite(at(moments.log_moment(order), order))

    def likely(order: float) -> float:
        return _finite(at(_about(moments, order - 1.0, mean_loss), order))

    if orders and math.isfinite((first := min((certified(one), one) for one in orders))[0]):
        return first
    if (simple := given_up(curve)) is not None:
        rough = simple.moments()
        return min((_finite(at(rough.log_moment(order), order)), order) for order in _LOW)
    found = Up(math.inf), math.nan
    try:
        mean_loss = float(moments.cumulants(_TINY).mean)
        order = _best_order(likely)
        expected = likely(order)
        shares = (1.0,) if different_in(curve) > _MANY else _NEAR
        near = [1.0 + share * (order - 1.0) for share in shares]
        found = min((certified(order), order) for order in near)
        # Where no quadrature reaches, the certified moment is a rough bound, and another order may
        # be far better.
        if found[0] <= expected + _ROUGH * (1.0 + abs(expected)):
            return found
    except (NoMoments, OverflowError):
        pass
    # Cumulants or their order failed. Certified moments are slower but always available.
    order = _best_order(certified)
    return min(found, (certified(order), order))


def _about(moments: Moments, tilt: float, mean_loss: float) -> float:
    """Return approximately log E_P e^(tilt L), within the range that convexity allows.

    Cumulants are quadratures with an absolute error of 1e-8 per round. Over billions of rounds this
    error exceeds the value, and the search would choose an order because of its error. The
    log-moment is convex and 0 at tilt 0. So it lies between the tilt times its derivatives at 0 and
    at the tilt, which are exact to a few digits.

    Args:
        moments: those of one orientation.
        tilt: above 0.
        mean_loss: the derivative at 0.
    """
    found = moments.cumulants(tilt)
    low, high = tilt * mean_loss, tilt * float(found.mean)
    inside = low * (1.0 - _LOOSE) <= found.value <= high * (1.0 + _LOOSE)
    return float(found.value) if inside or not low <= high else 0.5 * (low + high)


def _best_order(at: Callable[[float], float]) -> float:
    """Return the order of the smallest value found, over orders 1 + 1e-4 ... 1 + 1e6."""
    # The value is smooth in log(order - 1): three points a decade bracket its minimum.
    grid = [1.0 + 10.0 ** (k / 3.0) for k in range(-12, 19)]
    values: list[float] = []
    for order in grid:
        values.append(at(order))
        # Three rises in a row are past the minimum, and large orders cost most.
        if len(values) > 9 and values[-1] > values[-2] > values[-3] > values[-4]:
            break
    best = min(range(len(values)), key=values.__getitem__)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(values) - 1)]
    refined = 1.0 + golden(lambda x: at(1.0 + x), low - 1.0, high - 1.0, 24)
    # Moments may be infinite in between, and then the search misses: keep the better.
    return refined if at(refined) <= values[best] else grid[best]


def _finite(value: Up) -> Up:
    return Up(math.inf) if math.isnan(value) else value
