"""Projected averaging: one holder of all clients' data trains, and releases only the end.

x <- P(x + s sum_i (x_i - x) / denominator + noise): every client of a round's cohort takes
local steps from x to x_i. No client receives a point, so the clients' data are in one place. With a
loss of one linear output and bounded slope, without clipping, no round moves two points apart. So
the cost stops growing with the number of rounds: T16, T17, T18. The unit is a client.
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

from ...errors import UnsupportedCombination, natural, positive, require, validate_fields, whole
from ...factors import FixedEpochs
from ...ledger import Ledger
from ...mechanisms import HiddenAveraging
from ...mechanisms.noisy_sgd import Drawn
from ...sampling import Poisson
from ...training.rounds import RoundBudget
from ..fed_plt.agents import AgentData, AgentLoss, LinearLoss
from ..fed_plt.solvers import clip_within
from .hidden import HiddenRun, check_book, check_fixed_order, check_population, check_scale


@dataclass(frozen=True, kw_only=True)
class ProjectedAveraging(HiddenRun):
    """Private training of a linear model on clients' data in one place; the end alone is released.

    Every ``step`` of this loop makes ``rounds`` rounds and releases the end; the next one starts
    there. The price of one is ``round_mechanism``, a ``HiddenAveraging``, at client level. Use
    ``FederatedAveraging`` if clients receive the model.

    Args:
        loss: loss of one linear output with bounded gradients and a ``feature_bound``, without a
            regulariser: ``Logistic``.
        clients: number of clients, public; with ``Poisson`` an upper limit of it.
        records: upper limit of a client's number of records, public.
        dimension: length of the parameters, public.
        rounds: rounds between two releases.
        local_steps: gradient steps of a client in a round.
        learning_rate: of these steps, at most 2 / smoothness of the loss.
        server_learning_rate: s, at most ``denominator`` over the size of the largest cohort.
        noise_std: std of the noise of every round on every coordinate, above 0.
        radius: of the ball around 0 that every round is projected on.
        cohorts: how a cohort is drawn in every round, or ``FixedEpochs(l)``: client i takes part in
            the rounds i, i + l, and so on; see ``HiddenAveraging``.
        denominator: public number that the sum of moves is divided by.
        seed: None for randomness from the operating system. With a number everything is
            reproducible, the noise too, and therefore not private.

    Raises:
        ParameterError: a value out of its range.
        UnsupportedCombination: the loss has no constants that hold for all records without
            clipping.
    """

    loss: AgentLoss
    clients: int
    records: int
    dimension: int
    rounds: int
    local_steps: int
    learning_rate: float
    server_learning_rate: float = 1.0
    noise_std: float
    radius: float
    cohorts: Drawn | FixedEpochs
    denominator: float
    seed: int | None = None

    def __post_init__(self) -> None:
        natural_fields = ("clients", "records", "dimension", "rounds", "local_steps")
        validate_fields(self, natural, *natural_fields)
        above = ("learning_rate", "server_learning_rate", "noise_std", "radius", "denominator")
        validate_fields(self, positive, *above)
        validate_fields(self, whole, "seed", or_none=True)
        check_scale(self)
        _ = self._constants
        # This refuses steps that move points apart, and noise of which rounding is too large a
        # part.
        mechanism = self.round_mechanism
        _ = mechanism.as_descent.drift
        # Otherwise the rounding of a round in doubles is not covered (docs/theory/rounding.md).
        move = mechanism.largest_move
        far = math.sqrt(self.dimension) * (self.radius + move)
        local = far + self.records * self.learning_rate * mechanism.gradient_norm
        reach = (self.local_steps * local + self.clients * move) / 2**25
        rule, way_out = (
            f"be at least {reach:.3g}",
            "use a smaller ball, fewer records or smaller steps",
        )
        require(reach <= self.noise_std, "noise_std", self.noise_std, rule, way_out)

    @cached_property
    def round_mechanism(self) -> HiddenAveraging:
        """The rounds between two releases as a mechanism."""
        largest, smoothness = self._constants
        if isinstance(self.cohorts, FixedEpochs):
            check_fixed_order("cohorts", self.cohorts, self.clients, self.denominator)
        else:
            check_population("cohorts", self.cohorts, "clients", self.clients)
        return HiddenAveraging(
            local_steps=self.local_steps,
            learning_rate=self.learning_rate,
            gradient_norm=largest,
            smoothness=smoothness,
            server_learning_rate=self.server_learning_rate,
            noise_std=self.noise_std,
            denominator=self.denominator,
            cohorts=self.cohorts,
            rounds=self.rounds,
            radius=self.radius,
            population=self.clients if isinstance(self.cohorts, Poisson) else None,
            dimension=self.dimension,
        )

    @cached_property
    def _constants(self) -> tuple[float, float]:
        """Largest norm of a record's gradient, and smoothness of a record's loss.

        The mean over a client's records has both.
        """
        linear = isinstance(self.loss, LinearLoss) and self.loss.contracts_clipped
        found = self.loss.curvature() if linear else None
        own = self.loss.sensitivity(1) if linear else None
        if found is None or own is None or found[0] != 0.0:
            raise UnsupportedCombination(
                "averaging that shows only its end needs a convex loss of one linear output with "
                "bounded gradients for all records, without clipping and without a regulariser, "
                f"which {self.loss} is not; use Logistic(feature_bound=...)"
            )
        return 0.5 * own, found[1]

    @property
    def _count(self) -> int:
        return self.rounds

    @cached_property
    def _planned(self) -> tuple[float, float]:
        """Largest move of a client, and the noise on the sum of moves."""
        on_sum = self.noise_std / self.server_learning_rate * self.denominator
        return self.round_mechanism.largest_move, on_sum

    @property
    def _widening(self) -> float:
        # The account includes the rounding.
        return 1.0

    def _check(self, data: AgentData, ledger: Ledger | None, budget: RoundBudget | None) -> None:
        found = data.agents
        # Under Poisson sampling the number is a secret, and no sum is divided by it.
        drawn = isinstance(self.cohorts, Poisson)
        fits = found <= self.clients if drawn else found == self.clients
        rule = f"be the declared number of clients, {self.clients}"
        require(fits, "data.agents", found, rule)
        longest = max(data.records)
        rule = f"be at most the declared number, {self.records}, for every client"
        require(longest <= self.records, "data.records", longest, rule)
        check_book("clients", self.cohorts, ledger, budget)

    def _batches(self, data: AgentData, generator: np.random.Generator) -> Iterator[AgentData]:
        everyone = np.arange(data.agents)
        for number in itertools.count():
            if isinstance(self.cohorts, FixedEpochs):
                length = self.cohorts.separation
                drawn = everyone[number % length :: length]
            else:
                drawn = self.cohorts.draw(len(everyone), generator)
            yield data.only(torch.from_numpy(drawn))

    def _moved(self, point: Tensor, batch: AgentData) -> Tensor:
        ends = point.expand(batch.agents, -1)
        # A loss within its bound is not clipped. Clipping by record moves no two points apart.
        clip = clip_within(self._constants[0], self.records)
        for _ in range(self.local_steps):
            ends = ends - self.learning_rate * self.loss.gradient(ends, batch, clip)
        return point + (ends - point).sum(dim=0) * (self.server_learning_rate / self.denominator)
