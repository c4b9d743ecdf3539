"""Whether recorded cohorts can have been drawn independently, each unit with one probability.

Nobody records how many units there are, so the question is whether any one population fits. An
answer of ``excluded`` is wrong with at most a stated probability, whatever the population is:

- the smallest and the largest round, and all rounds together, lie within the exact ends of their
  binomial laws (the sum over T rounds of n units is Bin(n T, q)); a population that is too small
  for the largest of them is too small at every smaller size, and so on, as tails are monotone;
- rounds that are all of one size s >= 1: P(all T are s) <= g^(T-1) P(the first is s), where g is
  the largest probability of s over all populations;
- rounds that are all of one size s_v for each value v of something settled before, c_v of them:
  P <= product of g(s_v)^(c_v - 1), by the same argument;
- rounds most of which lie within w of one of them, of size s: P(k or more of T do) <= T max over s
  of P(Bin(T - 1, g) >= k - 1), as any round may be the one, where g is the largest probability
  that a cohort lies within w of s over all populations. It rises with the population n as long as
  s - w - 1 is likelier than s + w, and falls from there on.
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
"""Probability that a whole record's cohorts are doubted though their sampling drew them."""

MOST = 2**50
"""Populations beyond this are not searched: then nothing is said."""


def excluded(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None = None
) -> str:
    """Return why no population made cohorts of these sizes; empty where one may have.

    Args:
        sizes: cohort size -> in how many rounds.
        probability: q, of every unit in every round.
        chance: most probability of an answer though one did; above 0.
        population: how many units there are; None where that is not known.
    """
    # Half of the chance for cohorts that are too much alike, the rest for the ends of the laws.
    alike = too_alike(sizes, probability, chance / 2.0, population)
    return alike or improbable(sizes, probability, chance / 2.0, population)


def improbable(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None = None
) -> str:
    """Return why no population made cohorts so small, or large; empty where one may have.

    It holds for the rounds of ``RandomAllocation``, too: each is binomial, and by Hoeffding (1956)
    a sum of independent indicators ends within the binomial law of their mean probability.

    Arguments are those of ``excluded``.
    """
    rounds, smallest, largest = sum(sizes.values()), min(sizes), max(sizes)
    total = sum(size * count for size, count in sizes.items())
    # Beyond, binomial ends are not certified: then nothing is said.
    if total >= MOST or probability < 1e-100:
        return ""
    # Four tests share it: smallest, largest, and the sum at both ends.
    each, whole = math.log(chance / (4.0 * rounds)), math.log(chance / 4.0)
    if _Ends(rounds, smallest, largest, total, probability, each, whole).allow(population):
        return ""
    whom = "any one population" if population is None else f"{population}"
    return (
        f"{smallest} to {largest} participants, {total} in all of {rounds}, which nobody draws "
        f"with probability {probability:g} from {whom}"
    )


@dataclass(frozen=True)
class _Ends:
    """The ends of rounds' sizes and their sum; logs of the chance that each or the sum may have."""

    rounds: int
    smallest: int
    largest: int
    total: int
    probability: float
    each: float
    whole: float

    def allow(self, population: int | None) -> bool:
        """Return whether a population fits, or any where it is not known."""
        if population is not None:
            return not (self.too_small(population) or self.too_large(population))
        # Too small is monotone: above the first that is not, only too large is left to ask.
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
"""How far cohorts may be from one of them and count as alike."""


def too_alike(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None = None
) -> str:
    """Return why cohorts are too much alike to be drawn independently; empty where they are not.

    Arguments are those of ``excluded``.
    """
    # Draws that are certain, or of nobody, may well be all alike.
    if probability == 1.0 or max(sizes) >= MOST:
        return ""
    rounds = sum(sizes.values())
    # Half for rounds of one size, the rest for every width and every round in the middle.
    each = chance / (2.0 * len(_WIDTHS) * rounds)
    # Fewer middles than rounds may be asked for; these two show the most.
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
                told = f"{middle}" if low == high else f"{max(low, 0)} to {high}"
                return f"{told} participants, {near} times of {rounds}, where draws are independent"
    return ""


def goes_with(rounds: Mapping[tuple[int, float], int], chance: float) -> bool:
    """Return whether what was settled before cohorts were drawn goes with their sizes all the same.

    Rounds are split at the median of either. Where cohorts are drawn alike, each round apart, how
    many of the n rounds with more of the one have more of the other, too, is hypergeometric, with
    share p of all rounds: at least n x with probability e^(-n KL(x, p)) at most, for x > p
    (Chvatal, 1979).

    Args:
        rounds: (cohort size, what was settled) -> in how many rounds.
        chance: most probability of being wrong; above 0.
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
    # More of the one with more of the other, or with less of it.
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
    """Return whether what was settled before cohorts were drawn goes with their sizes, or decides.

    Args:
        rounds: (cohort size, what was settled) -> in how many rounds.
        chance: most probability of being wrong; above 0.
        probability: of every unit in every round, each apart; None where they are not so drawn.
        population: how many units there are, where that is known.
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
    """Return whether one size came with every value, though draws are independent of it.

    Given the size of the first round of a value, each other one has it with probability g at most.
    """
    # Nothing was settled; some value came with two sizes; draws are certain, or too large to tell.
    values, largest = {value for _, value in rounds}, max(size for size, _ in rounds)
    if len(values) < 2 or len(rounds) > len(values) or probability >= 1.0 or largest >= MOST:
        return False
    again = Counter[int]()
    for (size, _), count in rounds.items():
        again[size] += count - 1
    # A size that nobody draws has probability 0, whose logarithm is no number.
    shares = {
        size: max(_most_within(size, size, probability, population), math.ulp(0.0))
        for size in again
    }
    limit = sum(count * math.log(shares[size]) for size, count in again.items() if count)
    return limit < math.log(chance)


def _upper_half(counts: Mapping[float, int]) -> set[float]:
    """Return the values above the median; the largest alone where none is; none if all are one."""
    values, middle = sorted(counts), _median(counts)
    return {value for value in values[1:] if value > middle} or set(values[1:][-1:])


def _apart(x: float, p: float) -> float:
    """Return the Kullback-Leibler divergence of two coins, 0 < p < x <= 1."""
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
    """Return an upper end of P(low <= Bin(n, q) <= high), the largest over n or the one known."""
    if population is not None:
        return _within(population, low, high, probability)
    # Nobody is drawn from an empty population, surely.
    if low == 0:
        return 1.0
    # P_(n+1) - P_n = q (P_n(low - 1) - P_n(high)) changes its sign once.
    peak = _first(lambda n: not _rises(n, low, high, probability), high)
    if peak is None or 8.0 * _blur(peak, high, probability) ** 2 * high > _FLAT:
        return 1.0
    most = max(_within(n, low, high, probability) for n in (max(high, peak - 1), peak, peak + 1))
    # Masses known to a share e leave the peak open by 2 e n populations, over which a window of
    # masses as equal changes by a share of 4 e^2 n q at most.
    return min(1.0, most * (1.0 + _FLAT))


_FLAT = 1e-3
"""What a peak that is a little off may miss of a probability, relatively."""


def _blur(n: int, size: int, probability: float) -> float:
    low, high = log_mass(n, probability, size)
    return high - low


def _rises(n: int, low: int, high: int, probability: float) -> bool:
    return log_mass(n, probability, low - 1)[1] > log_mass(n, probability, high)[0]


def _within(n: int, low: int, high: int, probability: float) -> float:
    sizes = range(low, min(high, n) + 1)
    return math.fsum(math.exp(log_mass(n, probability, size)[1]) for size in sizes)


def _at_least(trials: int, probability: float, successes: int) -> float:
    """Return an upper end of log P(number >= successes)."""
    return log_tail(trials, probability, successes)[1] if successes > 0 else 0.0


def _at_most(trials: int, probability: float, successes: int) -> float:
    """Return an upper end of log P(number <= successes)."""
    return log_below(trials, probability, successes + 1)[1] if successes < trials else 0.0


def _first(fits: Callable[[int], bool], start: int) -> int | None:
    """Return a number that fits while the one before does not; None where none below MOST does."""
    if fits(start):
        return start
    step = 1
    while not fits(start + step):
        step *= 2
        if start + step > MOST:
            return None
    # The last doubling failed at half of it: the answer lies between.
    below, above = start + step // 2, start + step
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if fits(middle) else (middle, above)
    return above
