"""FA-HMC: sampling by federated Hamiltonian Monte Carlo."""

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
class Hamiltonian(Settings):
    """FA-HMC. Its knob is the noise on gradients."""

    rounds: int = setting(COUNT, "number of rounds; draws of the second half are kept", default=40)
    clip_norm: float = setting(POSITIVE, CLIP, default=1.0)
    local_steps: int = setting(COUNT, "leapfrog steps between two uploads", default=2)
    step_size: float = setting(POSITIVE, "of a leapfrog step", default=0.05)
    correlation: float = setting(
        CLOSED_SHARE, "share of the momentum's variance that is common", default=0.0
    )


@dataclass(frozen=True, kw_only=True)
class HamiltonianJob(SamplingJob[Hamiltonian]):
    """Sampling by FA-HMC. Noise on the gradients gives the privacy."""

    def loop(self, level: float | None, seed: int | None) -> SamplingLoop:
        """Return the chain with noise on its gradients."""
        from ...training import HamiltonianSampling

        return HamiltonianSampling(
            step_size=self.chosen.step_size,
            leapfrog_steps=self.chosen.local_steps,
            gradient_noise_multiplier=positive(gradient_noise_multiplier=level),
            **self._common(seed),
        )


register(
    Method(
        "fa-hmc",
        "FA-HMC",
        Hamiltonian,
        knob(
            "gradient_noise_multiplier", "std of the noise of a gradient, divided by its clip norm"
        ),
        Unit.RECORD,
        HamiltonianJob,
    ),
    declares=(Hamiltonian,),
)
