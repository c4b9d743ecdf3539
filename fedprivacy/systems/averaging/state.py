"""Where a run of federated averaging stands."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands.

    Args:
        round: how many rounds were run, aborted ones included.
        parameters: flat vector, shape (d,).
        learning_rate: local learning rate of the next round.
    """

    round: int
    parameters: Tensor
    learning_rate: float


@dataclass(frozen=True, eq=False)
class AdaptiveState(State):
    """Where a run with an adaptive clip norm stands.

    Args:
        clip_norm: of the next round.
    """

    clip_norm: float


@dataclass(frozen=True, eq=False)
class CorrelatedState(State):
    """Where a run with correlated noise stands. Secret: so is any checkpoint of it.

    The next row of the factor is ``round``: rows that were lost in a crash count as rounds.

    Args:
        memory: what the next rows of the noise depend on, shape (slots, d), double precision.
        errors: bounds on the norms of its rounding errors, shape (slots,).
        drift: the stream's; see ``mechanisms.streams.NoiseMemory``.
        last: the round in which each client was drawn last, -1 for never, shape (clients,).
        times: how often each was drawn, shape (clients,).
        velocity: the server's momentum, shape (d,).
    """

    memory: Tensor
    errors: Tensor
    drift: float
    last: Tensor
    times: Tensor
    velocity: Tensor
