"""What whole-number noise loses: dominating pairs of shifted discrete Gaussian and Skellam laws.

A release is s + X, X of d independent whole numbers, s a whole-number vector of the data;
neighbours move s by a vector of norm at most S. Theorems, proved in docs/theory/integers.md:

- *Sums* (I1): masses of a sum of n shares N_Z(0, v) are those of N_Z(0, n v) within a factor
  (1 +- eta) / (1 -+ eta), eta a theta series of the lattice dual to {w in Z^n: sum w = 0}.
- *Gaussian* (I2): N_Z(s, V) is, within a factor close to 1, a function of N(s, V - r^2), so that it
  is dominated by a Gaussian pair of a shift a little above S / sqrt(V - r^2).
- *Concentrated* (I3): Renyi divergences are at most a S^2 / (2V) + m w, and at most a/2 times
  (S^2 + 2 w S_1 sqrt(V) + w^2 m V) / V, with w the log of I1's factor and m coordinates that move.
- *Chains* (I4): if a shift by one has divergences of at most a c / 2 at orders up to A, a shift by
  a vector of norm S has at most a c S^2 / 2 at orders up to A / S. It serves Skellam noise.
- *One number* (I5): of a log-concave law, the largest shift is the worst, and its profile is known
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
from ..rounding import FEW, TENS, THOUSANDS, UNIT
from .bessel import losses
from .integers import gaussian_weights, skellam_weights

Array = NDArray[np.float64]

LEAST_ORDER = 1.5
"""The highest order of a Renyi account is at least this, else the shares are too small."""

MOST_SUM_ERROR = 0.5
"""Largest eta of a sum of shares; beyond, the shares are too small to say anything."""

REJECTED = 1e-3
"""Chance that a rounding is drawn again, at most: beta of Kairouz, Liu and Steinke (2021)."""

_UP = 1.0 + THOUSANDS
_RADII = np.arange(0.7, 4.05, 0.05)
_MOST_NOISE_LOST = 0.5
"""Most that I2 may take off the variance; beyond, I3 serves."""

MOST_WITNESS_ERROR = 1e-10
"""Largest relative error of the masses of a pair that is shown: a pair's masses add up to 1."""

_POINTS = 1500
"""Points of a pair that is attained: outcomes of nearby losses are merged."""


def sum_error(shares: int, variance: float) -> float:
    """Return eta of I1 for so many shares N_Z(0, variance), rounded up; infinite where too large.

    With q = e^(-2 pi^2 variance) and n q < 1 it is at most (n^2 q^2 + 2 sum_j C(n+j-1, j)
    q^(j - j^2/n)) / (1 - n^2 q^2), j from 1 to n / 2.
    """
    if shares == 1:
        return 0.0
    exponent = 2.0 * math.pi**2 * variance * (1.0 - THOUSANDS)
    log_first = math.log(shares) - exponent
    if log_first > -0.5:
        return math.inf
    j = np.arange(1.0, shares // 2 + 1.0)
    log_terms = gammaln(shares + j) - gammaln(j + 1.0) - gammaln(float(shares))
    log_terms = log_terms - exponent * (j - j * j / shares)
    # gammaln of large numbers is right to a few units of its size.
    log_terms += TENS * (1.0 + np.abs(gammaln(shares + j)))
    log_total = float(np.logaddexp(2.0 * log_first, math.log(2.0) + logsumexp(log_terms)))
    found = math.exp(min(log_total, 0.0)) / -math.expm1(2.0 * log_first) * _UP
    return found if log_total < 0.0 and found <= MOST_SUM_ERROR else math.inf


def smoothing_error(variance: float) -> float:
    """Return by how much sums of e^(-(k-y)^2 / 2v) over whole k differ with y, over their mean.

    2 sum e^(-2 pi^2 v k^2) by Poisson's summation formula; at most 2 q / (1 - q).
    """
    q = math.exp(-2.0 * math.pi**2 * variance * (1.0 - THOUSANDS))
    return 2.0 * q / (1.0 - q)


def _width(error: float) -> float:
    """Return log((1 + e) / (1 - e)), rounded up."""
    return (math.log1p(error) - math.log1p(-error)) * _UP


@dataclass(frozen=True)
class Shift:
    """How far neighbours move the sum, in whole numbers.

    Attributes:
        square: largest squared norm S^2.
        one_norm: largest 1-norm.
        moved: most coordinates that move.
    """

    square: int
    one_norm: float
    moved: int


@functools.lru_cache(maxsize=256)
def inflated_square(length: float, dimension: int) -> int:
    """Return the largest squared norm of a rounding of a vector of norm ``length``, rounded up.

    The smaller of (c + sqrt d)^2 and c^2 + d/4 + sqrt(2 log(1 / beta)) (c + sqrt(d) / 2); of one
    number that of c rounded up.
    """
    if dimension == 1:
        return math.ceil(length) ** 2
    root = math.sqrt(dimension)
    spread = math.sqrt(-2.0 * math.log(REJECTED)) * (length + root / 2.0)
    return math.ceil(min((length + root) ** 2, length**2 + dimension / 4.0 + spread))


def shift_of(square: int, dimension: int, times: int) -> Shift:
    """Return the shift of one contribution z in Z^d of |z|^2 <= square; twice, of z - z'.

    A whole number is at most its square, so that |z|_1 and the number of z's entries that are not 0
    are at most |z|^2; and |z|_1 <= sqrt(d) |z| (Cauchy and Schwarz).
    """
    one = min(math.sqrt(dimension * square) * _UP, float(square))
    return Shift(times**2 * square, times * one, min(dimension, times * square))


def gaussian_curve(shift: Shift, shares: int, share_variance: float) -> tuple[Curve, str] | None:
    """Return what dominates a shifted sum of shares N_Z(0, share_variance), and by which theorem.

    None where the shares are too small for I1.
    """
    eta = sum_error(shares, share_variance)
    if not eta < math.inf:
        return None
    variance = shares * share_variance * (1.0 - TENS)
    mu = _gaussian_shift(shift, variance, eta)
    if mu is not None:
        return Gdp(mu), "I1, I2: sums of discrete Gaussians, as functions of one Gaussian"
    width = _width(eta)
    # Both hold at every order: the one that is smaller at 10, where few rounds are converted.
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
    points = tuple((a, (xi + rho * a) * (1.0 + FEW)) for a in np.unique(orders).tolist())
    return RenyiLine(tuple(pair for pair in points if pair[0] > 1.0), rho, xi)


def _gaussian_shift(shift: Shift, variance: float, eta: float) -> float | None:
    """Return I2's mu, the least over the radii r; None where no radius gives a useful one."""
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

    mu' = mu + 2 sqrt(2 pi) slack e^(b^2 / 2) does for b = 1.01 mu / 2 + slack / mu if mu' is at
    most 1.01 mu: on the way dH/dmu = phi(a) outweighs H and the fall of H in e, which are at most
    phi(a) times Mills' ratio at a >= -b, and that is at most sqrt(2 pi) e^(b^2 / 2).
    """
    b = 1.01 * mu / 2.0 + slack / mu
    log_more = math.log(2.0 * math.sqrt(2.0 * math.pi)) + b * b / 2.0
    log_more += math.log(slack) if slack > 0.0 else -math.inf
    if log_more > math.log(0.0099 * mu):
        return None
    return (mu + math.exp(log_more)) * _UP


# ---- Skellam


def _depths(losses: Array) -> tuple[Array, float]:
    """Return log p(0) / p(y) for y = 0 .. len(losses), and by how much of itself it may be off.

    Sums of numbers above 0 in blocks: an entry has as many roundings as a block is long, twice.
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

    K(b) = log E e^(b L) at b = a - 1 is convex and 0 at 0. It is bounded at nodes so close that,
    between two, a chord is above the parabola by a share of (db)^2 / (4 b (b + 1)) at most; that
    share is added. A node's bound counts every rounding and all that its sum leaves out.

    Args:
        variance: of the law, its root at most 2^13: the law is summed term by term.
        highest: largest order, at most 1 + 2 variance.
    """
    law = _UnitShift.of(variance, highest - 1.0)
    found = max(2.0 * law.cumulant(b) / (b * (b + 1.0)) for b in _nodes(highest - 1.0))
    return found * (1.0 + _SHARE) * _UP


_SHARE = 4e-4


def _nodes(highest: float) -> list[float]:
    """Return increasing b from below ``_SHARE`` to ``highest``, neighbours close enough."""
    nodes = [_SHARE]
    while nodes[-1] < highest:
        b = nodes[-1]
        nodes.append(min(b + 2.0 * math.sqrt(_SHARE * b * (b + 1.0)), highest))
    return nodes


_DEEP = 60.0
"""Masses below e^-60 of the largest are left out on the left."""

_DIRECT = 30.0
"""Exponents up to here are summed as they are, lest a small cumulant drown beside 1."""

_CELL = 0.006
"""Width of cells in stds, where that is above 1: K is raised by 1e-5 of itself."""


@dataclass(frozen=True, eq=False)
class _UnitShift:
    """A Skellam law beside itself moved by one, its outcomes merged to fewer losses.

    Attributes:
        variance: x, of the law.
        loss: points L(y) = log p(y) / p(y + 1), increasing, each within ``FEW`` of itself, or above
            that.
        log_mass: of the points, over p(0).
        off: relative error of the masses, apart from ``unsure``.
        unsure: relative error of each mass that comes from the errors of the losses.
        log_total: a lower bound of log sum p / p(0): masses are too large then, and their sums.
        last: (y, log p(y) / p(0)) of the last outcome that has its mass in the sum.
    """

    variance: float
    loss: Array
    log_mass: Array
    off: float
    unsure: Array
    log_total: float
    last: tuple[int, float]

    @classmethod
    def of(cls, variance: float, most: float) -> _UnitShift:
        """Return the law, far enough out for e^(b L) of every b up to ``most``."""
        reach = _reach(variance, most)
        right, unsure = losses(variance, reach)
        depth, slip = _depths(right)
        # Depths grow: so many are not too deep.
        left = min(int(np.searchsorted(depth, _DEEP)), reach)
        depth = np.concatenate([depth[left:0:-1], depth[:-1]])
        # e^(b L) grows with L: no loss may be below the true one.
        loss = np.concatenate([-right[:left][::-1], right]) + unsure
        mass = np.exp(-depth[depth < 700.0])
        # Roundings of the sum, of the exponentials, and of the depths: all shares of a mass.
        off = (len(depth) + 16.0) * UNIT + 2.0 * FEW + slip * float(depth.max())
        place = np.abs(np.arange(-left, reach))
        lowered = unsure * float(mass @ place[depth < 700.0])
        log_total = math.log(float(mass.sum()) - 1.001 * lowered) - 1.001 * off - FEW * 32.0
        width = max(int(_CELL * math.sqrt(variance)), 1)
        points, log_mass, starts = _merged(loss, depth, width)
        # A point has masses of outcomes up to a cell away.
        shares = 1.001 * unsure * (place[starts] + width)
        last = (reach - 1, -float(depth[-1]) + unsure * reach)
        return cls(variance, points, log_mass, off, shares, log_total, last)

    @functools.cached_property
    def _mass(self) -> Array:
        return np.asarray(np.exp(self.log_mass))

    @functools.cached_property
    def _middle(self) -> int:
        """How many losses are below 0."""
        return int(np.searchsorted(self.loss, 0.0))

    def cumulant(self, b: float) -> float:
        """Return an upper bound of K(b) = log E e^(b L), b above 0 and at most ``most``.

        On the left e^(b L) - 1 is below 0, so that leaving masses out there is an upper bound.
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
            total += float(np.abs(terms) @ self.unsure)
            return math.log1p(total * math.exp(-self.log_total)) * (1.0 + 64.0 * FEW)
        power += self.log_mass
        top = float(power.max())
        log_sum = top + math.log(float(np.exp(power - top).sum()))
        log_sum = float(np.logaddexp(log_sum, log_rest)) + 1.001 * (off + float(self.unsure.max()))
        return log_sum - self.log_total + FEW * (abs(log_sum) + abs(top) + 64.0)


def _merged(loss: Array, depth: Array, width: int) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return every ``width``-th loss and the last, with log-masses that bound E e^(b L), b > 0.

    Also which losses these are.

    e^(b L) is convex in L: a mass between two points is shared so that its mean stays (or grows,
    by what rounding may be), which raises the sum.
    """
    starts = np.arange(0, len(loss) - 1, width)
    taken = np.append(starts, len(loss) - 1)
    points = loss[taken]
    sizes = np.diff(np.append(starts, len(loss)))
    low, gap = np.repeat(points[:-1], sizes), np.repeat(np.diff(points), sizes)
    least = np.minimum.reduceat(depth, starts)
    mass = np.exp(np.repeat(least, sizes) - depth)
    share = (loss - low) / gap
    # Losses are off by ``FEW`` of themselves, and so are their differences.
    share += np.where(
        share > 0.0, 8.0 * FEW * np.maximum(np.abs(low), np.abs(low + gap)) / gap, 0.0
    )
    share = np.minimum(share, 1.0)
    with np.errstate(divide="ignore"):
        higher = np.log(np.add.reduceat(mass * share, starts)) - least
        lower = np.log(np.add.reduceat(mass * (1.0 - share), starts)) - least
    merged = np.logaddexp(np.append(lower, -np.inf), np.append(-np.inf, higher))
    return points, merged, taken


def _reach(variance: float, b: float) -> int:
    """Return how far out p e^(b L) is summed: beyond, it falls quickly, see ``_fall``."""
    std, tilt = math.sqrt(variance), b / variance
    # The tilted law's mean is at most x sinh(b / x), its spread about std.
    reach = math.ceil(variance * math.sinh(tilt) + 11.0 * std * math.sqrt(math.cosh(tilt)) + 64)
    while _fall(variance, b, reach - 0.5) <= 1.0 / (std + 1.0):
        reach += reach // 8
    return reach


def _fall(variance: float, b: float, y: float) -> float:
    """Return an f: from the whole number below y on, p e^(b L) falls by e^-f a step, if f > 0.

    Amos's bounds (1974) give asinh((y + 1/2) / x) <= L(y) <= asinh((y + 3/2) / x), so that L
    grows by at most 2 / sqrt(x^2 + (y + 1/2)^2) a step; f = asinh((y + 1/2) / x) less b of those
    grows with y, and counts from the last y on.
    """
    return math.asinh(y / variance) - 2.0 * b / math.hypot(variance, y)


def skellam_curve(shift: Shift, variance: float) -> tuple[Curve, str] | None:
    """Return the Renyi account of shifted Skellam noise (I4); None where the noise is too small."""
    norm = math.sqrt(shift.square)
    multiplier = math.sqrt(variance) / norm
    top = math.ceil(norm) + 1
    wanted = 1.0 + 20.0 * max(1.0, multiplier)
    highest = min(wanted * top, 1.0 + 2.0 * variance)
    # Orders that are served: those of a shift by one over the shift.
    most = highest / top
    if most < LEAST_ORDER:
        return None
    rho = 0.5 * shift.square * concentrated_unit(variance, highest) * _UP
    powers = np.geomspace(min(1e-3, 1e-2 * (most - 1.0)), most - 1.0, 300)
    points = tuple((1.0 + b, rho * (1.0 + b) * (1.0 + FEW)) for b in powers.tolist())
    return RenyiPoints(points), "I4: Skellam noise, shifts as chains of shifts by one"


# ---- one dimension


_WIDEST_TABLE = 4096.0
"""Largest std of a law whose outcomes are looked at one by one."""

_WIDEST_SUM = 64.0
"""Largest std of a sum of shares whose law is made by convolution."""

_OFF = 2.0**-50
"""More than a table's weights, of sums too, and a double made of two are off, relatively."""

_CUT_OFF = 2.0**-200
"""More mass than tables leave out."""

_GUARANTEES = 1200

_MOST_EPSILON = 480.0


def scalar_law(shares: int, variance: float, skellam: bool) -> tuple[tuple[int, ...], float] | None:
    """Return weights at 0, 1, ... of a sum of shares' law, and how far they may be off, relatively.

    Discrete Gaussian shares too small for I1 are convolved. None where the table is too long.
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
    """Return weights at 0, 1, ... of a sum of discrete Gaussians: squared and multiplied, exactly.

    Polynomials are multiplied as whole numbers with room for every coefficient. A product loses at
    most a unit of 2^-400 an entry, and less than 2^-260 of its mass where it is cut.
    """
    half = gaussian_weights(variance)
    one, found = [*half[:0:-1], *half], [1 << 400]
    for digit in f"{shares:b}":
        found = _product(found, found)
        if digit == "1":
            found = _product(found, one)
    return tuple(found[len(found) // 2 :])


def _product(left: list[int], right: list[int]) -> list[int]:
    """Return the convolution of symmetric weights, rounded down and cut, 2^400 in the middle."""
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
    """Return (epsilon, delta) of X + k beside X, both ways, for every whole |k| up to ``moves``.

    I5: where X's law is log-concave, an event {X >= t} is the worst for each epsilon, and the worse
    the larger k is. Losses at t and their delta come from whole numbers, and are rounded up.

    Args:
        weights: of X at 0, 1, ...; None is answered where they are not log-concave.
        moves: at least 1.
        off: how far weights may be off, relatively.
    """
    w, reach = weights, len(weights) - 1
    if any(w[k] * w[k] < w[k - 1] * w[k + 1] for k in range(1, reach)) or moves > reach:
        return None
    # above[i]: the weight of {X >= i - reach}.
    law = [*w[:0:-1], *w]
    above = [0, *itertools.accumulate(reversed(law))][::-1]
    total = above[0]

    def at(t: int) -> tuple[float, float]:
        p, q = w[abs(t - moves)], w[t]
        excess = Fraction(above[t - moves + reach] * q - above[t + reach] * p, total * q)
        ratio = Fraction(p, q)
        epsilon = math.log(ratio.numerator) - math.log(ratio.denominator)
        # Logarithms of numbers of 400 bits are right to a few units of their size.
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
    """Return the dominating pair of whole shifts of one number up to ``moves``.

    Args:
        weights: of the number's law.
        moves: largest shift.
        off: how far weights may be off, relatively.
        other: what dominates them by another theorem: its Renyi divergences are kept.
    """
    points = scalar_guarantees(weights, moves, off)
    if not points:
        return None
    name = "I5: one whole number of a log-concave law, outcome by outcome"
    if isinstance(other, Gdp):
        other = _line(0.5 * other.mu**2 * _UP, 0.0)
    if isinstance(other, RenyiPoints):
        return RenyiAndPoints(other.divergences, points), name
    return stated_pair(points), name


def scalar_witness(
    weights: tuple[int, ...], shift: int, modulus: int, *, error: float
) -> Atoms | None:
    """Return a pair that X + shift and X modulo ``modulus`` attain: few outcomes, all errors off.

    X is symmetric, and so is the pair. Outcomes that P favours are merged, their P-mass is lowered
    and their Q-mass raised by all that rounding and ``error`` may be; mirror images are those of Q,
    and what is left has loss 0: no delta at any epsilon is above the true one.

    Args:
        weights: of X at 0, 1, ....
        shift: whole, at least 1; None is answered where it leaves the table.
        modulus: sums are seen modulo this.
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
    # Where a law has no mass in the table it has less than the cut.
    q = q + _CUT_OFF
    favoured = (p > q) & (p > 1e-45)
    return _mirrored(p[favoured], q[favoured], 1e-11 + 3.0 * error)


def _collected(cell: NDArray[np.int64], mass: Array) -> Array:
    """Return the mass of every cell."""
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
