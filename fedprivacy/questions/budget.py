"""A privacy budget that is asked before every round."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from ..accountants import ACCOUNTANTS, Accountant
from ..accountants.base import counted
from ..bound import Bound, exactly
from ..errors import (
    BudgetExhausted,
    closed_unit,
    integer,
    member,
    non_negative,
    open_unit,
    refuse,
    require,
    settle,
)
from ..loss import IDENTITY, Curve
from ..mechanisms import CorrelatedNoise, CorrelatedRow
from ..privacy_loss import PrivacyLoss, merge_facts
from ..relations import Adjacency, Facts, Observer
from ..rounding import FEW
from .effort import Effort
from .epsilon import Accountable, loss_of

_SPARE = 2.0**-40
"""Share of delta that a filter sets aside for laws of noise that are off."""
_ONE_AT_A_TIME = threading.RLock()
"""Whoever spends asks and counts before anybody else does: threads may share a budget."""


class WrittenRound(Protocol):
    """One round as a ledger has it."""

    @property
    def index(self) -> int:
        """Its number."""

    @property
    def mechanism(self) -> Accountable:
        """As it was priced."""

    @property
    def spent(self) -> bool:
        """Whether it counts."""


class Written(Protocol):
    """What a budget asks of a ledger; ``fedprivacy.Ledger`` is one."""

    @property
    def nonce(self) -> str:
        """What no other ledger shares."""

    @property
    def schedule(self) -> str:
        """Whether rounds were "fixed" beforehand or "adaptive"."""

    @property
    def rounds(self) -> Iterable[WrittenRound]:
        """Every round begun, in order."""


@dataclass(frozen=True)
class Budget:
    """What may be spent, and what was. Its settings stay: what was allowed was allowed by them.

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
        accountant: "pld", "rdp" or "advanced", for schedules fixed beforehand.
        adaptive: whether the schedule may depend on outputs.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency | str = field(kw_only=True)
    observer: Observer | str = field(default=Observer.AGGREGATE, kw_only=True)
    accountant: str = field(default="pld", kw_only=True)
    adaptive: bool = field(default=False, kw_only=True)
    charges: dict[str, set[int]] = field(default_factory=dict, init=False, repr=False)
    """Which rounds of which ledgers, by their nonces, were charged; training loops write it."""
    states: set[str] = field(default_factory=set, init=False, repr=False)
    """Digests of the states in which rounds without a ledger ended; training loops write it."""
    _spent: dict[PrivacyLoss, int] = field(default_factory=dict, init=False, repr=False)
    _fitting: dict[PrivacyLoss, int] = field(default_factory=dict, init=False, repr=False)
    _begun: dict[CorrelatedNoise, set[int]] = field(default_factory=dict, init=False, repr=False)
    _filter: _RenyiFilter | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        settle(self, non_negative, "epsilon")
        settle(self, open_unit if self.adaptive else closed_unit, "delta")
        settle(self, partial(member, Adjacency), "adjacency")
        settle(self, partial(member, Observer), "observer")
        # Refuses an unknown accountant now, not at the first round.
        Effort(self.accountant)
        if self.adaptive and self.accountant not in ("pld", "rdp"):
            # The filter has a rule of its own: no accountant takes part.
            refuse("accountant", self.accountant, "be left at its default for adaptive schedules")

    @property
    def rule(self) -> str:
        """Which rule decides, in words, for the ledger."""
        if self.adaptive:
            return "RDP filter (adaptive schedule)"
        return f"{self.accountant} accountant (schedule fixed beforehand)"

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
        return round_.run in self._begun and round_.row not in self._begun[round_.run]

    def allows(self, next_round: Accountable) -> bool:
        """Return whether one more such round keeps the whole within the budget. Spends nothing."""
        loss = self._loss(next_round)
        if self.adaptive:
            return self._renyi(loss).allows(loss)
        wanted = {**self._spent, loss: self._spent.get(loss, 0) + 1}
        # Known to fit is cheap and asked first; an account is made only where it is not.
        if not self._known_to_fit(wanted) and self._fits(wanted):
            object.__setattr__(self, "_fitting", self._look_ahead(wanted))
        return self._known_to_fit(wanted)

    def __copy__(self) -> Budget:
        """Return a budget of its own: two that shared half of it would each allow all."""
        return deepcopy(self)

    def charge(self, ledger: Written) -> None:
        """Count the rounds that a ledger has spent and that this budget was not charged with.

        To be called as a loop begins or goes on: after a crash the budget is a new one, and the
        rounds before it are in the ledger alone. ``fedprivacy.training`` does so by itself; a loop
        of your own calls it once, before its first round.

        Raises:
            BudgetExhausted: they do not all fit; those before are counted.
            ParameterError: the ledger says that a schedule was fixed which is adaptive here.
        """
        honest = not self.adaptive or ledger.schedule == "adaptive"
        rule = "be 'adaptive' for a budget with adaptive=True: an audit takes rounds as fixed else"
        way_out = "Ledger.create(..., schedule='adaptive', budget_rule=budget.rule)"
        require(honest, "ledger.schedule", str(ledger.schedule), rule, way_out)
        with _ONE_AT_A_TIME:
            charged = self.charges.setdefault(ledger.nonce, set())
            for one in ledger.rounds:
                if one.spent and one.index not in charged:
                    self.spend(one.mechanism)
                    # Noted at once: an error at a later round charges none twice.
                    charged.add(one.index)

    def spend(self, round_: Accountable) -> None:
        """Count a round as spent.

        Raises:
            BudgetExhausted: the round does not fit; nothing is counted.
        """
        with _ONE_AT_A_TIME:
            self._spend(round_)

    def _spend(self, round_: Accountable) -> None:
        if not self.allows(round_):
            raise BudgetExhausted(
                f"one more round exceeds epsilon = {exactly(self.epsilon)} at delta = "
                f"{exactly(self.delta)} "
                f"({self.rule}); stop here or raise the budget"
            )
        loss = self._loss(round_)
        if self.adaptive:
            self._renyi(loss).spend(loss)
        self._count(round_, loss, 1)

    def _count(self, round_: Accountable, loss: PrivacyLoss, count: int) -> None:
        goes_on = self._goes_on(round_)
        self._spent[loss] = self._spent.get(loss, 0) + count
        if isinstance(round_, CorrelatedRow):
            rows = self._begun.get(round_.run, set()) if goes_on else set()
            self._begun[round_.run] = rows | {round_.row}

    def keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        """Return whether (round, count) steps, in this order, all fit; spends those that do.

        Of an adaptive schedule a step is spent as a whole or not at all.
        """
        with _ONE_AT_A_TIME:
            return self._keeps(steps)

    def _keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        for round_, given in steps:
            count = integer(1, count=given)
            # A row that is there twice begins another run.
            if self.adaptive and not isinstance(round_, CorrelatedRow):
                loss = self._loss(round_)
                # All at once: a filter cannot give back what it has let through.
                if not self._renyi(loss).allows(loss, count):
                    return False
                self._renyi(loss).spend(loss, count)
                self._count(round_, loss, count)
                continue
            for _ in range(count):
                if not self.allows(round_):
                    return False
                self.spend(round_)
        return True

    def spent(self) -> Bound | None:
        """Return the bound of what was spent so far, None before the first round.

        Of an adaptive schedule nothing smaller than the filter's whole budget is certified.
        """
        if not self._spent:
            return None
        if not self.adaptive:
            return self._composed(self._spent).epsilon(self.delta)
        assert self._filter is not None and self._filter.facts is not None
        # Other outputs might have spent it all: less than the budget is not certified.
        return self.kept_by_filter(self._filter.facts)

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
        account = ACCOUNTANTS[self.accountant](tolerance=width)
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

    def _renyi(self, loss: PrivacyLoss) -> _RenyiFilter:
        if self._filter is None:
            spare = self.delta * _SPARE
            found = _RenyiFilter(loss.curve, self.epsilon, self.delta - spare, spare)
            object.__setattr__(self, "_filter", found)
        assert self._filter is not None
        return self._filter


class _RenyiFilter:
    """Sums divergences at one fixed order, both orientations apart.

    What rounds' laws may be off adds up as well, to ``spare`` of delta at most.
    """

    def __init__(self, first: Curve, epsilon: float, delta: float, spare: float) -> None:
        self.epsilon, self.spare, self.off = epsilon, spare, 0.0
        # Eight orders a decade: between neighbours the rounds that fit hardly differ.
        orders = [1.0 + 10.0 ** (k / 8.0) for k in range(-8, 25)]
        # The order must be fixed before anything is released, so the first round decides.
        self.order = max(orders, key=lambda a: self._rounds(first, a, epsilon, delta))
        self.limit = self._limit(self.order, epsilon, delta)
        self.total = [0.0, 0.0]
        # Of all that was spent; None before the first round.
        self.facts: Facts | None = None
        self._known: dict[Curve, tuple[float, float]] = {}

    @staticmethod
    def _limit(order: float, epsilon: float, delta: float) -> float:
        """Return the largest divergence of this order that implies (epsilon, delta), rounded down.

        Every term is right to a few units.
        """
        power = order - 1.0
        gains = (math.log(delta) / power, math.log(order) / power)
        terms = (epsilon, -math.log1p(-1.0 / order), *gains)
        return math.fsum(terms) - FEW * math.fsum(map(abs, terms))

    def _rounds(self, curve: Curve, order: float, epsilon: float, delta: float) -> float:
        cost = max(self._cost(curve, order))
        # What costs nothing fits any number of times.
        return self._limit(order, epsilon, delta) / cost if cost > 0 else math.inf

    @staticmethod
    def _cost(curve: Curve, order: float) -> tuple[float, float]:
        """Return the divergences of both orientations, rounded up."""
        up = (1.0 + FEW) / (order - 1.0)
        forward, backward = curve.log_moment(order), curve.swap().log_moment(order)
        return _number(forward * up), _number(backward * up)

    def _cost_here(self, curve: Curve) -> tuple[float, float]:
        if curve not in self._known:
            self._known[curve] = self._cost(curve, self.order)
        return self._known[curve]

    def allows(self, loss: PrivacyLoss, count: int = 1) -> bool:
        """Return whether both orientations stay within the limit after ``count`` more rounds.

        Raises:
            ParameterError: they are of another unit than what was spent.
        """
        self._together(loss)
        room = counted(self.off + count * loss.off, self.epsilon) <= self.spare
        return room and all(total <= self.limit for total in self._after(loss, count))

    def spend(self, loss: PrivacyLoss, count: int = 1) -> None:
        """Add the divergences of ``count`` rounds."""
        self.facts = self._together(loss)
        self.total = self._after(loss, count)
        self.off = (self.off + count * loss.off) * (1.0 + FEW)

    def _together(self, loss: PrivacyLoss) -> Facts:
        return loss.facts if self.facts is None else merge_facts(self.facts, loss.facts)

    def _after(self, loss: PrivacyLoss, count: int) -> list[float]:
        """Return the sums after ``count`` more rounds, rounded up."""
        cost = self._cost_here(loss.curve)
        return [(t + count * c) * (1.0 + FEW) for t, c in zip(self.total, cost, strict=True)]


def _number(divergence: float) -> float:
    """Return a divergence; infinity for what is no number."""
    return math.inf if math.isnan(divergence) else max(divergence, 0.0)
