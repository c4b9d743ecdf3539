"""SCAFFOLD: averaging in which every client corrects its steps by control variates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...errors import positive
from ...mechanisms import Gaussian
from ...relations import Unit
from .averaging import NOISE_KNOB, AveragingJob, AveragingSettings, Clipped
from .base import Method, register

if TYPE_CHECKING:
    from ...systems.averaging.loop import FederatedAveraging


@dataclass(frozen=True, kw_only=True)
class NoisyScaffold(Clipped, AveragingSettings):
    """SCAFFOLD with noise."""


@dataclass(frozen=True, kw_only=True)
class ScaffoldJob(AveragingJob):
    """SCAFFOLD, with noise if its settings have a clip norm; the unit is a client."""

    # Every client makes the same number of steps, K.
    presets = MappingProxyType({"local_steps": 5})

    def loop(self, level: float | None, seed: int | None) -> FederatedAveraging:
        """Return SCAFFOLD's loop, with a noise multiplier if it is private."""
        loop, chosen = replace(self._plain, seed=seed), self.chosen
        if not isinstance(chosen, NoisyScaffold):
            return loop
        assert chosen.clip_norm is not None
        noise = Gaussian(
            noise_multiplier=positive(noise_multiplier=level),
            clip_norm=chosen.clip_norm,
            unit=Unit.CLIENT,
        )
        return replace(loop, perturbation=noise)

    def _kind(self) -> type[FederatedAveraging]:
        from ...training import Scaffold

        return Scaffold


register(
    Method(
        "scaffold", "SCAFFOLD", AveragingSettings, None, Unit.CLIENT, ScaffoldJob, "dp-scaffold"
    ),
    Method("dp-scaffold", "DP-SCAFFOLD", NoisyScaffold, NOISE_KNOB, Unit.CLIENT, ScaffoldJob),
)
