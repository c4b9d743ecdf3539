"""What a budget has spent, and which rounds of which ledgers are in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import LedgerError
from ..evidence import as_released
from ..ledger import Ledger, Round, Trail
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from ..privacy_loss import PrivacyLoss
from .renyi_filter import RenyiFilter


@dataclass
class Charged:
    """Which rounds of one ledger, or of one of several different copies, were counted.

    Attributes:
        rounds: their numbers.
        open: those that were not confirmed yet: their noise may turn out to be less.
        rows: rows of correlated noise that were released, by their runs.
        position: where the ledger ended when all its rounds were in; none before.
        trail: the ledger's, as far as it was looked at.
        shared: how many rounds were counted of another copy.
    """

    rounds: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    rows: dict[CorrelatedNoise, set[int]] = field(default_factory=dict)
    position: tuple[int, str] | None = None
    trail: Trail = field(default_factory=Trail)
    shared: int = 0

    def new(self, rounds: Iterable[Round]) -> list[tuple[Round, Mechanism]]:
        """Return what is to be counted: rounds that are not, and those that had less noise.

        Raises:
            LedgerError: one had so little that no epsilon holds.
            UnsupportedCombination: it cannot be said what less noise comes to.
        """
        found = []
        for one in rounds:
            if not one.spent or (one.index in self.rounds and one.index not in self.open):
                continue
            mechanism = priced(one)
            # Counted as planned while it was under way: less noise is counted beside that.
            if one.index not in self.rounds or mechanism is not one.mechanism:
                found.append((one, mechanism))
        return found

    def all_of(self, rounds: Iterable[Round], position: tuple[int, str], trail: Trail) -> None:
        """Note that all rounds of a ledger, which ends there, are in."""
        for one in rounds:
            # What was begun when it was counted may have been aborted since.
            (self.rounds.add if one.spent else self.rounds.discard)(one.index)
            under_way = one.spent and one.done is None
            (self.open.add if under_way else self.open.discard)(one.index)
        self.position = position
        self.trail.follow(trail)

    def begun(self, ledger: Ledger, number: int) -> None:
        """Note that a round of a ledger was counted as it began."""
        self.rounds.add(number)
        self.open.add(number)
        self.trail.follow(ledger.trail)

    def ended(self, ledger: Ledger, number: int, *, spent: bool) -> None:
        """Note that a round that was begun since was confirmed, or aborted."""
        self.trail.follow(ledger.trail)
        self.open.discard(number)
        if not spent:
            self.rounds.discard(number)
        # Its own two lines; what somebody else wrote meanwhile is to be looked at.
        if self.position is not None and ledger.position[0] == self.position[0] + 2:
            self.position = ledger.position


@dataclass
class Spending:
    """What was spent, of one budget or of several that follow one another.

    Attributes:
        rounds: losses of the rounds, with counts.
        rows: rows of correlated noise, of the ledger that was charged last.
        alone: the same, of rounds without a ledger.
        charges: which rounds of which ledgers were counted, by the ledgers' nonces; of copies that
            went different ways, of each.
        process: who spends; a forked child, or a pickled copy, would spend the same budget again.
        states: digests of the states in which rounds without a ledger ended.
        qualified: what the number depends on, as ledgers and loops say.
        kind: under which settings it was counted, by name; they stay.
        filter: of an adaptive schedule.
        void: why nobody can say any more what was spent; empty where one can.
    """

    rounds: dict[PrivacyLoss, int] = field(default_factory=dict)
    rows: dict[CorrelatedNoise, set[int]] = field(default_factory=dict)
    alone: dict[CorrelatedNoise, set[int]] = field(default_factory=dict)
    charges: dict[str, list[Charged]] = field(default_factory=dict)
    process: int = field(default_factory=os.getpid)
    states: set[str] = field(default_factory=set)
    qualified: dict[str, None] = field(default_factory=dict)
    kind: dict[str, object] = field(default_factory=dict)
    filter: RenyiFilter | None = None
    void: str = ""

    def of(self, ledger: Ledger | None) -> Charged | None:
        """Return what is counted of a ledger, whose rows of correlated noise are meant from now on.

        A copy of a ledger that was charged shares its first rounds; the rest of it is counted.
        """
        if ledger is None:
            self.rows = self.alone
            return None
        known = self.charges.setdefault(ledger.nonce, [])
        found = _nearest(known, ledger.trail)
        if found is None or not found.trail.leads_to(ledger.trail):
            found = _parted(known, ledger.trail)
            known.append(found)
        elif len(found.trail.ended) < found.shared:
            _count_again(found, known, ledger.trail)
        self.rows = found.rows
        return found

    def check_process(self) -> None:
        """Refuse another process than the one that spends.

        Raises:
            LedgerError: this is another one.
        """
        if self.process != os.getpid():
            raise LedgerError(
                f"the budget belongs to process {self.process}, and this is process {os.getpid()}, "
                "which has a copy: each process would spend all of it again; ask and spend in the "
                "process that made the budget, or make one in each and share epsilon out"
            )


def _nearest(known: Sequence[Charged], trail: Trail) -> Charged | None:
    """Return which shares most rounds with a ledger; of equal ones one that leads to it."""
    # One ledger is the usual case, asked about in every round.
    if len(known) < 2:
        return known[0] if known else None
    return max(known, key=lambda one: (one.trail.shared(trail), one.trail.leads_to(trail)))


def _parted(known: Sequence[Charged], trail: Trail) -> Charged:
    """Return what is counted of a ledger that none of those leads to: a new one, or a copy.

    A copy shares the first rounds with one of them. Its rows of correlated noise pay for a whole
    run again (docs/theory/correlated_noise.md, "A run that was copied").
    """
    nearest = _nearest(known, trail)
    if nearest is None:
        return Charged()
    shared = nearest.trail.shared(trail)
    # The last one that is shared may have ended in several ways, of which not all count.
    alike = [one for one in known if one.trail.shared(trail) == shared]
    held = {i for one in alike for i in one.rounds if i < shared}
    still = {i for one in alike for i in one.open if i < shared}
    found = Charged(held, still, trail=trail.to(shared), shared=shared)
    _count_again(found, alike, trail)
    return found


def _count_again(found: Charged, known: Sequence[Charged], trail: Trail) -> None:
    """Have the last shared round counted again where copies confirmed it apart.

    It began once and ended twice: a machine was cloned within the round, and released it twice.
    """
    last = found.shared - 1
    ends = {
        one.trail.end(last)
        for one in known
        if one is not found and one.trail.shared(trail) >= found.shared
    }
    if found.shared and trail.released_again(last, ends):
        found.rounds.discard(last)


def priced(one: Round) -> Mechanism:
    """Return a round's mechanism with the noise that was used, where that is less than planned.

    Raises:
        LedgerError: that is so little that no epsilon holds.
        UnsupportedCombination: it cannot be said what it comes to.
    """
    stds = {"planned_std": one.noise_std, "used_std": one.noise_used}
    found = with_less(one.mechanism, clip_norm=one.clip_norm, **stds)
    if found is None:
        raise LedgerError(f"no epsilon holds: round {one.index} had no noise that counts")
    return found


def with_less(
    round_: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return a round as ``as_released`` does; a row with less noise keeps its place in its run."""
    stds = {"planned_std": planned_std, "used_std": used_std}
    found = as_released(round_, clip_norm=clip_norm, **stds)
    if isinstance(found, CorrelatedRow) and isinstance(round_, CorrelatedRow):
        # The first row with less noise pays for a whole run with as little, the next ones go on.
        return round_ if found is round_ else replace(found, row=round_.row)
    return found
