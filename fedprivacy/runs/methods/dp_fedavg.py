"""DP-FedAvg: averaging of clipped updates with noise."""

from __future__ import annotations

from dataclasses import dataclass

from ...relations import Unit
from .averaging import (
    NOISE_KNOB,
    Adaptive,
    AveragingJob,
    AveragingSettings,
    Clipped,
    IntegerNoise,
    Noisy,
)
from .base import Method, register


@dataclass(frozen=True, kw_only=True)
class NoisyAveraging(Adaptive, IntegerNoise, Noisy, AveragingSettings):
    """DP-FedAvg."""


register(
    Method(
        "dp-fedavg",
        "DP-FedAvg",
        NoisyAveraging,
        NOISE_KNOB,
        Unit.CLIENT,
        AveragingJob,
        compared=True,
    ),
    declares=(Clipped, Noisy, Adaptive, IntegerNoise),
)
