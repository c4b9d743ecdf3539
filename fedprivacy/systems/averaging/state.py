"""States of a run of federated averaging."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """State of a run.

    Args:
        round: number of rounds that were run, aborted ones included.
        parameters: flat vector, shape (d,).
        learning_rate: local learning rate of the next round.
    """

    round: int
    parameters: Tensor
    learning_rate: float


@dataclass(frozen=True, eq=False)
class AdaptiveState(State):
    """State of a run with an adaptive clip norm.

    Args:
        clip_norm: clip norm of the next round.
    """

    clip_norm: float


@dataclass(frozen=True, eq=False)
class CorrelatedState(State):
    """State of a run with correlated noise. It is secret, and so are its checkpoints.

    The next row of the factor is ``round``: rows that were lost in a crash count as rounds.

    Args:
        memory: inputs of the next rows of the noise, shape (slots, d), double precision.
        errors: bounds on the norms of its rounding errors, shape (slots,).
        drift: the stream's drift; see ``mechanisms.streams.NoiseMemory``.
        last: the round in which each client was drawn last, -1 for never, shape (clients,).
        times: number of draws of each client, shape (clients,).
        velocity: the server's momentum, shape (d,).
    """

    memory: Tensor
    errors: Tensor
    drift: float
    last: Tensor
    times: Tensor
    velocity: Tensor
