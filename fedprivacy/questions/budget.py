"""A privacy budget that decides before every round whether the round fits."""

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
    validate_fields,
)
from ..evidence import Defect, priced_evidence, qualifiers
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
"""Share of delta that a filter reserves for the total variation of sampled noise."""
_ONE_AT_A_TIME = threading.RLock()
"""Guards asking and counting as one step, because threads may share a budget."""


@dataclass(frozen=True)
class Budget:
    """The privacy loss that may be spent, and the loss already spent.

    The settings that decided earlier rounds cannot change later. One process spends a budget. A
    forked child is refused, and so is another process that received a pickled copy.

    A schedule fixed beforehand may use any accountant. If the mechanism of the next round depends
    on earlier outputs (``adaptive=True``), composed bounds do not hold. Then a Renyi filter
    decides. The first round that the budget is queried with fixes one order, before any release. A
    round is allowed while the sum of the rounds' divergences at that order stays within the limit
    that (epsilon, delta) gives there, in both orientations (Feldman and Zrnic 2021).

    Args:
        epsilon: at least 0.
        delta: in [0, 1]; strictly between 0 and 1 for adaptive schedules.
        adjacency: how neighbouring data sets differ.
        observer: who sees the outputs.
        accountant: "pld", "rdp", "advanced" or "game", for schedules fixed beforehand. "game" is
            the tightest for replaced units. It takes a thousand times as long.
        adaptive: whether the schedule may depend on outputs.
        spending: the spending of an earlier budget that this one replaces; the two count together.
            ``dataclasses.replace(budget, epsilon=...)`` passes it on.

    Raises:
        ParameterError: a setting is out of its range, or differs from the settings that
            ``spending`` was counted under.
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
            validate_fields(self, open_unit, "delta")
        validate_fields(self, partial(member, Adjacency), "adjacency")
        validate_fields(self, partial(member, Observer), "observer")
        # Refuses an unknown accountant now, not at the first round.
        Effort(self.accountant)
        if self.adaptive and self.accountant not in ("pld", "rdp"):
            # The filter has its own rule and uses no accountant.
            refuse("accountant", self.accountant, "be left at its default for adaptive schedules")
        if not isinstance(self.adaptive, bool):
            refuse("adaptive", self.adaptive, "be True or False")
        if not isinstance(self.spending, Spending):
            refuse("spending", self.spending, "be the spending of another budget", "leave it out")
        self._check_kind()

    def _check_kind(self) -> None:
        """Refuse settings that differ from those of ``spending``, even of another budget."""
        for name, value in self.spending.kind.items():
            own = getattr(self, name)
            rule = f"stay {value!s}, since rounds were spent under it"
            require(own == value, name, str(own), rule, "make a new budget for another value")

    @property
    def states(self) -> set[str]:
        """Digests of the states after rounds without a ledger. Training loops add to it."""
        return self.spending.states

    @property
    def rule(self) -> str:
        """The rule that decides, in words, for the ledger."""
        if self.adaptive:
            return "RDP filter (adaptive schedule)"
        return f"{self.accountant} accountant (schedule fixed beforehand)"

    @property
    def way_out(self) -> str:
        """What to do if a round does not fit, in words."""
        if self.spending.void:
            return f"the spent epsilon is unknown: {self.spending.void}"
        if self.adaptive:
            return "stop here, since the budget of a filter cannot be raised"
        raised = "dataclasses.replace(budget, epsilon=...) keeps the spent rounds"
        return f"stop here or raise the budget: {raised}"

    def _loss(self, round_: Accountable) -> PrivacyLoss:
        loss = loss_of(round_, self.adjacency, self.observer)
        # The price of a row of correlated noise is the price of its whole run, paid once.
        return replace(loss, curve=IDENTITY) if self._goes_on(round_) else loss

    def _goes_on(self, round_: Accountable) -> bool:
        """Return whether a round is another row of a run that is already paid for.

        Row 0, or a row that was already counted, begins another equal run.
        """
        if not isinstance(round_, CorrelatedRow) or not round_.row:
            return False
        rows = self.spending.rows
        return round_.run in rows and round_.row not in rows[round_.run]

    def allows(self, next_round: Accountable) -> bool:
        """Return whether one more of these rounds fits the budget; do not spend it."""
        self.spending.check_process()
        self._check_kind()
        loss = self._loss(next_round)
        if self.spending.void:
            return False
        if self.adaptive:
            return self._renyi(loss).allows(loss)
        wanted = {**self.spending.rounds, loss: self.spending.rounds.get(loss, 0) + 1}
        # The stored answer is cheap, so it comes first. An account is made only if it is missing.
        if not self._known_to_fit(wanted) and self._fits(wanted):
            object.__setattr__(self, "_fitting", self._look_ahead(wanted))
        return self._known_to_fit(wanted)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread at a time ask and count, only in the process that made the budget."""
        # This comes before the lock: a thread of the parent may have held it during the fork.
        self.spending.check_process()
        with _ONE_AT_A_TIME:
            yield

    def __copy__(self) -> Budget:
        """Return a deep copy: two budgets with shared state would each allow everything."""
        return deepcopy(self)

    def charge(self, ledger: Ledger) -> None:
        """Count the rounds of a ledger that this budget has not counted yet.

        The price of each round follows from its actual noise if that is less than planned. Call
        this when a loop starts or resumes: after a crash the budget is new, and only the ledger has
        the earlier rounds. ``fedprivacy.training`` calls it by itself. Your own loop calls it once,
        before its first round. A copy of a counted ledger shares some rounds with it. Those are
        counted once, and the other rounds of both are counted.

        Raises:
            BudgetExhausted: the rounds do not all fit. They are counted anyway, since they were
                spent.
            LedgerError: a round had so little noise that no epsilon holds, or this process did not
                make the budget; no round is counted.
            ParameterError: not a ledger, or a ledger with another kind of schedule than the budget.
            UnsupportedCombination: the ledger contradicts the prices of its rounds, or no theorem
                gives the price of the smaller noise; no round is counted.
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
                # One round that does not fit is enough. An account of each would take long.
                fits = fits and self.allows(mechanism)
                self._count(mechanism, 1)
                held.rounds.add(one.index)
            held.all_of(rounds, ledger.position, ledger.trail)
            if not fits:
                self._refuse(f"the rounds of {ledger.path} exceed")

    def _looked_at(self, ledger: Ledger) -> tuple[str, ...]:
        """Return the conditions on the epsilon of a ledger.

        Raises:
            LedgerError, UnsupportedCombination: see ``charge``.
        """
        facts = Facts(ledger.facts.unit, Adjacency(self.adjacency), Observer(self.observer))
        return priced_evidence(ledger, facts)[1]

    def confirm(self, ledger: Ledger) -> None:
        """Check a ledger after its rounds were counted. Training calls this when it ends.

        From then on, the conditions of the ledger are part of the bound. If the ledger contradicts
        the prices of its rounds, no more rounds are allowed, and ``spent`` gives the reason.
        """
        self.spending.check_process()
        try:
            depends = self._looked_at(ledger)
        except (LedgerError, UnsupportedCombination) as error:
            self.spending.void = str(error)
        else:
            self.spending.qualified |= dict.fromkeys(depends)

    def _check_schedule(self, ledger: Ledger) -> None:
        """Refuse a ledger with another kind of schedule than the budget."""
        wanted = "adaptive" if self.adaptive else "fixed"
        why = "composed bounds do not hold for schedules that depend on outputs"
        way_out = "Budget(..., adaptive=True), which keeps a filter"
        if self.adaptive:
            why = "otherwise an audit assumes a fixed schedule"
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
            ledger: the ledger that records it, if any, so that ``charge`` does not count it again.
            number: its number in that ledger.

        Raises:
            BudgetExhausted: the round does not fit; no round is counted.
            UnsupportedCombination: the amount spent is no longer known.
        """
        with self._alone():
            held = self.spending.of(ledger)
            if not self.allows(round_):
                self._refuse("one more round exceeds")
            self._count(round_, 1)
            if ledger is not None and held is not None and number is not None:
                held.begun(ledger, number)

    def seeded(self) -> None:
        """Mark the bound from now on: noise or draws came from a chosen seed.

        This is for rounds without a ledger. A ledger records its own seed policy.
        """
        with self._alone():
            self.spending.qualified |= dict.fromkeys(_SEEDED)

    def ended(self, ledger: Ledger, number: int, *, spent: bool = True) -> None:
        """Note that a round of a ledger was confirmed, or aborted before any release."""
        with self._alone():
            held = self.spending.of(ledger)
            assert held is not None
            held.ended(ledger, number, spent=spent)

    def released(
        self, round_: Mechanism, *, clip_norm: float, planned_std: float, used_std: float
    ) -> None:
        """Count a round again, as released, if it had less noise than it was charged for.

        The round was released, so it counts even if it does not fit. If no epsilon holds for it, or
        none is known, no more rounds are allowed, and ``spent`` gives the reason.
        """
        stds = {"planned_std": planned_std, "used_std": used_std}
        with self._alone():
            try:
                found = with_less(round_, clip_norm=clip_norm, **stds)
                if found is None:
                    self.spending.void = "a round had too little noise for a finite epsilon"
                elif found is not round_:
                    self._count(found, 1)
            # Also covers a theorem with a condition that this round does not meet.
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
        """Fix the settings for all later counting."""
        # The order of a filter follows from the whole budget.
        names = ("epsilon", "delta") if self.adaptive else ()
        for name in ("adjacency", "observer", "adaptive", *names):
            self.spending.kind.setdefault(name, getattr(self, name))

    def keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        """Return whether all (round, count) steps fit, in this order; spend those that do.

        In an adaptive schedule a step is spent completely or not at all.
        """
        with self._alone():
            return self._keeps(_steps(steps))

    def _keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        for round_, given in steps:
            count = integer(1, count=given)
            if self.spending.void:
                return False
            # A row that occurs twice begins another run.
            if self.adaptive and not isinstance(round_, CorrelatedRow):
                loss = self._loss(round_)
                # Ask for all at once: a filter cannot take back an allowed round.
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
        """Return the bound on everything spent; None before the first round.

        For an adaptive schedule, only the whole budget of the filter is certified.

        Raises:
            BudgetExhausted: rounds of a ledger exceeded the limit of an adaptive schedule.
            UnsupportedCombination: the amount spent is no longer known.
        """
        held = self.spending
        held.check_process()
        self._check_kind()
        if held.void:
            self._refuse("the spent rounds exceed")
        if not held.rounds:
            return None
        if not self.adaptive:
            found = self._composed(held.rounds).epsilon(self.delta)
        else:
            assert held.filter is not None and held.filter.facts is not None
            if not held.filter.kept:
                self._refuse("the rounds of a ledger exceed")
            # Other outputs might have spent everything, so only the whole budget is certified.
            found = self.kept_by_filter(held.filter.facts)
        return replace(found, qualified=(*found.qualified, *held.qualified))

    def kept_by_filter(self, facts: Facts) -> Bound:
        """Return the certified bound of the filter: the budget itself."""
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
        # A thousandth of the budget: a wider interval would refuse rounds that fit.
        width = min(1e-3, max(1e-3 * self.epsilon, 1e-9))
        account = BY_NAME[self.accountant](tolerance=width)
        for loss, count in parts.items():
            account.compose(loss, count)
        return account

    def _fits(self, parts: dict[PrivacyLoss, int]) -> bool:
        return self._composed(parts).epsilon(self.delta).upper <= self.epsilon

    def _known_to_fit(self, wanted: dict[PrivacyLoss, int]) -> bool:
        """Return whether these rounds are a subset of rounds that were found to fit."""
        # Leaving rounds out never increases the loss.
        return all(self._fitting.get(loss, 0) >= count for loss, count in wanted.items())

    def _look_ahead(self, wanted: dict[PrivacyLoss, int]) -> dict[PrivacyLoss, int]:
        """Return ``wanted`` with as many more rounds of the same kinds as fit.

        A few accounts now save one account in every later round. The total grows at most fourfold,
        or to 64, so one early question stays cheap.
        """
        total = sum(wanted.values())

        def longer(rounds: int) -> dict[PrivacyLoss, int]:
            # Kinds grow in proportion, in the mix of the schedule.
            return {loss: count + rounds * count // total for loss, count in wanted.items()}

        fitting, failing = 0, max(3 * total, 64) + 1
        if self._fits(longer(failing - 1)):
            return longer(failing - 1)
        # A sixty-fourth of the answer is accurate enough. The rest is computed later.
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


def seeded(bound: Bound) -> Bound:
    """Return a Bound that says that noise, or draws, came of a seed that was chosen."""
    return replace(bound, qualified=(*bound.qualified, *_SEEDED))


_SEEDED = qualifiers([Defect.FIXED_SEED])
"""What a number of a run with a chosen seed depends on."""


def _steps(given: object) -> Iterable[tuple[Accountable, int]]:
    """Return steps, checked to be pairs."""
    rule = "be (round, count) pairs"
    require(isinstance(given, Iterable), "steps", given, rule, "[(round_mechanism, 40)]")
    assert isinstance(given, Iterable)
    for one in given:
        pair = isinstance(one, Sequence) and not isinstance(one, str) and len(one) == 2
        require(pair, "steps", one, rule, "[(round_mechanism, 40)]")
        yield one[0], one[1]
