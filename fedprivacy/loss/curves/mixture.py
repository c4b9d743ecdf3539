"""Mixtures of pairs behind a label that every observer sees."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ...registry import registered
from ...rounding import FEW, Up, lowered, raised, rounded_down, rounded_up
from ..moments import spectrum as spectra
from ..moments.contour import Contour
from ..moments.moments import Labelled, Moments
from ..moments.spectrum import Cumulants, Decay, Spectrum
from . import lattice as lattices
from .components import Components, Order, Trimmed, Unordered, gaussian_shift, moved
from .curve import TAIL_MASS, Curve
from .gaussian import GaussianMix, Gdp
from .kept import kept
from .lattice import Array, Lattice, Side, Tails
from .max_loss import MaxLoss
from .order import bound, draws_of, law, rise, tails_of_weights
from .sampled import Sampled
from .support import Support

_FAR = 60.0
"""Pairs at this distance, or at half the distance, lose all: their differences are below e^-400."""


@registered
@dataclass(frozen=True)
class Mix(Curve):
    """A labelled mixture: with probability w_i the i-th pair, and every observer sees the label."""

    parts: tuple[tuple[float, Curve], ...]

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the weighted sums of the parts' tails."""
        logs = [math.log(weight) for weight, _ in self.parts]
        found = [curve.tails(loss, side) for _, curve in self.parts]
        columns = zip(*found, strict=True)
        return Tails(
            *(
                functools.reduce(
                    np.logaddexp, [w + part for w, part in zip(logs, column, strict=True)]
                )
                for column in columns
            )
        )

    @kept
    def moments(self) -> Moments:
        """Return the weighted sums of the parts' moments."""
        return MixedMoments(tuple((weight, curve.moments()) for weight, curve in self.parts))

    @kept
    def support(self) -> Support:
        """Return the losses of all labels."""
        parts = [(weight, part.support()) for weight, part in self.parts]
        each = [part for _, part in parts]
        return Support(
            largest=lambda: _largest(parts),
            symmetric=lambda: all(part.symmetric for part in each),
            exact=lambda: all(part.exact for part in each),
            amplifiable=lambda: all(part.amplifiable for part in each),
            above_only=lambda: any(part.above_only for part in each),
            mesh=lambda: lattices.common_mesh([part.mesh for part in each]),
            cover=lambda: max(part.cover for part in each),
        )

    @kept
    def components(self) -> Components:
        """Return the curves of all labels, and their weights."""
        shift = gaussian_shift(self.parts[0][1]) or None
        return Components(
            inside=tuple(curve for _, curve in self.parts),
            labels=tuple(weight for weight, _ in self.parts),
            trim=self._trimmed,
            order=Order(_bound, first_shift=shift, rising=lambda: _rising(self)),
        )

    def _trimmed(self, allowed: float) -> Trimmed:
        # The profile is the weighted mean of the labels' profiles, which lie in [0, 1].
        parts, mass = moved(self.parts, allowed)
        return Trimmed(Mix(parts), mass)

    def swap(self) -> Curve:
        """Return the mixture of the swapped parts."""
        return Mix(tuple((weight, curve.swap()) for weight, curve in self.parts))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the weighted sum of the parts' lattices."""
        return lattices.add([c.lattice(step, side, tail_mass).scaled(w) for w, c in self.parts])


def _largest(parts: Sequence[tuple[float, Support]]) -> MaxLoss:
    """Return the largest loss of all labels."""
    found = [(weight, part.largest) for weight, part in parts]
    return MaxLoss(
        max(part.low for _, part in found),
        max(part.high for _, part in found),
        lowered(math.fsum(weight * part.infinite_low for weight, part in found)),
        min(raised(math.fsum(weight * part.infinite_high for weight, part in found)), Up(1.0)),
    )


class MixedMoments(Moments):
    """Moments of a labelled mixture.

    Args:
        parts: weights and moments of the labels.
    """

    def __init__(self, parts: tuple[tuple[float, Moments], ...]) -> None:
        self._parts = parts

    def log_moment(self, order: float) -> Up:
        """Return log of the weighted sum of the parts' moments."""
        terms = [part.log_moment(order) for _, part in self._parts]
        top = max(terms)
        if not math.isfinite(top):
            return Up(float(logsumexp(terms, b=[weight for weight, _ in self._parts])) + FEW)
        total = math.fsum(
            weight * math.exp(term - top)
            for (weight, _), term in zip(self._parts, terms, strict=True)
        )
        return Up(top + math.log(total) + FEW)

    def pairs(self) -> Labelled:
        """Return the parts' pairs, each with both labels."""
        found = [(weight, part.pairs()) for weight, part in self._parts]
        return tuple((weight * w, pair) for weight, pairs in found for w, pair in pairs)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the weighted sum of the spectra of the parts."""
        return spectra.mix([(w, part.spectrum(line)) for w, part in self._parts])

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the mixture's cumulants."""
        return spectra.mix_cumulants([(w, part.cumulants(tilt)) for w, part in self._parts])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the weighted sum of the parts' bounds."""
        return spectra.mix_decay([(w, part.decay(tilt, heights, fine)) for w, part in self._parts])


def _bound(curves: Sequence[Mix], side: Side, labels: int) -> Curve:
    """Return the mixture of bounds of each label, in the order of the labels, by the law above.

    Some curves may lack a label, or have one of another shape. These labels are too rare to matter.
    From below they are replaced by the last label that all curves have. From above they are
    replaced by one more label that dominates them all.
    """
    kept = min(labels, *map(_rising, curves))
    found = [bound([curve.parts[k][1] for curve in curves], side) for k in range(kept)]
    rest = [part for curve in curves for _, part in curve.parts[kept:]]
    if rest and side is Side.UP:
        found.append(_above_all([*rest, found[-1]]))
    if not rise(found):
        raise Unordered
    tails = [[*tails_of_weights(curve.parts), 0.0][: len(found)] for curve in curves]
    weights = law(tails, side)
    return Mix(tuple((w, one) for w, one in zip(weights, found, strict=True) if w > 0.0))


@functools.lru_cache(maxsize=8192)
def _rising(curve: Mix) -> int:
    """Return the number of labels of the first one's shape.

    Raises:
        Unordered: not every label's pair is known to dominate the one before.
    """
    labels = [label for _, label in curve.parts]
    if not rise(labels):
        raise Unordered
    shapes = [order.bound for label in labels if (order := label.components().order)]
    return sum(1 for _ in itertools.takewhile(lambda shape: shape is shapes[0], shapes))


def _above_all(labels: Sequence[Any]) -> Curve:
    """Return a pair that dominates all; for half a fold, above loss 0.

    Samples of pairs replace draws that give way to others only at distances where both halves of a
    fold are equal.
    """
    ranks, chances, shifts = zip(*map(draws_of, labels), strict=True)
    chance, shift = max(chances), max(shifts)
    if min(chances) == 1.0:
        return Gdp(shift)
    if max(ranks) == 0:
        (rest, _), (q, _) = labels[chances.index(chance)].p
        farthest = labels[shifts.index(shift)]
        s = farthest.p[1][1]
        sides = ((rest, -s), (q, s)), ((rest, -s), (q, 0.0))
        return GaussianMix(rounded_down(farthest.std), *sides)
    if shift < _FAR:
        raise Unordered
    return Sampled(Gdp(rounded_up(shift)), chance)
