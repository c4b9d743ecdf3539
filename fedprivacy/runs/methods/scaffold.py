"""SCAFFOLD: averaging in which every client corrects its steps by control variates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import positive
from ...factors.optimise import Progress
from ...mechanisms import Gaussian
from ...relations import Unit
from .averaging import NOISE_KNOB, AveragingJob, AveragingSettings, Clipped
from .base import Method, register

if TYPE_CHECKING:
    from ...systems.averaging.loop import FederatedAveraging
    from ...training.data import FederatedData
    from ...training.models import ModelFactory

LOCAL_STEPS = 5
"""K, unless it is given: every client makes the same number of steps."""


@dataclass(frozen=True, kw_only=True)
class NoisyScaffold(Clipped, AveragingSettings):
    """SCAFFOLD with noise."""


@dataclass(frozen=True, kw_only=True)
class ScaffoldJob(AveragingJob):
    """SCAFFOLD, with noise if its settings have a clip norm; the unit is a client."""

    @classmethod
    def of(
        cls,
        method: Method,
        source: FederatedData,
        model: ModelFactory | None,
        given: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> AveragingJob:
        """Return the method's job; see ``AveragingJob.of``."""
        if "local_epochs" not in given:
            given = {"local_steps": LOCAL_STEPS, **given}
        return super().of(method, source, model, given, progress)

    def loop(self, level: float | None, seed: int | None) -> FederatedAveraging:
        """Return SCAFFOLD's loop, with a noise multiplier if it is private."""
        from ...training import Scaffold

        plain, chosen = self._plain, self.chosen
        loop = Scaffold(**{name: getattr(plain, name) for name in plain.__dataclass_fields__})
        if seed is not None:
            loop = replace(loop, seed=seed)
        if not isinstance(chosen, NoisyScaffold):
            return loop
        assert chosen.clip_norm is not None
        noise = Gaussian(
            noise_multiplier=positive(noise_multiplier=level),
            clip_norm=chosen.clip_norm,
            unit=Unit.CLIENT,
        )
        return replace(loop, perturbation=noise)


register(
    Method(
        "scaffold", "SCAFFOLD", AveragingSettings, None, Unit.CLIENT, ScaffoldJob, "dp-scaffold"
    ),
    Method("dp-scaffold", "DP-SCAFFOLD", NoisyScaffold, NOISE_KNOB, Unit.CLIENT, ScaffoldJob),
)
