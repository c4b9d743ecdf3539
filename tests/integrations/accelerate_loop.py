"""A small Accelerate loop, also in a process that is to be killed."""

import os
import signal
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import fedprivacy as fp
from fedprivacy.integrations.accelerate import PrivateLoop

SIZE, BATCH = 40, 8


def loader(**named):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SIZE, 3, generator=generator)
    data = TensorDataset(x, torch.ones(SIZE, 1))
    return DataLoader(data, **{"batch_size": BATCH, "shuffle": True, **named})


def objects():
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader()


def private(folder, epsilon=9.0, accelerator=None, **named):
    settings = {
        "noise_multiplier": 2.0,
        "clip_norm": 1.5,
        "ledger": Path(folder) / "run.ledger",
        "budget": fp.Budget(epsilon, 1e-5, adjacency="zero_out"),
    }
    return PrivateLoop(accelerator or Accelerator(cpu=True), **{**settings, **named})


def train(accelerator, model, optimizer, batches, epochs=1, after=lambda: None):
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            accelerator.backward(((model(x) - y) ** 2).sum())
            optimizer.step()
            after()


def die(folder):
    """Die in the third step, after the parameters have moved and before its line."""
    accelerator = Accelerator(cpu=True)
    loop = private(folder, accelerator=accelerator)
    prepared = loop.prepare(*objects())
    confirm, moved = loop.books._confirm, [0]

    def confirmed():
        moved[0] += loop.books._released
        if moved[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        confirm()

    loop.books._confirm = confirmed
    train(accelerator, *prepared)


if __name__ == "__main__":
    die(sys.argv[1])
