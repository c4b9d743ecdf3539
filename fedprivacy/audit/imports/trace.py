"""What every importer returns: rounds as another program recorded them, and what it did not say."""

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
    settle,
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
    """What noisy sums were divided by."""

    PUBLIC = "public"
    """A number that does not follow the data."""
    REALISED = "realised"
    """The number of units that came, or another that follows them."""


class Unseen(StrEnum):
    """What no trace of another program shows: what is taken for granted unless it is stated."""

    steps_per_round = "each recorded round released one noisy sum"
    missing_shares = "all of the noise arrived"
    denominator = PUBLIC_DENOMINATOR
    trials = "this run was the only one on its data"


@dataclass(frozen=True)
class Origin:
    """Where what was audited comes from.

    Attributes:
        kind: what it is, such as "fedprivacy ledger" or "Opacus accountant state".
        name: the file's name; empty where there is none.
        sha256: of the file, in hexadecimal; empty where there is none.
        by: who imported it; empty for ledgers and mechanisms of ours.
        at: when it was imported, ISO 8601, UTC; empty for ledgers and mechanisms of ours.
    """

    kind: str
    name: str = ""
    sha256: str = ""
    by: str = ""
    at: str = ""

    @classmethod
    def imported(cls, kind: str, name: str = "", sha256: str = "", by: str = "") -> Origin:
        """Return the origin of something that is imported now, by a person or this login."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(kind, name, sha256, by or _login(), now)

    @property
    def told(self) -> dict[str, str]:
        """What is said of something that another program wrote; nothing of what is ours."""
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
    # No login name in containers and on some systems: an audit must not fail for it.
    except (OSError, KeyError, ImportError):
        return "not known"


@dataclass(frozen=True)
class Stated:
    """What the user says where a file is silent; None for what is not said.

    Attributes:
        adjacency: how neighbouring data sets differ.
        observer: who looks.
        sampling: a name from ``Sampling``, or a whole scheme.
        population: how many units there are.
        steps_per_round: how many noisy sums of its cohort each recorded round released.
        missing_shares: how many of a cohort's shares of the noise did not arrive.
        denominator: a name from ``Denominator``.
        trials: how many runs were made on these data, this one included.
        unit: whose data is one unit.
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

    def in_words(self) -> dict[str, str]:
        """Return what was said, by name."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Rounds:
    """Rounds that were alike, as far as a record tells; None for what it does not.

    Attributes:
        noise_multiplier: std of the noise in the sum over the clip norm of one unit; 0 where the
            sum had no noise.
        sampling: how units were drawn.
        rate: probability of a unit to take part in a round, or the share of a batch.
        cohort: how many took part.
        population: how many there are.
        per_epoch: how many rounds an epoch has.
        steps_per_round: how many noisy sums of its cohort a round released.
        missing_shares: how many of the cohort's shares of the noise did not arrive.
        partial: whether an epoch may leave units out.

    Raises:
        ParameterError: a value breaks its rule.
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

    def __post_init__(self) -> None:
        settle(self, non_negative, "noise_multiplier")
        settle(self, partial(member, Sampling), "sampling", or_none=True)
        settle(self, partial(counted, 0), "cohort", "missing_shares", or_none=True)
        settle(self, partial(counted, 1), "population", "steps_per_round", or_none=True)
        # By the names that options and files have for them.
        if self.rate is not None:
            rate = probability(sampling_probability=self.rate)
            object.__setattr__(self, "rate", rate)
        if self.per_epoch is not None:
            length = counted(1, rounds_per_epoch=self.per_epoch)
            object.__setattr__(self, "per_epoch", length)
        _check_flag(partial=self.partial)


@dataclass(frozen=True)
class Trace:
    """A run as another program recorded it.

    Attributes:
        origin: the format, the file and who imported it.
        rounds: neighbouring rounds that were alike, with their counts; none behind a gap.
        unit: whose data is one unit, where the format says.
        adjacency: where the format says.
        observer: where the format says.
        claim: (epsilon, delta), where the format says both.
        half: the one of ``epsilon`` and ``delta`` that the format says without the other, by name.
        told: other things the file says, by name.
        missing: sentences about rounds that should be there and are not.
        sensitivity: what the claim's own arithmetic took for the clip norm, in clip norms.
        run: gives the whole run under an adjacency, where the format describes one, not rounds.
        denominator: what sums were divided by, where the format says.
        trials: how many runs were made on these data, where the format says.
        by_round: whether every round was written down by itself.
        ordered: whether rounds stand in the order they ran.
        norms: of rounds, how many had which clip norm, where the format says.

    Raises:
        ParameterError: neither rounds nor a run, both of them, or a value that breaks its rule.
    """

    origin: Origin
    rounds: tuple[tuple[Rounds, int], ...] = ()
    unit: Unit | None = None
    adjacency: Adjacency | None = None
    observer: Observer | None = None
    claim: tuple[float, float] | None = None
    told: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    sensitivity: float | None = None
    run: Callable[[Adjacency | str | None], Mechanism] | None = None
    denominator: Denominator | None = None
    trials: int | None = None
    by_round: bool = False
    ordered: bool = True
    norms: Mapping[Rounds, Mapping[float, int]] = field(default_factory=dict)
    half: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.origin, Origin):
            refuse("origin", self.origin, "be an Origin", "see docs/extending.md, An importer")
        object.__setattr__(self, "rounds", _checked_rounds(self.rounds))
        kinds = (("unit", Unit), ("adjacency", Adjacency), ("observer", Observer))
        for name, kind in (*kinds, ("denominator", Denominator)):
            settle(self, partial(member, kind), name, or_none=True)
        if self.claim is not None:
            object.__setattr__(self, "claim", _checked_claim(self.claim))
        _check_half(self.half, self.claim)
        settle(self, positive, "sensitivity", or_none=True)
        settle(self, partial(counted, 1), "trials", or_none=True)
        _check_flag(by_round=self.by_round)
        _check_flag(ordered=self.ordered)
        # Of the two only one would be priced, and the other would go unnoticed.
        if (self.run is None) is (not self.rounds):
            what = "both" if self.rounds else "neither"
            refuse("rounds and run", what, "be one of the two", "a trace holds rounds, or a run")
        _check_words(self.told, self.missing)
        for rounds, norms in self.norms.items():
            require(isinstance(rounds, Rounds), "norms", rounds, "be by Rounds")
            for norm, times in norms.items():
                positive(clip_norm=norm)
                counted(1, rounds=times)


def _check_flag(**named: object) -> None:
    ((name, value),) = named.items()
    require(isinstance(value, bool), name, value, "be True or False")


def _checked_rounds(groups: object) -> tuple[tuple[Rounds, int], ...]:
    """Return pairs of rounds and how many they are, each count checked."""
    rule, way_out = "be pairs of Rounds and how many they are", "such as ((Rounds(1.1), 100),)"
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
    require(known, "half", half, "hold epsilon or delta")
    require(not half or claim is None, "half", half, "be left out with claim, which says both")
    for name, value in half.items():  # type: ignore[attr-defined]
        claimed(*((value, 0.0) if name == "epsilon" else (0.0, value)))


def _check_words(told: object, missing: object) -> None:
    """Refuse what a page could not print."""
    texts = isinstance(told, Mapping) and all(isinstance(s, str) for s in (*told, *told.values()))
    require(texts, "told", told, "be texts by name")
    gaps = isinstance(missing, tuple) and all(isinstance(s, str) for s in missing)
    require(gaps, "missing", missing, "be a tuple of sentences")


Each = TypeVar("Each")


def in_order(rounds: Iterable[tuple[Each, int]]) -> tuple[tuple[Each, int], ...]:
    """Return rounds with their counts, neighbours that are alike together."""
    alike = groupby(rounds, key=lambda group: group[0])
    return tuple((kind, sum(times for _, times in groups)) for kind, groups in alike)


def with_unit(trace: Trace, stated: Stated) -> Trace:
    """Return a trace with the unit that was stated, where it does not say one itself.

    Raises:
        ParameterError: it says another, or there is no such unit.
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
    """Return the noise multiplier from what a record has of noise; 0 where there was none.

    Args:
        noise_multiplier: std of the noise in the sum over the clip norm.
        noise_std: std of the noise in the sum.
        clip_norm: norm that each unit's contribution was clipped to.
        where: which round, for messages.

    Raises:
        UnsupportedCombination: the two disagree.
        ParameterError: neither is whole, or a value breaks its rule.
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
    # Written decimals agree to their digits, not to the last bit.
    if noise_multiplier is not None and not math.isclose(noise_multiplier, ratio, rel_tol=1e-6):
        raise UnsupportedCombination(
            f"{where} has noise_multiplier = {noise_multiplier:g}, but noise_std / clip_norm = "
            f"{ratio:g}; record the one that is true"
        )
    # A quotient that underflows is very little noise, which is not the same as none.
    return ratio if std == 0.0 else positive(noise_multiplier=ratio)
