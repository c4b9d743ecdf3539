"""FA-HMC: federated averaging Hamiltonian Monte Carlo at one client (Algorithms 1 to 3)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..errors import (
    UnsupportedCombination,
    closed_unit,
    non_negative,
    positive,
    probability,
    validate_fields,
)
from ..loss import Curve, compose
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Facts
from . import upload
from .base import ROUNDING


@registered
@dataclass(frozen=True, kw_only=True)
class FederatedHamiltonian(upload.SamplersUpload):
    """One upload of a Hamiltonian client after ``iterations``; the unit is a record.

    An iteration draws a fresh momentum, sqrt(rho) shared + sqrt((1 - rho) / w) private. K leapfrog
    steps follow, which use 2 K - 1 gradients. Each gradient may carry its own noise.

    With K = 1 an iteration is theta + eta p - eta^2 / 2 gradient. So the private momentum and the
    gradient's noise add up to one Gaussian. With K > 1 the momentum passes through gradients at
    points that it changed. A bound on gradient differences does not bound the resulting loss. The
    momentum therefore counts as noise on the first gradient, before it changes any point. The other
    gradients have only their own noise.

    Args:
        step_size: eta, above 0; or one value for each of the ``iterations``, if they differ.
        leapfrog_steps: K, at least 1.
        correlation: rho in [0, 1], the shared part of the momentum's *variance*
            (``FederatedLangevin.correlation`` squared).
        weight: w, the client's weight, in (0, 1].
        batch_fraction: gamma, share of the client's records in the batch of a query, in (0, 1]. The
            batch has a fixed size and is drawn anew without replacement for every query.
        gradient_sensitivity: D, the largest distance of two records' gradients (twice the clip norm
            for clipped gradients).
        gradient_noise_multiplier: std of the noise on a query's gradient over that gradient's
            sensitivity D / (gamma w), at least 0.
        iterations: T, number of trajectories before the upload.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float | tuple[float, ...]
    leapfrog_steps: int
    correlation: float
    weight: float
    batch_fraction: float
    gradient_sensitivity: float
    gradient_noise_multiplier: float = 0.0
    iterations: int = 1

    def __post_init__(self) -> None:
        validate_fields(self, upload.step_count, "iterations", "leapfrog_steps")
        sizes = upload.checked_steps(self.step_size, self.iterations)
        object.__setattr__(self, "step_size", sizes)
        validate_fields(self, closed_unit, "correlation")
        validate_fields(self, probability, "weight", "batch_fraction")
        validate_fields(self, positive, "gradient_sensitivity")
        validate_fields(self, non_negative, "gradient_noise_multiplier")

    def rescaled(self, fraction: float) -> FederatedHamiltonian | None:
        """Return the upload with the fraction of its noise.

        One std does not determine the parts of the momentum and of the gradients. If that matters,
        each part counts as the least that the std allows.

        Raises:
            UnsupportedCombination: that least value is 0, or there was more noise.
        """
        both = self.gradient_noise_multiplier > 0.0 and self.correlation < 1.0
        if both and self.leapfrog_steps > 1:
            return self._least(fraction)
        sensitivity = upload.larger(self.gradient_sensitivity, fraction)
        if not sensitivity:
            return None
        # Larger gradients with the same noise: the multiplier shrinks by the same factor.
        noise = self.gradient_noise_multiplier * fraction
        return replace(self, gradient_sensitivity=sensitivity, gradient_noise_multiplier=noise)

    def _least(self, fraction: float) -> FederatedHamiltonian:
        eta = min(upload.each_step(self.step_size, 1))
        momentum = eta * self.momentum_noise_std
        query = 0.5 * eta**2 * self.gradient_noise_std
        # The recorded std may be too large by rounding: less noise is the safe side.
        total = (fraction * self.step_noise_std) ** 2 * (1.0 - ROUNDING)
        moved, kept = total - query**2, total - momentum**2
        if fraction > 1.0 or kept <= 0.0:
            raise UnsupportedCombination(
                f"only {fraction:g} of the noise was used, and the record does not state "
                "whether momenta or gradients had less; account the round manually"
            )
        # No momentum noise is certain if the gradients' noise explains the whole std.
        left = max(0.0, moved) / momentum**2
        return replace(
            self,
            correlation=1.0 - (1.0 - self.correlation) * left * (1.0 - ROUNDING),
            gradient_noise_multiplier=self.gradient_noise_multiplier * math.sqrt(kept) / query,
        )

    @property
    def queries(self) -> int:
        """Number of gradients that one iteration depends on: 2 K - 1."""
        return 2 * self.leapfrog_steps - 1

    @cached_property
    def momentum_multiplier(self) -> float:
        """Private momentum's part over the gradient's part, at the end of one leapfrog step.

        This is for the largest step, if steps differ.
        """
        return self._momentum(max(upload.each_step(self.step_size, 1)))

    def _momentum(self, step_size: float) -> float:
        private = math.sqrt((1.0 - self.correlation) * self.weight)
        moved = step_size * self.gradient_sensitivity
        return upload.finite(2.0 * self.batch_fraction * private / moved if moved else math.inf)

    @cached_property
    def gradient_noise_std(self) -> float:
        """Std of the noise on each query's gradient (of the client's function)."""
        scale = self.gradient_sensitivity / (self.batch_fraction * self.weight)
        return self.gradient_noise_multiplier * scale

    @cached_property
    def step_noise_std(self) -> float:
        """Std of all private noise in one leapfrog step of a fresh momentum.

        It combines eta sqrt((1 - rho) / w) of the momentum and eta^2 / 2 times the gradient noise,
        for the smallest step if steps differ.
        """
        eta = min(upload.each_step(self.step_size, 1))
        return math.hypot(eta * self.momentum_noise_std, 0.5 * eta**2 * self.gradient_noise_std)

    @cached_property
    def momentum_noise_std(self) -> float:
        """Std of a fresh momentum's private part."""
        return math.sqrt((1.0 - self.correlation) / self.weight)

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return ``value``, the point after one noiseless leapfrog step, with its private noise.

        Args:
            value: see ``Upload.release``; K = 1 only.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: ``value`` has an entry that is not finite.
            UnsupportedCombination: K > 1, because noise enters at every gradient.
        """
        if self.leapfrog_steps > 1:
            raise UnsupportedCombination(
                f"leapfrog_steps = {self.leapfrog_steps}: noise is added to every gradient of "
                "a trajectory, not to its end; run the trajectory with HamiltonianSampling"
            )
        return super().release(value, generator)

    def _replaced(self, facts: Facts) -> PrivacyLoss:
        noiseless = self.gradient_noise_multiplier == 0.0
        if noiseless and self.correlation == 1.0:
            reason = "correlation = 1 without gradient noise leaves no private noise"
            return upload.nothing_private(facts, reason)
        if self.leapfrog_steps == 1:
            theorem = "one leapfrog step is a Langevin step: Gaussian mechanism"
            theorems = (*self._batches, theorem, *self._hidden)
            return PrivacyLoss(self._langevin, facts, self._witness, theorems, (upload.SENSITIVE,))
        if noiseless:
            raise UnsupportedCombination(
                f"leapfrog_steps = {self.leapfrog_steps} with noise in the momentum only: the "
                "gradients' sensitivity gives no guarantee there; use leapfrog_steps=1, or noise "
                "on every gradient: gradient_noise_multiplier above 0"
            )
        theorem = (
            f"noise on {self.queries * self.iterations} gradient queries composed; the momentum "
            "counts as noise on the first of each trajectory"
        )
        theorems = (*self._batches, theorem)
        return PrivacyLoss(self._queried, facts, self._witness, theorems, (upload.SENSITIVE,))

    @property
    def _hidden(self) -> tuple[str, ...]:
        many = "iterations composed: an upload is a function of its iterations"
        return (many,) if self.iterations > 1 else ()

    @property
    def _langevin(self) -> Curve:
        """The first query of every iteration, composed: the full curve for one leapfrog step.

        The momentum p enters a trajectory only with that gradient, as p - (eta / 2) gradient.
        """
        sizes = Counter(upload.each_step(self.step_size, self.iterations))
        return compose(
            (upload.subsampled(self._total(size), self.batch_fraction), count)
            for size, count in sizes.items()
        )

    @property
    def _queried(self) -> Curve:
        """All queries of all iterations, composed."""
        other = upload.subsampled(self.gradient_noise_multiplier, self.batch_fraction)
        # The first part already contains the first query of each iteration.
        return compose([(self._langevin, 1), (other, (self.queries - 1) * self.iterations)])

    def _total(self, step_size: float) -> float:
        return math.hypot(self._momentum(step_size), self.gradient_noise_multiplier)

    @property
    def _witness(self) -> Witness | None:
        """The witness of linear losses: gradients only add to the momentum.

        In units of eta^2 / 2 times a query's sensitivity, an iteration's end changes by K for the
        first query and by K - j for each of the two queries at point j. Momentum noise counts K
        times. Iterations add up. Different step sizes scale them. Without batches the result is a
        single Gaussian.
        """
        # Weights are listed one by one.
        if self.queries * self.iterations > upload.MAX_STEPS:
            return None
        steps, sizes = self.leapfrog_steps, upload.each_step(self.step_size, self.iterations)
        weights = [steps, *(steps - j for j in range(1, steps) for _ in range(2))]
        squares = math.fsum(w * w for w in weights)
        each = math.sqrt(squares) * self.gradient_noise_multiplier
        largest = max(sizes)
        scales = [(size / largest) ** 2 for size in sizes]
        noises = [
            scale * math.hypot(steps * self._momentum(size), each)
            for scale, size in zip(scales, sizes, strict=True)
        ]
        noise = math.sqrt(math.fsum(n * n for n in noises))
        if not isinstance(self.step_size, tuple):
            return upload.summed_witness(weights * self.iterations, self.batch_fraction, noise, 1.0)
        if self.batch_fraction < 1.0:
            return None
        return upload.summed_witness([1], 1.0, noise, sum(weights) * math.fsum(scales))
