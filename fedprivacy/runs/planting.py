"""Canaries in the methods of ``fedprivacy train``, for attacks by name; see ``attack_targets``.

Client canaries are crafted clients of federated averaging. Record canaries belong to methods whose
unit is a record. Each has a random input and one of two labels. Flipping its coin replaces one
record by the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..audit.canaries import AttackSettings, Planted, crafted_canaries, planted, random_directions
from ..errors import refuse
from ..questions.calibrate import calibrate
from ..relations import Unit
from ..training.data import FederatedData
from .jobs import CENTRE, SplittingJob, job
from .methods import METHODS
from .sources import CLIENTS

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]

EPSILON = 4.0
"""Default epsilon for calibrating the noise."""

LONG = 4.0
"""Length of a canary's input: its gradient reaches the usual clip norms and does not saturate."""


def plant(method: str, asked: AttackSettings) -> Planted:
    """Return a method's job with canaries in it.

    Raises:
        ParameterError: settings that the method does not take, or fewer clients than canaries.
    """
    given = dict(asked.settings)
    for name, way_out in (("rounds", "pass rounds="), ("model", "pass the loop")):
        by_itself = name == "rounds" or METHODS[method].unit is Unit.RECORD
        if by_itself and given.get(name) is not None:
            refuse(f"settings[{name!r}]", given[name], "be left out", way_out)
    level = given.pop(str(METHODS[method].knob_name), None)
    task = job(method, **_placed(method, asked, given), rounds=asked.rounds)
    planting = _clients if task.unit is Unit.CLIENT else _records
    return planting(task, level, asked)


def _placed(method: str, asked: AttackSettings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's settings with its data, with enough clients for the canaries."""
    data = "digits" if asked.data is None else asked.data
    placed = {"data": data, **given}
    if isinstance(data, FederatedData) or data not in CLIENTS:
        return placed
    if METHODS[method].unit is Unit.CLIENT:
        return {"clients": max(CLIENTS[data], asked.canaries), **placed}
    # A sampler publishes the mean of its uploads. With one client, that is the upload itself.
    return placed if method == "fed-plt" else {"clients": 1, **placed}


def _leveled(task: Any, level: float | None, asked: AttackSettings) -> float:
    """Return the job's level; calibrate it if it is missing."""
    if level is not None:
        return level
    threat = {"adjacency": task.adjacency, "observer": asked.observer, "delta": asked.delta}
    return float(calibrate(task.run, epsilon=EPSILON, **threat).value)


def _clients(task: Any, given: float | None, asked: AttackSettings) -> Planted:
    level = _leveled(task, given, asked)
    loop = task.loop(level, None)
    ways = random_directions(asked.canaries, loop.flat.dimension, asked.generator)
    train = crafted_canaries(loop, task.data, ways, asked.rounds)
    return Planted(train, ways, task.run(level), task.adjacency)


def _records(task: Any, given: float | None, asked: AttackSettings) -> Planted:
    splits, count = isinstance(task, SplittingJob), asked.canaries
    inputs = LONG * random_directions(count, task.source.features[0].numel(), asked.generator)
    # Fed-PLT subtracts its centre.
    bare = _only(task.source, inputs + (CENTRE if splits else 0.0))
    level = _leveled(replace(task, source=bare), given, asked)

    def make(included: Coins) -> tuple[Any, Any]:
        # An even class if the coin is 1, an odd one if it is 0.
        labels = torch.as_tensor(~included).to(bare.labels.dtype)
        now = replace(task, source=replace(bare, labels=labels))
        # The data of a sampler belong to its target.
        return now.loop(level, None), now.data if splits else None

    inputs = np.hstack([inputs, np.ones((count, 1))])
    ways = _agents_ways(inputs, bare) if splits else _classes_ways(inputs, bare.classes)
    claim = replace(task, source=bare).run(level)
    return Planted(planted(make, asked.rounds), ways, claim, task.adjacency)


def _only(source: FederatedData, inputs: Array) -> FederatedData:
    """Return the data with only these records, shape (m, features), dealt to clients in turn.

    An attacker knows all other records and would subtract their part, so the data have none.
    """
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


def _classes_ways(inputs: Array, classes: int) -> Array:
    """Return the gradient at class 0 minus that at class 1, shape (m, d)."""
    ways = np.zeros((len(inputs), classes, inputs.shape[1]))
    ways[:, 0], ways[:, 1] = -inputs, inputs
    # The weights of all classes come first, then the intercepts: see ``SoftmaxRegression``.
    return np.hstack([ways[:, :, :-1].reshape(len(inputs), -1), ways[:, :, -1]])


def _agents_ways(inputs: Array, source: FederatedData) -> Array:
    """Return the gradient of an even class at the place of the canary's agent, shape (m, N d)."""
    ways = np.zeros((len(inputs), source.population, inputs.shape[1]))
    for agent, rows in enumerate(source.clients):
        ways[rows, agent] = -inputs[rows]
    return ways.reshape(len(inputs), -1)
