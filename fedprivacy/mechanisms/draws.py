"""How a unit's rounds are drawn with correlated noise, and quick epsilons to compare curves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..loss import Curve
from ..sampling import Everyone, FixedSize, Poisson, Scheme, TruncatedPoisson, priced_as

Array = NDArray[np.float64]
_ORDERS = (1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 32.0, 64.0, 128.0)
_CELLS = 2048
_FARTHEST = 350.0
"""Largest half reach of a grid: the exponential of the full reach is still a double."""

Parts = list[tuple[Curve, int]]


@dataclass(frozen=True)
class Repeated:
    """A unit takes part in a round with a probability, unless it did in the rounds just before.

    Args:
        probability: q, above 0 and below 1.
        separation: b, the fewest rounds from one participation to the next; 1 is Poisson sampling.
    """

    probability: float
    separation: int = 1


@dataclass(frozen=True)
class OnceAnEpoch:
    """A unit takes part in one round of every epoch, drawn uniformly and anew.

    Args:
        places: b, rounds of an epoch; it divides the number of rounds.
    """

    places: int


Draw = Repeated | OnceAnEpoch


def is_once(scheme: Scheme) -> bool:
    """Return whether a unit is known to be drawn at most once a round."""
    kinds = (Poisson, FixedSize, TruncatedPoisson, Everyone)
    return any(isinstance(scheme, one) and priced_as(scheme, one) for one in kinds)


def rough_epsilon_of_rows(parts: Parts) -> float:
    """Return an approximate epsilon at delta = 1e-5 to choose among curves; it is not certified."""
    moments = epsilon_by_moments(parts)
    reach = 2.0 * min(moments, _FARTHEST)
    edges = np.linspace(-reach, reach, _CELLS + 1)
    spectrum = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
    for curve, count in parts:
        # Masses of cells, the one around loss 0 first. The last cell holds everything beyond.
        beyond = np.exp(curve.tails(edges).p_above)
        beyond[0], beyond[-1] = 1.0, 0.0
        spectrum *= np.fft.rfft(np.roll(-np.diff(beyond), -_CELLS // 2)) ** count
    masses = np.roll(np.fft.irfft(spectrum, _CELLS), _CELLS // 2)
    losses = 0.5 * (edges[1:] + edges[:-1])
    above = np.cumsum(masses[::-1])[::-1]
    other = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
    found = float(edges[int(np.argmax(above - np.exp(losses) * other <= 1e-5))])
    # Mass beyond the grid is in its last cell.
    return found if found < 0.99 * reach else moments


def epsilon_by_moments(parts: Parts) -> float:
    """Return about an epsilon at delta = 1e-5 by Renyi divergences, for a choice among curves."""
    costs = (
        (sum(count * curve.moments().log_moment(order) for curve, count in parts) + math.log(1e5))
        / (order - 1.0)
        for order in _ORDERS
    )
    return min(costs)
