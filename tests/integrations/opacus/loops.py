"""Loops with Opacus's engine, for the tests of its integration; to be imported where opacus is."""

from itertools import islice

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import fedprivacy as fp
from fedprivacy.integrations import opacus as live

SIZE, BATCH = 40, 8
DATA = TensorDataset(torch.zeros(SIZE, 3), torch.ones(SIZE, 1))
FACTS = {"unit": "record", "adjacency": "zero_out", "claim": (9.0, 1e-5)}


def private(poisson=True, engine=None, **loader):
    """Return the engine and what its make_private returns."""
    engine = engine or PrivacyEngine(accountant=live.NAME)
    network = torch.nn.Linear(3, 1)
    made = engine.make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        data_loader=DataLoader(DATA, **{"batch_size": BATCH, **loader}),
        noise_multiplier=2.0,
        max_grad_norm=1.5,
        poisson_sampling=poisson,
    )
    return engine, *made


def backward(network, optimizer, x, y):
    optimizer.zero_grad()
    ((network(x) - y) ** 2).sum().backward()


def train(network, optimizer, loader, steps):
    """Take so many steps, and draw no batch that is not stepped."""
    while steps:
        for x, y in islice(loader, steps):
            backward(network, optimizer, x, y)
            optimizer.step()
            steps -= 1


SAMPLERS = {
    "poisson": ({"poisson": True}, fp.Poisson(0.2), 7),
    "shuffled": ({"poisson": False, "shuffle": True}, fp.Shuffled(5), 2),
    "in order": ({"poisson": False}, fp.Shuffled(5), 2),
    "with replacement": (
        {"poisson": False, "sampler": RandomSampler(DATA, replacement=True, num_samples=40)},
        fp.WithReplacement(8, population=40),
        7,
    ),
    "one batch of a few": (
        {"poisson": False, "sampler": RandomSampler(DATA, num_samples=8)},
        fp.FixedSize(8, population=40),
        7,
    ),
    "some of them, in batches": (
        {"poisson": False, "sampler": RandomSampler(DATA, num_samples=24)},
        fp.Shuffled(3, partial=True),
        3,
    ),
    "without the last batch": (
        {"poisson": False, "shuffle": True, "drop_last": True, "batch_size": 12},
        fp.Shuffled(3, partial=True),
        3,
    ),
    "in order, without the last batch": (
        {"poisson": False, "drop_last": True, "batch_size": 12},
        fp.Shuffled(3, partial=True),
        3,
    ),
    "one batch, without the last": (
        {"poisson": False, "shuffle": True, "drop_last": True, "batch_size": 21},
        fp.FixedSize(21, population=40),
        7,
    ),
}
