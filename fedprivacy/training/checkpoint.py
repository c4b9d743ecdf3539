"""The loop over rounds, and the checkpoint it resumes from."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import ParameterError, integer, refuse
from ..ledger import Ledger
from .averaging import Dropout, FederatedAveraging, RoundBudget, RoundInfo, State
from .data import FederatedData

FORMAT = "fedprivacy checkpoint 1"


@dataclass(frozen=True)
class TrainingResult:
    """What a run ended with.

    Args:
        history: the rounds that this call ran, in order.
        state: after the last one.
    """

    history: tuple[RoundInfo, ...]
    state: State


def train(
    averaging: FederatedAveraging,
    data: FederatedData,
    *,
    rounds: int,
    ledger: Ledger | None = None,
    budget: RoundBudget | None = None,
    checkpoint: str | Path | None = None,
    dropout: Dropout | None = None,
    on_round: Callable[[State, RoundInfo], None] | None = None,
    on_release: Callable[[State], None] | None = None,
) -> TrainingResult:
    """Run rounds until ``rounds`` were run, resuming from ``checkpoint`` where it exists.

    A run killed at any moment resumes from its last checkpoint; a round that was released after
    that checkpoint is run again, and both count in the ledger.

    Args:
        averaging: what a round does.
        data: the clients and their records.
        rounds: total number of rounds, those before the checkpoint included.
        ledger: records every round; the caller closes it.
        budget: asked before every round. If nothing was spent from it yet, it is first charged
            with the rounds that the ledger says were spent.
        checkpoint: file for the state, written before the first round and after every round.
        dropout: see ``FederatedAveraging.step``.
        on_round: called after every round with the state and what the server saw.
        on_release: see ``FederatedAveraging.step``.

    Raises:
        BudgetExhausted: a round does not fit; the state before it is in the checkpoint.
        ParameterError: the checkpoint is damaged or belongs to another model.
    """
    total = integer(1, rounds=rounds)
    state = _start(averaging, checkpoint)
    _charge(averaging, ledger, budget)
    history: list[RoundInfo] = []
    while state.round < total:
        state, info = averaging.step(
            state, data, ledger=ledger, budget=budget, dropout=dropout, on_release=on_release
        )
        history.append(info)
        if checkpoint is not None:
            save(checkpoint, state)
        if on_round is not None:
            on_round(state, info)
    return TrainingResult(tuple(history), state)


def _start(averaging: FederatedAveraging, checkpoint: str | Path | None) -> State:
    """Return the checkpoint's state, or a fresh one that is then the checkpoint."""
    if checkpoint is None:
        return averaging.init()
    if Path(checkpoint).exists():
        return load(checkpoint, averaging.device)
    state = averaging.init()
    save(checkpoint, state)
    return state


def _charge(
    averaging: FederatedAveraging, ledger: Ledger | None, budget: RoundBudget | None
) -> None:
    """Charge a fresh budget with what the ledger says was spent."""
    if ledger is None or budget is None or averaging.round_mechanism is None:
        return
    if budget.spent() is None:
        for _ in range(ledger.spent_rounds):
            budget.spend(averaging.round_mechanism)


def save(path: str | Path, state: State) -> None:
    """Write a state so that a crash leaves either the old file or the new one.

    Args:
        path: file to replace; ``path + ".tmp"`` is used on the way.
        state: what to write.
    """
    target = Path(path)
    buffer = io.BytesIO()
    content = {
        "format": FORMAT,
        "round": state.round,
        "learning_rate": state.learning_rate,
        "parameters": state.parameters.cpu(),
    }
    torch.save(content, buffer)
    temporary = target.with_name(target.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: str | Path, device: str = "cpu") -> State:
    """Read a state; the file is untrusted, nothing in it is executed.

    Args:
        path: a file that ``save`` wrote.
        device: where to put the parameters.

    Raises:
        ParameterError: no such file, or it is not a checkpoint of this format.
    """
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ParameterError(
            f"checkpoint must be a readable fedprivacy checkpoint, got {str(path)!r} ({reason}); "
            "delete it to start again (what the ledger counted stays spent)"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        refuse("checkpoint", str(path), f"have format {FORMAT!r}", "pass another path")
    return _state(content, str(path))


def _state(content: dict[str, object], path: str) -> State:
    parameters, rate = content.get("parameters"), content.get("learning_rate")
    if not (isinstance(parameters, Tensor) and parameters.dim() == 1):
        refuse("checkpoint", path, "hold a flat vector of parameters", "pass another path")
    if not (isinstance(rate, float) and math.isfinite(rate)):
        refuse("checkpoint", path, "hold a finite learning rate", "pass another path")
    return State(integer(0, round=content.get("round")), parameters, rate)
