"""The algorithms in the comparison with Fed-PLT, for all agents and all runs at once.

Every algorithm is a value with a ``start`` and a ``round``. A state is a dictionary of tensors, and
``state["model"]`` of shape (runs, 1, dimension) is the coordinator's model. The algorithms minimise
the mean of the f_i and need only gradients. They are for comparison and have no privacy. Local
solves process a few agents at a time, so that records are read once in a round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...systems.fed_plt.agents import AgentData, AgentLoss

State = dict[str, Any]
CACHED = 2**21
"""Bytes of records that stay in a processor's cache during a local solve."""


@dataclass(frozen=True)
class Problem:
    """Optimisation problem: a loss and its records, in a number of independent runs."""

    loss: AgentLoss
    data: AgentData
    runs: int

    @cached_property
    def parts(self) -> list[tuple[slice, slice, Problem]]:
        """Return parts with some runs, or some agents of a run; one part for shared records."""
        data, runs, agents = self.data, self.runs, self.data.agents
        size = data.features.nbytes // runs
        if data.runs is None or runs * size <= CACHED:
            return [(slice(runs), slice(agents), self)]
        wide = max(1, CACHED // size)
        deep = agents if size <= CACHED else max(1, CACHED * agents // size)
        return [
            (row, column, self._part(row, column))
            for row in _slices(runs, wide)
            for column in _slices(agents, deep)
        ]

    def _part(self, row: slice, column: slice) -> Problem:
        data = self.data
        part = AgentData(data.features[row, column], data.targets[row, column])
        return Problem(self.loss, part, row.stop - row.start)

    def solved(self, solve: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Return ``solve(problem, *tensors)`` of every part, one row for each agent."""
        wide = [each.expand(self.runs, self.data.agents, each.shape[-1]) for each in tensors]
        if len(self.parts) == 1:
            return solve(self, *wide)
        found = torch.empty_like(wide[0])
        for row, column, part in self.parts:
            found[row, column] = solve(part, *(each[row, column] for each in wide))
        return found

    def gradient(self, points: Tensor) -> Tensor:
        """Return every agent's gradient at its point, shape (runs, agents, dimension)."""
        return self.solved(lambda part, own: part.loss.gradient(own, part.data), points)

    def zeros(self, agents: int | None = None) -> Tensor:
        """Return zeros for this number of agents, by default all."""
        rows = self.data.agents if agents is None else agents
        return torch.zeros(self.runs, rows, self.data.features.shape[-1], dtype=torch.float64)

    def chosen(self, active: int | None, generator: np.random.Generator) -> Tensor:
        """Return 1 for agents that take part and 0 for others, shape (runs, agents, 1)."""
        here = np.ones((self.runs, self.data.agents, 1))
        if active is not None:
            order = generator.random((self.runs, self.data.agents)).argsort(1)
            here = (order < active)[..., None].astype(float)
        return torch.from_numpy(here)


def _slices(length: int, width: int) -> list[slice]:
    return [slice(at, min(at + width, length)) for at in range(0, length, width)]


@dataclass(frozen=True)
class FedPD:
    """Zhang, Hong, Dhople, Yin and Liu 2021: augmented Lagrangians, aggregated in every round.

    Gradient descent from the last local model solves the local problem f_i(x) + <dual_i, x - x_0> +
    |x - x_0|^2 / (2 penalty).
    """

    step_size: float
    penalty: float
    local_steps: int = 5

    def start(self, problem: Problem) -> State:
        """Return the state before the first round."""
        zeros = problem.zeros()
        return {"model": problem.zeros(1), "local": zeros, "dual": zeros}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        """Return the state after one more round."""
        centre, local, dual = state["model"], state["local"], state["dual"]
        local = problem.solved(self._solve, local, dual, centre)
        dual = dual + (local - centre) / self.penalty
        model = (local + self.penalty * dual).mean(1, keepdim=True)
        return {"model": model, "local": local, "dual": dual}

    def _solve(self, part: Problem, local: Tensor, dual: Tensor, centre: Tensor) -> Tensor:
        for _ in range(self.local_steps):
            slope = part.gradient(local) + dual + (local - centre) / self.penalty
            local = local - self.step_size * slope
        return local


@dataclass(frozen=True)
class FedLin:
    """Mitra, Jaafar, Pappas and Hassani 2021: gradients corrected by the global one of the round.

    A round has two communications, and one gradient more than the local steps.
    """

    step_size: float
    local_steps: int = 5

    def start(self, problem: Problem) -> State:
        """Return the state before the first round."""
        return {"model": problem.zeros(1)}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        """Return the state after one more round."""
        own = problem.gradient(state["model"])
        local = problem.solved(self._solve, state["model"], own, own.mean(1, keepdim=True))
        return {"model": local.mean(1, keepdim=True)}

    def _solve(self, part: Problem, local: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        correction = mean - own
        for number in range(self.local_steps):
            slope = own if number == 0 else part.gradient(local)
            local = local - self.step_size * (slope + correction)
        return local


@dataclass(frozen=True)
class Tamuna:
    """Condat, Agarsky, Malinovsky and Richtarik 2023, without compression.

    A geometric number of local steps, the same for all agents of a round, of mean ``local_steps``;
    ``mixing`` is their chi, at most 1, and the control variates move by chi / local_steps.
    """

    step_size: float
    mixing: float
    local_steps: int = 5
    active: int | None = None

    def start(self, problem: Problem) -> State:
        """Return the state before the first round."""
        return {"model": problem.zeros(1), "control": problem.zeros(), "used": torch.zeros(1)}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        """Return the state after one more round."""
        here = problem.chosen(self.active, generator)
        counts = generator.geometric(1.0 / self.local_steps, problem.runs)
        left = torch.from_numpy(counts)[:, None, None]
        local = problem.solved(self._solve, state["model"], state["control"], left)
        model = (here * local).sum(1, keepdim=True) / here.sum(1, keepdim=True)
        factor = self.mixing / (self.local_steps * self.step_size)
        control = state["control"] + here * factor * (model - local)
        return {"model": model, "control": control, "used": torch.from_numpy(counts).double()}

    def _solve(self, part: Problem, local: Tensor, control: Tensor, left: Tensor) -> Tensor:
        for number in range(int(left.max())):
            moved = local - self.step_size * (part.gradient(local) - control)
            local = torch.where(left > number, moved, local)
        return local


@dataclass(frozen=True)
class Led:
    """Alghunaim 2023, local exact diffusion over a coordinator: the combination is the mean."""

    step_size: float
    correction: float
    local_steps: int = 5

    def start(self, problem: Problem) -> State:
        """Return the state before the first round."""
        return {"model": problem.zeros(1), "dual": problem.zeros()}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        """Return the state after one more round."""
        local = problem.solved(self._solve, state["model"], state["dual"])
        model = local.mean(1, keepdim=True)
        return {"model": model, "dual": state["dual"] + local - model}

    def _solve(self, part: Problem, local: Tensor, dual: Tensor) -> Tensor:
        for _ in range(self.local_steps):
            slope = self.step_size * part.gradient(local) + self.correction * dual
            local = local - slope
        return local


@dataclass(frozen=True)
class FiveGcs:
    """Grudzien, Malinovsky and Richtarik 2023: a primal-dual method with inexact local proxes.

    Written for M F_m = f_m - ``convexity`` |x|^2 / 2, u scaled by M: the local problem
    F_m(y) + local_penalty |y - (x + u_m / local_penalty)|^2 / 2 is solved by gradient descent, or
    Nesterov's method, from the coordinator's point x. The gradient that ends the local solve is
    not counted as a step, as in the paper.
    """

    step_size: float
    local_penalty: float
    outer_step: float
    convexity: float = 0.5
    momentum: float = 0.0
    local_steps: int = 5
    active: int | None = None

    def start(self, problem: Problem) -> State:
        """Return the state before the first round."""
        return {"model": problem.zeros(1), "point": problem.zeros(1), "dual": problem.zeros()}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        """Return the state after one more round."""
        here, dual = problem.chosen(self.active, generator), state["dual"]
        shrink = 1.0 / (1.0 + self.outer_step * self.convexity)
        model = shrink * (state["point"] - self.outer_step * dual.mean(1, keepdim=True))
        ended = problem.solved(self._solve, model, model + dual / self.local_penalty)
        moved = here * (ended - dual)
        share = problem.data.agents / here.sum(1, keepdim=True)
        point = model - self.outer_step * share * moved.mean(1, keepdim=True)
        return {"model": model, "point": point, "dual": dual + moved}

    def _solve(self, part: Problem, local: Tensor, anchor: Tensor) -> Tensor:
        """Return the gradient at the end of the local solve."""
        before = local
        for _ in range(self.local_steps):
            slope = part.gradient(local) - self.convexity * local
            after = local - self.step_size * (slope + self.local_penalty * (local - anchor))
            local, before = after + self.momentum * (after - before), after
        return part.gradient(local) - self.convexity * local
