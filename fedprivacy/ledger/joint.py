"""Several ledgers as one record: copies of a run that went different ways, or different runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, cmp_to_key
from typing import NamedTuple

from ..errors import refuse, require
from ..relations import Facts
from .history import Resumed
from .ledger import Ledger
from .rounds import Round, Trail

_ADAPTIVE = "one filter for each ledger, whose budgets no theorem here adds up"


class Part(NamedTuple):
    """What one ledger adds to those before it.

    Attributes:
        ledger: it.
        start: its first round that no ledger before it has.
    """

    ledger: Ledger
    start: int


@dataclass(frozen=True)
class Joint:
    """Ledgers that are audited together; it answers what a ledger answers of its record.

    Copies of one ledger share their first rounds, which count once. The rest of each counts.
    Ledgers of different runs count in full. A round that was under way when the ledger was copied
    counts once: no copy can confirm it. Where several did, the machine was cloned with the run in
    it, and the round counts as often.

    Args:
        ledgers: at least one.

    Raises:
        ParameterError: none, or ledgers that differ in unit, adjacency or observer.
    """

    ledgers: tuple[Ledger, ...]

    def __post_init__(self) -> None:
        require(self.ledgers, "source", [], "hold at least one ledger", "pass their paths")
        first, *more = self.ledgers
        for one in more:
            for name in Facts._fields:
                mine, other = getattr(one.facts, name), getattr(first.facts, name)
                if mine != other:
                    rule = f"be {str(other)!r} as in {first.path}: losses under two do not add up"
                    refuse(f"{name} of {one.path}", str(mine), rule, "audit the ledgers apart")

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The ledgers with what each adds; a ledger that adds nothing is there, too."""
        by_nonce: dict[str, list[Ledger]] = {}
        for one in self.ledgers:
            by_nonce.setdefault(one.nonce, []).append(one)
        return tuple(part for held in by_nonce.values() for part in _parts(held))

    @property
    def alike(self) -> tuple[Round, ...]:
        """Every round begun, once, equal ones of a ledger together; ``part`` says of which."""
        return tuple(
            replace(one, part=number)
            for number, (ledger, start) in enumerate(self.parts)
            for one in ledger.alike_from(start)
        )

    @property
    def facts(self) -> Facts:
        """Unit, adjacency and observer of all."""
        return self.ledgers[0].facts

    @property
    def claim(self) -> tuple[float, float] | None:
        """The claim of all; None where they differ."""
        return self.ledgers[0].claim if len({one.claim for one in self.ledgers}) == 1 else None

    @property
    def schedule(self) -> str:
        """Whether rounds of all were "fixed" beforehand, or of any "adaptive"."""
        return "adaptive" if any(one.schedule == "adaptive" for one in self.ledgers) else "fixed"

    @property
    def budget_rule(self) -> str | None:
        """Which rule decided whether a round fits, in words; None where they differ."""
        if len(self.ledgers) > 1 and self.schedule == "adaptive":
            return _ADAPTIVE
        rules = {one.budget_rule for one in self.ledgers}
        return next(iter(rules)) if len(rules) == 1 else None

    @property
    def closed(self) -> bool:
        """Whether every run was completed."""
        return all(one.closed for one in self.ledgers)

    @property
    def reproducible(self) -> bool:
        """Whether any had a fixed seed."""
        return any(one.reproducible for one in self.ledgers)

    @property
    def seed_statement(self) -> str:
        """What the seed policies mean; the worse of them."""
        return max(self.ledgers, key=lambda one: one.reproducible).seed_statement

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what created the ledgers, by name."""
        found: dict[str, dict[str, None]] = {}
        for one in self.ledgers:
            for name, version in one.versions.items():
                found.setdefault(name, {})[version] = None
        return {name: " and ".join(versions) for name, versions in found.items()}

    @property
    def created(self) -> str:
        """When they were created, each once."""
        return ", ".join(dict.fromkeys(one.created for one in self.ledgers))

    @property
    def resumed(self) -> tuple[Resumed, ...]:
        """When they were opened again to be written to; what copies share is there once."""
        return tuple(sorted({when for one in self.ledgers for when in one.resumed}))

    @property
    def name(self) -> str:
        """The names of the files, with their folders where names are equal."""
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
        """What a reader must know of the files, and what they share."""
        several = len(self.ledgers) > 1
        names = (f"{self._called(one)}: " if several else "" for one in self.ledgers)
        told = [
            f"{name}{note}"
            for name, one in zip(names, self.ledgers, strict=True)
            for note in one.notes
        ]
        return (*self._shared, *told)

    @property
    def _shared(self) -> Iterator[str]:
        for ledger, start in self.parts:
            if start:
                yield (
                    f"{self._called(ledger)} shares its first {start} rounds with another copy of "
                    "its run; they count once"
                )


def _parts(copies: Sequence[Ledger]) -> Iterator[Part]:
    """Yield copies of one ledger with the rounds that each adds to those before it."""
    before: list[Trail] = []
    for ledger in _in_order(copies):
        trail = ledger.trail
        start = max((trail.shared(other) for other in before), default=0)
        last = start - 1
        ends = {other.end(last) for other in before if trail.shared(other) == start}
        yield Part(ledger, last if start and trail.released_again(last, ends) else start)
        before.append(trail)


def _in_order(copies: Sequence[Ledger]) -> list[Ledger]:
    """Return copies so that one that confirmed a shared round comes before those that did not."""
    trails = [one.trail for one in copies]

    def first_of(trail: Trail, shared: int, by_end: bool) -> int:
        """Return the first of the copies that go the same way as one behind the shared rounds."""
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
