"""Mixtures of pairs behind a label that every observer sees."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ...registry import registered
from ...rounding import FEW
from ..moments import spectrum as spectra
from ..moments.contour import Contour
from ..moments.spectrum import Cumulants, Decay, Spectrum
from . import lattice as lattices
from .curve import TAIL_MASS, Curve, Labelled
from .lattice import Array, Lattice, Side, Tails
from .max_loss import MaxLoss, lowered, raised


@registered
@dataclass(frozen=True)
class Mix(Curve):
    """A labelled mixture: with probability w_i the i-th pair, and every observer sees the label."""

    parts: tuple[tuple[float, Curve], ...]

    @property
    def symmetric(self) -> bool:
        """A mixture of symmetric curves is symmetric."""
        return all(curve.symmetric for _, curve in self.parts)

    @property
    def exact(self) -> bool:
        """Whether the tails of all parts are exact."""
        return all(curve.exact for _, curve in self.parts)

    @property
    def amplifiable(self) -> bool:
        """Whether all parts are amplifiable."""
        return all(curve.amplifiable for _, curve in self.parts)

    @property
    def mesh(self) -> float:
        """The common mesh of the parts."""
        return lattices.common_mesh([part.mesh for _, part in self.parts])

    def cover(self) -> float:
        """Return the largest cover of a label."""
        return max(part.cover() for _, part in self.parts)

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

    def log_moment(self, order: float) -> float:
        """Return log of the weighted sum of the parts' moments."""
        terms = [curve.log_moment(order) for _, curve in self.parts]
        return float(logsumexp(terms, b=[weight for weight, _ in self.parts])) + FEW

    def pairs(self) -> Labelled:
        """Return the parts' pairs, each with both labels."""
        found = [(weight, curve.pairs()) for weight, curve in self.parts]
        return tuple((weight * w, pair) for weight, pairs in found for w, pair in pairs)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the weighted sum of the spectra of the parts."""
        return spectra.mix([(w, curve.spectrum(line)) for w, curve in self.parts])

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the mixture's cumulants."""
        return spectra.mix_cumulants([(w, curve.cumulants(tilt)) for w, curve in self.parts])

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the weighted sum of the parts' bounds."""
        return spectra.mix_decay([(w, curve.decay(tilt, heights, fine)) for w, curve in self.parts])

    @property
    def inside(self) -> tuple[Curve, ...]:
        """The curves of all labels."""
        return tuple(curve for _, curve in self.parts)

    def swap(self) -> Curve:
        """Return the mixture of the swapped parts."""
        return Mix(tuple((weight, curve.swap()) for weight, curve in self.parts))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the weighted sum of the parts' lattices."""
        return lattices.add([c.lattice(step, side, tail_mass).scaled(w) for w, c in self.parts])

    def max_loss(self) -> MaxLoss:
        """Return the largest loss of all labels."""
        parts = [(weight, part.max_loss()) for weight, part in self.parts]
        return MaxLoss(
            max(part.low for _, part in parts),
            max(part.high for _, part in parts),
            lowered(math.fsum(weight * part.infinite_low for weight, part in parts)),
            min(raised(math.fsum(weight * part.infinite_high for weight, part in parts)), 1.0),
        )
