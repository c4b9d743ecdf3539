"""Lower ends for a cohort of a largest size: every other unit sends one vector aslant to u (T10).

The unit sends C u, or something else, or is absent. What the others send along -u hides how many
they are, but doubles the move of a unit that takes another one's place. What they send across u
shows how many they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from decimal import Decimal, localcontext

import numpy as np
from scipy.special import logsumexp

from ..loss import CohortSum, Curve, MostOf
from ..loss.curves.cohort_sum import Members, outcomes
from ..relations import Adjacency
from .binomial import DIGITS, listed

DIRECTIONS = ((1.0, 0.0), (0.6, 0.8), (0.28, 0.96), (0.0, 1.0))
"""What every other unit sends along -u and across u, in clip norms."""
RARE = math.log(1e-3)
"""Log-probability of full cohorts below which slots hardly matter."""
_WIDEST = 2.0**16
"""Largest variance of the number of the others that are drawn."""
_ROUNDS = 8.0 ** np.arange(5)
_ORDERS = np.geomspace(0.2, 256.0, 24)
"""Orders minus 1 of the divergences by which data sets are compared."""
_DEPTH = math.log(1e5)
_GAIN = 1.02
"""Data sets whose epsilon is larger by less than this factor are left out."""
_NEAR = 0.97
"""Data sets whose epsilon is smaller than the largest by this factor are left out."""
_ROUGH = 2.0
"""Cells per std where data sets are compared."""

Laws = tuple[Members, Members]
_Weights = dict[tuple[int, int], Decimal]


def shown(
    plain: Curve,
    z: float,
    numbers: tuple[int, float, int],
    adjacency: Adjacency,
    *,
    plane: bool = True,
) -> Curve:
    """Return the pairs of the data sets that show most, of some.

    Args:
        plain: the attained pair if all others send 0.
        z: noise multiplier of one Gaussian sum.
        numbers: of other units, their probability to be drawn, and the largest cohort.
        adjacency: how the unit changes.
        plane: whether vectors have two coordinates or more.
    """
    others, q, largest = numbers
    if others * q * (1.0 - q) > _WIDEST:
        return plain
    laws = cohort_laws(others, q, largest, adjacency)
    every = (*laws[0], *laws[1])
    known = [one for one in DIRECTIONS if plane or not one[1]]
    served = [one for one in known if CohortSum.serves(z, every, *one)]
    better = _best(z, laws, served)
    return MostOf((*(CohortSum(z, *laws, *one) for one in better), plain)) if better else plain


@functools.lru_cache(maxsize=256)
def cohort_laws(others: int, q: float, largest: int, adjacency: Adjacency) -> Laws:
    """Return the laws of what the unit sends and of the number of others, for both data sets.

    Probabilities are right except for their rounding. Those of missing numbers of drawn units add
    up to at most ``binomial.RARE``.

    Args:
        others: number of other units.
        q: probability that a unit is drawn.
        largest: the largest cohort.
        adjacency: how the unit changes.
    """
    there: _Weights = {}
    gone: _Weights = {}
    away = {Adjacency.ZERO_OUT: 0, Adjacency.REPLACE_ONE: -1}.get(adjacency)
    with localcontext(DIGITS):
        chance, most = Decimal(q), Decimal(largest)
        for m, weight in listed(others, q):
            kept = min(m, largest)
            own = chance if m < largest else chance * most / (m + 1)
            beside = min(m, largest - 1)
            cases = ((1, beside, weight * own), (0, kept, weight * (1 - own)))
            _add(there, cases)
            if away is None:
                _add(gone, ((0, kept, weight),))
            else:
                _add(gone, ((i * away, j, w) for i, j, w in cases))
    return _members(there), _members(gone)


def _add(law: _Weights, cases: Iterable[tuple[int, int, Decimal]]) -> None:
    for i, j, weight in cases:
        law[i, j] = law.get((i, j), Decimal(0)) + weight


def _members(law: _Weights) -> Members:
    return tuple((float(w), i, j) for (i, j), w in sorted(law.items()) if w > 0)


def _best(
    z: float, laws: Laws, directions: Iterable[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the directions that show more than nothing does, at some number of rounds.

    Renyi divergences of wide cells decide. Every choice is valid.
    """
    found = {one: _epsilons(z, laws, *one) for one in directions}
    least = _GAIN * _epsilons(z, laws, 0.0, 0.0)
    if not found:
        return []
    most = np.max(list(found.values()), axis=0)
    wanted = np.maximum(least, _NEAR * most)
    return [one for one, epsilons in found.items() if (epsilons > wanted).any()]


def _epsilons(z: float, laws: Laws, back: float, across: float) -> np.ndarray:
    """Return rough epsilons at several numbers of rounds, of the worse order of the data sets."""
    p, q = outcomes(z, laws, back, across, _ROUGH)
    both = (p > 1e-200) & (q > 1e-200)
    p, q = p[both], q[both]
    loss = np.log(p / q)
    found = []
    for masses, losses in ((p, loss), (q, -loss)):
        moments = logsumexp(_ORDERS[:, None] * losses, b=masses, axis=1)
        found.append(((_ROUNDS[:, None] * moments + _DEPTH) / _ORDERS).min(axis=1))
    return np.asarray(np.max(found, axis=0))
