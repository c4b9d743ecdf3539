"""The result type of every importer: rounds that another program recorded, and missing facts."""

from __future__ import annotations

import getpass
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import TypeVar

from ...errors import (
    UnsupportedCombination,
    claimed,
    counted,
    member,
    non_negative,
    positive,
    probability,
    refuse,
    require,
    validate_fields,
)
from ...evidence.revealed import PUBLIC_DENOMINATOR
from ...mechanisms import Mechanism
from ...relations import Adjacency, Observer, Unit
from ...sampling import Scheme


class Sampling(StrEnum):
    """How the units of a round were drawn, in the words of the command line."""

    POISSON = "poisson"
    FIXED = "fixed"
    SHUFFLED = "shuffled"
    WITH_REPLACEMENT = "with-replacement"
    ALLOCATION = "allocation"
    EVERYONE = "everyone"


class Denominator(StrEnum):
    """The divisor of noisy sums."""

    PUBLIC = "public"
    """A number that does not depend on the data."""
    REALISED = "realised"
    """The number of units that took part, or another number that depends on it."""


class Unseen(StrEnum):
    """Facts that no trace of another program shows. The text is the assumption made by default."""

    steps_per_round = "each recorded round released one noisy sum"
    missing_shares = "all of the noise arrived"
    denominator = PUBLIC_DENOMINATOR
    trials = "this run was the only one on its data"


@dataclass(frozen=True)
class Origin:
    """The origin of an audited source.

    Attributes:
        kind: kind of the source, for example "fedprivacy ledger" or "Opacus accountant state".
        name: name of the file; empty if there is none.
        sha256: SHA-256 of the file, in hexadecimal; empty if there is none.
        by: name of the importer; empty for ledgers and mechanisms of this package.
        at: time of the import, ISO 8601, UTC; empty for ledgers and mechanisms of this package.
    """

    kind: str
    name: str = ""
    sha256: str = ""
    by: str = ""
    at: str = ""

    @classmethod
    def imported(cls, kind: str, name: str = "", sha256: str = "", by: str = "") -> Origin:
        """Return the origin of a source that is imported now, by a person or by this login."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(kind, name, sha256, by or _login(), now)

    @property
    def as_facts(self) -> dict[str, str]:
        """The origin in words, for records of other programs; empty for sources of this package."""
        if not self.at:
            return {}
        file = f", {self.name}" if self.name else ""
        check = {"SHA-256 of the source": self.sha256} if self.sha256 else {}
        return {
            "source": f"{self.kind}{file}; not recorded by fedprivacy",
            **check,
            "imported by": self.by,
            "imported": self.at,
        }


def _login() -> str:
    try:
        return f"{getpass.getuser()} (login name)"
    # Containers and some systems have no login name. The audit must not fail for this reason.
    except (OSError, KeyError, ImportError):
        return "not known"


@dataclass(frozen=True)
class Stated:
    """Facts that the user states because the file does not; None for facts not stated.

    Attributes:
        adjacency: the difference between neighbouring data sets.
        observer: the observer.
        sampling: a name from ``Sampling``, or a complete scheme.
        population: number of units.
        steps_per_round: number of noisy sums of the same cohort that each recorded round released.
        missing_shares: number of a cohort's noise shares that did not arrive.
        denominator: a name from ``Denominator``.
        trials: number of runs on the same data, including this one.
        unit: the privacy unit.
        rounds: number of released sums, if a configuration does not hold it.
        noise_multiplier: std of the noise in the sum over the clip norm of one unit, if a
            configuration does not settle it.
        reviewed: codes of the entries that the user has looked at and that the stated facts account
            for; see ``unclear``.
    """

    adjacency: Adjacency | str | None = None
    observer: Observer | str | None = None
    sampling: Sampling | Scheme | str | None = None
    population: int | None = None
    steps_per_round: int | None = None
    missing_shares: int | None = None
    denominator: Denominator | str | None = None
    trials: int | None = None
    unit: Unit | str | None = None
    rounds: int | None = None
    noise_multiplier: float | None = None
    reviewed: str | None = None

    def in_words(self) -> dict[str, str]:
        """Return the stated facts in words, by name."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Rounds:
    """Rounds of one kind, as recorded. None for facts that the record does not state.

    Attributes:
        noise_multiplier: std of the noise in the sum, divided by the clip norm of one unit; 0 if
            the sum had no noise.
        sampling: how units were drawn.
        rate: probability that a unit takes part in a round, or the share of a batch.
        cohort: number of participants.
        population: number of units.
        per_epoch: number of rounds in an epoch.
        steps_per_round: number of noisy sums of its cohort that a round released.
        missing_shares: number of the cohort's noise shares that did not arrive.
        partial: whether an epoch may leave units out.
        take: number of rounds of an epoch that a unit draws.

    Raises:
        ParameterError: if a value breaks its rule.
    """

    noise_multiplier: float
    sampling: Sampling | None = None
    rate: float | None = None
    cohort: int | None = None
    population: int | None = None
    per_epoch: int | None = None
    steps_per_round: int | None = None
    missing_shares: int | None = None
    partial: bool = False
    take: int | None = None

    def __post_init__(self) -> None:
        validate_fields(self, non_negative, "noise_multiplier")
        # A table has thousands of rounds, and most of them state few facts.
        for name, check in _CHECKS:
            if getattr(self, name) is not None:
                validate_fields(self, check, name)
        # The names are those of the options and files.
        if self.rate is not None:
            rate = probability(sampling_probability=self.rate)
            object.__setattr__(self, "rate", rate)
        if self.per_epoch is not None:
            length = counted(1, rounds_per_epoch=self.per_epoch)
            object.__setattr__(self, "per_epoch", length)
        _check_flag(partial=self.partial)


_CHECKS: tuple[tuple[str, Callable[..., object]], ...] = (
    ("sampling", partial(member, Sampling)),
    ("cohort", partial(counted, 0)),
    ("missing_shares", partial(counted, 0)),
    ("population", partial(counted, 1)),
    ("steps_per_round", partial(counted, 1)),
    ("take", partial(counted, 1)),
)
"""The facts of rounds that may be None, with their checks."""


@dataclass(frozen=True)
class Trace:
    """A run as another program recorded it.

    Attributes:
        origin: the format, the file and the importer.
        rounds: consecutive rounds of one kind with their counts. No group continues across a gap.
        unit: the privacy unit, if the format states it.
        adjacency: the adjacency, if the format states it.
        observer: the observer, if the format states it.
        claim: (epsilon, delta), if the format states both.
        half: the one of ``epsilon`` and ``delta`` that the format states without the other, by
            name.
        other_facts: other statements of the file, by name.
        missing: sentences about missing rounds.
        sensitivity: sensitivity in the claim's own arithmetic, in clip norms.
        run: returns the whole run under an adjacency, if the format describes a run, not rounds.
        denominator: divisor of the sums, if the format states it.
        trials: number of runs on the same data, if the format states it.
        by_round: whether every round was recorded separately.
        ordered: whether the rounds are in the order they ran.
        norms: for each kind of rounds, the number with each clip norm, if the format states it.
        contradictions: sentences about the user's statements that the format contradicts.
        unclear: entries of the file that are not understood, in words; the user must review them.

    Raises:
        ParameterError: if neither rounds nor a run are given, or both, or if a value breaks its
            rule.
    """

    origin: Origin
    rounds: tuple[tuple[Rounds, int], ...] = ()
    unit: Unit | None = None
    adjacency: Adjacency | None = None
    observer: Observer | None = None
    claim: tuple[float, float] | None = None
    other_facts: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    sensitivity: float | None = None
    run: Callable[[Adjacency | str | None], Mechanism] | None = None
    denominator: Denominator | None = None
    trials: int | None = None
    by_round: bool = False
    ordered: bool = True
    norms: Mapping[Rounds, Mapping[float, int]] = field(default_factory=dict)
    half: Mapping[str, float] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.origin, Origin):
            refuse("origin", self.origin, "be an Origin", "see docs/extending.md, An importer")
        object.__setattr__(self, "rounds", _checked_rounds(self.rounds))
        kinds = (("unit", Unit), ("adjacency", Adjacency), ("observer", Observer))
        for name, kind in (*kinds, ("denominator", Denominator)):
            validate_fields(self, partial(member, kind), name, or_none=True)
        if self.claim is not None:
            object.__setattr__(self, "claim", _checked_claim(self.claim))
        _check_half(self.half, self.claim)
        validate_fields(self, positive, "sensitivity", or_none=True)
        validate_fields(self, partial(counted, 1), "trials", or_none=True)
        _check_flag(by_round=self.by_round)
        _check_flag(ordered=self.ordered)
        # With both, only one would be priced and the other silently ignored.
        if (self.run is None) is (not self.rounds):
            what = "both" if self.rounds else "neither"
            refuse(
                "rounds, run",
                what,
                "be given one without the other",
                "a trace holds rounds, or a run",
            )
        sentences = ("missing", "contradictions", "unclear")
        _check_texts(self.other_facts, {name: getattr(self, name) for name in sentences})
        for rounds, norms in self.norms.items():
            require(isinstance(rounds, Rounds), "norms", rounds, "map Rounds to clip norms")
            for norm, times in norms.items():
                positive(clip_norm=norm)
                counted(1, rounds=times)


def _check_flag(**named: object) -> None:
    ((name, value),) = named.items()
    require(isinstance(value, bool), name, value, "be True or False")


def _checked_rounds(groups: object) -> tuple[tuple[Rounds, int], ...]:
    """Return pairs of rounds and their number, with every count checked."""
    rule, way_out = "be pairs (Rounds, number)", "such as ((Rounds(1.1), 100),)"
    try:
        pairs = [(kind, times) for kind, times in groups]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        refuse("rounds", groups, rule, way_out)
    for kind, _ in pairs:
        require(isinstance(kind, Rounds), "rounds", kind, rule, way_out)
    return tuple((kind, counted(1, rounds=times)) for kind, times in pairs)


def _checked_claim(claim: object) -> tuple[float, float]:
    try:
        pair: tuple[object, ...] = tuple(claim)  # type: ignore[arg-type]
    except TypeError:
        pair = ()
    if len(pair) != 2:
        refuse("claim", claim, "be a pair (epsilon, delta)")
    return claimed(*pair)


def _check_half(half: object, claim: object) -> None:
    known = isinstance(half, Mapping) and len(half) <= 1 and half.keys() <= {"epsilon", "delta"}
    require(known, "half", half, "contain epsilon or delta")
    require(not half or claim is None, "half", half, "be left out with claim, which says both")
    for name, value in half.items():  # type: ignore[attr-defined]
        claimed(*((value, 0.0) if name == "epsilon" else (0.0, value)))


def _check_texts(other_facts: object, sentences: Mapping[str, object]) -> None:
    """Refuse values that a report could not print."""
    texts = isinstance(other_facts, Mapping) and all(
        isinstance(text, str) for text in (*other_facts, *other_facts.values())
    )
    require(texts, "other_facts", other_facts, "map names to texts")
    for name, value in sentences.items():
        told = isinstance(value, tuple) and all(isinstance(s, str) for s in value)
        require(told, name, value, "be a tuple of sentences")


Each = TypeVar("Each")


def in_order(rounds: Iterable[tuple[Each, int]]) -> tuple[tuple[Each, int], ...]:
    """Return rounds with their counts, equal neighbours merged."""
    alike = groupby(rounds, key=lambda group: group[0])
    return tuple((kind, sum(times for _, times in groups)) for kind, groups in alike)


def with_unit(trace: Trace, stated: Stated) -> Trace:
    """Return a trace with the stated unit, if the trace has none.

    Raises:
        ParameterError: if the trace has another unit, or the stated unit does not exist.
    """
    if stated.unit is None:
        return trace
    unit = member(Unit, unit=stated.unit)
    if trace.unit not in (None, unit):
        refuse("unit", str(unit), f"be {trace.unit}, as the {trace.origin.kind} says")
    return replace(trace, unit=unit)


def multiplier_of(
    noise_multiplier: float | None, noise_std: float | None, clip_norm: float | None, where: str
) -> float:
    """Return the noise multiplier from the recorded noise; 0 if there was none.

    Args:
        noise_multiplier: std of the noise in the sum, divided by the clip norm.
        noise_std: std of the noise in the sum.
        clip_norm: clip norm of each unit's contribution.
        where: name of the round, for messages.

    Raises:
        UnsupportedCombination: if the two disagree.
        ParameterError: if neither is complete, or a value breaks its rule.
    """
    if noise_std is None:
        if noise_multiplier is None:
            rule = "be recorded, or noise_std and clip_norm"
            refuse(f"noise_multiplier of {where}", None, rule)
        return non_negative(noise_multiplier=noise_multiplier)
    if clip_norm is None:
        refuse(f"clip_norm of {where}", None, "be recorded with noise_std")
    std = non_negative(noise_std=noise_std)
    ratio = std / positive(clip_norm=clip_norm)
    # Decimal numbers agree up to their digits, not to the last bit.
    if noise_multiplier is not None and not math.isclose(noise_multiplier, ratio, rel_tol=1e-6):
        raise UnsupportedCombination(
            f"{where} has noise_multiplier = {noise_multiplier:g}, but noise_std / clip_norm = "
            f"{ratio:g}; record the one that is true"
        )
    # An underflow of the quotient means very little noise, which differs from no noise.
    return ratio if std == 0.0 else positive(noise_multiplier=ratio)
