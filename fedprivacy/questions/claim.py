"""The claim of a published formula, judged by the certified account."""

from __future__ import annotations

from dataclasses import dataclass

from ..bound import Bound, Verdict
from ..errors import count, member, refuse
from ..mechanisms import Mechanism
from ..relations import Adjacency, Observer
from .epsilon import epsilon as epsilon_of

_SHARP = 1e-6
"""Wanted width if the first interval leaves a claim open."""
_PATIENCE = 10.0
"""Seconds after which an account starts no finer attempt."""


@dataclass(frozen=True)
class Claim:
    """A published guarantee, evaluated and judged.

    Attributes:
        epsilon: the value of the formula.
        delta: the value of the formula.
        verdict: HOLDS if a certified upper end is at most ``epsilon`` at ``delta``. FAILS if two
            named neighbouring data sets lose more. Otherwise CANNOT BE CERTIFIED.
        reason: the deciding facts with numbers, and the hypotheses of the formula that fail.
    """

    epsilon: float
    delta: float
    verdict: Verdict
    reason: str


def judged(epsilon: float, delta: float, bound: Bound, remark: str = "") -> Claim:
    """Return the claim with the verdict of a certified account of the same setting.

    Args:
        epsilon: claimed.
        delta: claimed.
        bound: the Bound of epsilon at ``delta``.
        remark: sentences that end the reason.
    """
    verdict = bound.verdict(epsilon)
    lower, upper = bound.ends(6)
    found = {
        Verdict.HOLDS: f"epsilon is at most {upper}",
        Verdict.FAILS: f"epsilon is at least {lower}, attained by {bound.witness}",
        Verdict.CANNOT_BE_CERTIFIED: (f"epsilon lies in [{lower}, {upper}]"),
    }[verdict]
    reason = f"{epsilon:.6g} is claimed at delta = {delta:.6g}; {found} ({bound.method})."
    return Claim(epsilon, delta, verdict, f"{reason} {remark}".strip())


def judged_by_account(
    claimed: float,
    delta: float,
    run: Mechanism,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    remark: str = "",
) -> Claim:
    """Return the claim judged by the account of a run. If it stays open, refine the account once.

    Args:
        claimed: epsilon, the value of the formula.
        delta: the value of the formula.
        run: all rounds.
        adjacency: how neighbouring data sets differ.
        observer: who sees the outputs.
        remark: sentences that end the reason.
    """
    facts = {
        "adjacency": member(Adjacency, adjacency=adjacency),
        "observer": member(Observer, observer=observer),
    }
    # A coarse account decides most claims. Only claims inside its interval need a sharp one.
    for tolerance in (1e-3, _SHARP):
        bound = epsilon_of(run, delta=delta, tolerance=tolerance, deadline=_PATIENCE, **facts)
        # Outside the interval, no finer account can change the verdict.
        if not bound.resolution[0] <= claimed < bound.resolution[1]:
            break
    return judged(claimed, delta, bound, remark)


def sampling_rate_of(population: int, cohort: int) -> float:
    """Return cohort / population.

    Raises:
        ParameterError: not integers from 1, or the cohort exceeds the population.
    """
    n, r = count(population=population), count(cohort=cohort)
    # A larger cohort would give a rate above 1, and formulas would accept it silently.
    if r > n:
        refuse("cohort", r, f"be at most population = {n}")
    return r / n
