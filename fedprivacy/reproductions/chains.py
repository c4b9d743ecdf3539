"""Chains of FA-LD and FA-HMC on images: running mean predictions and their scores.

The model is multinomial logistic regression, or a network with two hidden layers. The prior is
flat, and ten clients have equally many images. Runs have fixed seeds and are therefore not private.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ..errors import Diverged, refuse, require
from ..outputs import whole_file
from ..systems.fa_hmc.loop import HamiltonianSampling
from ..systems.fa_ld.loop import LangevinSampling
from ..training.chains import ChainState
from ..training.checkpoint import resumed, train
from ..training.data import FederatedData, federate
from ..training.datasets import load_named
from ..training.likelihoods import SoftmaxRegression, classifier
from ..training.models import mlp
from ..training.posterior import Posterior
from ..training.predictions import score
from .base import CellRun, Values

Chain = LangevinSampling | HamiltonianSampling
CLIENTS = 10
SCORES = ("accuracy", "brier", "ece", "nll")
KINDS = ("all", "warm")
"""Means of all draws, and of those after the warm-up."""


def images(name: str, data_dir: str | Path | None) -> FederatedData:
    """Return ten clients with equally many images, 6,000 of Fashion-MNIST.

    Args:
        name: a name of ``load_named``, or "cifar2" for the first two classes of CIFAR-10.
        data_dir: folder of the files.
    """
    if name == "cifar2":
        return first_classes(load_named("cifar10", data_dir, clients=CLIENTS), 2)
    return load_named(name, data_dir, clients=CLIENTS)


def first_classes(data: FederatedData, count: int) -> FederatedData:
    """Return the records of the first classes, shared evenly."""
    fit, test = data.labels < count, data.test_labels < count
    return federate(
        f"{data.name}, {count} classes",
        (data.features[fit], data.labels[fit]),
        (data.test_features[test], data.test_labels[test]),
        clients=data.population,
        num_classes=count,
    )


def regression(data: FederatedData, clip_norm: float | None = None) -> Posterior:
    """Return the posterior of a multinomial logistic regression with a flat prior."""
    model = softmax(data)
    return Posterior(model=model, data=data, prior_precision=0.0, clip_norm=clip_norm)


def softmax(data: FederatedData) -> SoftmaxRegression:
    """Return the model of multinomial logistic regression for these images."""
    return SoftmaxRegression(data.features[0].numel(), data.classes)


def network(
    data: FederatedData, hidden: tuple[int, ...], clip_norm: float | None = None, seed: int = 0
) -> tuple[Posterior, dict[str, Any]]:
    """Return a network's posterior and the options that start chains at its first parameters."""
    torch.manual_seed(seed)
    shape = (data.features[0].numel(), data.classes)
    model: Any = classifier(mlp(*shape, hidden=hidden))
    posterior = Posterior(model=model, data=data, prior_precision=0.0, clip_norm=clip_norm)
    return posterior, {"start": model.flat.flatten()}


def share_of(posterior: Posterior, batch: int) -> float:
    """Return the share of a client's records in a batch.

    Raises:
        ParameterError: every client has fewer records.
    """
    most = max(map(len, posterior.data.clients))
    rule = f"have a client of at least {batch} records"
    require(batch <= most, "data", f"{most} at most", rule, "a batch is as many of one client's")
    return batch / most


def langevin(
    posterior: Posterior,
    *,
    local_steps: int,
    step_size: float,
    batch: int,
    **options: Any,
) -> LangevinSampling:
    """Return FA-LD's loop with this number of records in a batch."""
    return LangevinSampling(
        target=posterior,
        step_size=step_size,
        local_steps=local_steps,
        batch_fraction=share_of(posterior, batch),
        **{"seed": 0, **options},
    )


def hamiltonian(
    posterior: Posterior,
    *,
    leapfrog_steps: int,
    iterations: int,
    step_size: float,
    batch: int,
    **options: Any,
) -> HamiltonianSampling:
    """Return FA-HMC's loop with this number of records in a batch."""
    return HamiltonianSampling(
        target=posterior,
        step_size=step_size,
        leapfrog_steps=leapfrog_steps,
        iterations=iterations,
        batch_fraction=share_of(posterior, batch),
        **{"seed": 0, **options},
    )


def scores(probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the four scores, rounded."""
    return {k: round(v, 5) for k, v in asdict(score(probabilities, labels)).items()}


@dataclass
class Running:
    """The running mean predictions of a chain, with and without its warm-up.

    Args:
        every: rounds between two draws.
        warmup: rounds of the warm-up.
        sums: sums of the draws' predictions, by kind.
        counts: numbers of draws, by kind.
        rows: the scores of every draw.
        round: round of the last look.
    """

    every: int
    warmup: int
    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    rows: list[dict[str, Any]] = field(default_factory=list)
    round: int = 0

    def look(self, loop: Chain, state: ChainState) -> bool:
        """Add a state; return whether it is a draw."""
        if state.round <= self.round:
            return False
        self.round = state.round
        if state.round % self.every:
            return False
        assert isinstance(loop.target, Posterior)
        data, model = loop.target.data, cast(Any, loop.target.model)
        with torch.no_grad():
            inputs = data.test_features.flatten(1)
            now = model.logits(state.positions[0], inputs).softmax(-1)
        row: dict[str, Any] = {"round": state.round}
        for name in KINDS if state.round > self.warmup else KINDS[:1]:
            self.sums[name] = self.sums[name] + now if name in self.sums else now
            self.counts[name] += 1
            row[name] = scores(self.sums[name] / self.counts[name], data.test_labels)
        self.rows.append(row)
        return True

    def save(self, path: Path) -> None:
        """Write it to a file."""
        facts = {"round": self.round, "counts": self.counts, "rows": self.rows}
        buffer = io.BytesIO()
        torch.save({"facts": json.dumps(facts), "sums": self.sums}, buffer)
        whole_file(path, buffer.getvalue())

    def restore(self, path: Path) -> None:
        """Continue from a file; no code in it is executed.

        Raises:
            ParameterError: it is damaged.
        """
        try:
            content = torch.load(path, weights_only=True)
            facts, self.sums = json.loads(content["facts"]), dict(content["sums"])
            self.round, self.counts, self.rows = (
                facts[name] for name in ("round", "counts", "rows")
            )
        except Exception as error:  # a damaged file may raise any error in its reader
            way_out = "move it away, or name another --folder"
            refuse("progress", str(path), f"be readable ({type(error).__name__})", way_out)


def curve(
    loop: Chain,
    rounds: int,
    every: int,
    warmup: int = 0,
    *,
    kept: Path | None = None,
    on_round: Callable[[int], None] = lambda number: None,
) -> tuple[list[dict[str, Any]], int]:
    """Return scores of a chain's running mean prediction, and the number of its rounds.

    Scores are with and without the warm-up, and None from the round of divergence on.

    Args:
        loop: the chain.
        rounds: number of rounds.
        every: rounds between two draws.
        warmup: rounds of the warm-up.
        kept: file of its progress, from which it continues; None for none.
        on_round: called with the number of rounds that are done.
    """
    running, checkpoint = Running(every, warmup), None
    if kept is not None:
        checkpoint = kept.with_name(f"{kept.name}.state")
        if checkpoint.exists() and kept.exists():
            running.restore(kept)
            # A run may be killed between a checkpoint and the look at its state.
            running.look(loop, resumed(loop, loop.target, checkpoint, None).state)
        else:
            checkpoint.unlink(missing_ok=True)
            running.save(kept)

    def look(state: ChainState, info: object) -> None:
        running.look(loop, state)
        if kept is not None:
            running.save(kept)
        on_round(state.round)

    try:
        train(loop, loop.target, rounds=rounds, checkpoint=checkpoint, on_round=look)
    except Diverged as error:
        running.rows.append({"round": None, "diverged": str(error)})
    return running.rows, running.round


# ---- cells


def loop_of(data: FederatedData, asked: dict[str, Any], seed: int) -> Chain:
    """Return the chain of a cell's settings."""
    plain: dict[str, Any] = {"step_size": asked["step_size"], "batch": asked["batch"], "seed": seed}
    if asked["hidden"]:
        posterior, start = network(data, tuple(asked["hidden"]), seed=seed)
    else:
        posterior, start = regression(data), {}
    if asked["method"] == "fa-ld":
        return langevin(
            posterior,
            local_steps=asked["local_steps"],
            temperature=asked["temperature"],
            **plain,
            **start,
        )
    shape = {name: asked[name] for name in ("leapfrog_steps", "iterations")}
    if asked["hidden"] and shape["leapfrog_steps"] == 1:
        # FA-LD with step eta^2 / 2.
        step = asked["step_size"] ** 2 / 2.0
        steps: dict[str, Any] = {"local_steps": shape["iterations"], "correlation": 1.0}
        return langevin(posterior, **steps, **{**plain, "step_size": step}, **start)
    return hamiltonian(posterior, correlation=1.0, **shape, **plain, **start)


def scored(job: CellRun) -> Values:
    """Return the scores of a chain's mean prediction after its last round."""
    asked = dict(job.cell.settings)
    data = images(job.data, job.data_dir)
    length = asked["quick_rounds"] if job.quick else asked["rounds"]
    # The seed 1 is that of the documentation's first chain, 0.
    loop = loop_of(data, asked, job.seed - 1 if job.seed else 2**31)
    warmup = length // 2
    rows, done = curve(
        loop,
        length,
        asked["every"],
        warmup,
        kept=job.place(asked["chain"]),
        on_round=lambda number: job.tick(number / length),
    )
    last = rows[-1].get(asked["kind"]) if rows else None
    found: Values = {name: None if last is None else last[name] for name in SCORES}
    return found | {"rounds": done}
