"""Whether recorded cohorts can have been drawn independently, each unit with one probability.

Nobody records how many units there are, so the question is whether any one population fits. An
answer of ``excluded`` is wrong with at most a stated probability, whatever the population is:

- the smallest and the largest round, and all rounds together, lie within the exact ends of their
  binomial laws (the sum over T rounds of n units is Bin(n T, q)); a population that is too small
  for the largest of them is too small at every smaller size, and so on, as tails are monotone;
- rounds that are all of one size s >= 1: P(all T are s) <= g^(T-1) P(the first is s), where g is
  the largest probability of s over all populations, attained at n = floor(s / q).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from .binomial import log_below, log_mass, log_tail

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
    rounds, smallest, largest = sum(sizes.values()), min(sizes), max(sizes)
    total = sum(size * count for size, count in sizes.items())
    # Beyond, binomial ends are not certified: then nothing is said.
    if total >= MOST or probability < 1e-100:
        return ""
    # Half of the chance for cohorts that are all alike, the rest for the ends of the laws.
    if _all_alike(sizes, probability, chance / 2.0, population):
        return f"{smallest} participants every time, {rounds} times, where draws are independent"
    # Four tests share it: smallest, largest, and the sum at both ends.
    each, whole = math.log(chance / (8.0 * rounds)), math.log(chance / 8.0)
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


def _all_alike(
    sizes: Mapping[int, int], probability: float, chance: float, population: int | None
) -> bool:
    ((size, rounds), *others) = sizes.items()
    # Draws that are certain, or of nobody, may well be all alike.
    if others or size == 0 or probability == 1.0:
        return False
    best = max(size, math.floor(size / Fraction(probability)))
    # The mass rises up to s / q and falls beyond: one of two neighbours is the largest.
    near = (best, best + 1) if population is None else (population,)
    mass = max((log_mass(n, probability, size)[1] for n in near if size <= n < MOST), default=0.0)
    # The first round may be of any size, so that only the others are unlikely.
    return (rounds - 1) * mass < math.log(chance)


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
