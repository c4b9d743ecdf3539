"""What a paper's formula claims, and what the sound account says of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..bound import Bound, Verdict
from ..errors import count, member, refuse
from ..mechanisms import Mechanism
from ..relations import Adjacency, Observer
from .epsilon import epsilon as epsilon_of

_SHARP = 1e-6
"""Wanted width where the first interval leaves a claim open."""
_PATIENCE = 10.0
"""Seconds after which an account begins no finer attempt."""


@dataclass(frozen=True)
class Claim:
    """A published guarantee, evaluated and judged.

    Attributes:
        epsilon: as the formula has it.
        delta: as the formula has it.
        verdict: HOLDS where a certified upper end is at most ``epsilon`` at ``delta``, FAILS where
            two named neighbouring data sets lose more, else CANNOT BE CERTIFIED.
        reason: what decides, with numbers, and which of the formula's hypotheses fail.
    """

    epsilon: float
    delta: float
    verdict: Verdict
    reason: str


def judged(epsilon: float, delta: float, bound: Bound, remark: str = "") -> Claim:
    """Return the claim with the verdict of a sound account of the same setting.

    Args:
        epsilon: claimed.
        delta: claimed.
        bound: epsilon's Bound at ``delta``.
        remark: sentences to end the reason with.
    """
    verdict = bound.verdict(epsilon)
    lower, upper = bound.ends(6)
    found = {
        Verdict.HOLDS: f"the sound account gives at most {upper}",
        Verdict.FAILS: f"epsilon is at least {lower}, attained: {bound.witness}",
        Verdict.CANNOT_BE_CERTIFIED: (f"the sound account gives [{lower}, {upper}]"),
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
    """Return the claim judged by the account of a run, a finer one where the first leaves it open.

    Args:
        claimed: epsilon, as the formula has it.
        delta: as the formula has it.
        run: all rounds.
        adjacency: how neighbours differ.
        observer: who looks.
        remark: sentences to end the reason with.
    """
    facts = {
        "adjacency": member(Adjacency, adjacency=adjacency),
        "observer": member(Observer, observer=observer),
    }
    # A coarse account decides most claims; a sharp one only those that lie inside it.
    for tolerance in (1e-3, _SHARP):
        bound = epsilon_of(run, delta=delta, tolerance=tolerance, deadline=_PATIENCE, **facts)
        # Outside of the interval no finer one can change the verdict.
        if not bound.resolution[0] <= claimed < bound.resolution[1]:
            break
    return judged(claimed, delta, bound, remark)


def sampling_rate_of(population: int, cohort: int) -> float:
    """Return cohort / population.

    Raises:
        ParameterError: not whole numbers from 1, or more in a cohort than there are.
    """
    n, r = count(population=population), count(cohort=cohort)
    # More than there are would make a rate above 1, which formulas take without a word.
    if r > n:
        refuse("cohort", r, f"be at most population = {n}")
    return r / n
