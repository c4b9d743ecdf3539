"""Canaries in the methods of ``fedprivacy train``, for attacks by name; see ``attack_targets``.

Client canaries are crafted clients of federated averaging. Record canaries belong to methods whose
unit is a record. Each has a random input and one of two labels. Flipping its coin replaces one
record by the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..audit.canaries import AttackSettings, Planted
from ..errors import refuse
from ..relations import Unit
from ..training.data import FederatedData
from .jobs import job
from .methods import METHODS
from .sources import CLIENTS


def plant(method: str, attack: AttackSettings) -> Planted:
    """Return a method's job with canaries in it.

    Raises:
        ParameterError: settings that the method does not take, or fewer clients than canaries.
    """
    given = dict(attack.settings)
    for name, way_out in (("rounds", "pass rounds="), ("model", "pass the loop")):
        by_itself = name == "rounds" or METHODS[method].unit is Unit.RECORD
        if by_itself and given.get(name) is not None:
            refuse(f"settings[{name!r}]", given[name], "be left out", way_out)
    level = given.pop(str(METHODS[method].knob_name), None)
    task = job(method, **_placed(method, attack, given), rounds=attack.rounds)
    return task.planted(level, attack)


def _placed(method: str, attack: AttackSettings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's settings with its data, with enough clients for the canaries."""
    data = "digits" if attack.data is None else attack.data
    placed = {"data": data, **given}
    if isinstance(data, FederatedData) or data not in CLIENTS:
        return placed
    if METHODS[method].unit is Unit.CLIENT:
        return {"clients": max(CLIENTS[data], attack.canaries), **placed}
    clients = METHODS[method].job.attacked_clients
    return placed if clients is None else {"clients": clients, **placed}
