"""Certified ends of binomial probabilities, far into their tails.

A tail is its largest term times a sum of products of falling ratios. The sum is cut, and what is
cut off is below a geometric series. Everything is a logarithm, so nothing underflows. An interval
is (lower, upper); both ends carry a bound on their rounding.

A whole law (``law``) needs no logarithms: its terms are products of ratios, in decimals of many
digits, outwards from the largest, and their sum is 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from scipy.special import gammaln

from ..loss import Side
from ..loss.rounding import UNIT

Interval = tuple[float, float]

_TINY = 1e-300
_MAX_TERMS = 1 << 20
_DIGITS = Context(prec=40, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Of a law's terms: after 1e6 of them still 33 are right."""
RARE = 1e-30
"""Numbers rarer than this together are moved to the end of a law, on the safe side."""
_MOST_ATOMS = 1024
_MOST_VARIANCE = 2.0**24
"""From here on a law is two atoms: they are less than a per mille of their place apart."""
NEVER: Interval = (-math.inf, -math.inf)
ALWAYS: Interval = (0.0, 0.0)


def add(*terms: Interval) -> Interval:
    """Return the sum of intervals, widened by its rounding."""
    low, high = (math.fsum(ends) for ends in zip(*terms, strict=True))
    return widened((low, high), 4 * UNIT)


def widened(interval: Interval, relative: float) -> Interval:
    """Return the interval with its ends moved outwards by a relative amount."""
    low, high = interval
    return low - relative * abs(low), high + relative * abs(high) if high > -math.inf else high


def log_share(part: int, whole: int) -> Interval:
    """Return log(part / whole)."""
    return widened((math.log(part / whole),) * 2, 8 * UNIT) if part < whole else ALWAYS


def log_mass(trials: int, probability: float, successes: int) -> Interval:
    """Return log P(Bin(trials, probability) = successes), 0 <= successes <= trials."""
    if probability == 1.0:
        return ALWAYS if successes == trials else NEVER
    failures = trials - successes
    terms = (
        float(gammaln(trials + 1.0)),
        -float(gammaln(successes + 1.0)),
        -float(gammaln(failures + 1.0)),
        successes * math.log(probability),
        failures * math.log1p(-probability),
    )
    # Large terms cancel in the sum: what is left is their rounding, not its own.
    error = 16 * UNIT * math.fsum(map(abs, terms)) + 16 * UNIT
    total = math.fsum(terms)
    return total - error, min(total + error, 0.0)


def log_tail(trials: int, probability: float, successes: int) -> Interval:
    """Return log P(Bin(trials, probability) >= successes), 1 <= successes.

    Above the mean it is the first term times a falling series; below, one minus the lower tail.
    """
    # Asked for more than there are: common where a cohort cannot be filled.
    if successes > trials:
        return NEVER
    if probability == 1.0:
        return ALWAYS
    if successes > (trials + 1) * probability:
        odds = probability / (1.0 - probability)
        rest = _log_series(trials - successes, successes, odds)
        low, high = add(log_mass(trials, probability, successes), rest)
        # A probability is at most 1.
        return low, min(high, 0.0)
    return complement(log_below(trials, probability, successes))


def log_below(trials: int, probability: float, successes: int) -> Interval:
    """Return log P(Bin(trials, probability) < successes), 1 <= successes <= trials."""
    if probability == 1.0:
        return NEVER
    if successes > (trials + 1) * probability:
        return complement(log_tail(trials, probability, successes))
    rest = _log_series(
        successes - 1, trials - successes + 1, 1.0 / (probability / (1.0 - probability))
    )
    low, high = add(log_mass(trials, probability, successes - 1), rest)
    return low, min(high, 0.0)


def complement(log_probability: Interval) -> Interval:
    """Return log(1 - p) of log p."""
    low = math.exp(log_probability[0]) * (1.0 - 8 * UNIT)
    # exp may have underflowed to 0, which is no upper end.
    high = math.exp(log_probability[1]) * (1.0 + 8 * UNIT) + _TINY
    least = math.log1p(-high) if high < 1.0 else -math.inf
    return widened((least, math.log1p(-low)), 8 * UNIT)


def _log_series(many: int, few: int, odds: float) -> Interval:
    """Return log of 1 + sum over j of the products of the first j ratios.

    Ratio i is (many - i + 1) / (few + i) * odds: it falls with i and reaches 0 after ``many``.
    """
    # Enough terms for the series to die out; what is cut off is bounded below.
    terms = min(many, _MAX_TERMS, 64 + 16 * math.isqrt(few))
    if terms == 0:
        return ALWAYS
    # One ratio more than is summed: it bounds what is cut off.
    steps = np.arange(1.0, terms + 2.0)
    ratios = (many - steps + 1.0) / (few + steps) * odds
    products = np.cumprod(ratios[:-1])
    total = 1.0 + float(np.sum(products))
    following = float(ratios[-1])
    # While ratios are above 1 no geometric series bounds the rest.
    cut = float(products[-1]) * following / (1.0 - following) if following < 1.0 else math.inf
    error = 16 * UNIT * (terms + 4)
    return math.log(total * (1 - error)), math.log((total + cut) * (1 + error))


Law = tuple[tuple[float, int], ...]
"""(probability, number) pairs, numbers increasing."""


@functools.lru_cache(maxsize=256)
def law(trials: int, probability: float, side: Side) -> Law:
    """Return a law above (UP) or below (DOWN) Bin(trials, probability), in the usual order.

    One law lies above another if every P(number >= s) does. The probabilities are the correctly
    rounded ones of a law that adds up to 1 and does so:

    - as few numbers as do not count (``RARE``) are left out at either end, and stand at the end
      to which the side moves them: ``RARE`` in all, the rest of it taken from the largest term;
    - of more than ``_MOST_ATOMS`` numbers neighbours are put together at their end;
    - of a very wide law nothing is left but the end of its middle (Bernstein's inequality).

    Both sides are the same, and the law itself, where nothing is left out.
    """
    if probability == 1.0:
        return ((1.0, trials),)
    up = side is Side.UP
    first, weights = _terms(trials, probability, up)
    last = first + len(weights) - 1
    if len(weights) > _MOST_ATOMS:
        found = _grouped(first, weights, up)
    else:
        found = [(float(weight), first + at) for at, weight in enumerate(weights)]
    # What was left out stands where it does most harm.
    if up and last < trials:
        found.append((RARE, trials))
    # From below it stands where it shows least.
    if not up and first > 0:
        found.insert(0, (RARE, 0))
    return tuple(atom for atom in found if atom[0] > 0.0)


def _terms(trials: int, probability: float, up: bool) -> tuple[int, list[Decimal]]:
    """Return the first number that counts, and the probabilities from there on."""
    variance = trials * probability * (1.0 - probability)
    # Listing such a law takes longer than its few digits are worth.
    if variance > _MOST_VARIANCE:
        away = 12.5 * math.sqrt(variance)  # 2 exp(-t^2 / (2 (1 + t / (3 sd)))) < 1e-30 there
        # Exact: so many trials are more than doubles count one by one.
        place = trials * Fraction(probability) + Fraction(away if up else -away)
        at = math.ceil(place) if up else math.floor(place)
        return max(0, min(at, trials)), [Decimal(1)]
    mode = min(math.floor((trials + 1) * Fraction(probability)), trials)
    with localcontext(_DIGITS):
        chance = Decimal(probability)
        odds = chance / (1 - chance)
        above = list(_falling(trials - mode, mode, odds))
        below = list(_falling(mode, trials - mode, 1 / odds))
        total = 1 + sum(above) + sum(below)
        weights = [*reversed(below), Decimal(1), *above]
        return mode - len(below), [weight / total for weight in weights]


def _falling(many: int, few: int, odds: Decimal) -> Iterator[Decimal]:
    """Yield the terms after the largest, which is 1, until what follows is below ``RARE``.

    Ratio i is (many - i + 1) / (few + i) * odds, at most 1, and falls: what follows a term is below
    a geometric series.
    """
    term, rare = Decimal(1), Decimal(RARE) / 2
    for step in range(1, many + 1):
        ratio = Decimal(many - step + 1) / (few + step) * odds
        # The geometric series of all that follows is below what may be left out.
        if term * ratio < rare * (1 - ratio):
            return
        term *= ratio
        yield term


def _grouped(first: int, weights: list[Decimal], up: bool) -> list[tuple[float, int]]:
    """Return neighbours as one number each, the largest (UP) or smallest of them."""
    # Neighbours are alike, so that moving them to one end costs little.
    size = math.ceil(len(weights) / _MOST_ATOMS)
    groups = [weights[at : at + size] for at in range(0, len(weights), size)]
    starts = range(first, first + len(weights), size)
    with localcontext(_DIGITS):
        return [
            (float(sum(group)), start + len(group) - 1 if up else start)
            for start, group in zip(starts, groups, strict=True)
        ]
