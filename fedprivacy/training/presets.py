"""Settings that work, so that a first run does not start with a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import positive, refuse
from ..mechanisms import SparsifiedPerturbation
from ..sampling import Poisson, expected_size
from .averaging import FederatedAveraging
from .data import FederatedData, digits
from .fashion import fashion_mnist
from .models import logistic, mlp

METHODS = ("fedavg", "dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A data set and the settings of a run on it.

    Args:
        data: the clients and their records.
        averaging: the loop without privacy.
        rounds: how many rounds are run.
        clip_norm: norm that a client's update is clipped to.
        kept_fraction: share of the coordinates that Fed-SMP keeps.
    """

    data: FederatedData
    averaging: FederatedAveraging
    rounds: int
    clip_norm: float
    kept_fraction: float

    def loop(
        self, method: str, *, noise_multiplier: float | None = None, seed: int | None = None
    ) -> FederatedAveraging:
        """Return the loop of one method; DP-FedAvg keeps every coordinate.

        Args:
            method: "fedavg", "dp-fedavg", "fed-smp-top-k" or "fed-smp-rand-k".
            noise_multiplier: of a private method.
            seed: None for randomness from the operating system, as privacy needs.

        Raises:
            ParameterError: an unknown method, or a private one without noise.
        """
        if method not in METHODS:
            refuse("method", method, f"be one of {', '.join(METHODS)}")
        plain = replace(self.averaging, seed=seed)
        if method == "fedavg":
            return plain
        dimension = self.averaging.flat.dimension
        kept = max(1, round(self.kept_fraction * dimension))
        perturbation = SparsifiedPerturbation(
            noise_multiplier=positive(noise_multiplier=noise_multiplier),
            clip_norm=self.clip_norm,
            kept=dimension if method == "dp-fedavg" else kept,
            dimension=dimension,
            cohort=expected_size(plain.scheme, self.data.population),
            sparsifier="top_k" if method == "fed-smp-top-k" else "rand_k",
            topped_up=isinstance(plain.scheme, Poisson),
        )
        return replace(plain, perturbation=perturbation)


def digits_preset() -> Preset:
    """Return the settings for scikit-learn's digits: 400 clients of three or four images each.

    Multinomial logistic regression (650 parameters), one full-batch step a round, Poisson cohorts
    of 100 on average, 40 rounds. A larger clip norm lets more noise in, a smaller one slows
    learning; 3 was the best of 2, 3 and 4 over all methods.
    """
    clients = 400
    return Preset(
        data=digits(clients=clients),
        averaging=FederatedAveraging(
            model=logistic(64, 10),
            scheme=Poisson(100 / clients),
            local_epochs=1,
            learning_rate=2.0,
        ),
        rounds=40,
        clip_norm=3.0,
        kept_fraction=0.4,
    )


def fashion_mnist_preset(data_dir: str | Path | None = None) -> Preset:
    """Return the settings for Fashion-MNIST: 6000 clients of nine or ten images each.

    A network with one hidden layer of 32 units (25,450 parameters), four full-batch steps a round,
    Poisson cohorts of 200 on average, 60 rounds.

    Args:
        data_dir: see ``fashion.fashion_mnist``.
    """
    clients = 6000
    return Preset(
        data=fashion_mnist(data_dir, clients=clients),
        averaging=FederatedAveraging(
            model=mlp(784, 10, hidden=(32,)),
            scheme=Poisson(200 / clients),
            local_steps=4,
            learning_rate=0.2,
            server_learning_rate=2.0,
        ),
        rounds=60,
        clip_norm=1.0,
        kept_fraction=0.4,
    )
