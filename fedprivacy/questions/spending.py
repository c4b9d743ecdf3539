"""The spent rounds of a budget, and the ledgers that contain them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import LedgerError
from ..evidence import as_released
from ..ledger import Ledger, LedgerRound, Trail
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from ..privacy_loss import PrivacyLoss
from .renyi_filter import RenyiFilter


@dataclass
class Charged:
    """The counted rounds of one ledger, or of one of several different copies.

    Attributes:
        rounds: their numbers.
        open: rounds that were not confirmed yet; their actual noise may be less.
        rows: released rows of correlated noise, by run.
        position: the end of the ledger when all its rounds were counted; None before.
        trail: the trail of the ledger, up to the last look.
        shared: number of rounds that were already counted from another copy.
    """

    rounds: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    rows: dict[CorrelatedNoise, set[int]] = field(default_factory=dict)
    position: tuple[int, str] | None = None
    trail: Trail = field(default_factory=Trail)
    shared: int = 0

    def new(self, rounds: Iterable[LedgerRound]) -> list[tuple[LedgerRound, Mechanism]]:
        """Return the rounds to count: new rounds, and counted rounds that had less noise.

        Raises:
            LedgerError: one had so little noise that no epsilon holds.
            UnsupportedCombination: no theorem gives the price of the smaller noise.
        """
        found = []
        for one in rounds:
            if not one.spent or (one.index in self.rounds and one.index not in self.open):
                continue
            mechanism = priced(one)
            # Counted as planned while in progress; with less noise it counts again, as released.
            if one.index not in self.rounds or mechanism is not one.mechanism:
                found.append((one, mechanism))
        return found

    def all_of(
        self, rounds: Iterable[LedgerRound], position: tuple[int, str], trail: Trail
    ) -> None:
        """Note that all rounds of a ledger are counted, up to its end ``position``."""
        for one in rounds:
            # A round that was in progress when it was counted may have been aborted since.
            (self.rounds.add if one.spent else self.rounds.discard)(one.index)
            under_way = one.spent and one.done is None
            (self.open.add if under_way else self.open.discard)(one.index)
        self.position = position
        self.trail.follow(trail)

    def begun(self, ledger: Ledger, number: int) -> None:
        """Note that a round of a ledger was counted when it began."""
        self.rounds.add(number)
        self.open.add(number)
        self.trail.follow(ledger.trail)

    def ended(self, ledger: Ledger, number: int, *, spent: bool) -> None:
        """Note that a round that began after counting was confirmed or aborted."""
        self.trail.follow(ledger.trail)
        self.open.discard(number)
        if not spent:
            self.rounds.discard(number)
        # The round wrote two lines. Lines of another writer must still be checked.
        if self.position is not None and ledger.position[0] == self.position[0] + 2:
            self.position = ledger.position


@dataclass
class Spending:
    """The spent rounds of one budget, or of several that follow one another.

    Attributes:
        rounds: losses of the rounds, with counts.
        rows: rows of correlated noise, of the last charged ledger.
        alone: rows of correlated noise, of rounds without a ledger.
        charges: the counted rounds of each ledger, by its nonce; one entry for each diverged copy.
        process: id of the process that spends. A forked child or a pickled copy would spend the
            same budget again.
        states: digests of the states after rounds without a ledger.
        qualified: conditions on the bound, as recorded by ledgers and loops.
        kind: the settings used for counting, by name; they cannot change.
        filter: the filter of an adaptive schedule.
        void: why the amount spent is no longer known; empty if it is known.
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
        """Return the counted part of a ledger, and make its rows of correlated noise current.

        A copy of a charged ledger shares its first rounds. Its other rounds are counted.
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
        """Refuse any process other than the one that spends.

        Raises:
            LedgerError: this is another process.
        """
        if self.process != os.getpid():
            raise LedgerError(
                f"the budget belongs to process {self.process}, and this is process "
                f"{os.getpid()}, which has a copy. Each process would spend the whole budget "
                "again. Use it only in the process that made it, or divide epsilon between "
                "budgets of the processes"
            )


def _nearest(known: Sequence[Charged], trail: Trail) -> Charged | None:
    """Return the entry that shares most rounds with a ledger; on a tie, one that leads to it."""
    # One ledger is the usual case, and every round asks.
    if len(known) < 2:
        return known[0] if known else None
    return max(known, key=lambda one: (one.trail.shared(trail), one.trail.leads_to(trail)))


def _parted(known: Sequence[Charged], trail: Trail) -> Charged:
    """Return the counted part of a ledger that continues no known one: a new one, or a copy.

    A copy shares its first rounds with a known one. Its rows of correlated noise pay for a whole
    run again (docs/theory/correlated_noise.md, "A run that was copied").
    """
    nearest = _nearest(known, trail)
    if nearest is None:
        return Charged()
    shared = nearest.trail.shared(trail)
    # The last shared round may have ended in several ways. Not all of them count.
    alike = [one for one in known if one.trail.shared(trail) == shared]
    held = {i for one in alike for i in one.rounds if i < shared}
    still = {i for one in alike for i in one.open if i < shared}
    found = Charged(held, still, trail=trail.to(shared), shared=shared)
    _count_again(found, alike, trail)
    return found


def _count_again(found: Charged, known: Sequence[Charged], trail: Trail) -> None:
    """Count the last shared round again if copies confirmed it separately.

    It began once and ended twice: a machine was cloned during the round, and both released it.
    """
    last = found.shared - 1
    ends = {
        one.trail.end(last)
        for one in known
        if one is not found and one.trail.shared(trail) >= found.shared
    }
    if found.shared and trail.released_again(last, ends):
        found.rounds.discard(last)


def priced(one: LedgerRound) -> Mechanism:
    """Return the mechanism of a round, with the used noise if that is less than planned.

    Raises:
        LedgerError: the noise is so small that no epsilon holds.
        UnsupportedCombination: no theorem gives the price of the smaller noise.
    """
    stds = {"planned_std": one.noise_std, "used_std": one.noise_used}
    found = with_less(one.mechanism, clip_norm=one.clip_norm, **stds)
    if found is None:
        raise LedgerError(f"no finite epsilon holds, since round {one.index} had no noise")
    return found


def with_less(
    round_: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
) -> Mechanism | None:
    """Return a round as ``as_released`` does; a row with less noise keeps its place in its run."""
    stds = {"planned_std": planned_std, "used_std": used_std}
    found = as_released(round_, clip_norm=clip_norm, **stds)
    if isinstance(found, CorrelatedRow) and isinstance(round_, CorrelatedRow):
        # The first row with less noise pays for a whole run with that noise; later rows do not.
        return round_ if found is round_ else replace(found, row=round_.row)
    return found
