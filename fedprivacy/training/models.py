"""Model factories: each returns a function that builds a fresh module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from ..errors import integer

ModelFactory = Callable[[], nn.Module]


def logistic(features: int, classes: int) -> ModelFactory:
    """Return a factory of multinomial logistic regression, ``(features + 1) * classes`` parameters.

    It starts at zero: the loss is convex and the start is public.

    Args:
        features: length of one flattened input.
        classes: number of classes.
    """
    inputs, outputs = integer(1, features=features), integer(2, classes=classes)

    def build() -> nn.Module:
        layer = nn.Linear(inputs, outputs)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Flatten(), layer)

    return build


def mlp(features: int, classes: int, hidden: Sequence[int] = (32,)) -> ModelFactory:
    """Return a factory of a fully connected network with ReLU between layers.

    Args:
        features: length of one flattened input.
        classes: number of classes.
        hidden: widths of the hidden layers.
    """
    widths = [integer(1, features=features), *(integer(1, hidden=width) for width in hidden)]
    outputs = integer(2, classes=classes)

    def build() -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    return build


def cnn(classes: int = 10) -> ModelFactory:
    """Return a factory of the convolutional network of the Fed-SMP paper, for 28 x 28 images.

    Two 5 x 5 convolutions (32 and 64 channels, same padding), each followed by ReLU and 2 x 2 max
    pooling, a fully connected layer of 512 units and the output: 1,663,370 parameters for ten
    classes (Hu, Guo and Gong, section 7.1). Inputs have shape (batch, 28, 28).

    Args:
        classes: number of classes.
    """
    outputs = integer(2, classes=classes)

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, torch.Size((1, 28))),
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.ReLU(),
            nn.Linear(512, outputs),
        )

    return build
