"""Several ledgers as one record: diverged copies of a run, or different runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, cmp_to_key
from typing import NamedTuple

from ..errors import refuse, require
from ..relations import Facts
from .history import Resumed
from .ledger import Ledger
from .rounds import LedgerRound, Trail

_ADAPTIVE = "one filter for each ledger, and no theorem here adds their budgets"


class LedgerPart(NamedTuple):
    """The rounds that one ledger adds to those before it.

    Attributes:
        ledger: the ledger.
        start: its first round that no earlier ledger has.
    """

    ledger: Ledger
    start: int


@dataclass(frozen=True)
class Joint:
    """Ledgers that are audited together, with the same properties as one ledger.

    Copies of one ledger share their first rounds, which count once. All further rounds of each copy
    count. Ledgers of different runs count in full. A round that was in progress when the ledger was
    copied counts once, because no copy can confirm it. If several copies did confirm it, the
    machine was cloned during the run, and the round counts once for each.

    Args:
        ledgers: at least one.

    Raises:
        ParameterError: if there is none, or the ledgers differ in unit, adjacency or observer.
    """

    ledgers: tuple[Ledger, ...]

    def __post_init__(self) -> None:
        require(self.ledgers, "source", [], "contain at least one ledger", "pass their paths")
        first, *more = self.ledgers
        for one in more:
            for name in Facts._fields:
                mine, other = getattr(one.facts, name), getattr(first.facts, name)
                if mine != other:
                    rule = f"be {str(other)!r} as in {first.path}: losses under two do not add up"
                    refuse(f"{name} of {one.path}", str(mine), rule, "audit the ledgers separately")

    @cached_property
    def parts(self) -> tuple[LedgerPart, ...]:
        """The ledgers with their additional rounds, including ledgers that add none."""
        by_nonce: dict[str, list[Ledger]] = {}
        for one in self.ledgers:
            by_nonce.setdefault(one.nonce, []).append(one)
        return tuple(part for held in by_nonce.values() for part in _parts(held))

    @property
    def alike(self) -> tuple[LedgerRound, ...]:
        """Every begun round once, equal ones of a ledger merged; ``part`` is its index."""
        return tuple(
            replace(one, part=number)
            for number, (ledger, start) in enumerate(self.parts)
            for one in ledger.alike_from(start)
        )

    @property
    def facts(self) -> Facts:
        """Unit, adjacency and observer of all ledgers."""
        return self.ledgers[0].facts

    @property
    def claim(self) -> tuple[float, float] | None:
        """The common claim; None if claims differ."""
        return self.ledgers[0].claim if len({one.claim for one in self.ledgers}) == 1 else None

    @property
    def schedule(self) -> str:
        """Schedule: "fixed" if the rounds of all ledgers were fixed beforehand, else "adaptive"."""
        return "adaptive" if any(one.schedule == "adaptive" for one in self.ledgers) else "fixed"

    @property
    def budget_rule(self) -> str | None:
        """The rule that decided whether a round fits, in words; None if the rules differ."""
        if len(self.ledgers) > 1 and self.schedule == "adaptive":
            return _ADAPTIVE
        rules = {one.budget_rule for one in self.ledgers}
        return next(iter(rules)) if len(rules) == 1 else None

    @property
    def closed(self) -> bool:
        """Whether every run is complete."""
        return all(one.closed for one in self.ledgers)

    @property
    def reproducible(self) -> bool:
        """Whether any run had a fixed seed."""
        return any(one.reproducible for one in self.ledgers)

    @property
    def seed_statement(self) -> str:
        """The meaning of the seed policies; the worst one of all ledgers."""
        return max(self.ledgers, key=lambda one: one.reproducible).seed_statement

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the software that created the ledgers, by name."""
        found: dict[str, dict[str, None]] = {}
        for one in self.ledgers:
            for name, version in one.versions.items():
                found.setdefault(name, {})[version] = None
        return {name: " and ".join(versions) for name, versions in found.items()}

    @property
    def created(self) -> str:
        """Creation times, without duplicates."""
        return ", ".join(dict.fromkeys(one.created for one in self.ledgers))

    @property
    def resumed(self) -> tuple[Resumed, ...]:
        """Times of reopening for writing; those that copies share are listed once."""
        return tuple(sorted({when for one in self.ledgers for when in one.resumed}))

    @property
    def name(self) -> str:
        """The names of the files, with their folders if names are equal."""
        return ", ".join(map(self._called, self.ledgers))

    def _called(self, ledger: Ledger) -> str:
        path = ledger.path
        alike = sum(one.path.name == path.name for one in self.ledgers) > 1
        return f"{path.parent.name}/{path.name}" if alike else path.name

    @property
    def digest(self) -> str:
        """SHA-256 of every file, in hexadecimal."""
        return ", ".join(one.digest for one in self.ledgers)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for readers of the files, and the rounds that copies share."""
        several = len(self.ledgers) > 1
        names = (f"{self._called(one)}: " if several else "" for one in self.ledgers)
        text = [
            f"{name}{note}"
            for name, one in zip(names, self.ledgers, strict=True)
            for note in one.notes
        ]
        return (*self._shared, *text)

    @property
    def _shared(self) -> Iterator[str]:
        for ledger, start in self.parts:
            if start:
                yield (
                    f"{self._called(ledger)} shares its first {start} rounds with another copy of "
                    "its run; they count once"
                )


def _parts(copies: Sequence[Ledger]) -> Iterator[LedgerPart]:
    """Yield copies of one ledger with the rounds that each adds to those before it."""
    before: list[Trail] = []
    for ledger in _in_order(copies):
        trail = ledger.trail
        start = max((trail.shared(other) for other in before), default=0)
        last = start - 1
        ends = {other.end(last) for other in before if trail.shared(other) == start}
        yield LedgerPart(ledger, last if start and trail.released_again(last, ends) else start)
        before.append(trail)


def _in_order(copies: Sequence[Ledger]) -> list[Ledger]:
    """Return copies so that one that confirmed a shared round precedes those that did not."""
    trails = [one.trail for one in copies]

    def first_of(trail: Trail, shared: int, by_end: bool) -> int:
        """Return the first copy that continues like this one after the shared rounds."""
        end = trail.end(shared - 1)
        return next(
            number
            for number, other in enumerate(trails)
            if other is trail
            or (by_end and other.shared(trail) >= shared and other.end(shared - 1) == end)
            or other.shared(trail) > shared
        )

    def order(one: int, other: int) -> int:
        mine, its = trails[one], trails[other]
        shared = mine.shared(its)
        by_end = bool(shared) and mine.end(shared - 1) != its.end(shared - 1)
        if by_end and mine.standing(shared - 1) != its.standing(shared - 1):
            return mine.standing(shared - 1) - its.standing(shared - 1)
        return first_of(mine, shared, by_end) - first_of(its, shared, by_end)

    return [copies[i] for i in sorted(range(len(copies)), key=cmp_to_key(order))]
