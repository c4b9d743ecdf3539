"""The part of a run that may be shared: a file with the accounted outputs, and no other data."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import refuse
from ..outputs import in_folder, whole_file, writable


def released(loop: Any, state: Any) -> dict[str, Tensor]:
    """Return the tensors of a state that its loop's account covers, by name.

    All are post-processing of the recorded releases and of public data:

    * averaging: the module's state dict, after the last release; ``load_state_dict`` accepts it;
    * a sampler: ``draws``, the kept positions, shape (chains, kept, d); before the first kept
      position, the last ``positions``, shape (chains, d);
    * splitting: ``models``, every agent's model after the last round, shape (agents, d). It
      excludes the auxiliary variables, which the observer ``final`` does not see. The mean of
      ``models`` is the model.

    Args:
        loop: the loop of the training.
        state: its state.

    Raises:
        ParameterError: a loop of another kind.
    """
    if hasattr(state, "draws"):
        found = _positions(state)
    elif hasattr(state, "models"):
        found = {"models": state.models}
    elif hasattr(loop, "flat") and hasattr(state, "parameters"):
        found = loop.flat.whole(state.parameters)
    else:
        way_out = "save only accounted values, with torch.save"
        refuse(
            "loop",
            type(loop).__name__,
            "be a loop of fedprivacy.training with its own state",
            way_out,
        )
    # Copied to separate memory: torch saves the whole storage of a view.
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def _positions(state: Any) -> dict[str, Tensor]:
    there = torch.isfinite(state.draws).all(-1).all(0)
    kept = {"draws": state.draws[:, there]}
    return kept if bool(there.any()) else {"positions": state.positions}


def save_model(path: str | Path, loop: Any, state: Any) -> Path:
    """Write ``released`` to a file that ``torch.load(path, weights_only=True)`` reads.

    This is the file to share. A checkpoint must not be shared: it holds the data that a run needs
    to resume.

    Args:
        path: file to write; one that begins like a ledger is never replaced.
        loop: the loop of the training.
        state: its state.

    Returns:
        The path.

    Raises:
        ParameterError: a loop of another kind, or a path that cannot be used.
        OSError: it cannot be written; the error names the file.
    """
    target = checked_path(path)
    # To memory first: the file is either replaced completely or not changed.
    buffer = io.BytesIO()
    torch.save(released(loop, state), buffer)
    whole_file(target, buffer.getvalue())
    return target


def checked_path(path: str | Path) -> Path:
    """Return the path if a model may be written there.

    Raises:
        ParameterError: the folder does not exist, or the path is a folder, a ledger, a pipe or a
            device.
    """
    return writable(in_folder(output=path))[0]
