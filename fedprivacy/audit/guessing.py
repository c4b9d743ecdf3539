"""What guesses about canaries prove: the theorems behind attacks.

Each of m canaries is in the data or not, by its own fair coin. An attacker sees what was released
and guesses r of the coins. Where flipping one coin is one step of an (epsilon, delta)-private
mechanism, the number of right guesses is bounded in law; too many of them refute the epsilon.
Proofs: docs/theory/attacks.md.
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
THEOREM_RATES = "A2: Clopper-Pearson ends of an attack's two rates (Nasr et al. 2021, Kairouz 2015)"

THEOREM_CURVE = (
    "A3: right guesses of fair coins under mu-GDP, tail by tail (Mahloujifar, Melis and "
    "Chaudhuri 2024)"
)

MUS: Array = np.arange(1, 4001) / 400.0
"""Every mu that can be refuted, rising."""

EPSILONS: Array = np.arange(8001) / 200.0
"""Every epsilon that can be refuted, rising; an answer is one of them, rounded down."""
_ROUNDING = 1.0 + 1e-6
"""More than the relative error of the special functions used here, for up to 10^7 guesses."""
_TINY = 1e-290
"""A probability below it may have lost digits."""


def p_value(correct: int, guesses: int, canaries: int, epsilon: Array, delta: float) -> Array:
    """Return the largest probability of so many right guesses under (epsilon, delta)-DP.

    Theorem A1. Conditions: the coins are fair and independent of each other and of all else the
    mechanism draws; flipping any one, the others held, is a step between neighbours; the guesses
    are a function of what was released (and of randomness of their own), exactly ``guesses`` of
    them. Then, with W ~ Binomial(guesses, e^eps / (1 + e^eps)) and v = correct >= 1,

        P[right >= v] <= P[W >= v] + m delta P[W >= v] P[W < v] / (v P[W = v]).

    With delta = 0 it is Steinke, Nasr and Jagielski (2023), Proposition 5.1. At epsilon = 0 and
    v = r = m it is attained, by a mechanism that tells everything with probability delta.

    Args:
        correct: v, from 0 to ``guesses``.
        guesses: r, from 1 to ``canaries``; decided before the run.
        canaries: m.
        epsilon: where to evaluate, any shape.
        delta: in [0, 1].

    Returns:
        Shape of ``epsilon``, at most 1.
    """
    # No right guess at all has probability 1 of being reached.
    if correct <= 0:
        return np.ones_like(epsilon)
    right = 1.0 / (1.0 + np.exp(-epsilon))
    # 1 - right, computed by itself: no digits are lost where epsilon is large.
    wrong = 1.0 / (1.0 + np.exp(epsilon))
    above = betainc(correct, guesses - correct + 1, right)
    below = betainc(guesses - correct + 1, correct, wrong)
    # In logs, since binomial masses underflow long before their ratio to the tail does.
    ways = gammaln(guesses + 1) - gammaln(correct + 1) - gammaln(guesses - correct + 1)
    log_mass = ways + correct * np.log(right) + (guesses - correct) * np.log(wrong)
    # Masses above the v-th fall at least by this factor: the tail's share where it underflows.
    falls = np.minimum(np.exp(epsilon) * ((guesses - correct) / (correct + 1)), 1.0)
    with np.errstate(divide="ignore", under="ignore"):
        tail_over_mass = np.where(above > _TINY, np.log(above) - log_mass, -np.log1p(-falls))
        log_slack = np.log(canaries * delta / correct) + tail_over_mass + np.log(below)
        slack = np.exp(np.minimum(log_slack, 1.0))
    found = np.minimum(_ROUNDING * (above + slack), 1.0)
    # Where the lower tail may have lost its digits nothing is claimed.
    return np.asarray(np.where(below > _TINY, found, 1.0), dtype=np.float64)


def refuted(correct: int, guesses: int, canaries: int, delta: float, level: float) -> float:
    """Return the largest epsilon such that it and all below are refuted at ``level``; else 0.

    If the mechanism is (epsilon, delta)-DP, more than epsilon is returned with probability at most
    ``level``: the next of ``EPSILONS`` above it was refuted then, and that one is true as well.
    """
    # Refuted must be everything below, too: the first that is not ends it.
    found = p_value(correct, guesses, canaries, EPSILONS, delta) > level
    first = int(np.argmax(found)) if found.any() else len(EPSILONS)
    return float(EPSILONS[max(first - 1, 0)])


def refuted_mu(correct: int, guesses: int, canaries: int, level: float) -> float:
    """Return the largest mu such that it and all below are refuted at ``level``; else 0.

    Theorem A3. Conditions: those of A1, with mu-GDP in place of (epsilon, delta)-DP: flipping one
    coin, the others held, no test has more true alarms than F(x) = Phi(Phi^-1(x) + mu) at x false
    ones. Then the tails t_k = P[right >= k] satisfy, for 1 <= k <= r,

        (r - k + 1) t_{k-1} >= sum_{j >= k} t_j + m F^-1((k t_k + sum_{j > k} t_j) / m).

    From t_v = level, and nothing above v, this forces t_0: above 1 it cannot be, so that
    P[right >= v] < level.

    If the mechanism is mu-GDP, more than mu is returned with probability at most ``level``, as in
    ``refuted``.
    """
    low, high = -1, len(MUS)  # what is forced falls as mu rises
    while high - low > 1:
        # 16 values at a time, since the recursion runs over all guesses but takes arrays of mu.
        tried = np.unique(np.linspace(low + 1, high - 1, 16).astype(int))
        # Above 1 by more than rounding: only then is the assumed tail impossible.
        forced = _forced(correct, guesses, canaries, level, MUS[tried]) > 1.0 + 1e-6
        count = len(tried) if forced.all() else int(np.argmin(forced))
        low = int(tried[count - 1]) if count else low
        high = int(tried[count]) if count < len(tried) else high
    return float(MUS[low]) if low >= 0 else 0.0


def _forced(correct: int, guesses: int, canaries: int, level: float, mu: Array) -> Array:
    """Return the t_0 that P[right >= correct] = level forces under each mu; see ``refuted_mu``."""
    tail = np.full_like(mu, level)
    above = np.zeros_like(mu)
    # From the highest tail down: each forces a least size of the next.
    for k in range(correct, 0, -1):
        # A share of the canaries: more than all of them cannot be guessed.
        share = np.minimum((k * tail + above) / canaries, 1.0)
        above = above + tail
        # The theorem's m F^-1(share): F^-1(y) = Phi(Phi^-1(y) - mu).
        wrong = canaries * ndtr(ndtri(share) - mu)
        # Capped at 2: what is impossible already stays so, without an overflow.
        tail = np.minimum(np.maximum(tail, (above + wrong) / (guesses - k + 1)), 2.0)
    return tail


def at_most(successes: int, trials: int, level: float) -> float:
    """Return the Clopper-Pearson upper end of a probability, wrong with at most ``level``."""
    # All successes: no probability below 1 can be excluded from above.
    if successes >= trials:
        return 1.0
    return min(1.0, _ROUNDING * float(betaincinv(successes + 1, trials - successes, 1.0 - level)))


def at_least(successes: int, trials: int, level: float) -> float:
    """Return the Clopper-Pearson lower end of a probability, wrong with at most ``level``."""
    # No success: no probability above 0 can be excluded from below.
    if successes <= 0:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, level)) / _ROUNDING


def refuted_by_rates(
    hits: tuple[int, int], misses: tuple[int, int], delta: float, level: float
) -> float:
    """Return the epsilon that an attack's rates over independent runs refute, at least 0.

    Theorem A2. Conditions: runs are independent; the attack was fixed beforehand. Under
    (epsilon, delta)-DP its rates on neighbours satisfy hit <= e^eps miss + delta.

    Args:
        hits: how often it claimed, of how many runs, where it should.
        misses: the same where it should not.
        delta: in [0, 1].
        level: chance that the answer is too large; each of the two ends gets half of it.
    """
    # Both ends may fail, each with half of the level.
    hit, miss = at_least(*hits, level / 2.0), at_most(*misses, level / 2.0)
    # Then any epsilon explains the rates, 0 as well.
    if hit - delta <= miss:
        return 0.0
    return math.log((hit - delta) / miss)
