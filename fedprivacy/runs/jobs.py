"""Complete tasks for a budget: data, a loop, and the parameter that sets the privacy.

This covers every method of ``fedprivacy train``. The *knob* of a job is the calibrated parameter.
The *level* is its value. The other settings are in ``methods``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor

from ..errors import positive, refuse
from ..factors.optimise import Progress
from ..mechanisms import Mechanism
from ..relations import Adjacency, Unit
from ..systems.fa_hmc.loop import HamiltonianSampling
from ..systems.fa_ld.loop import LangevinSampling
from ..systems.fed_plt.agents import AgentData, Logistic, ModuleLoss
from ..systems.fed_plt.loop import FederatedSplitting, SplittingState
from ..systems.fed_plt.solvers import LocalSolver
from ..systems.settings import Settings
from ..training.chains import ChainState, SamplingLoop
from ..training.data import FederatedData
from ..training.diagnostics import diagnose
from ..training.likelihoods import SoftmaxRegression
from ..training.models import ModelFactory
from ..training.posterior import Posterior
from ..training.predictions import predictive, score
from ..training.rounds import Loop
from .averaging_job import AveragingJob
from .correlated_job import CorrelatedJob
from .methods import DpFtrl, Hamiltonian, Langevin, Method, Splitting, method_named
from .own_data import posterior_at
from .sources import DATA, load_data, model_for

AGENTS = 10
"""Default number of agents for a data set if the unit is a record."""

CENTRE = 0.3
"""Subtracted from every pixel before Fed-PLT scales the inputs into their ball."""

OWN_SPLITTING = {"clip_norm": 1.0, "step_size": 0.1}
"""Starting values for a module in Fed-PLT: its curvature and sensitivity are unknown."""

S = TypeVar("S", bound=Settings)


class Job(Protocol):
    """A task."""

    @property
    def method(self) -> Method:
        """The training method."""

    @property
    def knob(self) -> str | None:
        """The parameter that a budget sets; None if the job is not private."""

    @property
    def unit(self) -> Unit:
        """The protected unit."""

    @property
    def adjacency(self) -> Adjacency:
        """The default adjacency."""

    @property
    def rounds(self) -> int:
        """Number of rounds."""

    @property
    def data(self) -> Any:
        """The data argument of the loop's ``step``."""

    @property
    def source(self) -> FederatedData:
        """The clients and their records."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the knob."""

    @property
    def units(self) -> int:
        """Number of units."""

    def declared_units(self, adjacency: Adjacency | str) -> float:
        """Return the number of units, or a declared number if the adjacency hides the count."""

    @property
    def upload_per_client(self) -> float | None:
        """Average upload of a client over all rounds, in MB; None if it is not counted."""

    @property
    def expected_bytes(self) -> int | None:
        """Planned upload of all clients over all rounds, if the actual upload is random."""

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return the numbers that the release depends on and that must be public, by name.

        Raises:
            ParameterError: neighbouring data sets differ in one number.
        """

    def loop(self, level: float | None, seed: int | None) -> Loop[Any]:
        """Return the loop with the knob at a level."""

    def run(self, level: float) -> Mechanism:
        """Return all rounds as one mechanism."""

    def scores(self, loop: Any, state: Any) -> dict[str, float]:
        """Return the scores of a state on the test set: accuracy, and others if there are any."""


@dataclass(frozen=True, kw_only=True)
class _RecordJob(ABC, Generic[S]):
    """A job whose unit is a record.

    Args:
        method: the training method.
        source: the clients and their records.
        chosen: the method's settings.
    """

    method: Method
    source: FederatedData
    chosen: S
    unit = Unit.RECORD
    adjacency = Adjacency.REPLACE_ONE

    @classmethod
    def of(
        cls,
        method: Method,
        source: FederatedData,
        model: ModelFactory | None,
        given: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Self:
        """Return the method's job with some settings given. No search is needed."""
        del progress
        return cls(method=method, source=source, **cls._chosen(method, model, given))

    @classmethod
    def _chosen(
        cls, method: Method, model: ModelFactory | None, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields that follow from settings and model."""
        del model
        return {"chosen": method.of(given)}

    @property
    def knob(self) -> str | None:
        """The knob of the method."""
        return self.method.knob_name

    @property
    def rounds(self) -> int:
        """The chosen number of rounds."""
        return int(self.settings["rounds"])

    # Not counted: the papers on samplers and splitting do not count it.
    upload_per_client: ClassVar[None] = None

    # Every client uploads in every round, so the upload is not random.
    expected_bytes: ClassVar[None] = None

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return the numbers behind the uploads, with all client sizes, which replacement keeps."""
        if adjacency == Adjacency.ADD_REMOVE:
            rule = "be replace_one, since an upload depends on the number of records of the client"
            refuse("adjacency", str(adjacency), rule)
        sizes = sorted(map(len, self.source.clients))
        each = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        return self.settings | {"records of a client": each, **self._classes}

    @property
    def _classes(self) -> dict[str, Any]:
        """Return the number of classes of the likelihood, if it has classes."""
        return {"classes": self.source.classes}

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen settings, and the numbers of clients and records."""
        return {"clients": self.source.population, "records": self.units, **self.chosen.values()}

    @property
    def units(self) -> int:
        """Number of records."""
        return sum(map(len, self.source.clients))

    def declared_units(self, adjacency: Adjacency | str) -> float:
        """Return the number of records. It is public, because add_remove is refused."""
        del adjacency
        return self.units

    @abstractmethod
    def loop(self, level: float | None, seed: int | None) -> Any:
        """Return the loop with the knob at a level; see ``Job``."""

    def run(self, level: float) -> Mechanism:
        """Return all rounds as one mechanism."""
        one = self.loop(level, None).round_mechanism
        assert one is not None
        whole: Mechanism = one * self.rounds
        return whole


@dataclass(frozen=True, kw_only=True)
class _SamplingJob(_RecordJob[S]):
    """Sampling from a Bayesian multinomial logistic regression; the unit is a record.

    The prior is N(0, 1) for every weight. The gradients of records are clipped. Every client takes
    part in every round. The second half of the positions is kept.

    Args:
        own: a posterior of the user; None for the regression above.
    """

    own: Posterior | None = None

    @classmethod
    def on(cls, method: Method, own: Posterior, given: Mapping[str, Any]) -> Self:
        """Return the method's job on the user's posterior, with the posterior's clip norm.

        Raises:
            ParameterError: it has no sensitivity, or another clip norm was requested.
        """
        if own.sensitivity is None:
            rule = "have a sensitivity, since privacy needs one"
            refuse("posterior", "no clip_norm and no own_sensitivity", rule, "pass clip_norm=")
        if given.get("clip_norm", own.clip_norm) != own.clip_norm:
            rule = f"be left out, since the posterior has {own.clip_norm}"
            refuse("clip_norm", given["clip_norm"], rule)
        chosen = cast(S, method.of(given))
        return cls(method=method, source=own.data, chosen=chosen, own=own)

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen settings; for a user's posterior, with the bound on a record's effect."""
        found = super().settings
        if self.own is None:
            return found
        del found["clip_norm"]
        return found | {"dimension": self.own.dimension, "sensitivity": self.own.sensitivity}

    @property
    def _classes(self) -> dict[str, Any]:
        # A user's likelihood need not have classes.
        return super()._classes if self.own is None else {}

    @cached_property
    def model(self) -> SoftmaxRegression:
        """The likelihood."""
        return SoftmaxRegression(self.source.features[0].numel(), self.source.classes)

    @cached_property
    def data(self) -> Posterior:
        """The target distribution."""
        if self.own is not None:
            return self.own
        clip_norm = self.settings["clip_norm"]
        return Posterior(model=self.model, data=self.source, clip_norm=clip_norm)

    def _common(self, seed: int | None) -> dict[str, Any]:
        """Return the arguments that both samplers share."""
        kept = max(1, self.rounds // 2)
        correlation = self.settings["correlation"]
        common: dict[str, Any] = {"target": self.data, "correlation": correlation, "seed": seed}
        return common | {"draws": kept, "burn_in": self.rounds - kept}

    def run(self, level: float) -> Mechanism:
        """Return the run of one chain."""
        run: Mechanism = self.loop(level, None).run(self.rounds)
        return run

    def scores(self, loop: SamplingLoop, state: ChainState) -> dict[str, float]:
        """Return accuracy, Brier score, calibration error and NLL of the posterior predictive.

        Before the first kept position, the scores are those of the position itself. For a user's
        posterior, the scores measure how well the draws mixed, once there are enough.
        """
        del loop
        kept = torch.isfinite(state.draws).all(-1)
        if self.own is not None:
            return _mixing(state.draws[:, kept.all(0)])
        draws = state.draws if bool(kept.any()) else state.positions[:, None]
        features = self.source.test_features.flatten(1)
        found = score(predictive(self.model.logits, draws, features), self.source.test_labels)
        return {name.name: getattr(found, name.name) for name in fields(found)}


def _mixing(draws: Tensor) -> dict[str, float]:
    """Return the worst R-hat and effective sample size; empty if there are too few draws."""
    # With a single chain, fewer draws would be refused.
    if draws.shape[1] < 8:
        return {}
    r_hat, draws_worth = diagnose(draws).worst
    return {"r_hat": r_hat, "effective_draws": draws_worth}


@dataclass(frozen=True, kw_only=True)
class LangevinJob(_SamplingJob[Langevin]):
    """Sampling by FA-LD. Smaller steps give more privacy."""

    def loop(self, level: float | None, seed: int | None) -> SamplingLoop:
        """Return the chain with a step size."""
        step, steps = positive(step_size=level), self.chosen.local_steps
        return LangevinSampling(step_size=step, local_steps=steps, **self._common(seed))


@dataclass(frozen=True, kw_only=True)
class HamiltonianJob(_SamplingJob[Hamiltonian]):
    """Sampling by FA-HMC. Noise on the gradients gives the privacy."""

    def loop(self, level: float | None, seed: int | None) -> SamplingLoop:
        """Return the chain with noise on its gradients."""
        return HamiltonianSampling(
            step_size=self.chosen.step_size,
            leapfrog_steps=self.chosen.local_steps,
            gradient_noise_multiplier=positive(gradient_noise_multiplier=level),
            **self._common(seed),
        )


@dataclass(frozen=True, kw_only=True)
class SplittingJob(_RecordJob[Splitting]):
    """Regularised logistic regression by Fed-PLT: odd against even classes; the unit is a record.

    Inputs are scaled into a ball. The loss therefore has a known sensitivity, and no gradient is
    clipped.

    Args:
        model: builds a module, which separates all classes and whose gradients are clipped for each
            record; None for the regression above.
    """

    model: ModelFactory | None = None

    @classmethod
    def _chosen(
        cls, method: Method, model: ModelFactory | None, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return settings and module; a module's settings need a clip norm and a step size."""
        if model is not None:
            if "feature_bound" in given:
                rule = "be left out for a module, which does not scale inputs"
                refuse(
                    "feature_bound", given["feature_bound"], rule, "use clip_norm to bound a record"
                )
            given = OWN_SPLITTING | dict(given)
        return {"chosen": method.of(given), "model": model}

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen settings. A module has no bound on its inputs."""
        found = super().settings
        if self.model is not None:
            del found["feature_bound"]
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def loss(self) -> Logistic | ModuleLoss:
        """The loss of every agent."""
        chosen = self.chosen
        if self.model is not None:
            return ModuleLoss(model=self.model, regularisation=chosen.regularisation)
        return Logistic(regularisation=chosen.regularisation, feature_bound=chosen.feature_bound)

    @cached_property
    def data(self) -> AgentData:
        """The records of the agents."""
        inputs, targets = self._seen(self.source.features, self.source.labels)
        owned = [torch.from_numpy(rows) for rows in self.source.clients]
        return AgentData.of([(inputs[rows], targets[rows]) for rows in owned])

    def _seen(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets in the form that the loss takes."""
        if self.model is not None:
            return features.double(), labels
        return _inputs(features), torch.where(labels % 2 == 0, 1.0, -1.0).double()

    def loop(self, level: float | None, seed: int | None) -> FederatedSplitting:
        """Return the loop with a noise scale."""
        chosen, loss = self.chosen, self.loss
        return FederatedSplitting(
            loss=loss,
            records=self.data.records,
            dimension=loss.dimension(self.data),
            penalty=chosen.penalty,
            solver=LocalSolver(
                method="noisy",
                steps=chosen.local_steps,
                step_size=chosen.step_size,
                noise_scale=positive(noise_scale=level),
                clip_norm=chosen.clip_norm,
            ),
            seed=seed,
        )

    def scores(self, loop: FederatedSplitting, state: SplittingState) -> dict[str, float]:
        """Return the accuracy of the coordinator's model."""
        inputs, truth = self._seen(self.source.test_features, self.source.test_labels)
        point, loss = loop.consensus(state), self.loss
        if isinstance(loss, ModuleLoss):
            told = loss.flat.logits(point, inputs).argmax(1)
        else:
            told = (inputs @ point).sign()
        return {"accuracy": float((told == truth).double().mean())}


def _inputs(features: Tensor) -> Tensor:
    """Return the inputs in float64, minus the centre, with a final 1 for the intercept."""
    flat = features.flatten(1).double() - CENTRE
    return torch.cat([flat, flat.new_ones(len(flat), 1)], 1)


_JOBS: dict[type[Settings], Any] = {
    DpFtrl: CorrelatedJob,
    Langevin: LangevinJob,
    Hamiltonian: HamiltonianJob,
    Splitting: SplittingJob,
}
"""Settings -> their job. Every other method averages with independent noise."""


def job(
    method: str,
    data: str | FederatedData = "digits",
    *,
    data_dir: str | Path | None = None,
    clients: int | None = None,
    classes_per_client: int | None = None,
    model: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Job:
    """Return a method's job on a data set. For own data the default settings may not work well.

    Args:
        method: one of ``methods.METHODS``.
        data: "digits" (of scikit-learn), "fashion-mnist", a file, or loaded data; see
            ``load_data``, also for the next three.
        data_dir: folder of Fashion-MNIST's files.
        clients: number of clients that share the records.
        classes_per_client: number of classes of a client.
        model: "logistic", "mlp", "cnn" or "FILE.py:NAME" (averaging and Fed-PLT); the
            "FILE.py:NAME" of a ``Posterior`` (samplers).
        progress: gets the finished share of an initial search, for the methods that need one:
            DP-FTRL searches for its factor.
        settings: the method's settings that differ from the defaults, by name; see ``methods``.
            None means the default.

    Raises:
        ParameterError: an unknown method, data set or model; a setting that the method does not
            have, or that breaks its rule.
    """
    chosen = method_named(method)
    given = {name: value for name, value in settings.items() if value is not None}
    # Checked before the data are loaded, because loading may be slow.
    chosen.of(given)
    kind = _JOBS.get(chosen.settings, AveragingJob)
    if issubclass(kind, _SamplingJob) and model is not None:
        if ":" not in model:
            rule = "be left out, since this method has its own model"
            refuse("model", model, rule, "pass a Posterior to a sampler: --posterior FILE.py:NAME")
        if (data, clients, classes_per_client) != ("digits", None, None):
            refuse(
                "data, clients",
                data,
                "be left out, since a posterior contains the records of its clients",
            )
        own: Job = kind.on(chosen, posterior_at(model), given)
        return own
    if clients is None and data in DATA and not issubclass(kind, AveragingJob):
        clients = AGENTS
    records = load_data(
        data, data_dir=data_dir, clients=clients, classes_per_client=classes_per_client
    )
    task: Job = kind.of(chosen, records, model_for(model, records), given, progress)
    return task
