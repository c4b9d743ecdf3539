"""I have a loop: it stays in plain PyTorch and checks the budget before every round.

Correct end to end. Five calls do it: ``budget.allows``, ``log.intent``, ``step.contribution``
(which clips), ``step.release`` (which draws the noise) and ``log.done``.

Prints::

    28 rounds, then the budget said no
    HOLDS: epsilon in [3.96..., 3.96...] at delta = 1e-05 (client level, ...)
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fedprivacy as fp

torch.set_num_threads(1)
clients = [(torch.randn(20, 8), torch.randint(0, 3, (20,))) for _ in range(100)]  # your data here
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

scheme, expected = fp.Poisson(0.2), 20
step = fp.Gaussian(noise_multiplier=1.5, clip_norm=0.5, unit="client")
round_, std = step.sampled(scheme), step.full_noise_std
budget = fp.Budget(epsilon=4.0, delta=1e-5, adjacency="add_remove")


def update(records, start):
    """Train one client from ``start``; return its change of the weights."""
    vector_to_parameters(start.clone(), model.parameters())  # views of the copy
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        cross_entropy(model(records[0]), records[1]).backward()
        optimiser.step()
    return parameters_to_vector(model.parameters()).detach() - start


weights = parameters_to_vector(model.parameters()).detach()
with fp.Ledger.create(
    "own.ledger", unit="client", adjacency="add_remove", claim=(4.0, 1e-5)
) as log:
    while budget.allows(round_):
        budget.spend(round_)
        number = log.intent(round_, clip_norm=0.5, noise_std=std)
        cohort = scheme.draw(len(clients), np.random.default_rng())
        total = torch.zeros_like(weights, dtype=torch.float64)  # sum in doubles
        for client in cohort:
            total += step.contribution(update(clients[client], weights))  # clipped to 0.5
        # An empty cohort also releases noise.
        weights = weights + (step.release(total) / expected).float()
        came = {"cohort": len(cohort), "arrived": len(cohort), "refused": 0}
        log.done(number, **came, noise_std=std, denominator=expected)
    log.close()

judged = fp.audit("own.ledger")
print(f"{judged.rounds} rounds, then the budget said no")
print(f"{judged.verdict}: {judged.bound}")
