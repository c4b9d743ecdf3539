"""Local solvers of Fed-PLT: an agent's work between two communications, for all agents at once.

Agent i starts at its last model and approaches the minimiser of f_i(w) + |w - v_i|^2 / (2 rho).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import member, natural, positive, require, validate_fields
from ...mechanisms import NoisyGradientDescent
from ...mechanisms.exact_normals import StoredDraws
from ...mechanisms.rounded import HIDDEN_GRID, STEP_GRID, drawn_ahead, noisy_scaled
from .agents import AgentData, AgentLoss, LinearLoss

Constants = tuple[float, float]
"""Strong convexity and smoothness of f_i."""

Spreads = NDArray[np.float64] | float
"""Stds of the agents' noise, shape (agents, 1); one number if all are equal."""


class SolverKind(StrEnum):
    """Method of an agent for its local problem."""

    GRADIENT = "gradient"
    """Gradient descent on all records."""
    ACCELERATED = "accelerated"
    """Nesterov's method with the constant momentum of a strongly convex function."""
    STOCHASTIC = "stochastic"
    """Gradient descent on a batch drawn anew, without replacement, in every step."""
    NEWTON = "newton"
    """Newton's method on all records; each step is halved until the gradient decreases."""
    QUASI_NEWTON = "quasi_newton"
    """Limited-memory BFGS on all records, with curvature estimated from gradients."""
    NOISY = "noisy"
    """Gradient descent on all records with Gaussian noise in every step: the private solver."""


_HALVINGS, _FALL, _TINY = 30, 0.25, 2.0**-40
"""Most halvings of a Newton step; required decrease of the gradient per share of the step.

The third number is the share of the point's norm below which a step is accepted unchecked.
"""

_MEMORY, _FEW = 10, 6
"""Stored steps of the quasi-Newton solver, and its halvings before it rejects a step."""

OPTIONS = {"batch_size": SolverKind.STOCHASTIC, "noise_scale": SolverKind.NOISY}
"""Options that exactly one method requires; all others refuse it."""

SECOND_ORDER = (SolverKind.NEWTON, SolverKind.QUASI_NEWTON)
STEP_OF_ITS_OWN = (SolverKind.ACCELERATED, *SECOND_ORDER)
"""Methods without a step size argument."""


@dataclass(frozen=True, kw_only=True)
class LocalSolver:
    """Solver of one agent in a round, the same for all agents or one for each.

    Args:
        method: "gradient", "accelerated", "stochastic", "newton", "quasi_newton" or "noisy".
        steps: N_e; None for the result of the theory's search.
        step_size: gamma, above 0 and below 2 / (smoothness + 1 / penalty); None for the fastest
            contraction, 2 / (strong convexity + smoothness + 2 / penalty). The accelerated, the
            Newton and the quasi-Newton solver choose it themselves.
        batch_size: only for the stochastic solver; an agent with fewer records uses all of its
            records.
        noise_scale: tau, only for the noisy solver: each step adds N(0, 2 gamma tau^2) to every
            coordinate.
        clip_norm: norm that each record's gradient is clipped to; only for the noisy solver, if the
            loss has no sensitivity itself.

    Raises:
        ParameterError: a value out of its range, a missing value that the method needs, or a value
            for another method.
    """

    method: SolverKind | str = SolverKind.GRADIENT
    steps: int | None = None
    step_size: float | None = None
    batch_size: int | None = None
    noise_scale: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        kind = member(SolverKind, method=self.method)
        object.__setattr__(self, "method", kind)
        validate_fields(self, positive, "step_size", "noise_scale", "clip_norm", or_none=True)
        validate_fields(self, natural, "steps", "batch_size", or_none=True)
        for name, owner in OPTIONS.items():
            value, rule = getattr(self, name), f"be None for the {kind} solver"
            rule = "be given" if kind is owner else rule
            fits = (value is not None) == (kind is owner)
            require(fits, name, value, rule, f"it is a parameter of the {owner} solver")
        rule = f"be None for the {kind} solver"
        fits = self.clip_norm is None or kind is SolverKind.NOISY
        require(fits, "clip_norm", self.clip_norm, rule)
        fits = self.step_size is None or kind not in STEP_OF_ITS_OWN
        require(fits, "step_size", self.step_size, rule)

    @property
    def private(self) -> bool:
        """Whether it adds noise."""
        return self.method is SolverKind.NOISY

    @property
    def noise_std(self) -> float:
        """Std of one step's noise on each coordinate: sqrt(2 gamma) tau."""
        if self.noise_scale is None or self.step_size is None:
            return 0.0
        return math.sqrt(2.0 * self.step_size) * self.noise_scale

    def settled(
        self, constants: Constants | None, penalty: float, found_steps: int | None
    ) -> LocalSolver:
        """Return the solver with steps and step size as numbers.

        Args:
            constants: constants of f_i; None if they are not known, then the step size is not
                checked.
            penalty: rho.
            found_steps: result of the theory's search, if it ran.

        Raises:
            ParameterError: a step size that does not contract, or one that must be given.
        """
        steps = found_steps if self.steps is None else self.steps
        unknown = "be given if the curvature of the loss is unknown"
        require(steps is not None, "steps", None, unknown)
        own_step = self.method in STEP_OF_ITS_OWN
        if constants is None:
            fits = self.method is not SolverKind.ACCELERATED
            rule = "not be accelerated if the curvature of the loss is unknown"
            require(fits, "method", self.method, rule)
            require(own_step or self.step_size is not None, "step_size", None, unknown)
        if constants is None or own_step:
            return replace(self, steps=steps)
        low, high = (each + 1.0 / penalty for each in constants)
        step = self.step_size or 2.0 / (low + high)
        rule = f"lie in (0, {2.0 / high:.6g}) = (0, 2 / (smoothness + 1 / penalty))"
        require(step < 2.0 / high, "step_size", step, rule, "larger steps do not contract")
        return replace(self, steps=steps, step_size=step)

    def mechanism(self, loss: AgentLoss, records: int, penalty: float) -> NoisyGradientDescent:
        """Return one local solve as a mechanism: the record is the unit, its end is released.

        If the loss itself has a sensitivity, T6 accounts the solve as a whole. Clipping destroys
        the contraction that T6 needs, so clipped steps are composed. Replacing a record moves the
        mean of q clipped gradients by at most 2 C / q.

        The exception is a loss of one linear output. A clipped gradient a clip(l'(a.x), C / |a|) is
        the gradient of a convex loss that is as smooth as before, so T6 holds. The strong convexity
        is then only that of the unclipped regulariser and the penalty.

        Args:
            loss: loss f_i; its declared properties must hold for all records.
            records: q_i, a public number.
            penalty: rho.

        Raises:
            ParameterError: the loss itself has no sensitivity and there is no clip norm.
        """
        assert self.steps is not None and self.step_size is not None
        own, clip = loss.sensitivity(records), self.clip_norm
        contracting = _contracting(loss, penalty, clipped=clip is not None)
        rule = "be given if the loss has no sensitivity"
        way_out = "clip the records' gradients, or bound the inputs of a logistic loss "
        known = clip is not None or (own is not None and contracting)
        require(known, "solver.clip_norm", None, rule, way_out + "(feature_bound)")
        sensitivity = math.inf if clip is None else 2.0 * clip / records
        if own is not None and contracting:
            # Both bounds hold, so the smaller one is used.
            sensitivity = min(sensitivity, own)
        return NoisyGradientDescent(
            step_size=self.step_size,
            noise_std=self.noise_std,
            sensitivity=sensitivity,
            steps=self.steps,
            **contracting,
        )


def _contracting(loss: AgentLoss, penalty: float, *, clipped: bool) -> dict[str, Any]:
    """Return T6's constants of a loss with the penalty; empty if steps do not contract."""
    constants = loss.curvature()
    if constants is None or (clipped and not loss.contracts_clipped):
        return {}
    low, high = constants
    return {"strong_convexity": low + 1.0 / penalty, "smoothness": high + 1.0 / penalty}


GRADIENT_DESCENT = LocalSolver()
"""Gradient descent with the steps and the step size of the theory's search."""


@dataclass(frozen=True)
class LocalProblem:
    """Local problems of the agents at work in a round.

    Args:
        loss: loss of the agents.
        data: records of the agents.
        anchors: v_i, shape (..., agents, dimension).
        penalty: rho.
        constants: constants of f_i, for the accelerated solver.
        widening: factors on the agents' noise, shape (agents,), if T6 accounts a solve's steps
            together (``Upload.widening``); None if they are composed, or without noise.
    """

    loss: AgentLoss
    data: AgentData
    anchors: Tensor
    penalty: float
    constants: Constants | None
    widening: NDArray[np.float64] | None = None

    def solve(
        self,
        start: Tensor,
        solvers: Sequence[LocalSolver],
        batches: np.random.Generator,
        noise: np.random.Generator | None,
    ) -> tuple[Tensor, NDArray[np.float64]]:
        """Return the ends of settled solvers, and the stds of the noise in their steps.

        Every solver makes steps w <- u + m (u - u_before), u = w - gamma gradient + noise. Agents
        with fewer steps do not move after their last step. In composed steps the gradient of f_i is
        rounded once together with its noise, and the penalty's gradient, which is public, is added
        afterwards. Steps that are accounted together are rounded as a whole, with wider noise to
        compensate.

        Args:
            start: starting points, shape (..., agents, dimension).
            solvers: one for each agent at work.
            batches: source of the batches.
            noise: source of the noise; None for the operating system, as privacy requires.

        Returns:
            The ends, shape of ``start``; the smallest std over the steps, shape (agents,).
        """
        columns, curved = self._columns(solvers), self._second_order(solvers, start)
        most, even = int(columns[3].max()), bool((columns[3] == columns[3][0]).all())
        # Drawn ahead for all steps: many short draws cost more than one long draw.
        drawn, spreads = drawn_ahead(noise, most * start.numel()), columns[2]
        spreads = spreads * (1.0 if self.widening is None else self.widening[:, None])
        alike = bool((spreads == spreads[0]).all())
        drawn_with = float(spreads[0, 0]) if alike else spreads
        stochastic, clip = any(s.batch_size for s in solvers), self._clip(solvers[0])
        noisy, accelerated = bool(spreads.any()), bool(columns[1].any())
        sizes, momenta, _, steps = (_factor(column, start) for column in columns)
        point = before = start
        used = np.full_like(spreads, math.inf) if noisy else spreads
        for number in range(most):
            data = self._batch(solvers, start, batches) if stochastic else self.data
            move = -sizes * self.loss.gradient(point, data, clip)
            known = point - sizes * ((point - self.anchors) / self.penalty)
            noised = self._noised(known, move, drawn_with, drawn) if noisy else (known + move, used)
            after, used = noised[0], np.minimum(used, noised[1])
            moved = after + momenta * (after - before) if accelerated else after
            for own, step in curved:
                moved = torch.where(own, step(point), moved)
            # If all agents have equally many steps, they finish together.
            if even:
                point, before = moved, after
            else:
                on = steps > number
                point, before = torch.where(on, moved, point), torch.where(on, after, before)
        return point, used[:, 0]

    def _second_order(
        self, solvers: Sequence[LocalSolver], start: Tensor
    ) -> list[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        """Return pairs of (mask of the agents, shape (agents, 1), step) for second-order steps."""
        steps = {SolverKind.NEWTON: self._newton, SolverKind.QUASI_NEWTON: _QuasiNewton(self).step}
        owners = {kind: [s.method is kind for s in solvers] for kind in steps}
        return [
            (start.new_tensor(own)[:, None] > 0.0, steps[kind])
            for kind, own in owners.items()
            if any(own)
        ]

    def _newton(self, point: Tensor) -> Tensor:
        """Return the points after a Newton step of every agent on its local problem.

        A step of share s = 1, 1/2, 1/4, ... is halved until the norm of the gradient decreases by
        at least the share s / 4. A short enough step always satisfies this, because the norm's
        derivative along it is minus the norm. Steps of the size of rounding errors are accepted
        unchanged.
        """
        slope = self.slope(point)
        bend = self.loss.hessian(point, self.data)
        bend = bend + torch.eye(bend.shape[-1], dtype=bend.dtype).to(bend) / self.penalty
        direction = -torch.linalg.solve(bend, slope[..., None])[..., 0]
        return self.halved(point, slope, direction, _FALL, _HALVINGS)[0]

    def halved(
        self, point: Tensor, slope: Tensor, direction: Tensor, fall: float, most: int
    ) -> tuple[Tensor, Tensor]:
        """Return the points after a step halved until the gradient falls, and a mask of success.

        Points without success are unchanged.
        """
        long, tiny = _norm(slope), _TINY * _norm(point)
        near, share = _norm(direction) <= tiny, torch.ones_like(long)
        for _ in range(most):
            ends = _norm(self.slope(point + share * direction))
            falls = near | (ends <= (1.0 - fall * share) * long)
            if bool(falls.all()):
                break
            share = torch.where(falls, share, share / 2.0)
        return torch.where(falls, point + share * direction, point), falls

    def slope(self, point: Tensor) -> Tensor:
        """Return the gradients of the local problems."""
        own = self.loss.gradient(point, self.data)
        return own + (point - self.anchors) / self.penalty

    def _noised(
        self, known: Tensor, move: Tensor, spreads: Spreads, drawn: StoredDraws
    ) -> tuple[Tensor, Spreads]:
        """Return a step with its noise, rounded as a whole if steps are accounted together."""
        if self.widening is not None:
            return _noisy(known + move, spreads, drawn, HIDDEN_GRID)
        move, std = _noisy(move, spreads, drawn)
        return known + move, std

    def _clip(self, solver: LocalSolver) -> float | None:
        """Return the norm that gradients are clipped to: the solver's, less a margin."""
        if solver.clip_norm is None:
            return None
        return clip_within(solver.clip_norm, self.data.targets.shape[-1])

    def _columns(self, solvers: Sequence[LocalSolver]) -> NDArray[np.float64]:
        """Return step sizes, momenta, noise stds and numbers of steps, shape (4, agents, 1)."""
        # Equal solvers of a loop are one object, so each is evaluated once.
        rows = {
            number: (*self._coefficients(s), s.noise_std, float(s.steps or 0))
            for number, s in {id(s): s for s in solvers}.items()
        }
        return np.array([rows[id(s)] for s in solvers]).T[..., None]

    def _coefficients(self, solver: LocalSolver) -> tuple[float, float]:
        if solver.method in SECOND_ORDER:
            return 0.0, 0.0
        if solver.method is not SolverKind.ACCELERATED:
            assert solver.step_size is not None
            return solver.step_size, 0.0
        assert self.constants is not None
        low, high = (math.sqrt(each + 1.0 / self.penalty) for each in self.constants)
        # Nesterov's step and momentum for these curvatures, the penalty's included.
        return 1.0 / high**2, (high - low) / (high + low)

    def _batch(
        self, solvers: Sequence[LocalSolver], start: Tensor, generator: np.random.Generator
    ) -> AgentData:
        """Draw each agent's batch without replacement; all records without a batch size."""
        weights = self.data.weights
        counts = (weights > 0.0).sum(-1)
        sizes = torch.tensor([s.batch_size or len(weights[0]) for s in solvers])
        sizes = torch.minimum(sizes.to(counts.device), counts)
        shape = (*start.shape[:-1], weights.shape[-1])
        # The smallest of random keys give a draw without replacement, for all agents at once;
        # padding has 2.
        keys = start.new_tensor(generator.random(shape)).masked_fill(weights == 0.0, 2.0)
        rows = keys.topk(int(sizes.max()), largest=False).indices
        inside = torch.arange(rows.shape[-1], device=rows.device) < sizes[:, None]
        mean = torch.where(inside, 1.0 / sizes[:, None].double(), 0.0)
        return self.data.taken(rows, mean.expand(rows.shape))


def check_targets(loss: AgentLoss, data: AgentData) -> None:
    """Refuse targets for which the constants of a linear loss are not stated."""
    if not isinstance(loss, LinearLoss) or loss.link_targets is None:
        return
    least, most = min(loss.link_targets), max(loss.link_targets)
    found = float(data.targets.min()), float(data.targets.max())
    rule = f"be from {least:g} to {most:g}, for which the loss states its smoothness"
    way_out = f"scale them, or state {type(loss).__name__}.link_targets"
    require(least <= found[0] and found[1] <= most, "targets", found, rule, way_out)


def clip_within(clip_norm: float, records: int) -> float:
    """Return the norm that records' gradients are clipped to, less a margin for rounding.

    The mean of q clipped gradients in double precision has an error below q C 2^-52, and its
    records' norms have a relative error below 2^-40. The sensitivity 2 C / q holds with both
    errors.

    Args:
        clip_norm: C.
        records: q.
    """
    return clip_norm * max(0.5, 1.0 - 2.0**-30 - float(records) ** 2 * 2.0**-51)


class _QuasiNewton:
    """Limited-memory BFGS for all agents at once (Nocedal and Wright, Algorithm 7.4).

    A step is halved until the gradient's norm does not grow. If a few halvings do not suffice, the
    agent takes a step along the negative gradient. On a convex problem a short enough step of that
    kind always succeeds.
    """

    def __init__(self, problem: LocalProblem) -> None:
        self._problem = problem
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._last: tuple[Tensor, Tensor] | None = None

    def step(self, point: Tensor) -> Tensor:
        """Return the points after a step of every agent."""
        slope = self._problem.slope(point)
        if self._last is not None:
            pair = point - self._last[0], slope - self._last[1]
            self._pairs = [*self._pairs, pair][-_MEMORY:]
        self._last = point, slope
        downhill, direction = self._directions(slope)
        after, falls = self._problem.halved(point, slope, direction, 0.0, _FEW)
        if not bool(falls.all()):
            down, _ = self._problem.halved(point, slope, downhill, 0.0, _HALVINGS)
            after = torch.where(falls, after, down)
        return after

    def _directions(self, slope: Tensor) -> tuple[Tensor, Tensor]:
        """Return the negative gradient and BFGS's direction, from pairs of positive curvature."""
        # Without a pair the penalty's curvature is used: exact if the loss has none.
        left, size = slope, torch.full_like(slope[..., :1], self._problem.penalty)
        used: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for move, rise in reversed(self._pairs):
            bend = _dot(move, rise)
            fit = bend > _TINY * _norm(move) * _norm(rise)
            weight = torch.where(fit, 1.0 / bend, 0.0)
            share = weight * _dot(move, left)
            size = torch.where(fit, bend / _dot(rise, rise), size) if not used else size
            left = left - share * rise
            used.append((move, rise, weight, share))
        found = size * left
        for move, rise, weight, share in reversed(used):
            found = found + (share - weight * _dot(rise, found)) * move
        return -size * slope, -found


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(-1, keepdim=True)


def _norm(each: Tensor) -> Tensor:
    long: Tensor = torch.linalg.vector_norm(each, dim=-1, keepdim=True)
    return long


def _factor(column: NDArray[np.float64], like: Tensor) -> Any:
    """Return a column as a tensor, or as one number if all are equal, which is faster."""
    first = column[0, 0]
    return float(first) if (column == first).all() else like.new_tensor(column)


def _noisy(
    move: Tensor, stds: Spreads, deviates: StoredDraws, grid: float = STEP_GRID
) -> tuple[Tensor, Spreads]:
    """Return one step's moves of all agents with their noise, and the stds of the noise."""
    return noisy_scaled(move, stds=stds, deviates=deviates, grid=grid), stds
