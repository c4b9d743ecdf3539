"""What a paper's formula claims, and what the sound account says of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..bound import Bound, Verdict


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
