"""What runs that release only their last point share: a step, its records, its noise, the ball."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...errors import require
from ...factors import FixedEpochs
from ...ledger import Ledger
from ...mechanisms import Mechanism
from ...mechanisms.exact_normals import StoredDraws
from ...mechanisms.noisy_sgd import Drawn
from ...mechanisms.rounded import HIDDEN_GRID, drawn_ahead, noisy_scaled
from ...relations import Unit, is_add_remove
from ...sampling import FixedSize, Poisson, TruncatedPoisson
from ...training.rounds import (
    Dropout,
    RoundBookkeeping,
    RoundBudget,
    RoundInfo,
    check_given,
    check_ledger,
    check_past,
    check_tensor,
    generator_for,
    noise_source,
    run_round,
)
from ..fed_plt.agents import INWARD, AgentData, AgentLoss
from ..fed_plt.solvers import check_targets

_AT_ONCE = 1 << 20
"""Normal numbers that are drawn ahead."""


@dataclass(frozen=True, eq=False)
class DescentState:
    """State of a run.

    Args:
        round: number of releases.
        parameters: the last release, or the start, float64, shape (dimension,).
    """

    round: int
    parameters: Tensor


class HiddenRun(ABC):
    """A run of noisy, projected steps whose points are kept secret, apart from the last one.

    Attributes:
        loss: of the data.
        dimension: length of the parameters, public.
        noise_std: std of the noise of every step on every coordinate.
        radius: of the ball around 0 that every step is projected on.
        seed: of all randomness; None for the operating system.
        denominator: of the sums, if batches are drawn.
        round_mechanism: the steps between two releases.
    """

    loss: AgentLoss
    dimension: int
    noise_std: float
    radius: float
    seed: int | None
    denominator: float | None

    @property
    @abstractmethod
    def round_mechanism(self) -> Mechanism:
        """The steps between two releases as a mechanism."""

    @property
    def device(self) -> str:
        """The device of its computations."""
        return "cpu"

    @property
    @abstractmethod
    def _count(self) -> int:
        """Number of steps between two releases."""

    @property
    @abstractmethod
    def _planned(self) -> tuple[float, float]:
        """Largest norm of a unit's part of a sum, and the noise on the sum."""

    @property
    @abstractmethod
    def _widening(self) -> float:
        """Factor on the noise that pays for rounding."""

    @abstractmethod
    def _check(self, data: AgentData, ledger: Ledger | None, budget: RoundBudget | None) -> None:
        """Refuse data, a ledger or a budget that do not fit."""

    @abstractmethod
    def _batches(self, data: AgentData, generator: np.random.Generator) -> Iterator[AgentData]:
        """Yield the data of every step."""

    @abstractmethod
    def _moved(self, point: Tensor, batch: AgentData) -> Tensor:
        """Return the point after one step, without noise and projection."""

    def init(self) -> DescentState:
        """Return the state before the first release: the middle of the ball."""
        return DescentState(0, torch.zeros(self.dimension, dtype=torch.float64))

    def step(
        self,
        state: DescentState,
        data: AgentData,
        *,
        ledger: Ledger | None = None,
        budget: RoundBudget | None = None,
        dropout: Dropout | None = None,
        on_release: Callable[[DescentState], None] | None = None,
    ) -> tuple[DescentState, RoundInfo]:
        """Make all steps up to the next release, and release the end.

        Args:
            state: from ``init`` or an earlier ``step``; unchanged. Its parameters are public.
            data: ``AgentData.of([(features, targets), ...])``: one holder's records for
                ``ProjectedDescent``, every client's for ``ProjectedAveraging``.
            ledger: records the release; its ``intent`` is on disk before noise is drawn.
            budget: checked before the release, charged before noise is drawn.
            dropout: None, since one holder has all data.
            on_release: gets the new state after the release and before ``done`` is written.

        Returns:
            The next state and the record of the release. If a point is not finite, the state keeps
                its parameters, and the release counts as refused.

        Raises:
            BudgetExhausted: the release does not fit; no result was released.
            ParameterError: state, data, ledger or budget do not fit.
        """
        check_given(DescentState, state, ledger, budget, dropout, on_release)
        require(dropout is None, "dropout", dropout, "be None: one holder has all data")
        ready = self._checked(state, data, ledger, budget)
        clip_norm, noise_std = self._planned
        books = RoundBookkeeping(
            mechanism=self.round_mechanism,
            ledger=ledger,
            budget=budget,
            clip_norm=clip_norm,
            noise_std=noise_std,
            seed=self.seed,
        )
        return run_round(
            books,
            collect=lambda: ready,
            release=lambda records: self._release(state, records),
            on_release=on_release,
        )

    def _checked(
        self,
        state: DescentState,
        data: AgentData,
        ledger: Ledger | None,
        budget: RoundBudget | None,
    ) -> AgentData:
        """Check the arguments; return the data in the form that the loss requires."""
        check_tensor("state.parameters", state.parameters, (self.dimension,), torch.float64)
        inside = bool(torch.linalg.vector_norm(state.parameters) <= self.radius)
        rule = f"lie in the ball of radius {self.radius:g}"
        require(inside, "state.parameters", "a point outside", rule, "start with init()")
        kind, way_out = isinstance(data, AgentData), "AgentData.of([(features, targets), ...])"
        require(kind, "data", type(data).__name__, "be AgentData", way_out)
        require(data.runs is None, "data.runs", data.runs, "be None")
        self._check(data, ledger, budget)
        rule = f"have dimension {self.dimension}"
        long = self.loss.dimension(data)
        require(long == self.dimension, "data", long, rule)
        check_targets(self.loss, data)
        expected = self.round_mechanism.protects
        other = Unit.RECORD if expected is Unit.CLIENT else Unit.CLIENT
        for name, book in (("ledger", ledger), ("budget", budget)):
            unit = getattr(getattr(book, "facts", book), "unit", None)
            require(unit is not other, f"{name}.unit", str(other), f"be '{expected}'")
        check_ledger(ledger, self.round_mechanism, self.seed)
        check_past(state, self.round_mechanism, ledger, budget)
        return self.loss.prepared(data)

    def _release(self, state: DescentState, data: AgentData) -> tuple[DescentState, RoundInfo]:
        """Make the steps; the points between are not kept."""
        source, point, left = noise_source(self.seed, state.round), state.parameters, self._count
        batches = self._batches(data, generator_for(self.seed, state.round, "batches"))
        together = max(1, _AT_ONCE // self.dimension)
        while left:
            count = min(left, together)
            drawn = drawn_ahead(source, count * self.dimension)
            point = self._walked(point, itertools.islice(batches, count), drawn)
            left -= count
        finite = bool(torch.isfinite(point).all())
        info = RoundInfo(
            round=state.round,
            cohort=1,
            arrived=int(finite),
            refused=int(not finite),
            aborted=False,
            upload_bytes=8 * self.dimension,
            # The little extra noise that covers rounding is not in the account.
            noise_std=self._planned[1],
            denominator=self.denominator,
        )
        return DescentState(state.round + 1, point if finite else state.parameters), info

    def _walked(self, point: Tensor, batches: Iterable[AgentData], drawn: StoredDraws) -> Tensor:
        """Return the point after one step for each batch."""
        std = self.noise_std * self._widening
        for batch in batches:
            moved = self._moved(point, batch)
            noisy: Tensor = noisy_scaled(moved, stds=std, deviates=drawn, grid=HIDDEN_GRID)
            point = self.projected(noisy)
        return point

    def projected(self, point: Tensor) -> Tensor:
        """Return the nearest point of the ball, a little inside for the sake of rounding."""
        long, most = torch.linalg.vector_norm(point), self.radius * INWARD
        return torch.where(long > most, point * (most / long), point)


def check_scale(run: HiddenRun) -> None:
    """Refuse a ball or noise whose square under- or overflows."""
    for name in ("radius", "noise_std"):
        fits, rule = 1e-140 <= getattr(run, name) <= 1e140, "be between 1e-140 and 1e140"
        way_out = "rescale the features, since squares of other norms under- or overflow"
        require(fits, name, getattr(run, name), rule, way_out)


def check_fixed_order(name: str, order: FixedEpochs, units: int, denominator: float) -> None:
    """Refuse a fixed order with a batch larger than the denominator, or with ``apart``."""
    size = -(-units // order.separation)
    rule = f"be at least {size}, the size of a batch"
    require(size <= denominator, "denominator", denominator, rule)
    # Here a unit's place is its number, which moves if an earlier unit is removed.
    rule = "not state apart, since a removed unit moves the others to other batches"
    require(not order.apart, name, order, rule, f"use FixedEpochs({order.separation})")


def check_population(name: str, draws: Drawn, counted: str, units: int) -> None:
    """Refuse draws from another number of units than declared."""
    if isinstance(draws, FixedSize | TruncatedPoisson):
        rule = f"have population = {counted} = {units}"
        require(draws.population == units, name, draws, rule)


def check_book(
    counted: str,
    draws: Drawn | FixedEpochs | None,
    ledger: Ledger | None,
    budget: RoundBudget | None,
) -> None:
    """Refuse add_remove, except with Poisson."""
    for name, book in (("ledger", ledger), ("budget", budget)):
        rule = f"not be add_remove, since the number of {counted} is public, except with Poisson"
        fits = isinstance(draws, Poisson) or not is_add_remove(book)
        require(fits, f"{name}.adjacency", "add_remove", rule)
