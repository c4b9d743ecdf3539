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

    ``hidden=(200, 200)`` is McMahan et al.'s 2NN; (512, 512) that of Liang et al., Figure 5.

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
    """Images as one channel in channels-last memory, which later convolutions keep.

    With one channel the order of the numbers is the same, so this is a view. Torch looks at the
    strides, and those of a plain ``(batch, 1, height, width)`` mean channels first.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return images of shape (batch, height, width) as (batch, 1, height, width)."""
        return images.unsqueeze(3).permute(0, 3, 1, 2)


def cnn(classes: int = 10, *, padded: bool = True) -> ModelFactory:
    """Return a factory of a convolutional network for 28 x 28 images.

    It has two 5 x 5 convolutions (32 and 64 channels), each followed by 2 x 2 max pooling and ReLU.
    Then follow a fully connected layer of 512 units and the output. With ten classes and padding it
    has the 1,663,370 parameters of Hu, Guo and Gong, section 6.1. Without padding it has the
    582,026 of Yang, Fang and Liu, table 4. Inputs have shape (batch, 28, 28).

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


def colour_cnn(classes: int = 10) -> ModelFactory:
    """Return a factory of a convolutional network for colour images of 32 x 32.

    It has two padded 5 x 5 convolutions (64 and 128 channels), each followed by 2 x 2 max pooling
    and ReLU. Then follow fully connected layers of 384 and 192 units and the output. With ten
    classes it has the 3,431,754 parameters of Hu, Guo and Gong's network for SVHN. Inputs have
    shape (batch, 3, 32, 32).

    Args:
        classes: number of classes.
    """
    outputs = integer(2, classes=classes)

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 64, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 128, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128 * 8 * 8, 384),
            nn.ReLU(),
            nn.Linear(384, 192),
            nn.ReLU(),
            nn.Linear(192, outputs),
        )

    return build


class _NextCharacter(nn.Module):
    """Maps characters to the logits of the next character."""

    def __init__(self, characters: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.recurrent = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, characters)

    def forward(self, texts: Tensor) -> Tensor:
        """Return logits of shape (batch, characters) for texts of shape (batch, length)."""
        # Inputs are floats everywhere; single precision represents character numbers exactly.
        states, _ = self.recurrent(self.embedding(texts.long()))
        logits: Tensor = self.output(states[:, -1])
        return logits


def lstm(
    characters: int = 90, *, embedding: int = 8, hidden: int = 256, layers: int = 2
) -> ModelFactory:
    """Return a factory of a recurrent network that predicts a text's next character.

    It has an embedding, layers of LSTM and the output. The defaults have 822,570 parameters. Hu,
    Guo and Gong state "about 0.8 million" for Shakespeare, and the uploads in their Table III,
    46.02 MB, match 90 characters. With 80 characters, as in the files of ``datasets.shakespeare``,
    there are 819,920 parameters. Inputs have shape (batch, length): numbers of characters, as
    floats.

    Args:
        characters: number of different characters.
        embedding: length of a character's embedding.
        hidden: units of a layer.
        layers: number of layers.
    """
    known = integer(2, characters=characters), integer(1, embedding=embedding)
    sizes = *known, integer(1, hidden=hidden), integer(1, layers=layers)

    def build() -> nn.Module:
        return _NextCharacter(*sizes)

    return build
