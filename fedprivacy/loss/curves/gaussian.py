"""Gaussian pairs: one Gaussian against another, and mixtures of one standard deviation."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from ...registry import registered
from ...rounding import TENS, THOUSANDS, UNIT, Down, Up, lowered, raised, rounded_down, rounded_up
from ..moments.contour import Complex, Contour
from ..moments.folded_gaussians import GivenWay
from ..moments.gaussian_rules import GaussianPair
from ..moments.mixtures import Mixture, log_sum, posterior_mean, smallest_log_ratio
from ..moments.moments import Labelled, Moments, PairMoments
from ..moments.spectrum import Cumulants, Decay, Near, Spectrum, log_total
from .components import Components, Order, Trimmed, UnitDraws, Unordered, moved
from .curve import TAIL_MASS, Curve
from .kept import kept
from .lattice import Array, Lattice, Side, Tails
from .max_loss import NO_LIMIT, MaxLoss
from .order import FARTHEST, NEAREST, law, tails_of_weights
from .support import Support

MOST_EXPONENT = 660.0
"""Products of sizes down to e^-660 are far from underflow."""
_LEAST = 1 << 1074
"""Every double is an integer multiple of 1 / _LEAST."""
_FARTHEST_TRIMMED = 35.0
"""Mass that is moved within Q counts e^35 times, for epsilons up to 35."""
_BLOCK = 1 << 15
"""Number of losses in one evaluation of a mixture's tails, which fits into a cache."""


@registered
@dataclass(frozen=True)
class Gdp(Curve):
    """N(mu, 1) against N(0, 1): the Gaussian mechanism with sensitivity / std = mu."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0.0:
            raise ValueError(f"Gdp: mu must be at least 0, got {self.mu}")

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails: L is N(mu^2/2, mu^2) under P and N(-mu^2/2, mu^2) under Q."""
        # Without a loss there is no deviation to divide by: all mass is at 0.
        if self.mu == 0.0:
            above = np.where(loss < 0, 0.0, -np.inf)
            below = np.where(loss < 0, -np.inf, 0.0)
            return Tails(above, above, below, below)
        return gaussian_tails(self.mu, loss)

    @kept
    def moments(self) -> Moments:
        """Return the moments in closed form."""
        return GdpMoments(self.mu)

    @kept
    def support(self) -> Support:
        """Return the facts about a Gaussian loss: no limit, or 0 without a loss."""
        some = self.mu > 0.0
        # The reflection y -> mu - y swaps the pair. Without a loss every step is a mesh.
        return Support(
            largest=NO_LIMIT if some else MaxLoss.exactly(0.0),
            symmetric=True,
            mesh=0.0 if some else math.inf,
            cover=self.mu,
        )

    @kept
    def components(self) -> Components:
        """Return the order by mu."""
        return Components(order=Order(_bound_gaussians, draws=UnitDraws(1, 1.0, self.mu)))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the rounded loss; a loss of 0 is rounded exactly."""
        if self.mu == 0.0:
            return Lattice(step, 0, np.ones(1), 0.0)
        return super().lattice(step, side, tail_mass)


def gaussian_tails(mu: float | Array, loss: Array) -> Tails:
    """Return the tails of N(mu, 1) against N(0, 1), mu above 0; several mu broadcast."""
    half, scaled = mu / 2, loss / mu
    return Tails(
        log_ndtr(half - scaled),
        log_ndtr(-half - scaled),
        log_ndtr(scaled - half),
        log_ndtr(scaled + half),
    )


class GdpMoments(Moments):
    """Moments of N(mu, 1) against N(0, 1), in closed form.

    Args:
        mu: at least 0.
    """

    def __init__(self, mu: float) -> None:
        self.mu = mu

    def log_moment(self, order: float) -> Up:
        """Return order (order - 1) mu^2 / 2."""
        return Up(order * (order - 1.0) * self.mu * self.mu / 2)

    def pairs(self) -> Labelled:
        """Return the pair itself."""
        return ((1.0, GaussianPair(((1.0, self.mu),), ((1.0, 0.0),))),)

    def spectrum(self, line: Contour) -> Spectrum:
        """Return e^{s (s + 1) mu^2 / 2}."""
        s, half = line.points(), 0.5 * self.mu * self.mu
        log_size = line.tilt * (line.tilt + 1.0) * half
        exponent = -(s.imag**2) * half + 1j * (s.imag * (2 * line.tilt + 1.0) * half)
        values = np.exp(exponent)
        error = UNIT * (8.0 + 8 * abs(log_size) + 12 * np.abs(exponent)) * np.abs(values)
        atom = 1.0 if self.mu == 0.0 else 0.0
        return Spectrum(line.tilt, log_size, values, error, atom, _less_one(log_size, exponent))

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the cumulants in closed form."""
        square = self.mu * self.mu
        return Cumulants(tilt * (tilt + 1) * square / 2, (tilt + 0.5) * square, square)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return e^{-v^2 mu^2 / 2}; without a loss the whole mass is an atom."""
        size = tilt * (tilt + 1.0) * self.mu * self.mu / 2
        if self.mu == 0.0:
            return Decay(0.0, np.full_like(heights, -np.inf))
        # For a huge loss the moment vanishes, so an infinite fall is right.
        with np.errstate(over="ignore"):
            fall = rounded_down(0.5 * (heights * self.mu) ** 2, THOUSANDS)
        return Decay(-math.inf, rounded_up(size, TENS) + 1e-9 - fall)


def _bound_gaussians(curves: Sequence[Gdp], side: Side, _: int) -> Curve:
    return Gdp(FARTHEST[side](curve.mu for curve in curves))


def _less_one(log_size: float, exponent: Complex) -> Near | None:
    """Return e^{log_size + exponent} - 1, both right to a few units; None if it is large."""
    if log_size > 1.0:
        return None
    real, angle = log_size + exponent.real, exponent.imag
    # cos - 1 is -2 sin^2 of half the angle, which has no cancellation.
    turned = np.sin(0.5 * angle) ** 2
    values = np.expm1(real) * np.cos(angle) - 2.0 * turned + 1j * np.exp(real) * np.sin(angle)
    slip = 16.0 * (log_size + np.abs(exponent)) * np.exp(real)
    size = np.abs(np.expm1(real)) + 2.0 * turned + np.exp(real) * np.abs(np.sin(angle))
    return Near(values, UNIT * (slip + 8.0 * size))


IDENTITY = Gdp(0.0)
"""The curve of a round that releases no information about the unit: loss 0."""


@registered
@dataclass(frozen=True)
class GaussianMix(Curve):
    """Two Gaussian mixtures of one standard deviation.

    The set {L > x} is a half line, or the complement of an interval. By Descartes' rule for sums of
    exponentials, count the sign changes of the coefficients of P - e^x Q in order of the means. The
    number of zeros is at most that count. Pairs that break this are refused.

    Args:
        std: the standard deviation, above 0.
        p: components (weight, mean) of P; weights sum to 1.
        q: components (weight, mean) of Q; weights sum to 1.
    """

    std: float
    p: Mixture
    q: Mixture

    def __post_init__(self) -> None:
        # With a single mean of Q below all means of P there are no minus signs, so no test is
        # needed.
        if len(self.q) == 1 and all(mean >= self.q[0][1] for _, mean in self.p):
            return
        for pattern in self._sign_patterns():
            if pattern not in ([1], [-1], [-1, 1], [1, -1, 1]):
                raise ValueError(f"GaussianMix: loss sets of pattern {pattern} are not served")

    def _sign_patterns(self) -> list[list[float]]:
        """Return the sign changes of P - e^x Q in order of the means, for x between breakpoints."""
        p, q = dict((m, w) for w, m in self.p), dict((m, w) for w, m in self.q)
        means = sorted(p.keys() | q.keys())
        # Signs change only at the breakpoints. 700 is beyond all of these, and exp(700) is finite.
        # A mean of only one side keeps its sign at every x.
        ratios = [
            math.log(p[m] / q[m]) if m in p and m in q else math.inf if m in p else -math.inf
            for m in means
        ]
        points = sorted(filter(math.isfinite, ratios))
        probes = [-700.0, *[(a + b) / 2 for a, b in itertools.pairwise(points)], 700.0]
        return [
            [
                sign
                for sign, _ in itertools.groupby(math.copysign(1, r - x) for r in ratios if r != x)
            ]
            for x in probes
        ]

    def _scaled(self) -> tuple[Mixture, Mixture]:
        p = tuple((w, m / self.std) for w, m in self.p)
        return p, tuple((w, m / self.std) for w, m in self.q)

    @property
    def pair(self) -> GaussianPair:
        """The pair, scaled to unit variance."""
        return GaussianPair(*self._scaled())

    def moments(self) -> Moments:
        """Return the integrals over the pair (see ``moments.gaussian_rules``)."""
        place = None
        if is_drawn(self) and 0.0 < (q := self.p[1][0]) < 1.0:
            place = GivenWay(q), self.p[1][1] / self.std
        return PairMoments(lambda: ((1.0, self.pair),), place)

    def support(self) -> Support:
        """Return the losses of the mixtures.

        The cover is the largest distance of components that are coupled in their order, in stds.
        """
        return Support(
            largest=self._largest,
            swapped_largest=self._swapped_largest,
            symmetric=lambda: self._symmetric,
            cover=lambda: self._cover,
        )

    @functools.cached_property
    def _symmetric(self) -> bool:
        """Whether the reflection y -> -y swaps the pair."""
        return sorted((-m, w) for w, m in self.q) == sorted((m, w) for w, m in self.p)

    def components(self) -> Components:
        """Return the order by noise, weights and means, and how rare weights are removed."""
        position, drawn = None, is_drawn(self)
        if len(self.p) > 3:
            chance = 1.0 - max(weight for weight, _ in self.p)
            position = -math.log(self.std), 0.25 * math.log(max(chance, 1e-300))
        draws = UnitDraws(0, self.p[1][0], 2.0 * self.p[1][1] / self.std) if drawn else None
        return Components(
            trim=self._trimmed,
            swapped_trim=self._swapped_trimmed,
            order=Order(_bound_mixtures, position=position, draws=draws, groups=3),
        )

    def _trimmed(self, allowed: float) -> Trimmed:
        # The other orientation of a symmetric pair is not asked, so no second interval helps.
        allowed *= 0.1 if self._symmetric else 1.0
        curve, mass, far = self._without(allowed, allowed * math.exp(-_FARTHEST_TRIMMED))
        # Within Q only what makes the pair's rule much longer is worth the limit on epsilon.
        if far and not 2.0 * curve.pair.spread < GaussianMix(self.std, curve.p, self.q).pair.spread:
            curve, mass, far = self._without(allowed, 0.0)
        if far:
            slack = rounded_up(mass + far * math.exp(_FARTHEST_TRIMMED))
            return Trimmed(curve, slack, _FARTHEST_TRIMMED)
        return Trimmed(curve, mass)

    def _swapped_trimmed(self, allowed: float) -> Trimmed:
        """Return the swapped pair, trimmed: P is then the second law."""
        curve, far, mass = self._without(allowed * math.exp(-_FARTHEST_TRIMMED), allowed)
        if not far:
            return Trimmed(curve.swap(), mass)
        slack = rounded_up(mass + far * math.exp(_FARTHEST_TRIMMED))
        return Trimmed(curve.swap(), slack, _FARTHEST_TRIMMED)

    def _without(self, from_p: float, from_q: float) -> tuple[GaussianMix, float, float]:
        """Return the pair without its rarest components, and the masses moved within P and Q.

        A profile is 1-Lipschitz in P and e^epsilon-Lipschitz in Q. So mass that is moved within Q
        counts e^35 times, and the bound on its effect holds for epsilons up to 35.
        """
        p, mass = moved(self.p, from_p)
        q, far = moved(self.q, from_q)
        if not mass and not far:
            return self, 0.0, 0.0
        # Without a component the pair may have an unsupported form; then it stays.
        for trimmed in ((p, q), (p, self.q), (self.p, q)):
            with contextlib.suppress(ValueError):
                curve = GaussianMix(self.std, *trimmed)
                return curve, mass if curve.p is p else 0.0, far if curve.q is q else 0.0
        return self, 0.0, 0.0

    def _loss(self, y: Array) -> Array:
        p, q = self._scaled()
        return log_sum(p, y) - log_sum(q, y)

    def _slope(self, y: Array) -> Array:
        p, q = self._scaled()
        return posterior_mean(p, y) - posterior_mean(q, y)

    @functools.cached_property
    def _table(self) -> tuple[Array, Array, int]:
        """Return (y, loss at y, index of the loss's minimum) on a grid that holds all mass."""
        means = [m / self.std for _, m in self.p + self.q]
        # A Gaussian's density at 45 deviations is e^-1012: mass beyond is below every double.
        y = np.linspace(min(means) - 45.0, max(means) + 45.0, 8192)
        lowest = self._lowest(y)
        # With the minimum as a point both branches of the table are monotone.
        y = np.insert(y, np.searchsorted(y, lowest), lowest)
        loss = self._loss(y)
        return y, loss, int(np.argmin(loss))

    def _lowest(self, y: Array) -> float:
        """Return where the loss is smallest: bisection of its slope around the grid's minimum."""
        at = int(np.argmin(self._loss(y)))
        low, high = float(y[max(at - 1, 0)]), float(y[min(at + 1, len(y) - 1)])
        for _ in range(60):
            middle = 0.5 * (low + high)
            falling = self._slope(np.array([middle]))[0] < 0
            low, high = (middle, high) if falling else (low, middle)
        return 0.5 * (low + high)

    def _root(self, loss: Array, branch: slice) -> Array:
        """Return where the loss takes the given values on one monotone branch of the table."""
        y, values = self._table[0][branch], self._table[1][branch]
        if len(y) < 2:
            return np.full(loss.shape, -np.inf)
        sign = 1.0 if values[-1] >= values[0] else -1.0
        index = np.clip(np.searchsorted(sign * values, sign * loss), 1, len(y) - 1)
        low, high = y[index - 1].copy(), y[index].copy()
        root = low + (high - low) * _share(loss, values[index - 1], values[index])
        for _ in range(40):
            value, slope = self._loss(root), self._slope(root)
            up = sign * (value - loss) < 0
            low, high = np.where(up, root, low), np.where(up, high, root)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = root - (value - loss) / slope
            # Newton's step if it stays in the bracket, else the middle: it always converges.
            inside = (newton >= low) & (newton <= high)
            following = np.where(inside, newton, 0.5 * (low + high))
            moved = float(np.max(np.abs(following - root), initial=0.0))
            root = following
            if moved < 1e-12:
                break
        # No mass lies beyond the table, so its ends represent infinity.
        root = np.where(sign * loss <= sign * values[0], -np.inf, root)
        return np.asarray(np.where(sign * loss > sign * values[-1], np.inf, root))

    @functools.cached_property
    def _three(self) -> tuple[float, float, tuple[float, ...], tuple[float, ...]] | None:
        """Return (middle mean, gap, weights of P, weights of Q) at middle - gap, middle, + gap.

        The result is None if the means have another form, or if P has no separate weight on the
        last mean.
        """
        p, q = self._scaled()
        means = sorted({mean for _, mean in p + q})
        gap = (means[-1] - means[0]) / 2 if len(means) == 3 else means[-1] - means[0]
        middle = means[-1] - gap
        at = (middle - gap, middle, means[-1])
        # For a larger gap the quadratic's coefficients come near underflow.
        if gap > 30.0 or not set(means) <= set(at):
            return None
        heavy = [[sum(w for w, m in part if m == mean) for mean in at] for part in (p, q)]
        if heavy[0][2] <= 0.0 or heavy[1][2] > 0.0:
            return None
        return middle, gap, tuple(heavy[0]), tuple(heavy[1])

    def _thresholds(self, loss: Array) -> tuple[Array, Array]:
        """Return (left, right): in closed form for three means at equal distances.

        With w = e^{gap (y - middle)} the difference of densities P - e^x Q is a quadratic in w,
        divided by w. For x > 0 it is scaled by e^-x. If products of its coefficients could
        underflow, the thresholds are found by a search.
        """
        if self._three is None:
            return self._searched_thresholds(loss)
        least = 2.0 * math.log(min(weight for weight, _ in self.p + self.q))
        huge = np.abs(loss) + self._three[1] ** 2 - least > MOST_EXPONENT
        left, right = self._solved_thresholds(np.where(huge, 0.0, loss))
        if huge.any():
            left[huge], right[huge] = self._searched_thresholds(loss[huge])
        return left, right

    def _solved_thresholds(self, loss: Array) -> tuple[Array, Array]:
        """Return (left, right) from the roots of the quadratic."""
        if self._three is None:
            raise ValueError(
                f"GaussianMix: needs three means at equal distances, got {self.p}, {self.q}"
            )
        middle, gap, p, q = self._three
        below, centre = [less_scaled(a, b, loss) for a, b in zip(p[:2], q[:2], strict=True)]
        size = math.exp(-0.5 * gap * gap)
        top = p[2] * size * np.exp(-np.maximum(loss, 0.0))
        first, second = solve_quadratic(top, centre, below * size)
        with np.errstate(divide="ignore"):
            return middle + np.log(first) / gap, middle + np.log(second) / gap

    def _searched_thresholds(self, loss: Array) -> tuple[Array, Array]:
        """Return (left, right), each found by Newton's method on a monotone branch."""
        _, values, lowest = self._table
        right = self._root(loss, slice(lowest, None))
        left = (
            self._root(loss, slice(0, lowest + 1)) if lowest > 0 else np.full(loss.shape, -np.inf)
        )
        left = np.where(loss >= values[0], -np.inf, left)
        everything = loss < values[lowest]
        return np.where(everything, 0.0, left), np.where(everything, 0.0, right)

    @functools.cached_property
    def _cover(self) -> float:
        """The cover, cached because it is needed often."""
        return rounded_up(_farthest(_by_mean(self.p), _by_mean(self.q)) / self.std)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails: {L > x} is the outside of [left, right], whose ends may be infinite."""
        if loss.size > _BLOCK:
            blocks = [self.tails(part) for part in np.array_split(loss, loss.size // _BLOCK + 1)]
            return Tails(*map(np.concatenate, zip(*blocks, strict=True)))
        left, right = self._thresholds(loss)
        p, q = self._scaled()
        p_above, p_below = _outside_and_inside(p, left, right)
        q_above, q_below = _outside_and_inside(q, left, right)
        return Tails(p_above, q_above, p_below, q_below)

    def _largest(self) -> MaxLoss:
        """Return the larger limit at an end: the loss is monotone, or it falls and then rises."""
        top = max(self._limit(-1.0), self._limit(1.0))
        return MaxLoss(max(lowered(top), Down(0.0)), max(raised(top), Up(0.0)))

    def _swapped_largest(self) -> MaxLoss:
        """Return minus the smallest loss: a limit at an end, or a minimum found on a grid.

        The loss rises throughout if Q has one mean below all means of P. Otherwise it falls and
        then rises. Its second derivative is a difference of two variances of means, each at most
        spread^2 / 4. So between two neighbours of a grid the loss lies at most (spread step)^2 / 32
        below the lower one.
        """
        limits = min(self._limit(-1.0), self._limit(1.0))
        if limits == -math.inf:
            return NO_LIMIT
        if len(self.q) == 1 and all(mean >= self.q[0][1] for _, mean in self.p):
            return MaxLoss(max(lowered(-limits), Down(0.0)), max(raised(-limits), Up(0.0)))
        means = [m / self.std for _, m in self.p + self.q]
        least, most = smallest_log_ratio(
            self.pair.p, self.pair.q, min(means) - 45.0, max(means) + 45.0
        )
        return MaxLoss(
            max(lowered(-most), lowered(-limits), Down(0.0)),
            max(raised(-least), raised(-limits), Up(0.0)),
        )

    def _limit(self, end: float) -> float:
        """Return the limit of log P/Q at an end of the line, -1 or 1 times infinity."""
        # Among Gaussians of one width, the one farthest out dominates there.
        last = [max(end * mean for _, mean in mixture) for mixture in (self.p, self.q)]
        if last[0] != last[1]:
            return math.inf if last[0] > last[1] else -math.inf
        # The same mean is farthest on both sides, so the limit is the ratio of its weights.
        p, q = (
            math.fsum(weight for weight, mean in mixture if end * mean == last[0])
            for mixture in (self.p, self.q)
        )
        return math.log(p / q)


def is_drawn(curve: GaussianMix) -> bool:
    """Return whether the curve is (1-q) N(-s) + q N(s) against (1-q) N(-s) + q N(0), s > 0."""
    if len(curve.p) != 2 or len(curve.q) != 2:
        return False
    (_, least), (q, most) = curve.p
    return curve.q == (curve.p[0], (q, 0.0)) and least == -most < 0.0


def _bound_mixtures(curves: Sequence[GaussianMix], side: Side, _: int) -> Curve:
    """Return the mixture of the least noise and of the law above; or of the most and below."""
    std = NEAREST[side](curve.std for curve in curves)
    if all(_one_sided(curve) for curve in curves):
        means = sorted({mean for curve in curves for _, mean in curve.p})
        weights = law([_at(curve.p, means) for curve in curves], side)
        p = tuple((w, m) for w, m in zip(weights, means, strict=True) if w > 0.0)
        return GaussianMix(std, p, ((1.0, 0.0),))
    # For one number of draws only the probability can differ.
    if not all(map(is_drawn, curves)) or len({curve.p[1][1] for curve in curves}) > 1:
        raise Unordered
    likeliest = FARTHEST[side](curves, key=lambda curve: curve.p[1][0])
    return GaussianMix(std, likeliest.p, likeliest.q)


def _at(mixture: Mixture, means: Sequence[float]) -> list[float]:
    """Return, for each of increasing means, the weight of that mean and all larger ones."""
    weights = dict.fromkeys(means, 0.0)
    for weight, mean in mixture:
        weights[mean] += weight
    return tails_of_weights([(weight, mean) for mean, weight in weights.items()])


def _one_sided(curve: GaussianMix) -> bool:
    """Return whether the curve is a mixture of N(a), a >= 0, against N(0)."""
    return curve.q == ((1.0, 0.0),) and all(mean >= 0.0 for _, mean in curve.p)


def less_scaled(a: float | Array, b: float | Array, loss: Array) -> Array:
    """Return (a - e^x b) min(1, e^-x), exact to a few units of its terms' difference near x = 0.

    Far from 0 the products are computed directly, because 1 + expm1(-40) would lose all digits of
    e^-40.
    """
    rise, fall = np.expm1(np.minimum(loss, 0.0)), np.expm1(-np.maximum(loss, 0.0))
    near = a - b - b * rise + a * fall
    far = a * np.exp(-np.maximum(loss, 0.0)) - b * np.exp(np.minimum(loss, 0.0))
    return np.asarray(np.where(np.abs(loss) < 0.5, near, far))


def solve_quadratic(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return where a w^2 + b w + c >= 0, a > 0 and w > 0, begins to fail and to hold again.

    The result is (1, 1) if it never fails. The first is 0 if it fails from the start.
    """
    discriminant = b * b - 4.0 * a * c
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Numbers of one sign are added, and the root that would cancel follows from the product.
        half = -0.5 * (b + np.where(b < 0, -1.0, 1.0) * np.sqrt(np.maximum(discriminant, 0.0)))
        one, other = half / a, np.where(half == 0.0, 0.0, c / half)
    small, large = np.minimum(one, other), np.maximum(one, other)
    fails = (discriminant > 0) & (large > 0)
    # (1, 1) is an empty interval without any outcome inside.
    return np.where(fails, np.maximum(small, 0.0), 1.0), np.where(fails, large, 1.0)


def _share(x: Array, low: Array, high: Array) -> Array:
    """Return where x lies between low and high, in [0, 1]."""
    # If both ends are equal, any point is valid.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = (x - low) / (high - low)
    return np.asarray(np.clip(np.nan_to_num(share, nan=0.5), 0.0, 1.0))


def _outside_and_inside(mixture: Mixture, left: Array, right: Array) -> tuple[Array, Array]:
    """Return a unit-variance mixture's log-mass outside and inside [left, right]."""
    open_left = bool(np.all(left == -np.inf))
    outside, inside = [], []
    for weight, mean in mixture:
        log_weight = math.log(weight)
        outside.append(log_weight + log_ndtr(mean - right))
        # A half line's mass is one tail, so no difference is needed.
        if open_left:
            inside.append(log_weight + log_ndtr(right - mean))
            continue
        outside.append(log_weight + log_ndtr(left - mean))
        inside.append(log_weight + _between(left - mean, right - mean))
    return log_total(np.array(outside)), log_total(np.array(inside))


def _between(a: Array, b: Array) -> Array:
    """Return the log-mass of a standard normal law on [a, b], from its smaller tail."""
    flip = a > 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    top = log_ndtr(b)
    # Rounding may put the smaller tail above the larger.
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(-np.expm1(np.minimum(log_ndtr(a) - top, 0.0)))
    return np.asarray(np.where(top == -np.inf, -np.inf, top + gap))


def _by_mean(mixture: Mixture) -> list[tuple[int, float]]:
    """Return (cumulated weight, mean) by increasing mean, in exact units of 2^-1074.

    Rounded sums would reach 1 before the last components, which lie farthest out.
    """
    found, total = [], 0
    for weight, mean in sorted(mixture, key=lambda component: component[1]):
        above, below = weight.as_integer_ratio()
        total += above * (_LEAST // below)
        found.append((total, mean))
    return found


def _farthest(p: list[tuple[int, float]], q: list[tuple[int, float]]) -> float:
    """Return the largest distance between components that the coupling by order pairs."""
    i, j, far = 0, 0, 0.0
    # Rounded weights do not add up to 1 exactly, so the weights count as shares of their sum.
    all_p, all_q = p[-1][0], q[-1][0]
    # The component that ends first is left behind, and both if both end together.
    while i < len(p) and j < len(q):
        far = max(far, abs(p[i][1] - q[j][1]))
        end, other = p[i][0] * all_q, q[j][0] * all_p
        i, j = i + (end <= other), j + (other <= end)
    return far
