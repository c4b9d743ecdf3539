"""FA-LD: sampling by federated Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import positive, refuse
from ...relations import Unit
from ...systems.fa_ld.law import DecayingSteps
from ...systems.settings import CLOSED_SHARE, COUNT, POSITIVE, Settings, setting
from .base import Method, knob, register
from .records import CLIP, ChainSettings, SamplingJob

if TYPE_CHECKING:
    from ...training.chains import SamplingLoop


@dataclass(frozen=True, kw_only=True)
class LangevinSteps(Settings):
    """Settings that only FA-LD has."""

    rounds: int = setting(COUNT, "number of rounds; draws of the second half are kept", default=50)
    clip_norm: float = setting(POSITIVE, CLIP, default=0.5)
    local_steps: int = setting(COUNT, "steps between two uploads", default=10, symbol="K")
    temperature: float = setting(
        POSITIVE, "of the density exp(-f / tau)", default=1.0, symbol="tau"
    )
    correlation: float = setting(
        CLOSED_SHARE, "share of the noise that is common", default=0.0, symbol="rho"
    )
    step_decay: float | None = setting(
        POSITIVE,
        "strong convexity for the step sizes 1 / (1 / eta + m k / 12) of Theorem 5.8, k = 0, 1, "
        "...; default: constant steps",
        default=None,
        symbol="m",
    )


@dataclass(frozen=True, kw_only=True)
class Langevin(ChainSettings, LangevinSteps):
    """FA-LD. Its knob is the step size."""


@dataclass(frozen=True, kw_only=True)
class LangevinJob(SamplingJob[Langevin]):
    """Sampling by FA-LD. Smaller steps give more privacy."""

    def loop(self, level: float | None, seed: int | None) -> SamplingLoop:
        """Return the chain with a step size."""
        from ...training import LangevinSampling

        chosen, step = self.chosen, positive(step_size=level)
        decay = chosen.step_decay
        if decay is not None and 2.0 * step * decay > 1.0:
            rule = f"be at most 1 / (2 step_decay) = {0.5 / decay:g}"
            refuse("step_size", step, rule, "the curvature m cannot exceed L = 1 / (2 step_size)")
        return LangevinSampling(
            step_size=step
            if decay is None
            else DecayingSteps(strong_convexity=decay, smoothness=0.5 / step),
            local_steps=chosen.local_steps,
            temperature=chosen.temperature,
            **self._common(seed),
        )


register(
    Method("fa-ld", "FA-LD", Langevin, knob("step_size", "step size"), Unit.RECORD, LangevinJob),
    declares=(LangevinSteps,),
)
