"""Mixtures of Laplace(s, 1) and Laplace(0, 1) against each other: rules for their moments.

The likelihood ratio r of the two laws is e^-s below 0, and e^s above s. Between the two points it
is e^{2y - s}, and y has the density e^{-y} / 2 under Laplace(0, 1). Write P = 1 - a + a r and Q = 1
- b + b r in units of that law. Then the moment at z is its mean of P^{1+z} Q^{-z}. It consists of
two atoms and an integral over [0, s]. The integrand is analytic for |Im y| < pi / 2, where neither
sum vanishes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...rounding import UNIT
from .contour import Array, NoMoments
from .gaussian_rules import DEPTH
from .legendre import legendre
from .spectrum import Cumulants, Rule, Spectrum, log_total, node_count, panel_factor

_MOST_NODES = 1 << 16
_LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class LaplaceMix:
    """P = (1-a) Laplace(0, 1) + a Laplace(s, 1), and Q the same with b; or a half line of both.

    Args:
        shift: s, above 0.
        a: P's weight.
        b: Q's weight.
        start: smallest outcome, -inf or in [0, s].
        stop: largest outcome, inf or in [0, s].
        weight: weight of the label.
        log_p, log_q: logs of factors of P and Q, because parts of laws have masses below 1.
    """

    shift: float
    a: float
    b: float
    start: float = -math.inf
    stop: float = math.inf
    weight: float = 1.0
    log_p: float = 0.0
    log_q: float = 0.0

    gaussian = None
    finite = None
    divisible = None
    jumps_alike = True

    @property
    def halved(self) -> LaplaceMix:
        """The pair itself."""
        return self

    def swap(self) -> LaplaceMix:
        """Return the pair (Q, P)."""
        return replace(self, a=self.b, b=self.a, log_p=self.log_q, log_q=self.log_p)

    def sampled(self, q: float) -> LaplaceMix:
        """Return ((1 - q) Q + q P, Q)."""
        return replace(self, a=(1.0 - q) * self.b + q * self.a)

    def above(self, weight: float) -> LaplaceMix:
        """Return the outcomes with a loss above 0: those above s / 2 if P has more weight at s."""
        half = {"start": 0.5 * self.shift} if self.a > self.b else {"stop": 0.5 * self.shift}
        return replace(self, weight=weight, **half)

    @property
    def mass(self) -> float:
        """P's mass of a half of the line, with the label's weight."""
        tail = 0.5 * math.exp(-0.5 * self.shift)
        above = (1.0 - self.a) * tail + self.a * (1.0 - tail)
        return self.weight * (above if self.stop == math.inf else 1.0 - above)

    def _logs(self, y: Array) -> tuple[Array, Array]:
        """Return log P and log Q at outcomes, in units of Laplace(0, 1)."""
        at = np.clip(y, 0.0, self.shift)
        return self._log(self.a, at) + self.log_p, self._log(self.b, at) + self.log_q

    def _log(self, weight: float, y: Array) -> Array:
        """Return log(1 - weight + weight r), right to 12 units of itself plus those of 2 y - s."""
        x = 2.0 * y - self.shift
        if weight == 1.0:
            return x
        rise = weight * np.expm1(x)
        # Near 0 log1p keeps the digits; farther out a plain logarithm is equally accurate.
        near = np.abs(rise) < 0.5
        far = np.log((1.0 - weight) + weight * np.exp(x))
        return np.asarray(np.where(near, np.log1p(np.where(near, rise, 0.0)), far))

    def _panels(self, tilt: float) -> tuple[Array, float]:
        """Return (middles, radius) of panels; the integrand rises by about e^2 over each."""
        low, high = max(self.start, 0.0), min(self.stop, self.shift)
        # P and Q rise at most like e^{2 y}, to the powers 1 + tilt and -tilt.
        steep = 1.0 + 2.0 * (1.0 + tilt) * (self.a > 0) + 2.0 * tilt * (self.b > 0)
        count = max(math.ceil((high - low) * max(steep / 2.0, 1.0)), 1)
        radius = (high - low) / (2 * count)
        return np.asarray(low + radius * (2.0 * np.arange(count) + 1.0)), radius

    def _each(self, middle: Array, radius: float, tilt: float, height: float) -> tuple[int, float]:
        """Return the number of nodes of a panel, and the log of a bound on the error of the rule.

        Both hold for the moment and for P's own mass. With Im y = d the terms of P and Q are at an
        angle of 2d. So |P| is at most its value at Re y, and |Q| is at least cos(d) times its value
        there. P is largest at the right end of the ellipse, and Q is smallest at the left end.
        """
        best: tuple[int, float] | None = None
        for rho in (1.2, 1.5, 2.0, 3.0, 4.5, 7.0):
            d, reach = 0.5 * (rho - 1.0 / rho) * radius, 0.5 * (rho + 1.0 / rho) * radius
            # These bounds require that the angle 2 d of the terms is below a right angle.
            if d > 0.75:
                break
            left, right = middle - reach, middle + reach
            log_p, log_q = self._logs_on(left, right)
            plain = log_p - left - _LOG_2
            top = plain + tilt * (log_p - log_q)
            top -= tilt * math.log(math.cos(d))
            turn = self._turn(self.a, right, d) + self._turn(self.b, right, d)
            factor = float(np.max(np.maximum(top + height * turn, plain)))
            factor += panel_factor(radius, rho) + math.log(2.0 * len(middle))
            try:
                count = node_count((factor + DEPTH) / (2.0 * math.log(rho)))
            # Too many nodes on this ellipse. A larger ellipse may need fewer.
            except NoMoments:
                continue
            if best is None or count < best[0]:
                best = count, factor - 2.0 * count * math.log(rho)
        if best is None or best[0] * len(middle) > _MOST_NODES:
            raise NoMoments
        return best

    def _logs_on(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Return P's largest log and Q's smallest between real points, inside [0, s] or not."""
        log_p = self._log(self.a, right) + self.log_p
        return log_p, self._log(self.b, left) + self.log_q

    def _turn(self, weight: float, y: Array, d: float) -> Array:
        """Return the largest angle of 1 - weight + weight r for |Im y| <= d, Re y at most y."""
        ratio = weight * np.exp(2.0 * y - self.shift)
        return np.arctan2(ratio * math.sin(2.0 * d), 1.0 - weight + ratio * math.cos(2.0 * d))

    def rule(self, tilt: float, height: float, *others: object) -> Rule:
        """Return Gauss-Legendre panels between the atoms, which are nodes too.

        Args:
            tilt: real part of z, at least 0.
            height: largest imaginary part.
            others: further arguments of Gaussian rules; here the nodes always serve P's own mass.

        Raises:
            NoMoments: the rule would need too many nodes, or would overflow.
        """
        del others
        if not (1.0 + 2.0 * tilt) * self.shift < 600.0:
            raise NoMoments
        middle, radius = self._panels(tilt)
        each, log_error = self._each(middle, radius, tilt, height)
        at, share = legendre(each)
        y = (middle[:, None] + radius * at).ravel()
        log_plain = np.tile(np.log(radius * share), len(middle)) - y - _LOG_2
        # Outside (0, s) the loss is constant, so the whole mass on each side is one node.
        ends = [
            (-1.0, 0.0, self.start == -math.inf),
            (self.shift + 1.0, -self.shift, self.stop == math.inf),
        ]
        kept = [(place, log_mass - _LOG_2) for place, log_mass, held in ends if held]
        y = np.append(y, [place for place, _ in kept])
        log_plain = np.append(log_plain, [log_mass for _, log_mass in kept])
        log_p, log_q = self._logs(y)
        loss = log_p - log_q
        log_plain = log_plain + log_p
        # A node has an error of at most 4 units of s, 2 y - s twice that, and both logs as much.
        known = np.abs(log_p) + np.abs(log_q) + abs(self.log_p) + abs(self.log_q)
        slip = UNIT * 16.0 * (known + self.shift)
        wobble = UNIT * (32.0 + 8.0 * self.shift + 4.0 * np.abs(log_plain)) + (1.0 + tilt) * slip
        return Rule(log_plain + tilt * loss, loss, wobble, slip, log_error, 0.0, log_plain)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the log-moment and two derivatives."""
        rule = self.rule(tilt, 0.0)
        value = float(log_total(rule.log_weight))
        share = np.exp(rule.log_weight - value)
        mean = float(share @ rule.loss)
        return Cumulants(value, mean, float(share @ (rule.loss - mean) ** 2))

    def lost(self, at: Spectrum, heights: Array) -> Array:
        """Return zeros: the moments of the atoms do not fall with the height."""
        del at
        return np.zeros_like(heights)
