"""Judge a claim about a run, by every accountant and for every observer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from ..bound import Bound, Verdict, exactly
from ..errors import UnsupportedCombination, contradict
from ..evidence import Defect, Noiseless, RunEvidence
from ..evidence.revealed import WITHOUT_COUNTS
from ..privacy_loss import PrivacyLoss, check_listed
from ..questions.budget import Budget
from ..questions.effort import Effort
from ..relations import Facts, Observer
from .diagnose import ExplainedClaim, failing_assumptions, overcounts
from .sources import SourceFacts

_FILTER = "RDP filter"
"""Prefix of the budget rule of an adaptive run."""

SINGLE = "single uploads"
"""Key of the bounds for a server that sees each upload separately, without a secure sum."""


_SHARP = 1e-6
"""Tolerance of the second account, if the first one's interval has the claim inside."""
_PATIENCE = 10.0
"""Largest number of seconds for it."""


class Efforts(NamedTuple):
    """The accountants to use, and their effort."""

    names: tuple[str, ...]
    effort: Effort

    def bounds(
        self, loss: PrivacyLoss, delta: float, claimed: float | None = None
    ) -> dict[str, Bound]:
        """Return the epsilon of every accountant, by name.

        If the claimed epsilon lies in an interval within the tolerance, a narrower one decides.
        """
        found = {
            name: self.effort.account(loss, accountant=name).epsilon(delta) for name in self.names
        }
        if claimed is None or "pld" not in found or self.effort.late:
            return found
        low, high = found["pld"].resolution
        if low <= claimed < high <= low + self.effort.tolerance:
            left = self.effort.left
            patience = _PATIENCE if left is None else min(left, _PATIENCE)
            sharp = Effort("pld", min(_SHARP, self.effort.tolerance), patience)
            again = sharp.account(loss).epsilon(delta)
            if again.resolution[1] - again.resolution[0] < high - low:
                found["pld"] = again
        return found


Findings = tuple[
    Verdict,
    tuple[str, ...],
    dict[str, dict[str, Bound]],
    dict[str, str],
    tuple[Defect, ...],
]
"""Verdict, reasons, bounds, unsupported observers, and defects of the schedule."""


class Case(NamedTuple):
    """The claim, its run and facts, and the effort of the accountants."""

    read: SourceFacts
    evidence: RunEvidence
    facts: Facts
    epsilon: float
    delta: float
    efforts: Efforts


def audit_fixed(case: Case) -> Findings:
    """Judge a schedule that was fixed beforehand, by every accountant and for every observer."""
    if case.evidence.noiseless is not None:
        return _audit_noiseless(case, case.evidence.noiseless)
    bounds, unsupported = _by_observer(case)
    # Compare before judging: a contradiction means that one of our bounds is wrong.
    _compare(bounds)
    verdict, reasons = _judged(case, bounds)
    cheaper = (Defect.CHEAPER,) if _cheaper_than_planned(case, bounds) else ()
    return verdict, reasons, bounds, unsupported, cheaper


def _audit_noiseless(case: Case, clear: Noiseless) -> Findings:
    """Judge a run with rounds without noise: epsilon is infinite, whatever the other rounds do."""
    evidence, facts = case.evidence, case.facts
    bounds: dict[str, dict[str, Bound]] = {}
    unsupported: dict[str, str] = {}
    for one in dict.fromkeys([facts.observer, Observer.AGGREGATE, Observer.SERVER]):
        try:
            check_listed(facts._replace(observer=one))
        except UnsupportedCombination as refusal:
            if one is facts.observer:
                raise
            unsupported[str(one)] = str(refusal)
            continue
        bounds[str(one)] = {"no noise": clear.bound(case.delta, facts._replace(observer=one))}
    if evidence.doubts:
        verdict, reason = Verdict.CANNOT_BE_CERTIFIED, _of_another_run(evidence.doubts)
        return verdict, (reason,), bounds, unsupported, ()
    bound = bounds[str(facts.observer)]["no noise"]
    text = f"at delta = {exactly(case.delta)}: {bound.reason}"
    if bound.witness:
        text = f"Epsilon is infinite {text} ({bound.witness})"
    else:
        text = f"No finite epsilon is certified {text}"
    reason = f"{text}; {exactly(case.epsilon)} was claimed."
    return bound.verdict(case.epsilon), (reason,), bounds, unsupported, ()


def _by_observer(case: Case) -> tuple[dict[str, dict[str, Bound]], dict[str, str]]:
    """Return epsilon for each observer by every accountant, and the unsupported observers.

    Raises:
        UnsupportedCombination: if the claim's own observer is unsupported.
    """
    evidence, facts = case.evidence, case.facts
    # The claim's observer comes first: its refusal ends the audit. Other refusals are only
    # reported.
    observers = dict.fromkeys([facts.observer, Observer.AGGREGATE, Observer.SERVER])
    losses: dict[str, Callable[[], PrivacyLoss | None]] = {
        str(one): partial(evidence.loss, facts._replace(observer=one)) for one in observers
    }
    # This line does not affect the verdict: the claim's observer is no server without a secure sum.
    losses[SINGLE] = partial(evidence.single_uploads, facts)
    bounds: dict[str, dict[str, Bound]] = {}
    unsupported: dict[str, str] = {}
    for observer, loss_to in losses.items():
        try:
            _check_observer(case, observer)
            loss = loss_to()
            claimed = case.epsilon if observer == str(facts.observer) else None
            if loss is not None:
                bounds[observer] = case.efforts.bounds(loss, case.delta, claimed)
        except UnsupportedCombination as refusal:
            if observer == str(facts.observer):
                raise
            unsupported[observer] = str(refusal)
    return bounds, unsupported


def _check_observer(case: Case, observer: str) -> None:
    """Refuse an observer for whom the record is worth less than for the claim's observer.

    Raises:
        UnsupportedCombination: if this observer may learn a fact that the account keeps secret.
    """
    if observer in (SINGLE, str(case.facts.observer)):
        return
    of = case.read.evidence.under
    (evidence, wrong), (_, own) = (
        of(case.facts._replace(observer=Observer(observer))),
        of(case.facts),
    )
    # These doubts contain no counts, so every reader may see them.
    more = [text for text in evidence.doubts if text not in case.evidence.doubts]
    more += [str(defect) for defect in wrong if defect not in own]
    if more:
        raise UnsupportedCombination(
            "no number is certified for this observer, since the record may reveal what the "
            f"account keeps secret: {'; '.join(more)}"
        )


def _judged(case: Case, bounds: dict[str, dict[str, Bound]]) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on the claim, and the reasons."""
    read, evidence, facts, epsilon, delta, _ = case
    # Numbers about another run can neither confirm nor refute the claim.
    if evidence.doubts:
        return Verdict.CANNOT_BE_CERTIFIED, (_of_another_run(evidence.doubts),)
    found = bounds[str(facts.observer)]
    # The server sees everything that others see, so its upper ends hold for others as well.
    more = {} if facts.observer is Observer.SERVER else bounds.get(str(Observer.SERVER), {})
    verdict, reason = _judge(found, more, epsilon, delta)
    if evidence.run is None:
        return verdict, (reason,)
    question = ExplainedClaim(
        evidence.run, facts, epsilon, found, read.sensitivity, read.run_without
    )
    remarks = overcounts if verdict is Verdict.HOLDS else failing_assumptions
    return verdict, (reason, *remarks(question))


def _of_another_run(doubts: tuple[str, ...]) -> str:
    """Return the reason why the numbers certify no part of the real run."""
    # Only doubts without counts may be printed. Others reveal data of single clients.
    public = (doubt for doubt in doubts if doubt in WITHOUT_COUNTS)
    what = next(public, str(Defect.OTHER_COHORTS))
    text = "so the recorded run differs from the accounted one, whose numbers do not apply to it"
    return f"The record has {what}, {text}."


def _cheaper_than_planned(case: Case, bounds: dict[str, dict[str, Bound]]) -> bool:
    """Return whether, for any observer, the run costs less than with the rounds of its plan."""
    planned = case.evidence.planned
    if planned is None:
        return False
    as_planned = replace(case.evidence, run=planned, certain=None)
    for seen_by, found in bounds.items():
        if seen_by == SINGLE:
            continue
        try:
            loss = as_planned.loss(case.facts._replace(observer=Observer(seen_by)))
        # Without a number for the plan, the rounds may cost less.
        except UnsupportedCombination:
            return True
        above = case.efforts.bounds(loss, case.delta)
        if _least(found) < _least(above) * (1.0 - _ALIKE):
            return True
    return False


_ALIKE = 1e-6
"""Relative tolerance for equal upper ends, for the rounding of decimal noise scales."""


def _least(bounds: dict[str, Bound]) -> float:
    return min(bound.upper for bound in bounds.values())


def audit_adaptive(case: Case) -> Findings:
    """Judge a schedule that depended on outputs.

    Only the budget of a Renyi filter holds for this schedule, because other outputs would have led
    to other rounds. The claim must therefore be at least the budget that the run began with, for
    the same adjacency and observer.
    """
    # The filter has its own rule, so no other accountant may replace it.
    read, _, facts, epsilon, delta, _ = case
    kept = _kept_by_filter(case)
    budget = Budget(*(read.claim or (epsilon, delta)), **_of_facts(facts), adaptive=True)
    bound = budget.kept_by_filter(facts)
    # Without a filter, the recorded rounds are one outcome of many, and the others have no bound.
    if kept:
        bound = replace(bound, upper=math.inf, resolution=(0.0, math.inf))
    permitted = f"epsilon = {exactly(budget.epsilon)} at delta = {exactly(budget.delta)}"
    fine = (
        f"the sum of the rounds' Renyi divergences stays within the filter's budget of {permitted}"
    )
    text = f"{kept}, so the claim cannot be certified." if kept else f"{fine}."
    return (
        Verdict.CANNOT_BE_CERTIFIED if kept else Verdict.HOLDS,
        (f"The schedule depended on outputs; {text}",),
        {str(facts.observer): {"filter": bound}},
        {},
        (Defect.NO_FILTER,) if kept else (),
    )


def _kept_by_filter(case: Case) -> str:
    """Return the reason why the filter does not certify the claim; empty if it does."""
    read, evidence, facts, *_ = case
    if read.claim is None:
        return "the ledger states no budget for a filter"
    budget = Budget(*read.claim, **_of_facts(facts), adaptive=True)
    if other := _another_budget(case, budget):
        return other
    if evidence.doubts:
        return f"the record has {Defect.OTHER_COHORTS}"
    if evidence.noiseless is not None:
        return evidence.noiseless.description
    if evidence.run is not None and not budget.keeps(evidence.run.sequence()):
        return "the sum of the rounds' Renyi divergences exceeds the budget"
    return ""


def _another_budget(case: Case, budget: Budget) -> str:
    """Return the difference between the filter's budget and the claim; empty if there is none."""
    read, _, facts, epsilon, delta, _ = case
    # Only the filter's rule has a theorem for schedules that depend on outputs.
    if not (read.rule or "").startswith(_FILTER):
        return f"its budget rule is {read.rule!r}, not {_FILTER!r}"
    if facts[1:] != (read.adjacency, read.observer):
        return "the filter kept its budget for another adjacency or observer"
    # Other outputs may spend the whole budget of the filter, so a smaller claim does not hold.
    if epsilon < budget.epsilon or delta < budget.delta:
        return (
            f"the filter kept epsilon = {exactly(budget.epsilon)} at delta = "
            f"{exactly(budget.delta)}, and other outputs could have spent all of it"
        )
    return ""


def _of_facts(facts: Facts) -> dict[str, Any]:
    return {"adjacency": facts.adjacency, "observer": facts.observer}


def _compare(bounds: dict[str, dict[str, Bound]]) -> None:
    """Compare every certified lower end with every certified upper end for the same observer.

    The server learns at least as much as any other observer, so its upper ends count as well.

    Raises:
        ContradictionError: if a lower end is above an upper end.
    """
    for observer, found in bounds.items():
        pairs = product(found.items(), _above(bounds, observer))
        for (low_name, low), (high_name, high) in pairs:
            if low.lower > high.upper:
                contradict(
                    f"epsilon at delta = {exactly(low.given)} ({observer})",
                    f"{low.lower!r} by {low_name!r} (attained by {low.witness})",
                    f"{high.upper!r} by {high_name!r} ({high.method}, {high.observer})",
                )


def _above(bounds: dict[str, dict[str, Bound]], observer: str) -> Iterator[tuple[str, Bound]]:
    """Yield the bounds, by accountant, whose upper ends hold for an observer."""
    # Single uploads are another view. No other observer's number bounds it.
    wider = (observer,) if observer == SINGLE else (observer, str(Observer.SERVER))
    for seen_by in dict.fromkeys(wider):
        yield from bounds.get(seen_by, {}).items()


def _judge(
    bounds: dict[str, Bound], of_the_server: dict[str, Bound], epsilon: float, delta: float
) -> tuple[Verdict, str]:
    """Judge by the smallest certified upper end and the largest certified lower end.

    The server sees the releases and more, so its upper ends hold for other observers too.
    """
    # The server may learn more than others, so its upper ends count and its lower ends do not.
    best = min([*bounds.values(), *of_the_server.values()], key=lambda bound: bound.upper)
    worst = max(bounds.values(), key=lambda bound: bound.lower)
    at, claimed = f"at delta = {exactly(delta)}", exactly(epsilon)
    if best.upper < min(bound.upper for bound in bounds.values()):
        at += ", for the server as well"
    # The claim is compared only with certified ends. Between them, neither verdict is proved.
    if best.upper <= epsilon:
        return Verdict.HOLDS, (
            f"epsilon is at most {best.ends(6)[1]} {at} ({best.method}); {claimed} was claimed."
        )
    if worst.lower > epsilon:
        return Verdict.FAILS, (
            f"epsilon is at least {worst.ends(6)[0]} {at}, attained by two neighbouring data sets "
            f"({worst.witness}); {claimed} was claimed."
        )
    if not (best.closed or worst.closed):
        return Verdict.CANNOT_BE_CERTIFIED, (
            f"epsilon is at least {worst.ends(6)[0]} {at}, and no finite number is certified from "
            f"above; the claim of {claimed} is neither confirmed nor refuted."
        )
    return Verdict.CANNOT_BE_CERTIFIED, (
        f"epsilon lies in [{worst.ends(6)[0]}, {best.ends(6)[1]}] {at}; the claim of {claimed} "
        "lies inside, so it is neither confirmed nor refuted."
    )
