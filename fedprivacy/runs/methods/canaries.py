"""What the methods share to plant canaries in their jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...audit.canaries import AttackSettings
from ...questions.calibrate import calibrate

if TYPE_CHECKING:
    from ...training.data import FederatedData

Array = NDArray[np.float64]

EPSILON = 4.0
"""Default epsilon for calibrating the noise."""

LONG = 4.0
"""Length of a canary's input: its gradient reaches the usual clip norms and does not saturate."""


def level_for(task: Any, level: float | None, attack: AttackSettings) -> float:
    """Return the job's level; calibrate it if it is missing."""
    if level is not None:
        return level
    threat = {"adjacency": task.adjacency, "observer": attack.observer, "delta": attack.delta}
    return float(calibrate(task.run, epsilon=EPSILON, **threat).value)


def only(source: FederatedData, inputs: Array) -> FederatedData:
    """Return the data with only these records, shape (m, features), dealt to clients in turn.

    An attacker knows all other records and would subtract their part, so the data have none.
    """
    import torch

    count = len(inputs)
    clients = min(source.population, count)
    return replace(
        source,
        features=torch.as_tensor(inputs)
        .to(source.features)
        .reshape(-1, *source.features.shape[1:]),
        labels=source.labels.new_zeros(count),
        clients=tuple(np.arange(client, count, clients) for client in range(clients)),
        num_classes=source.classes,
    )
