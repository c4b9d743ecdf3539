"""Compositions that give no privacy, which nothing fine is sought for."""

from __future__ import annotations

from ..moments.line import NoSpectrum
from ..pairs.combined import Composed
from ..pairs.curve import Curve

MOST_LOSS = 1e4
"""Mean losses above this are of no use, whatever their digits: e^10,000 tells all."""
MOST_ROUNDS = 10**5
"""Of rounds whose mean is not known no more are convolved: lattices get too coarse to say much."""
REASON = "the loss is above 10,000 on average, or not known of too many rounds; it is not refined"


def hopeless(curve: Curve) -> bool:
    """Return whether the loss of a composition is, on average, so large that digits do not matter.

    Uncertified: it decides how much is computed, never a number.
    """
    if not isinstance(curve, Composed) or curve.exact:
        return False
    try:
        # At so small a tilt the mean is that of P itself.
        return not curve.cumulants(1e-12).mean < MOST_LOSS
    except (NoSpectrum, OverflowError):
        return curve.count > MOST_ROUNDS
