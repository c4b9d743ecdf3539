"""FA-LD: federated averaging Langevin dynamics (Deng et al., Algorithm 1) as a loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import integer, positive, refuse
from ...mechanisms import FederatedLangevin
from ...mechanisms.rounded import HIDDEN_GRID, STEP_GRID
from ...rounding import THOUSANDS
from ...training.chains import LocalWork, SamplingLoop
from ...training.posterior import Array, Indices, Local, Spread
from .law import DecayingSteps, LangevinChain

_ABOVE = 1.0 + THOUSANDS
"""A computed curvature may deviate by its rounding error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LangevinSampling(SamplingLoop):
    """Sample with FA-LD: K local steps, then an average.

    A local step is theta - eta gradient + sqrt(2 eta tau) (rho shared + sqrt((1 - rho^2) / p_c)
    own). Every step loses as much as a Gaussian mechanism with the multiplier of
    ``FederatedLangevin``, sampled by its batches. The steps of an upload are composed. If
    ``strong_convexity`` and ``smoothness`` are given, and gradients are whole and not clipped, the
    upload is accounted by T6 instead.

    Args:
        step_size: eta, above 0, or ``systems.fa_ld.law.DecayingSteps``, counted in local steps.
        local_steps: K.
        temperature: tau.
        strong_convexity: strong convexity of every client's function, for all data; given together
            with ``smoothness`` or not at all.
        smoothness: smoothness of the same functions.

    Raises:
        ParameterError: a value out of its range; T6 requested with clipped gradients, which do not
            contract, or with a curvature that the target does not have.
    """

    step_size: float | DecayingSteps
    local_steps: int = 1
    temperature: float = 1.0
    strong_convexity: float | None = None
    smoothness: float | None = None

    def __post_init__(self) -> None:
        integer(1, local_steps=self.local_steps)
        positive(temperature=self.temperature)
        if not isinstance(self.step_size, DecayingSteps):
            positive(step_size=self.step_size)
        if self.strong_convexity is not None and self.target.clip_norm is not None:
            way = "leave out strong_convexity and smoothness, so that the steps are composed"
            refuse(
                "clip_norm",
                self.target.clip_norm,
                "be None for T6, since clipping breaks its assumptions",
                way,
            )
        if self.strong_convexity is not None or self.smoothness is not None:
            self._check_curvature()
        super().__post_init__()

    def _check_curvature(self) -> None:
        """Refuse a convexity or a smoothness that contradicts the target's own knowledge."""
        # A caller's own target may lack this property.
        convexity, smoothness = getattr(self.target, "curvature", (math.inf, 0.0))
        way = (
            "state constants that hold for all data, or leave out both, so that the steps are "
            "composed"
        )
        if self.strong_convexity is not None and self.strong_convexity > convexity * _ABOVE:
            rule = f"be at most {convexity:g}, the value of the target"
            refuse("strong_convexity", self.strong_convexity, rule, way)
        if self.smoothness is not None and self.smoothness * _ABOVE < smoothness:
            rule = f"be at least {smoothness:g}, the value of the target"
            refuse("smoothness", self.smoothness, rule, way)

    @property
    def steps_a_round(self) -> int:
        """K local steps."""
        return self.local_steps

    def _client(self, index: int, weight: float, fraction: float) -> FederatedLangevin:
        return FederatedLangevin(
            # A single size if all are equal, so that all rounds are the same mechanism.
            step_size=self.steps_of(0)[0] if self.homogeneous else self.steps_of(index),
            temperature=self.temperature,
            correlation=self.correlation,
            weight=weight,
            batch_fraction=fraction,
            gradient_sensitivity=self.target.sensitivity or 1.0,
            steps=self.local_steps,
            strong_convexity=self.strong_convexity,
            smoothness=self.smoothness,
        )

    def _shared_std(self, index: int) -> float:
        return self.correlation * math.sqrt(2.0 * min(self.steps_of(index)) * self.temperature)

    @property
    def _noisy_steps(self) -> int:
        return self.local_steps

    def _locally(self, work: LocalWork) -> tuple[Tensor, float]:
        index, local, clients, private, common, _ = work
        points, used = local.points, math.inf
        stds, together = self._widened(index, clients)
        within, grid = None, STEP_GRID
        if together.any():
            within, grid = local.scaled(local.spread(together)), HIDDEN_GRID
        for eta, spread in zip(self.steps_of(index), _spreads(stds, local, grid), strict=False):
            own = self._moved(local, points, eta, within)
            own, std = self._noisy(own, spread, local, private)
            points += own
            used = min(used, std)
            if self.correlation > 0.0:
                scale = math.sqrt(2.0 * eta * self.temperature)
                points += scale * self.correlation * local.shared(common)
        return local.finish(points), used or self._shared_std(index)

    @staticmethod
    def _moved(local: Local, points: Any, eta: float, within: Any) -> Any:
        """Move points by the public part of a step; return the part that receives noise."""
        own, public = local.parts(points, -eta)
        if public is not None:
            # Only now, because ``parts`` reads the points.
            points *= 1.0 + public
        if within is not None:  # the whole step is rounded, so that its rounding is public
            own = own + within * points
            points *= 1.0 - within
        return own

    def _widened(self, index: int, clients: Indices) -> tuple[Array, Array]:
        """Return the seats' stds of every step, and 1 if T6 accounts a seat's steps, else 0.

        A run without privacy has no account, and its steps are not rounded.
        """
        stds = self._stds(index, lambda client: client.step_noise_stds)
        if not self.private or self.strong_convexity is None:
            return stds[clients], np.zeros((*clients.shape, 1))
        factors = self._stds(index, lambda client: client.widening(self.target.dimension))
        together = self._stds(index, lambda client: float(client.contracts))
        return (stds * factors[:, None])[clients], together[clients][..., None]

    @property
    def exact(self) -> LangevinChain:
        """The chain's exact law on a Gaussian target: W2 curves, privacy of quadratic losses.

        Raises:
            ParameterError: the target is not a ``GaussianPosterior``.
        """
        return LangevinChain(
            target=self._gaussian().target,
            averaging=self.averaging,
            cohort=self.cohort,
            step_size=self.step_size,
            local_steps=self.local_steps,
            correlation=self.correlation,
            temperature=self.temperature,
        )


def _spreads(stds: Array, local: Local, grid: float) -> Iterator[Spread]:
    """Yield the noise of each step, from its stds: one column if all steps are equal."""
    for step in range(stds.shape[-1]):
        spread = Spread.of(stds[..., step, None], local)._replace(grid=grid)
        yield spread
    yield from repeat(spread)
