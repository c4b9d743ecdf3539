"""Fed-SMP's runs in this folder: networks besides the paper's, and the compiled training.

The paper's settings are ``fedprivacy.reproductions.fed_smp.settings``.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from network import LabelLogarithm, PaperAveraging, compiled, softmax_cnn

from fedprivacy.errors import require
from fedprivacy.reproductions.fed_smp import settings
from fedprivacy.reproductions.fed_smp.settings import Unguarded
from fedprivacy.training import mlp
from fedprivacy.training.models import ModelFactory
from fedprivacy.training.optimise import default_device

HERE = Path(__file__).parent
MODELS = {
    "cnn": "the paper's for the data",
    "softmax-cnn": "that for 28 x 28 images, its softmax a layer, the loss of all its logarithms",
    "label-cnn": "the same, the loss of the label's logarithm alone",
    "2nn": "two hidden layers of 200, 28 x 28 images",
}
LAYERED: dict[str, ModelFactory] = {
    "softmax-cnn": softmax_cnn,
    "label-cnn": partial(softmax_cnn, LabelLogarithm),
}
"""Networks with the softmax as a layer."""
PAPER_NETWORK = ("fashion-mnist", "mnist", "kmnist")
"""Data sets for which ``network.py`` has the paper's network."""


@dataclass(frozen=True, kw_only=True)
class Setting(settings.SmpRun):
    """One run, with a folder for its progress."""

    def __post_init__(self) -> None:
        small, only = self.dataset in PAPER_NETWORK, "the others are for images of 28 x 28"
        rule = f"be cnn for {self.dataset}"
        require(self.model == "cnn" or small, "model", self.model, rule, only)
        super().__post_init__()

    @property
    def folder(self) -> Path:
        """Folder of its progress."""
        parts = (self.model, self.inputs.replace(" ", "_"), self.label, *self.unlike)
        return HERE / "progress" / f"{prefix(self.dataset)}{':'.join(parts)}-seed{self.seed}"

    @property
    def at_risk(self) -> bool:
        """Whether its updates may overflow."""
        return super().at_risk or self.model in LAYERED

    @property
    def factory(self) -> ModelFactory:
        """Factory of the network."""
        others = {**LAYERED, "2nn": mlp(784, 10, hidden=(200, 200))}
        return others.get(self.model, self.task.model)

    @property
    def compiled(self) -> bool:
        """Whether the network is trained by ``network.cpp``, which works only on a CPU."""
        own = self.model != "2nn" and self.dataset in PAPER_NETWORK
        return own and default_device() == "cpu" and compiled() is not None

    @property
    def loop_kind(self) -> type[Unguarded]:
        """The loop that trains it."""
        return PaperAveraging if self.compiled else Unguarded


def prefix(dataset: str) -> str:
    """Return the prefix of folders of progress and files of results."""
    return "fed_smp-" if dataset == "fashion-mnist" else f"fed_smp_{dataset}-"


def setting_of(
    label: str, seed: int, rounds: int, model: str = "cnn", inputs: str = "unit", **facts: Any
) -> Setting:
    """Return the setting that a label such as "top_k-0.005" names."""
    return Setting.of(label, seed=seed, rounds=rounds, model=model, inputs=inputs, **facts)
