"""Noisy gradient descent: one private local solve, of Fed-PLT and others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..errors import integer, positive
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Facts
from .upload import OWN_SENSITIVITY, QUADRATIC, SENSITIVE, Upload, contracted


@dataclass(frozen=True, kw_only=True)
class NoisyGradientDescent(Upload):
    """One local solve x <- x - step_size gradient + N(0, noise_std^2), ``steps`` times.

    The unit is a record, the start is known to the observer, and what is released is the end.
    Every observer's account is T6, which needs steps that contract: the loss is strongly convex
    and smooth for all data, and ``sensitivity`` is the loss's own. Clipping gradients destroys
    contraction; compose clipped steps one by one instead: ``Gaussian(noise_multiplier=noise_std /
    (step_size * clip_norm), unit="record") * steps``, clip_norm being what one record's clipped
    gradient adds to the gradient at most (C / q in a mean); ``replace_one`` itself counts it twice.

    For Fed-PLT's local problem: noise_std = sqrt(2 step_size) tau, and strong convexity and
    smoothness are those of f_i plus 1 / rho.

    Args:
        step_size: above 0 and below 2 / ``smoothness``.
        noise_std: std of the noise of each step on each coordinate, above 0.
        sensitivity: largest distance of the gradients of two data sets that differ in one record,
            over all points.
        strong_convexity: of the function whose gradient is taken, above 0.
        smoothness: of the same function, at least ``strong_convexity``.
        steps: number of steps.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float
    noise_std: float
    sensitivity: float
    strong_convexity: float
    smoothness: float
    steps: int

    def __post_init__(self) -> None:
        checked = {
            name: positive(**{name: getattr(self, name)})
            for name in ("step_size", "noise_std", "sensitivity", "strong_convexity", "smoothness")
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "steps", integer(1, steps=self.steps))
        contracted(1.0, 1, self.step_size, (self.strong_convexity, self.smoothness))

    @cached_property
    def step_multiplier(self) -> float:
        """Noise std of one step over how far replacing a record moves it."""
        return self.noise_std / (self.step_size * self.sensitivity)

    @cached_property
    def step_noise_std(self) -> float:
        """``noise_std``."""
        return self.noise_std

    def _replaced(self, facts: Facts) -> PrivacyLoss:
        curve, attained = contracted(
            self.step_multiplier,
            self.steps,
            self.step_size,
            (self.strong_convexity, self.smoothness),
        )
        theorem = "T6: contractive steps from a known start, seen at their end"
        return PrivacyLoss(
            curve, facts, Witness(attained, QUADRATIC), (theorem,), (OWN_SENSITIVITY, SENSITIVE)
        )
