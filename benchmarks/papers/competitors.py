"""The algorithms that Fed-PLT is compared with, for all agents and all runs at once.

Every algorithm is a value with a ``start`` and a ``round``; a state is a dictionary of tensors, and
``state["model"]`` of shape (runs, 1, dimension) is what its coordinator knows. They minimise the
mean of the f_i and need nothing but gradients. They are comparisons: nothing private is in them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedprivacy.training import AgentData, AgentLoss

State = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """What is minimised: a loss and its records, in so many independent runs."""

    loss: AgentLoss
    data: AgentData
    runs: int

    def gradient(self, points: Tensor) -> Tensor:
        shape = (self.runs, self.data.agents, points.shape[-1])
        return self.loss.gradient(points.expand(shape), self.data)

    def zeros(self, agents: int | None = None) -> Tensor:
        rows = self.data.agents if agents is None else agents
        return torch.zeros(self.runs, rows, self.data.features.shape[-1], dtype=torch.float64)

    def chosen(self, active: int | None, generator: np.random.Generator) -> Tensor:
        """Return 1 where an agent takes part and 0 elsewhere, shape (runs, agents, 1)."""
        here = np.ones((self.runs, self.data.agents, 1))
        if active is not None:
            order = generator.random((self.runs, self.data.agents)).argsort(1)
            here = (order < active)[..., None].astype(float)
        return torch.from_numpy(here)


@dataclass(frozen=True)
class FedPD:
    """Zhang, Hong, Dhople, Yin and Liu 2021: augmented Lagrangians, aggregated in every round.

    The local problem f_i(x) + <dual_i, x - x_0> + |x - x_0|^2 / (2 penalty) is solved by gradient
    descent from the last local model.
    """

    step_size: float
    penalty: float
    local_steps: int = 5

    def start(self, problem: Problem) -> State:
        zeros = problem.zeros()
        return {"model": problem.zeros(1), "local": zeros, "dual": zeros}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        centre, local, dual = state["model"], state["local"], state["dual"]
        for _ in range(self.local_steps):
            slope = problem.gradient(local) + dual + (local - centre) / self.penalty
            local = local - self.step_size * slope
        dual = dual + (local - centre) / self.penalty
        model = (local + self.penalty * dual).mean(1, keepdim=True)
        return {"model": model, "local": local, "dual": dual}


@dataclass(frozen=True)
class FedLin:
    """Mitra, Jaafar, Pappas and Hassani 2021: gradients corrected by the global one of the round.

    Two communications a round, and one gradient more than the local steps.
    """

    step_size: float
    local_steps: int = 5

    def start(self, problem: Problem) -> State:
        return {"model": problem.zeros(1)}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        own = problem.gradient(state["model"])
        correction = own.mean(1, keepdim=True) - own
        local = state["model"].expand(own.shape)
        for number in range(self.local_steps):
            slope = own if number == 0 else problem.gradient(local)
            local = local - self.step_size * (slope + correction)
        return {"model": local.mean(1, keepdim=True)}


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
        return {"model": problem.zeros(1), "control": problem.zeros(), "used": torch.zeros(1)}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        here = problem.chosen(self.active, generator)
        counts = generator.geometric(1.0 / self.local_steps, problem.runs)
        left = torch.from_numpy(counts)[:, None, None]
        local = state["model"].expand(state["control"].shape)
        for number in range(int(counts.max())):
            moved = local - self.step_size * (problem.gradient(local) - state["control"])
            local = torch.where(left > number, moved, local)
        model = (here * local).sum(1, keepdim=True) / here.sum(1, keepdim=True)
        factor = self.mixing / (self.local_steps * self.step_size)
        control = state["control"] + here * factor * (model - local)
        return {"model": model, "control": control, "used": torch.from_numpy(counts).double()}


@dataclass(frozen=True)
class Led:
    """Alghunaim 2023, local exact diffusion over a coordinator: the combination is the mean."""

    step_size: float
    correction: float
    local_steps: int = 5

    def start(self, problem: Problem) -> State:
        return {"model": problem.zeros(1), "dual": problem.zeros()}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        local = state["model"].expand(state["dual"].shape)
        for _ in range(self.local_steps):
            slope = self.step_size * problem.gradient(local) + self.correction * state["dual"]
            local = local - slope
        model = local.mean(1, keepdim=True)
        return {"model": model, "dual": state["dual"] + local - model}


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
        return {"model": problem.zeros(1), "point": problem.zeros(1), "dual": problem.zeros()}

    def round(self, state: State, problem: Problem, generator: np.random.Generator) -> State:
        here, dual = problem.chosen(self.active, generator), state["dual"]
        shrink = 1.0 / (1.0 + self.outer_step * self.convexity)
        model = shrink * (state["point"] - self.outer_step * dual.mean(1, keepdim=True))
        anchor = model + dual / self.local_penalty
        local = before = model.expand(dual.shape)
        for _ in range(self.local_steps):
            slope = problem.gradient(local) - self.convexity * local
            after = local - self.step_size * (slope + self.local_penalty * (local - anchor))
            local, before = after + self.momentum * (after - before), after
        ended = problem.gradient(local) - self.convexity * local
        moved = here * (ended - dual)
        share = problem.data.agents / here.sum(1, keepdim=True)
        point = model - self.outer_step * share * moved.mean(1, keepdim=True)
        return {"model": model, "point": point, "dual": dual + moved}
