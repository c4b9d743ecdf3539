"""Compositions without useful privacy, which are not refined."""

from __future__ import annotations

import math

import numpy as np

from ..curves.components import count_of, is_composed, parts_of, shapes_of
from ..curves.curve import Curve
from ..curves.gaussian import Gdp
from ..curves.lattice import Side
from ..moments.contour import NoMoments
from ..moments.mixtures import Mixture

MOST_LOSS = 1e4
"""Mean losses above this are useless for every value of their digits: e^10,000 reveals everything.
"""
_LOSSES = np.concatenate([np.geomspace(MOST_LOSS, 1e12, 40), np.geomspace(1e13, 1e300, 60)])
"""Losses where a mean is searched that no moment gives."""
_MANY = 64
"""From this number of components of a round on, even its evaluation takes long."""
_MOST_OF_MANY = 1000.0
"""Mean losses above this are useless if each digit takes seconds."""
MOST_ROUNDS = 10**5
"""Largest number of rounds with an unknown mean that are convolved: lattices get too coarse beyond.
"""
REASON = "the mean loss is too large, or unknown for too many rounds; it is not refined"


def too_large(curve: Curve) -> bool:
    """Return whether the mean loss of a composition is so large that digits are irrelevant.

    This is not certified: it limits the computation and never enters a number. If ``crude`` has a
    pair, that pair already implies the answer.
    """
    if not is_composed(curve) or curve.support().exact:
        return False
    try:
        # At so small a tilt the mean is that of P itself.
        return not curve.moments().cumulants(1e-12).mean < MOST_LOSS
    except (NoMoments, OverflowError):
        # The Gaussian pair that dominates the run has a larger mean than the run.
        if curve.support().cover < math.sqrt(2.0 * MOST_LOSS):
            return False
        return count_of(curve) > MOST_ROUNDS or _least_mean(curve) >= MOST_LOSS


def given_up(curve: Curve) -> Curve | None:
    """Return the substitute for a composition with too large a loss; None if it needs none."""
    simple = crude(curve)
    return curve if simple is None and too_large(curve) else simple


def _least_mean(curve: Curve) -> float:
    """Return a lower bound on the mean loss of rounds: x P(L > x), minus the part below 0."""
    total = 0.0
    for part, count in parts_of(curve):
        shares = np.exp(np.minimum(part.tails(_LOSSES, Side.DOWN).p_above, 0.0))
        # Infinite losses are not part of a mean, and rounding must not include them.
        shares = np.maximum(shares - 1.000001 * part.support().largest.infinite_high, 0.0)
        # The part of a mean below 0 is at least -1/e.
        total += count * (float(np.max(_LOSSES * shares)) - 1.0)
    return total


def crude(curve: Curve) -> Gdp | None:
    """Return a Gaussian pair that dominates a run whose loss is too large, or None.

    It serves rounds of many components. Their moments take long, and the rough bound loses no
    useful detail.
    """
    if not is_composed(curve) or not math.isfinite(cover := curve.support().cover):
        return None
    mean = 0.0
    for part, count in shapes_of(curve):
        mean += count * _distance(part)
    return Gdp(cover) if mean >= _MOST_OF_MANY else None


def _distance(curve: Curve) -> float:
    """Return the approximate mean loss of a round of many components; 0 for any other round."""
    try:
        labelled = (curve.components().upper or curve).moments().pairs()
    except NoMoments:
        return 0.0
    pairs, many = [], 0
    for weight, leaf in labelled:
        if (pair := leaf.gaussian) is not None:
            pairs.append((weight, pair))
            many += len(pair.p) + len(pair.q)
    if many < _MANY:
        return 0.0
    total = 0.0
    for weight, pair in pairs:
        (p, wide), (q, spread) = _mean_and_variance(pair.p), _mean_and_variance(pair.q)
        total += weight * 0.5 * (p - q) ** 2 / (1.0 + min(wide, spread))
    return total


def _mean_and_variance(mixture: Mixture) -> tuple[float, float]:
    mean = sum(w * m for w, m in mixture)
    return mean, sum(w * (m - mean) ** 2 for w, m in mixture)
