"""Compositions of many different rounds of one kind, made from arrays of their parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..moments import families
from ..moments.folded_gaussians import FoldedGaussians, GivenWay
from ..moments.sampled_gaussians import SampledGaussians
from .composed import Composed, Source, compose
from .curve import Curve
from .gaussian import Gdp
from .lattice import Array
from .sampled import Sampled
from .triangles import Triangles, given_way


def like(first: Curve, noise: Array, counts: NDArray[np.int64]) -> Curve | None:
    """Return the composition of rounds that differ in their noise; None if they have no family.

    Args:
        first: the curve of the first round.
        noise: the noise multipliers, shape ``(n,)``.
        counts: numbers of runs, at least 1.
    """
    place = first.moments().place()
    if place is None:
        return None
    family, shift = place
    # A unit moves the sum by one or two clip norms.
    moves = float(round(shift * float(noise[0])))
    shifts = moves / noise
    if shift != shifts[0] or _with_noise(family, float(noise[0]), moves) != first:
        return None
    # Equal rounds are counted together, in the order of their first runs.
    every, at, kind = np.unique(shifts, return_index=True, return_inverse=True)
    # Two noises with one shift have curves that differ in their last digit.
    if len(every) < len(np.unique(noise)):
        return None
    order = np.argsort(at)
    total = np.bincount(kind, counts).astype(np.int64)[order]
    kinds = every[order]
    std = dict(zip(kinds.tolist(), noise[at[order]].tolist(), strict=True))

    def make(shift: float) -> Curve:
        made = _with_noise(family, std[shift], moves)
        assert made is not None
        return made

    if len(kinds) < families.LEAST:
        return compose(zip(map(make, kinds.tolist()), total.tolist(), strict=True))
    limit_varies = isinstance(family, GivenWay)
    return Composed.listed_later(Source(family, kinds, total, make, limit_varies=limit_varies))


def _with_noise(family: families.Family, z: float, moves: float) -> Curve | None:
    """Return the curve of a round of a family with a noise multiplier; None if it is not known."""
    if isinstance(family, GivenWay):
        return given_way(z, family.q)
    if not isinstance(family, SampledGaussians | FoldedGaussians):
        return None
    sample = Sampled(Gdp(moves / z), family.q)
    if isinstance(family, SampledGaussians):
        return sample
    other = given_way(z, family.q) if family.zeroed else sample
    return Triangles(sample, other) if family.turned else Triangles(other, sample)
