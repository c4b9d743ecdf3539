"""The network of the training benchmarks in plain torch, for loops of other libraries."""

from torch import nn


def convolutions() -> list[nn.Module]:
    """Return the layers of the paper's network, without the first layer that adds a channel."""
    return [
        nn.Conv2d(1, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    ]
