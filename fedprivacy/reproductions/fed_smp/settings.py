"""Fed-SMP's runs: the paper's settings by data set, and the meaning of labels like top_k-0.005.

The runs are fedavg, dp-fedavg, top_k-P and rand_k-P with the share P of the coordinates kept, and
fedavg-top_k-P and fedavg-rand_k-P without noise. top_k's mask comes from ten epochs on the public
images, and top_k_steps-P's from ten steps. rand_k_unscaled-P omits the factor d/k of the paper's
Algorithm 2 (except for k's rounding, at most .03 %). top_k-P@S and rand_k-P@S have the noise
multiplier S instead of 1.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor

from ...errors import integer, listed, require
from ...mechanisms import Sparsification, SparsifiedPerturbation
from ...sampling import FixedSize
from ...systems.averaging.loop import FederatedAveraging, State
from ...systems.averaging.server import largest_entries
from ...training.data import FederatedData
from ...training.datasets import load_named
from ...training.models import ModelFactory, cnn, colour_cnn, lstm
from .tables import NOISE, ROUNDS

EVERY, EARLY = 5, 40
"""Rounds between two evaluations, since an evaluation costs a quarter of a round; and the last
round until which inputs that may overflow are evaluated in every round.
"""

INPUTS = {
    "unit": (0.0, 1.0),
    "standardised": (0.2860, 0.3530),
    "standardised as MNIST": (0.1307, 0.3081),
    "symmetric": (0.5, 0.5),
}
"""Mean and standard deviation for pixels in [0, 1]: Fashion-MNIST's own, MNIST's and one half,
which is common. These are public constants, not computed from the clients' images.
"""

METHODS = (
    "fedavg",
    "dp-fedavg",
    "top_k",
    "top_k_steps",
    "rand_k",
    "rand_k_unscaled",
    "fedavg-top_k",
    "fedavg-top_k_steps",
    "fedavg-rand_k",
    "fedavg-rand_k_unscaled",
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The paper's settings for a data set, section 6.2; ``rounds`` as in its 6.3."""

    model: ModelFactory = field(default_factory=cnn)
    clients: int = 6000
    cohort: int = 100
    rounds: int = ROUNDS
    public: int = 1000
    local_steps: int | None = 10
    local_epochs: int = 10
    batch_size: int = 10
    learning_rate: float = 0.125
    decay: float = 0.99
    momentum: float = 0.5
    clip_norm: float = 1.0
    noise: float = NOISE


SVHN = Task(
    model=colour_cnn(),
    public=2000,
    local_steps=None,
    local_epochs=5,
    batch_size=50,
    learning_rate=0.05,
    momentum=0.8,
    clip_norm=0.4,
)
TASKS = {
    "fashion-mnist": Task(),
    "mnist": Task(),
    "kmnist": Task(),
    "svhn": SVHN,
    "cifar10": SVHN,
    "shakespeare": Task(
        model=lstm(80),
        clients=0,
        cohort=10,
        rounds=1000,
        local_steps=None,
        local_epochs=1,
        batch_size=4,
        learning_rate=1.0,
        decay=0.99 ** (1 / 50),
        momentum=0.9,
        clip_norm=0.4,
        noise=0.3,
    ),
}
"""CIFAR-10 is not in the paper: it gets the settings of SVHN, whose images have the same size. For
Shakespeare the files determine the number of clients. The paper's rate decreases by a factor .99
every fifty rounds; here it decreases equally in fifty equal parts.
"""


class Unguarded(FederatedAveraging):
    """The library's loop, but with NaN as the largest entries, as in sorting.

    If the public images' update is not finite, the library refuses top_k's mask. A program that
    sorts without this check uses an arbitrary mask and continues.
    """

    trained_by: ClassVar[str] = "torch"
    """The program that computes the clients' training."""

    @cached_property
    def arbitrary(self) -> list[int]:
        """Rounds whose mask is from an update that is not finite."""
        return []

    def _largest(self, update: Tensor, state: State) -> Tensor:
        if not update.isfinite().all():
            self.arbitrary.append(state.round + 1)
        return largest_entries(update, self._travels.kept)


@cache
def loaded(dataset: str, data_dir: str | Path | None, public: int, seed: int) -> FederatedData:
    """Return a data set divided among its task's clients."""
    clients = max(TASKS[dataset].clients, 1)
    return load_named(dataset, data_dir, clients=clients, public=public, seed=seed)


@dataclass(frozen=True, kw_only=True)
class SmpRun:
    """One run: a method, its compression ratio, and its network.

    Args:
        method: one of ``METHODS``.
        seed: seed of split, start, cohorts, batches and noise.
        ratio: share of the coordinates that are kept.
        rounds: number of rounds.
        model: name of the network, "cnn" for the paper's.
        noise: noise multiplier.
        inputs: scaling of the images, one of ``INPUTS``.
        dataset: one of ``TASKS``.
        data_dir: folder of its files.
        guard: continue after an update that is not finite, as the library does.

    Raises:
        ParameterError: a value breaks its rule.
    """

    method: str
    seed: int
    ratio: float = 1.0
    rounds: int = ROUNDS
    model: str = "cnn"
    noise: float = NOISE
    inputs: str = "unit"
    dataset: str = "fashion-mnist"
    data_dir: str | Path | None = None
    guard: bool = False

    def __post_init__(self) -> None:
        integer(1, rounds=self.rounds)
        text = self.dataset == "shakespeare"
        rule, only = "be unit for shakespeare", "texts are numbers of characters and not scaled"
        require(self.inputs == "unit" or not text, "inputs", self.inputs, rule, only)
        own = self.inputs != "standardised" or self.dataset == "fashion-mnist"
        only = "these are Fashion-MNIST's mean and standard deviation"
        rule = f"be one of {', '.join(sorted({*INPUTS} - {'standardised'}))} for {self.dataset}"
        require(own, "inputs", self.inputs, rule, only)

    @classmethod
    def of(cls, label: str, *, dataset: str = "fashion-mnist", **facts: Any) -> Self:
        """Return the setting that a label such as "top_k-0.005" names, with further fields."""
        method, ratio, noise = parts_of(label)
        noise = TASKS[dataset].noise if noise is None else noise
        return cls(method=method, ratio=ratio, noise=noise, dataset=dataset, **facts)

    @property
    def task(self) -> Task:
        """The paper's settings for its data."""
        return TASKS[self.dataset]

    @property
    def population(self) -> int:
        """Number of clients."""
        return self.task.clients or self.data().population

    @property
    def delta(self) -> float:
        """The paper's delta."""
        return float(self.population**-1.1)

    @property
    def label(self) -> str:
        """Its name in Table I, with the noise multiplier if it differs from Table I's."""
        name = self.method if self.ratio == 1.0 else f"{self.method}-{self.ratio:g}"
        return name if self.noise == self.task.noise else f"{name}@{self.noise:g}"

    @property
    def unlike(self) -> tuple[str, ...]:
        """Differences from the paper's run: another length, or a guard."""
        length = () if self.rounds == self.task.rounds else (f"{self.rounds}_rounds",)
        return (*length, *(("guard",) if self.guard else ()))

    @property
    def kept(self) -> int:
        """Number of values that a client sends in a round."""
        return round(self.ratio * self.loop().flat.dimension)

    @property
    def factory(self) -> ModelFactory:
        """Factory of the network."""
        return self.task.model

    @property
    def loop_kind(self) -> type[Unguarded]:
        """The loop that trains it."""
        return Unguarded

    def data(self) -> FederatedData:
        """Return the records among the clients; for top_k some records are public."""
        public = self.task.public if "top_k" in self.method else 0
        return scaled(loaded(self.dataset, self.data_dir, public, self.seed), self.inputs)

    @property
    def at_risk(self) -> bool:
        """Whether its updates may overflow."""
        return self.inputs != "unit"

    def looks_at(self, number: int) -> bool:
        """Return whether the test set is evaluated after a round."""
        early = number <= EARLY and self.at_risk
        return early or number % EVERY == 0 or number == self.rounds

    def loop(self) -> Unguarded:
        """Return the loop with the paper's settings.

        Ten epochs of a client's ten records (some have nine) in batches of ten are ten steps. For
        top_k's mask the server uses "the same local update period", which in the paper's text is
        ten epochs, on its public images. top_k_steps uses ten steps instead, as in its Algorithm 2.
        """
        task = self.task
        passes = "top_k" in self.method and not self.method.endswith("_steps")
        passes = passes or task.local_steps is None
        plain = self.loop_kind(
            model=self.factory,
            scheme=FixedSize(task.cohort, population=self.population),
            local_steps=None if passes else task.local_steps,
            local_epochs=task.local_epochs if passes else None,
            batch_size=task.batch_size,
            learning_rate=task.learning_rate,
            learning_rate_decay=task.decay,
            momentum=task.momentum,
            seed=self.seed,
        )
        if self.method == "fedavg":
            return plain
        dimension = plain.flat.dimension
        travels = Sparsification(
            kept=round(self.ratio * dimension),
            dimension=dimension,
            sparsifier="top_k" if "top_k" in self.method else "rand_k",
        )
        unscaled = self.ratio if self.method.endswith("_unscaled") else 1.0
        plain = replace(plain, server_learning_rate=unscaled)
        if self.method.startswith("fedavg-"):
            return replace(plain, sparsification=travels)
        perturbation = SparsifiedPerturbation(
            noise_multiplier=self.noise,
            clip_norm=task.clip_norm / unscaled,
            kept=travels.kept,
            dimension=dimension,
            cohort=task.cohort,
            sparsifier=travels.sparsifier,
        )
        return replace(plain, perturbation=perturbation)


def scaled(data: FederatedData, inputs: str) -> FederatedData:
    """Return data in [0, 1] with its inputs scaled."""
    mean, std = INPUTS[inputs]
    names = ("features", "test_features", "public_features")
    found = {name: getattr(data, name) for name in names}
    changed = {name: (part - mean) / std for name, part in found.items() if part is not None}
    return data if inputs == "unit" else replace(data, **changed)


def parts_of(label: str) -> tuple[str, float, float | None]:
    """Return the method, the share kept and the noise multiplier, if any, of a label."""
    name, _, noise = label.partition("@")
    method, dash, digits = name.rpartition("-0.")
    try:
        ratio = float(f"0.{digits}") if dash else 1.0
        found = (method if dash else name), ratio, float(noise) if noise else None
    except ValueError:
        found = "", 0.0, None
    # Only sparsified methods have a share.
    fits = found[0] in METHODS and found[1] > 0.0 and (found[1] == 1.0 or "_k" in found[0])
    require(fits, "run", label, f"be one of {listed(METHODS)}, and -P of the _k and @S")
    return found
