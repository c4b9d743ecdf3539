"""What of a run may be handed over: a file that holds what was accounted, and nothing else."""

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

    All are post-processing of the recorded releases and of what is public:

    * averaging: the module's state dict, after the last release; ``load_state_dict`` takes it;
    * a sampler: ``draws``, the positions that were kept, shape (chains, kept, d); before the first
      of them the last ``positions``, shape (chains, d);
    * splitting: ``models``, every agent's after the last round, shape (agents, d), and no
      auxiliary variable, which the observer ``final`` does not see. Their mean is the model.

    Args:
        loop: what was trained with.
        state: where it stands.

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
        way_out = "write what its account covers with torch.save"
        refuse("loop", type(loop).__name__, "be one of fedprivacy's own", way_out)
    # In memory of their own: torch saves the whole storage that a view is of.
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def _positions(state: Any) -> dict[str, Tensor]:
    there = torch.isfinite(state.draws).all(-1).all(0)
    kept = {"draws": state.draws[:, there]}
    return kept if bool(there.any()) else {"positions": state.positions}


def save_model(path: str | Path, loop: Any, state: Any) -> Path:
    """Write ``released`` to a file that ``torch.load(path, weights_only=True)`` reads.

    It is the file to hand over. A checkpoint is not: it holds what a run needs to go on.

    Args:
        path: file to write; one that begins like a ledger is never replaced.
        loop: what was trained with.
        state: where it stands.

    Returns:
        The path.

    Raises:
        ParameterError: a loop of another kind, or a path that cannot be used.
        OSError: it cannot be written; the error names the file.
    """
    target = checked_path(path)
    # To memory first: the file is replaced by all of it, or stays.
    buffer = io.BytesIO()
    torch.save(released(loop, state), buffer)
    whole_file(target, buffer.getvalue())
    return target


def checked_path(path: str | Path) -> Path:
    """Return where a model may be written.

    Raises:
        ParameterError: no folder there, a folder itself, a ledger, a pipe or a device.
    """
    return writable(in_folder(output=path))[0]
