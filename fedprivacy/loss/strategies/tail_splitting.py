"""Runs in which a record rarely takes part: rounds are cut where their loss becomes large.

Such a loss is a body, the sum of very many tiny losses, and now and then a jump. No single tilt
suits both, so P's law is divided by the number of jumps. With A_0 + A_1 the moments of a round
below and above the cut,

    A^T = sum over j of C(T, j) A_0^{T-j} A_1^j,

each term has a tilt of its own, and the profile is the sum of theirs. See docs/theory/jumps.md.

Jumps that are rarer than delta by far are left out before: see ``trimming``.
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

from ...rounding import THOUSANDS, UNIT
from ..clock import tick
from ..curves.composed import Composed
from ..curves.curve import Curve
from ..curves.fold import Fold
from ..curves.gaussian import Gdp
from ..moments.contour import Array, Contour, NoMoments
from ..moments.gaussian_rules import GaussianPair
from ..moments.legendre import legendre
from ..moments.mixtures import log_sum
from ..moments.points import Points
from ..moments.spectrum import (
    Cumulants,
    Decay,
    Moments,
    Spectrum,
    power,
    power_cumulants,
    power_decay,
)
from ..moments.truncated_moments import Part, Piece
from .inversion import Chernoff, Inverted, chernoff, close_in, invert_moments
from .trimming import trim

_DEPTH = 12.0
"""What is left out is wanted below about exp(-12) = 6e-6 of the answer."""
_SHARE = 1e-5
"""By which share of delta the profile may be off through what is trimmed."""
_CHEAP_POINTS = 1024
"""Of a line, without smoothing."""
_MAX_POINTS = 1 << 16
MOST_TERMS = 128
_BEYOND = 1.1
"""Where the cut is, of the epsilon in question: nearer, jumps get common; farther, moments grow."""
_STEPS = 16
"""How often the epsilon and its cut are brought closer: each takes a twentieth or more off."""
_LEAST_SLOPE = 0.01
"""Log delta is taken to fall at least as fast: else a tolerance would ask for no accuracy."""
_STEEPEST = 2.0
"""Over x: what is smoothed falls from 1 within x, by e^2 or more."""
_MOST_STD = 0.4
"""Of smoothing: beyond, the polyline's hats are too wide to be solved for the middle one."""
_REACH = 60.0
"""Of the grid on which cuts are looked for, beyond all means."""
_HATS = 8
_SQRT_2PI = math.sqrt(2.0 * math.pi)
_FARTHEST = 1e6
"""How large means may be, in standard deviations."""


class Cut(NamedTuple):
    """One round's outcomes below the cut, and above, with P's mass there."""

    calm: Moments
    jumps: Part | None
    mass: float


@dataclass(frozen=True, eq=False)
class Term:
    """All outcomes of a run with given numbers of jumps.

    Args:
        parts: rounds without and with jumps, and how many of each.
        log_ways: log of the number of ways to choose the rounds that jump.
    """

    parts: tuple[tuple[Moments, int], ...]
    log_ways: float

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the moments, the errors of all parts carried through."""
        found = power([(part.spectrum(line), count) for part, count in self.parts])
        # Two logs are added: their sum's rounding is relative to every value.
        off = 4 * UNIT * (abs(self.log_ways) + abs(found.log_size))
        error = found.error + off * (np.abs(found.values) + found.error)
        return replace(found, log_size=found.log_size + self.log_ways, error=error)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the sums of the parts'."""
        found = power_cumulants([(part.cumulants(tilt), count) for part, count in self.parts])
        return found._replace(value=found.value + self.log_ways)

    def decay(self, tilt: float, heights: Array, fine: bool = False) -> Decay:
        """Return the product of the parts' bounds."""
        found = [(part.decay(tilt, heights, fine), count) for part, count in self.parts]
        log_atom, log_rest = power_decay(found)
        return Decay(log_atom + self.log_ways, log_rest + self.log_ways + THOUSANDS)

    def smoothed(self, std: float) -> Term:
        """Return the outcomes seen together with N(std, 1) against N(0, 1)."""
        # Smoothing is one more independent round, so all bounds on parts carry over.
        return Term((*self.parts, (Gdp(std), 1)), self.log_ways)


class Terms(NamedTuple):
    """The terms that count, each with the log of a bound on its mass, and on the others' mass."""

    counting: list[tuple[Term, float]]
    log_rest: float


@dataclass(frozen=True, eq=False)
class Sum:
    """A profile as a sum of terms' profiles.

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
        # The least normal number stands for what underflows: an upper end is never 0.
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
    """delta of a curve from that of its composition with N(std, 1) against N(0, 1).

    Composing raises delta, so the upper end stays. The smoothed profile is an average of delta at
    x - U, U being N(std^2/2, std^2). Delta is convex in e^x, so at most the polyline through upper
    ends at x + j gap for j != 0 and delta(x) itself at j = 0; solve for the latter.
    """

    inversion: Inverted
    std: float

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Return certified (low, high) of delta at each x."""
        shares, beyond = _hat_shares(self.std)
        steps = 2.0 * self.std * np.arange(-_HATS, _HATS + 1)
        points = np.add.outer(steps, x)
        # Delta falls, so that a point moved down by its rounding errs to the safe side.
        points -= 4 * UNIT * np.add.outer(np.abs(steps), np.abs(x))
        points[_HATS] = x
        low, high = self.inversion.bounds(points)
        # No delta exceeds 1, however poor the inversion is so far from its centre.
        others = shares[:, None] * np.minimum(high, 1.0)
        others[_HATS] = 0.0
        # Outside the nodes only delta <= 1 is known, so that their probability counts whole.
        around = others.sum(axis=0) + beyond
        least = (low[_HATS] * (1 - THOUSANDS) - around * (1 + THOUSANDS)) / (
            shares[_HATS] * (1 + THOUSANDS)
        )
        return np.maximum(least, 0.0), high[_HATS]

    def value_and_fall(self, x: float) -> tuple[float, float]:
        """Return the smoothed delta and minus its slope at x, errors and all."""
        return self.inversion.value_and_fall(x)


@functools.lru_cache(maxsize=64)
def _hat_shares(std: float) -> tuple[Array, float]:
    """Return (expected shares of the polyline's nodes, probability of the rest).

    The point is Y = -U; between the nodes j gap and (j + 1) gap the share of the right one is
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
    # Y has the mean -std^2/2: twice the larger tail bounds both.
    return shares, 2.0 * float(ndtr(0.5 * std - 2.0 * _HATS)) + 1e-50


def smoothing(tolerance: float, slope: float) -> float:
    """Return how much to smooth a delta like e^{-slope x} to move it by a relative tolerance."""
    # Smoothing shifts log delta in second order, by some (slope std)^2: hence the root.
    return math.sqrt(min(tolerance, 0.1) / 8.0) / slope


def cut_round(curve: Curve, loss: float) -> Cut:
    """Return a round's outcomes on either side of a loss above 0; all below where not understood.

    The outcomes may be divided anyhow: the cut need not be at that loss exactly.
    """
    try:
        pieces, atom = _everything(curve)
    except NoMoments:
        # Nothing to cut: the whole round is calm, and one term is all of the run.
        return Cut(curve, None, 0.0)
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
    # Nothing above the cut has mass: dividing would only add an empty term.
    if mass == 0.0:
        return Cut(curve, None, 0.0)
    return Cut(
        Part(tuple(calm), atom, missing=mass),
        Part(tuple(jumps), missing=1.0 - mass, rare=True),
        mass * (1.0 + THOUSANDS),
    )


def _everything(curve: Curve) -> tuple[list[Piece], float]:
    """Return all outcomes, and the mass at loss 0 beside them; Gaussian pairs only are cut.

    Raises:
        NoSpectrum: there are others.
    """
    part = curve.part if isinstance(curve, Fold) else None
    each = (
        part.pieces
        if part
        else [
            Piece(weight, pair) for weight, pair in curve.pairs() if isinstance(pair, GaussianPair)
        ]
    )
    pieces = [piece for piece in each if isinstance(piece, Piece)]
    # A part with other pieces stays whole: cutting half of it would lose their mass.
    if not pieces or len(pieces) < len(part.pieces if part else curve.pairs()):
        raise NoMoments
    return pieces, part.atom if part else 0.0


def uncut(curve: Curve) -> bool:
    """Return whether a round has finitely many losses: never cut, its moments are sums."""
    part = curve.lone_part()
    try:
        each = part.pieces if part else tuple(pair for _, pair in curve.pairs())
    except NoMoments:
        return False
    return all(isinstance(one, Points) for one in each)


def _crossings(piece: Piece, loss: float) -> tuple[float, float]:
    """Return (left, right): beyond them the loss is above a level; infinite if it is not.

    Raises:
        NoSpectrum: it is above the level everywhere, or the means are too far apart to look.
    """
    # Known to stay below: no grid is needed.
    if piece.most <= loss:
        return -math.inf, math.inf
    pair = piece.pair
    if not pair.reach < _FARTHEST:
        raise NoMoments
    means = [mean for _, mean in pair.p + pair.q]
    # Sixty deviations beyond all means no mass is left that a double can hold.
    low, high = max(min(means) - _REACH, piece.start), max(means) + _REACH
    y = np.linspace(low, max(high, low + 1.0), 1025)
    below = np.flatnonzero(_loss(pair, y) <= loss)
    if not len(below):
        raise NoMoments
    first, last = int(below[0]), int(below[-1])
    left, right = -math.inf, math.inf
    # A piece with a start of its own has nothing to its left.
    if first > 0 and piece.start == -math.inf:
        left = _bisect(pair, loss, float(y[first]), float(y[first - 1]))
    if last < len(y) - 1:
        right = _bisect(pair, loss, float(y[last]), float(y[last + 1]))
    return left, right


def _bisect(pair: GaussianPair, loss: float, below: float, above: float) -> float:
    """Return an outcome whose loss is at most a level, and hardly less."""
    # Fifty halvings of a grid's cell exhaust a double's bits.
    for _ in range(50):
        middle = 0.5 * (below + above)
        at_most = float(_loss(pair, np.array([middle]))[0]) <= loss
        below, above = (middle, above) if at_most else (below, middle)
    return below


def _loss(pair: GaussianPair, y: Array) -> Array:
    return np.asarray(log_sum(pair.p, y) - log_sum(pair.q, y))


def _largest(piece: Piece, stop: float) -> float:
    """Return an upper bound on a piece's loss up to ``stop``; inf where it may not rise.

    Its slope is the mean of the means given y under P less that under Q. So it rises where Q has
    one mean, not above any of P's; and, where it is above 0, if P and Q differ at two means only
    and P is heavier at the largest of all.
    """
    pair = piece.pair
    if not stop < math.inf:
        return math.inf
    single = len(pair.q) == 1 and all(mean >= pair.q[0][1] for _, mean in pair.p)
    largest = max(mean for _, mean in pair.p + pair.q)
    heavier = sum(w for w, m in pair.p if m == largest) > sum(w for w, m in pair.q if m == largest)
    if single or (piece.start > -math.inf and heavier):
        # The loss itself is rounded, so that the bound on it goes up.
        return max(float(_loss(pair, np.array([stop]))[0]), 0.0) * (1.0 + 1e-9) + THOUSANDS
    return math.inf


def divide(curve: Composed, loss: float, log_least: float) -> Terms:
    """Return a run's terms, cut at a loss; those with less mass than e^log_least are left out.

    More than J jumps in all have at most the mass m^{J+1} / (J+1)!, m being the expected number.

    Raises:
        NoSpectrum: too many terms count.
    """
    cuts = [(cut_round(part, loss), count) for part, count in curve.parts]
    expected = sum(cut.mass * count for cut, count in cuts)
    most, log_rest = _most_jumps(expected, curve.count, log_least)
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
    """Return the most jumps that count, and the log of a bound on the mass of more.

    Raises:
        NoSpectrum: too many count.
    """
    # Without jumps one term is the whole run, and log(0) has no place.
    if expected <= 0.0:
        return 0, -math.inf
    most = 0
    while (log_rest := _log_more(expected, most)) > log_least and most < rounds:
        most += 1
        if most > MOST_TERMS:
            raise NoMoments
    # All rounds jump at most: patterns up to there leave none out.
    return most, log_rest if most < rounds else -math.inf


def _log_more(expected: float, most: int) -> float:
    return (most + 1) * math.log(expected) - math.lgamma(most + 2.0) + 1e-9


def _patterns(counts: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield how often each part jumps, up to ``most`` times in all.

    Raises:
        NoSpectrum: there are too many such patterns.
    """
    jumping = sum(count > 0 for count in counts)
    # So many patterns have at most ``most`` jumps of ``jumping`` kinds: counted before made.
    if math.comb(most + jumping, jumping) > MOST_TERMS:
        raise NoMoments
    ranges = [range(min(count, most) + 1) for count in counts]
    return (jumps for jumps in itertools.product(*ranges) if sum(jumps) <= most)


def _term(cuts: Sequence[tuple[Cut, int]], jumps: Sequence[int]) -> tuple[Term, float]:
    """Return the term of a pattern of jumps, and the log of a bound on its mass."""
    parts: list[tuple[Moments, int]] = []
    log_ways = log_mass = 0.0
    for (cut, count), number in zip(cuts, jumps, strict=True):
        # Where every round jumps no calm one is left to be raised to a power.
        if count > number:
            parts.append((cut.calm, count - number))
        if cut.jumps is not None and number:
            parts.append((cut.jumps, number))
            ways = math.log(math.comb(count, number))
            log_ways += ways
            # Calm rounds have mass at most 1, so the jumps alone bound the term.
            log_mass += ways + number * math.log(cut.mass)
    return Term(tuple(parts), log_ways), log_mass + 1e-9


def invert(
    curve: Composed,
    x: float,
    log_delta: float,
    error: float,
    least_std: float = 0.0,
) -> Sum:
    """Return the profile near an epsilon above 0, cut a little beyond it.

    Args:
        curve: a run.
        x: an epsilon.
        log_delta: about the log of delta there.
        error: by about which share of delta each term may be off through smoothing.
        least_std: smoothing with less than this is not worth while.

    Raises:
        NoSpectrum: the method does not reach this run.
        LateError: the time is up.
    """
    if not 0.0 < x < math.inf:
        raise NoMoments
    # Cut a little beyond x: a single jump then decides, and what stays below is calm.
    terms = divide(curve, _BEYOND * x, log_delta - _DEPTH)
    # Depths count from a mass of 1, and what matters is _DEPTH below delta.
    depth = _DEPTH - log_delta
    inverted: list[Inverted] = []
    tails: list[tuple[float, float]] = []
    for term, log_mass in terms.counting:
        tick()
        found = chernoff(term, depth)
        # Terms that hardly reach x are not worth an inversion: their bound is small beside delta.
        if found.reach < x:
            tails.append((found.tilt, term.spectrum(Contour(found.tilt, 0.0, 1)).log_moment))
        else:
            slope = max(chernoff(term, -log_delta).tilt, _STEEPEST / x)
            # Too little smoothing needs too many points, too much cannot be undone.
            std = min(max(smoothing(error, slope), least_std), _MOST_STD)
            inverted.append(_invert(term, x, depth, std, log_mass))
    return Sum(inverted, tails, terms.log_rest)


def _invert(term: Term, x: float, depth: float, std: float, log_mass: float) -> Inverted:
    """Return one term's profile, smoothed where it must be."""
    try:
        # Unsmoothed first: where moments fall off by themselves few points do.
        return invert_moments(term, x, depth, _CHEAP_POINTS, log_mass, False)
    except NoMoments:
        smooth = term.smoothed(std)
        return Smoothed(invert_moments(smooth, x, depth, _MAX_POINTS, log_mass, False), std)


def _start(curve: Composed, log_delta: float) -> tuple[float, float]:
    """Return about where delta is e^log_delta, from above, and how fast it falls there."""
    found = chernoff(curve, -log_delta)
    # Rough moments may give an infinite reach, and a cut needs a number.
    x, slope = min(found.reach, 1e6), found.tilt
    for _ in range(_STEPS):
        tick()
        terms = divide(curve, _BEYOND * x, log_delta - _DEPTH)
        # Terms rarer than delta cannot decide where it is reached.
        tails = [chernoff(t, -log_delta) for t, log_mass in terms.counting if log_mass > log_delta]
        # The farthest tail decides; the flattest one asks for most accuracy.
        reach = max(_sharper(tail) for tail in tails)
        slope = min(tail.tilt for tail in tails)
        if not 0.0 < reach < 0.95 * x:
            break
        x = reach
    return x, slope


def _sharper(tail: Chernoff) -> float:
    """Return where Chernoff's bound with its factor, as in ``inversion.at_most``, says delta is."""
    t = tail.tilt
    return tail.reach - math.log1p(t) / t - math.log1p(1.0 / t)


def epsilon_interval(
    curve: Curve, delta: float, tolerance: float, spare: float = 0.0
) -> tuple[float, float]:
    """Return certified (low, high) of the epsilon at a delta: see ``inversion.epsilon_interval``.

    ``spare``: by how much the wanted profile may differ from the curve's.

    Raises:
        NoSpectrum: the method does not reach this curve.
    """
    run, slack, reach = trim(curve, _SHARE * delta)
    # Terms are looked at far out, where what is moved within Q is not counted.
    if reach < math.inf:
        run, slack = curve, 0.0
    if not isinstance(run, Composed):
        raise NoMoments
    composed, log_delta = run, math.log(delta)

    def near(x: float, slope: float) -> Inverted:
        # An error of epsilon is one of log delta over the slope; other errors get the rest.
        error = 0.3 * tolerance * slope
        return invert(composed, x, log_delta, error, 0.3 * tolerance)

    start = _start(composed, log_delta)
    return close_in(near, start, _LEAST_SLOPE, delta, tolerance, slack + spare)


def delta_interval(curve: Curve, epsilon: float, tolerance: float) -> tuple[float, float]:
    """Return certified (low, high) of the profile at an epsilon above 0.

    Raises:
        NoSpectrum: the method does not reach this curve.
    """
    if not isinstance(curve, Composed) or not epsilon > 0.0:
        raise NoMoments
    # How deep to look depends on delta, which is what is asked: guess until both agree.
    guess, log_delta = 0.0, -1.0
    for _ in range(_STEPS):
        tick()
        terms = divide(curve, _BEYOND * epsilon, log_delta - _DEPTH)
        found = [(chernoff(term, -log_delta), log_mass) for term, log_mass in terms.counting]
        # Chernoff's bound or the whole mass of the term, whichever is less.
        tops = [min(f.here.value - f.tilt * epsilon, log_mass) for f, log_mass in found]
        guess = min(max(tops), -0.1)
        # Within a fifth of the depth assumed: another division would say the same.
        if guess > 1.2 * log_delta - 1.0:
            break
        log_delta = guess
    low, high = invert(curve, epsilon, guess, tolerance).bounds(np.array([epsilon]))
    return float(low[0]), min(1.0, float(high[0]))
