"""Two-sided FedAvg and SCAFFOLD: rounds and bytes to a target accuracy."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...errors import refuse, require
from ...outputs import whole_file
from ...sampling import Everyone, FixedSize, WithReplacement
from ...systems.averaging.loop import FederatedAveraging, State
from ...training.data import FederatedData
from ...training.datasets import load_named
from ...training.models import ModelFactory, cnn, logistic, mlp
from ...training.optimise import FlatModel, LocalSGD
from ..base import CellRun, Values
from .tables import PAPER_TARGET, QUICK_ROUNDS, ROUNDS, TARGETS, WORKERS, TwoSidedRun

NETWORKS: dict[str, ModelFactory] = {
    "logistic": logistic(784, 10),
    "2nn": mlp(784, 10, hidden=(200, 200)),
    "cnn": cnn(padded=False),
}
SAVED = 20.0
"""Seconds of work between two saves."""


def scheme_of(run: TwoSidedRun) -> FixedSize | WithReplacement | Everyone:
    """Return the scheme that draws the workers of a round."""
    if run.workers == WORKERS and run.strategy == 2:
        return Everyone()
    if run.strategy == 1:
        return WithReplacement(run.workers, population=WORKERS)
    return FixedSize(run.workers, population=WORKERS)


@cache
def divided(dataset: str, data_dir: str | Path | None, classes: int, seed: int) -> FederatedData:
    """Return the images among 100 workers, split evenly or by classes."""
    kinds = None if classes == 10 else classes
    return load_named(dataset, data_dir, clients=WORKERS, classes_per_client=kinds, seed=seed)


def target_of(model: str, dataset: str) -> float:
    """Return the accuracy that ends a run."""
    return PAPER_TARGET if dataset == "mnist" else TARGETS[model]


class Learner(Protocol):
    """A method that runs rounds; ``content`` is what it needs to continue."""

    upload_bytes: int

    def round(self, data: FederatedData) -> None:
        """Run one round."""

    def evaluate(self, data: FederatedData) -> tuple[float, float]:
        """Return (accuracy, loss) on the test set."""

    def content(self) -> dict[str, Any]:
        """Return tensors, numbers and texts."""

    def restore(self, content: dict[str, Any]) -> None:
        """Continue from a content."""


class AveragingLearner:
    """Generalised FedAvg, the library's loop; its start may be shifted."""

    def __init__(self, cell: TwoSidedRun, moved: float = 0.0) -> None:
        self.loop = FederatedAveraging(
            model=NETWORKS[cell.model],
            scheme=scheme_of(cell),
            local_epochs=cell.epochs,
            batch_size=cell.batch,
            learning_rate=cell.local_rate,
            server_learning_rate=cell.server_rate,
            seed=cell.seed,
        )
        start = self.loop.init()
        self.state = replace(start, parameters=start.parameters + moved)
        self.upload_bytes = 0

    def round(self, data: FederatedData) -> None:
        """Run one round."""
        self.state, info = self.loop.step(self.state, data)
        self.upload_bytes += info.payload_bytes or 0

    def evaluate(self, data: FederatedData) -> tuple[float, float]:
        """Return (accuracy, loss) on the test set."""
        return self.loop.evaluate(self.state, data)

    def content(self) -> dict[str, Any]:
        """Return what it needs to continue."""
        return {**vars(self.state), "upload_bytes": self.upload_bytes}

    def restore(self, content: dict[str, Any]) -> None:
        """Continue from a content."""
        names = ("round", "parameters", "learning_rate")
        self.state = State(**{name: content[name] for name in names})
        self.upload_bytes = content["upload_bytes"]


class ScaffoldLearner:
    """SCAFFOLD with its second choice of control variates (Karimireddy et al. 2020).

    A worker corrects every gradient by c - c_i and then sets c_i to c_i - c plus its update over
    (steps * local rate). It sends the update and the change of c_i, twice FedAvg's bytes, as the
    paper's table counts. ``fedprivacy.training.Scaffold``, which can be private, sends only the
    update.
    """

    def __init__(self, cell: TwoSidedRun, moved: float = 0.0) -> None:
        self.cell, self.scheme, self.upload_bytes = cell, scheme_of(cell), 0
        plain = AveragingLearner(cell, moved)
        self.flat: FlatModel = plain.loop.flat
        self.point: Tensor = plain.state.parameters
        self.common = torch.zeros_like(self.point)
        self.own = torch.zeros(WORKERS, len(self.point))
        self.plan = LocalSGD(epochs=cell.epochs, batch_size=cell.batch)
        self.generator = np.random.default_rng(cell.seed)

    def round(self, data: FederatedData) -> None:
        """Run one round."""
        cohort = self.scheme.draw(WORKERS, self.generator)
        moved, turned = torch.zeros_like(self.point), torch.zeros_like(self.point)
        for worker in map(int, cohort):
            update, change = self._worker(data, worker)
            moved += update
            turned += change
            self.own[worker] += change
            self.upload_bytes += 2 * 4 * len(self.point)
        self.point = self.point - self.cell.server_rate * moved / len(cohort)
        self.common += turned / WORKERS

    def _worker(self, data: FederatedData, worker: int) -> tuple[Tensor, Tensor]:
        """Return (start - end, change of the worker's control variate)."""
        rows = data.clients[worker]
        correction = self.common - self.own[worker]
        self.flat.load(self.point)
        parts = list(zip(self.flat.trained, self.flat.split(correction), strict=True))
        batches = self.plan.batches(len(rows), self.generator)
        for batch in batches:
            chosen = torch.from_numpy(rows[batch])
            outputs = self.flat.module(data.features[chosen])
            loss = torch.nn.functional.cross_entropy(outputs, data.labels[chosen])
            slopes = torch.autograd.grad(loss, self.flat.trained)
            with torch.no_grad():
                for (parameter, fix), slope in zip(parts, slopes, strict=True):
                    parameter.sub_(slope + fix, alpha=self.cell.local_rate)
        update = self.point - self.flat.flatten()
        return update, update / (len(batches) * self.cell.local_rate) - self.common

    def evaluate(self, data: FederatedData) -> tuple[float, float]:
        """Return (accuracy, loss) on the test set."""
        return self.flat.evaluate(self.point, data.test_features, data.test_labels)

    def content(self) -> dict[str, Any]:
        """Return what it needs to continue."""
        tensors = {"point": self.point, "common": self.common, "own": self.own}
        drawn = json.dumps(self.generator.bit_generator.state)
        return {**tensors, "drawn": drawn, "upload_bytes": self.upload_bytes}

    def restore(self, content: dict[str, Any]) -> None:
        """Continue from a content."""
        self.point, self.common, self.own = (content[name] for name in ("point", "common", "own"))
        self.generator.bit_generator.state = json.loads(content["drawn"])
        self.upload_bytes = content["upload_bytes"]


LEARNERS: dict[str, Callable[..., Learner]] = {
    "fedavg": AveragingLearner,
    "scaffold": ScaffoldLearner,
}


def run(
    cell: TwoSidedRun,
    data: FederatedData,
    target: float,
    most: int,
    *,
    moved: float = 0.0,
    kept: Path | None = None,
    on_round: Callable[[int], None] = lambda number: None,
) -> dict[str, Any]:
    """Run a cell until its target or ``most`` rounds and return the result.

    Args:
        cell: the run.
        data: the images among the workers.
        target: accuracy that ends it.
        most: number of rounds that ends it.
        moved: shift of the start, to measure the effect of rounding.
        kept: file of its progress, from which it continues; None for none.
        on_round: called with the number of rounds that are done.
    """
    learner = LEARNERS[cell.method](cell, moved)
    accuracy: list[float] = []
    loss: list[float] = []
    if kept is not None and kept.exists():
        content = _read(kept, cell)
        learner.restore(content)
        accuracy, loss = list(content["accuracy"]), list(content["loss"])
    began, saved = time.process_time(), time.monotonic()
    while len(accuracy) < most and (not loss or (accuracy[-1] < target and isfinite(loss[-1]))):
        learner.round(data)
        right, entropy = learner.evaluate(data)
        accuracy.append(round(right, 4))
        loss.append(round(entropy, 5))
        if kept is not None and time.monotonic() - saved > SAVED:
            saved = time.monotonic()
            _save(kept, cell, {**learner.content(), "accuracy": accuracy, "loss": loss})
        on_round(len(accuracy))
    return asdict(cell) | {
        "target": target,
        "rounds_to_target": len(accuracy) if accuracy[-1] >= target else None,
        "rounds_run": len(accuracy),
        "rounds_planned": cell.rounds,
        "diverged": False,
        "upload_bytes": learner.upload_bytes,
        "processor_seconds": round(time.process_time() - began, 1),
        "accuracy": accuracy,
        "test_loss": loss,
    }


def _save(path: Path, cell: TwoSidedRun, content: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save({"cell": json.dumps(asdict(cell)), **content}, buffer)
    whole_file(path, buffer.getvalue())


def _read(path: Path, cell: TwoSidedRun) -> dict[str, Any]:
    """Return the content of a file of progress; no code in it is executed.

    Raises:
        ParameterError: it is damaged, or of another cell.
    """
    way_out = "move it away, or name another --folder"
    try:
        content = torch.load(path, weights_only=True)
        known = json.loads(content["cell"])
    except Exception as error:  # a damaged file may raise any error in its reader
        refuse("progress", str(path), f"be readable ({type(error).__name__})", way_out)
    require(known == asdict(cell), "progress", str(path), "be of this cell", way_out)
    found: dict[str, Any] = content
    return found


def until_diverged(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the rounds after its parameters ceased to be finite."""
    finite = sum(1 for _ in takewhile(isfinite, result["test_loss"]))
    run = result["rounds_run"]
    if finite == len(result["test_loss"]):
        return {"diverged": False} | result
    return result | {
        "diverged": True,
        "rounds_run": finite + 1,
        "upload_bytes": result["upload_bytes"] * (finite + 1) // run,
        "accuracy": result["accuracy"][:finite],
        "test_loss": result["test_loss"][:finite],
    }


# ---- cells


def rounds_to_target(job: CellRun) -> Values:
    """Return the rounds to the target, None if it is not reached, and the upload."""
    asked = {**job.cell.settings, "seed": job.seed}
    most = QUICK_ROUNDS if job.quick else asked["rounds"]
    del asked["rounds"]
    cell = TwoSidedRun(**asked)
    data = divided(job.data, job.data_dir, cell.classes, job.seed)
    place = job.place(job.cell.name)
    found = until_diverged(
        run(
            cell,
            data,
            target_of(cell.model, job.data),
            most,
            kept=place.with_name(f"{place.name}.pt"),
            on_round=lambda number: job.tick(number / most),
        )
    )
    values: Values = {ROUNDS: found["rounds_to_target"], "rounds": found["rounds_run"]}
    best = max(found["accuracy"], default=None)
    values["best accuracy, per cent"] = None if best is None else 100.0 * best
    if found["diverged"]:
        values["round whose loss is not finite"] = found["rounds_run"]
    return values | {"upload of all workers, MB": found["upload_bytes"] / 1e6}
