"""Re-account a run: from a ledger, a ledger's path or a mechanism to Bounds and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from ..accountants import ACCOUNTANTS
from ..bound import Bound, Verdict, exactly, plain_bounds
from ..errors import UnsupportedCombination, closed_unit, contradict
from ..evidence import (
    Defect,
    Evidence,
    Numbers,
    conditions,
    judged_with,
    qualified,
    qualifiers,
    worth,
)
from ..evidence.revealed import TELLABLE
from ..loss.strategies.memo import Answers, answered_once
from ..mechanisms import Mechanism
from ..outputs import printable
from ..privacy_loss import PrivacyLoss
from ..questions.budget import Budget
from ..questions.effort import Effort
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import Scheme
from ..version import VERSION
from .diagnose import Question, failing_assumptions, overcounts
from .imports import Origin, Stated
from .sources import Reading, Source, accountable, claim_of, read_source

NOT_COUNTED = (
    "Rounding, where a number is not rounded once and after all of its noise: shares of noise that "
    "clients draw apart, steps accounted together though only their end is seen (T6), gradients "
    "that are not clipped, whatever another program ran (docs/theory/rounding.md).",
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
        verdict: whether the claim holds for the run, as far as the source can show.
        reasons: sentences, the deciding one first.
        bounds: epsilon at the claimed delta, by observer and then by accountant; what they are
            worth is in ``numbers``. Where shares of noise are summed securely, the line ``single
            uploads`` is what a server would learn without that; it takes no part in the verdict.
        claim: (epsilon, delta).
        facts: unit, adjacency and observer that the claim is about.
        run: the mechanism that was accounted; None where nothing was spent.
        rounds: how many rounds were counted.
        unsupported: observers for which no theorem answers, with the reason.
        facts_recorded: what else the source says of itself (seed policy, versions, notes).
        stated: what the user said and the source does not record, by name.
        granted: what no record shows, nobody said, and is taken for granted, by name.
        defects: what is wrong with the source, or only taken on its word.
        numbers: what the bounds are worth; "void" where they certify nothing.
        origin: where the source comes from: its kind, file name and SHA-256, who imported it.
        auditor_only: sentences on cohorts, refused contributions and aborted rounds as they were
            recorded. No epsilon is about them: no page says them, and they are not to be handed on.
        answers: what was asked for, for a page that asks again.
        auditor: who audited; empty where nobody said.
        audited: when, ISO 8601, UTC.
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
    stated: dict[str, str] = field(default_factory=dict)
    granted: dict[str, str] = field(default_factory=dict)
    defects: tuple[Defect, ...] = ()
    numbers: Numbers = Numbers.CERTIFIED
    origin: Origin = field(default_factory=lambda: Origin("mechanism"))
    auditor_only: tuple[str, ...] = ()
    answers: Answers = field(default_factory=dict, repr=False, compare=False)
    auditor: str = ""
    audited: str = ""

    @property
    def bound(self) -> Bound:
        """The interval under the claim's own facts: PLD's, or the filter's if adaptive.

        Look at ``numbers`` before it is shown: a void bound is a bound of another run.
        """
        return next(iter(self.bounds[str(self.facts.observer)].values()))

    @property
    def void(self) -> bool:
        """Whether the bounds certify nothing of the run."""
        return self.numbers is Numbers.VOID

    @property
    def conditions(self) -> tuple[Numbers, ...]:
        """All that the bounds hold under; empty where they are certified without a condition."""
        return conditions(self.defects)

    @property
    def worth(self) -> str:
        """What the bounds are worth, with every condition, as it is to be shown beside them."""
        return ", ".join(self.conditions) or str(Numbers.CERTIFIED)

    @property
    def statement(self) -> str:
        """The verdict with what it depends on, as it is to be shown."""
        return qualified(self.verdict, self.defects)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; bounds that certify nothing are ``void_bounds``."""
        unit, adjacency, observer = self.facts
        return {
            "verdict": str(self.verdict),
            "statement": self.statement,
            "claim": {"epsilon": self.claim[0], "delta": self.claim[1]},
            "unit": None if unit is None else str(unit),
            "adjacency": str(adjacency),
            "observer": str(observer),
            "reasons": list(self.reasons),
            "rounds": self.rounds,
            "numbers": str(self.numbers),
            "void_bounds" if self.void else "bounds": plain_bounds(self.bounds),
            "unsupported": self.unsupported,
            "recorded": self.facts_recorded,
            "stated": self.stated,
            "granted": self.granted,
            "defects": [str(defect) for defect in self.defects],
            "source": vars(self.origin),
            "auditor": self.auditor,
            "audited": self.audited,
            "version": VERSION,
        }

    def __str__(self) -> str:
        epsilon, delta = self.claim
        unit = f"{self.facts.unit} level" if self.facts.unit else "unit not stated"
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        head = (
            f"{self.statement}: epsilon = {exactly(epsilon)} at delta = {exactly(delta)} "
            f"({unit}, {self.facts.adjacency}, {self.facts.observer}; {rounds}; {self.origin.kind})"
        )
        private = (f"  for the auditor alone: {told}" for told in self.auditor_only)
        lines = [head, *(f"  {reason}" for reason in self.reasons), *private]
        return "\n".join(map(printable, lines))


def account(
    source: Source,
    *,
    delta: float,
    adjacency: Adjacency | str | None = None,
    observer: Observer | str | None = None,
    accountant: str = "pld",
    tolerance: float = 1e-3,
    deadline: float | None = None,
    sampling: Scheme | str | None = None,
    population: int | None = None,
) -> Bound:
    """Return the certified epsilon of what a source spent.

    A ledger without its end, one with a fixed seed, a record that was imported: the Bound says so
    in ``qualified`` and wherever it is printed.

    Args:
        source: see ``audit``.
        delta: in [0, 1].
        adjacency: None for what the source states.
        observer: None for what the source states ("aggregate" where it does not).
        accountant: see ``epsilon``.
        tolerance: see ``epsilon``.
        deadline: see ``epsilon``.
        sampling: see ``audit``.
        population: see ``audit``.

    Raises:
        ParameterError: a value out of range, or a fact that is neither recorded nor stated.
        LedgerError: the ledger is damaged, or the file cannot be read.
        ConversionError: the file has none of the formats that are read.
        UnsupportedCombination: no theorem covers the run under these facts.
    """
    # Checked before anything is read: a wrong argument must not cost a long import.
    target = closed_unit(delta=delta)
    effort = Effort(accountant, tolerance, deadline)
    read = read_source(source, Stated(adjacency, observer, sampling, population))
    facts = read.facts(adjacency, observer)
    evidence, defects = accountable(read, facts)
    loss = evidence.loss(facts)
    bound = effort.account(loss).epsilon(target)
    return replace(bound, qualified=qualifiers(defects))


def audit(
    source: Source,
    *,
    claim: tuple[float, float] | None = None,
    adjacency: Adjacency | str | None = None,
    observer: Observer | str | None = None,
    sampling: Scheme | str | None = None,
    population: int | None = None,
    steps_per_round: int | None = None,
    missing_shares: int | None = None,
    denominator: str | None = None,
    trials: int | None = None,
    unit: Unit | str | None = None,
    accountant: str | None = None,
    tolerance: float = 1e-3,
    deadline: float | None = None,
    auditor: str = "",
) -> Audit:
    """Re-account a source with every accountant and judge a claim.

    Args:
        source: a mechanism, a ledger, a dp-accounting event, the state of an accountant as plain
            values, or the path of a ledger or of any file that ``docs/auditing.md`` names.
        claim: (epsilon, delta); None for the claim that the source states.
        adjacency: None for what the source states.
        observer: None for what the source states ("aggregate" where it does not).
        sampling: how units were drawn, where the source does not say: "poisson", "fixed",
            "shuffled", "with-replacement", "allocation", "everyone", or a whole scheme.
        population: how many units there are, where the source does not say.
        steps_per_round: how many noisy sums of its cohort each recorded round released; sums whose
            units were drawn for each alone are rounds of their own.
        missing_shares: how many of a cohort's shares of the noise did not arrive.
        denominator: what sums were divided by: "public", or "realised", a number that follows the
            data.
        trials: how many runs were made on these data, this one included: all are counted, as if
            all were seen.
        unit: whose data is one unit, where the source does not say: "client" or "record".
        accountant: see ``epsilon``; None for all of them, the best of which decides.
        tolerance: see ``epsilon``.
        deadline: see ``epsilon``, all accountants and observers together.
        auditor: who audits, for the report; who imports, where something is imported.

    Raises:
        ParameterError: no claim anywhere, one out of range, or a fact neither recorded nor stated.
        LedgerError: the ledger is damaged, or the file cannot be read.
        ConversionError: the file has none of the formats that are read.
        UnsupportedCombination: no theorem covers the run under the claim's facts.
        ContradictionError: two certificates for the run exclude each other.
    """
    more = (steps_per_round, missing_shares, denominator, trials, unit)
    said = Stated(adjacency, observer, sampling, population, *more)
    # Each accountant is sharp somewhere: without a wish all are asked.
    names = tuple(ACCOUNTANTS) if accountant is None else (accountant,)
    efforts = Efforts(names, Effort(names[0], tolerance, deadline))
    read = read_source(source, said, auditor)
    (epsilon, delta), told = claim_of(read, claim)
    facts = read.facts(adjacency, observer)
    evidence, wrong = read.evidence.under(facts)
    judge = _audit_adaptive if read.adaptive else _audit_fixed
    answers: Answers = {}
    # Observers and accountants ask for the same losses: each is answered once.
    with answered_once(answers):
        findings = judge(_Case(read, evidence, facts, epsilon, delta, efforts))
    verdict, reasons, bounds, unsupported, of_schedule = findings
    defects = (*wrong, *of_schedule, *read.defects)
    # Defects can only weaken a verdict, so they come after it.
    final, changed = judged_with(verdict, defects)
    if final is not verdict and reasons:
        # What changed the verdict is the reason that decides.
        reasons = (*changed, *reasons)
    return Audit(
        verdict=final,
        reasons=(*reasons, *read.otherwise(facts), *read.notes),
        bounds=_worded(bounds, qualifiers(defects)),
        claim=(epsilon, delta),
        facts=facts,
        run=evidence.run,
        rounds=evidence.rounds,
        unsupported=unsupported,
        facts_recorded={**read.recorded, **read.origin.told},
        # Of a mechanism nothing is recorded: all of it is stated, and nothing to be told apart.
        stated={**read.stated, **told} if read.origin.kind != "mechanism" else {},
        granted=read.granted | evidence.granted(facts),
        defects=defects,
        numbers=worth(defects),
        origin=read.origin,
        auditor_only=(*evidence.doubts, *read.private),
        answers=answers,
        auditor=auditor,
        audited=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _worded(
    bounds: dict[str, dict[str, Bound]], qualified: tuple[str, ...]
) -> dict[str, dict[str, Bound]]:
    """Return bounds that say themselves what they are worth."""
    return {
        seen_by: {name: replace(bound, qualified=qualified) for name, bound in found.items()}
        for seen_by, found in bounds.items()
    }


class Efforts(NamedTuple):
    """Which accountants are asked, and how."""

    names: tuple[str, ...]
    effort: Effort

    def bounds(self, loss: PrivacyLoss, delta: float) -> dict[str, Bound]:
        """Return the epsilon of every accountant, by name."""
        return {
            name: self.effort.account(loss, accountant=name).epsilon(delta) for name in self.names
        }


_Findings = tuple[
    Verdict,
    tuple[str, ...],
    dict[str, dict[str, Bound]],
    dict[str, str],
    tuple[Defect, ...],
]
"""Verdict, reasons, bounds, what is unsupported, and defects of the schedule."""


class _Case(NamedTuple):
    """What is judged: a claim about a run, under the claim's facts, and how hard to try."""

    read: Reading
    evidence: Evidence
    facts: Facts
    epsilon: float
    delta: float
    efforts: Efforts


def _audit_fixed(case: _Case) -> _Findings:
    """Judge a schedule that was fixed beforehand, by every accountant and for every observer."""
    bounds, unsupported = _by_observer(case)
    # Before judging: a contradiction means that one of our bounds is wrong.
    _compare(bounds)
    verdict, reasons = _judged(case, bounds)
    cheaper = (Defect.CHEAPER,) if _cheaper_than_planned(case, bounds) else ()
    return verdict, reasons, bounds, unsupported, cheaper


def _by_observer(case: _Case) -> tuple[dict[str, dict[str, Bound]], dict[str, str]]:
    """Return epsilon to each observer by every accountant, and for whom there is none.

    Raises:
        UnsupportedCombination: there is none for the claim's own observer.
    """
    evidence, facts = case.evidence, case.facts
    # The claim's own observer first: its refusal ends the audit, others are only told.
    observers = dict.fromkeys([facts.observer, Observer.AGGREGATE, Observer.SERVER])
    losses: dict[str, Callable[[], PrivacyLoss | None]] = {
        str(one): partial(evidence.loss, facts._replace(observer=one)) for one in observers
    }
    # Beside the verdict: a server without a secure sum is not the claim's observer.
    losses[SINGLE] = partial(evidence.single_uploads, facts)
    bounds: dict[str, dict[str, Bound]] = {}
    unsupported: dict[str, str] = {}
    for eyes, loss_to in losses.items():
        try:
            _check_observer(case, eyes)
            loss = loss_to()
            bounds |= {} if loss is None else {eyes: case.efforts.bounds(loss, case.delta)}
        except UnsupportedCombination as refusal:
            if eyes == str(facts.observer):
                raise
            unsupported[eyes] = str(refusal)
    return bounds, unsupported


def _check_observer(case: _Case, eyes: str) -> None:
    """Refuse another observer before whom the same record is worth less than before the claim's.

    Raises:
        UnsupportedCombination: the record tells it what the account keeps secret.
    """
    if eyes in (SINGLE, str(case.facts.observer)):
        return
    of = case.read.evidence.under
    (evidence, wrong), (_, own) = of(case.facts._replace(observer=Observer(eyes))), of(case.facts)
    # These doubts count nothing: they may be told to anybody.
    more = [told for told in evidence.doubts if told not in case.evidence.doubts]
    more += [str(defect) for defect in wrong if defect not in own]
    if more:
        raise UnsupportedCombination(
            f"nothing is certified before this observer, to whom the record may tell what the "
            f"account keeps secret: {'; '.join(more)}"
        )


def _judged(case: _Case, bounds: dict[str, dict[str, Bound]]) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on the claim, and why."""
    read, evidence, facts, epsilon, delta, _ = case
    # Numbers about another run can neither confirm nor refute.
    if evidence.doubts:
        return Verdict.CANNOT_BE_CERTIFIED, (_of_another_run(evidence.doubts),)
    found = bounds[str(facts.observer)]
    # The server sees all that others see, so that its upper ends hold for them as well.
    more = {} if facts.observer is Observer.SERVER else bounds.get(str(Observer.SERVER), {})
    verdict, reason = _judge(found, more, epsilon, delta)
    if evidence.run is None:
        return verdict, (reason,)
    question = Question(evidence.run, facts, epsilon, found, read.sensitivity, read.careless)
    remarks = overcounts if verdict is Verdict.HOLDS else failing_assumptions
    return verdict, (reason, *remarks(question))


def _of_another_run(doubts: tuple[str, ...]) -> str:
    """Return why numbers certify nothing of what was done."""
    # Only doubts that count nothing may be printed: others tell of single clients.
    tellable = (doubt for doubt in doubts if doubt in TELLABLE)
    what = next(tellable, str(Defect.OTHER_COHORTS))
    told = "so what was done was not this run, whose numbers certify nothing of it"
    return f"The record has {what}, {told}."


def _cheaper_than_planned(case: _Case, bounds: dict[str, dict[str, Bound]]) -> bool:
    """Return whether a run, to any observer, costs less than with its plan's rounds."""
    planned = case.evidence.planned
    if planned is None:
        return False
    as_planned = replace(case.evidence, run=planned, certain=None)
    for seen_by, found in bounds.items():
        if seen_by == SINGLE:
            continue
        try:
            loss = as_planned.loss(case.facts._replace(observer=Observer(seen_by)))
        # Of a plan without a number nothing shows that the rounds cost no less.
        except UnsupportedCombination:
            return True
        above = case.efforts.bounds(loss, case.delta)
        if _least(found) < _least(above) * (1.0 - _ALIKE):
            return True
    return False


_ALIKE = 1e-6
"""Relative distance of upper ends that count as equal: noise in decimals, scaled to and fro."""


def _least(bounds: dict[str, Bound]) -> float:
    return min(bound.upper for bound in bounds.values())


def _audit_adaptive(case: _Case) -> _Findings:
    """Judge a schedule that depended on outputs.

    Only the budget that a Renyi filter kept holds for it, whatever the rounds came to: other
    outputs would have made other rounds. So the claim must be no smaller than the one that the run
    was begun with, for the same eyes.
    """
    # A filter has one rule of its own: no accountant may replace it.
    read, _, facts, epsilon, delta, _ = case
    kept = _kept_by_filter(case)
    budget = Budget(*(read.claim or (epsilon, delta)), **_eyes(facts), adaptive=True)
    bound = budget.kept_by_filter(facts)
    # Without a filter the rounds recorded are one outcome of many: nothing bounds the rest.
    if kept:
        bound = replace(bound, upper=math.inf, resolution=(0.0, math.inf))
    permitted = f"epsilon = {exactly(budget.epsilon)} at delta = {exactly(budget.delta)}"
    fine = f"the sum of the rounds' Renyi divergences stays within what its filter's {permitted}"
    told = f"{kept}, so nothing certifies the claim." if kept else f"{fine} permits."
    return (
        Verdict.CANNOT_BE_CERTIFIED if kept else Verdict.HOLDS,
        (f"The schedule depended on outputs; {told}",),
        {str(facts.observer): {"filter": bound}},
        {},
        (Defect.NO_FILTER,) if kept else (),
    )


def _kept_by_filter(case: _Case) -> str:
    """Return why the filter of a run does not certify a claim; empty where it does."""
    read, evidence, facts, *_ = case
    if read.claim is None:
        return "the ledger states no budget that a filter was to keep"
    budget = Budget(*read.claim, **_eyes(facts), adaptive=True)
    if other := _another_budget(case, budget):
        return other
    if evidence.doubts:
        return f"the record has {Defect.OTHER_COHORTS}"
    if evidence.run is not None and not budget.keeps(evidence.run.sequence()):
        return "the sum of the rounds' Renyi divergences exceeds what the budget permits"
    return ""


def _another_budget(case: _Case, budget: Budget) -> str:
    """Return why the budget that a filter was to keep is not the claim's; empty where it is."""
    read, _, facts, epsilon, delta, _ = case
    # Other rules than the filter's have no theorem for schedules that depend on outputs.
    if not (read.rule or "").startswith(_FILTER):
        return f"its budget rule is {read.rule!r}, not {_FILTER!r}"
    if facts[1:] != (read.adjacency, read.observer):
        return "the filter kept its budget for another adjacency or observer"
    # What the filter kept may be spent by other outputs: a smaller claim is not kept.
    if epsilon < budget.epsilon or delta < budget.delta:
        return (
            f"the filter kept epsilon = {exactly(budget.epsilon)} at delta = "
            f"{exactly(budget.delta)}, and other outputs might have spent it all"
        )
    return ""


def _eyes(facts: Facts) -> dict[str, Any]:
    return {"adjacency": facts.adjacency, "observer": facts.observer}


def _compare(bounds: dict[str, dict[str, Bound]]) -> None:
    """Hold every certified lower end against every certified upper end for the same eyes.

    What an observer learns is no more than what the server does.

    Raises:
        ContradictionError: a lower end lies above an upper end.
    """
    for eyes, found in bounds.items():
        pairs = product(found.items(), _above(bounds, eyes))
        for (low_name, low), (high_name, high) in pairs:
            if low.lower > high.upper:
                contradict(
                    f"epsilon at delta = {exactly(low.given)} ({eyes})",
                    f"{low.lower!r} by {low_name!r} (attained by {low.witness})",
                    f"{high.upper!r} by {high_name!r} ({high.method}, {high.observer})",
                )


def _above(bounds: dict[str, dict[str, Bound]], eyes: str) -> Iterator[tuple[str, Bound]]:
    """Yield the bounds, by accountant, whose upper ends hold for an observer."""
    # Single uploads are another view, which no other observer's number bounds.
    wider = (eyes,) if eyes == SINGLE else (eyes, str(Observer.SERVER))
    for seen_by in dict.fromkeys(wider):
        yield from bounds.get(seen_by, {}).items()


def _judge(
    bounds: dict[str, Bound], of_the_server: dict[str, Bound], epsilon: float, delta: float
) -> tuple[Verdict, str]:
    """Judge by the smallest certified upper end and the largest certified lower end.

    The server sees the releases and more, so that what holds for it holds for the others.
    """
    # Upper ends of the server count, lower ends do not: it may learn more than others.
    best = min([*bounds.values(), *of_the_server.values()], key=lambda bound: bound.upper)
    worst = max(bounds.values(), key=lambda bound: bound.lower)
    at, claimed = f"at delta = {exactly(delta)}", exactly(epsilon)
    if best.upper < min(bound.upper for bound in bounds.values()):
        at += ", to the server too"
    # The claim is compared with certified ends only: in between neither word is proved.
    if best.upper <= epsilon:
        return Verdict.HOLDS, (
            f"epsilon is at most {best.ends(6)[1]} {at} ({best.method}); {claimed} was claimed."
        )
    if worst.lower > epsilon:
        return Verdict.FAILS, (
            f"epsilon is at least {worst.ends(6)[0]} {at}, attained by two neighbouring data sets "
            f"({worst.witness}); {claimed} was claimed."
        )
    return Verdict.CANNOT_BE_CERTIFIED, (
        f"epsilon lies in [{worst.ends(6)[0]}, {best.ends(6)[1]}] {at}; the claim of {claimed} "
        "is inside, so it can be neither confirmed nor refuted."
    )
