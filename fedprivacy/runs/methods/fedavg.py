"""FedAvg: averaging without noise, of whole updates or of a share of their coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from ...relations import Unit
from .averaging import AveragingJob, AveragingSettings, Sparse
from .base import Method, register


@dataclass(frozen=True, kw_only=True)
class SparseAveraging(Sparse, AveragingSettings):
    """FedAvg top-k and rand-k."""


register(
    Method(
        "fedavg", "FedAvg", AveragingSettings, None, Unit.CLIENT, AveragingJob, "dp-fedavg", True
    ),
    Method(
        "fedavg-top-k",
        "FedAvg top-k",
        SparseAveraging,
        None,
        Unit.CLIENT,
        AveragingJob,
        "fed-smp-top-k",
    ),
    Method(
        "fedavg-rand-k",
        "FedAvg rand-k",
        SparseAveraging,
        None,
        Unit.CLIENT,
        AveragingJob,
        "fed-smp-rand-k",
    ),
    declares=(AveragingSettings,),
)
