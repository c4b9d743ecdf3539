"""A privacy budget that is asked before every round."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from ..accountants import BY_NAME, Accountant
from ..bound import Bound, exactly
from ..errors import (
    BudgetExhausted,
    LedgerError,
    ParameterError,
    UnsupportedCombination,
    claimed,
    integer,
    member,
    open_unit,
    refuse,
    require,
    settle,
)
from ..evidence import Defect, qualifiers, told
from ..ledger import Ledger
from ..loss import IDENTITY
from ..mechanisms import CorrelatedRow, Mechanism
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Facts, Observer
from .effort import Effort
from .epsilon import Accountable, loss_of
from .renyi_filter import RenyiFilter
from .spending import Spending, with_less

_SPARE = 2.0**-40
"""Share of delta that a filter sets aside for laws of noise that are off."""
_ONE_AT_A_TIME = threading.RLock()
"""Whoever spends asks and counts before anybody else does: threads may share a budget."""


@dataclass(frozen=True)
class Budget:
    """What may be spent, and what was. Its settings stay: what was allowed was allowed by them.

    One process spends it: a forked child, or a process that it was pickled to, is refused.

    A schedule fixed beforehand may use any accountant. Where the next round's mechanism depends
    on earlier outputs (``adaptive=True``), composed bounds do not hold; then a Renyi filter is
    used: one order is fixed by the first round asked about, before anything was released, and a
    round is allowed while the sum of the rounds' divergences at that order stays within what
    (epsilon, delta) permits there (Feldman and Zrnic 2021), in both orientations.

    Args:
        epsilon: at least 0.
        delta: in [0, 1]; strictly between for adaptive schedules.
        adjacency: how neighbouring data sets differ.
        observer: who looks.
        accountant: "pld", "rdp", "advanced" or "game", for schedules fixed beforehand. "game" is
            the tightest for replaced units, and takes a thousand times as long.
        adaptive: whether the schedule may depend on outputs.
        spending: what was spent before, of another budget that this one takes the place of; the two
            count together. ``dataclasses.replace(budget, epsilon=...)`` hands it on.

    Raises:
        ParameterError: a setting out of its range, or another one than those by which was spent.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency | str = field(kw_only=True)
    observer: Observer | str = field(default=Observer.AGGREGATE, kw_only=True)
    accountant: str = field(default="pld", kw_only=True)
    adaptive: bool = field(default=False, kw_only=True)
    spending: Spending = field(default_factory=Spending, kw_only=True, repr=False)
    _fitting: dict[PrivacyLoss, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        epsilon, delta = claimed(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        if self.adaptive:
            settle(self, open_unit, "delta")
        settle(self, partial(member, Adjacency), "adjacency")
        settle(self, partial(member, Observer), "observer")
        # Refuses an unknown accountant now, not at the first round.
        Effort(self.accountant)
        if self.adaptive and self.accountant not in ("pld", "rdp"):
            # The filter has a rule of its own: no accountant takes part.
            refuse("accountant", self.accountant, "be left at its default for adaptive schedules")
        if not isinstance(self.adaptive, bool):
            refuse("adaptive", self.adaptive, "be True or False")
        if not isinstance(self.spending, Spending):
            refuse("spending", self.spending, "be another budget's spending", "leave it out")
        self._check_kind()

    def _check_kind(self) -> None:
        """Refuse other settings than those by which was spent, by another budget with the same."""
        for name, value in self.spending.kind.items():
            own = getattr(self, name)
            rule = f"stay {value!s}: rounds were spent under it"
            require(own == value, name, str(own), rule, "take a new budget for another question")

    @property
    def states(self) -> set[str]:
        """Digests of states in which rounds without a ledger ended; training loops write it."""
        return self.spending.states

    @property
    def rule(self) -> str:
        """Which rule decides, in words, for the ledger."""
        if self.adaptive:
            return "RDP filter (adaptive schedule)"
        return f"{self.accountant} accountant (schedule fixed beforehand)"

    @property
    def way_out(self) -> str:
        """What may be done where a round does not fit, in words."""
        if self.spending.void:
            return f"nobody can say what was spent: {self.spending.void}"
        if self.adaptive:
            return "stop here: a filter's budget cannot be raised"
        raised = "dataclasses.replace(budget, epsilon=...) knows what is spent"
        return f"stop here or raise the budget: {raised}"

    def _loss(self, round_: Accountable) -> PrivacyLoss:
        loss = loss_of(round_, self.adjacency, self.observer)
        # A row of correlated noise is priced as its whole run, which is paid for once.
        return replace(loss, curve=IDENTITY) if self._goes_on(round_) else loss

    def _goes_on(self, round_: Accountable) -> bool:
        """Return whether a round is another row of a run that was paid for.

        Row 0, or one that was there, begins another run like it.
        """
        if not isinstance(round_, CorrelatedRow) or not round_.row:
            return False
        rows = self.spending.rows
        return round_.run in rows and round_.row not in rows[round_.run]

    def allows(self, next_round: Accountable) -> bool:
        """Return whether one more such round keeps the whole within the budget. Spends nothing."""
        self.spending.check_process()
        self._check_kind()
        loss = self._loss(next_round)
        if self.spending.void:
            return False
        if self.adaptive:
            return self._renyi(loss).allows(loss)
        wanted = {**self.spending.rounds, loss: self.spending.rounds.get(loss, 0) + 1}
        # Known to fit is cheap and asked first; an account is made only where it is not.
        if not self._known_to_fit(wanted) and self._fits(wanted):
            object.__setattr__(self, "_fitting", self._look_ahead(wanted))
        return self._known_to_fit(wanted)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread of the process that made the budget ask and count at a time."""
        # Before the lock: a thread of the parent may have held it when the child was forked.
        self.spending.check_process()
        with _ONE_AT_A_TIME:
            yield

    def __copy__(self) -> Budget:
        """Return a budget of its own: two that shared half of it would each allow all."""
        return deepcopy(self)

    def charge(self, ledger: Ledger) -> None:
        """Count the rounds that a ledger has spent and that this budget was not charged with.

        Each is priced by the noise that it had, where that is less than it was planned with. To be
        called as a loop begins or goes on: after a crash the budget is a new one, and the rounds
        before it are in the ledger alone. ``fedprivacy.training`` does so by itself; a loop of your
        own calls it once, before its first round. Of a copy of a ledger that was charged, what they
        share is counted once, and the rest of both is counted.

        Raises:
            BudgetExhausted: they do not all fit; they are counted all the same, as they were spent.
            LedgerError: a round had so little noise that no epsilon holds, or this is another
                process than the one that made the budget; nothing is counted.
            ParameterError: no ledger, or one that says of its schedule what the budget does not.
            UnsupportedCombination: the ledger speaks against what its rounds are priced as, or
                nobody can say what less noise comes to; nothing is counted.
        """
        rule, way_out = "be a Ledger", "fp.Ledger.open(path)"
        require(isinstance(ledger, Ledger), "ledger", type(ledger).__name__, rule, way_out)
        with self._alone():
            held = self.spending.of(ledger)
            assert held is not None
            if held.position == ledger.position:
                return
            self._check_kind()
            self._check_schedule(ledger)
            depends = self._looked_at(ledger)
            rounds = ledger.rounds
            new = held.new(rounds)
            for mechanism in {id(one): one for _, one in new}.values():
                loss_of(mechanism, self.adjacency, self.observer)  # refuses before any is counted
            self.spending.qualified |= dict.fromkeys(depends)
            fits = True
            for one, mechanism in new:
                # One that does not fit is enough: an account of each would take long.
                fits = fits and self.allows(mechanism)
                self._count(mechanism, 1)
                held.rounds.add(one.index)
            held.all_of(rounds, ledger.position, ledger.trail)
            if not fits:
                self._refuse(f"the rounds of {ledger.path} exceed")

    def _looked_at(self, ledger: Ledger) -> tuple[str, ...]:
        """Return what a number of a ledger depends on.

        Raises:
            LedgerError, UnsupportedCombination: see ``charge``.
        """
        facts = Facts(ledger.facts.unit, Adjacency(self.adjacency), Observer(self.observer))
        return told(ledger, facts)[1]

    def confirm(self, ledger: Ledger) -> None:
        """Look at a ledger whose rounds are counted; training does so as it ends.

        What the number depends on is told with it from then on. Where the ledger speaks against
        what its rounds are priced as, nothing more is allowed, and ``spent`` says why.
        """
        self.spending.check_process()
        try:
            depends = self._looked_at(ledger)
        except (LedgerError, UnsupportedCombination) as error:
            self.spending.void = str(error)
        else:
            self.spending.qualified |= dict.fromkeys(depends)

    def _check_schedule(self, ledger: Ledger) -> None:
        """Refuse a ledger whose schedule is another than the budget's."""
        wanted = "adaptive" if self.adaptive else "fixed"
        why = "composed bounds do not hold where outputs decide"
        way_out = "Budget(..., adaptive=True), which keeps a filter"
        if self.adaptive:
            why = "an audit takes rounds as fixed else"
            way_out = "Ledger.create(..., schedule='adaptive', budget_rule=budget.rule)"
        rule = f"be {wanted!r} for a budget with adaptive={self.adaptive}: {why}"
        require(ledger.schedule == wanted, "ledger.schedule", str(ledger.schedule), rule, way_out)

    def spend(
        self,
        round_: Accountable,
        *,
        ledger: Ledger | None = None,
        number: int | None = None,
    ) -> None:
        """Count a round as spent.

        Args:
            round_: the round.
            ledger: where it is written, if anywhere, so that ``charge`` does not count it again.
            number: its number there.

        Raises:
            BudgetExhausted: the round does not fit; nothing is counted.
            UnsupportedCombination: nobody can say any more what was spent.
        """
        with self._alone():
            held = self.spending.of(ledger)
            if not self.allows(round_):
                self._refuse("one more round exceeds")
            self._count(round_, 1)
            if ledger is not None and held is not None and number is not None:
                held.begun(ledger, number)

    def seeded(self) -> None:
        """Say with the number from now on that noise, or draws, came of a seed that was chosen.

        What a ledger says of its seed is told anyway: for rounds that none records.
        """
        with self._alone():
            self.spending.qualified |= dict.fromkeys(qualifiers([Defect.FIXED_SEED]))

    def ended(self, ledger: Ledger, number: int, *, spent: bool = True) -> None:
        """Note that a round of a ledger was confirmed, or aborted before anything was released."""
        with self._alone():
            held = self.spending.of(ledger)
            assert held is not None
            held.ended(ledger, number, spent=spent)

    def released(
        self, round_: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
    ) -> None:
        """Count what a round had less noise than it was spent with, beside what was spent.

        It was released, so it is counted whether it fits or not. Where no epsilon holds for it, or
        none is known, nothing more is allowed, and ``spent`` says why.
        """
        stds = {"planned_std": planned_std, "used_std": used_std}
        with self._alone():
            try:
                found = with_less(round_, clip_norm=clip_norm, **stds)
                if found is None:
                    self.spending.void = "a round had so little noise that no epsilon holds"
                elif found is not round_:
                    self._count(found, 1)
            # Also a theorem that asks for what this round did not have.
            except (UnsupportedCombination, ParameterError) as error:
                self.spending.void = str(error)

    def _refuse(self, what: str) -> NoReturn:
        if self.spending.void:
            raise UnsupportedCombination(self.way_out)
        raise BudgetExhausted(
            f"{what} epsilon = {exactly(self.epsilon)} at delta = {exactly(self.delta)} "
            f"({self.rule}); {self.way_out}"
        )

    def _count(self, round_: Accountable, count: int) -> None:
        """Count rounds, whether they fit or not."""
        self._check_kind()
        loss, held = self._loss(round_), self.spending
        self._stay()
        if self.adaptive:
            self._renyi(loss).spend(loss, count)
        goes_on = self._goes_on(round_)
        held.rounds[loss] = held.rounds.get(loss, 0) + count
        if isinstance(round_, CorrelatedRow):
            rows = held.rows.get(round_.run, set()) if goes_on else set()
            held.rows[round_.run] = rows | {round_.row}

    def _stay(self) -> None:
        """Fix the settings by which is counted from now on."""
        # A filter has one order, which follows from the whole budget.
        names = ("epsilon", "delta") if self.adaptive else ()
        for name in ("adjacency", "observer", "adaptive", *names):
            self.spending.kind.setdefault(name, getattr(self, name))

    def keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        """Return whether (round, count) steps, in this order, all fit; spends those that do.

        Of an adaptive schedule a step is spent as a whole or not at all.
        """
        with self._alone():
            return self._keeps(_steps(steps))

    def _keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        for round_, given in steps:
            count = integer(1, count=given)
            if self.spending.void:
                return False
            # A row that is there twice begins another run.
            if self.adaptive and not isinstance(round_, CorrelatedRow):
                loss = self._loss(round_)
                # All at once: a filter cannot give back what it has let through.
                if not self._renyi(loss).allows(loss, count):
                    return False
                self._count(round_, count)
                continue
            for _ in range(count):
                if not self.allows(round_):
                    return False
                self.spend(round_)
        return True

    def spent(self) -> Bound | None:
        """Return the bound of what was spent so far, None before the first round.

        Of an adaptive schedule nothing smaller than the filter's whole budget is certified.

        Raises:
            BudgetExhausted: rounds of a ledger went beyond what an adaptive schedule was allowed.
            UnsupportedCombination: nobody can say any more what was spent.
        """
        held = self.spending
        held.check_process()
        self._check_kind()
        if held.void:
            self._refuse("what was spent exceeds")
        if not held.rounds:
            return None
        if not self.adaptive:
            found = self._composed(held.rounds).epsilon(self.delta)
        else:
            assert held.filter is not None and held.filter.facts is not None
            if not held.filter.kept:
                self._refuse("the rounds of a ledger exceed")
            # Other outputs might have spent it all: less than the budget is not certified.
            found = self.kept_by_filter(held.filter.facts)
        return replace(found, qualified=(*found.qualified, *held.qualified))

    def kept_by_filter(self, facts: Facts) -> Bound:
        """Return what the filter certifies: the budget itself."""
        return Bound(
            quantity="epsilon",
            given=self.delta,
            upper=self.epsilon,
            lower=0.0,
            resolution=(0.0, self.epsilon),
            witness=None,
            method=self.rule,
            theorems=("Renyi privacy filter (Feldman and Zrnic 2021)",),
            assumptions=("every round's mechanism was fixed before its noise was drawn",),
            facts=facts,
        )

    def _composed(self, parts: dict[PrivacyLoss, int]) -> Accountant:
        # A budget's own share of a per mille: a wide interval would refuse rounds that fit.
        width = min(1e-3, max(1e-3 * self.epsilon, 1e-9))
        account = BY_NAME[self.accountant](tolerance=width)
        for loss, count in parts.items():
            account.compose(loss, count)
        return account

    def _fits(self, parts: dict[PrivacyLoss, int]) -> bool:
        return self._composed(parts).epsilon(self.delta).upper <= self.epsilon

    def _known_to_fit(self, wanted: dict[PrivacyLoss, int]) -> bool:
        """Return whether these rounds are among some that were found to fit: no more are spent."""
        # No kind more often than in rounds that fit: leaving some out only loses less.
        return all(self._fitting.get(loss, 0) >= count for loss, count in wanted.items())

    def _look_ahead(self, wanted: dict[PrivacyLoss, int]) -> dict[PrivacyLoss, int]:
        """Return rounds that fit and hold ``wanted``: as many more of the same kinds as will do.

        A few accounts now spare one every round. The total grows at most fourfold, or to 64, so
        that one early question stays cheap.
        """
        total = sum(wanted.values())

        def longer(rounds: int) -> dict[PrivacyLoss, int]:
            # In proportion, so that schedules of several kinds are looked ahead as they run.
            return {loss: count + rounds * count // total for loss, count in wanted.items()}

        fitting, failing = 0, max(3 * total, 64) + 1
        if self._fits(longer(failing - 1)):
            return longer(failing - 1)
        # A sixty-fourth of the answer is near enough: the rest is asked for later.
        while failing - fitting > max(1, fitting // 64):
            middle = (fitting + failing) // 2
            if self._fits(longer(middle)):
                fitting = middle
            else:
                failing = middle
        return longer(fitting)

    def _renyi(self, loss: PrivacyLoss) -> RenyiFilter:
        if self.spending.filter is None:
            self._check_kind()
            self._stay()
            spare = self.delta * _SPARE
            found = RenyiFilter(loss.curve, self.epsilon, self.delta - spare, spare)
            self.spending.filter = found
        return self.spending.filter


def _steps(given: object) -> Iterable[tuple[Accountable, int]]:
    """Return steps, checked to be pairs."""
    rule = "be (round, count) pairs"
    require(isinstance(given, Iterable), "steps", given, rule, "[(round_mechanism, 40)]")
    assert isinstance(given, Iterable)
    for one in given:
        pair = isinstance(one, Sequence) and not isinstance(one, str) and len(one) == 2
        require(pair, "steps", one, rule, "[(round_mechanism, 40)]")
        yield one[0], one[1]
