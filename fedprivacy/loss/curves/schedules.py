"""Compositions of many different rounds of one kind, made from arrays of their parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..moments import families
from ..moments.sampled_gaussians import SampledGaussians
from .composed import Composed, Source, compose
from .curve import Curve
from .gaussian import Gdp
from .lattice import Array
from .sampled import Sampled


def sampled_gaussians(q: float, mu: Array, counts: NDArray[np.int64]) -> Curve:
    """Return the composition of samples of Gaussian pairs with one probability.

    Args:
        q: the probability, in (0, 1).
        mu: distances of the means in standard deviations, above 0, shape ``(n,)``.
        counts: numbers of runs, at least 1.
    """

    def make(shift: float) -> Curve:
        return Sampled(Gdp(shift), q)

    # Equal rounds are counted together, in the order of their first runs.
    every, first, kind = np.unique(mu, return_index=True, return_inverse=True)
    order = np.argsort(first)
    total = np.bincount(kind, counts).astype(np.int64)[order]
    shifts = every[order]
    if len(shifts) < families.LEAST:
        return compose(zip(map(make, shifts.tolist()), total.tolist(), strict=True))
    return Composed.listed_later(Source(SampledGaussians(q), shifts, total, make))
