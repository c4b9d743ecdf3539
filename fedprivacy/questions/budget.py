"""A privacy budget that is asked before every round."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from ..accountants import BY_NAME, Accountant
from ..accountants.base import counted
from ..bound import Bound, exactly
from ..errors import (
    BudgetExhausted,
    LedgerError,
    closed_unit,
    integer,
    member,
    non_negative,
    open_unit,
    refuse,
    require,
    settle,
)
from ..evidence import Defect, Evidence, as_released, qualifiers
from ..ledger import Ledger, Round
from ..loss import IDENTITY, Curve
from ..mechanisms import CorrelatedNoise, CorrelatedRow, Mechanism
from ..privacy_loss import PrivacyLoss, merge_facts
from ..relations import Adjacency, Facts, Observer
from ..rounding import FEW
from .effort import Effort
from .epsilon import Accountable, loss_of

_SPARE = 2.0**-40
"""Share of delta that a filter sets aside for laws of noise that are off."""
_ONE_AT_A_TIME = threading.RLock()
"""Whoever spends asks and counts before anybody else does: threads may share a budget."""


@dataclass
class Spending:
    """What was spent, of one budget or of several that follow one another.

    Attributes:
        rounds: losses of the rounds, with counts.
        rows: rows of correlated noise that were released, by their runs.
        charges: which rounds of which ledgers, by their nonces, were charged.
        states: digests of the states in which rounds without a ledger ended.
        qualified: what the number depends on, as ledgers say.
        kind: under which settings it was counted, by name; they stay.
        filter: of an adaptive schedule.
    """

    rounds: dict[PrivacyLoss, int] = field(default_factory=dict)
    rows: dict[CorrelatedNoise, set[int]] = field(default_factory=dict)
    charges: dict[str, set[int]] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    qualified: dict[str, None] = field(default_factory=dict)
    kind: dict[str, object] = field(default_factory=dict)
    filter: _RenyiFilter | None = None


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
        settle(self, non_negative, "epsilon")
        settle(self, open_unit if self.adaptive else closed_unit, "delta")
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
        for name, value in self.spending.kind.items():
            own = getattr(self, name)
            rule = f"stay {value!s}: rounds were spent under it"
            require(own == value, name, str(own), rule, "take a new budget for another question")

    @property
    def charges(self) -> dict[str, set[int]]:
        """Which rounds of which ledgers, by their nonces, were charged; training loops write it."""
        return self.spending.charges

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
        loss = self._loss(next_round)
        if self.adaptive:
            return self._renyi(loss).allows(loss)
        wanted = {**self.spending.rounds, loss: self.spending.rounds.get(loss, 0) + 1}
        # Known to fit is cheap and asked first; an account is made only where it is not.
        if not self._known_to_fit(wanted) and self._fits(wanted):
            object.__setattr__(self, "_fitting", self._look_ahead(wanted))
        return self._known_to_fit(wanted)

    def __copy__(self) -> Budget:
        """Return a budget of its own: two that shared half of it would each allow all."""
        return deepcopy(self)

    def charge(self, ledger: Ledger) -> None:
        """Count the rounds that a ledger has spent and that this budget was not charged with.

        Each is priced by the noise that it had, where that is less than it was planned with. To be
        called as a loop begins or goes on: after a crash the budget is a new one, and the rounds
        before it are in the ledger alone. ``fedprivacy.training`` does so by itself; a loop of your
        own calls it once, before its first round.

        Raises:
            BudgetExhausted: they do not all fit; they are counted all the same, as they were spent.
            LedgerError: a round had so little noise that no epsilon holds; nothing is counted.
            ParameterError: no ledger, or one that says of its schedule what the budget does not.
            UnsupportedCombination: the ledger speaks against what its rounds are priced as, or
                nobody can say what less noise comes to; nothing is counted.
        """
        rule, way_out = "be a Ledger", "fp.Ledger.open(path)"
        require(isinstance(ledger, Ledger), "ledger", type(ledger).__name__, rule, way_out)
        self._check_schedule(ledger)
        facts = Facts(ledger.facts.unit, Adjacency(self.adjacency), Observer(self.observer))
        wrong = Evidence.of(ledger).priced(facts)[1]
        seed = (Defect.FIXED_SEED,) if ledger.reproducible else ()
        with _ONE_AT_A_TIME:
            charged = self.charges.setdefault(ledger.nonce, set())
            spent = [one for one in ledger.rounds if one.spent]
            # What was begun when it was counted may have been aborted since.
            new = [(one, _priced(one)) for one in spent if one.index not in charged]
            for priced in {id(priced): priced for _, priced in new}.values():
                loss_of(priced, self.adjacency, self.observer)  # refuses before any is counted
            charged &= {one.index for one in spent}
            self.spending.qualified |= dict.fromkeys(qualifiers([*wrong, *seed]))
            fits = True
            for one, priced in new:
                fits = self.allows(priced) and fits
                self._count(priced, 1)
                charged.add(one.index)
            if not fits:
                self._refuse(f"the rounds of {ledger.path} exceed")

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

    def spend(self, round_: Accountable) -> None:
        """Count a round as spent.

        Raises:
            BudgetExhausted: the round does not fit; nothing is counted.
        """
        with _ONE_AT_A_TIME:
            if not self.allows(round_):
                self._refuse("one more round exceeds")
            self._count(round_, 1)

    def _refuse(self, what: str) -> NoReturn:
        way_out = "stop here or raise the budget"
        if not self.adaptive:
            way_out += ": dataclasses.replace(budget, epsilon=...) knows what is spent"
        raise BudgetExhausted(
            f"{what} epsilon = {exactly(self.epsilon)} at delta = {exactly(self.delta)} "
            f"({self.rule}); {way_out}"
        )

    def _count(self, round_: Accountable, count: int) -> None:
        """Count rounds, whether they fit or not."""
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
        with _ONE_AT_A_TIME:
            return self._keeps(_steps(steps))

    def _keeps(self, steps: Iterable[tuple[Accountable, int]]) -> bool:
        for round_, given in steps:
            count = integer(1, count=given)
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
        """
        held = self.spending
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

    def _renyi(self, loss: PrivacyLoss) -> _RenyiFilter:
        if self.spending.filter is None:
            self._stay()
            spare = self.delta * _SPARE
            found = _RenyiFilter(loss.curve, self.epsilon, self.delta - spare, spare)
            self.spending.filter = found
        return self.spending.filter


def _priced(one: Round) -> Mechanism:
    """Return a round's mechanism with the noise that was used, where that is less than planned."""
    priced = as_released(
        one.mechanism,
        clip_norm=one.clip_norm,
        planned_std=one.noise_std,
        used_std=one.noise_used,
    )
    if priced is None:
        raise LedgerError(f"no epsilon holds: round {one.index} had no noise that counts")
    if isinstance(priced, CorrelatedRow) and isinstance(one.mechanism, CorrelatedRow):
        # The first row with less noise pays for a whole run with as little, the next ones go on.
        return replace(priced, row=one.mechanism.row)
    return priced


def _steps(given: object) -> Iterable[tuple[Accountable, int]]:
    """Return steps, checked to be pairs."""
    rule = "be (round, count) pairs"
    require(isinstance(given, Iterable), "steps", given, rule, "[(round_mechanism, 40)]")
    assert isinstance(given, Iterable)
    for one in given:
        pair = isinstance(one, Sequence) and not isinstance(one, str) and len(one) == 2
        require(pair, "steps", one, rule, "[(round_mechanism, 40)]")
        yield one[0], one[1]


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

    @property
    def kept(self) -> bool:
        """Whether all that was added is within the limit."""
        return self.off <= self.spare and max(self.total) <= self.limit

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
