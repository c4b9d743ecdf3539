"""Projected noisy gradient descent: one holder of records trains, and releases only the end.

x <- P(x - step_size gradient + noise), P the projection on a ball. Nobody sees the points between.
With a loss of one linear output, clipped record by record, no step moves two points apart. So the
cost stops growing with the number of steps: T16, and T17 and T18 with batches. The unit is a
record.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...errors import (
    UnsupportedCombination,
    natural,
    positive,
    refuse,
    require,
    validate_fields,
    whole,
)
from ...factors import FixedEpochs
from ...ledger import Ledger
from ...mechanisms import NoisyGradientDescent, NoisySGD
from ...mechanisms.exact_normals import StoredDraws
from ...mechanisms.noisy_sgd import Drawn
from ...mechanisms.rounded import HIDDEN_GRID, drawn_ahead, noisy_scaled
from ...relations import Unit, is_add_remove
from ...rounding import HUNDREDS, rounded_up
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
from ..fed_plt.solvers import clip_within

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


@dataclass(frozen=True, kw_only=True)
class ProjectedDescent:
    """Private training of a linear model whose last point alone is released.

    Every ``step`` of this loop makes ``steps`` noisy gradient steps and releases the end; the next
    one starts there. The price of one is ``round_mechanism``: a ``NoisyGradientDescent`` with
    ``radius``, or a ``NoisySGD`` if the steps use batches.

    Args:
        loss: loss of one linear output with a ``feature_bound``: ``Logistic`` or ``LeastSquares``.
        records: number of records, public; with ``Poisson`` an upper limit of it.
        dimension: length of the parameters, public.
        steps: noisy gradient steps between two releases.
        step_size: at most 2 / smoothness of the loss, below it with a regulariser.
        noise_std: std of the noise of every step on every coordinate, above 0.
        radius: of the ball around 0 that every step is projected on.
        clip_norm: norm that each record's gradient is clipped to; None if the loss bounds it.
        seed: None for randomness from the operating system. With a number everything is
            reproducible, the noise too, and therefore not private.
        batches: how a batch is drawn in every step, or ``FixedEpochs(l)``: record i is in the batch
            of the steps i, i + l, and so on; see ``NoisySGD``. None for all records.
        denominator: public number that the sum of a batch is divided by; only with ``batches``.

    Raises:
        ParameterError: a value out of its range, or neither a clip norm nor a loss with a bound.
        UnsupportedCombination: the loss has no constants that hold for all records, with clipping.
    """

    loss: AgentLoss
    records: int
    dimension: int
    steps: int
    step_size: float
    noise_std: float
    radius: float
    clip_norm: float | None = None
    seed: int | None = None
    batches: Drawn | FixedEpochs | None = None
    denominator: float | None = None

    def __post_init__(self) -> None:
        validate_fields(self, natural, "records", "dimension", "steps")
        validate_fields(self, positive, "denominator", or_none=True)
        given = (self.batches, self.denominator)
        require(given.count(None) != 1, "batches, denominator", given, "go together")
        validate_fields(self, positive, "step_size", "noise_std", "radius")
        for name in ("radius", "noise_std"):
            fits, rule = 1e-140 <= getattr(self, name) <= 1e140, "be between 1e-140 and 1e140"
            way_out = "rescale the features, since squares of other norms under- or overflow"
            require(fits, name, getattr(self, name), rule, way_out)
        validate_fields(self, positive, "clip_norm", or_none=True)
        validate_fields(self, whole, "seed", or_none=True)
        if not isinstance(self.loss, AgentLoss):
            refuse("loss", type(self.loss).__name__, "be Logistic, LeastSquares or an AgentLoss")
        if self.loss.curvature() is None or not self.loss.contracts_clipped:
            raise UnsupportedCombination(
                f"T16 needs constants of the loss that hold for all records and survive clipping, "
                f"which {self.loss} does not state; use Logistic or LeastSquares with feature_bound"
            )
        # This refuses a step size for which steps move points apart, and noise without an account.
        _ = self._widening
        # Otherwise the rounding of a step in doubles is not covered (docs/theory/rounding.md).
        # Norms and inner products err by a rounding per coordinate.
        longest = self.radius * math.sqrt(self.dimension)
        # A sum of B gradients over b errs by B roundings of B / b largest gradients.
        most, share = float(self.records), 1.0
        if self._sgd is not None:
            most = self._sgd.largest_batch
            share = max(1.0, most / self._sgd.denominator)
        reach = max(longest, most * share * self.step_size * self._planned[0]) / 2**25
        rule, way_out = (
            f"be at least {reach:.3g}",
            "use a smaller ball, fewer records or smaller steps",
        )
        require(reach <= self.noise_std, "noise_std", self.noise_std, rule, way_out)

    @property
    def device(self) -> str:
        """The device of its computations."""
        return "cpu"

    @cached_property
    def round_mechanism(self) -> NoisyGradientDescent | NoisySGD:
        """The steps between two releases as a mechanism."""
        if self._sgd is not None:
            return self._sgd
        strong, smooth = self._constants
        return NoisyGradientDescent(
            step_size=self.step_size,
            noise_std=self.noise_std,
            sensitivity=2.0 * self._largest / self.records,
            # Clipping leaves the strong convexity of the regulariser, which is all there is.
            strong_convexity=strong,
            smoothness=smooth,
            steps=self.steps,
            radius=self.radius,
            dimension=self.dimension,
        )

    @cached_property
    def _sgd(self) -> NoisySGD | None:
        """The mechanism of steps on batches."""
        if self.batches is None or self.denominator is None:
            return None
        strong, smooth = self._constants
        poisson = isinstance(self.batches, Poisson)
        if isinstance(self.batches, FixedEpochs):
            size = -(-self.records // self.batches.separation)
            rule = f"be at least {size}, the size of a batch"
            require(size <= self.denominator, "denominator", self.denominator, rule)
            # Here a record's place is its number, which moves if an earlier record is removed.
            rule = "not state apart, since a removed record moves the others to other batches"
            way_out = f"use FixedEpochs({self.batches.separation})"
            require(not self.batches.apart, "batches", self.batches, rule, way_out)
        elif isinstance(self.batches, FixedSize | TruncatedPoisson):
            rule = f"have population = records = {self.records}"
            require(self.batches.population == self.records, "batches", self.batches, rule)
        return NoisySGD(
            step_size=self.step_size,
            noise_std=self.noise_std,
            clip_norm=self._largest,
            denominator=self.denominator,
            batches=self.batches,
            steps=self.steps,
            # The sum was rounded, and a large regulariser hides digits of the loss.
            smoothness=rounded_up(smooth - strong + math.ulp(smooth), HUNDREDS)
            if strong
            else smooth,
            regularisation=strong,
            radius=self.radius,
            population=self.records if poisson else None,
            dimension=self.dimension,
        )

    @cached_property
    def _constants(self) -> tuple[float, float]:
        """Strong convexity and smoothness of a record's loss, the regulariser included."""
        found = self.loss.curvature()
        assert found is not None
        return found

    @cached_property
    def _largest(self) -> float:
        """Largest norm of a record's gradient without the regulariser."""
        own = self.loss.sensitivity(1)
        known = [None if own is None else 0.5 * own, self.clip_norm]
        bounds = [bound for bound in known if bound is not None]
        way_out = "or use a loss with bounded gradients, such as Logistic"
        require(bounds, "clip_norm", None, f"be given for {type(self.loss).__name__}", way_out)
        # Both bounds hold, so the smaller one is used.
        return min(bounds)

    @cached_property
    def _widening(self) -> float:
        """Factor on the noise that pays for rounding; with batches the account includes it."""
        mechanism = self.round_mechanism
        if isinstance(mechanism, NoisySGD):
            # This refuses noise of which rounding is too large a part.
            _ = mechanism.drift
            return 1.0
        return mechanism.widening(self.dimension)

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
        """Make ``steps`` noisy gradient steps and release the end.

        Args:
            state: from ``init`` or an earlier ``step``; unchanged. Its parameters are public.
            data: one agent's records, ``AgentData.of([(features, targets)])``.
            ledger: records the release; its ``intent`` is on disk before noise is drawn.
            budget: checked before the release, charged before noise is drawn.
            dropout: None, since there is one holder of records.
            on_release: gets the new state after the release and before ``done`` is written.

        Returns:
            The next state and the record of the release. If a point is not finite, the state keeps
                its parameters, and the release counts as refused.

        Raises:
            BudgetExhausted: the release does not fit; no result was released.
            ParameterError: state, data, ledger or budget do not fit.
        """
        check_given(DescentState, state, ledger, budget, dropout, on_release)
        require(dropout is None, "dropout", dropout, "be None: one holder has all records")
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

    @cached_property
    def _planned(self) -> tuple[float, float]:
        """Largest norm of a record's gradient, and the noise on the sum of gradients."""
        size = self.records if self.denominator is None else self.denominator
        return self._largest, self.noise_std / self.step_size * size

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
        kind, way_out = isinstance(data, AgentData), "AgentData.of([(features, targets)])"
        require(kind, "data", type(data).__name__, "be AgentData", way_out)
        require(data.agents == 1, "data.agents", data.agents, "be 1")
        found = data.records[0]
        # Under Poisson sampling the number is a secret, and no sum is divided by it.
        fits = found <= self.records if isinstance(self.batches, Poisson) else found == self.records
        rule = f"be the declared number, {self.records}"
        require(fits, "data.records", found, rule)
        require(data.runs is None, "data.runs", data.runs, "be None")
        rule = f"have dimension {self.dimension}"
        long = self.loss.dimension(data)
        require(long == self.dimension, "data", long, rule)
        for name, book in (("ledger", ledger), ("budget", budget)):
            rule = "not be add_remove, since the number of records is public, except with Poisson"
            fits = isinstance(self.batches, Poisson) or not is_add_remove(book)
            require(fits, f"{name}.adjacency", "add_remove", rule)
            unit = getattr(getattr(book, "facts", book), "unit", None)
            require(unit is not Unit.CLIENT, f"{name}.unit", "client", "be 'record'")
        check_ledger(ledger, self.round_mechanism, self.seed)
        check_past(state, self.round_mechanism, ledger, budget)
        return self.loss.prepared(data)

    def _release(self, state: DescentState, data: AgentData) -> tuple[DescentState, RoundInfo]:
        """Make the steps; the points between are not kept."""
        source, point, left = noise_source(self.seed, state.round), state.parameters, self.steps
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

    def _batches(self, data: AgentData, generator: np.random.Generator) -> Iterator[AgentData]:
        """Yield the records of every step, with the weights of their sum."""
        if self.batches is None or self.denominator is None:
            yield from itertools.repeat(data)
            return
        rows = np.arange(data.records[0])
        for step in itertools.count():
            if isinstance(self.batches, FixedEpochs):
                length = self.batches.separation
                drawn = rows[step % length :: length]
            else:
                drawn = self.batches.draw(len(rows), generator)
            chosen = torch.from_numpy(drawn)[None]
            share = torch.full(chosen.shape, 1.0 / self.denominator, dtype=torch.float64)
            yield data.taken(chosen, share)

    def _walked(self, point: Tensor, batches: Iterable[AgentData], drawn: StoredDraws) -> Tensor:
        """Return the point after one step for each batch."""
        std = self.noise_std * self._widening
        most = self.records if self._sgd is None else math.ceil(self._sgd.largest_batch)
        clip = None if self.clip_norm is None else clip_within(self.clip_norm, most)
        for batch in batches:
            slope = self.loss.gradient(point[None], batch, clip)[0]
            moved = point - self.step_size * slope
            noisy: Tensor = noisy_scaled(moved, stds=std, deviates=drawn, grid=HIDDEN_GRID)
            point = self.projected(noisy)
        return point

    def projected(self, point: Tensor) -> Tensor:
        """Return the nearest point of the ball, a little inside for the sake of rounding."""
        long, most = torch.linalg.vector_norm(point), self.radius * INWARD
        return torch.where(long > most, point * (most / long), point)
