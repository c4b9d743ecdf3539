"""Fed-SMP: averaging of sparsified, clipped updates with noise."""

from __future__ import annotations

from dataclasses import dataclass

from ...relations import Unit
from .averaging import NOISE_KNOB, AveragingJob, AveragingSettings, Noisy, Sparse
from .base import Method, register


@dataclass(frozen=True, kw_only=True)
class FedSmp(Sparse, Noisy, AveragingSettings):
    """Fed-SMP."""


register(
    *(
        Method(name, title, FedSmp, NOISE_KNOB, Unit.CLIENT, AveragingJob, compared=True)
        for name, title in (
            ("fed-smp-top-k", "Fed-SMP top-k"),
            ("fed-smp-rand-k", "Fed-SMP rand-k"),
        )
    ),
    declares=(Sparse,),
)
