"""Fed-SMP (Hu, Guo and Gong): Theorem 1 as printed, its hypotheses, and its verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...bound import Verdict
from ...errors import count, member, open_unit, positive
from ...mechanisms import Gaussian, Mechanism
from ...questions.claim import Claim, judged_by_account, sampling_rate_of
from ...questions.epsilon import epsilon as epsilon_of
from ...relations import Adjacency, Observer
from ...rounding import THOUSANDS
from ...sampling import FixedSize

_PAD = THOUSANDS
"""Relative error of a closed form that a verdict allows for."""


@dataclass(frozen=True, kw_only=True)
class _Hypotheses:
    """Hypotheses of the formula and its proof for a setting.

    ``stated`` is epsilon < 2 log(1/delta). ``noise`` and ``order`` are conditions of its Lemma 3
    that the theorem does not repeat: sigma^2 >= 0.7, and the order 1 + 2 log(1/delta)/epsilon is at
    most 1 + (2/3) sigma^2 log(1/(q order (1 + sigma^2))).
    """

    claimed: float
    limit: float
    variance: float
    order: float
    largest: float

    def words(self) -> str:
        found = []
        if not self.claimed < self.limit:
            found.append(
                "Theorem 1 does not apply here, since it needs epsilon < 2 log(1/delta) = "
                f"{self.limit:.4g}; the judged number is that of its formula."
            )
        if not self.variance >= 0.7:
            found.append(
                f"An unstated hypothesis of the proof fails: sigma^2 = {self.variance:.4g} is "
                "below 0.7."
            )
        if not self.order <= self.largest:
            found.append(
                f"An unstated hypothesis of the proof fails: the order {self.order:.4f} "
                f"exceeds {self.largest:.4f}."
            )
        return " ".join(found or ["All hypotheses of the proof hold, including the unstated ones."])


def theorem_1_epsilon(
    *, population: int, cohort: int, noise_multiplier: float, rounds: int, delta: float
) -> float:
    """Return the epsilon for which Theorem 1 requires exactly this noise, without a verdict.

    The theorem requires sigma^2 >= 7 q^2 T (epsilon + 2L) / epsilon^2 with q = cohort/population
    and L = log(1/delta). With a = (q / sigma) sqrt(7 T) that is epsilon = a (a + sqrt(a^2 + 8 L)) /
    2.

    Raises:
        ParameterError: a value out of its range.
    """
    q = sampling_rate_of(population, cohort)
    root = q / positive(noise_multiplier=noise_multiplier) * math.sqrt(7.0 * count(rounds=rounds))
    return (
        0.5 * root * (root + math.hypot(root, math.sqrt(-8.0 * math.log(open_unit(delta=delta)))))
    )


def fed_smp_theorem_1(
    *,
    population: int,
    cohort: int,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    observer: Observer | str = Observer.AGGREGATE,
) -> Claim:
    """Return the claim of Fed-SMP's Theorem 1 for a setting, with a verdict on it.

    The unit is a client, neighbours differ by one client (add_remove), and cohorts are drawn
    without replacement, all as printed. The verdict for ``aggregate`` and ``final`` uses the
    account of ``Gaussian(noise_multiplier).sampled(FixedSize(cohort, population))`` over the
    rounds. Its cohort is always full, so a client's presence moves the sum by twice the clip norm
    (T3, T9).

    The observer ``server`` sees the cohorts too, and delta is the same number at every epsilon. It
    is the probability 1 - (1-q)^T that the client is drawn at all. If it is drawn, the lists of
    cohorts reveal its presence. Otherwise lists and sums have the same law as without the client.

    Args:
        population: n, number of clients, the client in question included.
        cohort: r, number of clients in a round.
        noise_multiplier: sigma, std of the summed noise over the clip norm.
        rounds: T.
        delta: in (0, 1).
        observer: "aggregate", "server" or "final".

    Returns:
        A Claim; its reason names every hypothesis, stated or not, that fails.

    Raises:
        ParameterError: a value out of its range.
    """
    setting = {"population": population, "cohort": cohort, "rounds": rounds}
    claimed = theorem_1_epsilon(noise_multiplier=noise_multiplier, delta=delta, **setting)
    q = sampling_rate_of(population, cohort)
    remark = _hypotheses(q, noise_multiplier, delta, claimed).words()
    sees = member(Observer, observer=observer)
    step = Gaussian(noise_multiplier=noise_multiplier, unit="client")
    run = step.sampled(FixedSize(cohort, population=population)) * rounds
    if sees is Observer.SERVER:
        return _for_the_server(run, q, rounds, delta, claimed, remark)
    return judged_by_account(claimed, delta, run, Adjacency.ADD_REMOVE, sees, remark)


def _hypotheses(q: float, sigma: float, delta: float, claimed: float) -> _Hypotheses:
    """Return the evaluated hypotheses, without a superfluous factor in Lemma 3.

    The factor is the squared clip norm. The lemma's sigma is already a multiple of the clip norm.
    With the factor, the bound would depend on the unit of the updates.
    """
    limit = -2.0 * math.log(delta)
    variance = sigma * sigma
    order = 1.0 + limit / claimed if claimed > 0.0 else math.inf
    largest = 1.0 - variance * math.log(q * order * (1.0 + variance)) / 1.5
    return _Hypotheses(
        claimed=claimed, limit=limit, variance=variance, order=order, largest=largest
    )


def _for_the_server(
    run: Mechanism, q: float, rounds: int, delta: float, claimed: float, remark: str
) -> Claim:
    """Return the verdict for an observer of the cohorts: delta is 1 - (1-q)^T at every epsilon."""
    # 1 - (1 - q)^T, computed with all its digits for small q.
    drawn = 1.0 if q == 1.0 else -math.expm1(rounds * math.log1p(-q))
    low, high = drawn * (1.0 - _PAD), min(drawn * (1.0 + _PAD), 1.0)
    verdict = Verdict.CANNOT_BE_CERTIFIED
    if delta < low:
        verdict = Verdict.FAILS
    elif delta >= high:
        verdict = Verdict.HOLDS
    zeroed = epsilon_of(run, delta=delta, adjacency=Adjacency.ZERO_OUT, observer=Observer.SERVER)
    reason = (
        f"{claimed:.6g} is claimed at delta = {delta:.6g}; the cohorts reveal a client with "
        f"probability 1 - (1-q)^T = {drawn:.6g}, which is delta at every epsilon for the data "
        "sets with and without it. If only the contribution of the client is protected "
        f"(zero_out, T4), epsilon is {zeroed.upper:.6g}. {remark}"
    )
    return Claim(claimed, delta, verdict, reason)
