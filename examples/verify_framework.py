"""I use another framework, and check the noise and the clip norm of its own step.

``fp.verify`` replays Opacus's optimizer on neighbouring batches and tests the std and the law of
the noise, its independence of the data, and the clip norm. A correct mechanism fails with
probability 1e-3 at most. The second call states a noise that the step does not have.

A demonstration: a single step is tested, and no run is accounted.

Prints::

    no failure
    scale...
"""

from typing import Any

import torch
from opacus.optimizers import DPOptimizer

import fedprivacy as fp


def step(updates, generator):
    """One step of Opacus on gradients of records, shape (records, d), as a noisy sum."""
    weight = torch.nn.Parameter(torch.zeros(updates.shape[1]))
    noise = torch.Generator().manual_seed(int(generator.integers(2**32)))
    settings: dict[str, Any] = {
        "noise_multiplier": 1.5,
        "max_grad_norm": 2.0,
        "loss_reduction": "sum",
    }
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = DPOptimizer(sgd, expected_batch_size=None, generator=noise, **settings)
    weight.grad_sample = torch.from_numpy(updates).float()
    optimizer.step()
    return weight.grad.double().numpy()


for noise_std in (1.5 * 2.0, 2.0):
    found = fp.verify(step, clip_norm=2.0, noise_std=noise_std, pairs=60, draws=100)
    print(", ".join(found.failures) or "no failure")
