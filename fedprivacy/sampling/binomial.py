"""Certified bounds on binomial probabilities, far into the tails.

A tail is its largest term times a sum of products of falling ratios. The sum is truncated, and a
geometric series bounds the remainder. All values are logarithms, so no value underflows. An
interval is (lower, upper). Both ends include a bound on their rounding error.

A whole law (``law``) needs no logarithms. Its terms are products of ratios, in decimals of many
digits, outwards from the largest term. Their sum is 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from scipy.special import gammaln

from ..loss import Side
from ..rounding import UNIT, rounded_down, rounded_up

Interval = tuple[float, float]

_TINY = 1e-300
_MAX_TERMS = 1 << 20
DIGITS = Context(prec=40, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Decimal precision of the terms of a law: after 1e6 terms, 33 digits are still right."""
RARE = 1e-30
"""Numbers with at most this total probability are moved to the end of a law, on the safe side."""
_MOST_ATOMS = 1024
_MOST_VARIANCE = 2.0**24
"""Above this variance a law is reduced to two atoms, less than 0.1 % of their value apart."""
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
    # Large terms cancel in the sum, so the error is relative to the terms and not to the sum.
    error = 16 * UNIT * math.fsum(map(abs, terms)) + 16 * UNIT
    total = math.fsum(terms)
    return total - error, min(total + error, 0.0)


def log_tail(trials: int, probability: float, successes: int) -> Interval:
    """Return log P(Bin(trials, probability) >= successes), 1 <= successes.

    Above the mean it is the first term times a falling series. Below the mean it is one minus the
    lower tail.
    """
    # More successes than trials: common if a cohort cannot be filled.
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
    """Return log(1 - p) from log p."""
    low = rounded_down(math.exp(log_probability[0]), 8 * UNIT)
    # exp may underflow to 0, which is not a valid upper end.
    high = rounded_up(math.exp(log_probability[1]), 8 * UNIT) + _TINY
    least = math.log1p(-high) if high < 1.0 else -math.inf
    return widened((least, math.log1p(-low)), 8 * UNIT)


def _log_series(many: int, few: int, odds: float) -> Interval:
    """Return log of 1 + sum over j of the products of the first j ratios.

    Ratio i is (many - i + 1) / (few + i) * odds: it falls with i and reaches 0 after ``many``.
    """
    # Enough terms for the series to die out. The remainder is bounded below.
    terms = min(many, _MAX_TERMS, 64 + 16 * math.isqrt(few))
    if terms == 0:
        return ALWAYS
    # One more ratio than is summed bounds the remainder.
    steps = np.arange(1.0, terms + 2.0)
    ratios = (many - steps + 1.0) / (few + steps) * odds
    products = np.cumprod(ratios[:-1])
    total = 1.0 + float(np.sum(products))
    following = float(ratios[-1])
    # While ratios are above 1, no geometric series bounds the rest.
    cut = float(products[-1]) * following / (1.0 - following) if following < 1.0 else math.inf
    error = 16 * UNIT * (terms + 4)
    return math.log(total * (1 - error)), math.log((total + cut) * (1 + error))


Law = tuple[tuple[float, int], ...]
"""(probability, number) pairs, with increasing numbers."""


@functools.lru_cache(maxsize=256)
def law(trials: int, probability: float, side: Side) -> Law:
    """Return a law above (UP) or below (DOWN) Bin(trials, probability), in the usual order.

    One law lies above another if P(number >= s) is at least as large for every s. The returned
    probabilities are correctly rounded from a law that sums to 1 and lies on the requested side.
    That law is built in three steps:

    - Negligible numbers at either end, with total probability at most ``RARE``, are left out. On
      the side of the rounding, the end of the law gets probability ``RARE``. The difference is
      taken from the largest term.
    - If more than ``_MOST_ATOMS`` numbers remain, neighbours are merged at one end of their group.
    - A very wide law is reduced to the end of its middle (Bernstein's inequality).

    If no number is left out, both sides equal the law itself.
    """
    if probability == 1.0:
        return ((1.0, trials),)
    return _law(_Binomial(trials, Fraction(probability)), side)


@functools.lru_cache(maxsize=256)
def hypergeometric_law(drawn: int, marked: int, population: int, side: Side) -> Law:
    """Return a law above (UP) or below (DOWN) the number of marked units in a draw; see ``law``.

    Args:
        drawn: number of units drawn without replacement, at most ``population``.
        marked: number of marked units, at most ``population``.
        population: number of units.
        side: direction of rounding.
    """
    if drawn == population:
        return ((1.0, marked),)
    return _law(_Hypergeometric(drawn, marked, population), side)


@dataclass(frozen=True)
class _Binomial:
    """Bin(trials, chance): its ends, its mode, and the ratios of neighbouring terms."""

    trials: int
    chance: Fraction

    @property
    def ends(self) -> tuple[int, int]:
        return 0, self.trials

    @property
    def mean(self) -> Fraction:
        return self.trials * self.chance

    @property
    def variance(self) -> float:
        return self.trials * float(self.chance) * (1.0 - float(self.chance))

    @property
    def mode(self) -> int:
        return min(math.floor((self.trials + 1) * self.chance), self.trials)

    def ratio(self, number: int) -> Decimal:
        """Return P(number) / P(number - 1)."""
        return Decimal(self.trials - number + 1) / number * self._odds

    @functools.cached_property
    def _odds(self) -> Decimal:
        return Decimal(self.chance.numerator) / (self.chance.denominator - self.chance.numerator)


@dataclass(frozen=True)
class _Hypergeometric:
    """The number of marked units in a draw; moments below those of the binomial law (Hoeffding)."""

    drawn: int
    marked: int
    population: int

    @property
    def ends(self) -> tuple[int, int]:
        return max(0, self.drawn + self.marked - self.population), min(self.drawn, self.marked)

    @property
    def mean(self) -> Fraction:
        return Fraction(self.drawn * self.marked, self.population)

    @property
    def variance(self) -> float:
        """The variance of the binomial law, which is larger."""
        share = self.drawn / self.population
        return self.marked * share * (1.0 - share)

    @property
    def mode(self) -> int:
        return (self.drawn + 1) * (self.marked + 1) // (self.population + 2)

    def ratio(self, number: int) -> Decimal:
        """Return P(number) / P(number - 1)."""
        above = (self.marked - number + 1) * (self.drawn - number + 1)
        return Decimal(above) / (number * (self.population - self.marked - self.drawn + number))


def _law(counts: _Binomial | _Hypergeometric, side: Side) -> Law:
    """Return the law rounded to a side, see ``law``."""
    up = side is Side.UP
    first, weights = _terms(counts, up)
    last = first + len(weights) - 1
    if len(weights) > _MOST_ATOMS:
        found = _grouped(first, weights, up)
    else:
        found = [(float(weight), first + at) for at, weight in enumerate(weights)]
    least, most = counts.ends
    # The omitted mass moves to the largest number, which raises the law.
    if up and last < most:
        found.append((RARE, most))
    # For a bound from below, the omitted mass moves to the smallest number.
    if not up and first > least:
        found.insert(0, (RARE, least))
    return tuple(atom for atom in found if atom[0] > 0.0)


def listed(trials: int, probability: float) -> list[tuple[int, Decimal]]:
    """Return numbers of successes and their probabilities, of 40 digits.

    Numbers that are together rarer than ``RARE`` are left out. The variance must be moderate.
    """
    if probability == 1.0:
        return [(trials, Decimal(1))]
    first, weights = _terms(_Binomial(trials, Fraction(probability)), False)
    return list(enumerate(weights, start=first))


def _terms(counts: _Binomial | _Hypergeometric, up: bool) -> tuple[int, list[Decimal]]:
    """Return the first number that is kept, and the probabilities from it on."""
    least, most = counts.ends
    # Listing so wide a law takes too long for the digits that it gains.
    if counts.variance > _MOST_VARIANCE:
        # 2 exp(-t^2 / (2 (1 + t / (3 sd)))) < 1e-30 there.
        away = 12.5 * math.sqrt(counts.variance)
        # Exact arithmetic: with so many trials, doubles cannot represent every integer.
        place = counts.mean + Fraction(away if up else -away)
        at = math.ceil(place) if up else math.floor(place)
        return max(least, min(at, most)), [Decimal(1)]
    mode = counts.mode
    with localcontext(DIGITS):
        above = list(_falling(counts.ratio(at) for at in range(mode + 1, most + 1)))
        below = list(_falling(1 / counts.ratio(at) for at in range(mode, least, -1)))
        total = 1 + sum(above) + sum(below)
        weights = [*reversed(below), Decimal(1), *above]
        return mode - len(below), [weight / total for weight in weights]


def _falling(ratios: Iterable[Decimal]) -> Iterator[Decimal]:
    """Yield the terms after the largest, which is 1, until the remainder is below ``RARE``.

    The ratios of neighbouring terms are at most 1 and fall. So a geometric series bounds the
    remainder after a term.
    """
    term, rare = Decimal(1), Decimal(RARE) / 2
    for ratio in ratios:
        # The geometric series of the remainder is below the mass that may be omitted.
        if term * ratio < rare * (1 - ratio):
            return
        term *= ratio
        yield term


def _grouped(first: int, weights: list[Decimal], up: bool) -> list[tuple[float, int]]:
    """Return each group of neighbours as one number, the largest (UP) or smallest of the group."""
    # Neighbours are similar, so moving them to one end costs little.
    size = math.ceil(len(weights) / _MOST_ATOMS)
    groups = [weights[at : at + size] for at in range(0, len(weights), size)]
    starts = range(first, first + len(weights), size)
    with localcontext(DIGITS):
        return [
            (float(sum(group)), start + len(group) - 1 if up else start)
            for start, group in zip(starts, groups, strict=True)
        ]
