"""Re-account a run: from a ledger, a path, a mechanism or a record to bounds and a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..accountants import ACCOUNTANTS
from ..bound import Bound, Verdict, exactly, plain_bounds
from ..errors import closed_unit, refuse
from ..evidence import (
    Defect,
    Validity,
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
from .sources import Source, accountable, claim_of, given_claim, read_source

NOT_COUNTED = (
    "Rounding errors of values that are not rounded once, after all of their noise: noise "
    "shares of separate clients, local steps before the released one (T6), unclipped "
    "gradients, and runs of other programs (docs/theory/rounding.md).",
    "Hyper-parameter search, early stopping, and the choice of the best of several runs on "
    "the same data.",
    "Releases other than the recorded rounds: metrics, logs, cohort sizes, the ledger itself.",
    "Whether the run drew participants and clipped contributions as recorded.",
)
"""Risks that no epsilon of this package covers. Every report prints them."""


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        verdict: whether the claim holds for the run, judged from the source.
        reasons: sentences, the deciding one first.
        bounds: epsilon at the claimed delta, by observer and then by accountant. ``numbers`` states
            their validity. If shares of noise are summed securely, the line ``single uploads``
            shows the epsilon for a server without the secure sum. It does not affect the verdict.
        claim: (epsilon, delta).
        facts: unit, adjacency and observer of the claim.
        run: the accounted mechanism; None if no round was spent.
        rounds: number of counted rounds.
        unsupported: observers without a theorem, with the reason.
        facts_recorded: other statements of the source about itself (seed policy, versions, notes).
        stated: facts that the user stated and the source does not record, by name.
        granted: assumptions that no record shows and no user stated, by name.
        defects: defects of the source, and facts that rest only on its word.
        numbers: the validity of the bounds; "void" if they certify no run.
        origin: where the source comes from: its kind, file name and SHA-256, and its importer.
        auditor_only: recorded sentences on cohorts, refused contributions and aborted rounds. No
            epsilon covers them, so no report prints them. Do not publish them.
        answers: computed losses, for a report that needs them again.
        auditor: name of the auditor; empty if not given.
        audited: time of the audit, ISO 8601, UTC.
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
    numbers: Validity = Validity.CERTIFIED
    origin: Origin = field(default_factory=lambda: Origin("mechanism"))
    auditor_only: tuple[str, ...] = ()
    answers: Answers = field(default_factory=dict, repr=False, compare=False)
    auditor: str = ""
    audited: str = ""

    @property
    def bound(self) -> Bound:
        """The interval under the claim's own facts: from PLD, or from the filter if adaptive.

        Check ``numbers`` before you show it: a void bound belongs to another run.
        """
        return next(iter(self.bounds[str(self.facts.observer)].values()))

    @property
    def void(self) -> bool:
        """Whether the bounds certify no part of the run."""
        return self.numbers is Validity.VOID

    @property
    def conditions(self) -> tuple[Validity, ...]:
        """All conditions of the bounds; empty if they are certified without a condition."""
        return conditions(self.defects)

    @property
    def worth(self) -> str:
        """The validity of the bounds with every condition, to show with them."""
        return ", ".join(self.conditions) or str(Validity.CERTIFIED)

    @property
    def statement(self) -> str:
        """The verdict with its conditions, as it should be shown."""
        return qualified(self.verdict, self.defects)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values. Bounds that certify no run have the key ``void_bounds``."""
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
        private = (f"  for the auditor only: {text}" for text in self.auditor_only)
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
    """Return the certified epsilon that a source spent.

    The Bound states defects of the source in ``qualified``, and prints them. Examples are an
    unclosed ledger, a fixed seed, and an imported record.

    Args:
        source: see ``audit``.
        delta: in [0, 1].
        adjacency: None for that of the source.
        observer: None for that of the source ("aggregate" if it states none).
        accountant: see ``epsilon``.
        tolerance: see ``epsilon``.
        deadline: see ``epsilon``.
        sampling: see ``audit``.
        population: see ``audit``.

    Raises:
        ParameterError: if a value is out of range, or a fact is neither recorded nor stated.
        LedgerError: if the ledger is damaged, or the file cannot be read.
        ConversionError: if the format of the file is not supported.
        UnsupportedCombination: if no theorem covers the run under these facts.
    """
    # Check arguments before reading, so that a wrong one does not cost a long import.
    target = closed_unit(delta=delta)
    effort = Effort(accountant, tolerance, deadline)
    # The question replaces the claim of an audit.
    stated = Stated(adjacency, observer, sampling, population)
    read = read_source(source, stated, claim=(0.0, 0.0))
    facts = read.facts(adjacency, observer)
    evidence, defects = accountable(read, facts)
    if evidence.noiseless is None:
        bound = effort.account(evidence.loss(facts).require_upper()).epsilon(target)
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
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    reviewed: str | None = None,
    accountant: str | None = None,
    tolerance: float = 1e-3,
    deadline: float | None = None,
    auditor: str = "",
) -> Audit:
    """Re-account a source with every accountant and judge a claim.

    Args:
        source: a mechanism, a ledger, a dp-accounting event, the state of an accountant as plain
            values, or a path. The path is that of a ledger or of any file that ``docs/auditing.md``
            names. A list of ledgers or of their paths is audited together. Rounds that copies of
            one run share count once, and all other rounds of each copy count. Different runs count
            in full.
        claim: (epsilon, delta), delta in [0, 1); None for the claim of the source. One of the two
            may be None, to take that value from the source. Given values take precedence, and the
            audit reports any difference from the source.
        adjacency: None for that of the source.
        observer: None for that of the source ("aggregate" if it states none).
        sampling: sampling of the units, if the source does not record it: "poisson", "fixed",
            "shuffled", "with-replacement", "allocation", "everyone", or a complete scheme.
        population: number of units, if the source does not record it. The audit warns if delta is
            at least one over this number.
        steps_per_round: number of noisy sums of the same cohort that each recorded round released.
            Sums with separately drawn units are separate rounds.
        missing_shares: number of a cohort's noise shares that did not arrive.
        denominator: divisor of the sums: "public", or "realised" for a number that depends on the
            data.
        trials: number of runs on the same data, including this one. All are counted, as if all were
            seen.
        unit: privacy unit, if the source does not record it: "client" or "record".
        rounds: number of released sums, if a configuration does not hold it.
        noise_multiplier: std of the noise in the sum over the clip norm of one unit, if a
            configuration does not settle it.
        reviewed: codes of the entries that the file has and that are not understood, separated by
            commas: they were looked at, and the other facts account for them. The error that lists
            the entries gives their code.
        accountant: see ``epsilon``; None for all, with the best one deciding.
        tolerance: see ``epsilon``.
        deadline: see ``epsilon``; it covers all accountants and observers together.
        auditor: name of the auditor, for the report, and of the importer of an imported source.

    Raises:
        ParameterError: if there is no claim, a value is out of range, or a fact is neither recorded
            nor stated.
        LedgerError: if the ledger is damaged, or the file cannot be read.
        ConversionError: if the format of the file is not supported.
        UnsupportedCombination: if no theorem covers the run under the claim's facts.
        ContradictionError: if two certificates for the run exclude each other.
    """
    more = (steps_per_round, missing_shares, denominator, trials, unit)
    last = (rounds, noise_multiplier, _codes(reviewed))
    said = Stated(adjacency, observer, sampling, population, *more, *last)
    # Each accountant is the tightest for some runs, so the default uses all.
    names = tuple(ACCOUNTANTS) if accountant is None else (accountant,)
    efforts = Efforts(names, Effort(names[0], tolerance, deadline))
    read = read_source(source, said, auditor, given_claim(claim))
    (epsilon, delta), stated, differs = claim_of(read, claim)
    facts = read.facts(adjacency, observer)
    evidence, wrong = read.evidence.under(facts)
    judge = audit_adaptive if read.adaptive else audit_fixed
    answers: Answers = {}
    # Observers and accountants need the same losses, so each is computed once.
    with answered_once(answers):
        findings = judge(Case(read, evidence, facts, epsilon, delta, efforts))
    verdict, reasons, bounds, unsupported, of_schedule = findings
    known = units_of(evidence.run) if read.population is None else read.population
    large = allows_publishing(delta, known, facts.unit)
    defects = (*wrong, *of_schedule, *read.defects, *((Defect.LARGE_DELTA,) if large else ()))
    # Defects can only weaken a verdict, so they are applied after it.
    final, changed = judged_with(verdict, defects)
    if final is not verdict and reasons:
        # The reason that changed the verdict is the deciding one.
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
        facts_recorded={**read.recorded, **read.origin.as_facts},
        # A mechanism records no facts, so stated facts need no separate list.
        stated={**read.stated, **stated} if read.origin.kind != "mechanism" else {},
        granted=read.granted | evidence.granted(facts),
        defects=defects,
        numbers=worth(defects),
        origin=read.origin,
        auditor_only=(*evidence.doubts, *read.private),
        answers=answers,
        auditor=auditor,
        audited=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _codes(reviewed: str | None) -> str | None:
    if reviewed is not None and (not isinstance(reviewed, str) or len(reviewed) > 10_000):
        refuse("reviewed", reviewed, "be codes separated by commas", "the error gives the code")
    return reviewed


def _sentence(words: str) -> tuple[str, ...]:
    return (f"{words[0].upper()}{words[1:]}.",) if words else ()


def _worded(
    bounds: dict[str, dict[str, Bound]], qualified: tuple[str, ...]
) -> dict[str, dict[str, Bound]]:
    """Return the bounds with their conditions attached."""
    return {
        seen_by: {name: replace(bound, qualified=qualified) for name, bound in found.items()}
        for seen_by, found in bounds.items()
    }
