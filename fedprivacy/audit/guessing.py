"""Theorems on attacks: the epsilon or mu that guesses about canaries refute.

A fair coin decides for each of m canaries whether it is in the data. An attacker sees the release
and guesses r of the coins. Assume that flipping one coin is one step of an (epsilon, delta)-private
mechanism. Then the law of the number of correct guesses has a bound, and too many of these guesses
refute the epsilon. Proofs: docs/theory/attacks.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, gammaln, ndtr, ndtri

Array = NDArray[np.float64]

THEOREM_GUESSES = (
    "A1: right guesses of fair coins under (epsilon, delta)-DP (Steinke, Nasr, Jagielski 2023; "
    "delta term by the binomial's Stein equation)"
)
THEOREM_RATES = (
    "A2: Clopper-Pearson intervals of an attack's two rates (Nasr et al. 2021, Kairouz 2015)"
)

THEOREM_CURVE = (
    "A3: right guesses of fair coins under mu-GDP, tail by tail (Mahloujifar, Melis and "
    "Chaudhuri 2024)"
)

MUS: Array = np.arange(1, 4001) / 400.0
"""Grid of mu values that can be refuted, in rising order."""

EPSILONS: Array = np.arange(8001) / 200.0
"""Grid of epsilons that can be refuted, in rising order. Answers are rounded down to it."""
_ROUNDING = 1.0 + 1e-6
"""Exceeds the relative error of the special functions used here, for up to 10^7 guesses."""
_TINY = 1e-290
"""A smaller probability may have lost digits."""


def p_value(correct: int, guesses: int, canaries: int, epsilon: Array, delta: float) -> Array:
    """Return the largest probability of this many correct guesses under (epsilon, delta)-DP.

    Theorem A1 has three conditions. The coins are fair, and independent of each other and of the
    other randomness of the mechanism. Flipping any one coin, with the others fixed, is a step
    between neighbours. The guesses are a function of the release (and of separate randomness), and
    their number is exactly ``guesses``. Then, with W ~ Binomial(guesses, e^eps / (1 + e^eps)) and v
    = correct >= 1,

        P[right >= v] <= P[W >= v] + m delta P[W >= v] P[W < v] / (v P[W = v]).

    With delta = 0 it is Steinke, Nasr and Jagielski (2023), Proposition 5.1. At epsilon = 0 and v =
    r = m it is attained, by a mechanism that reveals everything with probability delta.

    Args:
        correct: v, from 0 to ``guesses``.
        guesses: r, from 1 to ``canaries``; fixed before the run.
        canaries: m.
        epsilon: evaluation points, any shape.
        delta: in [0, 1].

    Returns:
        Array of the shape of ``epsilon``, with values of at most 1.
    """
    # Zero correct guesses are always reached, so the probability is 1.
    if correct <= 0:
        return np.ones_like(epsilon)
    right = 1.0 / (1.0 + np.exp(-epsilon))
    # 1 - right, computed directly, so that no digits are lost at large epsilon.
    wrong = 1.0 / (1.0 + np.exp(epsilon))
    above = betainc(correct, guesses - correct + 1, right)
    below = betainc(guesses - correct + 1, correct, wrong)
    # Logarithms, because binomial masses underflow long before their ratio to the tail does.
    ways = gammaln(guesses + 1) - gammaln(correct + 1) - gammaln(guesses - correct + 1)
    log_mass = ways + correct * np.log(right) + (guesses - correct) * np.log(wrong)
    # Masses above the v-th fall at least by this factor. It bounds the tail ratio after an
    # underflow.
    falls = np.minimum(np.exp(epsilon) * ((guesses - correct) / (correct + 1)), 1.0)
    with np.errstate(divide="ignore", under="ignore"):
        tail_over_mass = np.where(above > _TINY, np.log(above) - log_mass, -np.log1p(-falls))
        log_slack = np.log(canaries * delta / correct) + tail_over_mass + np.log(below)
        slack = np.exp(np.minimum(log_slack, 1.0))
    found = np.minimum(_ROUNDING * (above + slack), 1.0)
    # If the lower tail may have lost its digits, the bound is the trivial 1.
    return np.asarray(np.where(below > _TINY, found, 1.0), dtype=np.float64)


def refuted(correct: int, guesses: int, canaries: int, delta: float, level: float) -> float:
    """Return the largest epsilon that is refuted at ``level`` with all smaller ones; else 0.

    If the mechanism is (epsilon, delta)-DP, the result exceeds epsilon with probability at most
    ``level``. In that event the next grid point of ``EPSILONS`` above epsilon was refuted. The
    mechanism is private at that point too, so the refutation is false.
    """
    # Every smaller epsilon must be refuted too, so the first one that is not ends the search.
    found = p_value(correct, guesses, canaries, EPSILONS, delta) > level
    first = int(np.argmax(found)) if found.any() else len(EPSILONS)
    return float(EPSILONS[max(first - 1, 0)])


def refuted_mu(correct: int, guesses: int, canaries: int, level: float) -> float:
    """Return the largest mu that is refuted at ``level`` with all smaller ones; else 0.

    Theorem A3. Conditions: those of A1, with mu-GDP in place of (epsilon, delta)-DP. That is,
    flipping one coin with the others fixed gives no test a true-positive rate above F(x) =
    Phi(Phi^-1(x) + mu) at false-positive rate x. Then the tails t_k = P[right >= k] satisfy, for 1
    <= k <= r,

        (r - k + 1) t_{k-1} >= sum_{j >= k} t_j + m F^-1((k t_k + sum_{j > k} t_j) / m).

    Starting from t_v = level and zero tails above v, these inequalities force a value of t_0. A
    forced value above 1 is impossible, and hence P[right >= v] < level.

    If the mechanism is mu-GDP, the result exceeds mu with probability at most ``level``, as in
    ``refuted``.
    """
    low, high = -1, len(MUS)  # the forced t_0 falls as mu rises
    while high - low > 1:
        # Blocks of 16 values: the recursion runs over all guesses, but works on arrays of mu.
        tried = np.unique(np.linspace(low + 1, high - 1, 16).astype(int))
        # The margin covers rounding. Only above it is the assumed tail impossible.
        forced = _forced(correct, guesses, canaries, level, MUS[tried]) > 1.0 + 1e-6
        count = len(tried) if forced.all() else int(np.argmin(forced))
        low = int(tried[count - 1]) if count else low
        high = int(tried[count]) if count < len(tried) else high
    return float(MUS[low]) if low >= 0 else 0.0


def _forced(correct: int, guesses: int, canaries: int, level: float, mu: Array) -> Array:
    """Return the t_0 that P[right >= correct] = level forces under each mu; see ``refuted_mu``."""
    tail = np.full_like(mu, level)
    above = np.zeros_like(mu)
    # From the highest tail downwards: each one forces a minimum of the next.
    for k in range(correct, 0, -1):
        # The share of the canaries is at most 1.
        share = np.minimum((k * tail + above) / canaries, 1.0)
        above = above + tail
        # The theorem's m F^-1(share): F^-1(y) = Phi(Phi^-1(y) - mu).
        wrong = canaries * ndtr(ndtri(share) - mu)
        # Capped at 2: an impossible value stays impossible, and the cap avoids an overflow.
        tail = np.minimum(np.maximum(tail, (above + wrong) / (guesses - k + 1)), 2.0)
    return tail


def at_most(successes: int, trials: int, level: float) -> float:
    """Return the Clopper-Pearson upper end of a probability, wrong with at most ``level``."""
    # If all trials succeed, no probability below 1 can be excluded.
    if successes >= trials:
        return 1.0
    return min(1.0, _ROUNDING * float(betaincinv(successes + 1, trials - successes, 1.0 - level)))


def at_least(successes: int, trials: int, level: float) -> float:
    """Return the Clopper-Pearson lower end of a probability, wrong with at most ``level``."""
    # If no trial succeeds, no probability above 0 can be excluded.
    if successes <= 0:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, level)) / _ROUNDING


def refuted_by_rates(
    hits: tuple[int, int], misses: tuple[int, int], delta: float, level: float
) -> float:
    """Return the epsilon that an attack's rates over independent runs refute, at least 0.

    Theorem A2. Conditions: the runs are independent, and the attack was fixed beforehand. Under
    (epsilon, delta)-DP its rates on neighbours satisfy hit <= e^eps miss + delta.

    Args:
        hits: number of claims and number of runs, for runs with the canary.
        misses: the same for runs without the canary.
        delta: in [0, 1].
        level: probability that the result is too large; each of the two ends gets one half.
    """
    # Each of the two ends may fail, with half of the level.
    hit, miss = at_least(*hits, level / 2.0), at_most(*misses, level / 2.0)
    # In this case every epsilon explains the rates, including 0.
    if hit - delta <= miss:
        return 0.0
    return math.log((hit - delta) / miss)
