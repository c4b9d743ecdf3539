"""Runs where a record rarely takes part: the law of each round is split at a large loss.

The loss of a run like this is a body, the sum of very many tiny losses, plus an occasional jump. No
single tilt suits both, so P's law is divided by the number of jumps. Let A_0 and A_1 be the moments
of a round below and above the cut. Then A^T, the moment of T rounds, is

    A^T = sum over j of C(T, j) A_0^{T-j} A_1^j.

Each term has a separate tilt, and the profile is the sum of the profiles of the terms. See
docs/theory/jumps.md.

Jumps that are much rarer than delta are left out before that: see ``components.trim``.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ...rounding import THOUSANDS, UNIT, Down, Up, rounded_down, rounded_up
from ..clock import check_deadline
from ..curves.components import count_of, is_composed, parts_of, trim
from ..curves.curve import Curve
from ..curves.gaussian import GdpMoments
from ..moments.contour import Array, Contour, NoMoments
from ..moments.gaussian_rules import GaussianPair
from ..moments.legendre import legendre
from ..moments.mixtures import log_sum
from ..moments.moments import Moments
from ..moments.spectrum import (
    Cumulants,
    Decay,
    HalfLine,
    Leaf,
    Spectrum,
    power,
    power_cumulants,
    power_decay,
)
from ..moments.truncated_moments import Part, Piece
from .inversion import Chernoff, Inverted, chernoff, close_in, invert_moments

_DEPTH = 12.0
"""Omitted mass should be below about exp(-12) = 6e-6 of the answer."""
_SHARE = 1e-5
"""Share of delta that trimming may move the profile."""
_CHEAP_POINTS = 1024
"""Largest number of points of a line without smoothing."""
_MAX_POINTS = 1 << 16
MOST_TERMS = 128
_BEYOND = 1.1
"""Position of the cut, relative to epsilon: jumps get common if smaller, moments grow if larger."""
_STEPS = 16
"""Largest number of updates of the epsilon and its cut: each lowers epsilon by at least 5 %."""
_LEAST_SLOPE = 0.01
"""Assumed lower bound on the fall of log delta; a smaller one would require no accuracy."""
_STEEPEST = 2.0
"""Lower bound on the slope, over x: the smoothed function falls from 1 within x, by e^2 or more."""
_MOST_STD = 0.4
"""Largest std of smoothing; beyond it, the hats of the polyline are too wide to solve for the
middle."""
_REACH = 60.0
"""Distance of the grid for cuts beyond all means."""
_HATS = 8
_SQRT_2PI = math.sqrt(2.0 * math.pi)
_FARTHEST = 1e6
"""Largest mean, in standard deviations."""


class Cut(NamedTuple):
    """The outcomes of one round below and above the cut, with P's mass above."""

    calm: Moments
    jumps: Part | None
    mass: float


@dataclass(frozen=True, eq=False)
class Term(Moments):
    """All outcomes of a run with given numbers of jumps.

    Args:
        parts: rounds without and with jumps, each with its count.
        log_ways: log of the number of ways to choose the rounds that jump.
    """

    parts: tuple[tuple[Moments, int], ...]
    log_ways: float

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the moments, with the errors of all parts."""
        found = power([(part.spectrum(line), count) for part, count in self.parts])
        # Two logs are added: the rounding of their sum is relative to every value.
        off = 4 * UNIT * (abs(self.log_ways) + abs(found.log_size))
        error = found.error + off * (np.abs(found.values) + found.error)
        return replace(found, log_size=found.log_size + self.log_ways, error=error)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the sums of the cumulants of the parts."""
        found = power_cumulants([(part.cumulants(tilt), count) for part, count in self.parts])
        return found._replace(value=found.value + self.log_ways)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the product of the bounds of the parts."""
        found = [(part.decay(tilt, heights, fine), count) for part, count in self.parts]
        log_atom, log_rest = power_decay(found)
        return Decay(log_atom + self.log_ways, log_rest + self.log_ways + THOUSANDS)

    def smoothed(self, std: float) -> Term:
        """Return the outcomes composed with N(std, 1) against N(0, 1)."""
        # Smoothing is one more independent round, so all bounds on parts remain valid.
        return Term((*self.parts, (GdpMoments(std), 1)), self.log_ways)


class Terms(NamedTuple):
    """The relevant terms with log bounds on their masses, and a log bound on the other mass."""

    counting: list[tuple[Term, float]]
    log_rest: float


@dataclass(frozen=True, eq=False)
class Sum:
    """A profile as a sum of the profiles of terms.

    Args:
        inverted: the terms that are inverted.
        tails: (tilt, log A(tilt)) of terms that are only bounded, by Chernoff.
        log_rest: log of a bound on all other terms together.
    """

    inverted: Sequence[Inverted]
    tails: Sequence[tuple[float, float]]
    log_rest: float

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Return certified (low, high) of delta at each x."""
        # The smallest normal number replaces an underflow, because an upper end is never 0.
        rest = math.exp(self.log_rest) * (1 + 1e-9) + sys.float_info.min
        low, high = np.zeros_like(x), np.full_like(x, rest)
        for tilt, log_moment in self.tails:
            exponent = log_moment - tilt * x
            slack = THOUSANDS + 8 * UNIT * (abs(log_moment) + tilt * np.abs(x))
            # Capped, so that a useless bound is huge instead of an overflow.
            high = high + np.exp(np.minimum(exponent + slack, 600.0))
        for one in self.inverted:
            least, most = one.bounds(x)
            low, high = low + least, high + most
        # At most MOST_TERMS ends were added: 128 roundings are 1.5e-14.
        return low * (1 - 2e-14), high * (1 + 2e-14)

    def value_and_fall(self, x: float) -> tuple[float, float]:
        """Return the sum of the inverted terms and minus its slope at x."""
        found = [one.value_and_fall(x) for one in self.inverted]
        return sum(value for value, _ in found), sum(fall for _, fall in found)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """delta of a curve, from the delta of its composition with N(std, 1) against N(0, 1).

    Composing raises delta, so the upper end remains valid. The smoothed profile is an average of
    delta at x - U, where U is N(std^2/2, std^2). Delta is convex in e^x. So the average is at most
    that of the polyline through upper ends at x + j gap for j != 0 and through delta(x) at j = 0.
    The class solves for delta(x).
    """

    inversion: Inverted
    std: float

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Return certified (low, high) of delta at each x."""
        shares, beyond = _hat_shares(self.std)
        steps = 2.0 * self.std * np.arange(-_HATS, _HATS + 1)
        points = np.add.outer(steps, x)
        # Delta falls, so moving a point down by its rounding is safe.
        points -= 4 * UNIT * np.add.outer(np.abs(steps), np.abs(x))
        points[_HATS] = x
        low, high = self.inversion.bounds(points)
        # No delta exceeds 1, even where the inversion is inaccurate far from its centre.
        others = shares[:, None] * np.minimum(high, 1.0)
        others[_HATS] = 0.0
        # Outside the nodes only delta <= 1 is known, so their whole probability counts.
        around = others.sum(axis=0) + beyond
        least = (rounded_down(low[_HATS], THOUSANDS) - rounded_up(around, THOUSANDS)) / (
            rounded_up(shares[_HATS], THOUSANDS)
        )
        return np.maximum(least, 0.0), high[_HATS]

    def value_and_fall(self, x: float) -> tuple[float, float]:
        """Return the smoothed delta and minus its slope at x, including errors."""
        return self.inversion.value_and_fall(x)


@functools.lru_cache(maxsize=64)
def _hat_shares(std: float) -> tuple[Array, float]:
    """Return (expected shares of the polyline's nodes, probability of the rest).

    The point is Y = -U. Between the nodes j gap and (j + 1) gap the share of the right node is
    (e^{Y - j gap} - 1) / (e^gap - 1). Each expectation is a Gauss-Legendre sum of positive terms,
    cell by cell in units of std, where the integrand is entire.
    """
    at, weight = legendre(32)
    gap = 2.0 * std
    inside = np.arange(-_HATS, _HATS)[:, None]
    z = 2.0 * inside + 1.0 + at
    density = weight * np.exp(-0.5 * (z + 0.5 * std) ** 2) / _SQRT_2PI
    right = np.expm1(std * (1.0 + at)) / math.expm1(gap)
    shares = np.zeros(2 * _HATS + 1)
    shares[1:] += (density * right).sum(axis=1)
    shares[:-1] += (density * (1.0 - right)).sum(axis=1)
    # Y has the mean -std^2/2, so twice the larger tail bounds both tails.
    return shares, 2.0 * float(ndtr(0.5 * std - 2.0 * _HATS)) + 1e-50


def smoothing(tolerance: float, slope: float) -> float:
    """Return the std of smoothing that moves a delta like e^{-slope x} by a relative tolerance."""
    # Smoothing shifts log delta in second order, by about (slope std)^2, hence the root.
    return math.sqrt(min(tolerance, 0.1) / 8.0) / slope


def cut_round(curve: Curve, loss: float) -> Cut:
    """Return the outcomes of a round on either side of a loss above 0; all below if not splittable.

    Every division of the outcomes is valid, so the cut need not be exactly at that loss.
    """
    moments = curve.moments()
    try:
        pieces, atom = _everything(moments)
    except NoMoments:
        # No split is possible: the whole round lies below the cut, and one term is the whole run.
        return Cut(moments, None, 0.0)
    calm: list[Piece] = []
    jumps: list[Piece] = []
    for piece in pieces:
        start, stop = _crossings(piece, loss)
        if start > -math.inf:
            jumps.append(replace(piece, stop=start, most=math.inf))
        if stop < math.inf:
            jumps.append(replace(piece, start=stop))
        most = _largest(piece, stop) if start == -math.inf else math.inf
        ends = max(start, piece.start), stop
        calm.append(replace(piece, start=ends[0], stop=ends[1], most=min(most, piece.most)))
    mass = sum(piece.mass for piece in jumps)
    # No mass lies above the cut, so a division would only add an empty term.
    if mass == 0.0:
        return Cut(moments, None, 0.0)
    return Cut(
        Part(tuple(calm), atom, missing=mass),
        Part(tuple(jumps), missing=1.0 - mass, rare=True),
        rounded_up(mass, THOUSANDS),
    )


def _everything(moments: Moments) -> tuple[list[Piece], float]:
    """Return all outcomes and the separate mass at loss 0; only Gaussian pairs are split.

    Raises:
        NoMoments: the law has other pairs.
    """
    part = moments.part()
    if part is not None:
        pieces = [piece for one in part.pieces if (piece := one.divisible)]
        count, atom = len(part.pieces), part.atom
    else:
        pairs = moments.pairs()
        pieces = [Piece(weight, pair.gaussian) for weight, pair in pairs if pair.gaussian]
        count, atom = len(pairs), 0.0
    # A part with other pieces stays whole, because splitting half of it would lose their mass.
    if not pieces or len(pieces) < count:
        raise NoMoments
    return pieces, atom


def uncut(curve: Curve) -> bool:
    """Return whether a round has finitely many losses; its moments are sums without a split."""
    moments = curve.moments()
    part = moments.part()
    each: Sequence[HalfLine | Leaf]
    try:
        each = part.pieces if part else tuple(pair for _, pair in moments.pairs())
    except NoMoments:
        return False
    return all(one.finite is not None for one in each)


def _crossings(piece: Piece, loss: float) -> tuple[float, float]:
    """Return (left, right): beyond them the loss is above a level; infinite if it is not.

    Raises:
        NoMoments: the loss is above the level everywhere, or the means are too far apart to search.
    """
    # The loss is known to stay below, so no grid is needed.
    if piece.most <= loss:
        return -math.inf, math.inf
    pair = piece.pair
    if not pair.reach < _FARTHEST:
        raise NoMoments
    means = [mean for _, mean in pair.p + pair.q]
    # Sixty deviations beyond all means the mass is below the smallest double.
    low, high = max(min(means) - _REACH, piece.start), max(means) + _REACH
    y = np.linspace(low, max(high, low + 1.0), 1025)
    below = np.flatnonzero(_loss(pair, y) <= loss)
    if not len(below):
        raise NoMoments
    first, last = int(below[0]), int(below[-1])
    left, right = -math.inf, math.inf
    # A piece with a finite start has no mass to its left.
    if first > 0 and piece.start == -math.inf:
        left = _bisect(pair, loss, float(y[first]), float(y[first - 1]))
    if last < len(y) - 1:
        right = _bisect(pair, loss, float(y[last]), float(y[last + 1]))
    return left, right


def _bisect(pair: GaussianPair, loss: float, below: float, above: float) -> float:
    """Return an outcome whose loss is at most a level, and very close to it."""
    # Fifty bisections of a grid cell exhaust the bits of a double.
    for _ in range(50):
        middle = 0.5 * (below + above)
        at_most = float(_loss(pair, np.array([middle]))[0]) <= loss
        below, above = (middle, above) if at_most else (below, middle)
    return below


def _loss(pair: GaussianPair, y: Array) -> Array:
    return np.asarray(log_sum(pair.p, y) - log_sum(pair.q, y))


def _largest(piece: Piece, stop: float) -> float:
    """Return an upper bound on a piece's loss up to ``stop``; inf if the loss may not rise.

    The slope of the loss at y is the posterior mean of the means under P minus that under Q. So the
    loss increases if Q has one mean that is not above any mean of P. Where the loss is positive, it
    also increases if P and Q differ only at two means and P is heavier at the largest mean of all.
    """
    pair = piece.pair
    if not stop < math.inf:
        return math.inf
    single = len(pair.q) == 1 and all(mean >= pair.q[0][1] for _, mean in pair.p)
    largest = max(mean for _, mean in pair.p + pair.q)
    heavier = sum(w for w, m in pair.p if m == largest) > sum(w for w, m in pair.q if m == largest)
    if single or (piece.start > -math.inf and heavier):
        # The loss itself is rounded, so its bound is rounded up.
        return max(float(_loss(pair, np.array([stop]))[0]), 0.0) * (1.0 + 1e-9) + THOUSANDS
    return math.inf


def divide(curve: Curve, loss: float, log_least: float) -> Terms:
    """Return the terms of a run, split at a loss, except those with mass below e^log_least.

    More than J jumps in all have at most the mass m^{J+1} / (J+1)!, where m is the expected number.

    Raises:
        NoMoments: too many terms are relevant.
    """
    cuts = [(cut_round(part, loss), count) for part, count in parts_of(curve)]
    expected = sum(cut.mass * count for cut, count in cuts)
    most, log_rest = _most_jumps(expected, count_of(curve), log_least)
    counting: list[tuple[Term, float]] = []
    dropped = 0.0
    for jumps in _patterns([n if cut.jumps else 0 for cut, n in cuts], most):
        term, log_mass = _term(cuts, jumps)
        if log_mass < log_least:
            dropped += math.exp(log_mass)
        else:
            counting.append((term, log_mass))
    log_dropped = math.log(dropped) if dropped > 0 else -math.inf
    # 1e-9 is far above the rounding of these logs.
    return Terms(counting, float(np.logaddexp(log_dropped, log_rest)) + 1e-9)


def _most_jumps(expected: float, rounds: int, log_least: float) -> tuple[int, float]:
    """Return the largest relevant number of jumps, and the log of a bound on the mass of more.

    Raises:
        NoMoments: the number is too large.
    """
    # Without jumps one term is the whole run, and log(0) is not defined.
    if expected <= 0.0:
        return 0, -math.inf
    most = 0
    while (log_rest := _log_more(expected, most)) > log_least and most < rounds:
        most += 1
        if most > MOST_TERMS:
            raise NoMoments
    # The number of rounds limits the number of jumps, so no pattern is left out.
    return most, log_rest if most < rounds else -math.inf


def _log_more(expected: float, most: int) -> float:
    return (most + 1) * math.log(expected) - math.lgamma(most + 2.0) + 1e-9


def _patterns(counts: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield the number of jumps of each part, for at most ``most`` jumps in all.

    Raises:
        NoMoments: there are too many patterns.
    """
    jumping = sum(count > 0 for count in counts)
    # The number of patterns with at most ``most`` jumps of ``jumping`` kinds, computed in advance.
    if math.comb(most + jumping, jumping) > MOST_TERMS:
        raise NoMoments
    ranges = [range(min(count, most) + 1) for count in counts]
    return (jumps for jumps in itertools.product(*ranges) if sum(jumps) <= most)


def _term(cuts: Sequence[tuple[Cut, int]], jumps: Sequence[int]) -> tuple[Term, float]:
    """Return the term of a pattern of jumps, and the log of a bound on its mass."""
    parts: list[tuple[Moments, int]] = []
    log_ways = log_mass = 0.0
    for (cut, count), number in zip(cuts, jumps, strict=True):
        # If every round jumps, no round without a jump remains to be raised to a power.
        if count > number:
            parts.append((cut.calm, count - number))
        if cut.jumps is not None and number:
            parts.append((cut.jumps, number))
            ways = math.log(math.comb(count, number))
            log_ways += ways
            # Rounds without a jump have mass at most 1, so the jumps bound the term.
            log_mass += ways + number * math.log(cut.mass)
    return Term(tuple(parts), log_ways), log_mass + 1e-9


def invert(
    curve: Curve,
    x: float,
    log_delta: float,
    error: float,
    least_std: float = 0.0,
) -> Sum:
    """Return the profile near an epsilon above 0, with the cut slightly beyond it.

    Args:
        curve: a run.
        x: an epsilon.
        log_delta: approximate log of delta there.
        error: largest change of each term through smoothing, approximately, as a share of delta.
        least_std: smallest useful std of smoothing.

    Raises:
        NoMoments: the method does not reach this run.
        LateError: the deadline has passed.
    """
    if not 0.0 < x < math.inf:
        raise NoMoments
    # With the cut slightly beyond x, a single jump decides and the rest has small losses.
    terms = divide(curve, _BEYOND * x, log_delta - _DEPTH)
    # Depths count from a mass of 1, and the relevant level is _DEPTH below delta.
    depth = _DEPTH - log_delta
    inverted: list[Inverted] = []
    tails: list[tuple[float, float]] = []
    for term, log_mass in terms.counting:
        check_deadline()
        found = chernoff(term, depth)
        # Terms that hardly reach x are not inverted, because their bound is small relative to
        # delta.
        if found.reach < x:
            tails.append((found.tilt, term.spectrum(Contour(found.tilt, 0.0, 1)).log_moment))
        else:
            slope = max(chernoff(term, -log_delta, found).tilt, _STEEPEST / x)
            # Too little smoothing needs too many points, and too much cannot be undone.
            std = min(max(smoothing(error, slope), least_std), _MOST_STD)
            inverted.append(_invert(term, x, depth, std, log_mass))
    return Sum(inverted, tails, terms.log_rest)


def _invert(term: Term, x: float, depth: float, std: float, log_mass: float) -> Inverted:
    """Return the profile of one term, smoothed if necessary."""
    try:
        # Unsmoothed first: if the moments decay fast, few points suffice.
        return invert_moments(term, x, depth, _CHEAP_POINTS, log_mass, False)
    except NoMoments:
        smooth = term.smoothed(std)
        return Smoothed(invert_moments(smooth, x, depth, _MAX_POINTS, log_mass, False), std)


def _start(curve: Curve, log_delta: float) -> tuple[float, float]:
    """Return an approximate upper bound on the epsilon of e^log_delta, and the slope there."""
    found = chernoff(curve.moments(), -log_delta)
    # Rough moments may give an infinite reach, but a cut needs a finite number.
    x, slope = min(found.reach, 1e6), found.tilt
    for _ in range(_STEPS):
        check_deadline()
        terms = divide(curve, _BEYOND * x, log_delta - _DEPTH)
        # Terms rarer than delta do not affect where delta is reached.
        tails = [chernoff(t, -log_delta) for t, log_mass in terms.counting if log_mass > log_delta]
        # The farthest tail decides, and the flattest one requires the most accuracy.
        reach = max(_sharper(tail) for tail in tails)
        slope = min(tail.tilt for tail in tails)
        if not 0.0 < reach < 0.95 * x:
            break
        x = reach
    return x, slope


def _sharper(tail: Chernoff) -> float:
    """Return the epsilon from Chernoff's bound with its factor, as in ``inversion.at_most``."""
    t = tail.tilt
    return tail.reach - math.log1p(t) / t - math.log1p(1.0 / t)


def epsilon_interval(
    curve: Curve, delta: float, tolerance: float, spare: float = 0.0
) -> tuple[Down, Up]:
    """Return certified (low, high) of the epsilon at a delta: see ``inversion.epsilon_interval``.

    ``spare`` bounds the difference between the wanted profile and that of the curve.

    Raises:
        NoMoments: the method does not reach this curve.
    """
    run, slack, reach = trim(curve, _SHARE * delta)
    # Terms are evaluated at large epsilons, where mass moved within Q is not bounded.
    if reach < math.inf:
        run, slack = curve, 0.0
    if not is_composed(run):
        raise NoMoments
    log_delta = math.log(delta)

    def near(x: float, slope: float) -> Inverted:
        # An error of epsilon is an error of log delta divided by the slope; other errors get the
        # rest.
        error = 0.3 * tolerance * slope
        return invert(run, x, log_delta, error, 0.3 * tolerance)

    start = _start(run, log_delta)
    return close_in(near, start, _LEAST_SLOPE, delta, tolerance, slack + spare)


def delta_interval(curve: Curve, epsilon: float, tolerance: float) -> tuple[Down, Up]:
    """Return certified (low, high) of the profile at an epsilon above 0.

    Raises:
        NoMoments: the method does not reach this curve.
    """
    if not is_composed(curve) or not epsilon > 0.0:
        raise NoMoments
    # The required depth depends on delta, which is the unknown. Iterate until both agree.
    guess, log_delta = 0.0, -1.0
    for _ in range(_STEPS):
        check_deadline()
        terms = divide(curve, _BEYOND * epsilon, log_delta - _DEPTH)
        found = [(chernoff(term, -log_delta), log_mass) for term, log_mass in terms.counting]
        # The smaller of Chernoff's bound and the whole mass of the term.
        tops = [min(f.here.value - f.tilt * epsilon, log_mass) for f, log_mass in found]
        guess = min(max(tops), -0.1)
        # Within a fifth of the assumed depth another division would give the same.
        if guess > 1.2 * log_delta - 1.0:
            break
        log_delta = guess
    low, high = invert(curve, epsilon, guess, tolerance).bounds(np.array([epsilon]))
    return Down(float(low[0])), min(Up(1.0), Up(float(high[0])))
