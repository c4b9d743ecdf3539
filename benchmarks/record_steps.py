"""Time and memory of a private step on records, here and in Opacus, for a LoRA transformer.

    pip install opacus
    python benchmarks/record_steps.py [--width 256] [--batch 64] [--steps 20] [--write]

The model has a frozen base of random weights and two layers of attention with adapters of rank 4;
only the adapters and the head are trained. Both programs clip the gradient of each record, sum, add
Gaussian noise and move. Opacus keeps per-record gradients by its hooks. Here they come from
``torch.func``. ``Gaussian.contribution`` clips onto the grid of the noise, and ``release`` draws
noise whose rounding is exact. Each program is a separate process with one thread. They take turns,
three times. "step" is the median processor time of a step in seconds. "memory" is the largest
resident memory in MB beyond that after a step on two records. Linux only.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

RESULTS = Path(__file__).resolve().parent / "results" / "record_steps.json"
LENGTH, CLASSES, RANK, TURNS = 16, 10, 4, 3


class Attention(nn.Module):
    """A frozen layer of attention with an adapter on its three inputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, 3 * width).requires_grad_(False)
        self.down = nn.Linear(width, RANK, bias=False)
        self.up = nn.Linear(RANK, 3 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs plus what they attend to, shape (..., LENGTH, width)."""
        parts = (self.base(x) + self.up(self.down(x))).chunk(3, -1)
        return x + scaled_dot_product_attention(*parts)


class Transformer(nn.Module):
    """Two layers, and a head on the mean over the positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(Attention(width), Attention(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores, shape (..., CLASSES)."""
        scores: Tensor = self.head(self.layers(x).relu().mean(-2))
        return scores


def ours(model: nn.Module, batch: int) -> Callable[[Tensor, Tensor], None]:
    """Return a step by ``torch.func`` and our mechanism."""
    import fedprivacy as fp

    mechanism = fp.Gaussian(noise_multiplier=1.0, unit="record")
    trained = {name: part for name, part in model.named_parameters() if part.requires_grad}
    weights = {name: part.detach().clone() for name, part in trained.items()}

    def loss(weights: dict[str, Tensor], inputs: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(model, weights, (inputs[None],))
        return cross_entropy(scores, label[None])

    def step(inputs: Tensor, labels: Tensor) -> None:
        each = vmap(grad(loss), (None, 0, 0))(weights, inputs, labels)
        rows = torch.cat([part.flatten(1) for part in each.values()], 1)
        total = torch.zeros(rows.shape[1], dtype=torch.float64)
        for row in rows:
            total += mechanism.contribution(row)
        moves = (mechanism.release(total) / batch).float()
        sizes = [part.numel() for part in weights.values()]
        for part, move in zip(weights.values(), moves.split(sizes), strict=True):
            part -= 0.1 * move.view_as(part)

    return step


def theirs(model: nn.Module, batch: int) -> Callable[[Tensor, Tensor], None]:
    """Return a step by Opacus's hooks and optimizer."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model)
    trained = [part for part in wrapped.parameters() if part.requires_grad]
    optimiser = DPOptimizer(
        torch.optim.SGD(trained, lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=batch,
    )

    def step(inputs: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad()
        cross_entropy(wrapped(inputs), labels).backward()
        optimiser.step()

    return step


PROGRAMS = {"here": ours, "opacus": theirs}


def resident() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measured(program: str, width: int, batch: int, steps: int) -> dict[str, float]:
    """Return seconds of a step and MB, of one program in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Transformer(width)
    step = PROGRAMS[program](model, batch)
    inputs, labels = torch.randn(batch, LENGTH, width), torch.randint(0, CLASSES, (batch,))
    # The first step imports what both programs load late.
    step(inputs[:2], labels[:2])
    before, seconds = resident(), []
    for _ in range(steps):
        start = time.process_time()
        step(inputs, labels)
        seconds.append(time.process_time() - start)
    trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
    return {
        "step": statistics.median(seconds),
        "memory": resident() - before,
        "trained": trained,
    }


def main() -> None:
    """Measure both programs in turns, and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write results/record_steps.json")
    parser.add_argument("--child", choices=list(PROGRAMS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    facts = {"width": given.width, "batch": given.batch, "steps": given.steps}
    if given.child:
        print(json.dumps(measured(given.child, **facts)))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in PROGRAMS}
    options = [word for name, value in facts.items() for word in (f"--{name}", str(value))]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for _ in range(TURNS):
        for name in PROGRAMS:
            command = [sys.executable, __file__, "--child", name, *options]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=alone)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    table = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    for key in ("step", "memory"):
        here, opacus = table["here"][key], table["opacus"][key]
        print(f"{key}: here {here:.3g}, opacus {opacus:.3g}, ratio {here / opacus:.2f}")
    if given.write:
        RESULTS.write_text(
            json.dumps({**facts, "torch": torch.__version__, **table}, indent=1) + "\n"
        )
        print(RESULTS.name)


if __name__ == "__main__":
    main()
