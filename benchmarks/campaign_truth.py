"""Privacy loss of two data sets, computed from the definitions, without the package's code.

A round's pair is a labelled mixture of parts, each ``Part(weight, kind, p, q)``; the label is
observed. ``p`` and ``q`` are mixtures, tuples of (weight, mean), of unit Gaussians or of unit
Laplace laws, or the probabilities of finitely many outcomes. A ``Show`` composes rounds.
``delta_ends`` brackets its delta. For one round it uses closed forms and mpmath. For many it uses
Fourier's integral on two meshes, and a lattice rounded in both directions. It returns None if
neither is sharp enough.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy.special import ive, logsumexp, ndtr, ndtri_exp

mp.dps = 40

Ends = tuple[float, float]
_EXACT = 1e-15
"""Relative slack of results of mpmath."""
_NODES = 6000
"""Largest number of heights of Fourier's integral."""


class Part(NamedTuple):
    """A label's pair: kind "normal", "laplace", "atoms", "same" or "apart"."""

    weight: Any
    kind: str
    p: tuple[Any, ...] = ()
    q: tuple[Any, ...] = ()


class Show(NamedTuple):
    """Rounds that two named data sets produce; each a pair and its count."""

    name: str
    rounds: tuple[tuple[tuple[Part, ...], int], ...]

    def swapped(self) -> Show:
        turned = tuple(
            (tuple(part._replace(p=part.q, q=part.p) for part in pair), n)
            for pair, n in self.rounds
        )
        return Show(self.name, turned)


def shift(mu: float, weight: Any = 1.0) -> Part:
    """N(mu, 1) against N(0, 1)."""
    return Part(weight, "normal", ((1.0, mu),), ((1.0, 0.0),))


def gaussian_delta(epsilon: float, mu: Any) -> Any:
    """delta(epsilon) of N(mu, 1) against N(0, 1), to 30 digits."""
    epsilon, mu = mpf(epsilon), mpf(mu)
    if mu == 0:
        return mpf(0)
    first = mpmath.ncdf(mu / 2 - epsilon / mu)
    return first - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def delta_ends(show: Show, epsilon: float) -> Ends | None:
    """Return ends of the larger orientation's delta at an epsilon; None without a sharp result."""
    found = [_oriented(turned, epsilon) for turned in (show, show.swapped())]
    known = [ends for ends in found if ends is not None]
    if not known:
        return None
    high = max(high for _, high in known) if len(known) == len(found) else 1.0
    return max(low for low, _ in known), high


def _oriented(show: Show, epsilon: float) -> Ends | None:
    closed = _closed(show, epsilon)
    if closed is not None:
        value = float(closed)
        return value * (1.0 - _EXACT), value * (1.0 + _EXACT)
    # The transform of losses on a lattice does not decay along the line, so its inversion does not
    # end.
    spread = any(part.kind not in ("atoms", "same") for pair, _ in show.rounds for part in pair)
    return (_fourier(show, epsilon) if spread else None) or _lattice(show, epsilon)


def _closed(show: Show, epsilon: float) -> Any:
    """Return delta of one round, or of rounds that are all one Gaussian shift."""
    if any(part.kind == "apart" for pair, _ in show.rounds for part in pair):
        return _with_apart(show, epsilon)
    if sum(n for _, n in show.rounds) == 1:
        [(pair, _)] = show.rounds
        return sum(mpf(part.weight) * hockey(part, epsilon) for part in pair)
    moves = [_one_shift(pair) for pair, _ in show.rounds]
    if any(move is None for move in moves):
        return None
    total = sum(n * mpf(mu) ** 2 for mu, (_, n) in zip(moves, show.rounds, strict=True))
    return gaussian_delta(epsilon, mpmath.sqrt(total))


def _with_apart(show: Show, epsilon: float) -> Any:
    """Return at least the probability that some label reveals the data set (P's side)."""
    del epsilon
    log_rest = mpf(0)
    for pair, n in show.rounds:
        apart = sum(mpf(part.weight) for part in pair if part.kind == "apart")
        if apart >= 1:
            return mpf(1)
        log_rest += n * mpmath.log1p(-apart)
    return -mpmath.expm1(log_rest)


def _one_shift(pair: tuple[Part, ...]) -> float | None:
    if len(pair) != 1 or pair[0].kind != "normal":
        return 0.0 if all(part.kind == "same" for part in pair) else None
    [part] = pair
    if len(part.p) != 1 or len(part.q) != 1:
        return None
    return abs(float(part.p[0][1]) - float(part.q[0][1]))


def hockey(part: Part, epsilon: float) -> Any:
    """delta(epsilon) of one label's pair."""
    if part.kind == "same":
        return mpf(0)
    if part.kind == "atoms":
        growth = mpmath.exp(mpf(epsilon))
        gains = [mpf(a) - growth * mpf(b) for a, b in zip(part.p, part.q, strict=True)]
        return sum((gain for gain in gains if gain > 0), mpf(0))
    if part.kind == "normal" and len(part.p) == len(part.q) == 1:
        return gaussian_delta(epsilon, abs(mpf(part.p[0][1]) - mpf(part.q[0][1])))
    return _region_sum(part, epsilon)


def _log_density(kind: str, mixture: tuple[Any, ...], y: np.ndarray) -> np.ndarray:
    weights = np.array([float(w) for w, _ in mixture])
    gaps = y[:, None] - np.array([float(m) for _, m in mixture])
    exponent = -0.5 * gaps * gaps if kind == "normal" else -np.abs(gaps)
    return logsumexp(exponent, b=weights, axis=1)


def _losses(part: Part, y: np.ndarray) -> np.ndarray:
    return _log_density(part.kind, part.p, y) - _log_density(part.kind, part.q, y)


def _edges(part: Part, epsilon: float, reach: float) -> list[float]:
    """Return points where the loss crosses epsilon; any points give a true lower end."""
    means = [float(m) for _, m in part.p + part.q]
    y = np.linspace(min(means) - reach, max(means) + reach, 3001)
    signs = _losses(part, y) > epsilon
    at = np.flatnonzero(signs[1:] != signs[:-1])
    low, high, first = y[at], y[at + 1], signs[at]
    for _ in range(60):
        middle = 0.5 * (low + high)
        same = (_losses(part, middle) > epsilon) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return [-math.inf, *(0.5 * (low + high)).tolist(), math.inf]


def _region_sum(part: Part, epsilon: float) -> Any:
    """Return P(A) - e^epsilon Q(A) of the set A where the loss is above epsilon, in mpmath."""
    means = [float(m) for _, m in part.p + part.q]
    reach = 40.0 + abs(epsilon) / max(max(means) - min(means), 0.05)
    edges = _edges(part, epsilon, min(reach, 1e4))
    total, growth = mpf(0), mpmath.exp(mpf(epsilon))
    for low, high in itertools.pairwise(edges):
        inside = high - 1.0 if math.isinf(low) else low + 1.0 if math.isinf(high) else None
        inside = 0.5 * (low + high) if inside is None else inside
        if math.isinf(low) and math.isinf(high):
            inside = 0.0
        if _losses(part, np.array([inside]))[0] > epsilon:
            total += _mass(part, part.p, low, high) - growth * _mass(part, part.q, low, high)
    return max(total, mpf(0))


def _mass(part: Part, mixture: tuple[Any, ...], low: float, high: float) -> Any:
    below = mpmath.ncdf if part.kind == "normal" else _laplace_below
    total = mpf(0)
    for weight, mean in mixture:
        a, b = mpf(low) - mpf(mean), mpf(high) - mpf(mean)
        a, b = (-b, -a) if a > 0 else (a, b)
        total += mpf(weight) * (below(b) - below(a))
    return total


def _laplace_below(x: Any) -> Any:
    return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2


# Many rounds ------------------------------------------------------------------------------------


class Nodes(NamedTuple):
    """A round's law of the loss: P-masses and losses, and the mass at exactly 0."""

    mass: np.ndarray
    loss: np.ndarray
    still: float


def nodes(pair: tuple[Part, ...], tilt: float, fine: float) -> Nodes | None:
    """Return quadrature nodes for E_P e^{sL}, Re s = tilt; None for a revealing label."""
    masses, losses, still = [], [], 0.0
    for part in pair:
        weight = float(part.weight)
        if part.kind == "same":
            still += weight
            continue
        found = _part_nodes(part, tilt, fine)
        if found is None:
            return None
        masses.append(weight * found[0])
        losses.append(found[1])
    if not masses:
        return Nodes(np.zeros(0), np.zeros(0), still)
    return Nodes(np.concatenate(masses), np.concatenate(losses), still)


def _part_nodes(part: Part, tilt: float, fine: float) -> tuple[np.ndarray, np.ndarray] | None:
    if part.kind == "atoms":
        p, q = (np.array([float(v) for v in side]) for side in (part.p, part.q))
        if (p[q == 0] > 0).any():
            return None
        kept = p > 0
        return p[kept], np.log(p[kept] / q[kept])
    means = [float(m) for _, m in part.p + part.q]
    low, high = min(means), max(means)
    if part.kind == "laplace":
        return _laplace_nodes(part, low, high, fine)
    reach = 9.5 + tilt * (high - low)
    count = int((2 * reach + high - low) * fine * 6.0 * (1.0 + 0.3 * math.sqrt(tilt)))
    if count > 40_000:
        return None
    y = np.linspace(low - reach, high + reach, count)
    mass = np.exp(_log_density("normal", part.p, y)) * (y[1] - y[0]) / math.sqrt(2 * math.pi)
    return mass, _losses(part, y)


def _laplace_nodes(part: Part, low: float, high: float, fine: float) -> tuple[Any, Any]:
    """Return nodes by Gauss's rule between the means; outside, the loss is constant."""
    kinks = sorted({float(m) for _, m in part.p + part.q})
    x, w = np.polynomial.legendre.leggauss(int(60 * fine))
    mass, loss = [], []
    for a, b in itertools.pairwise(kinks):
        y = 0.5 * (a + b) + 0.5 * (b - a) * x
        mass.append(0.25 * (b - a) * w * np.exp(_log_density("laplace", part.p, y)))
        loss.append(_losses(part, y))
    for side in (low, high):
        outside = sum(float(v) * 0.5 * math.exp(-abs(float(m) - side)) for v, m in part.p)
        mass.append(np.array([outside]))
        loss.append(_losses(part, np.array([side])))
    return np.concatenate(mass), np.concatenate(loss)


def _log_size(rounds: list[tuple[Nodes, int]], tilt: float) -> float:
    total = 0.0
    for at, n in rounds:
        exponent = np.append(tilt * at.loss, 0.0)
        total += n * float(logsumexp(exponent, b=np.append(at.mass, at.still)))
    return total


def _tilt(show: Show, epsilon: float) -> float | None:
    """Return the tilt with the smallest Chernoff bound, among a few."""
    best = None
    for tilt in np.geomspace(0.3, 150.0, 19):
        rounds = _all_nodes(show, float(tilt), 1.0)
        if rounds is None:
            return None if best is None else best[1]
        value = _log_size(rounds, float(tilt)) - tilt * epsilon - math.log(tilt * (tilt + 1.0))
        if best is not None and value > best[0]:
            break
        best = (value, float(tilt))
    return None if best is None else best[1]


def _all_nodes(show: Show, tilt: float, fine: float) -> list[tuple[Nodes, int]] | None:
    found = [(nodes(pair, tilt, fine), n) for pair, n in show.rounds]
    return None if any(at is None for at, _ in found) else found


_MESHES = 1e-8
"""Relative error that two meshes may have in common."""
_EACH_ROUND = 2.0**-46
"""Relative error for each round of a power of a sum, itself exact to a few last digits."""


def _fourier(show: Show, epsilon: float) -> Ends | None:
    """(1 / pi) int_0^inf Re[M(s) e^{-s epsilon} / (s (s + 1))] dv, s = tilt + i v; two meshes."""
    tilt = _tilt(show, epsilon) if epsilon > 0 else None
    if tilt is None:
        return None
    values = [_integral(show, epsilon, tilt, fine) for fine in (1.4, 1.9)]
    if any(value is None for value in values):
        return None
    (first, _), (second, floor) = values
    rounds = sum(n for _, n in show.rounds)
    error = 4.0 * abs(first - second) + floor + second * (_MESHES + _EACH_ROUND * rounds)
    if not error < 1e-3 * second:
        return None
    return second - error, second + error


def _integral(show: Show, epsilon: float, tilt: float, fine: float) -> tuple[float, float] | None:
    rounds = _all_nodes(show, tilt, fine)
    if rounds is None or not all(len(at.mass) for at, _ in rounds):
        return None
    size = _log_size(rounds, tilt) - tilt * epsilon
    if size > 300.0:
        return None
    weights, variance = [], 0.0
    for at, n in rounds:
        tilted = at.mass * np.exp(tilt * at.loss)
        total = tilted.sum() + at.still
        mean = float(tilted @ at.loss) / total
        square = float(tilted @ (at.loss - mean) ** 2) + at.still * mean**2
        variance += n * square / total
        weights.append((tilted / total, at.still / total))
    spread = math.sqrt(variance)
    step = 2.0 * math.pi / (fine * max(16.0 * spread, 45.0 / tilt))
    still = sum(
        n * (math.log(s) if s > 0 else -math.inf)
        for (_, n), (_, s) in zip(rounds, weights, strict=True)
    )

    def left(v: np.ndarray) -> np.ndarray:
        power = np.zeros(len(v), dtype=complex)
        for (at, n), (mass, unmoved) in zip(rounds, weights, strict=True):
            value = np.exp(1j * np.outer(v, at.loss)) @ mass + unmoved
            power += n * np.log(np.where(value == 0, 1e-300, value))
        return np.exp(power) - math.exp(still)

    def small(v: np.ndarray, values: np.ndarray) -> bool:
        return bool(np.abs(values).max() < 1e-13 * max(v[-1], 1.0))

    last = step * np.arange(_NODES - 50, _NODES)
    if not small(last, left(last)):
        return None
    total = 0.0
    for begin in range(0, _NODES, 200):
        v = step * np.arange(begin, begin + 200)
        values, s = left(v), tilt + 1j * v
        terms = (values * np.exp(-1j * v * epsilon) / (s * (s + 1.0))).real
        total += float(terms.sum()) - (0.5 * float(terms[0]) if begin == 0 else 0.0)
        if small(v[-50:], values[-50:]):
            break
    rounding = 3e-15 * (10.0 + sum(n for _, n in rounds)) * math.exp(size) / (tilt * (tilt + 1.0))
    return total * step / math.pi * math.exp(size), rounding * (1.0 + 1.0 / (spread * tilt))


def _lattice(show: Show, epsilon: float, points: int = 1 << 16) -> Ends | None:
    """Return ends with losses rounded to a lattice and convolved by FFT; error about 1e-10."""
    if sum(n for _, n in show.rounds) > 100_000:
        return None
    rounds = [(cells(pair), n) for pair, n in show.rounds]
    if any(at is None for at, _ in rounds):
        return None
    middle = [(mass, 0.5 * (low + high), n) for (mass, low, high), n in rounds]
    mean = sum(n * float(mass @ loss) for mass, loss, n in middle)
    variance = sum(n * float(mass @ loss**2) for mass, loss, n in middle)
    largest = max(float(np.abs(loss).max(initial=0.0)) for _, loss, _ in middle)
    width = 24.0 * math.sqrt(variance) + 4.0 * largest + 2.0 * abs(mean) + epsilon
    step = 2.0 * width / points
    if 2.0 * step * sum(n for _, n in rounds) > width:
        return None
    ends = [_convolved(rounds, epsilon, step, points, up) for up in (False, True)]
    low, high = max(ends[0] - 2e-10, 0.0), min(ends[1] + 2e-10, 1.0)
    return (low, high) if math.isfinite(low + high) else None


def _convolved(
    rounds: list[tuple[Any, int]], epsilon: float, step: float, points: int, up: bool
) -> float:
    power = np.ones(points // 2 + 1, dtype=complex)
    for (mass, low, high), n in rounds:
        index = np.ceil(high / step) if up else np.floor(low / step)
        law = np.zeros(points)
        np.add.at(law, index.astype(np.int64) % points, mass)
        power *= np.fft.rfft(law) ** n
    law = np.maximum(np.fft.irfft(power, points), 0.0)
    loss = step * (((np.arange(points) + points // 2) % points) - points // 2)
    above = loss > epsilon
    return float(law[above] @ -np.expm1(epsilon - loss[above]))


def cells(pair: tuple[Part, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(P-mass, least loss, largest loss) of cells of the output; None with an infinite loss."""
    found = []
    for part in pair:
        one = _part_cells(part)
        if one is None:
            return None
        found.append((float(part.weight) * one[0], *one[1:]))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _part_cells(part: Part) -> Any:
    if part.kind == "same":
        return np.ones(1), np.zeros(1), np.zeros(1)
    if part.kind == "atoms":
        p, q = (np.array([float(v) for v in side]) for side in (part.p, part.q))
        if (p[q == 0] > 0).any():
            return None
        loss = np.log(p[p > 0] / q[p > 0])
        return p[p > 0], loss, loss
    means = [float(m) for _, m in part.p + part.q]
    reach = 8.5 if part.kind == "normal" else 0.0
    edges = np.linspace(min(means) - reach, max(means) + reach, 30_001)
    loss = _losses(part, edges)
    below = ndtr if part.kind == "normal" else _laplace_cdf
    total = sum(float(w) * below(edges - float(m)) for w, m in part.p)
    mass = np.diff(total, prepend=0.0, append=1.0)
    ends = np.concatenate([loss[:1], loss, loss[-1:]])
    return mass, np.minimum(ends[:-1], ends[1:]), np.maximum(ends[:-1], ends[1:])


def _laplace_cdf(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0)), 1.0 - 0.5 * np.exp(-np.maximum(x, 0)))


# Closed ends of other kinds -----------------------------------------------------------------------


def responses_delta(epsilon: float, each: float, mass: float, rounds: int) -> Any:
    """Return delta of ``rounds`` worst (each, mass)-DP mechanisms: randomised responses, summed."""
    keeps = (1 - mpf(mass)) ** rounds
    lie = 1 / (1 + mpmath.exp(mpf(each)))
    total = mpf(0)
    for lies in range(rounds + 1):
        gain = -mpmath.expm1(mpf(epsilon) - (rounds - 2 * lies) * mpf(each))
        if gain <= 0:
            break
        weight = mpmath.binomial(rounds, lies) * lie**lies * (1 - lie) ** (rounds - lies)
        total += weight * gain
    return 1 - keeps + keeps * total


def variance_log_delta(epsilon: float, share: float, dimensions: float) -> float:
    """Return the log of a lower end of delta: N(0, 1) against N(0, share < 1), per dimension.

    The squared norm is a sufficient statistic. The set is where the loss is above epsilon, located
    by the central limit theorem. P and Q of it follow the chi-square law.
    """
    from scipy.stats import chi2

    half = 0.5 * dimensions
    bound = (epsilon - half * math.log(share)) / (0.5 * (1.0 / share - 1.0))
    # loss = half log(share) + |x|^2 (1/share - 1) / 2
    p, q = chi2.logsf(bound, dimensions), chi2.logsf(bound / share, dimensions)
    if not p > q + epsilon:
        return -math.inf
    return float(p + math.log(-math.expm1(q + epsilon - p)))


def allocated_moment(mu: float, rounds: int, order: int) -> float:
    """Return log E X^order, X the mean of ``rounds`` log-normal ratios e^{mu y - mu^2 / 2}."""
    k = np.arange(order + 1)
    log_factorial = np.array([math.lgamma(j + 1.0) for j in k])
    single = 0.5 * mu * mu * k * (k - 1.0) - log_factorial
    found, square, left = np.where(k == 0, 0.0, -np.inf), single, rounds
    while left:
        found = _series(found, square) if left & 1 else found
        left >>= 1
        square = _series(square, square) if left else square
    return float(found[order] + log_factorial[order] - order * math.log(rounds))


def _series(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    n = len(one)
    return np.array([logsumexp(one[: i + 1] + two[i::-1][: i + 1]) for i in range(n)])


def allocated_epsilon(mu: float, rounds: int, epochs: int, delta: float) -> float:
    """Return an upper end of epsilon of (present, absent) by integer moments, or inf."""
    best = math.inf
    for order in (2, 3, 5, 8, 14, 24):
        divergence = epochs * allocated_moment(mu, rounds, order) / (order - 1.0)
        gain = (math.log(delta) + math.log(order)) / (order - 1.0)
        best = min(best, divergence + math.log1p(-1.0 / order) - gain)
    return max(best, 0.0)


def gaussian_epsilon(mu: float, delta: float) -> Ends:
    """Return ends of epsilon of N(mu, 1) against N(0, 1) at a delta, by bisection in mpmath."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0, 0.0
    # epsilon <= mu^2 / 2 + mu Phi^-1(1 - delta)
    high = 0.5 * mu * mu + mu * max(-float(ndtri_exp(math.log(delta))), 0.0) + 1e-9
    low = 0.0
    for _ in range(70):
        middle = 0.5 * (low + high)
        if gaussian_delta(middle, mu) <= delta:
            high = middle
        else:
            low = middle
    return low, high


def binomial_law(draws: int, chance: float) -> list[tuple[Any, int]] | None:
    """Return (weight, count) with weights in mpmath, down to 1e-60; None if there are too many."""
    p, mean = mpf(chance), draws * chance
    reach = int(mean + 16.0 * math.sqrt(mean + 1.0) + 60.0)
    begin = max(0, int(mean - 16.0 * math.sqrt(mean + 1.0)))
    if min(reach, draws) - begin > 300:
        return None
    law = []
    if p == 1:
        return [(mpf(1), draws)]
    log_p, log_q, top = mpmath.log(p), mpmath.log1p(-p), mpmath.loggamma(draws + 1)
    for s in range(begin, min(reach, draws) + 1):
        ways = top - mpmath.loggamma(s + 1) - mpmath.loggamma(draws - s + 1)
        weight = mpmath.exp(ways + s * log_p + (draws - s) * log_q)
        if weight > mpf(10) ** -60:
            law.append((weight, s))
    return law


def summed_law(skellam: bool, variance: float, shares: int) -> np.ndarray:
    """Return masses of a sum of shares: by Bessel's function, or powers of a transform."""
    reach = math.ceil(12.0 * math.sqrt(shares * variance) + 30.0)
    k = np.arange(-reach, reach + 1)
    if skellam:
        return np.asarray(ive(np.abs(k), shares * variance))
    masses = np.exp(-(k.astype(float) ** 2) / (2.0 * variance))
    transform = np.fft.rfft(np.fft.ifftshift(masses / masses.sum()))
    return np.maximum(np.fft.fftshift(np.fft.irfft(transform**shares, len(k))), 0.0)
