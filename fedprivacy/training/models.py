"""Model factories: each returns a function that builds a fresh module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

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


class _OneChannel(nn.Module):
    """Images as one channel in channels-last memory: convolutions then keep to it throughout.

    With one channel the order of the numbers is the same, so this is a view. It is the strides that
    torch goes by, and for a plain ``(batch, 1, height, width)`` they say channels first.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return images of shape (batch, height, width) as (batch, 1, height, width)."""
        return images.unsqueeze(3).permute(0, 3, 1, 2)


def cnn(classes: int = 10, *, padded: bool = True) -> ModelFactory:
    """Return a factory of a convolutional network for 28 x 28 images.

    Two 5 x 5 convolutions (32 and 64 channels), each followed by 2 x 2 max pooling and ReLU, a
    fully connected layer of 512 units and the output. With ten classes and padding it has the
    1,663,370 parameters of Hu, Guo and Gong, section 6.1; without, the 582,026 of Yang, Fang and
    Liu, table 4. Inputs have shape (batch, 28, 28).

    Args:
        classes: number of classes.
        padded: whether the convolutions keep the size of the image.
    """
    outputs = integer(2, classes=classes)
    around, side = (2, 7) if padded else (0, 4)

    def build() -> nn.Module:
        return nn.Sequential(
            _OneChannel(),
            nn.Conv2d(1, 32, 5, padding=around),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, padding=around),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * side * side, 512),
            nn.ReLU(),
            nn.Linear(512, outputs),
        )

    return build
