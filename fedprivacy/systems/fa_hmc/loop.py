"""FA-HMC: federated Hamiltonian Monte Carlo (Liang et al., Algorithms 1 to 3) as a loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import integer, non_negative, positive, refuse
from ...mechanisms import FederatedHamiltonian
from ...rounding import THOUSANDS
from ...training.chains import Sampling, Spread, Work
from ...training.posterior import Array
from .law import DynamicSteps, HamiltonianChain


@dataclass(frozen=True, kw_only=True, eq=False)
class HamiltonianSampling(Sampling):
    """Sample with FA-HMC: T trajectories of K leapfrog steps, then an average.

    A trajectory starts with the momentum sqrt(rho) shared + sqrt((1 - rho) / w_c) own and asks for
    2 K - 1 gradients, each from a batch of its own and, with ``gradient_noise_multiplier``, with
    noise of its own: that noise is what counts for privacy when K > 1. The temperature is 1.

    With one leapfrog step it is ``LangevinSampling`` with step size eta^2 / 2 and the square root
    of the correlation, path by path.

    Args:
        step_size: eta, above 0, or ``theory.hamiltonian.DynamicSteps``, counted in trajectories.
        leapfrog_steps: K.
        iterations: T.
        gradient_noise_multiplier: std of the noise on each coordinate of a query's gradient over
            how far one record moves it, D / (gamma w_c).
        correlation: rho, the shared part of the momentum's *variance*.

    Raises:
        ParameterError: a value out of its range; noise on gradients without a sensitivity.
    """

    step_size: float | DynamicSteps
    leapfrog_steps: int = 1
    iterations: int = 1
    gradient_noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        integer(1, leapfrog_steps=self.leapfrog_steps)
        integer(1, iterations=self.iterations)
        if not isinstance(self.step_size, DynamicSteps):
            positive(step_size=self.step_size)
        if non_negative(gradient_noise_multiplier=self.gradient_noise_multiplier):
            self._check_noise()
        super().__post_init__()

    def _check_noise(self) -> None:
        if self.target.sensitivity is None:
            noise = self.gradient_noise_multiplier
            rule = "be 0 for a target without a sensitivity"
            refuse("gradient_noise_multiplier", noise, rule, "it is a multiple of it")

    @property
    def steps_a_round(self) -> int:
        """T trajectories."""
        return self.iterations

    def _client(self, index: int, weight: float, fraction: float) -> FederatedHamiltonian:
        return FederatedHamiltonian(
            step_size=self.steps_of(index),
            leapfrog_steps=self.leapfrog_steps,
            correlation=self.correlation,
            weight=weight,
            batch_fraction=fraction,
            gradient_sensitivity=self.target.sensitivity or 1.0,
            gradient_noise_multiplier=self.gradient_noise_multiplier,
            iterations=self.iterations,
        )

    def _gradient_std(self) -> Array:
        """Return the std of the noise on a query's gradient of f^c, for every client."""
        return self._stds(0, lambda client: client.gradient_noise_std)

    def _shared_std(self, index: int) -> float:
        return min(self.steps_of(index)) * math.sqrt(self.correlation)

    @property
    def _noisy_steps(self) -> int:
        # The first query of a trajectory, then one or two for each step after it.
        return self.iterations * (1 + (1 + self._fresh) * (self.leapfrog_steps - 1))

    def _locally(self, work: Work) -> tuple[Tensor, float]:
        index, local, clients, private, common = work
        momenta = self._stds(index, lambda client: client.momentum_noise_std)[clients]
        queries = self._gradient_std()[clients]
        points, planned, share = local.points, math.inf, 1.0

        def pushed(eta: float, spread: Spread) -> Any:
            """Return -eta^2 / 2 times a gradient at the points, with private noise."""
            nonlocal share
            own, public = local.parts(points, -0.5 * eta**2)
            own, std = self._noisy(own, spread, local, private)
            share = min(share, std / spread.least) if spread.least else share
            return own if public is None else own + public * points

        for eta in self.steps_of(index):
            asked = 0.5 * eta**2 * queries
            first = Spread.of(np.hypot(eta * momenta, asked)[..., None], local)
            later = Spread.of(asked[..., None], local)
            move = pushed(eta, first)
            planned = min(planned, first.least)
            if self.correlation > 0.0:
                move = move + eta * math.sqrt(self.correlation) * local.shared(common)
            points = points + move
            for _ in range(self.leapfrog_steps - 1):
                end = pushed(eta, later)
                # A whole gradient without noise is the same when it is asked for again.
                move = move + end + (pushed(eta, later) if self._fresh else end)
                points = points + move
        return local.finish(points), planned * share or self._shared_std(index)

    @property
    def _fresh(self) -> bool:
        """Whether a gradient that is asked for again is another one."""
        return self.batch_fraction < 1.0 or self.gradient_noise_multiplier > 0.0

    @property
    def exact(self) -> HamiltonianChain:
        """The chain's exact law on a Gaussian target: W2 curves, privacy of quadratic losses.

        Raises:
            ParameterError: the target is not a ``GaussianPosterior``, or its clients' weights
                differ and gradients carry noise, whose std then differs too.
        """
        target, stds = self._gaussian().target, self._gradient_std()
        if not np.allclose(stds, stds[0], rtol=THOUSANDS):
            refuse("weights", target.shares.tolist(), "be equal for the law of noisy gradients")
        return HamiltonianChain(
            target=target,
            averaging=self.averaging,
            cohort=self.cohort,
            step_size=self.step_size,
            leapfrog_steps=self.leapfrog_steps,
            iterations=self.iterations,
            correlation=self.correlation,
            gradient_std=float(stds[0]),
        )
