"""Pairs of Gaussian mixtures of unit variance: rules for their moments, and bounds on decay.

Write ``P = sum_i p_i N(a_i, 1)``, ``Q = sum_j q_j N(b_j, 1)``,
``S_P(y) = sum_i p_i e^{a_i y - a_i^2/2}`` and ``S_Q`` likewise. Then the loss is
``log S_P - log S_Q``, and the moment at ``s`` integrates ``phi(y) S_P^{1+s} S_Q^{-s}``. The
integrand is analytic where neither sum vanishes: for ``|Im y| = d`` the phases of S_P lie in an arc
of length ``d (max a - min a)``. On that line its modulus is at most the modulus at Re y times
``e^{d^2/2} cos(d (max b - min b) / 2)^{-tilt}`` times ``e^{v turn}``. Here ``turn`` is the change
of arg S_P - arg S_Q. See docs/theory/inversion.md for the errors of the rules.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ...rounding import FEW, TENS
from .contour import Array, NoMoments, PerRow
from .legendre import legendre
from .mixtures import Columns, Mixture, log_sum, posterior_mean, rounding
from .spectrum import Cumulants, Rule, Spectrum, log_total
from .staircase import Edges, lost, slabs

DEPTH = 40.0
"""The error of each rule is at most a few exp(-40) = 4e-18."""
MAX_NODES = 1 << 16
_NEAR_ONE = 0.1
"""Up to this log-moment, the moment minus 1 is integrated directly."""
_LOG_FEW = -2.3
"""The same limit for a moment that counts with the weight of a label, log(0.1)."""
CHEAP_NODES = 400
"""Up to this number of nodes no tighter bound on the turns is computed."""


@dataclass(frozen=True, eq=False)
class Ends:
    """Smallest and largest means of P and of Q: floats, or columns of shape (rows, 1)."""

    least_p: PerRow
    most_p: PerRow
    least_q: PerRow
    most_q: PerRow

    @property
    def all(self) -> tuple[PerRow, ...]:
        """The four means."""
        return self.least_p, self.most_p, self.least_q, self.most_q

    @functools.cached_property
    def spread(self) -> PerRow:
        """The largest difference of two means."""
        return np.maximum(self.most_p, self.most_q) - np.minimum(self.least_p, self.least_q)

    @functools.cached_property
    def strips(self) -> Array:
        """Distances from the real line at which the error of the rule is evaluated."""
        # Below d spread = pi neither sum vanishes. Strips wider than 12 give no gain.
        return np.asarray(_SHARES * np.minimum(math.pi / np.maximum(self.spread, 0.2), 12.0))

    def span(self, tilt: float, depth: float) -> tuple[PerRow, PerRow]:
        """Return an interval outside which the integrand adds up to at most e^-depth.

        ``P^{1+s} Q^{-s}`` is jointly convex. So it is at most the weighted sum over all (a, b) of
        ``e^{t (t-1) (a-b)^2/2} phi(y - t a - (1 - t) b)``, t = 1 + tilt.
        """
        t = 1.0 + tilt
        radius = (t * tilt * self.spread**2 + 2.0 * depth) ** 0.5
        low = t * self.least_p + (1.0 - t) * self.most_q
        return low - radius, t * self.most_p + (1.0 - t) * self.least_q + radius

    def log_growth(self, d: Array | float, tilt: float) -> Array:
        """Return the log of the largest growth of the integrand at Im y = d, without the turns."""
        half = 0.5 * (self.most_q - self.least_q)
        # The bound of the cosine ends at a right angle. Just before it, the bound is useless but
        # finite.
        return np.asarray(0.5 * d * d - tilt * np.log(np.cos(np.minimum(d * half, 1.57))))

    def log_strip(self, tilt: float, height: float) -> Array:
        """Return the log of the integral of |integrand| on each strip, with the largest turn."""
        d = self.strips
        return np.asarray(self.log_growth(d, tilt) + height * d * self.spread)

    def serves_p(self, low: PerRow, high: PerRow) -> PerRow:
        """Return whether P's own mass outside an interval is below e^-DEPTH."""
        return (low <= self.least_p - _RADIUS) & (high >= self.most_p + _RADIUS)


@dataclass(frozen=True)
class GaussianPair:
    """P and Q, each a mixture of (weight, mean), unit variance."""

    p: Mixture
    q: Mixture

    finite = None
    halved = None
    jumps_alike = False

    @property
    def gaussian(self) -> GaussianPair:
        """The pair itself."""
        return self

    def swap(self) -> GaussianPair:
        """Return the pair (Q, P)."""
        return GaussianPair(self.q, self.p)

    def sampled(self, q: float) -> GaussianPair:
        """Return ((1 - q) Q + q P, Q), equal means merged."""
        return _sampled(self, q)

    def mirrored(self) -> GaussianPair:
        """Return the pair of -y."""
        return GaussianPair(tuple((w, -m) for w, m in self.p), tuple((w, -m) for w, m in self.q))

    @functools.cached_property
    def ends(self) -> Ends:
        """The smallest and largest means."""
        a, b = [mean for _, mean in self.p], [mean for _, mean in self.q]
        return Ends(min(a), max(a), min(b), max(b))

    @functools.cached_property
    def spread(self) -> float:
        """The largest difference of two means."""
        return float(self.ends.spread)

    @functools.cached_property
    def reach(self) -> float:
        """The largest difference of two means, or the largest size of one."""
        return max(self.spread, *(abs(mean) for _, mean in self.p + self.q))

    def oriented(self) -> tuple[GaussianPair, float]:
        """Return the pair, mirrored if necessary, and the y above which P > Q.

        P - Q must be a difference of two Gaussians. Both have the same weight, since P and Q have,
        so the densities cross halfway between the means.

        Raises:
            NoMoments: P - Q has another form.
        """
        net: dict[float, float] = {}
        for sign, mixture in ((1.0, self.p), (-1.0, self.q)):
            for weight, mean in mixture:
                net[mean] = net.get(mean, 0.0) + sign * weight
        # Equal means cancel, so P - Q may be simpler than P and Q.
        ends = sorted((mean, weight) for mean, weight in net.items() if weight != 0.0)
        if len(ends) != 2 or not abs(ends[0][1] + ends[1][1]) < FEW:
            raise NoMoments
        (a, low), (b, _) = ends
        if low > 0:
            return self.mirrored().oriented()
        return self, 0.5 * (a + b)

    def _exponent(self, y: Array, tilt: float) -> tuple[Array, Array]:
        """Return (log of the integrand without its constant, loss) at each y."""
        log_p, log_q = log_sum(self.p, y), log_sum(self.q, y)
        return (1 + tilt) * log_p - tilt * log_q - 0.5 * (y * y), log_p - log_q

    def cells(self, low: float, high: float, tilt: float) -> tuple[Array, Array]:
        """Return (edges of cells of width 1/4, log of a bound on the integral over each cell)."""
        edges = np.linspace(low, high, math.ceil(4.0 * (high - low)) + 1)
        log_top = self.log_top(edges[:-1], edges[1:], tilt) + math.log(edges[1] - edges[0])
        return edges, log_top

    def rule(self, tilt: float, height: float, weight: float = 1.0) -> Rule:
        """Return the trapezoid rule for the whole line, up to a height.

        Args:
            tilt: real part of s.
            height: largest imaginary part.
            weight: weight of the pair's label in a mixture.

        Raises:
            NoMoments: the rule would need too many nodes.
        """
        # Trefethen and Weideman (2014), Theorem 5.1: the error of the trapezoid rule is about e^{-2
        # pi d / mesh} times the integral on the line Im y = d. Each strip allows a mesh, and the
        # largest is used.
        low, high, log_outside = self._trimmed(tilt)
        log_strip, log_size = self._strip(tilt, height, (low, high), log_outside)
        mesh = float(finest_mesh(self.ends, log_strip - log_size)[0])
        if not (high - low) / mesh < MAX_NODES:
            raise NoMoments
        # Multiples of the mesh are then exact, so the nodes have no rounding error.
        mesh = float(exact_mesh(mesh))
        y = mesh * np.arange(math.floor(low / mesh), math.ceil(high / mesh) + 1, dtype=np.float64)
        log_error = np.logaddexp(trapezoid_error(log_size), log_outside)
        weighed = Weighed.at(self.p, self.q, y, math.log(mesh), tilt)
        # P's own mass is served only if the nodes cover it.
        near = self.ends.serves_p(low, high) and weighed.near(weight)
        return weighed.rule(log_error, near)

    def _narrowed(self, tilt: float, low: float, high: float) -> tuple[float, float]:
        """Return the relevant part of an interval, from 256 points; not certified.

        The second derivative of the exponent is at least -1, and larger where the mixtures bend. So
        between two points it rises above their chord by at most an eighth of their distance
        squared.
        """
        y = np.linspace(low, high, 256)
        step = float(y[1] - y[0])
        exponent, _ = self._exponent(y, tilt)
        heavy = y[exponent > np.max(exponent) - 30.0 - 0.125 * step * step]
        return max(low, float(heavy[0]) - step), min(high, float(heavy[-1]) + step)

    def _trimmed(self, tilt: float) -> tuple[float, float, float]:
        """Return the relevant interval, and the log of a bound on the integral outside.

        The bound also holds for the trapezoid sum outside, for a mesh below 1.
        """
        low, high = self.span(tilt)
        count = math.ceil(4.0 * (high - low))
        # Short intervals are not trimmed, because the search costs more than the saved nodes.
        if count < 240:
            return low, high, -DEPTH
        if count > MAX_NODES:
            raise NoMoments
        edges, log_top = self.cells(low, high, tilt)
        # e^-60 of the largest cell is far below e^-DEPTH, even times the number of cells.
        cut = float(np.max(log_top)) - 60.0
        heavy = np.flatnonzero(log_top > cut)
        outside = float(np.logaddexp(cut + math.log(count) + 2.0, -DEPTH))
        return float(edges[heavy[0]]), float(edges[heavy[-1] + 1]), outside

    def _strip(
        self, tilt: float, height: float, inside: tuple[float, float], log_outside: float
    ) -> tuple[Array, float]:
        """Return logs of the integral of |integrand| on the lines Im y = d, and of that for d = 0.

        The first is an upper bound, the second an estimate. If the height is small, both are in
        units of A(tilt).
        """
        (low, high), d = inside, self.ends.strips
        simple = self.ends.log_strip(tilt, height)
        if high - low < CHEAP_NODES * finest_mesh(self.ends, simple):
            return simple, 0.0
        if math.ceil(4.0 * (high - low)) > MAX_NODES // 4:
            raise NoMoments
        edges, log_top = self.cells(low, high, tilt)
        # Cells far below the largest are bounded together, with the largest turn.
        keep = log_top > np.max(log_top) - 120.0
        phase = self.phase(d[:, None], edges[:-1][keep], edges[1:][keep])
        log_strip = log_total((log_top[keep] + height * phase).T)
        log_strip = np.logaddexp(log_strip, np.max(log_top) - 100.0 + height * d * self.spread)
        # The integrand outside the interval turns, too.
        ends = self.phase(d[:, None], np.array([-_FAR, high]), np.array([low, _FAR]))
        log_strip = np.logaddexp(log_strip, log_outside + height * np.max(ends, axis=1))
        growth = self.ends.log_growth(d, tilt)
        return growth + log_strip, max(float(log_total(log_top)) - 1.0, 0.0)

    def phase(self, d: Array | float, low: Array, high: Array) -> Array:
        """Return the largest turn of the phases on each interval: see ``phase_bound``."""
        return phase_bound(self.p, self.q, self.ends, d, low, high)

    def cumulants(self, tilt: float, start: float = -math.inf, stop: float = math.inf) -> Cumulants:
        """Return log A(tilt) and two derivatives to a few digits, for y between two points."""
        # e^-18 is accurate enough for a few digits.
        low, high = self.span(tilt, 18.0)
        half = start > low or stop < high
        low, high = between(start, stop, low, high)
        width = min(1.5, 2.0 / self.spread) if half else min(0.4, 1.2 / max(self.spread, 1.0))
        if (high - low) / width > 600 or stop < math.inf:
            low, high = self._narrowed(tilt, low, high)
            width = min(width, 0.25 * (high - low))
        count = math.ceil((high - low) / width)
        if not count < MAX_NODES:
            raise NoMoments
        radius = 0.5 * (high - low) / count
        # The midpoint rule is accurate enough on a whole line; a truncated line needs panels.
        at, share = legendre(12) if half else _MIDPOINT
        y = (low + radius * (2 * np.arange(count)[:, None] + 1.0 + at)).ravel()
        log_width = math.log(radius) + np.log(np.tile(share, count))
        found = Weighed.at(self.p, self.q, y, log_width, tilt).cumulants()
        return Cumulants(*(float(column[0]) for column in found))

    def span(self, tilt: float, depth: float = DEPTH + 1.0) -> tuple[float, float]:
        """Return an interval outside which the integrand adds up to at most e^-depth."""
        with np.errstate(over="ignore"):
            low, high = (float(end) for end in self.ends.span(tilt, depth))
        if not math.isfinite(high - low):
            raise NoMoments  # no nodes reach from end to end
        return low, high

    def log_top(self, low: Array, high: Array, tilt: float) -> Array:
        """Return an upper bound on the log of the integrand on each interval: see ``log_top``."""
        return log_top(self.p, self.q, low, high, tilt)

    def mass(self, start: float, stop: float) -> float:
        """Return the mass of P between two points; exact to a few units if one is infinite."""
        # Each tail is computed from its small side, so no tail is lost in a difference from 1.
        if start > -math.inf:
            above = sum(w * float(ndtr(m - start)) for w, m in self.p)
            return above - (self.mass(stop, math.inf) if stop < math.inf else 0.0)
        return sum(w * float(ndtr(stop - m)) for w, m in self.p)

    def lost(
        self,
        at: Spectrum,
        heights: Array,
        start: float = -math.inf,
        stop: float = math.inf,
    ) -> Array:
        """Return a lower bound on A(tilt) - |A(tilt + i v)| for all v from each height on.

        The answer is in units of the size of ``at``. A is the integral between ``start`` and
        ``stop``.

        The answer is that of a staircase below the density of the loss; see ``staircase``.
        """
        return lost(*_slabs(self, at.tilt, at.log_size, start, stop), heights)

    def heavy_range(self, tilt: float, start: float, stop: float) -> tuple[float, float]:
        """Return an interval with nearly all the tilted mass between two points."""
        low, high = between(start, stop, *self.span(tilt))
        if stop < math.inf:
            low, high = self._narrowed(tilt, low, high)
        y = np.linspace(low, high, min(max(256, math.ceil((high - low) / 0.1)), MAX_NODES))
        exponent, _ = self._exponent(y, tilt)
        # Values below e^-6 of the maximum hardly contribute to the staircase.
        heavy = y[exponent > np.max(exponent) - 6.0]
        return float(heavy[0]), float(heavy[-1])


def log_top(
    p: Mixture | Columns, q: Mixture | Columns, low: Array, high: Array, tilt: float
) -> Array:
    """Return an upper bound on the log of the integrand on each interval."""
    return log_tops(p, q, low, high, (tilt,))[0]


def log_tops(
    p: Mixture | Columns, q: Mixture | Columns, low: Array, high: Array, tilts: tuple[float, ...]
) -> list[Array]:
    """Return upper bounds on the logs of the integrands of several tilts on each interval.

    log S_P and log S_Q are convex: one lies below its chord, the other above its tangent. The
    remaining bound is a parabola, whose maximum is known.
    """
    middle, length = 0.5 * (low + high), np.maximum(high - low, 1e-9)
    at_low, at_high = log_sum(p, low), log_sum(p, high)
    rise, mean = (at_high - at_low) / length, posterior_mean(q, middle)
    level, below = 0.5 * (at_low + at_high), log_sum(q, middle)
    found = []
    for tilt in tilts:
        slope = (1 + tilt) * rise - tilt * mean
        height = (1 + tilt) * level - tilt * below
        top = np.clip(slope, low, high)
        found.append(height + slope * (top - middle) - 0.5 * (top * top + LOG_2PI))
    return found


def phase_bound(
    p: Mixture | Columns,
    q: Mixture | Columns,
    ends: Ends,
    d: Array | float,
    low: Array,
    high: Array,
) -> Array:
    """Return the largest turn of arg S_P - arg S_Q on each interval, at imaginary parts up to d.

    All phases are those of e^{i d (mean - m)}, averaged over the means given y. So the turn is at
    most d spread. It is also at most d / cos(d spread) times the expected distance of the
    means from any m. Here m is the smallest or the largest mean, and the expectations are monotone.
    """
    least, most = np.minimum(ends.least_p, ends.least_q), np.maximum(ends.most_p, ends.most_q)
    reach = np.maximum(ends.spread, np.maximum(np.abs(least), np.abs(most)))
    at_high = posterior_mean(p, high) + posterior_mean(q, high)
    at_low = posterior_mean(p, low) + posterior_mean(q, low)
    distance = np.minimum(at_high - 2 * least, 2 * most - at_low)
    distance = np.maximum(distance, 0.0) * (1 + 1e-9) + TENS * reach
    # Beyond 1.5 the bound with the cosine is worse than the plain one.
    angle = np.minimum(d * ends.spread, 1.5)
    near = np.where(angle < 1.5, distance * d / np.cos(angle), np.inf)
    return np.asarray(np.minimum(d * ends.spread, near))


def finest_mesh(ends: Ends, log_strip: Array) -> PerRow:
    """Return the largest mesh that any strip allows, its integrals in units of the wanted size."""
    return np.max(2.0 * math.pi * ends.strips / (DEPTH + log_strip), axis=-1, keepdims=True)


def exact_mesh(mesh: PerRow) -> PerRow:
    """Return a slightly smaller mesh with 24 binary digits, whose multiples are exact."""
    # Rounded down first, so that the float32 value does not exceed the allowed mesh.
    return np.asarray((1.0 - 1.2e-7) * mesh).astype(np.float32).astype(np.float64)


def trapezoid_error(log_size: PerRow) -> PerRow:
    """Return the log of the trapezoid rule's error, on the required mesh."""
    return np.logaddexp(log_size, 0.0) - DEPTH + 1.0


class Weighed(NamedTuple):
    """Nodes of a rule with their weights; one row per pair.

    Args:
        p: P's components.
        q: Q's components.
        y: the nodes, shape ``(..., nodes)``.
        tilt: real part of s.
        log_p: log S_P at the nodes.
        log_q: log S_Q at the nodes.
        log_plain: logs of the weights of P's own mass.
        log_weight: logs of the tilted weights.
        log_size: log of their sum, a column.
    """

    p: Mixture | Columns
    q: Mixture | Columns
    y: Array
    tilt: float
    log_p: Array
    log_q: Array
    log_plain: Array
    log_weight: Array
    log_size: Array

    @classmethod
    def at(
        cls,
        p: Mixture | Columns,
        q: Mixture | Columns,
        y: Array,
        log_width: Array | float,
        tilt: float,
    ) -> Weighed:
        """Weigh nodes; ``log_width`` are the logs of their weights without the integrand."""
        log_p, log_q = log_sum(p, y), log_sum(q, y)
        log_plain = log_width - 0.5 * (y * y + LOG_2PI) + log_p
        log_weight = log_plain + tilt * (log_p - log_q)
        return cls(p, q, y, tilt, log_p, log_q, log_plain, log_weight, _row_total(log_weight))

    def near(self, weight: PerRow = 1.0) -> PerRow:
        """Return whether the moment is near 1, or small when weighted by the pair's label.

        Then P's own mass is kept, and the moment minus that mass has its own digits.
        """
        return (self.log_size < _NEAR_ONE) | (self.log_size + np.log(weight) < _LOG_FEW)

    def rows(self, chosen: NDArray[np.intp]) -> Weighed:
        """Return the chosen rows."""
        p, q = (chosen_rows(side, chosen) for side in (self.p, self.q))
        columns = (column[chosen] for column in self[4:])
        return Weighed(p, q, self.y[chosen], self.tilt, *columns)

    def cumulants(self) -> tuple[Array, Array, Array]:
        """Return each row's log-moment and its two derivatives, as columns."""
        loss = self.log_p - self.log_q
        share = np.exp(self.log_weight - self.log_size)
        mean = (share * loss).sum(axis=-1, keepdims=True)
        square = (share * loss * loss).sum(axis=-1, keepdims=True)
        return self.log_size, mean, square - mean * mean

    def rule(self, log_error: PerRow, near: bool, displaced: float = 0.0) -> Rule:
        """Return the rule without the nodes that are negligible in every row.

        Args:
            log_error: log of the error of the rule.
            near: whether the nodes also serve P's own mass.
            displaced: position error of a node, in addition to a few units of y.
        """
        counts = np.maximum(self.log_weight, self.log_plain) if near else self.log_weight
        top = counts.max(axis=-1, keepdims=True, initial=-np.inf)
        keep = counts > top - _LEFT_OUT
        # Rows share an array, so a node stays if any row needs it.
        keep = keep if keep.ndim == 1 else keep.any(axis=0)
        y, log_p, log_q, log_weight, log_plain = (
            column[..., keep]
            for column in (self.y, self.log_p, self.log_q, self.log_weight, self.log_plain)
        )
        wobble, slip = rounding(self.p, self.q, y, self.tilt, log_p, log_q)
        if displaced:
            mean_p = posterior_mean(self.p, y)
            slope = np.abs(mean_p - posterior_mean(self.q, y))
            wobble = wobble + displaced * (np.abs(y) + np.abs(mean_p) + self.tilt * slope)
            slip = slip + displaced * slope
        # The omitted nodes count for P's mass and for the moment.
        left_out = top - _LEFT_OUT + math.log(max(len(keep), 1)) + (math.log(2.0) if near else 0.0)
        own = (_row_total(counts) if near else self.log_size) + 1.0 - DEPTH
        log_error = np.logaddexp(np.logaddexp(log_error, left_out), own)
        if not near:
            return Rule(log_weight, log_p - log_q, wobble, slip, log_error)
        log_error = np.logaddexp(log_error, 1.5 - DEPTH)
        return Rule(log_weight, log_p - log_q, wobble, slip, log_error, 0.0, log_plain)


def chosen_rows(mixture: Mixture | Columns, chosen: NDArray[np.intp]) -> Columns:
    """Return the chosen rows of columns."""
    return tuple((np.asarray(w)[chosen], np.asarray(m)[chosen]) for w, m in mixture)


def _row_total(logs: Array) -> Array:
    """Return the log of the sum of exponentials of each row, as a column."""
    top = logs.max(axis=-1, keepdims=True, initial=-1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.exp(logs - top).sum(axis=-1, keepdims=True)))


@functools.lru_cache(maxsize=256)
def _slabs(
    pair: GaussianPair, tilt: float, log_size: float, start: float, stop: float
) -> tuple[Array, Array]:
    """Return the slabs of the staircase; coarse heights and then finer ones are asked of one."""
    # 160 cells: finer cells increased the covered mass by less than 1 %.
    edges = np.linspace(*pair.heavy_range(tilt, start, stop), 161)
    return slabs(*Edges.at(pair.p, pair.q, edges).staircase(tilt, log_size))


@functools.lru_cache(maxsize=4096)
def _sampled(pair: GaussianPair, q: float) -> GaussianPair:
    weights: dict[float, float] = {}
    for share, mixture in ((1.0 - q, pair.q), (q, pair.p)):
        for weight, mean in mixture:
            weights[mean] = weights.get(mean, 0.0) + share * weight
    return GaussianPair(tuple((w, mean) for mean, w in weights.items()), pair.q)


def between(start: float, stop: float, low: float, high: float) -> tuple[float, float]:
    """Return the part of (low, high) between start and stop; if empty, a unit inside the latter.

    A half line begins at ``start`` even if ``low`` is above it.
    """
    if start > -math.inf and stop == math.inf:
        return start, max(high, start + 1.0)
    low, high = max(start, low), min(stop, high)
    if low < high:
        return low, high
    return (start, min(start + 1.0, stop)) if start > -math.inf else (stop - 1.0, stop)


LOG_2PI = math.log(2.0 * math.pi)
_MIDPOINT = np.zeros(1), np.full(1, 2.0)
_FAR = 1e150
_SHARES = np.linspace(0.02, 0.98, 25)
"""Shares of the strip where the integrand is analytic; the best of these is used."""
_RADIUS = math.sqrt(2.0 * (DEPTH + 1.0))
"""At this distance from its means, a Gaussian's mass is below e^-DEPTH."""
_LEFT_OUT = 45.0
"""Nodes with at most e^-45 times the largest weight are left out and counted as an error."""
