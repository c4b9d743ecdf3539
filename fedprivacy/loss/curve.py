"""Privacy losses as curves: a dominating pair (P, Q), seen through the tails of L = log dP/dQ.

Leaves are ``Gdp``, ``LaplacePair`` and ``GaussianMix``; nodes are ``Sampled``, ``Fold``, ``Mix``,
``Composed`` and ``Swapped``. Every curve answers three questions, and everything else is made of them:

- ``tails(x)``: log P(L > x), log Q(L > x), log P(L <= x), log Q(L <= x);
- ``log_moment(a)``: log of the integral of P^a Q^(1-a), an upper bound, for a outside [0, 1];
- ``swap()``: the curve of (Q, P).

Curves are frozen and hashable: equal curves are accounted together.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from . import lattice as lattices
from . import moments
from .composition import Composition
from .lattice import Array, Lattice, Side, Tails
from .moments import Mixture

TAIL_MASS = 1e-30
"""How much of P a lattice may leave out on each side when nothing else is asked."""


class Curve(ABC):
    """One dominating pair in one orientation."""

    @property
    def symmetric(self) -> bool:
        """Whether the curve is known to equal its own swap."""
        return False

    @property
    def exact(self) -> bool:
        """Whether ``tails`` is exact up to floating point, whatever the side."""
        return True

    @abstractmethod
    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the four log-masses at each loss, on the asked side where not exact."""

    @abstractmethod
    def log_moment(self, order: float) -> float:
        """Return an upper bound on log of the integral of P^order Q^(1-order); +inf allowed.

        For order > 1 this is (order - 1) times the Renyi divergence of that order of P from Q;
        for order < 0 it is the moment of the swapped pair at 1 - order.
        """

    def swap(self) -> Curve:
        """Return the curve of (Q, P)."""
        return self if self.symmetric else Swapped(self)

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the loss rounded to multiples of ``step`` on the given side.

        Nothing is certified from below where the tails are not exact: a composition's lower
        lattice raises Q, and an amplified pair's P contains Q.
        """
        if side is Side.DOWN and not self.exact:
            return Lattice(step, 0, np.zeros(1), 0.0)
        return lattices.discretise(lambda x: self.tails(x, side), step, side, tail_mass)


@dataclass(frozen=True)
class Gdp(Curve):
    """N(mu, 1) against N(0, 1): the Gaussian mechanism with sensitivity / std = mu."""

    mu: float

    @property
    def symmetric(self) -> bool:
        """The reflection y -> mu - y swaps the pair."""
        return True

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails: L is N(mu^2/2, mu^2) under P and N(-mu^2/2, mu^2) under Q."""
        if self.mu == 0.0:
            above = np.where(loss < 0, 0.0, -np.inf)
            below = np.where(loss < 0, -np.inf, 0.0)
            return Tails(above, above, below, below)
        half, scaled = self.mu / 2, loss / self.mu
        return Tails(
            log_ndtr(half - scaled),
            log_ndtr(-half - scaled),
            log_ndtr(scaled - half),
            log_ndtr(scaled + half),
        )

    def log_moment(self, order: float) -> float:
        """Return order (order - 1) mu^2 / 2."""
        return order * (order - 1.0) * self.mu**2 / 2

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the rounded loss; no loss at all is rounded exactly."""
        if self.mu == 0.0:
            return Lattice(step, 0, np.ones(1), 0.0)
        return super().lattice(step, side, tail_mass)


IDENTITY = Gdp(0.0)
"""The curve of a round that releases nothing about the unit: loss 0."""


@dataclass(frozen=True)
class LaplacePair(Curve):
    """Laplace(s, 1) against Laplace(0, 1): the Laplace mechanism with sensitivity / scale = s.

    The loss is s or -s outside [0, s] and linear inside.
    """

    shift: float

    @property
    def symmetric(self) -> bool:
        """The reflection y -> s - y swaps the pair."""
        return True

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the exact tails; inside, P(L <= x) = exp((x - s) / 2) / 2."""
        inside = np.clip(loss, -self.shift, self.shift)
        p_below = (inside - self.shift) / 2 - math.log(2.0)
        q_above = -(inside + self.shift) / 2 - math.log(2.0)
        p_above, q_below = np.log1p(-np.exp(p_below)), np.log1p(-np.exp(q_above))
        below, above = loss < -self.shift, loss >= self.shift
        return Tails(
            np.where(below, 0.0, np.where(above, -np.inf, p_above)),
            np.where(below, 0.0, np.where(above, -np.inf, q_above)),
            np.where(below, -np.inf, np.where(above, 0.0, p_below)),
            np.where(below, -np.inf, np.where(above, 0.0, q_below)),
        )

    def log_moment(self, order: float) -> float:
        """Return log[a / (2a - 1) e^{(a-1) s} + (a - 1) / (2a - 1) e^{-a s}] (Mironov 2017)."""
        a = max(order, 1.0 - order)
        weights = [a / (2 * a - 1), (a - 1) / (2 * a - 1)]
        total = logsumexp([(a - 1) * self.shift, -a * self.shift], b=weights)
        return max(float(total), 0.0) + 4e-16 * (1.0 + a * self.shift)


@dataclass(frozen=True)
class GaussianMix(Curve):
    """Two Gaussian mixtures of one standard deviation.

    Args:
        std: the standard deviation, above 0.
        p: components (weight, mean) of P; weights sum to 1.
        q: components (weight, mean) of Q; weights sum to 1.

    The set {L > x} is a half line, or the complement of an interval: the number of zeros of
    P - e^x Q is at most the number of sign changes of its coefficients in order of the means
    (Descartes' rule for sums of exponentials). Pairs that break this are refused.
    """

    std: float
    p: Mixture
    q: Mixture

    def __post_init__(self) -> None:
        for pattern in self._sign_patterns():
            if pattern not in ([1], [-1], [-1, 1], [1, -1, 1]):
                raise ValueError(f"GaussianMix: loss sets of pattern {pattern} are not served")

    def _sign_patterns(self) -> list[list[int]]:
        """Return the sign changes of P - e^x Q in order of the means, for x between breakpoints."""
        p, q = dict((m, w) for w, m in self.p), dict((m, w) for w, m in self.q)
        means = sorted(p.keys() | q.keys())
        ratios = [math.log(p[m] / q[m]) for m in means if m in p and m in q]
        points = sorted(ratios)
        probes = [-700.0, *[(a + b) / 2 for a, b in itertools.pairwise(points)], 700.0]
        patterns = []
        for x in probes:
            signs = [np.sign(p.get(m, 0.0) - math.exp(x) * q.get(m, 0.0)) for m in means]
            patterns.append([int(s) for i, s in enumerate(signs) if i == 0 or s != signs[i - 1]])
        return patterns

    def _scaled(self) -> tuple[Mixture, Mixture]:
        p = tuple((w, m / self.std) for w, m in self.p)
        return p, tuple((w, m / self.std) for w, m in self.q)

    def log_moment(self, order: float) -> float:
        """Return the quadrature's upper bound (see ``moments``)."""
        return moments.log_moment(*self._scaled(), order)

    def _loss(self, y: Array) -> Array:
        p, q = self._scaled()
        return moments.log_density(p, y) - moments.log_density(q, y)

    def _loss_and_slope(self, y: Array) -> tuple[Array, Array]:
        """Return the loss at y and its derivative, the difference of posterior mean shifts."""
        p, q = self._scaled()
        (log_p, mean_p), (log_q, mean_q) = _density_and_mean(p, y), _density_and_mean(q, y)
        return log_p - log_q, mean_p - mean_q

    @functools.cached_property
    def _table(self) -> tuple[Array, Array, int]:
        """Return (y, loss at y, index of the loss's minimum) on a grid that holds all mass."""
        means = [m / self.std for _, m in self.p + self.q]
        y = np.linspace(min(means) - 45.0, max(means) + 45.0, 8192)
        lowest = self._lowest(y)
        y = np.insert(y, np.searchsorted(y, lowest), lowest)
        loss = self._loss(y)
        return y, loss, int(np.argmin(loss))

    def _lowest(self, y: Array) -> float:
        """Return where the loss is smallest: bisection of its slope around the grid's minimum."""
        at = int(np.argmin(self._loss(y)))
        low, high = float(y[max(at - 1, 0)]), float(y[min(at + 1, len(y) - 1)])
        for _ in range(60):
            middle = 0.5 * (low + high)
            falling = self._loss_and_slope(np.array([middle]))[1][0] < 0
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
            value, slope = self._loss_and_slope(root)
            up = sign * (value - loss) < 0
            low, high = np.where(up, root, low), np.where(up, high, root)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = root - (value - loss) / slope
            inside = (newton >= low) & (newton <= high)
            following = np.where(inside, newton, 0.5 * (low + high))
            moved = float(np.max(np.abs(following - root)))
            root = following
            if moved < 1e-12:
                break
        root = np.where(sign * loss <= sign * values[0], -np.inf, root)
        return np.asarray(np.where(sign * loss > sign * values[-1], np.inf, root))

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails; the thresholds are found by bisection on each monotone branch."""
        _, values, lowest = self._table
        right = self._root(loss, slice(lowest, None))
        left = (
            self._root(loss, slice(0, lowest + 1)) if lowest > 0 else np.full(loss.shape, -np.inf)
        )
        left = np.where(loss >= values[0], -np.inf, left)
        everything = loss < values[lowest]
        left, right = np.where(everything, 0.0, left), np.where(everything, 0.0, right)
        p, q = self._scaled()
        p_above, p_below = _outside_and_inside(p, left, right)
        q_above, q_below = _outside_and_inside(q, left, right)
        return Tails(p_above, q_above, p_below, q_below)


def _share(x: Array, low: Array, high: Array) -> Array:
    """Return where x lies between low and high, in [0, 1]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (x - low) / (high - low)
    return np.asarray(np.clip(np.nan_to_num(share, nan=0.5), 0.0, 1.0))


def _density_and_mean(mixture: Mixture, y: Array) -> tuple[Array, Array]:
    """Return a unit-variance mixture's log-density and posterior mean component at each y."""
    log_density = moments.log_density(mixture, y)
    mean = np.zeros_like(y)
    for weight, centre in mixture:
        mean += centre * np.exp(math.log(weight) - 0.5 * (y - centre) ** 2 - log_density)
    return log_density, mean


def _outside_and_inside(mixture: Mixture, left: Array, right: Array) -> tuple[Array, Array]:
    """Return a unit-variance mixture's log-mass outside and inside [left, right]."""
    outside, inside = [], []
    for weight, mean in mixture:
        a, b = left - mean, right - mean
        outside += [math.log(weight) + log_ndtr(-b), math.log(weight) + log_ndtr(a)]
        flip = a > 0
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        top = log_ndtr(b)
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(-np.expm1(np.minimum(log_ndtr(a) - top, 0.0)))
        inside.append(math.log(weight) + np.where(top == -np.inf, -np.inf, top + gap))
    return logsumexp(outside, axis=0), logsumexp(inside, axis=0)


@dataclass(frozen=True)
class Swapped(Curve):
    """The pair (Q, P) of a curve (P, Q)."""

    curve: Curve

    @property
    def exact(self) -> bool:
        """Whether the curve's tails are."""
        return self.curve.exact

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the curve's tails at -loss with the roles exchanged."""
        p_above, q_above, p_below, q_below = self.curve.tails(-loss, side)
        return Tails(q_below, p_below, q_above, p_above)

    def log_moment(self, order: float) -> float:
        """Return the curve's moment at 1 - order."""
        return self.curve.log_moment(1.0 - order)

    def swap(self) -> Curve:
        """Return the curve itself."""
        return self.curve


_MAX_CHORD_ORDER = 2048


@dataclass(frozen=True)
class Sampled(Curve):
    """The pair ((1 - q) Q + q P, Q) made of the inner pair (P, Q).

    The loss is log(1 - q + q e^L), so tails are the inner ones at log(1 + (e^x - 1) / q).
    """

    inner: Curve
    q: float

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the inner tails at the inner loss, mixed."""
        inner_loss = _inner_loss(loss, self.q)
        inner = self.inner.tails(inner_loss, side)
        rest = math.log1p(-self.q)
        p_above = np.logaddexp(rest + inner.q_above, math.log(self.q) + inner.p_above)
        p_below = np.logaddexp(rest + inner.q_below, math.log(self.q) + inner.p_below)
        none_below = inner_loss == -np.inf
        return Tails(
            np.where(none_below, 0.0, p_above),
            np.where(none_below, 0.0, inner.q_above),
            np.where(none_below, -np.inf, p_below),
            np.where(none_below, -np.inf, inner.q_below),
        )

    @property
    def exact(self) -> bool:
        """Whether the inner tails are."""
        return self.inner.exact

    def log_moment(self, order: float) -> float:
        """Return log E_Q (1 - q + q e^L)^order.

        Exact quadrature for a Gaussian inside. Otherwise: for order > 1 the binomial sum at the
        two neighbouring integers and the chord between them (the log-moment is convex in the
        order); for order < 0, E_Q e^{q order L}, by 1 - q + q e^L >= e^{q L}.
        """
        if isinstance(self.inner, Gdp):
            mixed = ((1.0 - self.q, 0.0), (self.q, self.inner.mu))
            return moments.log_moment(mixed, ((1.0, 0.0),), order)
        if order < 0:
            return self.inner.log_moment(self.q * order)
        if order > _MAX_CHORD_ORDER:
            return math.inf
        below = math.floor(order)
        share = order - below
        at_below = _binomial_moment(self.inner, self.q, below)
        if share == 0.0:
            return at_below
        return (1 - share) * at_below + share * _binomial_moment(self.inner, self.q, below + 1)


def _inner_loss(loss: Array, q: float) -> Array:
    """Return log(1 + (e^x - 1) / q), -inf where the argument is not positive."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        high = loss - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-np.abs(loss)))
        low = np.log1p(np.maximum(np.expm1(np.minimum(loss, 0.0)) / q, -1.0))
    return np.asarray(np.where(loss > 0, high, low))


@functools.lru_cache(maxsize=65536)
def _integer_moment(curve: Curve, order: int) -> float:
    return 0.0 if order <= 1 else curve.log_moment(float(order))


def _binomial_moment(inner: Curve, q: float, order: int) -> float:
    """Return log sum_l C(order, l) (1-q)^(order-l) q^l e^{inner moment at l}, rounded up."""
    if order <= 1:
        return 0.0
    picks = np.arange(order + 1)
    inside = np.array([_integer_moment(inner, int(pick)) for pick in picks])
    choose = gammaln(order + 1) - gammaln(picks + 1) - gammaln(order - picks + 1)
    terms = choose + (order - picks) * math.log1p(-q) + picks * math.log(q) + inside
    return float(logsumexp(terms)) + 1e-14 * order


@dataclass(frozen=True)
class Fold(Curve):
    """The profile of ``up`` at epsilon >= 0 and of ``down.swap()`` below 0."""

    up: Curve
    down: Curve

    @property
    def symmetric(self) -> bool:
        """A fold of a curve with itself equals its swap."""
        return self.up == self.down

    @property
    def exact(self) -> bool:
        """Whether both halves' tails are."""
        return self.up.exact and self.down.exact

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return ``up``'s tails at losses of at least 0 and the swapped ``down``'s below."""
        right = self.up.tails(np.maximum(loss, 0.0), side)
        left = self.down.swap().tails(np.minimum(loss, -1e-300), side)
        pairs = zip(right, left, strict=True)
        return Tails(*(np.where(loss >= 0, r, ell) for r, ell in pairs))

    def log_moment(self, order: float) -> float:
        """Return the smaller of two upper bounds.

        Either log(M_up + M_swap(down) - 1), from E = 1 + a (a-1) int_0^inf [e^{(a-1)e} d_up(e)
        + e^{-ae} d_down(e)] de with both halves completed to whole moments; or the moment of the
        connected dots on a geometric grid, which dominate the fold, with the part beyond the grid
        bounded by a higher moment of ``up``.
        """
        if order < 0:
            return Fold(self.down, self.up).log_moment(1.0 - order)
        whole = self.up.log_moment(order)
        both = np.logaddexp(whole, self.down.log_moment(1.0 - order))
        cheap = float(both + math.log1p(-math.exp(-both))) if both > 0 else 0.0
        return min(max(cheap, whole), self._dotted_moment(order))

    def _dotted_moment(self, order: float) -> float:
        losses, mass = _dots(self)
        inside = float(logsumexp((order - 1.0) * losses, b=mass))
        extra = [(s, self.up.log_moment(order + s)) for s in (1.0, 8.0, 64.0)]
        beyond = min(moment - s * float(losses[-1]) for s, moment in extra)
        return float(np.logaddexp(inside, beyond))

    def swap(self) -> Curve:
        """Return the fold with its halves exchanged."""
        return Fold(self.down, self.up)


@functools.lru_cache(maxsize=64)
def _dots(curve: Curve) -> tuple[Array, Array]:
    """Return (losses, masses) of connected dots on a geometric grid, masses rounded up."""
    low, high = lattices.support(lambda x: curve.tails(x), 1e-4, TAIL_MASS)
    reach = 1e-4 * max(-low, high)
    half = np.geomspace(1e-9, reach, 6000)
    edges = np.concatenate([-half[::-1], [0.0], half])
    return edges, lattices.connect_the_dots(curve.tails, edges)[0] * (1 + 1e-13)


@dataclass(frozen=True)
class Mix(Curve):
    """A labelled mixture: with probability w_i the i-th pair, and everybody sees which."""

    parts: tuple[tuple[float, Curve], ...]

    @property
    def symmetric(self) -> bool:
        """A mixture of symmetric curves is symmetric."""
        return all(curve.symmetric for _, curve in self.parts)

    @property
    def exact(self) -> bool:
        """Whether all parts' tails are."""
        return all(curve.exact for _, curve in self.parts)

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
        return float(logsumexp(terms, b=[weight for weight, _ in self.parts])) + 1e-15

    def swap(self) -> Curve:
        """Return the mixture of the swapped parts."""
        return Mix(tuple((weight, curve.swap()) for weight, curve in self.parts))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the weighted sum of the parts' lattices."""
        return lattices.add([c.lattice(step, side, tail_mass).scaled(w) for w, c in self.parts])


@dataclass(frozen=True)
class Composed(Curve):
    """Independent pairs seen together, each ``count`` times. Make one with ``compose``."""

    parts: tuple[tuple[Curve, int], ...]

    @property
    def symmetric(self) -> bool:
        """A composition of symmetric curves is symmetric."""
        return all(curve.symmetric for curve, _ in self.parts)

    @property
    def exact(self) -> bool:
        """False: the tails are those of a lattice."""
        return False

    @property
    def count(self) -> int:
        """How many rounds are composed."""
        return sum(count for _, count in self.parts)

    def tails(self, loss: Array, side: Side = Side.UP) -> Tails:
        """Return the tails of the composed lattice: dominating for UP, dominated for DOWN."""
        losses, p_above, q_above, p_below, q_below = _cumulated(self, side)
        index = np.searchsorted(losses, loss, side="right")
        return Tails(p_above[index], q_above[index], p_below[index], q_below[index])

    def log_moment(self, order: float) -> float:
        """Return the sum of the parts' moments."""
        return sum(count * curve.log_moment(order) for curve, count in self.parts)

    def swap(self) -> Curve:
        """Return the composition of the swapped parts."""
        return Composed(tuple((curve.swap(), count) for curve, count in self.parts))

    def lattice(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Lattice:
        """Return the composed loss rounded to multiples of ``step``."""
        return self.composition(step, side, tail_mass).lattice()

    def composition(self, step: float, side: Side, tail_mass: float = TAIL_MASS) -> Composition:
        """Return the convolution of the parts' lattices of the given step."""
        share = tail_mass / self.count
        parts = [(curve.lattice(step, side, share), count) for curve, count in self.parts]
        return Composition(parts, side)


def spread(curve: Curve) -> float:
    """Return the root mean square of the finite loss under P, to a few per cent; for step sizes."""
    if isinstance(curve, Composed):
        return math.sqrt(sum(count * spread(part) ** 2 for part, count in curve.parts))
    half = np.geomspace(1e-9, 1e3, 700)
    above = np.exp(curve.tails(half).p_above)
    below = np.exp(curve.tails(-half).p_below)
    squares = half[1:] ** 2
    total = np.dot(squares, -np.diff(above)) + np.dot(squares, -np.diff(below))
    return math.sqrt(max(float(total), 1e-24))


@functools.lru_cache(maxsize=64)
def _cumulated(curve: Composed, side: Side) -> tuple[Array, Array, Array, Array, Array]:
    """Return lattice points and the four log-masses above or at-or-below each gap between them."""
    step = max(spread(curve) / 400.0, 1e-7)
    rounded = curve.lattice(step, side)
    losses = rounded.losses()
    q = rounded.mass * np.exp(-losses)
    absent = max(1.0 - float(q.sum()), 0.0) if side is Side.UP else 0.0
    with np.errstate(divide="ignore"):
        p_above = np.log(np.append(np.cumsum(rounded.mass[::-1])[::-1], 0.0) + rounded.infinite)
        q_above = np.log(np.append(np.cumsum(q[::-1])[::-1], 0.0))
        p_below = np.log(np.append(0.0, np.cumsum(rounded.mass)))
        q_below = np.log(absent + np.append(0.0, np.cumsum(q)))
    return losses, p_above, q_above, p_below, q_below


def compose(parts: Iterable[tuple[Curve, int]]) -> Curve:
    """Compose curves: nested compositions are flattened, Gaussians add in mu^2, equals are grouped.

    Args:
        parts: (curve, count) pairs; counts of at least 0.

    Returns:
        The composed curve; ``IDENTITY`` for no parts at all.
    """
    counts: dict[Curve, int] = {}
    squared = 0.0
    for curve, count in parts:
        flat = curve.parts if isinstance(curve, Composed) else ((curve, 1),)
        for part, times in flat:
            if isinstance(part, Gdp):
                squared += count * times * part.mu**2
            elif count:
                counts[part] = counts.get(part, 0) + count * times
    if squared:
        counts[Gdp(math.sqrt(squared))] = 1
    if not counts:
        return IDENTITY
    if list(counts.values()) == [1]:
        return next(iter(counts))
    return Composed(tuple(counts.items()))
