"""Tests of recorded cohorts: independent draws, each unit with one probability.

The number of units is usually not recorded, so the tests ask whether any one population fits. An
answer of ``excluded`` is wrong with at most a stated probability, for every population. The tests
are:

- Ends. The smallest round, the largest round and the sum of all rounds lie within exact ends of
  their binomial laws. The sum over T rounds of n units is Bin(n T, q). Tails are monotone in the
  population: if a population is too small for the largest round, every smaller one is too.
- All rounds of one size s >= 1. P(all T are s) <= g^(T-1) P(the first is s), where g is the largest
  probability of s over all populations.
- One size s_v for each value v of a quantity that was fixed before the draw, in c_v rounds.
  P <= product of g(s_v)^(c_v - 1), by the same argument.
- Most rounds within w of one round, of size s.
  P(k or more of T are) <= T max over s of P(Bin(T - 1, g) >= k - 1), because any round may be that
  one. Here g is the largest probability, over all populations, that a cohort lies within w of s.
  This probability rises with the population n while s - w - 1 is likelier than s + w, and falls
  after that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .binomial import log_below, log_mass, log_tail

Number = TypeVar("Number", int, float)
FALSE_DOUBT = 1e-9
"""Probability that the cohorts of a whole record are doubted although their sampling drew them."""

MOST = 2**50
"""Populations above this size are not searched; the tests then give no answer."""


def excluded(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None = None
) -> str:
    """Return why no population fits cohorts of these sizes; empty if one may fit.

    Args:
        sizes: cohort size -> number of rounds.
        probability: q, of every unit in every round.
        chance: largest probability of an answer although a population fits; above 0.
        population: number of units; None if it is not known.
    """
    # Half of the chance goes to cohorts that are too similar, half to the ends of the laws.
    alike = too_alike(sizes, probability, chance / 2.0, population)
    return alike or improbable(sizes, probability, chance / 2.0, population)


def improbable(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None = None
) -> str:
    """Return why no population fits cohorts as small or as large as these; empty if one may fit.

    The test also holds for the rounds of ``RandomAllocation``. Each round is binomial. By Hoeffding
    (1956) a sum of independent indicators ends within the binomial law of their mean probability.

    The arguments are those of ``excluded``.
    """
    rounds, smallest, largest = sum(sizes.values()), min(sizes), max(sizes)
    total = sum(size * count for size, count in sizes.items())
    # Above this limit binomial ends are not certified, so the test gives no answer.
    if total >= MOST or probability < 1e-100:
        return ""
    # Four tests share the chance: smallest round, largest round, and both ends of the sum.
    each, whole = math.log(chance / (4.0 * rounds)), math.log(chance / 4.0)
    if _ExtremesTest(rounds, smallest, largest, total, probability, each, whole).allow(population):
        return ""
    whom = "every population" if population is None else f"{population}"
    return (
        f"{smallest} to {largest} participants, {total} in all of {rounds}, which is "
        f"improbable for probability {probability:g} and {whom}"
    )


@dataclass(frozen=True)
class _ExtremesTest:
    """Test of the smallest round, the largest round and the sum.

    ``each`` and ``whole`` are log-probability limits for one round and for the sum.
    """

    rounds: int
    smallest: int
    largest: int
    total: int
    probability: float
    each: float
    whole: float

    def allow(self, population: int | None) -> bool:
        """Return whether the population fits, or any population if it is not known."""
        if population is not None:
            return not (self.too_small(population) or self.too_large(population))
        # "Too small" is monotone. So only the first population that is not too small needs a test.
        least = _first(lambda n: not self.too_small(n), self.largest)
        return least is None or not self.too_large(least)

    def too_small(self, n: int) -> bool:
        """Return whether a population is too small."""
        return (
            n < self.largest
            or _at_least(n, self.probability, self.largest) < self.each
            or _at_least(n * self.rounds, self.probability, self.total) < self.whole
        )

    def too_large(self, n: int) -> bool:
        """Return whether a population is too large."""
        return (
            _at_most(n, self.probability, self.smallest) < self.each
            or _at_most(n * self.rounds, self.probability, self.total) < self.whole
        )


_WIDTHS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Distances from one cohort within which other cohorts count as similar."""


def too_alike(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None = None
) -> str:
    """Return why cohorts are too similar for independent draws; empty if they are not.

    The arguments are those of ``excluded``.
    """
    # Draws with probability 1 may all have the same size. Larger sizes are not searched.
    if probability == 1.0 or max(sizes) >= MOST:
        return ""
    rounds = sum(sizes.values())
    # Half goes to rounds of one size, the rest to every width and every round in the middle.
    each = chance / (2.0 * len(_WIDTHS) * rounds)
    # The union bound allows any round as the middle. Testing fewer is valid, and these two show the
    # most.
    middles = {max(sizes, key=lambda size: sizes[size]), _median(sizes)}
    for width in _WIDTHS:
        for middle in sorted(middles):
            low, high = middle - width, middle + width
            near = sum(count for size, count in sizes.items() if low <= size <= high)
            if near < 2:
                continue
            share = _most_within(max(low, 0), high, probability, population)
            limit = math.log(chance / 2.0 if width == 0 and near == rounds else each)
            if 0.0 < share < 1.0 and _at_least(rounds - 1, share, near - 1) < limit:
                listed = f"{middle}" if low == high else f"{max(low, 0)} to {high}"
                return (
                    f"{listed} participants in {near} of {rounds}, which is improbable for "
                    "independent draws"
                )
    return ""


def goes_with(rounds: Mapping[tuple[int, float], int], chance: float) -> bool:
    """Return whether a quantity fixed before the draw is associated with the cohort sizes.

    Rounds are split at the median of the sizes and at the median of the fixed quantity. Suppose
    cohorts have one law and rounds are independent. Among the n rounds in the upper half of one
    quantity, the number in the upper half of the other is hypergeometric, with share p of all
    rounds. For x > p it is at least n x with probability at most e^(-n KL(x, p)) (Chvatal, 1979).

    Args:
        rounds: (cohort size, fixed quantity) -> number of rounds.
        chance: largest probability of a wrong answer; above 0.
    """
    sizes, settled = Counter[float](), Counter[float]()
    for (size, value), count in rounds.items():
        sizes[size] += count
        settled[value] += count
    large, more = _upper_half(sizes), _upper_half(settled)
    many, half = (
        sum(one[key] for key in upper) for one, upper in ((sizes, large), (settled, more))
    )
    total, both = sizes.total(), 0
    for (size, value), count in rounds.items():
        both += count * (size in large and value in more)
    limit = math.log(2.0 / chance)
    # Large values occur with large sizes, or with small ones.
    return any(
        _apart(met / half, share) * half > limit
        for met, share in ((both, many / total), (half - both, 1.0 - many / total))
        if half and 0.0 < share < met / half
    )


def told_by(
    rounds: Mapping[tuple[int, float], int],
    chance: float,
    probability: float | None = None,
    population: int | None = None,
) -> bool:
    """Return whether a quantity fixed before the draw is associated with the sizes or decides them.

    Args:
        rounds: (cohort size, fixed quantity) -> number of rounds.
        chance: largest probability of a wrong answer; above 0.
        probability: of every unit in every round, drawn independently; None if draws are not
            independent.
        population: number of units, if it is known.
    """
    if goes_with(rounds, chance / 2.0):
        return True
    return probability is not None and _decides(rounds, probability, chance / 2.0, population)


def _decides(
    rounds: Mapping[tuple[int, float], int],
    probability: float,
    chance: float,
    population: int | None,
) -> bool:
    """Return whether each value has only one size, although draws do not depend on the value.

    Given the size of the first round of a value, each other round has that size with probability at
    most g.
    """
    # No answer: one value only, a value with two sizes, certain draws, or cohorts above the limit.
    values, largest = {value for _, value in rounds}, max(size for size, _ in rounds)
    if len(values) < 2 or len(rounds) > len(values) or probability >= 1.0 or largest >= MOST:
        return False
    again = Counter[int]()
    for (size, _), count in rounds.items():
        again[size] += count - 1
    # An impossible size has probability 0, whose logarithm is not finite.
    shares = {
        size: max(_most_within(size, size, probability, population), math.ulp(0.0))
        for size in again
    }
    limit = sum(count * math.log(shares[size]) for size, count in again.items() if count)
    return limit < math.log(chance)


def _upper_half(counts: Mapping[float, int]) -> set[float]:
    """Return the values above the median, else only the largest; the empty set if all are equal."""
    values, middle = sorted(counts), _median(counts)
    return {value for value in values[1:] if value > middle} or set(values[1:][-1:])


def _apart(x: float, p: float) -> float:
    """Return the Kullback-Leibler divergence of two Bernoulli laws, 0 < p < x <= 1."""
    rest = (1.0 - x) * math.log((1.0 - x) / (1.0 - p)) if x < 1.0 else 0.0
    return x * math.log(x / p) + rest


def _median(sizes: Mapping[Number, int]) -> Number:
    left = sum(sizes.values()) / 2.0
    for size in sorted(sizes):
        left -= sizes[size]
        if left <= 0.0:
            return size
    raise AssertionError(left)


def _most_within(low: int, high: int, probability: float, population: int | None) -> float:
    """Return an upper bound on P(low <= Bin(n, q) <= high), for the known n or for all n."""
    if population is not None:
        return _within(population, low, high, probability)
    # A draw from an empty population has size 0 with probability 1.
    if low == 0:
        return 1.0
    # P_(n+1) - P_n = q (P_n(low - 1) - P_n(high)) changes its sign once.
    peak = _first(lambda n: not _rises(n, low, high, probability), high)
    if peak is None or 8.0 * _blur(peak, high, probability) ** 2 * high > _FLAT:
        return 1.0
    most = max(_within(n, low, high, probability) for n in (max(high, peak - 1), peak, peak + 1))
    # If masses are known to a share e, the peak is known to 2 e n populations. Over this range, a
    # window of masses that are equal up to a share e changes by a share of at most 4 e^2 n q.
    return min(1.0, most * (1.0 + _FLAT))


_FLAT = 1e-3
"""Relative amount of probability that a slightly wrong peak may miss."""


def _blur(n: int, size: int, probability: float) -> float:
    low, high = log_mass(n, probability, size)
    return high - low


def _rises(n: int, low: int, high: int, probability: float) -> bool:
    return log_mass(n, probability, low - 1)[1] > log_mass(n, probability, high)[0]


def _within(n: int, low: int, high: int, probability: float) -> float:
    sizes = range(low, min(high, n) + 1)
    return math.fsum(math.exp(log_mass(n, probability, size)[1]) for size in sizes)


def _at_least(trials: int, probability: float, successes: int) -> float:
    """Return an upper bound on log P(number >= successes)."""
    return log_tail(trials, probability, successes)[1] if successes > 0 else 0.0


def _at_most(trials: int, probability: float, successes: int) -> float:
    """Return an upper bound on log P(number <= successes)."""
    return log_below(trials, probability, successes + 1)[1] if successes < trials else 0.0


def _first(fits: Callable[[int], bool], start: int) -> int | None:
    """Return a number that fits while the one before does not; None if none up to MOST fits."""
    if fits(start):
        return start
    step = 1
    while not fits(start + step):
        step *= 2
        if start + step > MOST:
            return None
    # The last doubling failed at half of the step, so the answer lies between.
    below, above = start + step // 2, start + step
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if fits(middle) else (middle, above)
    return above
