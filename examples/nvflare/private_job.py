"""The server's workflow and the clients' training; NVFlare copies this file into the job."""

from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor

import fedprivacy as fp
from fedprivacy.integrations.nvflare import PrivateAveraging

CLIENTS, CLIP_NORM = 4, 0.5
FIRST = {"weight": np.zeros(3, np.float32), "bias": np.zeros(1, np.float32)}


class Workflow(PrivateAveraging):
    """Private rounds of a linear model; NVFlare builds it from a folder and numbers."""

    def __init__(
        self, folder: str, rounds: int = 2, epsilon: float = 20.0, seed: int | None = None
    ):
        super().__init__(
            arrays=FIRST,
            perturbation=fp.Gaussian(noise_multiplier=1.0, clip_norm=CLIP_NORM, unit="client"),
            scheme=fp.FixedSize(3, population=CLIENTS),
            population=CLIENTS,
            ledger=Path(folder) / "run.jsonl",
            model=Path(folder) / "model.npz",
            budget=fp.Budget(epsilon, 1e-3, adjacency="zero_out"),
            rounds=rounds,
            seed=seed,
        )
        # NVFlare serialises a component by the attributes named like its arguments.
        self.folder, self.rounds, self.epsilon, self.seed = folder, rounds, epsilon, seed


def change(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Return the change by a least-squares step on a client's twenty records."""
    generator = np.random.default_rng(int(name.removeprefix("site-")))
    points = generator.normal(size=(20, 3))
    wrong = points @ (arrays["weight"] - [1.0, -1.0, 0.5]) + arrays["bias"] - 0.3
    steps = {"weight": points.T @ wrong / 20, "bias": wrong.mean(keepdims=True)}
    return {key: (-0.3 * step).astype(np.float32) for key, step in steps.items()}


class Train(Executor):
    """A client: an ordinary executor that sends its change of the weights."""

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        arrays = from_shareable(shareable).data
        update = change(arrays, fl_ctx.get_identity_name())
        return DXO(DataKind.WEIGHT_DIFF, data=update).to_shareable()
