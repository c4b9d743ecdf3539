"""Opacus: train with it, check the budget before every step, and audit its own history.

Correct end to end: Opacus draws Poisson batches and protects records under add_remove, and its
history is audited. Needs ``pip install opacus``.

Prints::

    noise multiplier 1.1...
    60 steps; Opacus says epsilon 2.3...
    HOLDS: epsilon in [1.99..., 1.99...] at delta = 1e-05 (record level, ...), according to ...
"""

import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import fedprivacy as fp

warnings.simplefilter("ignore")
torch.set_num_threads(1)
records = TensorDataset(torch.randn(1000, 8), torch.randint(0, 3, (1000,)))
scheme = fp.Poisson(0.05)
found = fp.calibrate(
    lambda z: fp.Gaussian(noise_multiplier=z, unit="record").sampled(scheme) * 60,
    epsilon=2.0,
    delta=1e-5,
    adjacency="add_remove",
)
print(f"noise multiplier {found.value:.3f}")

engine = PrivacyEngine(accountant="rdp")
model = nn.Linear(8, 3)
model, optimiser, loader = engine.make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    data_loader=DataLoader(records, batch_size=50),
    noise_multiplier=found.value,
    max_grad_norm=1.0,
)
step = fp.Gaussian(noise_multiplier=found.value, unit="record").sampled(scheme)
budget, steps = fp.Budget(epsilon=2.0, delta=1e-5, adjacency="add_remove"), 0
while budget.allows(step):
    for inputs, labels in loader:
        if not budget.allows(step):
            break
        budget.spend(step)
        optimiser.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimiser.step()
        steps += 1
print(f"{steps} steps; Opacus says epsilon {engine.get_epsilon(1e-5):.2f}")

judged = fp.audit(
    engine.accountant.state_dict(), claim=(2.0, 1e-5), sampling="poisson", adjacency="add_remove"
)
print(f"{judged.verdict}: {judged.bound}")
