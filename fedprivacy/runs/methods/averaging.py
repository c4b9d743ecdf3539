"""Averaging: the settings of its methods, and the job that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ...audit.canaries import AttackSettings, Planted, crafted_canaries, random_directions
from ...errors import listed, positive, refuse
from ...factors.optimise import Progress
from ...mechanisms import (
    AdaptiveClipping,
    DistributedDiscreteGaussian,
    Gaussian,
    IntegerPerturbation,
    Mechanism,
    Skellam,
    Sparsification,
    SparsifiedPerturbation,
)
from ...relations import Adjacency, Unit
from ...sampling import Everyone, FixedSize, Poisson, Scheme, WithReplacement
from ...systems.settings import (
    COUNT,
    NON_NEGATIVE,
    OPEN_SHARE,
    POSITIVE,
    SHARE,
    WHOLE,
    SettingRule,
    Settings,
    setting,
)
from .base import Method, knob
from .canaries import level_for

if TYPE_CHECKING:
    from ...systems.averaging.loop import FederatedAveraging, State
    from ...training.data import FederatedData
    from ...training.models import ModelFactory

STRATEGIES = ("poisson", "fixed", "with-replacement", "everyone")
"""How the clients of a round are drawn, with the names of ``fedprivacy audit --sampling``."""

_NUMBERED = {"1": "with-replacement", "2": "fixed"}
"""The numbers of two of them in the paper on two-sided FedAvg."""


def _strategy(*, strategy: object) -> str:
    # Tables and command lines may also give 1 as 1.0.
    name = str(strategy).strip().removesuffix(".0")
    if _NUMBERED.get(name, name) not in STRATEGIES:
        refuse("strategy", strategy, f"be one of {listed(STRATEGIES)}")
    return _NUMBERED.get(name, name)


NOISES = ("gaussian", "discrete-gaussian", "skellam")
"""Laws of the noise on a sum: floating-point for the first, integers for the others."""


def _noise(*, noise: object) -> str:
    if noise not in NOISES:
        refuse("noise", noise, f"be one of {listed(NOISES)}")
    return str(noise)


NOISE = SettingRule(f"one of {', '.join(NOISES)}", _noise, str)
STRATEGY = SettingRule(f"one of {', '.join(STRATEGIES)}", _strategy, str)


@dataclass(frozen=True, kw_only=True)
class AveragingSettings(Settings):
    """Settings of every averaging method. None means the default of the data set."""

    rounds: int | None = setting(COUNT, "number of rounds", default=None, symbol="T")
    cohort: int | None = setting(
        COUNT, "clients of a round; their mean if the number varies", default=None, symbol="r"
    )
    strategy: str = setting(STRATEGY, "sampling of a round's clients", default="poisson")
    sampling_probability: float | None = setting(
        SHARE,
        "of Poisson sampling; a public number that does not depend on the number of clients, "
        "which add_remove needs; instead of cohort",
        default=None,
    )
    local_steps: int | None = setting(
        COUNT,
        "mini-batch steps of a client in a round; instead of local_epochs",
        default=None,
        symbol="K",
    )
    local_epochs: int | None = setting(
        COUNT, "passes over a client's records in a round", default=None
    )
    batch_size: int = setting(COUNT, "records of a mini-batch", default=32)
    learning_rate: float | None = setting(
        POSITIVE, "of a client, in round 1", default=None, symbol="eta_L"
    )
    learning_rate_decay: float = setting(
        SHARE, "factor on the learning rate after every round", default=1.0
    )
    momentum: float = setting(NON_NEGATIVE, "of a client, from rest in every round", default=0.0)
    proximal: float = setting(
        NON_NEGATIVE,
        "of FedProx, which pulls a client towards the round's start",
        default=0.0,
        symbol="mu",
    )
    server_learning_rate: float | None = setting(
        POSITIVE, "factor on the averaged update", default=None, symbol="eta"
    )


@dataclass(frozen=True, kw_only=True)
class Clipped(Settings):
    """Settings of averaging with clipped and noised contributions."""

    clip_norm: float | None = setting(
        POSITIVE, "clip norm of a client's contribution", default=None, symbol="C"
    )
    expected_cohort: int | None = setting(
        COUNT, "public denominator of the noisy sum, which add_remove needs", default=None
    )


@dataclass(frozen=True, kw_only=True)
class Noisy(Clipped):
    """Additional settings of averaging with noise."""

    missing: int = setting(WHOLE, "clients of a cohort that may fail to answer", default=0)
    absent: int = setting(WHOLE, "clients that may be always absent", default=0)
    colluding: int = setting(WHOLE, "clients whose noise shares the observer may know", default=0)


@dataclass(frozen=True, kw_only=True)
class Adaptive(Settings):
    """Settings of averaging with a clip norm that follows a quantile of the updates' norms."""

    clip_quantile: float | None = setting(
        OPEN_SHARE,
        "target share of updates within the clip norm, which adapts to it from clip_norm on",
        default=None,
    )
    clip_bits_share: float = setting(
        OPEN_SHARE, "of the budget, for the bits that adapt the clip norm", default=0.01
    )
    clip_learning_rate: float = setting(
        POSITIVE, "step size of the logarithm of the clip norm", default=0.2
    )


@dataclass(frozen=True, kw_only=True)
class Sparse(Settings):
    """Additional settings of sparsified averaging."""

    kept_fraction: float = setting(
        SHARE, "share of the coordinates that are sent", default=0.4, symbol="p = k / d"
    )
    mask_epochs: int | None = setting(
        COUNT,
        "passes over the public records for top-k's mask; default: as the clients",
        default=None,
        symbol="tau_p",
    )


@dataclass(frozen=True, kw_only=True)
class IntegerNoise(Settings):
    """Settings of averaging with sums over integers."""

    noise: str = setting(
        NOISE, "distribution of the noise; all but gaussian draw integers", default="gaussian"
    )
    bits: int | None = setting(
        COUNT, "integers are summed modulo 2^bits; default: 16", default=None
    )


NOISE_KNOB = knob("noise_multiplier", "std of the noise on the sum, divided by the clip norm")
"""The knob of every averaging method with noise."""

_PUBLIC = ("clients", "cohorts", "rounds", "clip_norm", "parameters", "sent")
"""Settings of averaging that its release depends on. Clients keep the others to themselves."""

_LOOP = (
    *("learning_rate", "learning_rate_decay", "server_learning_rate", "momentum"),
    *("local_steps", "local_epochs", "mask_epochs", "batch_size", "expected_cohort", "proximal"),
)
"""Settings of averaging that are passed to the loop unchanged."""

_LEFT_OUT_IF_ZERO = ("missing", "absent", "colluding", "proximal")
"""Settings that are reported only if they are not 0."""

_AWAY = ("missing", "absent", "colluding")
"""Numbers of clients that may not answer, or may reveal their noise; see ``Noisy``."""

_WHOLE = {"discrete-gaussian": DistributedDiscreteGaussian, "skellam": Skellam}
"""Perturbations with integer noise, by the law of the noise."""

_SIZED: dict[str, Callable[..., Scheme]] = {"with-replacement": WithReplacement, "fixed": FixedSize}
"""Strategies that draw cohorts of one size."""

_BITS = 16
"""Default number of bits of an integer."""

_DECLARE = "pass public numbers: --set sampling_probability=0.1 --set expected_cohort=40"


@dataclass(frozen=True, kw_only=True)
class AveragingJob:
    """FedAvg, DP-FedAvg or Fed-SMP; the unit is a client.

    Args:
        source: the clients and their records.
        method: an averaging method.
        model: builds the module.
        chosen: its settings. With the settings of ``Noisy`` it is private. With those of
            ``Sparse``, a share of the coordinates is sent.
        progress: gets the finished share of the search for the noise's factor.

    Raises:
        ParameterError: settings that exclude each other or do not fit the data; clients that may be
            away while cohorts vary in size and the noise is topped up.
    """

    source: FederatedData
    method: Method
    model: ModelFactory
    chosen: AveragingSettings
    progress: Progress | None = field(default=None, compare=False)
    unit = Unit.CLIENT
    adjacency = Adjacency.ZERO_OUT
    default_clients: ClassVar[int | None] = None

    presets: ClassVar[Mapping[str, Any]] = {}
    """Settings of the method that are used unless others are given."""

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
        # Passes that are given replace the steps of a preset.
        usual = {} if "local_epochs" in given else cls.presets
        factory, values = preset_for(source, model, {**usual, **given})
        known = {name: values[name] for name in method.settings.known() if name in values}
        chosen = method.of(known)
        assert isinstance(chosen, AveragingSettings)
        job = cls(source=source, method=method, model=factory, chosen=chosen, progress=progress)
        # Builds the loop, so wrong settings are refused here.
        _ = job.settings
        return job

    @property
    def knob(self) -> str | None:
        """The noise multiplier."""
        return self.method.knob_name

    @property
    def rounds(self) -> int:
        """The chosen number of rounds."""
        assert self.chosen.rounds is not None
        return self.chosen.rounds

    @property
    def data(self) -> FederatedData:
        """The source itself."""
        return self.source

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the loop, of clipping, and of sparsification."""
        return self.averaging_settings

    @property
    def averaging_settings(self) -> dict[str, Any]:
        """The same settings, for every averaging job."""
        # Any level will do: no setting depends on it.
        loop = self.loop(None if self.knob is None else 1.0, None)
        names = [n for n in _LOOP if getattr(loop, n) is not None and n not in _LEFT_OUT_IF_ZERO]
        found = {"clients": self.units, "cohorts": str(loop.scheme), "rounds": self.rounds}
        found |= self._perturbed(loop.perturbation)
        found |= {"parameters": loop.flat.dimension, "sent": self._kept(loop.flat.dimension)}
        # Zero is the default and is not reported.
        found |= {
            name: value for name in _LEFT_OUT_IF_ZERO if (value := getattr(self.chosen, name, 0))
        }
        return found | {name: getattr(loop, name) for name in names}

    def _perturbed(self, what: object) -> dict[str, Any]:
        """Return the reported settings of clipping and noise."""
        if isinstance(what, AdaptiveClipping):
            names = Adaptive.known()
            return {"clip_norm": what.clip_norm} | {n: getattr(self.chosen, n) for n in names}
        if isinstance(what, IntegerPerturbation):
            noise = getattr(self.chosen, "noise", None)
            return {"clip_norm": what.clip_norm, "noise": noise, "bits": what.bits}
        if isinstance(what, SparsifiedPerturbation | Gaussian):
            return {"clip_norm": what.clip_norm}
        return {}

    @property
    def units(self) -> int:
        """Number of clients."""
        return self.source.population

    def declared_units(self, adjacency: Adjacency | str) -> float:
        """Return the number of clients; under add_remove the declared number."""
        chance = self.chosen.sampling_probability
        if adjacency != Adjacency.ADD_REMOVE or self.knob is None or chance is None:
            return self.units
        return float(self.public(adjacency)["denominator"] / chance)

    @cached_property
    def scheme(self) -> Scheme:
        """How the clients of a round are drawn."""
        chosen, everybody = self.chosen, self.units
        if chosen.sampling_probability is not None:
            rule = "be left out, since sampling_probability states the sampling"
            if chosen.cohort:
                refuse("cohort", chosen.cohort, rule)
            if chosen.strategy not in (None, "poisson"):
                refuse("strategy", chosen.strategy, rule)
            return Poisson(chosen.sampling_probability)
        if chosen.strategy == "everyone":
            return Everyone()
        cohort = chosen.cohort
        assert cohort is not None
        # Draws with replacement may exceed the number of clients, within a limit.
        most = 1000 * everybody if chosen.strategy == "with-replacement" else everybody
        if cohort > most:
            refuse("cohort", cohort, f"be at most the number of clients, {everybody}")
        if chosen.strategy not in _SIZED:
            return Poisson(cohort / everybody)
        return _SIZED[chosen.strategy](cohort, population=everybody)

    def loop(self, level: float | None, seed: int | None) -> FederatedAveraging:
        """Return the method's loop, with a noise multiplier if it is private."""
        # Built once, because it builds a model. Variants replace fields.
        plain = self._plain
        if seed is not None:
            plain = replace(plain, seed=seed)
        dimension = plain.flat.dimension
        sparsifier = "top_k" if self.method.name.endswith("top-k") else "rand_k"
        if sparsifier == "top_k":
            # Raises if there are no public data for a mask.
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
        return self._kind()(model=self.model, scheme=self.scheme, **settings)

    def _kind(self) -> type[FederatedAveraging]:
        """Return the class of the loop, which needs torch."""
        from ...training import FederatedAveraging

        return FederatedAveraging

    def _kept(self, dimension: int) -> int:
        """Return the number of coordinates that are sent."""
        return max(1, round(getattr(self.chosen, "kept_fraction", 1.0) * dimension))

    def _perturbation(
        self, level: float | None, dimension: int, sparsifier: str
    ) -> SparsifiedPerturbation | AdaptiveClipping:
        """Return the clipping and noise; DP-FedAvg keeps every coordinate."""
        chosen = self.chosen
        assert isinstance(chosen, Noisy) and chosen.clip_norm is not None
        if isinstance(chosen, Adaptive) and chosen.clip_quantile is not None:
            return self._adaptive(chosen, positive(noise_multiplier=level), chosen.clip_norm)
        # Poisson cohorts vary in size, so equal shares would not add up to the stated noise.
        topped_up = isinstance(self.scheme, Poisson)
        if topped_up:
            rule = "be 0 for Poisson cohorts with topped-up noise"
            _check_all_answer(chosen, rule, "use strategy=fixed for cohorts of a fixed size")
        declared = chosen.expected_cohort if topped_up else None
        from ...systems.averaging.server import contributions

        kind, bits = self._noise()
        return kind(
            noise_multiplier=positive(noise_multiplier=level),
            clip_norm=chosen.clip_norm,
            kept=self._kept(dimension),
            dimension=dimension,
            # A declared number is used if the cohort must not follow the number of clients.
            cohort=declared or contributions(self.scheme, self.units),
            sparsifier=sparsifier,
            topped_up=topped_up,
            **{name: getattr(chosen, name) for name in _AWAY},
            **bits,
        )

    def _noise(self) -> tuple[type[SparsifiedPerturbation], dict[str, int]]:
        """Return the perturbation for the law of the noise, and the bits of its integers."""
        chosen = self.chosen
        noise = chosen.noise if isinstance(chosen, IntegerNoise) else "gaussian"
        bits = chosen.bits if isinstance(chosen, IntegerNoise) else None
        if noise == "gaussian":
            if bits is not None:
                rule = "be left out, since gaussian noise is not an integer"
                refuse("bits", bits, rule, f"choose noise from {listed(_WHOLE)}")
            return SparsifiedPerturbation, {}
        return _WHOLE[noise], {"bits": bits or _BITS}

    def _adaptive(self, chosen: Adaptive, level: float, clip_norm: float) -> AdaptiveClipping:
        """Return clipping to a norm that follows a quantile; its noise is drawn in one piece."""
        assert chosen.clip_quantile is not None
        rule = "be 0 with clip_quantile, which has no noise shares"
        _check_all_answer(chosen, rule, "leave out clip_quantile")
        for name, usual in (("noise", "gaussian"), ("bits", None)):
            if getattr(chosen, name, usual) != usual:
                rule = f"be {usual or 'left out'} with clip_quantile"
                refuse(name, getattr(chosen, name), rule, "leave out clip_quantile")
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
        """Average upload of a client in the whole run, in MB, without headers."""
        chance = self.chosen.sampling_probability
        if chance is None:
            from ...systems.averaging.server import contributions

            chance = contributions(self.scheme, self.units) / self.units
        return 1e-6 * self._upload * self.rounds * chance

    @cached_property
    def _upload(self) -> int:
        """Upload of a client in a round, in bytes, without its header."""
        perturbation = self.loop(None if self.knob is None else 1.0, None).perturbation
        if isinstance(perturbation, IntegerPerturbation):
            return -(-perturbation.upload_bits(perturbation.kept) // 8)
        return 4 * int(self.settings["sent"])

    @property
    def expected_bytes(self) -> int | None:
        """Expected upload if cohorts vary in size or may repeat a client; otherwise None."""
        if not isinstance(self.chosen, Clipped) or isinstance(self.scheme, FixedSize | Everyone):
            return None
        from ...systems.averaging.server import contributions
        from ...training import upload_size

        members = self.chosen.expected_cohort or contributions(self.scheme, self.units)
        return self.rounds * members * (upload_size(0) + self._upload)

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return the numbers behind the noisy average and its mask; see ``Job``."""
        if not isinstance(self.chosen, Clipped):
            return {}
        known = {name: self.settings[name] for name in _PUBLIC}
        if adjacency == Adjacency.ADD_REMOVE:
            self._check_declared(self.chosen)
            del known["clients"]
        loop = self.loop(1.0, None)
        noise = loop.perturbation
        assert noise is not None
        from ...systems.averaging.server import denominator

        known["denominator"] = denominator(self.scheme, noise, loop.expected_cohort, self.units)
        if isinstance(noise, AdaptiveClipping):
            known |= {name: self.settings[name] for name in Adaptive.known()}
        if getattr(noise.sparsification, "sparsifier", None) == "top_k":
            known["public records"] = len(self.source.public()[1])
        return known | {"classes": self.source.classes}

    def _check_declared(self, chosen: Clipped) -> None:
        """Refuse settings that follow the number of clients: add_remove neighbours differ in it."""
        if isinstance(self.scheme, FixedSize | WithReplacement):
            rule = (
                "not depend on the number of clients, since neighbours under add_remove "
                "differ in it"
            )
            way_out = f"{_DECLARE}, without strategy, or account for zero_out"
            refuse("cohorts", str(self.scheme), rule, way_out)
        declared = (self.chosen.sampling_probability, chosen.expected_cohort)
        if None in declared:
            rule = (
                "be given, since neighbours under add_remove differ in the number of clients, which"
            )
            rule += " would determine them"
            way_out = f"{_DECLARE}, or account for zero_out"
            refuse("sampling_probability, expected_cohort", declared, rule, way_out)

    def run(self, level: float) -> Mechanism:
        """Return the run. Sparsification and the clip norm cancel out of its privacy loss."""
        one = self.loop(level, None).round_mechanism
        assert one is not None
        return one * self.rounds

    def scores(self, loop: FederatedAveraging, state: State) -> dict[str, float]:
        """Return accuracy and mean cross-entropy."""
        if not len(self.source.test_labels):
            return {}
        accuracy, loss = loop.evaluate(state, self.data)
        return {"accuracy": accuracy, "nll": loss}

    def planted(self, level: float | None, attack: AttackSettings) -> Planted:
        """Return the job with crafted clients in it; see ``runs.planting``."""
        level = level_for(self, level, attack)
        loop = self.loop(level, None)
        directions = random_directions(attack.canaries, loop.flat.dimension, attack.generator)
        train = crafted_canaries(loop, self.data, directions, attack.rounds)
        return Planted(train, directions, self.run(level), self.adjacency)


def _check_all_answer(chosen: object, rule: str, way_out: str) -> None:
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
"""Presets that differ from the defaults, by data set."""


def preset_for(
    data: FederatedData, model: ModelFactory | None, given: Mapping[str, Any]
) -> tuple[ModelFactory, dict[str, Any]]:
    """Return a model and settings for a data set; given settings override the preset.

    Digits: multinomial logistic regression (650 parameters), one pass over a client's images in
    each round, Poisson cohorts of 100 on average, 40 rounds. A larger clip norm adds more noise, a
    smaller one slows learning; 3 was the best of 2, 3 and 4 over all methods.

    Fashion-MNIST: a network with one hidden layer of 32 units (25,450 parameters), four full-batch
    steps in each round, Poisson cohorts of 200 on average, 60 rounds.

    Any other data or model gets a starting point, not the result of a search: multinomial logistic
    regression, one pass over a client's records, Poisson cohorts of 100 on average, 50 rounds.

    Args:
        data: the clients and their records.
        model: builds a module for them; None for the default of the data set.
        given: settings by name. They are kept.
    """
    from ...training import logistic, mlp

    features, clients = data.inputs, data.population
    chosen = _USUAL | (_PRESETS.get(data.name, {}) if model is None else {})
    chosen["cohort"] = min(chosen["cohort"], clients)
    if model is None and data.name == "fashion-mnist":
        model = mlp(features, data.classes, hidden=(32,))
    # Each of these settings replaces a setting of the preset.
    if "sampling_probability" in given or given.get("strategy") == "everyone":
        del chosen["cohort"]
    if {"local_steps", "local_epochs"} & set(given):
        chosen |= {"local_steps": None, "local_epochs": None}
    return model or logistic(features, data.classes), {**chosen, **given}
