"""FA-HMC: sampling by federated Hamiltonian Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import positive
from ...relations import Unit
from ...systems.settings import CLOSED_SHARE, COUNT, POSITIVE, Settings, choice, setting
from .base import Method, knob, register
from .records import CLIP, ChainSettings, SamplingJob

if TYPE_CHECKING:
    from ...training.chains import SamplingLoop


@dataclass(frozen=True, kw_only=True)
class Trajectories(Settings):
    """Settings that only FA-HMC has."""

    rounds: int = setting(COUNT, "number of rounds; draws of the second half are kept", default=40)
    clip_norm: float = setting(POSITIVE, CLIP, default=1.0)
    iterations: int = setting(COUNT, "trajectories between two uploads", default=1, symbol="T")
    local_steps: int = setting(COUNT, "leapfrog steps of a trajectory", default=2, symbol="K")
    step_size: float = setting(POSITIVE, "of a leapfrog step", default=0.05, symbol="eta")
    correlation: float = setting(
        CLOSED_SHARE, "share of the momentum's variance that is common", default=0.0, symbol="rho"
    )
    gradients: str = setting(
        choice("own", "debiased"),
        "own: of the client; debiased: corrected by every client's gradient at the start of the "
        "round before, which is one more release a round (Algorithm B.1)",
        default="own",
    )


@dataclass(frozen=True, kw_only=True)
class Hamiltonian(ChainSettings, Trajectories):
    """FA-HMC. Its knob is the noise on gradients."""


@dataclass(frozen=True, kw_only=True)
class HamiltonianJob(SamplingJob[Hamiltonian]):
    """Sampling by FA-HMC. Noise on the gradients gives the privacy."""

    def loop(self, level: float | None, seed: int | None) -> SamplingLoop:
        """Return the chain with noise on its gradients."""
        from ...training import DebiasedSampling, HamiltonianSampling

        debiased = self.chosen.gradients == "debiased"
        return (DebiasedSampling if debiased else HamiltonianSampling)(
            step_size=self.chosen.step_size,
            leapfrog_steps=self.chosen.local_steps,
            iterations=self.chosen.iterations,
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
    declares=(Trajectories, ChainSettings),
)
