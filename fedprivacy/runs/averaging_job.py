"""FedAvg, DP-FedAvg and Fed-SMP as tasks that a budget can be put on; see ``jobs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..errors import listed, positive, refuse
from ..factors.optimise import Progress
from ..mechanisms import (
    AdaptiveClipping,
    DistributedDiscreteGaussian,
    IntegerPerturbation,
    Mechanism,
    Skellam,
    Sparsification,
    SparsifiedPerturbation,
)
from ..relations import Adjacency, Unit
from ..sampling import Everyone, FixedSize, Poisson, Scheme, WithReplacement
from ..systems.averaging.loop import FederatedAveraging, State
from ..systems.averaging.server import contributions, denominator
from ..systems.averaging.upload import upload_size
from ..training.data import FederatedData
from ..training.models import ModelFactory, logistic, mlp
from .methods import Adaptive, Averaging, Method, Noisy, Sparse, WholeNumbers

_PUBLIC = ("clients", "cohorts", "rounds", "clip_norm", "parameters", "sent")
"""Settings of averaging that its release depends on; the others clients keep to themselves."""

_LOOP = (
    *("learning_rate", "learning_rate_decay", "server_learning_rate", "momentum"),
    *("local_steps", "local_epochs", "batch_size", "expected_cohort", "proximal"),
)
"""Settings of averaging that go to the loop as they are."""

_UNTOLD = ("missing", "absent", "colluding", "proximal")
"""Settings that are told only where they are not 0."""

_AWAY = ("missing", "absent", "colluding")
"""How many clients may not answer, or may tell; see ``methods.Noisy``."""

_WHOLE = {"discrete-gaussian": DistributedDiscreteGaussian, "skellam": Skellam}
"""What perturbs in whole numbers, by the law of its noise."""

_SIZED: dict[str, Callable[..., Scheme]] = {"with-replacement": WithReplacement, "fixed": FixedSize}
"""Strategies that draw cohorts of one size."""

_BITS = 16
"""Bits of a whole number where nobody says otherwise."""

_DECLARE = "pass public numbers: --set sampling_probability=0.1 --set expected_cohort=40"


@dataclass(frozen=True, kw_only=True)
class AveragingJob:
    """FedAvg, DP-FedAvg or Fed-SMP; the unit is a client.

    Args:
        source: the clients and their records.
        method: an averaging one.
        model: builds the module.
        chosen: its settings; with those of ``Noisy`` it is private, with those of ``Sparse`` a
            share of the coordinates travels.
        progress: gets the share done of a search for the noise's factor.

    Raises:
        ParameterError: settings that exclude each other, or that do not fit the data; clients that
            may be away where cohorts vary in size and the noise is topped up.
    """

    source: FederatedData
    method: Method
    model: ModelFactory
    chosen: Averaging
    progress: Progress | None = field(default=None, compare=False)
    unit = Unit.CLIENT
    adjacency = Adjacency.ZERO_OUT

    @classmethod
    def of(
        cls,
        method: Method,
        source: FederatedData,
        model: ModelFactory | None,
        given: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> AveragingJob:
        """Return a method's job with some settings given, the others from ``preset_for``."""
        factory, values = preset_for(source, model, given)
        known = {name: values[name] for name in method.settings.known() if name in values}
        chosen = method.of(known)
        assert isinstance(chosen, Averaging)
        job = cls(source=source, method=method, model=factory, chosen=chosen, progress=progress)
        # Builds the loop, so that settings that do not fit are refused here.
        _ = job.settings
        return job

    @property
    def knob(self) -> str | None:
        """The noise multiplier."""
        return self.method.knob_name

    @property
    def rounds(self) -> int:
        """As chosen."""
        assert self.chosen.rounds is not None
        return self.chosen.rounds

    @property
    def data(self) -> FederatedData:
        """The source itself."""
        return self.source

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Those of the loop, and what is clipped and kept."""
        return self.averaging_settings

    @property
    def averaging_settings(self) -> dict[str, Any]:
        """The same, of every averaging job."""
        # Any level will do: no setting depends on it.
        loop = self.loop(None if self.knob is None else 1.0, None)
        names = [n for n in _LOOP if getattr(loop, n) is not None and n not in _UNTOLD]
        found = {"clients": self.units, "cohorts": str(loop.scheme), "rounds": self.rounds}
        found |= self._perturbed(loop.perturbation)
        found |= {"parameters": loop.flat.dimension, "sent": self._kept(loop.flat.dimension)}
        # Zeros are as usual, and not told.
        found |= {name: told for name in _UNTOLD if (told := getattr(self.chosen, name, 0))}
        return found | {name: getattr(loop, name) for name in names}

    def _perturbed(self, what: object) -> dict[str, Any]:
        """Return what is told of what clips and perturbs."""
        if isinstance(what, AdaptiveClipping):
            names = Adaptive.known()
            return {"clip_norm": what.clip_norm} | {n: getattr(self.chosen, n) for n in names}
        if isinstance(what, IntegerPerturbation):
            noise = getattr(self.chosen, "noise", None)
            return {"clip_norm": what.clip_norm, "noise": noise, "bits": what.bits}
        return {"clip_norm": what.clip_norm} if isinstance(what, SparsifiedPerturbation) else {}

    @property
    def units(self) -> int:
        """The clients."""
        return self.source.population

    def declared_units(self, adjacency: Adjacency | str) -> float:
        """Return how many clients there are; under add_remove as many as was declared."""
        chance = self.chosen.sampling_probability
        if adjacency != Adjacency.ADD_REMOVE or self.knob is None or chance is None:
            return self.units
        return float(self.public(adjacency)["denominator"] / chance)

    @cached_property
    def scheme(self) -> Scheme:
        """How the clients of a round are drawn."""
        chosen, everybody = self.chosen, self.units
        if chosen.sampling_probability is not None:
            rule = "be left out: sampling_probability says how clients are drawn"
            if chosen.cohort:
                refuse("cohort", chosen.cohort, rule)
            if chosen.strategy not in (None, "poisson"):
                refuse("strategy", chosen.strategy, rule)
            return Poisson(chosen.sampling_probability)
        if chosen.strategy == "everyone":
            return Everyone()
        cohort = chosen.cohort
        assert cohort is not None
        # Draws with replacement may be more than there are clients, within reason.
        most = 1000 * everybody if chosen.strategy == "with-replacement" else everybody
        if cohort > most:
            refuse("cohort", cohort, f"be at most the number of clients, {everybody}")
        if chosen.strategy not in _SIZED:
            return Poisson(cohort / everybody)
        return _SIZED[chosen.strategy](cohort, population=everybody)

    def loop(self, level: float | None, seed: int | None) -> FederatedAveraging:
        """Return the method's loop, with a noise multiplier where it is private."""
        # Built once, since it builds a model; what differs is replaced.
        plain = self._plain
        if seed is not None:
            plain = replace(plain, seed=seed)
        dimension = plain.flat.dimension
        sparsifier = "top_k" if self.method.name.endswith("top-k") else "rand_k"
        if sparsifier == "top_k":
            # Raises where there is nothing to make a mask of.
            self.source.public()
        if isinstance(self.chosen, Noisy):
            return replace(plain, perturbation=self._perturbation(level, dimension, sparsifier))
        if isinstance(self.chosen, Sparse):
            kept = self._kept(dimension)
            travels = Sparsification(kept=kept, dimension=dimension, sparsifier=sparsifier)
            return replace(plain, sparsification=travels)
        return plain

    @cached_property
    def _plain(self) -> FederatedAveraging:
        """The loop without privacy and without a seed."""
        names = [name for name in _LOOP if hasattr(self.chosen, name)]
        settings: dict[str, Any] = {name: getattr(self.chosen, name) for name in names}
        return FederatedAveraging(model=self.model, scheme=self.scheme, **settings)

    def _kept(self, dimension: int) -> int:
        """Return how many coordinates travel."""
        return max(1, round(getattr(self.chosen, "kept_fraction", 1.0) * dimension))

    def _perturbation(
        self, level: float | None, dimension: int, sparsifier: str
    ) -> SparsifiedPerturbation | AdaptiveClipping:
        """Return what clips and perturbs; DP-FedAvg keeps every coordinate."""
        chosen = self.chosen
        assert isinstance(chosen, Noisy) and chosen.clip_norm is not None
        if isinstance(chosen, Adaptive) and chosen.clip_quantile is not None:
            return self._adaptive(chosen, positive(noise_multiplier=level), chosen.clip_norm)
        # Poisson cohorts vary: shares of one size would not add up to the stated noise.
        topped_up = isinstance(self.scheme, Poisson)
        if topped_up:
            rule = "be 0 where Poisson cohorts have topped-up noise"
            _nobody_away(chosen, rule, "strategy=fixed draws cohorts of a fixed size")
        declared = chosen.expected_cohort if topped_up else None
        kind, bits = self._noise()
        return kind(
            noise_multiplier=positive(noise_multiplier=level),
            clip_norm=chosen.clip_norm,
            kept=self._kept(dimension),
            dimension=dimension,
            # Declared where it must not follow the number of clients.
            cohort=declared or contributions(self.scheme, self.units),
            sparsifier=sparsifier,
            topped_up=topped_up,
            **{name: getattr(chosen, name) for name in _AWAY},
            **bits,
        )

    def _noise(self) -> tuple[type[SparsifiedPerturbation], dict[str, int]]:
        """Return what perturbs, by the law of the noise, and the bits of whole numbers."""
        chosen = self.chosen
        noise = chosen.noise if isinstance(chosen, WholeNumbers) else "gaussian"
        bits = chosen.bits if isinstance(chosen, WholeNumbers) else None
        if noise == "gaussian":
            if bits is not None:
                rule = "be left out: gaussian noise is no whole number"
                refuse("bits", bits, rule, f"choose noise from {listed(_WHOLE)}")
            return SparsifiedPerturbation, {}
        return _WHOLE[noise], {"bits": bits or _BITS}

    def _adaptive(self, chosen: Adaptive, level: float, clip_norm: float) -> AdaptiveClipping:
        """Return what clips to a norm that follows a quantile; its noise is drawn at once."""
        assert chosen.clip_quantile is not None
        rule = "be 0 with clip_quantile, whose noise has no shares"
        _nobody_away(chosen, rule, "leave clip_quantile out")
        for name, usual in (("noise", "gaussian"), ("bits", None)):
            if getattr(chosen, name, usual) != usual:
                rule = f"be {usual or 'left out'} with clip_quantile"
                refuse(name, getattr(chosen, name), rule, "leave clip_quantile out")
        return AdaptiveClipping(
            noise_multiplier=level,
            clip_norm=clip_norm,
            quantile=chosen.clip_quantile,
            bits_share=chosen.clip_bits_share,
            clip_learning_rate=chosen.clip_learning_rate,
            unit=Unit.CLIENT,
        )

    @property
    def upload_per_client(self) -> float:
        """What a client sends in the whole run on average, in MB, headers apart."""
        chance = self.chosen.sampling_probability
        if chance is None:
            chance = contributions(self.scheme, self.units) / self.units
        return 1e-6 * self._upload * self.rounds * chance

    @cached_property
    def _upload(self) -> int:
        """Bytes of what a client sends in a round, its header apart."""
        perturbation = self.loop(None if self.knob is None else 1.0, None).perturbation
        if isinstance(perturbation, IntegerPerturbation):
            return -(-perturbation.upload_bits(perturbation.kept) // 8)
        return 4 * int(self.settings["sent"])

    @property
    def expected_bytes(self) -> int | None:
        """Of cohorts whose size varies, or in which somebody may be twice; None of others."""
        if not isinstance(self.chosen, Noisy) or isinstance(self.scheme, FixedSize | Everyone):
            return None
        members = self.chosen.expected_cohort or contributions(self.scheme, self.units)
        return self.rounds * members * (upload_size(0) + self._upload)

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return what the noisy average and its mask depend on; see ``Job``."""
        if not isinstance(self.chosen, Noisy):
            return {}
        known = {name: self.settings[name] for name in _PUBLIC}
        if adjacency == Adjacency.ADD_REMOVE:
            self._check_declared(self.chosen)
            del known["clients"]
        loop = self.loop(1.0, None)
        noise = loop.perturbation
        assert noise is not None
        known["denominator"] = denominator(self.scheme, noise, loop.expected_cohort, self.units)
        if isinstance(noise, AdaptiveClipping):
            known |= {name: self.settings[name] for name in Adaptive.known()}
        if getattr(noise.sparsification, "sparsifier", None) == "top_k":
            known["public records"] = len(self.source.public()[1])
        return known | {"classes": self.source.classes}

    def _check_declared(self, chosen: Noisy) -> None:
        """Refuse what follows the number of clients, in which add_remove neighbours differ."""
        if isinstance(self.scheme, FixedSize | WithReplacement):
            rule = "not be drawn from the number of clients, in which add_remove neighbours differ"
            way_out = f"{_DECLARE}, without strategy, or account for zero_out"
            refuse("cohorts", str(self.scheme), rule, way_out)
        declared = (self.chosen.sampling_probability, chosen.expected_cohort)
        if None in declared:
            rule = "be declared: add_remove neighbours differ in the number of clients, which"
            rule += " would set them"
            way_out = f"{_DECLARE}, or account for zero_out"
            refuse("sampling_probability, expected_cohort", declared, rule, way_out)

    def run(self, level: float) -> Mechanism:
        """Return the run; sparsifying and the clip norm cancel out of its privacy loss."""
        one = self.loop(level, None).round_mechanism
        assert one is not None
        return one * self.rounds

    def scores(self, loop: FederatedAveraging, state: State) -> dict[str, float]:
        """Return accuracy and mean cross-entropy."""
        accuracy, loss = loop.evaluate(state, self.data)
        return {"accuracy": accuracy, "nll": loss}


def _nobody_away(chosen: object, rule: str, way_out: str) -> None:
    for name in _AWAY:
        if getattr(chosen, name):
            refuse(name, getattr(chosen, name), rule, way_out)


_USUAL: dict[str, Any] = {
    "learning_rate": 0.1,
    "server_learning_rate": 1.0,
    "rounds": 50,
    "clip_norm": 1.0,
    "cohort": 100,
    "local_epochs": 1,
}
_PRESETS: dict[str, dict[str, Any]] = {
    "digits": {"learning_rate": 2.0, "rounds": 40, "clip_norm": 3.0},
    "fashion-mnist": {
        "cohort": 200,
        "local_steps": 4,
        "local_epochs": None,
        "learning_rate": 0.2,
        "server_learning_rate": 2.0,
        "rounds": 60,
    },
}
"""What is other than usual, by data set."""


def preset_for(
    data: FederatedData, model: ModelFactory | None, given: Mapping[str, Any]
) -> tuple[ModelFactory, dict[str, Any]]:
    """Return a model and settings for a data set, but for those that are given.

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
        model: builds a module for them; None for the one that goes with the data.
        given: settings by name, which stand.
    """
    features, clients = data.test_features[0].numel(), data.population
    chosen = _USUAL | (_PRESETS.get(data.name, {}) if model is None else {})
    chosen["cohort"] = min(chosen["cohort"], clients)
    if model is None and data.name == "fashion-mnist":
        model = mlp(features, data.classes, hidden=(32,))
    # Each of these says by itself what the preset would say another way.
    if "sampling_probability" in given or given.get("strategy") == "everyone":
        del chosen["cohort"]
    if {"local_steps", "local_epochs"} & set(given):
        chosen |= {"local_steps": None, "local_epochs": None}
    return model or logistic(features, data.classes), {**chosen, **given}
