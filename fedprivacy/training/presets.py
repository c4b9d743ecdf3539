"""Settings that work, so that a first run does not start with a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import integer, positive, refuse
from ..mechanisms import Sparsification, SparsifiedPerturbation
from ..sampling import FixedSize, Poisson, Scheme, WithReplacement, expected_size
from .averaging import FederatedAveraging
from .data import FederatedData, digits
from .fashion import fashion_mnist
from .models import logistic, mlp

NOT_PRIVATE = ("fedavg", "fedavg-top-k", "fedavg-rand-k")
PRIVATE = ("dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k")
METHODS = (*NOT_PRIVATE, *PRIVATE)
COMPARED = ("fedavg", *PRIVATE)
"""What the demo sets beside each other."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A data set and the settings of a run on it.

    Args:
        data: the clients and their records.
        averaging: the loop without privacy.
        rounds: how many rounds are run.
        clip_norm: norm that a client's update is clipped to.
        kept_fraction: share of the coordinates that the sparsified methods keep.
        cohort: clients of a round, on average where their number varies; None for that of
            ``averaging``.
        strategy: 1 draws clients with replacement, 2 without, as in two-sided FedAvg (with a cohort
            of all clients everybody takes part); None draws as ``averaging`` does.
        learning_rate: local; None for that of ``averaging``, and so on.
        server_learning_rate: factor on the averaged update.
        local_steps: of a client in a round, in place of epochs.
        batch_size: of a client's mini-batch.
    """

    data: FederatedData
    averaging: FederatedAveraging
    rounds: int
    clip_norm: float
    kept_fraction: float
    cohort: int | None = None
    strategy: int | None = None
    learning_rate: float | None = None
    server_learning_rate: float | None = None
    local_steps: int | None = None
    batch_size: int | None = None

    @property
    def scheme(self) -> Scheme:
        """How the clients of a round are drawn.

        Raises:
            ParameterError: no such strategy, or a cohort that it cannot draw.
        """
        given, everybody = self.averaging.scheme, self.data.population
        cohort = expected_size(given, everybody) if self.cohort is None else self.cohort
        if integer(1, cohort=cohort) > everybody and self.strategy != 1:
            refuse("cohort", cohort, f"be at most the number of clients, {everybody}")
        if self.strategy == 1:
            return WithReplacement(cohort, population=everybody)
        if self.strategy == 2 or (self.strategy is None and isinstance(given, FixedSize)):
            return FixedSize(cohort, population=everybody)
        if self.strategy is not None:
            refuse("strategy", self.strategy, "be 1 (with replacement), 2 (without) or None")
        return given if self.cohort is None else Poisson(cohort / everybody)

    def plain(self, seed: int | None = None) -> FederatedAveraging:
        """Return the loop without privacy, with whatever was set in place of its own."""
        names = ("learning_rate", "server_learning_rate", "local_steps", "batch_size")
        chosen = {n: getattr(self, n) for n in names if getattr(self, n) is not None}
        if self.local_steps is not None:
            chosen["local_epochs"] = None
        return replace(self.averaging, scheme=self.scheme, seed=seed, **chosen)

    def loop(
        self, method: str, *, noise_multiplier: float | None = None, seed: int | None = None
    ) -> FederatedAveraging:
        """Return the loop of one method; DP-FedAvg keeps every coordinate.

        Args:
            method: one of ``METHODS``.
            noise_multiplier: of a private method.
            seed: None for randomness from the operating system, as privacy needs.

        Raises:
            ParameterError: an unknown method, or a private one without noise.
        """
        if method not in METHODS:
            refuse("method", method, f"be one of {', '.join(METHODS)}")
        plain = self.plain(seed)
        if method == "fedavg":
            return plain
        dimension = self.averaging.flat.dimension
        sparse = method.endswith("-k")
        kept = max(1, round(self.kept_fraction * dimension)) if sparse else dimension
        sparsifier = "top_k" if method.endswith("top-k") else "rand_k"
        if method in NOT_PRIVATE:
            travels = Sparsification(kept=kept, dimension=dimension, sparsifier=sparsifier)
            return replace(plain, sparsification=travels)
        perturbation = SparsifiedPerturbation(
            noise_multiplier=positive(noise_multiplier=noise_multiplier),
            clip_norm=self.clip_norm,
            kept=kept,
            dimension=dimension,
            cohort=_members(plain.scheme, self.data.population),
            sparsifier=sparsifier,
            topped_up=isinstance(plain.scheme, Poisson),
        )
        return replace(plain, perturbation=perturbation)


def _members(scheme: Scheme, population: int) -> int:
    """Return how many contributions a round has, on average where their number varies."""
    if isinstance(scheme, WithReplacement):
        return scheme.draws
    return expected_size(scheme, population)


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
