"""I have a torch module and a partition of my records into clients: two-sided FedAvg with noise.

``WithReplacement`` draws clients one after the other, and a client that is drawn twice counts
twice. ``server_learning_rate`` is the second step size; it has no privacy cost.

Correct end to end: the ledger records the rounds, and its account agrees with the plan. The data
are made up.

Prints::

    20 rounds, accuracy 0...
    epsilon in [..., ...] at delta = 0.0001 (client level, replace_one, ...)
    True
"""

import numpy as np
import torch

import fedprivacy as fp
from fedprivacy.training import FederatedAveraging, FederatedData, train

features = torch.randn(3000, 8)
labels = (features[:, 0] > features[:, 1]).long()
data = FederatedData(
    name="mine",
    num_classes=2,
    features=features,
    labels=labels,
    clients=tuple(np.split(np.arange(2400), 300)),
    test_features=features[2400:],
    test_labels=labels[2400:],
)
loop = FederatedAveraging(
    model=lambda: torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
    ),
    scheme=fp.WithReplacement(60, population=300),
    perturbation=fp.Gaussian(noise_multiplier=4.0, clip_norm=1.0, unit="client"),
    local_steps=5,
    batch_size=8,
    learning_rate=0.3,
    server_learning_rate=1.5,
)
run = loop.round_mechanism * 20
with fp.Ledger.create("run.ledger", unit="client", adjacency="replace_one", plan=run) as ledger:
    state = train(loop, data, rounds=20, ledger=ledger).state
    ledger.close()
print(f"{ledger.spent_rounds} rounds, accuracy {loop.evaluate(state, data)[0]:.2f}")

found = fp.account("run.ledger", delta=1e-4)
print(found)
print(abs(found.upper / fp.epsilon(run, delta=1e-4, adjacency="replace_one").upper - 1) < 1e-6)
