"""Opacus's steps in our ledger, each checked against a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader

from ...errors import BudgetExhausted, LedgerError, integer, refuse, require
from ...ledger import Ledger
from ...mechanisms import Mechanism
from ...questions.budget import Budget
from ...relations import Unit
from ...sampling import Scheme
from .draws import WAY_OUT
from .guard import Guard
from .loaders import Loader, scheme_of
from .randomness import Randomness
from .sums import (
    Sums,
    check_denominator,
    check_kind,
    check_scheme,
    forget_gradients,
    step_of,
)

MISSED = "another optimizer, not this one, stepped a drawn batch"
"""Why a record is void."""

UNSTEPPED = "a batch was drawn, but its step did not follow"
"""Why a record is void unless the step comes later."""


@dataclass(eq=False)
class StepBooks:
    """Connects an optimizer of Opacus to a Budget and a Ledger.

    Before the release of a step, the budget is checked and the intent is on disk. After it the
    round is confirmed. Under ``Shuffled`` a round is a whole pass. ``close`` ends the ledger.
    """

    optimizer: DPOptimizer
    loader: Loader
    ledger: Ledger | None
    budget: Budget | None
    _random: Randomness
    _sums: Sums
    _guard: Guard
    _steps: dict[float, Mechanism] = field(default_factory=dict)
    _number: int | None = None
    _noise_std: float = 0.0
    _released: bool = False
    _stepped: int = 0
    _cohort: int = 0
    _void: str = ""
    _unstepped: int | None = None
    _noisy: bool = False
    _closed: bool = False
    _replaced: bool = False

    def before(self, then: Callable[[Any], None] | None, optimizer: Any) -> None:
        """Check the budget and write the intent; Opacus calls it before every step.

        Raises:
            BudgetExhausted: the step does not fit; its gradients are deleted and not released.
            ParameterError: no batch was drawn for it; its gradients were clipped to more than its
                noise hides; torch was seeded since; or the record is void. Its gradients are
                deleted as well.
        """
        if self._replaced:
            if then is not None:
                then(optimizer)
            return
        try:
            self._check_open()
            self._guard.check_original()
            self._check_seeds()
            way_out = "do not change add_noise or step hooks, and call optimizer.step()"
            require(self._noisy, "the noise of a step", None, "be added by its optimizer", way_out)
            self._stepped = self._sums.used()
            self._begin()
            self._guard.begin(self)
        except BaseException as problem:
            self._stopped(problem)
            raise
        self._noisy = False
        self.loader.settle()
        self._lift()
        if then is not None:
            then(optimizer)

    def _check_seeds(self) -> None:
        if self.ledger is None and self.budget is not None and self._random.suspect:
            self.budget.seeded()
        if self.ledger is not None and not self.ledger.reproducible:
            self._random.check()

    def add_noise(self, add: Callable[[], None]) -> None:
        """Add the noise of a step, whose randomness must be new; Opacus calls it.

        Raises:
            ParameterError: the noise comes from a generator state that was used before.
        """
        if self._replaced:
            add()
            return
        try:
            self._random.noise(add)
            self._noisy = True
        except BaseException as problem:
            self._stopped(problem)
            raise

    def _stopped(self, problem: BaseException) -> None:
        """Remove all traces of a stopped step, for any cause, so that no later step uses them."""
        # The budget's answer does not depend on the batch, so the batch may be dropped. For any
        # other error it waits for its step.
        if isinstance(problem, BudgetExhausted):
            self.loader.drop()
        if self.loader.missed:
            self.void(MISSED)
        self.loader.stop()
        self._noisy = False
        forget_gradients(self.optimizer)
        for sums in vars(self.optimizer)["sums"]:
            sums.stop()

    def void(self, reason: str) -> None:
        """Make the record void for good, on disk and in the budget: it misses a release.

        Args:
            reason: the cause, in words that may be public.
        """
        self._void = self._void or reason
        if self.budget is not None and not self.budget.spending.void:
            self.budget.spending.void = reason
        if self.ledger is not None and reason not in self.ledger.voids:
            # A closed or released ledger takes no line.
            with suppress(LedgerError):
                self.ledger.void(reason)

    @property
    def ended(self) -> bool:
        """Whether recording has ended: closed, void, or the ledger takes no line."""
        over = self.ledger is not None and not self.ledger.writable
        return self._closed or bool(self._void) or over

    @property
    def fits(self) -> bool:
        """Whether the budget allows the next step; nothing is spent."""
        noise = float(self.optimizer.noise_multiplier)
        if self.budget is None or self.loader.in_round(noise):
            return not self._void
        return self.budget.allows(step_of(noise, self.loader.scheme))

    def _check_open(self) -> None:
        if self._closed:
            way_out = "call keep_books again, with another ledger or budget"
            refuse("a step", "a step after StepBooks.close", "precede it", way_out)
        self._check_void()

    def _check_void(self) -> None:
        if self._void:
            way_out = "create a new ledger; the steps in this one stay spent"
            refuse("the record", f"void: {self._void}", "contain every release", way_out)

    def _waits(self) -> None:
        """Write to disk that a batch was drawn without its step; that step removes the mark.

        Without the line, a run that stops here and resumes later would have dropped the batch.
        """
        if self.ledger is not None and self._unstepped is None and self.loader.under_way:
            with suppress(LedgerError):
                self._unstepped = self.ledger.void(UNSTEPPED)

    def _lift(self) -> None:
        if self.ledger is None or self._unstepped is None or self.loader.under_way:
            return
        with suppress(LedgerError):
            self.ledger.lift(self._unstepped)
            self._unstepped = None

    def left(self) -> Callable[[Ledger], None] | None:
        """Return what is to be done where this process resumes the ledger: a batch may wait."""
        waits = self.loader.left and self._unstepped is None
        return self._resumed if waits and not self._replaced else None

    def _resumed(self, ledger: Ledger) -> None:
        """Put on disk that a batch waits; books that step it, of the same loader, lift this."""
        self._unstepped = ledger.void(UNSTEPPED)

    def unstepped_of(self, ledger: Ledger | None, loader: Loader) -> int | None:
        """Return the line in which a ledger says that a batch of a loader waits; None for none."""
        same = self.ledger is not None and ledger is not None and self.ledger.nonce == ledger.nonce
        return self._unstepped if same and self.loader.draws is loader.draws else None

    def replace(self) -> None:
        """Make room for other books on the same optimizer; these have ended."""
        self._replaced = True
        self._guard.remove(self)

    def _begin(self) -> None:
        noise = float(self.optimizer.noise_multiplier)
        if self.loader.in_round(noise):
            return
        step = self._steps.setdefault(noise, step_of(noise, self.loader.scheme))
        if self.budget is not None and not self.budget.allows(step):
            # The earlier round continues if this one is refused.
            self.budget.spend(step)
        self._confirm()
        if self.budget is not None and self.ledger is not None:
            # Others may have written to the ledger since.
            self.budget.charge(self.ledger)
            if not self.budget.allows(step):
                self.budget.spend(step)
        if self.ledger is not None:
            clip = float(self.optimizer.max_grad_norm)
            self._noise_std = noise * clip
            self._number = self.ledger.intent(step, clip_norm=clip, noise_std=self._noise_std)
        if self.budget is not None:
            self.budget.spend(step, ledger=self.ledger, number=self._number)
        self.loader.begin_round(noise)

    def stepped(self) -> None:
        """Confirm a released step; it has moved the parameters."""
        self._cohort, self._released = self._cohort + self._stepped, True
        if self.loader.passes is None:
            self._confirm()

    def _confirm(self) -> None:
        """Confirm the current round if a part was released; otherwise it stays started."""
        if self.ledger is not None and self._number is not None and self._released:
            self.ledger.done(
                self._number,
                cohort=self._cohort,
                arrived=self._cohort,
                refused=0,
                noise_std=self._noise_std,
                denominator=_denominator(self.optimizer),
            )
            if self.budget is not None:
                self.budget.ended(self.ledger, self._number)
        self._number, self._cohort, self._released = None, 0, False

    def close(self) -> None:
        """Confirm the current round and end the ledger: the run is complete.

        Raises:
            ParameterError: the record is void, a batch was drawn and not stepped, or no step was
                recorded. The ledger stays open.
        """
        if self.ledger is None:
            self._complete()
        else:
            # The ledger checks that the run is complete before it closes.
            self.ledger.close()
        self._closed = True

    def _complete(self) -> None:
        """Confirm the current round, or refuse to call the run complete."""
        self._check_void()
        if self.loader.under_way:
            self._waits()
            rule = (
                "be stepped before the run is complete, since dropping a batch selects the release"
            )
            way_out = f"draw it again with next(iter(data_loader)), step it, then close; {WAY_OUT}"
            refuse("the last drawn batch", "not stepped", rule, way_out)
        if self.ledger is not None and not self.ledger.begun_rounds:
            rule = "have recorded a step, since an empty run has no certificate"
            way_out = (
                "step the optimizer passed to keep_books with batches of its data_loader; end "
                "an empty run with ledger.release()"
            )
            refuse("the run", "no step", rule, way_out)
        self._confirm()


def keep_books(
    optimizer: DPOptimizer,
    loader: DataLoader[Any],
    *,
    ledger: Ledger | None = None,
    budget: Budget | None = None,
    expected_batch_size: int | None = None,
    scheme: Scheme | None = None,
) -> StepBooks:
    """Make an optimizer of Opacus check a budget and write a ledger at every step.

    Call it once, before the first batch is drawn, with the results of ``make_private``. Call it
    again only after ``StepBooks.close``. Every batch of the loader must be stepped once, even an
    empty one. While one waits, no other is drawn. A step without a drawn batch is refused. A step
    that the books did not start is refused before parameters move, and the record is void for good.
    Noise, and draws that amplify, get separate generators unless the caller provides some.

    Args:
        optimizer: flat clipping or clipping by layer, in one process.
        loader: the source of its batches; see ``scheme_of``.
        ledger: of records; written until ``StepBooks.close``.
        budget: checked before every step; rounds already in the ledger are charged to it.
        expected_batch_size: a public denominator of the sums, instead of Opacus's, which follows
            the number of records. Needed for ``add_remove``.
        scheme: the loader's scheme, chosen without a look at the records. Needed for
            ``add_remove``, because Opacus's own rate and number of steps follow the number of
            records.

    Raises:
        ParameterError: another optimizer, a ledger of clients, an undeclared denominator or scheme,
            a fixed seed although the ledger records none, old gradients, or other books on this
            optimizer that have not ended.
        UnsupportedCombination: see ``scheme_of``.
        BudgetExhausted: the rounds in the ledger already exceed the budget.
    """
    check_kind(optimizer)
    guard = Guard.of(optimizer)
    books_before = [one for one in guard.keepers if isinstance(one, StepBooks)]
    _check_unused(optimizer, ledger, books_before)
    for adjacency in _adjacencies(ledger, budget):
        check_scheme(scheme_of(loader), scheme, adjacency)
        check_denominator(optimizer, expected_batch_size, adjacency)
    random = Randomness(optimizer, loader)
    seeded = random.chosen
    _check_seed_policy(ledger, seeded)
    if expected_batch_size is not None:
        optimizer.expected_batch_size = integer(1, expected_batch_size=expected_batch_size)
    drawn = Loader.looked_at(loader)
    # With a chosen seed the caller wants repeatable numbers: the ledger, or the budget, says it.
    if not seeded and (ledger is None or not ledger.reproducible):
        random.make_private(drawn.draws)
    waiting = _replaced(books_before, ledger, drawn)
    books = StepBooks(optimizer, drawn, ledger, budget, random, Sums(optimizer, drawn), guard)
    books._unstepped = waiting
    drawn.unstepped = books._waits
    # Rounds of an earlier session are also spent.
    if ledger is not None and budget is not None:
        budget.charge(ledger)
    # The existing hook still runs, after ours.
    optimizer.attach_step_hook(partial(books.before, optimizer.step_hook))
    optimizer.add_noise = partial(books.add_noise, optimizer.add_noise)
    guard.add(books)
    if ledger is not None:
        ledger.before_close(books._complete)
        ledger.before_release(books.left)
    return books


def _adjacencies(ledger: Ledger | None, budget: Budget | None) -> set[str | None]:
    """Return the adjacencies under which the steps are accounted; None for an unknown one."""
    return {
        None if ledger is None else ledger.facts.adjacency,
        None if budget is None else budget.adjacency,
    }


def _replaced(before: Sequence[StepBooks], ledger: Ledger | None, loader: Loader) -> int | None:
    """End earlier books; return the line in which the ledger says that a batch waits."""
    waiting = [one.unstepped_of(ledger, loader) for one in before]
    for earlier in before:
        earlier.replace()
    return next((number for number in waiting if number is not None), None)


def _check_seed_policy(ledger: Ledger | None, seeded: bool) -> None:
    """Refuse a ledger that does not say that a seed was chosen."""
    if ledger is not None and not ledger.reproducible and seeded:
        way_out = "create the ledger with seed_policy='fixed', or seed no generator of torch"
        rule = "be 'fixed', since torch was seeded"
        refuse("ledger's seed_policy", ledger.seed_policy, rule, way_out)


def _denominator(optimizer: Any) -> float:
    if optimizer.loss_reduction == "sum":
        return 1.0
    return float(optimizer.expected_batch_size * optimizer.accumulated_iterations)


def _check_unused(
    optimizer: DPOptimizer, ledger: Ledger | None, before: Sequence[StepBooks]
) -> None:
    """Refuse a ledger of clients, and an optimizer with other books or gradients of a batch."""
    for earlier in before:
        way_out = "close the first ones (books.close()), or make another optimizer private"
        rule = "be called once per optimizer, since two books would count a step twice"
        require(earlier.ended, "keep_books", "a second time", rule, way_out)
    if ledger is not None and ledger.facts.unit is not Unit.RECORD:
        way_out = "Opacus clips the gradient of every record"
        refuse("ledger's unit", ledger.facts.unit, "be 'record'", way_out)
    if any(parameter.summed_grad is not None for parameter in optimizer.params):
        way_out = "call keep_books before the first batch is drawn, or zero_grad() first"
        refuse("the optimizer", "clipped gradients from before", "contain none", way_out)
