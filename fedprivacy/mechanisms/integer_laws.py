"""Privacy loss of integer noise: dominating pairs of shifted discrete Gaussian and Skellam laws.

A release is s + X. X holds d independent integers and s is an integer vector of the data.
Neighbours change s by a vector of norm at most S. The theorems are proved in
docs/theory/integers.md:

- *Sums* (I1): the masses of a sum of n shares N_Z(0, v) equal those of N_Z(0, n v) up to a factor
  (1 +- eta) / (1 -+ eta). Here eta is a theta series of the lattice dual to {w in Z^n: sum w = 0}.
- *Gaussian* (I2): up to a factor close to 1, N_Z(s, V) is a function of N(s, V - r^2). A Gaussian
  pair whose shift is slightly above S / sqrt(V - r^2) therefore dominates it.
- *Concentrated* (I3): Renyi divergences are at most a S^2 / (2V) + m w. They are also at most a/2
  times (S^2 + 2 w S_1 sqrt(V) + w^2 m V) / V. Here w is the log of I1's factor and m the number of
  coordinates that change.
- *Chains* (I4): suppose that a shift by one has divergences of at most a c / 2 at orders up to A.
  Then a shift by a vector of norm S has divergences of at most a c S^2 / 2 at orders up to A / S.
  Narrow Skellam noise uses this theorem.
- *Skellam* (I7): a shift of Sk(x) by s is dominated by a Gaussian pair of shift (1 + 4 / x) |s| /
  sqrt(x), if x is at least 16. Wide Skellam noise uses this theorem.
- *One number* (I5): for a log-concave law the largest shift is the worst. Its profile is computed
  outcome by outcome.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from ..loss import Curve, Gdp, RenyiAndPoints, RenyiLine, RenyiPoints, stated_pair
from ..loss.curves.discrete import Atoms
from ..rounding import FEW, TENS, THOUSANDS, UNIT, rounded_down, rounded_up
from .integers import bessel_ratios, gaussian_weights, skellam_weights

Array = NDArray[np.float64]

LEAST_ORDER = 1.5
"""Smallest allowed value of the highest order of a Renyi account. Below it, shares are too small.
"""

MOST_SUM_ERROR = 0.5
"""Largest eta of a sum of shares. Above it, the shares are too small for a bound."""

REJECTED = 1e-3
"""Largest chance that a rounding is redrawn: beta of Kairouz, Liu and Steinke (2021)."""

_UP = 1.0 + THOUSANDS
_RADII = np.arange(0.7, 4.05, 0.05)
_MOST_NOISE_LOST = 0.5
"""Smallest share of the variance that I2 may leave; below it, I3 is used."""

MOST_WITNESS_ERROR = 1e-10
"""Largest relative error of the masses of an attained pair: the masses of a pair sum to 1."""

_POINTS = 1500
"""Number of points of an attained pair: outcomes with nearby losses are merged."""


def sum_error(shares: int, variance: float) -> float:
    """Return eta of I1 for ``shares`` shares N_Z(0, variance), rounded up; infinity if too large.

    Let q = e^(-2 pi^2 variance) and n q < 1. Then eta is at most (n^2 q^2 + 2 sum_j C(n+j-1, j)
    q^(j - j^2/n)) / (1 - n^2 q^2), with j from 1 to n / 2.
    """
    if shares == 1:
        return 0.0
    exponent = rounded_down(2.0 * math.pi**2 * variance, THOUSANDS)
    log_first = math.log(shares) - exponent
    if log_first > -0.5:
        return math.inf
    j = np.arange(1.0, shares // 2 + 1.0)
    log_terms = gammaln(shares + j) - gammaln(j + 1.0) - gammaln(float(shares))
    log_terms = log_terms - exponent * (j - j * j / shares)
    # gammaln of large numbers is accurate to a few units of its size.
    log_terms += TENS * (1.0 + np.abs(gammaln(shares + j)))
    log_total = float(np.logaddexp(2.0 * log_first, math.log(2.0) + logsumexp(log_terms)))
    found = math.exp(min(log_total, 0.0)) / -math.expm1(2.0 * log_first) * _UP
    return found if log_total < 0.0 and found <= MOST_SUM_ERROR else math.inf


def smoothing_error(variance: float) -> float:
    """Return a bound on how far sum_k e^(-(k-y)^2 / 2v), k integer, differs from its mean over y.

    The difference is relative to the mean. By Poisson's summation formula it is 2 sum e^(-2 pi^2 v
    k^2), at most 2 q / (1 - q).
    """
    q = math.exp(-rounded_down(2.0 * math.pi**2 * variance, THOUSANDS))
    return 2.0 * q / (1.0 - q)


def _width(error: float) -> float:
    """Return log((1 + e) / (1 - e)), rounded up."""
    return (math.log1p(error) - math.log1p(-error)) * _UP


@dataclass(frozen=True)
class Shift:
    """Bounds on the integer vector that neighbours add to the sum.

    Attributes:
        square: largest squared norm S^2.
        one_norm: largest 1-norm.
        moved: largest number of coordinates that change.
    """

    square: int
    one_norm: float
    moved: int


@functools.lru_cache(maxsize=256)
def inflated_square(length: float, dimension: int) -> int:
    """Return the largest squared norm of a rounded vector of norm ``length``, rounded up.

    With c = ``length`` it is the smaller of (c + sqrt d)^2 and c^2 + d/4 + sqrt(2 log(1 / beta)) (c
    + sqrt(d) / 2). In one dimension it is the square of c rounded up.
    """
    if dimension == 1:
        return math.ceil(length) ** 2
    root = math.sqrt(dimension)
    spread = math.sqrt(-2.0 * math.log(REJECTED)) * (length + root / 2.0)
    return math.ceil(min((length + root) ** 2, length**2 + dimension / 4.0 + spread))


def shift_of(square: int, dimension: int, times: int) -> Shift:
    """Return the shift of one contribution z in Z^d, |z|^2 <= square (times=2: of z - z').

    The absolute value of an integer is at most its square. So |z|_1 and the number of nonzero
    entries of z are at most |z|^2. Also |z|_1 <= sqrt(d) |z| (Cauchy and Schwarz).
    """
    one = min(math.sqrt(dimension * square) * _UP, float(square))
    return Shift(times**2 * square, times * one, min(dimension, times * square))


def gaussian_curve(shift: Shift, shares: int, share_variance: float) -> tuple[Curve, str] | None:
    """Return the curve that dominates a shifted sum of shares, and its theorem.

    The shares are N_Z(0, share_variance). Return None if the shares are too small for I1.
    """
    eta = sum_error(shares, share_variance)
    if not eta < math.inf:
        return None
    variance = rounded_down(shares * share_variance, TENS)
    mu = _gaussian_shift(shift, variance, eta)
    if mu is not None:
        return Gdp(mu), "I1, I2: sums of discrete Gaussians, as functions of one Gaussian"
    width = _width(eta)
    # Both lines hold at every order. Take the smaller one at order 10, which a few rounds use.
    lines = [
        (shift.square / (2.0 * variance), width * shift.moved),
        (_second_line(shift, variance, width), 0.0),
    ]
    rho, xi = min(lines, key=lambda line: 10.0 * line[0] + line[1])
    return _line(rho * _UP, xi * _UP), "I1, I3: sums of discrete Gaussians, concentrated DP"


def _second_line(shift: Shift, variance: float, width: float) -> float:
    crossed = 2.0 * width * shift.one_norm / math.sqrt(variance)
    return 0.5 * (shift.square / variance + crossed + width**2 * shift.moved)


def _line(rho: float, xi: float) -> RenyiLine:
    scale = 1.0 / math.sqrt(rho)
    orders = 1.0 + scale * np.geomspace(1e-3, 1e2, 122)
    points = tuple((a, rounded_up(xi + rho * a)) for a in np.unique(orders).tolist())
    return RenyiLine(tuple(pair for pair in points if pair[0] > 1.0), rho, xi)


def _gaussian_shift(shift: Shift, variance: float, eta: float) -> float | None:
    """Return the least mu of I2 over the radii r; None if no radius gives a useful one."""
    found = []
    for radius in _RADII.tolist():
        left = variance - radius * radius
        error = smoothing_error(radius * radius)
        if left < _MOST_NOISE_LOST * variance or error >= 0.5:
            continue
        slack = (_width(eta) + _width(error)) * shift.moved
        mu = math.sqrt(shift.square / left) * _UP
        widened = _widened(mu, slack)
        if widened is not None:
            found.append(widened)
    return min(found, default=None)


def _widened(mu: float, slack: float) -> float | None:
    """Return mu' with H_mu'(e) >= e^slack H_mu(e - slack) for all e >= 0, H a Gaussian profile.

    Let b = 1.01 mu / 2 + slack / mu. Then mu' = mu + 2 sqrt(2 pi) slack e^(b^2 / 2) is enough if
    mu' is at most 1.01 mu. Between mu and mu', dH/dmu = phi(a) outweighs H and the decrease of H in
    e. These two are at most phi(a) times Mills' ratio at a >= -b, and that ratio is at most sqrt(2
    pi) e^(b^2 / 2).
    """
    b = 1.01 * mu / 2.0 + slack / mu
    log_more = math.log(2.0 * math.sqrt(2.0 * math.pi)) + b * b / 2.0
    log_more += math.log(slack) if slack > 0.0 else -math.inf
    if log_more > math.log(0.0099 * mu):
        return None
    return (mu + math.exp(log_more)) * _UP


# ---- Skellam


def _depths(losses: Array) -> tuple[Array, float]:
    """Return log p(0) / p(y) for y = 0 .. len(losses), and a bound on its relative error.

    Positive numbers are summed in blocks. An entry has twice as many roundings as a block is long.
    """
    size = math.isqrt(len(losses)) + 1
    padded = np.zeros(size * size)
    padded[: len(losses)] = losses
    rows = np.cumsum(padded.reshape(size, size), axis=1)
    before = np.append(0.0, np.cumsum(rows[:, -1])[:-1])
    sums = (rows + before[:, None]).reshape(-1)[: len(losses)]
    return np.append(0.0, sums), FEW + (2.0 * size + 2.0) * UNIT


@functools.lru_cache(maxsize=64)
def concentrated_unit(variance: float, highest: float) -> float:
    """Return c with D_a(Skellam + 1 || Skellam) <= a c / 2 at all orders a in (1, highest].

    K(b) = log E e^(b L) at b = a - 1 is convex and 0 at 0. It is bounded at nodes. Between two
    nodes, a chord exceeds the parabola by a share of at most (db)^2 / (4 b (b + 1)). The nodes are
    close enough that this share is at most the constant that is added. The bound at a node includes
    every rounding and all terms that its sum omits.

    Args:
        variance: variance of the law. The law is summed term by term.
        highest: largest order, at most 1 + 2 variance.
    """
    law = _UnitShift.of(variance, highest - 1.0)
    found = max(2.0 * law.cumulant(b) / (b * (b + 1.0)) for b in _nodes(highest - 1.0))
    return found * (1.0 + _SHARE) * _UP


_SHARE = 4e-4


def _nodes(highest: float) -> list[float]:
    """Return increasing b from ``_SHARE`` to ``highest``, with neighbours close enough."""
    nodes = [_SHARE]
    while nodes[-1] < highest:
        b = nodes[-1]
        nodes.append(min(b + 2.0 * math.sqrt(_SHARE * b * (b + 1.0)), highest))
    return nodes


_DEEP = 60.0
"""Masses below e^-60 of the largest are omitted on the left."""

_DIRECT = 30.0
"""Up to this exponent, terms are summed minus 1, so that a small cumulant keeps its digits."""


@dataclass(frozen=True, eq=False)
class _UnitShift:
    """A Skellam law compared with its shift by one.

    Attributes:
        variance: x, variance of the law.
        loss: L(y) = log p(y) / p(y + 1), increasing, each to ``FEW``.
        log_mass: log p(y) / p(0).
        off: relative error of the masses.
        log_total: lower bound of log sum p / p(0). It makes masses and their sums too large.
        last: (y, log p(y) / p(0)) of the last outcome whose mass is in the sum.
    """

    variance: float
    loss: Array
    log_mass: Array
    off: float
    log_total: float
    last: tuple[int, float]

    @classmethod
    def of(cls, variance: float, most: float) -> _UnitShift:
        """Return the law, with a range that covers e^(b L) for every b up to ``most``."""
        reach = _reach(variance, most)
        right = unit_losses(Fraction(variance), reach)
        depth, slip = _depths(right)
        # Depths increase, so at most this many are above the limit.
        left = min(int(np.searchsorted(depth, _DEEP)), reach)
        depth = np.concatenate([depth[left:0:-1], depth[:-1]])
        mass = np.exp(-depth[depth < 700.0])
        # Roundings of the sum, the exponentials and the depths, as shares of a mass.
        off = (len(depth) + 16.0) * UNIT + 2.0 * FEW + slip * float(depth.max())
        log_total = math.log(float(mass.sum())) - 1.001 * off - FEW * 32.0
        loss = np.concatenate([-right[:left][::-1], right])
        return cls(variance, loss, -depth, off, log_total, (reach - 1, -float(depth[-1])))

    @functools.cached_property
    def _mass(self) -> Array:
        return np.asarray(np.exp(self.log_mass))

    @functools.cached_property
    def _middle(self) -> int:
        """Number of losses below 0."""
        return int(np.searchsorted(self.loss, 0.0))

    def cumulant(self, b: float) -> float:
        """Return an upper bound of K(b) = log E e^(b L), for 0 < b <= ``most``.

        On the left e^(b L) - 1 is negative. Omitting masses there therefore gives an upper bound.
        """
        power = b * self.loss
        y, log_last = self.last
        fall = _fall(self.variance, b, y + 0.5) * (1.0 - 1e-9)
        log_rest = float(power[-1]) + log_last - math.log(math.expm1(fall)) + 2.0 * self.off
        largest = max(float(power[-1]), -float(power[0]))
        off = self.off + (len(power) + 2.0) * UNIT + FEW * (4.0 + largest)
        if largest < _DIRECT:
            terms = self._mass * np.expm1(power)
            above, below = float(terms[self._middle :].sum()), float(terms[: self._middle].sum())
            total = above + below + off * (above - below) * 1.001 + math.exp(log_rest)
            return rounded_up(math.log1p(total * math.exp(-self.log_total)), 64.0 * FEW)
        power += self.log_mass
        top = float(power.max())
        log_sum = top + math.log(float(np.exp(power - top).sum()))
        log_sum = float(np.logaddexp(log_sum, log_rest)) + 1.001 * off
        return log_sum - self.log_total + FEW * (abs(log_sum) + abs(top) + 64.0)


_PLACES = 160
"""Bits after the point of a ratio of Bessel functions; the rounding loss is below 2^-130."""


def unit_losses(variance: Fraction, reach: int) -> Array:
    """Return L(y) = log p(y) / p(y + 1) of a Skellam law for y = 0 .. reach - 1, to ``FEW``.

    The difference of 1 and a ratio is an exact integer, so a loss near 0 keeps all digits.
    """
    one = 1 << _PLACES
    ratios = bessel_ratios(variance, reach, _PLACES)
    # A quotient of integers is rounded once.
    return np.log1p([(one - ratio) / ratio for ratio in ratios])


def _reach(variance: float, b: float) -> int:
    """Return how far out p e^(b L) is summed; beyond it, terms fall fast (``_fall``)."""
    std, tilt = math.sqrt(variance), b / variance
    # The mean of the tilted law is at most x sinh(b / x), its spread about std.
    reach = math.ceil(variance * math.sinh(tilt) + 11.0 * std * math.sqrt(math.cosh(tilt)) + 64)
    while _fall(variance, b, reach - 0.5) <= 1.0 / (std + 1.0):
        reach += reach // 8
    return reach


def _fall(variance: float, b: float, y: float) -> float:
    """Return f such that p e^(b L) decreases by e^-f a step, from the integer below y on, if f > 0.

    Amos's bounds (1974) give asinh((y + 1/2) / x) <= L(y) <= asinh((y + 3/2) / x). So L increases
    by at most 2 / sqrt(x^2 + (y + 1/2)^2) a step. f is asinh((y + 1/2) / x) minus b times that
    step. It increases with y, so its value at the last y holds for all later ones.
    """
    return math.asinh(y / variance) - 2.0 * b / math.hypot(variance, y)


_SKELLAM_WIDE = 576.0
"""Variance from which I7's pair is at most 0.7 % wider than a step needs; it holds from 16 on."""


def skellam_curve(shift: Shift, variance: float) -> tuple[Curve, str] | None:
    """Return the curve that dominates shifted Skellam noise, and its theorem.

    It is a Gaussian pair (I7), or the Renyi account of narrow noise (I4). None if the noise is too
    small.
    """
    norm = math.sqrt(shift.square)
    if variance >= _SKELLAM_WIDE:
        mu = norm * (1.0 + 4.0 / variance) / math.sqrt(variance) * _UP
        return Gdp(mu), "I7: Skellam noise, dominated by one Gaussian"
    multiplier = math.sqrt(variance) / norm
    top = math.ceil(norm) + 1
    wanted = 1.0 + 20.0 * max(1.0, multiplier)
    highest = min(wanted * top, 1.0 + 2.0 * variance)
    # Served orders: those of a shift by one, divided by the shift.
    most = highest / top
    if most < LEAST_ORDER:
        return None
    rho = 0.5 * shift.square * concentrated_unit(variance, highest) * _UP
    powers = np.geomspace(min(1e-3, 1e-2 * (most - 1.0)), most - 1.0, 300)
    points = tuple((1.0 + b, rounded_up(rho * (1.0 + b))) for b in powers.tolist())
    return RenyiPoints(points), "I4: Skellam noise, shifts as chains of shifts by one"


# ---- one dimension


_WIDEST_TABLE = 4096.0
"""Largest std of a law whose outcomes are examined one by one."""

_WIDEST_SUM = 64.0
"""Largest std of a sum of shares whose law is computed by convolution."""

_OFF = 2.0**-50
"""Bound on the relative error of a table's weights, of sums, and of a double made of two."""

_CUT_OFF = 2.0**-200
"""Upper bound on the mass that tables omit."""

_GUARANTEES = 1200

_MOST_EPSILON = 480.0


def scalar_law(shares: int, variance: float, skellam: bool) -> tuple[tuple[int, ...], float] | None:
    """Return weights at 0, 1, ... of the law of a sum of shares, and their relative error.

    Discrete Gaussian shares that are too small for I1 are convolved. Return None if the table is
    too long.
    """
    exact, std = Fraction(variance), math.sqrt(shares * variance)
    if std > _WIDEST_TABLE:
        return None
    if skellam:
        return tuple(skellam_weights(shares * exact)), _OFF
    error = sum_error(shares, variance)
    if error <= MOST_WITNESS_ERROR:
        return tuple(gaussian_weights(shares * exact)), _OFF + 4.0 * error
    return (_summed(shares, exact), _OFF) if std <= _WIDEST_SUM else None


@functools.lru_cache(maxsize=16)
def _summed(shares: int, variance: Fraction) -> tuple[int, ...]:
    """Return weights at 0, 1, ... of a sum of discrete Gaussians, by exact repeated squaring.

    Polynomials are multiplied as integers with room for every coefficient. A product loses at most
    one unit of 2^-400 per entry. It loses less than 2^-260 of its mass by truncation.
    """
    half = gaussian_weights(variance)
    one, found = [*half[:0:-1], *half], [1 << 400]
    for digit in f"{shares:b}":
        found = _product(found, found)
        if digit == "1":
            found = _product(found, one)
    return tuple(found[len(found) // 2 :])


def _product(left: list[int], right: list[int]) -> list[int]:
    """Return the convolution of symmetric weights, rounded down, truncated, 2^400 in the middle."""
    # A coefficient is at most the number of terms times 2^800.
    size = (800 + len(left).bit_length() + 8) // 8
    packed = [
        int.from_bytes(b"".join(w.to_bytes(size, "little") for w in part), "little")
        for part in (left, right)
    ]
    count = len(left) + len(right) - 1
    data = (packed[0] * packed[1]).to_bytes(count * size, "little")
    middle = count // 2
    places = range(middle * size, count * size, size)
    half = [int.from_bytes(data[at : at + size], "little") for at in places]
    half = [(each << 400) // half[0] for each in half]
    half = [each for each in half if each >> 130]
    return [*half[:0:-1], *half]


def scalar_guarantees(
    weights: tuple[int, ...], moves: int, off: float
) -> tuple[tuple[float, float], ...] | None:
    """Return (epsilon, delta) of X + k against X, both ways, for every integer |k| up to ``moves``.

    I5: if the law of X is log-concave, an event {X >= t} is the worst for each epsilon. A larger k
    is worse. Losses at t and their delta are computed from integers and rounded up.

    Args:
        weights: weights of X at 0, 1, ... The function returns None if they are not log-concave.
        moves: largest shift, at least 1.
        off: bound on the relative error of the weights.
    """
    w, reach = weights, len(weights) - 1
    if any(w[k] * w[k] < w[k - 1] * w[k + 1] for k in range(1, reach)) or moves > reach:
        return None
    # above[i] is the weight of {X >= i - reach}.
    law = [*w[:0:-1], *w]
    above = [0, *itertools.accumulate(reversed(law))][::-1]
    total = above[0]

    def at(t: int) -> tuple[float, float]:
        p, q = w[abs(t - moves)], w[t]
        excess = Fraction(above[t - moves + reach] * q - above[t + reach] * p, total * q)
        ratio = Fraction(p, q)
        epsilon = math.log(ratio.numerator) - math.log(ratio.denominator)
        # Logarithms of 400-bit numbers are accurate to a few units of their size.
        epsilon += 2.0 * off + FEW * 600.0
        return epsilon, float(excess) * (1.0 + 2.0 * off) + _CUT_OFF

    first = (moves + 1) // 2
    # Losses and their delta are monotone in t.
    last = bisect.bisect_left(
        range(reach),
        True,
        lo=first,
        key=lambda t: at(t)[1] <= 4.0 * _CUT_OFF or at(t)[0] > _MOST_EPSILON,
    )
    chosen = np.unique(np.linspace(first, last, _GUARANTEES).astype(int)).tolist()
    return tuple(point for point in map(at, chosen) if point[0] <= _MOST_EPSILON)


def scalar_curve(
    weights: tuple[int, ...], moves: int, off: float, other: Curve | None
) -> tuple[Curve, str] | None:
    """Return the dominating pair of integer shifts of one number up to ``moves``.

    Args:
        weights: weights of the number's law.
        moves: largest shift.
        off: bound on the relative error of the weights.
        other: curve that dominates them by another theorem. Its Renyi divergences are kept.
    """
    points = scalar_guarantees(weights, moves, off)
    if not points:
        return None
    name = "I5: one integer of a log-concave law, outcome by outcome"
    cover = math.inf if other is None else other.support().cover
    if cover < math.inf:
        # A Gaussian pair of that mu dominates, and so do its divergences.
        other = _line(0.5 * cover**2 * _UP, 0.0)
    if isinstance(other, RenyiPoints):
        return RenyiAndPoints(other.divergences, points), name
    return stated_pair(points), name


def scalar_witness(
    weights: tuple[int, ...], shift: int, modulus: int, *, error: float
) -> Atoms | None:
    """Return a pair that X + shift and X modulo ``modulus`` attain: few outcomes, less all errors.

    X is symmetric, and so is the pair. Outcomes that P favours are merged. Their P-mass is lowered
    and their Q-mass is raised by the possible rounding and by ``error``. Mirror images are the
    outcomes that Q favours, and the remaining mass has loss 0. So no delta at any epsilon is above
    the true one.

    Args:
        weights: weights of X at 0, 1, ....
        shift: integer, at least 1. The function returns None if it exceeds the table.
        modulus: sums are observed modulo this number.
        error: relative error of X's masses.
    """
    if shift > len(weights):
        return None
    half = [weight / (1 << 400) for weight in weights]
    law = np.array([*half[:0:-1], *half])
    law /= math.fsum(law)
    padding = np.zeros(shift)
    p, q = np.append(padding, law), np.append(law, padding)
    if len(p) > modulus:
        place = np.arange(len(p)) % modulus
        p, q = _collected(place, p), _collected(place, q)
    # A law without mass in the table has less than the truncated mass there.
    q = q + _CUT_OFF
    favoured = (p > q) & (p > 1e-45)
    return _mirrored(p[favoured], q[favoured], 1e-11 + 3.0 * error)


def _collected(cell: NDArray[np.int64], mass: Array) -> Array:
    """Return the total mass of every cell."""
    return np.bincount(cell, mass).astype(np.float64)


def _mirrored(p: Array, q: Array, off: float) -> Atoms | None:
    loss = np.log(p / q)
    cell = np.floor(loss / float(np.max(loss, initial=1e-12)) * _POINTS).astype(np.int64)
    p, q = _collected(cell, p), _collected(cell, q)
    p, q = p[p > 0.0], q[p > 0.0]
    points: dict[float, float] = {}
    for at, mass in zip(np.log(p / q) - 2.0 * off, p * math.exp(-off), strict=True):
        if at > 0.0:
            points[float(at)] = points.get(float(at), 0.0) + float(mass)
    right = sorted(points.items())
    left = [(-at, mass * math.exp(-at)) for at, mass in right[::-1]]
    rest = 1.0 - math.fsum(mass for _, mass in left + right)
    return Atoms((*left, (0.0, rest), *right)) if rest > 0.0 else None
