"""The Laplace pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ...registry import registered
from ...rounding import FEW, THOUSANDS, UNIT, Down, Up, rounded_up
from ..moments.contour import Complex, Contour, NoMoments
from ..moments.laplace_rules import LaplaceMix
from ..moments.moments import Labelled, Moments
from ..moments.spectrum import Cumulants, Decay, Near, Spectrum
from .curve import Curve
from .lattice import Array, Side, Tails
from .max_loss import MaxLoss
from .support import Support


@registered
@dataclass(frozen=True)
class LaplacePair(Curve):
    """Laplace(s, 1) against Laplace(0, 1): the Laplace mechanism with sensitivity / scale = s.

    The loss is s or -s outside [0, s] and linear inside.

    Args:
        shift: s, at least 0.
        rounded: whether s was rounded up to the next double, so that the true one is below it.
    """

    shift: float
    rounded: bool = False

    def __post_init__(self) -> None:
        if not self.shift >= 0.0:
            raise ValueError(f"LaplacePair: the shift must be at least 0, got {self.shift}")

    def moments(self) -> Moments:
        """Return the moments in closed form."""
        return LaplaceMoments(self.shift)

    def support(self) -> Support:
        """Return the facts about the loss, whose size is at most the shift."""
        # The reflection y -> s - y swaps the pair.
        low = math.nextafter(self.shift, 0.0) if self.rounded else self.shift
        largest = MaxLoss(Down(low), Up(self.shift))
        return Support(largest=largest, symmetric=True, cover=self._cover)

    def _cover(self) -> float:
        """Return -2 Phi^-1(exp(-shift / 2) / 2), rounded up: exact (docs/curves.md)."""
        exact = -2.0 * float(ndtri(0.5 * math.exp(-0.5 * self.shift)))
        return rounded_up(exact, THOUSANDS) + FEW

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails; inside, P(L <= x) = exp((x - s) / 2) / 2."""
        # Clipped, because the formulas hold only inside; the ends are treated separately below.
        inside = np.clip(loss, -self.shift, self.shift)
        p_below = (inside - self.shift) / 2 - math.log(2.0)
        q_above = -(inside + self.shift) / 2 - math.log(2.0)
        p_above, q_below = np.log1p(-np.exp(p_below)), np.log1p(-np.exp(q_above))
        # L > x excludes the atom at -s from x = -s on, and no loss lies above s.
        below, above = loss < -self.shift, loss >= self.shift
        return Tails(
            np.where(below, 0.0, np.where(above, -np.inf, p_above)),
            np.where(below, 0.0, np.where(above, -np.inf, q_above)),
            np.where(below, -np.inf, np.where(above, 0.0, p_below)),
            np.where(below, -np.inf, np.where(above, 0.0, q_below)),
        )


class LaplaceMoments(Moments):
    """Moments of Laplace(s, 1) against Laplace(0, 1), in closed form.

    Args:
        shift: s, at least 0.
    """

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def log_moment(self, order: float) -> Up:
        """Return log[a / (2a - 1) e^{(a-1) s} + (a - 1) / (2a - 1) e^{-a s}] (Mironov 2017)."""
        # The pair is symmetric, so the moment at a equals that at 1 - a.
        a = max(order, 1.0 - order)
        # The weights add up to 1, so only one is computed. Its product is right to 8 units, or 16
        # after the log, since it is above -1/2. The sum is right to 3 units of its terms.
        second = (a - 1) / (2 * a - 1) * math.expm1(-(2 * a - 1) * self.shift)
        total = (a - 1) * self.shift + math.log1p(second)
        return Up(max(total, 0.0) + 18.0 * UNIT * (1.0 + a * self.shift))

    def pairs(self) -> Labelled:
        """Return the pair, so that samples can be formed."""
        if self.shift == 0.0:
            raise NoMoments
        return ((1.0, LaplaceMix(self.shift, 1.0, 0.0)),)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return (a e^{z s} + z e^{-a s}) / (a + z) at z on the line, a = 1 + z.

        The excess over 1 uses expm1 for the exponentials. The terms are at most |z| s in size, and
        the rounding of their exponents is counted.
        """
        z, s, heights = line.points(), self.shift, line.heights()
        # Its exponentials must stay within doubles.
        if not line.tilt * s < 600.0:
            raise NoMoments
        rise, fall = _expm1(z * s), _expm1(-(1.0 + z) * s)
        near = ((1.0 + z) * rise + z * fall) / (1.0 + 2.0 * z)
        size = (np.abs(1.0 + z) * np.abs(rise) + np.abs(z) * np.abs(fall)) / np.abs(1.0 + 2.0 * z)
        turned = (1.0 + line.tilt + heights) * s * (np.abs(rise) + np.abs(fall) + 2.0)
        error = UNIT * (24.0 * size + 8.0 * turned)
        log_size = math.log1p(near[0].real)
        share = 1.0 / (1.0 + near[0].real)
        off = (error + 8.0 * UNIT * (1.0 + np.abs(near))) * share
        return Spectrum(line.tilt, log_size, (1.0 + near) * share, off, 0.0, Near(near, error))

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the log-moment and two differences."""
        # Differences suffice, because no certificate depends on cumulants.
        step = 1e-3 * (tilt + 1e-3)
        low, here, high = (self.log_moment(1.0 + tilt + k * step) for k in (-1, 0, 1))
        return Cumulants(here, (high - low) / (2 * step), max(high - 2 * here + low, 0.0) / step**2)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return bounds of the two terms: the atoms at both ends never vanish.

        a / (a + z)| falls with the height, |z / (a + z)| rises to a half.
        """
        first = np.hypot(1.0 + tilt, heights) / np.hypot(1.0 + 2.0 * tilt, 2.0 * heights)
        logs = np.logaddexp(np.log(first) + tilt * self.shift, -_LOG_2 - (1 + tilt) * self.shift)
        return Decay(-math.inf, logs + THOUSANDS * (1.0 + tilt * self.shift))


_LOG_2 = math.log(2.0)


def _expm1(z: Complex) -> Complex:
    """Return e^z - 1, both parts right to a few units of their terms."""
    real = np.expm1(z.real) * np.cos(z.imag) - 2.0 * np.sin(0.5 * z.imag) ** 2
    return np.asarray(real + 1j * np.exp(z.real) * np.sin(z.imag))
