"""The network of the training benchmarks as one writes it, for loops that are not fedprivacy's."""

from torch import nn


def convolutions() -> list[nn.Module]:
    """Return the layers of the paper's network after the one that gives images a channel."""
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
