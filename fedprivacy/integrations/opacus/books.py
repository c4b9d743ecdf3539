"""Opacus's steps in our ledger, each asked for in a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader

from ...errors import integer, refuse
from ...ledger import Ledger
from ...mechanisms import Mechanism
from ...questions.budget import Budget
from ...relations import Unit
from ...sampling import Scheme, Shuffled
from .loaders import Loader, scheme_of
from .sums import Sums, check_denominator, check_kind, check_scheme, step_of

# ---- seeds

_CHOSEN = 2**32
"""Seeds below it are taken to be somebody's: torch's own have 53 bits and more."""

_UNSEEDED = torch.Generator().initial_seed()
"""What every new generator begins with that nobody seeds."""


class Randomness:
    """The generators of an optimizer's noise and a loader's draws, and the seeds they began with.

    An order in passes amplifies nothing, so its draws need no secret.
    """

    def __init__(self, optimizer: Any, loader: DataLoader[Any]) -> None:
        self.optimizer = optimizer
        self.sampler: Any = None
        if not isinstance(scheme_of(loader), Shuffled):
            batches: Any = loader.batch_sampler
            self.sampler = batches if hasattr(batches, "generator") else batches.sampler
        self.begun = self._now()

    def _now(self) -> list[tuple[Any, int | None]]:
        found = [] if self.sampler is None else [self.sampler.generator or torch.default_generator]
        if self.optimizer.generator is not None:
            found.append(self.optimizer.generator)
        else:
            # In the order of the parameters, each device once.
            devices = dict.fromkeys(parameter.device for parameter in self.optimizer.params)
            found += [_generator_of(device) for device in devices]
        # Secure generators take no seed.
        secure = self.optimizer.secure_mode
        return [(one, None if secure else one.initial_seed()) for one in found]

    @property
    def chosen(self) -> bool:
        """Whether somebody seems to have chosen a seed, or none at all."""
        seeds = [seed for _, seed in self.begun if seed is not None]
        return any(seed < _CHOSEN or seed == _UNSEEDED for seed in seeds)

    @property
    def suspect(self) -> bool:
        """Whether somebody seems to have chosen a seed, or has changed one since."""
        return self.chosen or self._now() != self.begun

    def check(self) -> None:
        """Refuse a generator, or a seed, that was not there at the beginning.

        Raises:
            ParameterError: there is one.
        """
        if self._now() != self.begun:
            rule = "stay as keep_books saw them: the ledger says that no seed was chosen"
            way_out = "seed before keep_books, with a ledger of seed_policy='fixed', or not at all"
            refuse("torch's generators and seeds", "others", rule, way_out)


def _generator_of(device: torch.device) -> Any:
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[device.index]


# ---- the books


@dataclass
class StepBooks:
    """What stands between an optimizer of Opacus and its steps: a Budget, and a Ledger.

    Before a step is released the budget is asked and the intent is on disk; after it the round is
    confirmed. Under ``Shuffled`` a round is a whole pass. ``close`` ends the ledger.
    """

    optimizer: DPOptimizer
    loader: Loader
    ledger: Ledger | None
    budget: Budget | None
    _random: Randomness
    _sums: Sums
    _steps: dict[float, Mechanism] = field(default_factory=dict)
    _number: int | None = None
    _noise_std: float = 0.0
    _released: bool = False
    _stepped: int = 0
    _cohort: int = 0

    def before(self, then: Callable[[Any], None] | None, optimizer: Any) -> None:
        """Ask the budget and write the intent; Opacus calls it before every step.

        Raises:
            BudgetExhausted: the step does not fit; its gradients are forgotten, nothing released.
            ParameterError: no batch was drawn for it, its gradients were clipped to more than its
                noise hides, or torch was seeded since; as well.
        """
        try:
            self._stepped = self._sums.used()
            if self.ledger is None and self.budget is not None and self._random.suspect:
                self.budget.seeded()
            if self.ledger is not None and not self.ledger.reproducible:
                self._random.check()
            self._begin()
        # Whatever stops the step, its gradients must not be left for a later one.
        except BaseException:
            for parameter in optimizer.params:
                parameter.grad = parameter.summed_grad = None
            for sums in optimizer.sums:
                sums.drop()
            raise
        if then is not None:
            then(optimizer)

    def _begin(self) -> None:
        noise = float(self.optimizer.noise_multiplier)
        if self.loader.in_round(noise):
            return
        step = self._steps.setdefault(noise, step_of(noise, self.loader.scheme))
        if self.budget is not None and not self.budget.allows(step):
            # The round before goes on where this one is refused.
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

    def after(self, *_: object) -> None:
        """Confirm a step that was released; torch calls it after every step."""
        self._cohort, self._released = self._cohort + self._stepped, True
        if self.loader.passes is None:
            self._confirm()

    def _confirm(self) -> None:
        """Confirm the round under way if anything of it was released; else it stays begun."""
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
        """Confirm what is under way and end the ledger: the run is complete."""
        self._confirm()
        if self.ledger is not None:
            self.ledger.close()


def keep_books(
    optimizer: DPOptimizer,
    loader: DataLoader[Any],
    *,
    ledger: Ledger | None = None,
    budget: Budget | None = None,
    expected_batch_size: int | None = None,
    scheme: Scheme | None = None,
) -> StepBooks:
    """Let an optimizer of Opacus ask a budget and write a ledger at every step.

    To be called once, before the first batch is drawn, with what ``make_private`` returned. Every
    batch of the loader must be stepped once, an empty one too: a step that no batch was drawn for
    is refused, and released nothing.

    Args:
        optimizer: flat clipping or clipping by layer, in one process.
        loader: what its batches come from; see ``scheme_of``.
        ledger: of records; written until ``StepBooks.close``.
        budget: asked before every step; rounds that the ledger already holds are charged to it.
        expected_batch_size: a public number that sums are divided by, in place of Opacus's, which
            follows the number of records. Needed for ``add_remove``.
        scheme: what the loader draws, decided without a look at the records. Needed for
            ``add_remove``, as Opacus's own rate and number of steps follow how many there are.

    Raises:
        ParameterError: another optimizer, a ledger of clients, an undeclared denominator or
            scheme, or a fixed seed where the ledger says there is none.
        UnsupportedCombination: see ``scheme_of``.
        BudgetExhausted: what the ledger holds exceeds the budget already.
    """
    check_kind(optimizer)
    if ledger is not None and ledger.facts.unit is not Unit.RECORD:
        refuse("ledger's unit", ledger.facts.unit, "be 'record'", "Opacus clips every record's own")
    for adjacency in {ledger and ledger.facts.adjacency, budget and budget.adjacency}:
        check_scheme(scheme_of(loader), scheme, adjacency)
        check_denominator(optimizer, expected_batch_size, adjacency)
    random = Randomness(optimizer, loader)
    if ledger is not None and not ledger.reproducible and random.chosen:
        way_out = "create the ledger with seed_policy='fixed', or seed no generator of torch"
        refuse("ledger's seed_policy", ledger.seed_policy, "be 'fixed': torch was seeded", way_out)
    if expected_batch_size is not None:
        optimizer.expected_batch_size = integer(1, expected_batch_size=expected_batch_size)
    drawn = Loader.looked_at(loader)
    books = StepBooks(optimizer, drawn, ledger, budget, random, Sums(optimizer, drawn))
    # Rounds of an earlier session are spent, too.
    if ledger is not None and budget is not None:
        budget.charge(ledger)
    # The hook that was there still runs, after ours.
    optimizer.attach_step_hook(partial(books.before, optimizer.step_hook))
    optimizer.original_optimizer.register_step_post_hook(books.after)
    return books


def _denominator(optimizer: Any) -> float:
    if optimizer.loss_reduction == "sum":
        return 1.0
    return float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
