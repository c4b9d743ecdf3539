"""The contents of a ledger, read from its lines."""

from __future__ import annotations

from pathlib import Path

from ..mechanisms import Mechanism
from ..relations import Facts
from . import lines
from .history import History, Resumed
from .rounds import LedgerRound, Trail


class Contents:
    """The contents of a ledger. ``Ledger`` adds writing.

    Args:
        path: the file.
        history: the state after its lines.
    """

    def __init__(self, path: Path, history: History) -> None:
        self.path = path
        self._history = history

    @property
    def _header(self) -> lines.HeaderLine:
        assert self._history.header is not None
        return self._history.header

    @property
    def nonce(self) -> str:
        """A value that no other ledger shares; for older files without one, the path."""
        return self._header.nonce or str(self.path.resolve())

    @property
    def facts(self) -> Facts:
        """Unit, adjacency and observer of the run."""
        return Facts(self._header.unit, self._header.adjacency, self._header.observer)

    @property
    def claim(self) -> tuple[float, float] | None:
        """The (epsilon, delta) that the run should keep."""
        return self._header.claim

    @property
    def schedule(self) -> str:
        """Whether rounds were "fixed" beforehand or "adaptive"."""
        return self._header.schedule

    @property
    def budget_rule(self) -> str | None:
        """The rule that decided whether a round fits, in words."""
        return self._header.budget_rule

    @property
    def seed_policy(self) -> str:
        """Source of the noise's randomness: "operating system" or "fixed"."""
        return self._header.seed_policy

    @property
    def reproducible(self) -> bool:
        """Whether the run had a fixed seed, and so no privacy against an observer who knows it."""
        return self._header.seed_policy is lines.SeedPolicy.FIXED

    @property
    def seed_statement(self) -> str:
        """The meaning of the seed policy, for reports."""
        return (
            "reproducible: not private" if self.reproducible else "seeded by the operating system"
        )

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the software that created the ledger, by name."""
        return dict(self._header.versions)

    @property
    def created(self) -> str:
        """When the ledger was created, ISO 8601, UTC."""
        return self._header.created

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def description(self) -> str:
        """The free text given."""
        return self._header.description

    @property
    def plan(self) -> Mechanism | None:
        """The whole run as planned, if given."""
        return self._history.plan

    @property
    def closed(self) -> bool:
        """Whether the run is complete; if not, later rounds may be missing."""
        return self._history.closed

    @property
    def rounds(self) -> tuple[LedgerRound, ...]:
        """Every begun round, in order, as single objects: half a gigabyte for a million."""
        return tuple(self._history.rounds)

    @property
    def alike(self) -> tuple[LedgerRound, ...]:
        """Every begun round; rounds that differ only in number and mask are merged."""
        return tuple(self._history.rounds.alike())

    @property
    def position(self) -> tuple[int, str]:
        """The end of the ledger, as ``place`` returns it, without waiting for the disk."""
        return self._history.lines, self._history.check

    @property
    def resumed(self) -> tuple[Resumed, ...]:
        """Times of reopening for writing. Earlier releases did not record them."""
        return tuple(self._history.resumed)

    @property
    def trail(self) -> Trail:
        """Marks of the rounds, which differ from those of a copy. They grow with each round."""
        return self._history.rounds.trail

    def alike_from(self, round: int) -> tuple[LedgerRound, ...]:
        """Return the result of ``alike`` without the rounds before ``round``."""
        return tuple(self._history.rounds.alike(round))

    @property
    def begun_rounds(self) -> int:
        """Number of begun rounds, aborted ones included."""
        return len(self._history.rounds)

    @property
    def spent_rounds(self) -> int:
        """Number of rounds that count."""
        return self._history.rounds.spent

    @property
    def digest(self) -> str:
        """SHA-256 of the file as it was read or written, in hexadecimal."""
        return self._history.digest

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for readers: repairs, left-out lines, and reasons why the record is void."""
        void = (f"the run declared its record void: {reason}" for reason in self.voids)
        return (*self._history.notes, *void)

    @property
    def voids(self) -> tuple[str, ...]:
        """Reasons why the run declared its record void, without the lifted ones."""
        return tuple(self._history.voids.values())
