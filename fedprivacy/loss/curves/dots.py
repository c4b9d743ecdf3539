"""Moments from tails alone: a geometric grid of losses that dominates any curve."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from ...rounding import HUNDREDS, Up, rounded_up
from . import lattice as lattices
from .lattice import Array

if TYPE_CHECKING:
    from .curve import Curve

_TAIL_MASS = 1e-30
"""Mass of P that the grid may leave out on each side."""


def dotted_moment(curve: Curve, order: float) -> Up:
    """Return an upper bound on a log-moment from the curve's tails and its largest loss.

    The connected dots dominate the curve, and so does their moment. Mass beyond the grid counts
    with the largest loss.

    Args:
        curve: one orientation.
        order: outside [0, 1].
    """
    # A negative order of (P, Q) is one above 1 of (Q, P).
    if order < 0.0:
        return dotted_moment(curve.swap(), 1.0 - order)
    largest = curve.support().largest
    if largest.infinite_high > 0.0 or math.isinf(largest.high):
        return Up(math.inf)
    losses, mass, beyond = dots(curve)
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(logsumexp((order - 1.0) * losses, b=mass))
        if beyond > 0.0:
            rest = math.log(beyond) + (order - 1.0) * largest.high
            found = float(np.logaddexp(found, rest)) + HUNDREDS * (1.0 + abs(rest))
    return Up(math.inf if math.isnan(found) else found)


def _reach(curve: Curve) -> float:
    """Return a loss beyond which P keeps at most ``_TAIL_MASS`` on either side."""
    # Finest first: the first step whose support fits is also the most accurate.
    for step in (1e-4, 1e-2, 1.0, 100.0):
        try:
            low, high = lattices.support(curve.tails, step, _TAIL_MASS)
        except lattices.TooLarge:
            continue
        return step * max(-low, high)
    return 1e9


@functools.lru_cache(maxsize=64)
def dots(curve: Curve) -> tuple[Array, Array, float]:
    """Return (losses, masses, mass beyond) of connected dots on a geometric grid, rounded up."""
    reach = _reach(curve)
    # The losses of small rounds are dense around 0, so the grid is finest there.
    half = np.geomspace(1e-9, reach, 6000)
    edges = np.concatenate([-half[::-1], [0.0], half])
    mass, beyond = lattices.connect_the_dots(curve.tails, edges)
    return edges, rounded_up(mass, HUNDREDS), rounded_up(beyond, HUNDREDS)
