"""Re-account a run: from a ledger, a ledger's path or a mechanism to Bounds and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..accountants import ACCOUNTANTS
from ..answers import accountant_named
from ..bound import Bound, Verdict
from ..budget import Budget
from ..errors import UnsupportedCombination, closed_unit, contradict, member, non_negative, refuse
from ..ledger import Ledger
from ..loss import IDENTITY
from ..mechanisms import Mechanism
from ..mechanisms.actual import single_uploads
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Adjacency, Facts, Observer

Source = Ledger | Mechanism | str | PathLike[str]
"""What can be accounted: an open ledger, a mechanism, or a ledger's path."""

NOT_COUNTED = (
    "Floating-point noise is not the ideal Gaussian (Mironov 2012): what its low bits reveal.",
    "Choosing hyper-parameters, stopping early, keeping the best of several runs on the same data.",
    "Anything released beside the recorded rounds: metrics, logs, cohort sizes, the ledger itself.",
    "Whether participants were really drawn, and contributions really clipped, as recorded.",
)
"""What no epsilon of ours covers; printed in every report."""


_FILTER = "RDP filter"
"""How the rule of an adaptive budget begins."""

SINGLE = "single uploads"
"""The line of a server that no secure sum keeps from seeing each upload by itself."""


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        verdict: whether the claim holds for the recorded rounds.
        reasons: sentences, the deciding one first.
        bounds: epsilon at the claimed delta, by observer and then by accountant. Where shares of
            noise are summed securely, the line ``single uploads`` is what a server would learn
            without that; it takes no part in the verdict.
        claim: (epsilon, delta).
        facts: unit, adjacency and observer that the claim is about.
        run: the mechanism that was accounted; None where nothing was spent.
        rounds: how many rounds were counted.
        unsupported: observers for which no theorem answers, with the reason.
        facts_recorded: what else the source says of itself (seed policy, versions, notes).
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    bounds: dict[str, dict[str, Bound]]
    claim: tuple[float, float]
    facts: Facts
    run: Mechanism | None
    rounds: int
    unsupported: dict[str, str] = field(default_factory=dict)
    facts_recorded: dict[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> Bound:
        """The interval under the claim's own facts: PLD's, or the filter's if adaptive."""
        return next(iter(self.bounds[str(self.facts.observer)].values()))


def account(
    source: Source,
    *,
    delta: float,
    adjacency: Adjacency | str | None = None,
    observer: Observer | str | None = None,
    accountant: str = "pld",
    tolerance: float = 1e-3,
) -> Bound:
    """Return the certified epsilon of what a source spent.

    Args:
        source: a ledger, its path, or a mechanism.
        delta: in [0, 1].
        adjacency: None for what the ledger states.
        observer: None for what the ledger states ("aggregate" for a mechanism).
        accountant: "pld", "rdp" or "advanced".
        tolerance: wanted width of the interval.

    Raises:
        ParameterError: a value out of range, or a mechanism without an adjacency.
        LedgerError: the ledger is damaged or foreign.
        UnsupportedCombination: no theorem covers the run under these facts.
    """
    target = closed_unit(delta=delta)
    read = _read(source)
    if read.adaptive:
        raise UnsupportedCombination(
            "the ledger's schedule depended on outputs, so composing its rounds certifies nothing; "
            "audit it against the budget that its filter kept"
        )
    if read.doubts:
        raise UnsupportedCombination(f"{read.doubts}: what was done was not this run")
    loss = _loss(read, _facts(read, adjacency, observer))
    return accountant_named(accountant, tolerance).compose(loss).epsilon(target)


def audit(
    source: Source,
    *,
    claim: tuple[float, float] | None = None,
    adjacency: Adjacency | str | None = None,
    observer: Observer | str | None = None,
    tolerance: float = 1e-3,
) -> Audit:
    """Re-account a source with every accountant and judge a claim.

    Args:
        source: a ledger, its path, or a mechanism.
        claim: (epsilon, delta); None for the claim that the ledger states.
        adjacency: None for what the ledger states.
        observer: None for what the ledger states ("aggregate" for a mechanism).
        tolerance: wanted width of the PLD intervals.

    Raises:
        ParameterError: no claim anywhere, or one out of range.
        LedgerError: the ledger is damaged or foreign.
        UnsupportedCombination: no theorem covers the run under the claim's facts.
        ContradictionError: two certificates for the run exclude each other.
    """
    read = _read(source)
    epsilon, delta = _claim(read, claim)
    facts = _facts(read, adjacency, observer)
    if read.adaptive:
        return _audit_adaptive(read, facts, epsilon, delta)
    observers = dict.fromkeys([facts.observer, Observer.AGGREGATE, Observer.SERVER])
    bounds: dict[str, dict[str, Bound]] = {}
    unsupported: dict[str, str] = {}
    for seen_by in observers:
        try:
            loss = _loss(read, facts._replace(observer=seen_by))
        except UnsupportedCombination as refusal:
            if seen_by is facts.observer:
                raise
            unsupported[str(seen_by)] = str(refusal)
            continue
        bounds[str(seen_by)] = _every_accountant(loss, delta, tolerance)
    _compare(bounds)
    more = {} if facts.observer is Observer.SERVER else bounds.get(str(Observer.SERVER), {})
    verdict, reason = _judge(bounds[str(facts.observer)], more, epsilon, delta)
    if read.doubts:
        verdict = Verdict.CANNOT_BE_CERTIFIED
        told = "what was done was not this run, whose numbers certify nothing of it"
        reason = f"{read.doubts}: {told}."
    try:
        alone = _single_uploads(read, facts)
        bounds |= {} if alone is None else {SINGLE: _every_accountant(alone, delta, tolerance)}
        _compare(bounds)
    except UnsupportedCombination as refusal:
        unsupported[SINGLE] = str(refusal)
    return Audit(
        verdict=verdict,
        reasons=(reason, *read.notes),
        bounds=bounds,
        claim=(epsilon, delta),
        facts=facts,
        run=read.run,
        rounds=read.rounds,
        unsupported=unsupported,
        facts_recorded=read.recorded,
    )


def _audit_adaptive(read: _Read, facts: Facts, epsilon: float, delta: float) -> Audit:
    """Judge a schedule that depended on outputs.

    Only the budget that a Renyi filter kept holds for it, whatever the rounds came to: other
    outputs would have made other rounds. So the claim must be no smaller than the one that the run
    was begun with, for the same eyes.
    """
    run = read.run
    kept = _kept_by_filter(read, facts, epsilon, delta)
    budget = Budget(*(read.claim or (epsilon, delta)), **_eyes(facts), adaptive=True)
    bound = budget.kept_by_filter(facts)
    if kept:
        bound = replace(bound, upper=math.inf, resolution=(0.0, math.inf))
    permitted = f"epsilon = {budget.epsilon:g} at delta = {budget.delta:g}"
    fine = f"the sum of the rounds' Renyi divergences stays within what its filter's {permitted}"
    told = f"{kept}, so nothing certifies the claim." if kept else f"{fine} permits."
    return Audit(
        verdict=Verdict.CANNOT_BE_CERTIFIED if kept else Verdict.HOLDS,
        reasons=(f"The schedule depended on outputs; {told}", *read.notes),
        bounds={str(facts.observer): {"filter": bound}},
        claim=(epsilon, delta),
        facts=facts,
        run=run,
        rounds=read.rounds,
        facts_recorded=read.recorded,
    )


def _kept_by_filter(read: _Read, facts: Facts, epsilon: float, delta: float) -> str:
    """Return why the filter of a run does not certify a claim; empty where it does."""
    if read.claim is None:
        return "the ledger states no budget that a filter was to keep"
    budget = Budget(*read.claim, **_eyes(facts), adaptive=True)
    if not (read.rule or "").startswith(_FILTER):
        return f"its budget rule is {read.rule!r}, not {_FILTER!r}"
    if read.facts is None or facts[1:] != read.facts[1:]:
        return "the filter kept its budget for another adjacency or observer"
    if epsilon < budget.epsilon or delta < budget.delta:
        return (
            f"the filter kept epsilon = {budget.epsilon:g} at delta = {budget.delta:g}, and other "
            "outputs might have spent it all"
        )
    if read.doubts:
        return read.doubts
    if read.run is not None and not budget.keeps(read.run.sequence()):
        return "the sum of the rounds' Renyi divergences exceeds what the budget permits"
    return ""


def _eyes(facts: Facts) -> dict[str, Any]:
    return {"adjacency": facts.adjacency, "observer": facts.observer}


@dataclass(frozen=True)
class _Read:
    """A source, read."""

    run: Mechanism | None
    rounds: int
    facts: Facts | None = None
    claim: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    recorded: dict[str, str] = field(default_factory=dict)
    adaptive: bool = False
    rule: str | None = None
    certain: Mechanism | None = None
    doubts: str = ""
    aborted: int = 0


def _read(source: Source) -> _Read:
    if isinstance(source, Mechanism):
        return _Read(source, _count(source), certain=source)
    ledger = source if isinstance(source, Ledger) else Ledger.open(Path(source))
    notes = tuple(ledger.notes)
    if not ledger.closed:
        notes += (
            "The ledger was not closed: later rounds may be missing from it. The verdict is about "
            "the rounds it records.",
        )
    if ledger.reproducible:
        notes += (
            "The seed was fixed: the run is not private against whoever knows it. The numbers are "
            "those of the same run with a seed that nobody knows.",
        )
    dangling = sum(1 for r in ledger.rounds if r.spent and r.done is None)
    if dangling:
        notes += (f"{dangling} round(s) were begun and never confirmed; they count as spent.",)
    refused = sum(r.done.refused for r in ledger.rounds if r.done is not None)
    if refused:
        notes += (f"{refused} contribution(s) were refused and left out of the sums.",)
    aborted = sum(1 for r in ledger.rounds if not r.spent)
    if aborted:
        notes += (
            f"{aborted} round(s) were aborted, released nothing and do not count. Where cohorts "
            "amplify, this holds if those who did not answer were not always the same; if some "
            "were away for good, the mechanism must say so (absent).",
        )
    recorded = {
        "seed policy": ledger.seed_statement,
        "schedule": f"{ledger.schedule}; {ledger.budget_rule or 'no budget rule recorded'}",
        "versions": ", ".join(f"{k} {v}" for k, v in sorted(ledger.versions.items())),
        "created": ledger.created,
    }
    return _Read(
        run=ledger.run(),
        rounds=ledger.spent_rounds,
        facts=ledger.facts,
        claim=ledger.claim,
        notes=notes,
        recorded=recorded,
        adaptive=ledger.schedule == "adaptive",
        rule=ledger.budget_rule,
        certain=ledger.certain(),
        doubts="; ".join(ledger.doubts),
        aborted=aborted,
    )


def _count(run: Mechanism) -> int:
    return sum(count for _, count in run.sequence())


def _claim(read: _Read, claim: tuple[float, float] | None) -> tuple[float, float]:
    stated = claim if claim is not None else read.claim
    if stated is None:
        way_out = "the source states no claim: give epsilon and delta (--epsilon, --delta)"
        refuse("claim", claim, "be (epsilon, delta)", way_out)
    try:
        epsilon, delta = stated
    except (TypeError, ValueError):
        refuse("claim", claim, "be a pair (epsilon, delta)")
    return non_negative(epsilon=epsilon), closed_unit(delta=delta)


def _facts(
    read: _Read, adjacency: Adjacency | str | None, observer: Observer | str | None
) -> Facts:
    stated = read.facts
    if stated is None and adjacency is None:
        refuse("adjacency", adjacency, "be given", "a mechanism does not state one")
    unit = stated.unit if stated else read.run.protects if read.run else None
    adjacency = adjacency if adjacency is not None or stated is None else stated.adjacency
    fallback = stated.observer if stated else Observer.AGGREGATE
    return Facts(
        unit,
        member(Adjacency, adjacency=adjacency),
        member(Observer, observer=fallback if observer is None else observer),
    )


def _loss(read: _Read, facts: Facts) -> PrivacyLoss:
    if read.run is None:
        return PrivacyLoss(IDENTITY, facts, theorems=("nothing was released",))
    loss = read.run.privacy_loss(facts.adjacency, facts.observer).under(facts)
    return replace(loss, witness=_witness(read.certain, read.run, loss))


def _witness(certain: Mechanism | None, run: Mechanism, loss: PrivacyLoss) -> Witness | None:
    """Return what is attained by what was surely released."""
    if certain is None:
        return None
    if certain == run:
        return loss.witness
    return certain.privacy_loss(loss.facts.adjacency, loss.facts.observer).witness


def _single_uploads(read: _Read, facts: Facts) -> PrivacyLoss | None:
    """Return the loss to a server that sees each upload by itself; None where nothing is summed."""
    alone = None if read.run is None else single_uploads(read.run)
    if alone is None:
        return None
    if read.aborted:
        raise UnsupportedCombination("the uploads of rounds that were aborted were seen as well")
    loss = alone.privacy_loss(facts.adjacency, Observer.SERVER)
    certain = None if read.certain is None else single_uploads(read.certain)
    return replace(loss, witness=_witness(certain, alone, loss))


def _every_accountant(loss: PrivacyLoss, delta: float, tolerance: float) -> dict[str, Bound]:
    return {
        name: accountant_named(name, tolerance).compose(loss).epsilon(delta) for name in ACCOUNTANTS
    }


def _compare(bounds: dict[str, dict[str, Bound]]) -> None:
    """Hold every certified lower end against every certified upper end for the same eyes.

    What an observer learns is no more than what the server does.

    Raises:
        ContradictionError: a lower end lies above an upper end.
    """
    for eyes, found in bounds.items():
        wider = dict.fromkeys([eyes] if eyes == SINGLE else [eyes, str(Observer.SERVER)])
        above = [(name, bound) for seen in wider for name, bound in bounds.get(seen, {}).items()]
        for low_name, low in found.items():
            for high_name, high in above:
                if low.lower > high.upper:
                    contradict(
                        f"epsilon at delta = {low.given:g} ({eyes})",
                        f"{low.lower!r} by {low_name!r} (attained by {low.witness})",
                        f"{high.upper!r} by {high_name!r} ({high.method}, {high.observer})",
                    )


def _judge(
    bounds: dict[str, Bound], of_the_server: dict[str, Bound], epsilon: float, delta: float
) -> tuple[Verdict, str]:
    """Judge by the smallest certified upper end and the largest certified lower end.

    The server sees the releases and more, so that what holds for it holds for the others.
    """
    best = min([*bounds.values(), *of_the_server.values()], key=lambda bound: bound.upper)
    worst = max(bounds.values(), key=lambda bound: bound.lower)
    at = f"at delta = {delta:g}"
    if best.upper < min(bound.upper for bound in bounds.values()):
        at += ", to the server too"
    if best.upper <= epsilon:
        return Verdict.HOLDS, (
            f"epsilon is at most {best.ends(6)[1]} {at} ({best.method}); {epsilon:g} was claimed."
        )
    if worst.lower > epsilon:
        return Verdict.FAILS, (
            f"epsilon is at least {worst.ends(6)[0]} {at}, attained by two neighbouring data sets "
            f"({worst.witness}); {epsilon:g} was claimed."
        )
    return Verdict.CANNOT_BE_CERTIFIED, (
        f"epsilon lies in [{worst.ends(6)[0]}, {best.ends(6)[1]}] {at}; the claim of {epsilon:g} "
        "is inside, so it can be neither confirmed nor refuted."
    )
