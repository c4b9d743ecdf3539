"""Projected noisy gradient descent: one holder of records trains, and releases only the end.

x <- P(x - step_size gradient + noise), P the projection on a ball. Nobody sees the points between.
With a loss of one linear output, clipped record by record, no step moves two points apart. So the
cost stops growing with the number of steps: T16, and T17 and T18 with batches. The unit is a
record.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
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
from ...mechanisms.noisy_sgd import Drawn
from ...rounding import HUNDREDS, rounded_up
from ...sampling import Poisson
from ...training.rounds import RoundBudget
from ..fed_plt.agents import AgentData, AgentLoss
from ..fed_plt.solvers import clip_within
from .hidden import HiddenRun, check_book, check_fixed_order, check_population, check_scale


@dataclass(frozen=True, kw_only=True)
class ProjectedDescent(HiddenRun):
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
        check_scale(self)
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
            check_fixed_order("batches", self.batches, self.records, self.denominator)
        else:
            check_population("batches", self.batches, "records", self.records)
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

    @property
    def _count(self) -> int:
        return self.steps

    @cached_property
    def _planned(self) -> tuple[float, float]:
        """Largest norm of a record's gradient, and the noise on the sum of gradients."""
        size = self.records if self.denominator is None else self.denominator
        return self._largest, self.noise_std / self.step_size * size

    def _check(self, data: AgentData, ledger: Ledger | None, budget: RoundBudget | None) -> None:
        require(data.agents == 1, "data.agents", data.agents, "be 1")
        found = data.records[0]
        # Under Poisson sampling the number is a secret, and no sum is divided by it.
        fits = found <= self.records if isinstance(self.batches, Poisson) else found == self.records
        rule = f"be the declared number, {self.records}"
        require(fits, "data.records", found, rule)
        check_book("records", self.batches, ledger, budget)

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

    def _moved(self, point: Tensor, batch: AgentData) -> Tensor:
        most = self.records if self._sgd is None else math.ceil(self._sgd.largest_batch)
        clip = None if self.clip_norm is None else clip_within(self.clip_norm, most)
        return point - self.step_size * self.loss.gradient(point[None], batch, clip)[0]
