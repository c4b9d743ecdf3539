"""Re-account a run: from a ledger, a ledger's path or a mechanism to Bounds and a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..accountants import ACCOUNTANTS
from ..bound import Bound, Verdict, exactly, plain_bounds
from ..errors import closed_unit
from ..evidence import (
    Defect,
    Numbers,
    conditions,
    judged_with,
    qualified,
    qualifiers,
    worth,
)
from ..loss.strategies.memo import Answers, answered_once
from ..mechanisms import Mechanism
from ..outputs import printable
from ..privacy_loss import check_listed
from ..questions.effort import Effort
from ..questions.units import allows_publishing, units_of
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import Scheme
from ..version import VERSION
from .imports import Origin, Stated
from .judging import Case, Efforts, audit_adaptive, audit_fixed
from .sources import Source, accountable, claim_of, read_source

NOT_COUNTED = (
    "Rounding, where a number is not rounded once and after all of its noise: shares of noise that "
    "clients draw apart, steps accounted together though only their end is seen (T6), gradients "
    "that are not clipped, whatever another program ran (docs/theory/rounding.md).",
    "Choosing hyper-parameters, stopping early, keeping the best of several runs on the same data.",
    "Anything released beside the recorded rounds: metrics, logs, cohort sizes, the ledger itself.",
    "Whether participants were really drawn, and contributions really clipped, as recorded.",
)
"""What no epsilon of ours covers; printed in every report."""


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
    if evidence.noiseless is None:
        bound = effort.account(evidence.loss(facts)).epsilon(target)
    else:
        check_listed(facts)
        bound = evidence.noiseless.bound(target, facts)
    known = units_of(evidence.run) if read.population is None else read.population
    large = allows_publishing(target, known, facts.unit)
    return replace(bound, qualified=(*qualifiers(defects), *([large] if large else [])))


def audit(
    source: Source,
    *,
    claim: tuple[float | None, float | None] | None = None,
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
            values, or the path of a ledger or of any file that ``docs/auditing.md`` names. A list
            of ledgers, or of their paths, is audited together: what copies of one run share counts
            once, the rest of each counts, and different runs count in full.
        claim: (epsilon, delta), delta in [0, 1); None for the claim that the source states. None in
            the place of one of the two stands for the source's. What is given counts, and what the
            source states otherwise is told.
        adjacency: None for what the source states.
        observer: None for what the source states ("aggregate" where it does not).
        sampling: how units were drawn, where the source does not say: "poisson", "fixed",
            "shuffled", "with-replacement", "allocation", "everyone", or a whole scheme.
        population: how many units there are, where the source does not say. A delta of one over
            that number, or more, is told with the verdict.
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
    (epsilon, delta), told, differs = claim_of(read, claim)
    facts = read.facts(adjacency, observer)
    evidence, wrong = read.evidence.under(facts)
    judge = audit_adaptive if read.adaptive else audit_fixed
    answers: Answers = {}
    # Observers and accountants ask for the same losses: each is answered once.
    with answered_once(answers):
        findings = judge(Case(read, evidence, facts, epsilon, delta, efforts))
    verdict, reasons, bounds, unsupported, of_schedule = findings
    known = units_of(evidence.run) if read.population is None else read.population
    large = allows_publishing(delta, known, facts.unit)
    defects = (*wrong, *of_schedule, *read.defects, *((Defect.LARGE_DELTA,) if large else ()))
    # Defects can only weaken a verdict, so they come after it.
    final, changed = judged_with(verdict, defects)
    if final is not verdict and reasons:
        # What changed the verdict is the reason that decides.
        reasons = (*changed, *reasons)
    return Audit(
        verdict=final,
        reasons=(*reasons, *_sentence(large), *differs, *read.otherwise(facts), *read.notes),
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


def _sentence(words: str) -> tuple[str, ...]:
    return (f"{words[0].upper()}{words[1:]}.",) if words else ()


def _worded(
    bounds: dict[str, dict[str, Bound]], qualified: tuple[str, ...]
) -> dict[str, dict[str, Bound]]:
    """Return bounds that say themselves what they are worth."""
    return {
        seen_by: {name: replace(bound, qualified=qualified) for name, bound in found.items()}
        for seen_by, found in bounds.items()
    }
