"""FA-LD: federated averaging Langevin dynamics at one client (Deng et al., Algorithm 1)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import closed_unit, positive, probability, validate_fields
from ..loss import compose
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Facts
from . import upload
from .gaussian import MU_GDP


@registered
@dataclass(frozen=True, kw_only=True)
class FederatedLangevin(upload.SamplersUpload):
    """One upload of a Langevin client after ``steps`` local steps; the unit is a record.

    A step changes the parameters by -step_size / (gamma p) times the sum of the batch's gradients.
    It adds noise sqrt(2 step_size temperature) times (rho shared + sqrt((1 - rho^2) / p) private),
    with p the client's weight. The shared noise cancels between two uploads, so it does not count.
    The multiplier of a step is (gamma / D) sqrt(2 temperature (1 - rho^2) p / step_size).

    If ``batch_fraction`` is 1 and both ``strong_convexity`` and ``smoothness`` are given, T6
    accounts for the block of steps. T6 needs a sensitivity that the loss itself has. With clipped
    gradients, omit both; the steps are then composed. Clients with different weights are accounted
    separately: see ``Parallel``.

    Args:
        step_size: eta, above 0; or one value for each of the ``steps`` steps, if they differ.
        temperature: tau, above 0.
        correlation: rho in [0, 1]; at 1 no noise is private and the loss is unbounded.
        weight: p, the client's weight, in (0, 1].
        batch_fraction: gamma, share of the client's records in a batch, in (0, 1]. The batch has a
            fixed size and is drawn without replacement in every step.
        gradient_sensitivity: D, the largest distance of two records' gradients of the negative
            log-likelihood, over all parameters (twice the clip norm for clipped gradients).
        steps: local steps before the upload.
        strong_convexity: of the client's function (1 / p times the sum of its records' losses).
        smoothness: of the same function.

    Raises:
        ParameterError: a value out of its range, or only one of the last two is given.
    """

    step_size: float | tuple[float, ...]
    temperature: float
    correlation: float
    weight: float
    batch_fraction: float
    gradient_sensitivity: float
    steps: int = 1
    strong_convexity: float | None = None
    smoothness: float | None = None

    def __post_init__(self) -> None:
        steps = upload.step_count(steps=self.steps)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "step_size", upload.checked_steps(self.step_size, steps))
        validate_fields(self, positive, "temperature", "gradient_sensitivity")
        validate_fields(self, closed_unit, "correlation")
        validate_fields(self, probability, "weight", "batch_fraction")
        if self._convexity is None:
            return
        # Check now: a step that does not contract is refused before any accounting.
        for size in set(upload.each_step(self.step_size, 1)):
            upload.contracted(1.0, 1, size, self._convexity)

    def rescaled(self, fraction: float) -> FederatedLangevin | None:
        """Return the upload with the fraction of its noise, as larger gradients."""
        sensitivity = upload.larger(self.gradient_sensitivity, fraction)
        return replace(self, gradient_sensitivity=sensitivity) if sensitivity else None

    @cached_property
    def step_multiplier(self) -> float:
        """Private noise std of one step over the change by replacing a drawn record.

        This is for the largest step, if steps differ.
        """
        return self._multiplier(max(upload.each_step(self.step_size, 1)))

    def _multiplier(self, step_size: float) -> float:
        # Not 1 - rho^2, which loses its digits near 1.
        private = (1.0 - self.correlation) * (1.0 + self.correlation) * self.weight
        ratio = math.sqrt(2.0 * self.temperature * private / step_size)
        return upload.finite(self.batch_fraction * ratio / self.gradient_sensitivity)

    @cached_property
    def step_noise_std(self) -> float:
        """Std of the private noise of one step: sqrt(2 eta tau (1 - rho^2) / p).

        This is for the smallest step, if steps differ.
        """
        return min(self.step_noise_stds)

    @cached_property
    def step_noise_stds(self) -> tuple[float, ...]:
        """Std of the private noise of every step; one value if all steps are equal."""
        private = (1.0 - self.correlation) * (1.0 + self.correlation) / self.weight
        return tuple(
            math.sqrt(2.0 * size * self.temperature * private)
            for size in upload.each_step(self.step_size, 1)
        )

    @property
    def _convexity(self) -> tuple[float, float] | None:
        return upload.both_or_neither(self.strong_convexity, self.smoothness)

    @property
    def contracts(self) -> bool:
        """Whether T6 applies: strongly convex, smooth, and full batches."""
        # At correlation 1 no noise is private, and contraction does not help.
        noisy = self.step_multiplier > 0.0
        return noisy and self._convexity is not None and self.batch_fraction == 1.0

    @property
    def _largest_multiplier(self) -> float:
        return self._multiplier(min(upload.each_step(self.step_size, 1)))

    def _replaced(self, facts: Facts) -> PrivacyLoss:
        if self.step_multiplier == 0.0:
            reason = "with correlation = 1 all noise is shared, so it cancels between two uploads"
            return upload.nothing_private(facts, reason)
        convexity = self._convexity
        if convexity is not None and self.contracts:
            return self._by_contraction(facts, convexity)
        # Equal sizes are accounted once, with their number.
        sizes = Counter(upload.each_step(self.step_size, self.steps))
        curve = compose(
            (upload.subsampled(self._multiplier(size), self.batch_fraction), count)
            for size, count in sizes.items()
        )
        witness = self._straight_line() if convexity is None else None
        return PrivacyLoss(curve, facts, witness, self._theorems, (upload.SENSITIVE,))

    def _straight_line(self) -> Witness | None:
        """Return the witness of linear losses at the end of the steps.

        Linear losses are not strongly convex, so the witness needs steps without convexity. A step
        of size eta changes the end by eta and has variance eta, in the same unit. So without
        batches, steps of different sizes show as much as the same number of steps of their mean
        size.
        """
        sizes = upload.each_step(self.step_size, self.steps)
        mean = math.fsum(sizes) / len(sizes)
        # With batches, different steps need a mixture component for every subset of steps.
        if self.batch_fraction < 1.0 and isinstance(self.step_size, tuple):
            return None
        noise = math.sqrt(self.steps) * self._multiplier(mean)
        return upload.summed_witness([1] * self.steps, self.batch_fraction, noise, 1.0)

    def _by_contraction(self, facts: Facts, convexity: tuple[float, float]) -> PrivacyLoss:
        """Return T6's loss, with quadratics of curvature ``strong_convexity`` as the witness."""
        if isinstance(self.step_size, tuple):
            curve, attained = upload.varying(self._multiplier(1.0), self.step_size, convexity)
        else:
            curve, attained = upload.contracted(
                self.step_multiplier, self.steps, self.step_size, convexity
            )
        theorem = "T6: contractive local steps from the round's start, released at their end"
        return PrivacyLoss(
            curve,
            facts,
            Witness(attained, upload.QUADRATIC, free=True),
            (theorem,),
            (upload.OWN_SENSITIVITY, upload.SENSITIVE),
        )

    @property
    def _theorems(self) -> tuple[str, ...]:
        hidden = "local steps composed: an upload is a function of its steps"
        known = self._convexity is not None
        why = "; T6 does not apply to random batches" if known else ""
        return (*self._batches, MU_GDP, *((hidden + why,) if self.steps > 1 or known else ()))
