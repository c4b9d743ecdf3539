"""Local training: mini-batch SGD on flat vectors of parameters, a few clients at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import integer, non_negative, positive, refuse

Indices = NDArray[np.int64]
CLIENTS_AT_ONCE = 64
WORKSPACE = 2**20
"""Parameters held for clients at work: a larger model has one client at work at a time."""


@dataclass(frozen=True)
class Schedule:
    """Which records the clients at work use in each step; padded where clients differ.

    Args:
        rows: row numbers in the data set, shape (steps, clients, width).
        weights: one over the batch's size, 0 on padding; same shape.
        active: 1 while a client has steps left, shape (steps, clients, 1).
    """

    rows: Tensor
    weights: Tensor
    active: Tensor


@dataclass(frozen=True, kw_only=True)
class LocalSGD:
    """What a client does with its data in one round.

    Args:
        steps: number of mini-batch steps; either this or ``epochs``.
        epochs: number of passes over the client's records; either this or ``steps``.
        batch_size: records in a mini-batch; a client with fewer uses all of its records.
        momentum: of the heavy ball, starting from rest in every round; in [0, 1).

    Raises:
        ParameterError: a value out of its range, or not exactly one of ``steps`` and ``epochs``.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 32
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            refuse(
                "local_steps, local_epochs",
                (self.steps, self.epochs),
                "name exactly one of the two",
                "leave the other out",
            )
        if self.steps is not None:
            integer(1, local_steps=self.steps)
        if self.epochs is not None:
            integer(1, local_epochs=self.epochs)
        integer(1, batch_size=self.batch_size)
        if non_negative(momentum=self.momentum) >= 1.0:
            refuse("momentum", self.momentum, "be below 1")

    def batches(self, records: int, generator: np.random.Generator) -> list[Indices]:
        """Return the record numbers of each step's mini-batch.

        The records are shuffled anew before every pass; the last batch of a pass may be smaller.
        """
        per_pass = math.ceil(records / self.batch_size)
        steps = self.steps or (self.epochs or 0) * per_pass
        if per_pass == 1:
            return [np.arange(records)] * steps
        cuts = range(self.batch_size, records, self.batch_size)
        plan: list[Indices] = []
        while len(plan) < steps:
            plan += np.split(generator.permutation(records), cuts)
        return plan[:steps]

    def schedule(self, clients: Sequence[Indices], generator: np.random.Generator) -> Schedule:
        """Return what several clients do side by side.

        Args:
            clients: row numbers of each client, shape (records,), none empty.
            generator: for the order of the records.
        """
        plans = [self.batches(len(own), generator) for own in clients]
        width = max(len(plan[0]) for plan in plans)
        shape = (max(map(len, plans)), len(plans), width)
        rows = np.broadcast_to(np.array([own[0] for own in clients])[:, None], shape).copy()
        weights = np.zeros(shape, dtype=np.float32)
        for client, (own, plan) in enumerate(zip(clients, plans, strict=True)):
            for step, batch in enumerate(plan):
                rows[step, client, : len(batch)] = own[batch]
                weights[step, client, : len(batch)] = 1.0 / len(batch)
        active = (weights.sum(2, keepdims=True) > 0).astype(np.float32)
        return Schedule(*map(torch.from_numpy, (rows, weights, active)))


class FlatModel:
    """A module as a function of one flat vector of parameters.

    Args:
        module: any module without buffers.
        device: where it computes.

    Raises:
        ParameterError: the module has buffers or no parameters.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            refuse(
                "model",
                buffers,
                "have no buffers",
                "they learn from private data outside the clipped update; use GroupNorm",
            )
        self.module = module.to(device)
        self.device = device
        self.shapes = {
            name: parameter.shape
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad
        }
        if not self.shapes:
            refuse("model", type(module).__name__, "have parameters to train")
        self.dimension = sum(shape.numel() for shape in self.shapes.values())
        self.clients_at_once = min(CLIENTS_AT_ONCE, max(1, WORKSPACE // self.dimension))

    def flatten(self) -> Tensor:
        """Return a copy of the module's parameters, shape (d,)."""
        named = dict(self.module.named_parameters())
        return torch.cat([named[name].detach().reshape(-1) for name in self.shapes])

    def logits(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Return the module's output for inputs of shape (records, ...), shape (records, classes).

        Args:
            parameters: flat, shape (d,).
            features: the inputs.
        """
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), torch.split(parameters, sizes), strict=True)
        named = {name: part.view(shape) for (name, shape), part in parts}
        result = torch.func.functional_call(self.module, named, (features,))
        return torch.as_tensor(result)

    def gradients(
        self, parameters: Tensor, features: Tensor, labels: Tensor, weights: Tensor
    ) -> Tensor:
        """Return each client's gradient of its weighted cross-entropy, shape (clients, d).

        Args:
            parameters: of each client, shape (clients, d).
            features: inputs, shape (clients, width, ...).
            labels: shape (clients, width).
            weights: shape (clients, width).
        """
        at = parameters.detach().requires_grad_()
        if len(at) == 1:
            logits = self.logits(at[0], features[0])
        else:
            every = torch.vmap(self.logits, randomness="different")
            logits = every(at, features).flatten(0, 1)
        losses = functional.cross_entropy(logits, labels.flatten(), reduction="none")
        return torch.autograd.grad(losses @ weights.flatten(), at)[0]

    def updates(
        self,
        start: Tensor,
        records: tuple[Tensor, Tensor],
        schedule: Schedule,
        learning_rate: float,
        momentum: float = 0.0,
    ) -> Tensor:
        """Train clients from the same start and return ``start - trained``, shape (clients, d).

        Args:
            start: the round's parameters, shape (d,).
            records: (inputs, labels) of the whole data set.
            schedule: which rows each client uses in each step.
            learning_rate: of this round.
            momentum: of the heavy ball, from rest.
        """
        self.module.train()
        trained = start.repeat(schedule.rows.shape[1], 1)
        velocity = torch.zeros_like(trained) if momentum else None
        weights, active = schedule.weights.to(self.device), schedule.active.to(self.device)
        for step, rows in enumerate(schedule.rows.to(records[1].device)):
            inputs, labels = (part[rows].to(self.device) for part in records)
            direction = self.gradients(trained, inputs, labels, weights[step])
            if velocity is not None:
                direction = velocity.mul_(momentum).add_(direction)
            trained.addcmul_(direction, active[step], value=-learning_rate)
        return start - trained

    @torch.no_grad()
    def evaluate(self, parameters: Tensor, features: Tensor, labels: Tensor) -> tuple[float, float]:
        """Return (accuracy, mean cross-entropy) of flat ``parameters`` on a data set."""
        self.module.eval()
        right, loss = 0.0, 0.0
        for part, truth in zip(torch.split(features, 1024), torch.split(labels, 1024), strict=True):
            logits = self.logits(parameters, part)
            right += float((logits.argmax(1) == truth).sum())
            loss += float(functional.cross_entropy(logits, truth, reduction="sum"))
        return right / len(labels), loss / len(labels)


def checked_rates(
    learning_rate: object, learning_rate_decay: object, server_learning_rate: object
) -> None:
    """Raise ParameterError unless the rates are above 0 and the decay is at most 1."""
    positive(learning_rate=learning_rate)
    positive(server_learning_rate=server_learning_rate)
    if positive(learning_rate_decay=learning_rate_decay) > 1.0:
        refuse("learning_rate_decay", learning_rate_decay, "be at most 1", "1 keeps the rate")
