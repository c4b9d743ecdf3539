"""Where clipping and noise happen in each loop: a round is run, and its calls become a diagram."""

from __future__ import annotations

import html
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

import fedprivacy as fp

CLIENTS, STEPS = 7, 3
"""Of a traced round. They differ, so a call that is repeated seven times is one for each client."""
EACH = {CLIENTS: "for each client", STEPS: "for each local step"}


class Mark(NamedTuple):
    """What a call does: its words, its kind (a class of site.css), and the observers who see it."""

    words: str
    kind: str
    seen: str = ""


RELEASE = Mark("new model released", "release", "server, aggregate; final: the last one")
CALLS = {
    "fedprivacy.ledger.ledger:Ledger.intent": Mark("intent on disk", "server"),
    "fedprivacy.sampling.poisson:Poisson.draw": Mark("cohort drawn", "server", "server"),
    "fedprivacy.sampling.everyone:Everyone.draw": Mark("cohort drawn", "server", "server"),
    "fedprivacy.sampling.poisson:Poisson.among_free": Mark("cohort drawn", "server", "server"),
    "fedprivacy.systems.fed_plt.loop:FederatedSplitting._draw": Mark(
        "agents drawn", "server", "server"
    ),
    "fedprivacy.systems.averaging.clients:trained": Mark("local training", "client"),
    "fedprivacy.mechanisms.gaussian:Gaussian.contribution": Mark("update clipped", "clip"),
    "fedprivacy.mechanisms.sparsified:SparsifiedPerturbation.contribution": Mark(
        "update sparsified and clipped", "clip"
    ),
    "fedprivacy.mechanisms.correlated:CorrelatedNoise.contribution": Mark("update clipped", "clip"),
    "fedprivacy.systems.averaging.collect:Total.add": Mark("added to the sum", "upload"),
    "fedprivacy.systems.averaging.collect:Collected.noisy": Mark("noise on the sum", "noise"),
    "fedprivacy.systems.averaging.rows:noisy": Mark("correlated noise on the sum", "noise"),
    "fedprivacy.training.likelihoods:clip_factor": Mark("records' gradients clipped", "clip"),
    "fedprivacy.systems.fed_plt.agents:LinearLoss.gradient": Mark(
        "records' gradients bounded", "clip"
    ),
    "fedprivacy.mechanisms.rounded:noisy_scaled": Mark("noise on the step", "noise"),
    "fedprivacy.training.posterior:RecordsLocal.finish": Mark("positions sent", "upload"),
    "fedprivacy.systems.projected.hidden:HiddenRun.projected": Mark(
        "projected on the ball", "client"
    ),
    "fedprivacy.ledger.ledger:Ledger.done": Mark("done on disk", "server"),
}
"""Module and name of each call that a diagram shows. A name that is gone ends the build."""

ENDS = {"fedprivacy.systems.fed_plt.solvers:LocalProblem.solve": Mark("models sent", "upload")}
"""Calls that count when they end."""


@contextmanager
def traced(seen: list[Mark]) -> Iterator[None]:
    """Append a mark for each call of ``CALLS``; a mark inside an equal one counts once."""
    marks: dict[tuple[CodeType, str], Mark] = {
        (pkgutil.resolve_name(name).__code__, event): mark
        for event, calls in (("call", CALLS), ("return", ENDS))
        for name, mark in calls.items()
    }

    def hook(frame: FrameType, event: str, _: object) -> None:
        mark = marks.get((frame.f_code, event))
        if mark is not None and seen[-1:] != [mark]:
            seen.append(mark)

    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(None)


def folded(steps: list[Any]) -> list[Any]:
    """Return steps in which neighbouring equal blocks are one block with a count."""
    for width in range(1, 5):
        for at in range(len(steps) - width):
            block, count = steps[at : at + width], 1
            while steps[at + count * width : at + (count + 1) * width] == block:
                count += 1
            if count > 1:
                inner = (count, tuple(block))
                return folded([*steps[:at], inner, *steps[at + count * width :]])
    return steps


def trace(loop: Any, data: Any, **facts: Any) -> list[Any]:
    """Return the calls of a round in their order, repetitions folded."""
    seen: list[Mark] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        fp.Ledger.create(Path(folder) / "run.ledger", **facts) as ledger,
        traced(seen),
    ):
        loop.step(loop.init(), data, ledger=ledger, on_release=lambda _: seen.append(RELEASE))
    return folded(seen)


def loops() -> dict[str, Callable[[], list[Any]]]:
    """Return a traced round of every loop, by name."""
    import torch

    from fedprivacy import training as fpt

    draw = np.random.default_rng(0)
    features = draw.normal(size=(4 * CLIENTS, 3)).astype(np.float32)
    labels = draw.integers(0, 2, 4 * CLIENTS)
    parts = np.split(np.arange(4 * CLIENTS), CLIENTS)
    data = fpt.FederatedData(
        features=torch.from_numpy(features),
        labels=torch.from_numpy(labels),
        clients=tuple(parts),
        num_classes=2,
    )
    usual: dict[str, Any] = {"model": fpt.logistic(3, 2), "local_steps": STEPS}
    usual |= {"scheme": fp.Everyone()}
    step = fp.Gaussian(noise_multiplier=1.0, unit="client")
    client = {"unit": "client", "adjacency": "zero_out"}
    record = {"unit": "record", "adjacency": "replace_one"}
    sparse = fp.SparsifiedPerturbation(
        noise_multiplier=1.0,
        clip_norm=1.0,
        kept=4,
        dimension=8,
        cohort=CLIENTS,
        sparsifier="rand_k",
    )
    tied = fp.CorrelatedNoise(
        factor=fp.factors.BufferedToeplitz(2),
        noise_multiplier=1.0,
        rounds=4,
        participation=fp.MinimumSeparation(1),
        unit="client",
    )
    posterior = fpt.Posterior(model=fpt.SoftmaxRegression(3, 2), data=data, clip_norm=1.0)
    agents = [(features[rows], 2.0 * labels[rows] - 1.0) for rows in parts]
    each = fpt.AgentData.of(agents)
    solver = fpt.LocalSolver(method="noisy", noise_scale=0.5, steps=STEPS)
    logistic = fpt.Logistic(regularisation=0.5, feature_bound=2.0)
    splitting = fpt.FederatedSplitting.on(each, loss=logistic, solver=solver)
    descent = fpt.ProjectedDescent(
        loss=fpt.Logistic(feature_bound=1.0),
        records=4 * CLIENTS,
        dimension=3,
        steps=STEPS,
        step_size=0.5,
        noise_std=0.5,
        radius=5.0,
    )
    whole = fpt.AgentData.of([(features, 2.0 * labels - 1.0)])
    together = fpt.ProjectedAveraging(
        loss=fpt.Logistic(feature_bound=1.0),
        clients=CLIENTS,
        records=4 * CLIENTS,
        dimension=3,
        rounds=2,
        local_steps=STEPS,
        learning_rate=0.5,
        noise_std=0.5,
        radius=5.0,
        cohorts=fp.Poisson(1.0),
        denominator=CLIENTS,
    )
    langevin = fpt.LangevinSampling(target=posterior, step_size=1e-3, local_steps=STEPS)
    hamiltonian = fpt.HamiltonianSampling(
        target=posterior, step_size=1e-2, gradient_noise_multiplier=1.0, leapfrog_steps=3
    )
    averaging = fpt.FederatedAveraging
    return {
        "DP-FedAvg": lambda: trace(averaging(perturbation=step, **usual), data, **client),
        "Fed-SMP": lambda: trace(averaging(perturbation=sparse, **usual), data, **client),
        "DP-FTRL": lambda: trace(averaging(perturbation=tied, **usual), data, plan=tied, **client),
        "SCAFFOLD": lambda: trace(fpt.Scaffold(perturbation=step, **usual), data, **client),
        "FA-LD": lambda: trace(langevin, None, **record),
        "FA-HMC": lambda: trace(hamiltonian, None, **record),
        "Fed-PLT": lambda: trace(splitting, each, **record),
        "ProjectedAveraging": lambda: trace(together, each, **client),
        "ProjectedDescent": lambda: trace(descent, whole, **record),
    }


def flat(steps: list[Any]) -> Iterator[Mark]:
    """Yield the marks of steps without their repetition."""
    for step in steps:
        yield from [step] if isinstance(step, Mark) else flat(list(step[1]))


def verdict(steps: list[Any]) -> str:
    """Return what the order says of a single upload."""
    kinds = [mark.kind for mark in flat(steps)]
    if "upload" not in kinds:
        return "One holder has all records, and sends nothing before the release."
    if kinds.index("upload") < kinds.index("noise"):
        return "Noise comes after the sum: uploads need secure aggregation, or a trusted server."
    return "Noise comes before the upload: uploads need no trusted server."


def drawn(steps: tuple[Any, ...] | list[Any]) -> str:
    """Return steps as list items, repeated ones inside a list of their own."""
    items = []
    for step in steps:
        if isinstance(step, Mark):
            seen = f"<small>seen by {step.seen}</small>" if step.seen else ""
            items.append(f'<li class="{step.kind}">{html.escape(step.words)}{seen}</li>')
        else:
            count, inner = step
            often = EACH.get(count, f"{count} times")
            items.append(f'<li class="repeated"><span>{often}</span><ol>{drawn(inner)}</ol></li>')
    return "".join(items)


def write(folder: Path) -> None:
    """Write the diagrams as one file of HTML."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, run in loops().items():
        steps = run()
        parts.append(f"<h4>{name}</h4><ol>{drawn(steps)}</ol><p>{verdict(steps)}</p>")
    target, text = folder / "flows.html", f'<div class="flows">{"".join(parts)}</div>\n'
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")
