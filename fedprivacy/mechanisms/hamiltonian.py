"""FA-HMC: federated averaging Hamiltonian Monte Carlo at one client (Algorithms 1 to 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ..errors import UnsupportedCombination, integer, non_negative, positive, probability
from ..loss import compose
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Facts
from .upload import LINEAR, NO_NOISE, SENSITIVE, Upload, share, subsampled, summed_witness


@dataclass(frozen=True, kw_only=True)
class FederatedHamiltonian(Upload):
    """One upload of a Hamiltonian client after ``leapfrog_steps``; the unit is a record.

    A fresh momentum, sqrt(rho) shared + sqrt((1 - rho) / w) private, is followed by K leapfrog
    steps, which ask for 2 K - 1 gradients; each may carry noise of its own.

    With K = 1 the upload is theta + eta p - eta^2 / 2 gradient, so the private momentum and the
    gradient's noise add up to one Gaussian. With K > 1 the momentum passes through gradients at
    points that it moved, and no bound on gradients' differences bounds what that shows: only the
    noise on the gradients counts, composed over the queries.

    Args:
        step_size: eta, above 0.
        leapfrog_steps: K, at least 1.
        correlation: rho in [0, 1], the shared part of the momentum's *variance*
            (``FederatedLangevin.correlation`` squared).
        weight: w, the client's weight, in (0, 1].
        batch_fraction: gamma, share of the client's records in the batch of a query, a fixed
            number drawn afresh without replacement for every query, in (0, 1].
        gradient_sensitivity: D, the largest distance of two records' gradients (twice the clip
            norm for clipped gradients).
        gradient_noise_multiplier: std of the noise on a query's gradient over that gradient's
            sensitivity D / (gamma w), at least 0.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float
    leapfrog_steps: int
    correlation: float
    weight: float
    batch_fraction: float
    gradient_sensitivity: float
    gradient_noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        noise = self.gradient_noise_multiplier
        checked = {
            "step_size": positive(step_size=self.step_size),
            "leapfrog_steps": integer(1, leapfrog_steps=self.leapfrog_steps),
            "correlation": share(correlation=self.correlation),
            "weight": probability(weight=self.weight),
            "batch_fraction": probability(batch_fraction=self.batch_fraction),
            "gradient_sensitivity": positive(gradient_sensitivity=self.gradient_sensitivity),
            "gradient_noise_multiplier": non_negative(gradient_noise_multiplier=noise),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def samples_its_unit(self) -> bool:
        """True: batches are drawn inside."""
        return True

    @property
    def queries(self) -> int:
        """How many gradients one upload depends on: 2 K - 1."""
        return 2 * self.leapfrog_steps - 1

    @cached_property
    def momentum_multiplier(self) -> float:
        """Private momentum's part at the end of one leapfrog step over the gradient's."""
        private = math.sqrt((1.0 - self.correlation) * self.weight)
        return 2.0 * self.batch_fraction * private / (self.step_size * self.gradient_sensitivity)

    @cached_property
    def gradient_noise_std(self) -> float:
        """Std of the noise on each query's gradient (of the client's function)."""
        scale = self.gradient_sensitivity / (self.batch_fraction * self.weight)
        return self.gradient_noise_multiplier * scale

    @cached_property
    def step_noise_std(self) -> float:
        """Std of the private momentum, sqrt((1 - rho) / w), on its way over one leapfrog step."""
        return self.step_size * math.sqrt((1.0 - self.correlation) / self.weight)

    def _replaced(self, facts: Facts) -> PrivacyLoss:
        if self.leapfrog_steps == 1:
            return self._one_step(facts)
        if self.gradient_noise_multiplier == 0.0:
            raise UnsupportedCombination(
                f"leapfrog_steps = {self.leapfrog_steps} with noise in the momentum only: the "
                "gradients' sensitivity gives no guarantee there; use leapfrog_steps=1, or noise "
                "on every gradient: gradient_noise_multiplier above 0"
            )
        query = subsampled(self.gradient_noise_multiplier, self.batch_fraction)
        batch = () if self.batch_fraction == 1.0 else ("T1: batches without replacement",)
        composed = f"noise on {self.queries} gradient queries composed; momentum not counted"
        return PrivacyLoss(
            compose([(query, self.queries)]),
            facts,
            self._straight_line(),
            (*batch, composed),
            (SENSITIVE,),
        )

    def _one_step(self, facts: Facts) -> PrivacyLoss:
        multiplier = math.hypot(self.momentum_multiplier, self.gradient_noise_multiplier)
        if multiplier == 0.0:
            reason = "correlation = 1 and no noise on the gradient: no noise is private"
            return PrivacyLoss(NO_NOISE, facts, Witness(NO_NOISE, LINEAR), (reason,), (SENSITIVE,))
        batch = () if self.batch_fraction == 1.0 else ("T1: batches without replacement",)
        return PrivacyLoss(
            subsampled(multiplier, self.batch_fraction),
            facts,
            summed_witness([1], self.batch_fraction, multiplier, 1.0),
            (*batch, "one leapfrog step is a Langevin step: Gaussian mechanism"),
            (SENSITIVE,),
        )

    def _straight_line(self) -> Witness | None:
        """Return what linear losses show: a momentum that gradients only add to.

        In units of eta^2 / 2 times a query's sensitivity the K-step end moves by K for the first
        query and by K - j for each of the two at point j; momentum noise counts K times.
        """
        steps = self.leapfrog_steps
        weights = [steps, *(steps - j for j in range(1, steps) for _ in range(2))]
        squares = math.fsum(w * w for w in weights)
        noise = math.hypot(
            steps * self.momentum_multiplier,
            math.sqrt(squares) * self.gradient_noise_multiplier,
        )
        return summed_witness(weights, self.batch_fraction, noise, 1.0)
