"""The exact law of Fed-PLT on quadratic losses, which is Gaussian for every observer.

Agent i has f_i(x) = lambda_i x^2 / 2 + b_i x on the line and h(y) = kappa y^2 / 2. Every x_i,k and
z_i,k is then an affine function of independent Gaussian noises. Replacing a record of agent 0 by
one that moves its gradient by given constants moves only the means. So the outputs on two
neighbouring data sets are as distinguishable as N(mu, 1) and N(0, 1), with mu computed here. In d
dimensions, quadratics with a common eigenbasis are one such problem for each eigenvector. The
linear terms b_i move both means by the same amount and cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ...errors import integer, non_negative, positive, refuse, require
from ...rounding import HUNDREDS
from ...theory.gaussian import delta as gaussian_delta
from ...theory.gaussian import epsilon as gaussian_epsilon

Array = NDArray[np.float64]


class View(StrEnum):
    """Outputs of a run that an observer sees."""

    TRANSCRIPT = "transcript"
    """The coordinator: every z_i,k."""
    UPLOADS = "uploads"
    """Agent 0's own z_0,k."""
    FINAL_MODELS = "final_models"
    """Every agent's x_i,K."""
    FINAL_MODEL = "final_model"
    """Agent 0's x_0,K."""
    FINAL_AVERAGE = "final_average"
    """The coordinator's y_K+1 after the last round."""


@dataclass(frozen=True, kw_only=True)
class QuadraticSplitting:
    """Fed-PLT with noisy gradient descent on quadratics, one dimension.

    Agent i, if it takes part, makes N_e steps from w = x_i: w <- w - gamma (lambda_i w + (w - v_i)
    / rho) + noise of std sqrt(2 gamma) tau. Here v_i = 2 y - z_i, and y is the proximal step of h
    at the mean of z. Then z_i <- z_i + 2 (x_i - y).

    Args:
        curvatures: lambda_0 ... lambda_N-1, finite; 0 models a clipped gradient far from its
            optimum, which no longer depends on the point.
        penalty: rho, above 0.
        step_size: gamma, above 0.
        noise_scale: tau, above 0.
        local_steps: N_e.
        rounds: K.
        start_std: std of every x_i,0 around its public mean; 0 for a known start. Proposition 4 of
            the paper has sqrt(2 / l) tau. z_i,0 is public.
        active: participation, booleans of shape (rounds, agents); None if all agents take part.
        regulariser: kappa of h, at least 0.

    Raises:
        ParameterError: a value out of its range.
    """

    curvatures: Sequence[float]
    penalty: float
    step_size: float
    noise_scale: float
    local_steps: int
    rounds: int
    start_std: float = 0.0
    active: NDArray[np.bool_] | None = None
    regulariser: float = 0.0
    _law: tuple[Array, Array] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("penalty", "step_size", "noise_scale"):
            positive(**{name: getattr(self, name)})
        integer(1, local_steps=self.local_steps)
        integer(1, rounds=self.rounds)
        non_negative(start_std=self.start_std)
        non_negative(regulariser=self.regulariser)
        if not len(self.curvatures) or not np.all(np.isfinite(self.curvatures)):
            refuse("curvatures", self.curvatures, "be one or more finite numbers")
        shape = (self.rounds, len(self.curvatures))
        if self.active is not None and np.shape(self.active) != shape:
            refuse("active", np.shape(self.active), f"have shape {shape}")
        object.__setattr__(self, "_law", self._propagate())

    @property
    def slopes(self) -> Array:
        """Slope a_i = 1 - gamma (lambda_i + 1 / rho) of a local step, shape (agents,)."""
        return 1.0 - self.step_size * (np.asarray(self.curvatures, float) + 1.0 / self.penalty)

    @property
    def local_stds(self) -> Array:
        """Std that one local solve adds to x_i, shape (agents,)."""
        powers = self.slopes[:, None] ** np.arange(self.local_steps)
        unit = math.sqrt(2.0 * self.step_size) * self.noise_scale
        return np.asarray(unit * np.linalg.norm(powers, axis=1))

    def _propagate(self) -> tuple[Array, Array]:
        """Return x and z after every round, as rows over unit noises: (K + 1, N, N + K N) each.

        Noise n < N is the start of agent n, noise N + k N + n is the local solve of agent n in
        round k.
        """
        agents, rounds = len(self.curvatures), self.rounds
        width = agents + rounds * agents
        x = np.zeros((rounds + 1, agents, width))
        z = np.zeros_like(x)
        x[0, :, :agents] = self.start_std * np.eye(agents)
        keep = self.slopes**self.local_steps
        gains = self.step_size / self.penalty * _geometric(self.slopes, self.local_steps)
        proximal = 1.0 / (1.0 + self.penalty * self.regulariser / agents)
        for k in range(rounds):
            average = proximal * z[k].mean(axis=0)
            fresh = np.zeros((agents, width))
            at = agents + k * agents
            fresh[:, at : at + agents] = np.diag(self.local_stds)
            solved = keep[:, None] * x[k] + gains[:, None] * (2.0 * average - z[k]) + fresh
            on = np.ones((agents, 1)) if self.active is None else self.active[k][:, None]
            x[k + 1] = np.where(on, solved, x[k])
            z[k + 1] = np.where(on, z[k] + 2.0 * (solved - average), z[k])
        return x, z

    def rows(self, view: View | str) -> Array:
        """Return the observed outputs as rows over unit noises, shape (seen, noises)."""
        x, z = self._law
        seen = View(view)
        if seen is View.TRANSCRIPT:
            return np.reshape(z[1:], (-1, z.shape[2]))
        if seen is View.UPLOADS:
            return np.asarray(z[1:, 0])
        if seen is View.FINAL_MODELS:
            return np.asarray(x[-1])
        if seen is View.FINAL_MODEL:
            return np.asarray(x[-1, :1])
        proximal = 1.0 / (1.0 + self.penalty * self.regulariser / len(self.curvatures))
        return np.asarray(proximal * z[-1].mean(axis=0, keepdims=True))

    def moved(self, shifts: float | Array) -> Array:
        """Return the shift of agent 0's solves by the gradient's shifts, in stds, per unit noise.

        Args:
            shifts: the gradient on D' less that on D: a constant, or one number for each local
                step, shape (rounds, local_steps).
        """
        agents = len(self.curvatures)
        every = np.broadcast_to(np.asarray(shifts, float), (self.rounds, self.local_steps))
        # All later steps contract a shift in an early step.
        powers = self.slopes[0] ** np.arange(self.local_steps - 1, -1, -1)
        moves = np.zeros(agents + self.rounds * agents)
        # Every ``agents``-th noise is agent 0's.
        moves[agents::agents] = -self.step_size * (every @ powers) / self.local_stds[0]
        return moves

    def mu(self, shifts: float | Array, view: View | str) -> float:
        """Return mu: the outputs are exactly as distinguishable as N(mu, 1) and N(0, 1).

        The means differ by T s and the covariance is T T^t, with T the rows of the outputs and s
        the shift in unit noises. So mu is the norm of the projection of s on the row space of T.
        """
        rows, moves = self.rows(view), self.moved(shifts)
        _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
        # Directions of the size of rounding errors are not part of the outputs.
        kept = basis[sizes > sizes.max() * HUNDREDS * max(rows.shape)]
        return float(np.linalg.norm(kept @ moves))

    def renyi(self, order: float, shifts: float | Array, view: View | str) -> float:
        """Return the Renyi divergence of an order above 1: order mu^2 / 2."""
        require(order > 1.0, "order", order, "be above 1")
        return 0.5 * order * self.mu(shifts, view) ** 2

    def epsilon(self, delta: float, shifts: float | Array, view: View | str) -> float:
        """Return the exact epsilon at a delta of the two outputs."""
        return gaussian_epsilon(self.mu(shifts, view), delta)


def _geometric(slopes: Array, steps: int) -> Array:
    """Return the sum of a^l for l < steps, entry by entry."""
    return np.asarray((slopes[:, None] ** np.arange(steps)).sum(axis=1))


def mixed_delta(law_of: Sequence[tuple[float, float]], epsilon: float) -> float:
    """Return delta at an epsilon if the participation is seen: the mean over the patterns.

    Args:
        law_of: (probability, mu) of every pattern of participation.
        epsilon: at least 0.
    """
    return sum(weight * gaussian_delta(mu, epsilon) for weight, mu in law_of if mu > 0.0)
