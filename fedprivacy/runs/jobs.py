"""Whole tasks that a budget can be put on: data, a loop, and the parameter that pays for privacy.

Every method as ``fedprivacy train`` runs it. A job's *knob* is the parameter that is calibrated;
its value is the job's *level*. The other settings are the job's own, found to work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ..errors import integer, listed, refuse
from ..mechanisms import Mechanism, SparsifiedPerturbation
from ..relations import Adjacency, Unit
from ..sampling import Everyone, FixedSize, WithReplacement
from ..systems.averaging.loop import FederatedAveraging, State, contributions
from ..systems.averaging.upload import upload_size
from ..systems.fa_hmc.loop import HamiltonianSampling
from ..systems.fa_ld.loop import LangevinSampling
from ..systems.fed_plt.agents import AgentData, Logistic
from ..systems.fed_plt.loop import FederatedSplitting, SplittingState
from ..systems.fed_plt.solvers import LocalSolver
from ..training.chains import ChainState, Sampling
from ..training.data import FederatedData
from ..training.likelihoods import SoftmaxRegression
from ..training.posterior import Posterior
from ..training.predictive import predictive, score
from ..training.rounds import Loop
from .presets import LOOP_SETTINGS, METHODS, NOT_PRIVATE, PRIVATE, Preset, preset_for
from .sources import DATA, load_data, model_for

TITLES = {
    "fedavg": "FedAvg",
    "fedavg-top-k": "FedAvg top-k",
    "fedavg-rand-k": "FedAvg rand-k",
    "dp-fedavg": "DP-FedAvg",
    "fed-smp-top-k": "Fed-SMP top-k",
    "fed-smp-rand-k": "Fed-SMP rand-k",
    "fa-ld": "FA-LD",
    "fa-hmc": "FA-HMC",
    "fed-plt": "Fed-PLT",
}
"""Every method that can be trained, with its name for people."""

AGENTS = 10
"""How many share a data set where the unit is a record and nobody says otherwise."""

CENTRE = 0.3
"""Taken from every pixel before Fed-PLT's inputs are scaled into their ball."""

_WHOLE = (
    *("rounds", "cohort", "expected_cohort", "strategy"),
    *("local_steps", "local_epochs", "batch_size"),
)
"""Settings that are whole numbers."""

_FIXED = ("source", "hamiltonian")
"""What belongs to a job's method and data, and is no setting."""

T = TypeVar("T")


class Job(Protocol):
    """A task."""

    @property
    def knob(self) -> str | None:
        """The parameter that a budget sets; None where nothing is private."""

    @property
    def unit(self) -> Unit:
        """Whose data is protected."""

    @property
    def adjacency(self) -> Adjacency:
        """How neighbours differ where nobody says otherwise."""

    @property
    def rounds(self) -> int:
        """How many rounds are run."""

    @property
    def data(self) -> Any:
        """What the loop's ``step`` takes."""

    @property
    def source(self) -> FederatedData:
        """The clients and their records."""

    @property
    def settings(self) -> dict[str, Any]:
        """What is run, by name, but for the knob."""

    @property
    def units(self) -> int:
        """How many units there are."""

    @property
    def upload_per_client(self) -> float | None:
        """What a client sends in all rounds on average, in MB; None where that is not counted."""

    @property
    def expected_bytes(self) -> int | None:
        """What all send in all rounds as planned, where what they do send is left to chance."""

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return the numbers that the release depends on and that must be public, by name.

        Raises:
            ParameterError: neighbours differ in one of them.
        """

    def loop(self, level: float | None, seed: int | None) -> Loop[Any]:
        """Return the loop with the knob at a level."""

    def run(self, level: float) -> Mechanism:
        """Return all rounds as one mechanism."""

    def scores(self, loop: Any, state: Any) -> dict[str, float]:
        """Return how good a state is on the test set: accuracy, and what else there is."""


_PUBLIC = ("clients", "cohorts", "rounds", "clip_norm", "parameters", "sent")
"""Settings of averaging that its release depends on; the others clients keep to themselves."""

_DECLARE = "pass public numbers: --set sampling_probability=0.1 --set expected_cohort=40"

_AWAY = ("missing", "absent", "colluding")
"""How many clients may not answer, or may tell; see AveragingJob."""


@dataclass(frozen=True, kw_only=True)
class AveragingJob:
    """FedAvg, DP-FedAvg or Fed-SMP on a preset; the unit is a client.

    Args:
        preset: data and settings.
        method: one of ``presets.METHODS``.
        missing: how many clients of a cohort may fail to answer, at worst.
        absent: how many of all clients may be away, whoever is drawn.
        colluding: how many clients' shares of the noise the observer may know.

    Raises:
        ParameterError: one of these where cohorts vary in size and the noise is topped up.
    """

    preset: Preset
    method: str
    missing: int = 0
    absent: int = 0
    colluding: int = 0
    unit = Unit.CLIENT
    adjacency = Adjacency.ZERO_OUT

    @property
    def knob(self) -> str | None:
        """The noise multiplier."""
        return None if self.method in NOT_PRIVATE else "noise_multiplier"

    @property
    def rounds(self) -> int:
        """The preset's."""
        return self.preset.rounds

    @property
    def source(self) -> FederatedData:
        """The preset's data."""
        return self.preset.data

    @property
    def data(self) -> FederatedData:
        """The source itself."""
        return self.source

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Those of the loop, and what is clipped and kept."""
        loop = self.loop(None if self.knob is None else 1.0, None)
        names = [name for name in LOOP_SETTINGS if getattr(loop, name) is not None]
        found = {"clients": self.units, "cohorts": str(loop.scheme), "rounds": self.rounds}
        sparse = loop.perturbation or loop.sparsification
        if isinstance(loop.perturbation, SparsifiedPerturbation):
            found["clip_norm"] = loop.perturbation.clip_norm
        kept = getattr(sparse, "kept", loop.flat.dimension)
        found |= {"parameters": loop.flat.dimension, "sent": kept}
        found |= {name: getattr(self, name) for name in _AWAY if getattr(self, name)}
        return found | {name: getattr(loop, name) for name in names}

    @property
    def units(self) -> int:
        """The clients."""
        return self.source.population

    def loop(self, level: float | None, seed: int | None) -> FederatedAveraging:
        """Return the method's loop with a noise multiplier."""
        loop = self.preset.loop(self.method, noise_multiplier=level, seed=seed)
        if not isinstance(loop.perturbation, SparsifiedPerturbation):
            return loop
        away = {name: getattr(self, name) for name in _AWAY}
        for name, value in away.items():
            if value and loop.perturbation.topped_up:
                way_out = "strategy=2 draws cohorts of a fixed size"
                refuse(name, value, "be 0 where Poisson cohorts have topped-up noise", way_out)
        return replace(loop, perturbation=replace(loop.perturbation, **away))

    @property
    def upload_per_client(self) -> float:
        """What a client sends in the whole run on average, in MB: the paper's 32 k T r / n bits."""
        chance = self.preset.sampling_probability
        if chance is None:
            chance = contributions(self.preset.scheme, self.units) / self.units
        return 4e-6 * float(self.settings["sent"]) * self.rounds * chance

    @property
    def expected_bytes(self) -> int | None:
        """Of cohorts whose size varies, or in which somebody may be twice; None of others."""
        scheme = self.preset.scheme
        if self.knob is None or isinstance(scheme, FixedSize | Everyone):
            return None
        members = self.preset.averaging.expected_cohort or contributions(scheme, self.units)
        return self.rounds * members * upload_size(int(self.settings["sent"]))

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return what the noisy average and its mask depend on; see ``Job``."""
        if self.knob is None:
            return {}
        if adjacency == Adjacency.ADD_REMOVE:
            self._check_declared()
        known = {name: self.settings[name] for name in _PUBLIC if name in self.settings}
        if adjacency == Adjacency.ADD_REMOVE:
            del known["clients"]
        loop = self.loop(1.0, None)
        assert isinstance(loop.perturbation, SparsifiedPerturbation)
        known["denominator"] = loop.expected_cohort or loop.perturbation.cohort
        if self.method == "fed-smp-top-k":
            known["public records"] = len(self.source.public()[1])
        return known | {"classes": self.source.classes}

    def _check_declared(self) -> None:
        """Refuse what follows the number of clients, in which add_remove neighbours differ."""
        preset = self.preset
        scheme = preset.scheme
        if isinstance(scheme, FixedSize | WithReplacement):
            rule = "not be drawn from the number of clients, in which add_remove neighbours differ"
            way_out = f"{_DECLARE}, without strategy, or account for zero_out"
            refuse("cohorts", str(scheme), rule, way_out)
        declared = (preset.sampling_probability, preset.averaging.expected_cohort)
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


@dataclass(frozen=True, kw_only=True)
class _RecordJob(ABC):
    """A job whose unit is a record.

    Args:
        source: the clients and their records.
    """

    source: FederatedData
    unit = Unit.RECORD
    adjacency = Adjacency.REPLACE_ONE

    @property
    def upload_per_client(self) -> None:
        """Not counted: the papers on samplers and splitting do not."""
        return None

    @property
    def expected_bytes(self) -> None:
        """Everybody uploads in every round: nothing is left to chance."""
        return None

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return what uploads depend on; the sizes of all clients, which replacing keeps."""
        if adjacency == Adjacency.ADD_REMOVE:
            rule = "be replace_one: an upload follows the client's number of records"
            refuse("adjacency", str(adjacency), rule)
        sizes = sorted(map(len, self.source.clients))
        each = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        return self.settings | {"records of a client": each, "classes": self.source.classes}

    @property
    @abstractmethod
    def knob(self) -> str:
        """Every job's own."""

    @property
    def settings(self) -> dict[str, Any]:
        """The job's fields, but for its data and its knob."""
        held = {"clients": self.source.population, "records": self.units}
        own = [field.name for field in fields(self) if field.name not in (*_FIXED, self.knob)]
        return held | {name: getattr(self, name) for name in own}

    @property
    def units(self) -> int:
        """The records."""
        return sum(map(len, self.source.clients))


@dataclass(frozen=True, kw_only=True)
class SamplingJob(_RecordJob):
    """A Bayesian multinomial logistic regression, sampled by FA-LD or FA-HMC; unit: a record.

    The prior is N(0, 1) for every weight, records' gradients are clipped, everybody takes part in
    every round, and the second half of the positions is kept. FA-LD pays with smaller steps,
    FA-HMC, with more than one leapfrog step, with noise on its gradients.

    Args:
        source: the clients and their records.
        hamiltonian: whether it is FA-HMC.
        rounds: at least 2.
        clip_norm: of a record's gradient.
        local_steps: steps, or leapfrog steps, between two uploads.
        step_size: FA-HMC's; FA-LD's is its knob.
        correlation: share of the noise (FA-HMC: of the momentum's variance) that is common.
    """

    hamiltonian: bool
    rounds: int
    clip_norm: float
    local_steps: int
    step_size: float = 0.05
    correlation: float = 0.0

    @property
    def knob(self) -> str:
        """FA-LD's step size, FA-HMC's noise on gradients."""
        return "gradient_noise_multiplier" if self.hamiltonian else "step_size"

    @cached_property
    def model(self) -> SoftmaxRegression:
        """The likelihood."""
        return SoftmaxRegression(self.source.features[0].numel(), self.source.classes)

    @cached_property
    def data(self) -> Posterior:
        """What is sampled from."""
        return Posterior(model=self.model, data=self.source, clip_norm=self.clip_norm)

    def loop(self, level: float | None, seed: int | None) -> Sampling:
        """Return the chain with its knob at a level."""
        if level is None:
            refuse(str(self.knob), None, "be given", "a sampler here is always private")
        kept = max(1, self.rounds // 2)
        common: dict[str, Any] = {
            "target": self.data,
            "correlation": self.correlation,
            "draws": kept,
            "burn_in": self.rounds - kept,
            "seed": seed,
        }
        if not self.hamiltonian:
            return LangevinSampling(step_size=level, local_steps=self.local_steps, **common)
        return HamiltonianSampling(
            step_size=self.step_size,
            leapfrog_steps=self.local_steps,
            gradient_noise_multiplier=level,
            **common,
        )

    def run(self, level: float) -> Mechanism:
        """Return the run of one chain."""
        return self.loop(level, None).run(self.rounds)

    def scores(self, loop: Sampling, state: ChainState) -> dict[str, float]:
        """Return the posterior predictive's accuracy, Brier score, calibration error and NLL.

        Before the first kept position, those of the position itself.
        """
        del loop
        kept = torch.isfinite(state.draws).all(-1)
        draws = state.draws if bool(kept.any()) else state.positions[:, None]
        features = self.source.test_features.flatten(1)
        found = score(predictive(self.model.logits, draws, features), self.source.test_labels)
        return {name.name: getattr(found, name.name) for name in fields(found)}


@dataclass(frozen=True, kw_only=True)
class SplittingJob(_RecordJob):
    """Regularised logistic regression by Fed-PLT: odd classes against even; unit: a record.

    Inputs are scaled into a ball, so the loss has a sensitivity of its own and nothing is clipped.

    Args:
        source: the clients and their records.
        rounds: at least 1.
        local_steps: N_e.
        penalty: rho.
        regularisation: strong convexity of every agent's loss.
        feature_bound: radius of the ball.
    """

    rounds: int
    local_steps: int = 5
    penalty: float = 3.0
    regularisation: float = 0.003
    feature_bound: float = 2.0

    @property
    def knob(self) -> str:
        """The noise scale tau."""
        return "noise_scale"

    @cached_property
    def loss(self) -> Logistic:
        """Every agent's."""
        return Logistic(regularisation=self.regularisation, feature_bound=self.feature_bound)

    @cached_property
    def data(self) -> AgentData:
        """The agents' records."""
        inputs, targets = _inputs(self.source.features), _parities(self.source.labels)
        owned = [torch.from_numpy(rows) for rows in self.source.clients]
        return AgentData.of([(inputs[rows], targets[rows]) for rows in owned])

    def loop(self, level: float | None, seed: int | None) -> FederatedSplitting:
        """Return the loop with a noise scale."""
        if level is None:
            refuse(self.knob, None, "be given", "Fed-PLT here is always private")
        solver = LocalSolver(method="noisy", steps=self.local_steps, noise_scale=level)
        return FederatedSplitting(
            loss=self.loss,
            records=self.data.records,
            dimension=self.loss.dimension(self.data),
            penalty=self.penalty,
            solver=solver,
            seed=seed,
        )

    def run(self, level: float) -> Mechanism:
        """Return the run."""
        one = self.loop(level, None).round_mechanism
        assert one is not None
        return one * self.rounds

    def scores(self, loop: FederatedSplitting, state: SplittingState) -> dict[str, float]:
        """Return the accuracy of the coordinator's model."""
        side = (_inputs(self.source.test_features) @ loop.consensus(state)).sign()
        truth = _parities(self.source.test_labels)
        return {"accuracy": float((side == truth).double().mean())}


def _inputs(features: Tensor) -> Tensor:
    """Return the inputs in float64, less the centre, with a 1 behind for the intercept."""
    flat = features.flatten(1).double() - CENTRE
    return torch.cat([flat, flat.new_ones(len(flat), 1)], 1)


def _parities(labels: Tensor) -> Tensor:
    return torch.where(labels % 2 == 0, 1.0, -1.0).double()


def job(
    method: str,
    data: str | FederatedData = "digits",
    *,
    data_dir: str | Path | None = None,
    clients: int | None = None,
    classes_per_client: int | None = None,
    model: str | None = None,
    rounds: int | None = None,
    **settings: Any,
) -> Job:
    """Return a method's job on a data set, with settings that work or, for own data, may work.

    Args:
        method: one of ``TITLES``.
        data: "digits" (of scikit-learn), "fashion-mnist", a file, or data that are loaded; see
            ``load_data``, as for the next three.
        data_dir: where Fashion-MNIST's files are.
        clients: how many share the records.
        classes_per_client: how many classes a client has.
        model: "logistic", "mlp", "cnn" or "FILE.py:NAME"; averaging methods only.
        rounds: None for the job's own.
        settings: other fields of the job to change: ``missing``, ``absent``, those of ``Preset``
            and ``presets.LOOP_SETTINGS``, such as ``clip_norm``, ``cohort``, ``strategy``,
            ``server_learning_rate``, and ``sampling_probability`` and ``expected_cohort``, which
            add_remove needs (averaging); ``clip_norm``, ``local_steps``, ``step_size``,
            ``correlation`` (samplers); ``local_steps``, ``penalty``, ``regularisation``,
            ``feature_bound`` (Fed-PLT).

    Raises:
        ParameterError: an unknown method, data set or model, or a setting that the job does not
            have.
    """
    if method not in TITLES:
        refuse("method", method, f"be one of {listed(TITLES)}")
    if rounds is not None:
        settings["rounds"] = rounds
    settings |= {name: integer(1, **{name: settings[name]}) for name in _WHOLE if name in settings}
    _check_use(method, settings)
    averaging = method in METHODS
    if model is not None and not averaging:
        rule = "be left out: this method has a model of its own"
        refuse("model", model, rule, "from Python, Posterior and FederatedSplitting take others")
    if clients is None and not averaging and isinstance(data, str) and data in DATA:
        clients = AGENTS
    records = load_data(
        data, data_dir=data_dir, clients=clients, classes_per_client=classes_per_client
    )
    if averaging:
        away = {name: integer(0, **{name: settings.pop(name, 0)}) for name in _AWAY}
        preset = preset_for(records, model_for(model, records)).changed(**settings)
        task = AveragingJob(preset=preset, method=method, **away)
        _ = task.settings
        return task
    if method == "fed-plt":
        return _with(SplittingJob(source=records, rounds=40), settings)
    if method == "fa-hmc":
        return _with(
            SamplingJob(source=records, hamiltonian=True, rounds=40, clip_norm=1.0, local_steps=2),
            settings,
        )
    if "step_size" in settings:
        refuse("step_size", settings["step_size"], "be left out", "it is FA-LD's knob: give level")
    return _with(
        SamplingJob(source=records, hamiltonian=False, rounds=50, clip_norm=0.5, local_steps=10),
        settings,
    )


def _check_use(method: str, settings: dict[str, Any]) -> None:
    """Refuse what a method would take and not use."""
    users: dict[str, Collection[str]] = {
        "kept_fraction": [m for m in METHODS if m.endswith("-k")],
        "clip_norm": PRIVATE,
        "expected_cohort": PRIVATE,
    }
    for name, methods in users.items():
        if name in settings and method in METHODS and method not in methods:
            refuse(name, settings[name], f"be left out: {method} does not use it")
    for name in _AWAY:
        if settings.get(name) and method in NOT_PRIVATE:
            refuse(name, settings[name], f"be left out: {method} does not use it")


def _with(value: T, changed: dict[str, Any]) -> T:
    known = [field.name for field in fields(value) if field.name not in _FIXED]  # type: ignore[arg-type]
    for name in changed:
        if name not in known:
            refuse("setting", name, f"be one of {listed(known)}")
    return replace(value, **changed)  # type: ignore[type-var]
