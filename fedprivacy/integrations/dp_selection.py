"""Running a mechanism a random number of times and showing the best result only."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from ..errors import ConversionError, refuse
from ..mechanisms import Mechanism, RenyiDp
from ..relations import Adjacency, Observer, Unit

_ORDERS: tuple[float, ...] = tuple((1.0 + np.geomspace(1e-2, 1e4, 61)).tolist())
"""Orders at which the base mechanism's divergences are taken."""


@lru_cache(maxsize=64)
def selected(
    base: Mechanism,
    mean: float,
    shape: float,
    *,
    adjacency: Adjacency,
    observer: Observer,
    unit: Unit | str | None = None,
) -> RenyiDp:
    """Return what dominates the best of K runs of ``base``, K being random.

    Papernot and Steinke (2022): Theorem 2 where K has the truncated negative binomial law with
    eta = ``shape`` (1: geometric, 0: logarithmic), Theorem 6 where it is Poisson (``shape``
    infinite). K is drawn without the data, results are compared by an order that is fixed
    beforehand, the runs are independent, and nothing of the others is shown: so not for an
    observer who sees who took part in them.

    Args:
        base: one run.
        mean: the mean of K, at least 1.
        shape: at least 0; infinite for Poisson.
        adjacency: how neighbours differ.
        observer: who looks.
        unit: whose data one unit is; may be left out.

    Raises:
        ParameterError: a mean or shape outside its range.
        ConversionError: no Renyi divergence of the base is known, or the observer is the server.
        UnsupportedCombination: the base has no loss under this adjacency.
    """
    if not 1.0 <= mean <= 1e12:
        refuse("mean", mean, "be a number from 1 to 1e12")
    if not (0.0 <= shape <= 1e3 or shape == math.inf):
        refuse("shape", shape, "be from 0 to 1000, or infinite for a Poisson number of runs")
    if observer is Observer.SERVER:
        raise ConversionError(
            f"RepeatAndSelectDpEvent shows the best run only, and observer='{observer}' sees who "
            "took part in all; account for observer='aggregate', or compose every run"
        )
    found = _divergences(base, adjacency, observer)
    if shape == math.inf:
        points = _best_of_poisson(RenyiDp(divergences=found, adjacency=adjacency), mean)
    else:
        points = _best_of_binomial(found, mean, shape)
    return RenyiDp(divergences=points, adjacency=adjacency, unit=unit, observer=Observer.AGGREGATE)


Points = tuple[tuple[float, float], ...]


def _divergences(base: Mechanism, adjacency: Adjacency, observer: Observer) -> Points:
    """Return (order, divergence) of one run in its worse orientation, where that is finite."""
    curve = base.privacy_loss(adjacency, observer).curve
    turned = (curve,) if curve.symmetric else (curve, curve.swap())
    found = []
    for order in _ORDERS:
        moment = max(each.log_moment(order) for each in turned)
        divergence = max(moment, 0.0) / (order - 1.0) * (1.0 + 1e-15)
        # Log-moments are convex: past the first infinite order all are.
        if not math.isfinite(divergence):
            break
        found.append((order, divergence))
    if not found:
        raise ConversionError(
            "RepeatAndSelectDpEvent needs Renyi divergences of what is repeated, and all are "
            f"infinite from order {_ORDERS[0]:g} on (it has a delta at every epsilon); compose "
            "every run instead"
        )
    return tuple(found)


def _best_of_binomial(found: Points, mean: float, shape: float) -> Points:
    """Theorem 2: eps + (1 + eta) min_b ((1 - 1/b) eps_b + log(1/gamma)/b) + log(E K)/(a-1)."""
    stops = log_stops(mean, shape)
    # At b = 1 the theorem's term is log(1/gamma) itself.
    least = min(stops, *((1.0 - 1.0 / b) * each + stops / b for b, each in found))
    more = (1.0 + shape) * least * (1.0 + 1e-14)
    return tuple((a, each + more + math.log(mean) / (a - 1.0) * (1.0 + 1e-15)) for a, each in found)


def _best_of_poisson(base: RenyiDp, mean: float) -> Points:
    """Theorem 6: eps + mu delta + log(mu) / (a - 1), for (log(1 + 1/(a-1)), delta)-DP."""
    epsilons = np.array([math.log1p(1.0 / (a - 1.0)) for a, _ in base.divergences])
    # A little less epsilon needs a little more delta: the safe side.
    deltas = base.curve.implied_delta(epsilons * (1.0 - 1e-15)).tolist()
    both = zip(base.divergences, deltas, strict=True)
    more = ((a, each, mean * delta + math.log(mean) / (a - 1.0)) for (a, each), delta in both)
    return tuple((a, (each + rest) * (1.0 + 1e-14)) for a, each, rest in more)


def log_mean(stops: float, shape: float) -> float:
    """Return the log of E K for gamma = e^-stops: eta (1/gamma - 1) / (1 - gamma^eta)."""
    # expm1 would overflow, and its log is its argument by then.
    rises = stops if stops > 700.0 else math.log(math.expm1(stops))
    falls = math.log(stops) if shape == 0.0 else math.log(-math.expm1(-shape * stops) / shape)
    return rises - falls


def log_stops(mean: float, shape: float) -> float:
    """Return log(1/gamma) of the law with this mean, from above; 0 where K is 1.

    The mean grows with it, and by bisection ends at a value whose mean is larger, rounding
    included.
    """
    if mean == 1.0:
        return 0.0
    above = partial(_above, shape=shape, goal=math.log(mean) * (1.0 + 1e-12) + 1e-13)
    low, high = 0.0, 1.0
    while not above(high):
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _above(stops: float, shape: float, goal: float) -> bool:
    return stops > 0.0 and log_mean(stops, shape) >= goal
