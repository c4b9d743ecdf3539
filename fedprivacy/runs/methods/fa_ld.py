"""FA-LD: sampling by federated Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import positive
from ...relations import Unit
from ...systems.settings import CLOSED_SHARE, COUNT, POSITIVE, Settings, setting
from .base import Method, knob, register
from .records import CLIP, SamplingJob

if TYPE_CHECKING:
    from ...training.chains import SamplingLoop


@dataclass(frozen=True, kw_only=True)
class Langevin(Settings):
    """FA-LD. Its knob is the step size."""

    rounds: int = setting(COUNT, "number of rounds; draws of the second half are kept", default=50)
    clip_norm: float = setting(POSITIVE, CLIP, default=0.5)
    local_steps: int = setting(COUNT, "steps between two uploads", default=10)
    correlation: float = setting(CLOSED_SHARE, "share of the noise that is common", default=0.0)


@dataclass(frozen=True, kw_only=True)
class LangevinJob(SamplingJob[Langevin]):
    """Sampling by FA-LD. Smaller steps give more privacy."""

    def loop(self, level: float | None, seed: int | None) -> SamplingLoop:
        """Return the chain with a step size."""
        from ...training import LangevinSampling

        step, steps = positive(step_size=level), self.chosen.local_steps
        return LangevinSampling(step_size=step, local_steps=steps, **self._common(seed))


register(
    Method("fa-ld", "FA-LD", Langevin, knob("step_size", "step size"), Unit.RECORD, LangevinJob),
    declares=(Langevin,),
)
