"""Steps of lattices that lose little of the mass at the ends of a loss.

Some rounds, such as Laplace noise, have much mass at their largest loss and at their smallest. On a
lattice that dominates the pair any place is split between two points. On a lattice that the pair
dominates, the mass between two points falls to the lower one, which costs in first order of the
step. It costs little if both ends lie just above points. Every step is valid.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from ..curves.components import parts_of
from ..curves.curve import Curve
from ..curves.lattice import Array
from ..moments.contour import NoMoments

_TRIED = 48
"""Most steps to choose from, up to a quarter smaller than the one asked for."""
_LEAST = 1e-3
"""Ends of less mass, as part of the other end's, do not matter."""
_NEAR = 1e-9
"""Mass within this part of the largest loss lies at it."""
_MOST = 1e9
"""More points are not counted exactly."""
_FEW = 30.0
"""Expected number of largest losses in a run whose law is one of single losses."""
_SHORT = 4096
"""More rounds may have many losses that matter."""
_ALIKE = 4.0
"""Largest ratio of the mass of large losses to that at the largest one, for jumps of one kind."""


def aligned(curve: Curve, step: float) -> float:
    """Return a step near ``step``, and no larger, that suits the ends of the loss of a round.

    Rounds without mass at their largest loss keep the step, and so do several kinds of rounds.
    """
    rounds = parts_of(curve)
    return _aligned(rounds[0][0], step) if len(rounds) == 1 else step


def few_jumps(curve: Curve) -> bool:
    """Return whether a run has one kind of rounds, and few of them have the largest loss."""
    rounds = parts_of(curve)
    if len(rounds) != 1 or (ends := _ends(rounds[0][0])) is None:
        return False
    return rounds[0][1] <= _SHORT and rounds[0][1] * ends.at_top <= _FEW


def jumps_alike(run: Curve) -> bool:
    """Return whether all outcomes of a round with a large loss have the same loss."""
    try:
        made = [pair for one, _ in parts_of(run) for _, pair in one.moments().pairs()]
    except NoMoments:
        return False
    return all(pair.jumps_alike for pair in made)


class _Ends(NamedTuple):
    """The largest loss and minus the smallest, which may be inf, and P's masses."""

    top: float
    bottom: float
    at_top: float
    at_bottom: float


@functools.lru_cache(maxsize=256)
def _ends(one: Curve) -> _Ends | None:
    """Return the ends of the loss of a round; None if its large losses are not all alike.

    Several kinds of jumps, such as those of cohorts of random size, fit no single step.
    """
    facts = one.support()
    if not facts.exact or not 0.0 < (top := facts.largest.high) < math.inf:
        return None
    bottom = facts.swapped_largest.high
    found = one.tails(np.array([-min(bottom, 1e3 * top), top - _NEAR * top, 0.5 * top]))
    at_bottom, at_top, large = np.exp([found.p_below[0], *found.p_above[1:]]).tolist()
    alike = at_top > 0.0 and large <= _ALIKE * at_top
    return _Ends(top, bottom, at_top, at_bottom) if alike else None


def _aligned(one: Curve, step: float) -> float:
    if (ends := _ends(one)) is None or not ends.top < _MOST * step:
        return step
    # Larger steps would not resolve the loss at all.
    step = min(step, 0.5 * ends.top)
    found = one.tails(np.array([step - ends.bottom, ends.top - step]))
    below, above = np.exp([found.p_below[0], found.p_above[1]]).tolist()
    # The mass of the cell around the end's point must not pull the end below it.
    inside = 0.5 * (above - ends.at_top) / ends.at_top
    if inside >= 0.5:
        return step
    first = math.ceil(ends.top / step - inside)
    points = np.arange(first, first + min(_TRIED, 3 + first // 4), dtype=np.float64)
    steps = ends.top / (points + inside)
    lost = np.zeros(len(points))
    if ends.bottom < math.inf and ends.at_bottom > _LEAST * ends.at_top:
        # Steps that place the end with more mass alike are equally good.
        if ends.at_bottom > ends.at_top and ends.bottom * np.ptp(1.0 / steps) < 1.0:
            return step
        share = 0.5 * (below - ends.at_bottom) / ends.at_bottom
        lost = _lost(-ends.bottom / steps, share)
    # Of similar steps the largest has the fewest points.
    return float(steps[int(np.argmin(np.round(lost, 2)))])


def _lost(places: Array, inside: float) -> Array:
    """Return how far an end falls, in steps, if the mass above lifts it a little."""
    beyond = places - np.round(places)
    return np.where(beyond >= 0.0, beyond, np.where(beyond >= -inside, 0.0, 1.0 + beyond))
