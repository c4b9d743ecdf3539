"""A million simulated clients, each built when it is drawn and dropped when its work is done.

A demonstration of size: no ledger records the rounds.

Prints::

    2 rounds, parameters of shape (42,)
"""

import numpy as np
import torch

import fedprivacy as fp
from fedprivacy.training import FederatedAveraging, LazyData, logistic, train


def client(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(number)
    inputs = generator.normal(size=(10, 20)).astype(np.float32)
    return torch.from_numpy(inputs), torch.from_numpy((inputs[:, 0] > 0).astype(np.int64))


crowd = LazyData(
    client=client,
    population=1_000_000,
    num_classes=2,
    test_features=torch.zeros(0, 20),
    test_labels=torch.zeros(0, dtype=torch.int64),
)
loop = FederatedAveraging(
    model=logistic(20, 2),
    scheme=fp.FixedSize(100, population=1_000_000),
    local_steps=5,
    perturbation=fp.Gaussian(noise_multiplier=1.0, clip_norm=0.1, unit="client"),
)
state = train(loop, crowd, rounds=2).state
print(f"{state.round} rounds, parameters of shape {tuple(state.parameters.shape)}")
