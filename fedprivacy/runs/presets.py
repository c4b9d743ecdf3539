"""Settings that work, so that a first run does not start with a search."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import integer, listed, positive, probability, refuse
from ..mechanisms import Sparsification, SparsifiedPerturbation
from ..sampling import FixedSize, Poisson, Scheme, WithReplacement, expected_size
from ..systems.averaging.loop import FederatedAveraging, contributions
from ..training.data import FederatedData
from ..training.models import ModelFactory, logistic, mlp

NOT_PRIVATE = ("fedavg", "fedavg-top-k", "fedavg-rand-k")
PRIVATE = ("dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k")
METHODS = (*NOT_PRIVATE, *PRIVATE)
COMPARED = ("fedavg", *PRIVATE)
"""What the demo sets beside each other."""

LOOP_SETTINGS = (
    "learning_rate",
    "learning_rate_decay",
    "server_learning_rate",
    "momentum",
    "local_steps",
    "local_epochs",
    "batch_size",
    "expected_cohort",
)
"""What may be set of a preset's loop."""


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
        sampling_probability: of Poisson sampling, a public number that does not follow the number
            of clients, as add_remove needs; None where it may follow. Instead of ``cohort``.
    """

    data: FederatedData
    averaging: FederatedAveraging
    rounds: int
    clip_norm: float
    kept_fraction: float
    cohort: int | None = None
    strategy: int | None = None
    sampling_probability: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", integer(1, rounds=self.rounds))
        positive(clip_norm=self.clip_norm)
        if positive(kept_fraction=self.kept_fraction) > 1.0:
            refuse("kept_fraction", self.kept_fraction, "be in (0, 1]")
        if self.sampling_probability is None:
            return
        probability(sampling_probability=self.sampling_probability)
        for name in ("cohort", "strategy"):
            if getattr(self, name) is not None:
                rule = "be left out: sampling_probability says how clients are drawn"
                refuse(name, getattr(self, name), rule)

    def changed(self, /, **settings: Any) -> Preset:
        """Return the preset with other settings: its own fields', or ``LOOP_SETTINGS``.

        Raises:
            ParameterError: no such setting, or a value out of its range.
        """
        own = [f.name for f in fields(self) if f.name not in ("data", "averaging")]
        for name in settings:
            if name not in (*own, *LOOP_SETTINGS):
                refuse("setting", name, f"be one of {listed((*own, *LOOP_SETTINGS))}")
        mine = {name: value for name, value in settings.items() if name in own}
        loop = {name: value for name, value in settings.items() if name in LOOP_SETTINGS}
        if len({"local_steps", "local_epochs"} & set(loop)) == 1:
            loop = {"local_steps": None, "local_epochs": None} | loop
        return replace(self, averaging=replace(self.averaging, **loop), **mine)

    @property
    def scheme(self) -> Scheme:
        """How the clients of a round are drawn.

        Raises:
            ParameterError: no such strategy, or a cohort that it cannot draw.
        """
        if self.sampling_probability is not None:
            return Poisson(self.sampling_probability)
        given, everybody = self.averaging.scheme, self.data.population
        cohort = expected_size(given, everybody) if self.cohort is None else self.cohort
        if integer(1, cohort=cohort) > (everybody if self.strategy != 1 else 1000 * everybody):
            refuse("cohort", cohort, f"be at most the number of clients, {everybody}")
        if self.strategy == 1:
            return WithReplacement(cohort, population=everybody)
        if self.strategy == 2 or (self.strategy is None and isinstance(given, FixedSize)):
            return FixedSize(cohort, population=everybody)
        if self.strategy is not None:
            refuse("strategy", self.strategy, "be 1 (with replacement), 2 (without) or None")
        return given if self.cohort is None else Poisson(cohort / everybody)

    def plain(self, seed: int | None = None) -> FederatedAveraging:
        """Return the loop without privacy."""
        return replace(self.averaging, scheme=self.scheme, seed=seed)

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
        if sparse and sparsifier == "top_k":
            self.data.public()
        if method in NOT_PRIVATE:
            travels = Sparsification(kept=kept, dimension=dimension, sparsifier=sparsifier)
            return replace(plain, sparsification=travels)
        varying = isinstance(plain.scheme, Poisson)
        declared = plain.expected_cohort if varying else None
        perturbation = SparsifiedPerturbation(
            noise_multiplier=positive(noise_multiplier=noise_multiplier),
            clip_norm=self.clip_norm,
            kept=kept,
            dimension=dimension,
            cohort=declared or contributions(plain.scheme, self.data.population),
            sparsifier=sparsifier,
            topped_up=varying,
        )
        return replace(plain, perturbation=perturbation)


def preset_for(data: FederatedData, model: ModelFactory | None = None) -> Preset:
    """Return settings for a data set, with a model of the user's own or the one that goes with it.

    Digits: multinomial logistic regression (650 parameters), one pass over a client's images a
    round, Poisson cohorts of 100 on average, 40 rounds. A larger clip norm lets more noise in, a
    smaller one slows learning; 3 was the best of 2, 3 and 4 over all methods.

    Fashion-MNIST: a network with one hidden layer of 32 units (25,450 parameters), four full-batch
    steps a round, Poisson cohorts of 200 on average, 60 rounds.

    Any other data, or a model of one's own: a place to start from, not a search's result.
    Multinomial logistic regression, one pass over a client's records, Poisson cohorts of 100 on
    average, 50 rounds.

    Args:
        data: the clients and their records.
        model: builds a module for them.
    """
    features, clients = data.test_features[0].numel(), data.population
    settings: dict[str, Any] = {"model": model or logistic(features, data.classes)}
    settings |= {"scheme": Poisson(min(1.0, 100 / clients)), "local_epochs": 1}
    rounds, clip_norm = 50, 1.0
    if model is None and data.name == "digits":
        settings["learning_rate"] = 2.0
        rounds, clip_norm = 40, 3.0
    if model is None and data.name == "fashion-mnist":
        settings |= {"model": mlp(features, data.classes, hidden=(32,))}
        settings |= {"scheme": Poisson(min(1.0, 200 / clients))}
        settings |= {"local_steps": 4, "local_epochs": None}
        settings |= {"learning_rate": 0.2, "server_learning_rate": 2.0}
        rounds = 60
    return Preset(
        data=data,
        averaging=FederatedAveraging(**settings),
        rounds=rounds,
        clip_norm=clip_norm,
        kept_fraction=0.4,
    )
