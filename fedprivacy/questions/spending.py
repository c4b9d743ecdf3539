"""What a budget has spent, and which rounds of which ledgers are in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..errors import LedgerError, require
from ..evidence import as_released
from ..ledger import Ledger, Round
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from ..privacy_loss import PrivacyLoss
from .renyi_filter import RenyiFilter


@dataclass
class Charged:
    """Which rounds of one ledger were counted.

    Attributes:
        rounds: their numbers.
        open: those that were not confirmed yet: their noise may turn out to be less.
        runs: of correlated noise, with rows among them.
        position: where the ledger ended when all its rounds were in; none before.
    """

    rounds: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    runs: set[CorrelatedNoise] = field(default_factory=set)
    position: tuple[int, str] | None = None

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

    def all_of(self, rounds: Iterable[Round], position: tuple[int, str]) -> None:
        """Note that all rounds of a ledger, which ends there, are in."""
        for one in rounds:
            # What was begun when it was counted may have been aborted since.
            (self.rounds.add if one.spent else self.rounds.discard)(one.index)
            under_way = one.spent and one.done is None
            (self.open.add if under_way else self.open.discard)(one.index)
        self.position = position

    def ended(self, ledger: Ledger, number: int, *, spent: bool) -> None:
        """Note that a round that was begun since was confirmed, or aborted."""
        self.open.discard(number)
        if not spent:
            self.rounds.discard(number)
        # Its own two lines; what somebody else wrote meanwhile is to be looked at.
        if self.position is not None and ledger.position[0] == self.position[0] + 2:
            self.position = ledger.position

    def check_passed(self, ledger: Ledger) -> None:
        """Refuse a ledger that is a copy which went another way, or an earlier one.

        Raises:
            ParameterError: it is.
        """
        whole = self.position is None or ledger.passes(self.position)
        rule = "hold all that this budget was charged with: it is an earlier copy, or another one"
        require(whole, "ledger", str(ledger.path), rule, "open the ledger that was written last")


@dataclass
class Spending:
    """What was spent, of one budget or of several that follow one another.

    Attributes:
        rounds: losses of the rounds, with counts.
        rows: rows of correlated noise that were released, by their runs.
        charges: which rounds of which ledgers were counted, by the ledgers' nonces.
        states: digests of the states in which rounds without a ledger ended.
        qualified: what the number depends on, as ledgers and loops say.
        kind: under which settings it was counted, by name; they stay.
        filter: of an adaptive schedule.
        void: why nobody can say any more what was spent; empty where one can.
    """

    rounds: dict[PrivacyLoss, int] = field(default_factory=dict)
    rows: dict[CorrelatedNoise, set[int]] = field(default_factory=dict)
    charges: dict[str, Charged] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    qualified: dict[str, None] = field(default_factory=dict)
    kind: dict[str, object] = field(default_factory=dict)
    filter: RenyiFilter | None = None
    void: str = ""

    def of(self, ledger: Ledger) -> Charged:
        """Return what is counted of a ledger."""
        return self.charges.setdefault(ledger.nonce, Charged())

    def begin(self, round_: object, held: Charged) -> None:
        """Note that a row of correlated noise is the first of its run in a ledger.

        Equal noise in another ledger is another run.
        """
        if isinstance(round_, CorrelatedRow) and round_.run not in held.runs:
            self.rows.pop(round_.run, None)
            held.runs.add(round_.run)


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
