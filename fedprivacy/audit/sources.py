"""Read the sources of an audit: ledgers, mechanisms, events, and records of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..bound import exactly
from ..errors import (
    ConversionError,
    UnsupportedCombination,
    claimed,
    member,
    refuse,
)
from ..evidence import Defect, RunEvidence
from ..ledger import Joint, Ledger, LedgerRound
from ..mechanisms import CorrelatedNoise, Mechanism
from ..relations import Adjacency, Facts, Observer, Unit
from . import imports
from .imports import Origin, Stated, Trace, Unseen
from .imports.content import beginning

PARAMETERS = "stated parameters"
"""Origin kind of a run that the user typed in."""


@runtime_checkable
class EventLike(Protocol):
    """An event of dp-accounting."""

    def to_named_tuple(self) -> Any:
        """Return the event as a named tuple."""


@runtime_checkable
class StatefulAccountant(Protocol):
    """An accountant of Opacus or Flower."""

    def state_dict(self) -> Any:
        """Return the accountant's state as plain values."""


Books = Ledger | str | PathLike[str]
"""A ledger, or the path of a ledger."""
Source = (
    Mechanism | EventLike | StatefulAccountant | Trace | Mapping[str, Any] | Books | Sequence[Books]
)
"""Everything that can be accounted: a ledger, a mechanism, an event, an imported record, the state
of an accountant as plain values, the path of a ledger or of any importable file, or several ledgers
together."""


@dataclass(frozen=True)
class SourceFacts:
    """A source after reading. None means that the source does not state the value.

    Attributes:
        evidence: the known facts of the run.
        origin: where the source comes from.
        unit: the privacy unit.
        adjacency: the adjacency that the source states.
        observer: the observer that the source states.
        claim: (epsilon, delta) that the source states.
        notes: sentences about the record.
        private: recorded facts about cohorts, only for the auditor.
        recorded: other statements of the source about itself, by name.
        stated: facts that only the user stated, by name.
        adaptive: whether the schedule depended on outputs.
        rule: the rule that decided whether a round fits the budget, in words.
        defects: defects of the source.
        sensitivity: the sensitivity that the noise stds of the source refer to, if known.
        run_without: the run without one stated fact, by the name of that fact.
        granted: assumptions that no record shows and no user stated, by name.
        population: number of units, from a trace or from the user.
        half: the one of ``epsilon`` and ``delta`` that the source states without the other, by
            name.
    """

    evidence: RunEvidence
    origin: Origin
    unit: Unit | None = None
    adjacency: Adjacency | None = None
    observer: Observer | None = None
    claim: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    recorded: dict[str, str] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)
    adaptive: bool = False
    rule: str | None = None
    defects: tuple[Defect, ...] = ()
    sensitivity: float | None = None
    run_without: dict[str, Mechanism] = field(default_factory=dict)
    granted: dict[str, str] = field(default_factory=dict)
    population: int | None = None
    half: Mapping[str, float] = field(default_factory=dict)

    def facts(self, adjacency: Adjacency | str | None, observer: Observer | str | None) -> Facts:
        """Return the facts of the question: the given ones, else those that the source states.

        Raises:
            ParameterError: if the adjacency is neither given nor recorded.
        """
        # Given facts take precedence, so that one record can be judged under several facts.
        adjacency = _said_first(adjacency, self.adjacency)
        if adjacency is None:
            way_out = f"the {self.origin.kind} does not state how neighbouring data sets differ"
            way_out += f"; pass one of {', '.join(Adjacency)}"
            refuse("adjacency", adjacency, "be given", way_out)
        run = self.evidence.run
        return Facts(
            _said_first(self.unit, None if run is None else run.protects),
            member(Adjacency, adjacency=adjacency),
            member(Observer, observer=_said_first(observer, self.observer, Observer.AGGREGATE)),
        )

    def otherwise(self, facts: Facts) -> tuple[str, ...]:
        """Return sentences on facts of the question that contradict the source."""
        questions = (
            ("adjacency", facts.adjacency, self.adjacency),
            ("observer", facts.observer, self.observer),
        )
        return tuple(
            f"The {name} in question is {one}, but the {self.origin.kind} states {stated}."
            for name, one, stated in questions
            if stated is not None and one != stated
        )


def _said_first(*values: Any) -> Any:
    """Return the first value that is not None; None if all are."""
    return next((value for value in values if value is not None), None)


def read_source(
    source: Source, stated: Stated, auditor: str = "", claim: imports.Claim = None
) -> SourceFacts:
    """Read a source.

    Args:
        source: the source to account.
        stated: what the user states about it.
        auditor: person who imports it; empty for the login name of this process.
        claim: the claim that the user states; None for a part that the source may have.

    Raises:
        ParameterError: if a fact is missing, breaks its rule, or is stated although the source has
            it.
        LedgerError: if a ledger is damaged or a file cannot be read.
        ConversionError: if the format is not supported.
    """
    # Closed types come first, because a mechanism may also have the methods of an event.
    if isinstance(source, Mechanism):
        _nothing_to_state(stated, "a mechanism")
        return _of_mechanism(source)
    if isinstance(source, Ledger):
        _nothing_to_state(stated, "a ledger")
        return _of_ledger(source)
    if isinstance(source, str | PathLike):
        return _of_file(Path(source), stated, auditor, claim)
    if isinstance(source, Sequence):
        opened = tuple(map(_opened, source))
        _nothing_to_state(stated, "a ledger")
        return _of_ledger(Joint(opened))
    return _of_trace(_traced(source, stated, auditor, claim), stated, claim)


def _traced(
    source: Trace | Mapping[str, Any] | EventLike | StatefulAccountant,
    stated: Stated,
    auditor: str,
    claim: imports.Claim,
) -> Trace:
    """Return a source of another program as a trace."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, Mapping):
        origin = partial(Origin.imported, by=auditor)
        return imports.read_data(dict(source), origin, "the mapping", stated, claim)
    if isinstance(source, EventLike):
        return _of_event(source, auditor)
    # A model has a state_dict too, and its tensors are no record.
    if isinstance(source, StatefulAccountant) and "ccountant" in type(source).__name__:
        origin = partial(Origin.imported, by=auditor)
        state = dict(source.state_dict())
        return imports.read_data(state, origin, type(source).__name__, stated, claim)
    if type(source).__module__.startswith("dp_accounting"):
        return _of_accountant(source, auditor)
    way_out = "pass a mechanism, a ledger, a dp-accounting event, or the path of a file"
    refuse("source", type(source).__name__, "be a mechanism or the record of a run", way_out)


_ANSWERS = ("rounds", "noise_multiplier")
"""Facts that only a configuration may lack."""


def _nothing_to_state(stated: Stated, what: str) -> None:
    for name in ("sampling", "population", "unit", *Unseen.__members__, *_ANSWERS):
        if getattr(stated, name) is not None:
            refuse(name, str(getattr(stated, name)), "be left out", f"{what} states it")


def _of_file(path: Path, stated: Stated, auditor: str, claim: imports.Claim) -> SourceFacts:
    # The first line identifies a ledger; the name of the file does not matter.
    if imports.is_ledger(beginning(path)):
        _nothing_to_state(stated, "a ledger")
        return _of_ledger(Ledger.open(path))
    return _of_trace(imports.read(path, auditor, stated, claim), stated, claim)


def _opened(source: Books) -> Ledger:
    """Return one ledger out of several."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        if imports.is_ledger(beginning(path)):
            return Ledger.open(path)
        refuse("source", str(path), "be a ledger if several sources are audited together", _APART)
    if not isinstance(source, Ledger):
        refuse("source", type(source).__name__, "be a ledger or its path in a list", _EACH)
    return source


_EACH = "fp.audit.each([a, b]) judges states and records of other programs separately"
_APART = "add mechanisms (a + b); fp.audit.each judges records of other programs separately"


def _of_event(event: EventLike, auditor: str) -> Trace:
    # Any object may have this method, but only events of dp-accounting are understood.
    if not type(event).__module__.startswith("dp_accounting"):
        raise ConversionError(f"a {type(event).__name__} cannot be read")
    # Imported here, because only its events need dp-accounting.
    from ..integrations.event_json import runs_of

    return Trace(Origin.imported("dp-accounting event", by=auditor), run=runs_of(event))


def _of_accountant(accountant: Any, auditor: str) -> Trace:
    """Return the events of an accountant of dp-accounting, with its adjacency."""
    event, relation = getattr(accountant, "ledger", None), accountant.neighboring_relation
    if not isinstance(event, EventLike):
        refuse("source", type(accountant).__name__, "have composed an event", "compose one first")
    from ..integrations.event_json import adjacency_named

    return replace(_of_event(event, auditor), adjacency=adjacency_named(relation.name))


def accountable(read: SourceFacts, facts: Facts) -> tuple[RunEvidence, tuple[Defect, ...]]:
    """Return the evidence that is priced, and all defects of the source.

    The epsilon may be infinite: ``evidence.noiseless`` then gives the reason, and no account is
    made.

    Raises:
        UnsupportedCombination: if the rounds depended on outputs, or another mechanism ran.
    """
    # Composed rounds belong to one outcome. Other outputs would have led to other rounds.
    if read.adaptive:
        raise UnsupportedCombination(
            f"the schedule of {read.origin.name} depended on outputs, so the composition of "
            "its rounds has no certified epsilon; audit it against the budget of its filter"
        )
    evidence, wrong = read.evidence.priced(facts)
    return evidence, (*wrong, *read.defects)


def _of_mechanism(run: Mechanism) -> SourceFacts:
    origin = Origin("mechanism")
    return SourceFacts(RunEvidence(run, run, _count(run)), origin, unit=run.protects)


def _of_trace(trace: Trace, stated: Stated, claim: imports.Claim) -> SourceFacts:
    """Return a trace with the facts that the user stated; the result shows the two separately."""
    imports.check_asked(trace, stated, claim)
    recorded_unit = trace.unit is not None
    trace = imports.with_unit(trace, stated)
    made = imports.assemble(trace, stated)
    typed = trace.origin.kind == PARAMETERS
    given = trace.other_facts | ({"trials": str(trace.trials)} if trace.trials else {})
    # For typed parameters no record exists, so everything is the user's statement.
    recorded, said = ({}, given) if typed else (given, {})
    applies = {
        Defect.STATED: typed,
        Defect.IMPORTED: not typed,
        Defect.CONTRADICTED: bool(made.contradictions),
        Defect.GAPS: bool(trace.missing),
    }
    gaps = [f"Rounds are missing: {'; '.join(trace.missing)}."] * applies[Defect.GAPS]
    return SourceFacts(
        RunEvidence(
            run=made.run,
            certain=made.certain,
            # A trace of a whole run lists no rounds, so its steps are counted.
            rounds=sum(times for _, times in trace.rounds) or _count(made.run),
            doubts=made.doubts,
            size_doubts=made.size_doubts,
            follows=made.follows,
            noiseless=made.noiseless,
        ),
        origin=trace.origin,
        unit=trace.unit,
        adjacency=trace.adjacency,
        observer=trace.observer,
        claim=trace.claim,
        half=trace.half,
        notes=(*made.contradictions, *gaps),
        recorded=recorded,
        stated=said | replace(stated, unit=None if recorded_unit else stated.unit).in_words(),
        defects=_those(applies),
        sensitivity=trace.sensitivity,
        run_without=made.run_without,
        granted=made.granted | ({"rates": PUBLIC_RATES} if trace.rounds else {}),
        population=_population(trace, stated),
    )


def _population(trace: Trace, stated: Stated) -> int | None:
    """Return the number of units: the stated one, else the largest recorded one."""
    said = stated.population, getattr(stated.sampling, "population", None)
    recorded = (rounds.population for rounds, _ in trace.rounds)
    known = [n for n in said if n is not None] or [n for n in recorded if n is not None]
    return max(known, default=None)


def _of_ledger(ledger: Ledger | Joint) -> SourceFacts:
    rounds = ledger.alike
    evidence = RunEvidence.of(ledger)
    notes, private, defects = _of_its_lines(ledger, rounds, evidence)
    if evidence.planned is not None:
        notes += ("Some rounds used mechanisms that are not in the ledger's plan.",)
        defects = (Defect.UNPLANNED, *defects)
    return SourceFacts(
        evidence,
        origin=Origin("fedprivacy ledger", ledger.name, ledger.digest),
        **ledger.facts._asdict(),
        claim=ledger.claim,
        notes=notes,
        private=private,
        recorded=_recorded(ledger),
        adaptive=ledger.schedule == "adaptive",
        rule=ledger.budget_rule,
        defects=defects,
        granted=_granted(rounds) | _granted_of_copies(ledger),
    )


UNCOPIED = "no other copy of the ledger was resumed (copies are audited together: fp.audit([a, b]))"
"""Assumption for a ledger that was resumed."""
UNCOPIED_TOGETHER = "no other copy of these ledgers was resumed"
"""The same assumption for several ledgers."""


def _granted_of_copies(ledger: Ledger | Joint) -> dict[str, str]:
    if not ledger.resumed:
        return {}
    return {"copies": UNCOPIED if isinstance(ledger, Ledger) else UNCOPIED_TOGETHER}


PUBLIC_RATES = "the sampling of units and the number of rounds do not depend on the data"
"""Assumption for every record of another program."""


UNSTATED_NOISE = (
    "mechanisms that do not state their noise had the planned noise (a mechanism states it in "
    "noise_ratios, and recorded noise is compared with it)"
)
"""Assumption for a user-defined mechanism that does not report its noise."""


def _granted(rounds: Iterable[LedgerRound]) -> dict[str, str]:
    """Return the assumptions about rounds, by name."""
    silent = (r for r in rounds if r.spent and not r.mechanism.noise_ratios(r.clip_norm))
    return {"noise": UNSTATED_NOISE} if any(silent) else {}


def _resumes(ledger: Ledger | Joint) -> str:
    """Return how often and on what days a ledger was reopened for writing.

    Only the ledger keeps the exact times. The time between them depends on the rounds, which take
    longer for large cohorts.
    """
    days = sorted({_day(one.when) for one in ledger.resumed})
    shown = days if len(days) <= 4 else [*days[:3], "...", days[-1]]
    return f"{len(ledger.resumed)} ({', '.join(shown)})" if days else "none recorded"


def _day(when: str) -> str:
    try:
        return datetime.fromisoformat(when).date().isoformat()
    except ValueError:
        return "an unreadable date"


def _recorded(ledger: Ledger | Joint) -> dict[str, str]:
    return {
        "seed policy": ledger.seed_statement,
        "schedule": f"{ledger.schedule}; {ledger.budget_rule or 'no budget rule recorded'}",
        "versions": ", ".join(f"{k} {v}" for k, v in sorted(ledger.versions.items())),
        "created": ledger.created,
        "resumes": _resumes(ledger),
    }


_SENTENCES = {
    Defect.OPEN: (
        "The ledger was not closed, so later rounds may be missing from it. The numbers apply "
        "to the recorded rounds."
    ),
    Defect.FIXED_SEED: (
        "The seed was fixed, so the run is not private against anyone who knows it. The "
        "numbers apply to the same run with a secret seed."
    ),
    Defect.NO_ROUNDS: (
        "No round was recorded. The numbers apply to a run without releases. A training loop "
        "that never wrote to the ledger leaves the same record."
    ),
    Defect.UNCONFIRMED: "Some rounds were begun but never confirmed; they count as spent.",
    Defect.ABORTED: (
        "Some rounds were aborted, released no sum and do not count. With amplification by "
        "sampling, this requires that the missing clients differ between rounds. If some "
        "clients were always absent, the mechanism must state it (absent)."
    ),
}
"""Sentences for the reader. A defect without a sentence here is explained by its effect."""


def _of_its_lines(
    ledger: Ledger | Joint, rounds: Sequence[LedgerRound], evidence: RunEvidence
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Defect, ...]]:
    """Return the sentences for every reader, those only for the auditor, and the defects.

    The count of refused contributions is data of a client. The counts of aborted rounds and of
    rounds with too few clients may be as well. Hence no published output contains these counts
    (docs/ledger.md).
    """
    dangling = sum(r.times for r in rounds if r.spent and r.done is None)
    less, aborted = evidence.less, evidence.aborted
    counts = {
        "round(s) were begun but never confirmed": dangling,
        "round(s) were aborted": aborted,
        "contribution(s) were refused and counted as zeros in the sums": _refused(rounds),
    }
    applies = {
        Defect.LESS_NOISE: bool(less),
        Defect.OPEN: not ledger.closed,
        Defect.FIXED_SEED: ledger.reproducible,
        Defect.UNCONFIRMED: dangling > 0,
        Defect.ABORTED: aborted > 0,
        Defect.NO_ROUNDS: not rounds,
    }
    defects = _those(applies)
    sentences = (_SENTENCES[defect] for defect in defects if defect in _SENTENCES)
    private = (f"{count} {what}." for what, count in counts.items() if count)
    return (*ledger.notes, *less, *sentences), tuple(private), defects


def _refused(rounds: Sequence[LedgerRound]) -> int:
    return sum(r.times * r.done.refused for r in rounds if r.done is not None)


def _those(applies: Mapping[Defect, bool]) -> tuple[Defect, ...]:
    """Return the defects that apply, in order."""
    return tuple(defect for defect, is_so in applies.items() if is_so)


def _count(run: Mechanism) -> int:
    """Return the number of rounds; the single release of correlated noise has several."""
    parts = run.sequence()
    return sum(n * (p.rounds if isinstance(p, CorrelatedNoise) else 1) for p, n in parts)


def claim_of(
    read: SourceFacts, claim: tuple[float | None, float | None] | None
) -> tuple[tuple[float, float], dict[str, str], tuple[str, ...]]:
    """Return the claim to judge, the part that the user stated, and notes on differences.

    Raises:
        ParameterError: if there is no claim, only one half, or a value out of range.
    """
    given = given_claim(claim)
    known = given_claim(read.claim) if read.claim is not None else _pair_of(read.half)
    epsilon, delta = (_said_first(*pair) for pair in zip(given, known, strict=True))
    if epsilon is None and delta is None:
        way_out = "the source states no claim: give epsilon and delta (--claim EPSILON,DELTA)"
        refuse("claim", claim, "be (epsilon, delta)", way_out)
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is None:
            way_out = f"its {name} is not stated; give it (--claim-{name})"
            refuse("claim", (epsilon, delta), "be (epsilon, delta)", way_out)
    # Both values are checked, whatever their origin, because a record may be wrong too.
    checked = claimed(epsilon, delta)
    said = f"epsilon = {exactly(checked[0])} at delta = {exactly(checked[1])}"
    notes: tuple[str, ...] = ()
    if known[1] is not None and known[1] != checked[1]:
        notes = (
            f"The {read.origin.kind} states delta = {exactly(known[1])}; the claim is judged "
            f"at the given delta, {exactly(checked[1])}.",
        )
    return checked, {} if given == (None, None) else {"claim": said}, notes


def given_claim(claim: Any) -> tuple[Any, Any]:
    """Return the epsilon and delta of a claim; None for a missing value."""
    if claim is None:
        return None, None
    try:
        epsilon, delta = claim
    except (TypeError, ValueError):
        refuse("claim", claim, "be a pair (epsilon, delta)")
    return epsilon, delta


def _pair_of(half: Mapping[str, float]) -> tuple[float | None, float | None]:
    return half.get("epsilon"), half.get("delta")
