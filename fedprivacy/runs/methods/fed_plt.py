"""Fed-PLT: regularised regression by federated splitting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import positive, refuse
from ...relations import Unit
from ...sampling import FixedSize
from ...systems.settings import COUNT, NON_NEGATIVE, POSITIVE, SHARE, Settings, choice, setting
from .base import Method, knob, register
from .canaries import Array
from .records import CLIP, RecordJob

if TYPE_CHECKING:
    from torch import Tensor

    from ...systems.fed_plt.agents import AgentData, Logistic, ModuleLoss
    from ...systems.fed_plt.loop import FederatedSplitting, SplittingState
    from ...systems.fed_plt.solvers import LocalSolver
    from ...training.data import FederatedData
    from ...training.models import ModelFactory

CENTRE = 0.3
"""Subtracted from every pixel before the inputs are scaled into their ball."""

STEPPING = ("gradient", "stochastic")
"""Solvers that take a step size."""

OWN_SPLITTING = {"clip_norm": 1.0, "step_size": 0.1}
"""Starting values for a module: its curvature and sensitivity are unknown."""


@dataclass(frozen=True, kw_only=True)
class Splitting(Settings):
    """Fed-PLT. Its knob is the noise scale tau."""

    rounds: int = setting(COUNT, "number of rounds", default=40, symbol="K")
    local_steps: int = setting(COUNT, "steps of an agent in a round", default=5, symbol="N_e")
    penalty: float = setting(POSITIVE, "of the splitting", default=3.0, symbol="rho")
    participation: float = setting(
        SHARE, "probability that an agent takes part in a round", default=1.0, symbol="p"
    )
    cohort: int | None = setting(
        COUNT,
        "agents of a round, drawn without replacement; instead of participation",
        default=None,
    )
    l1: float = setting(NON_NEGATIVE, "weight of |x|_1 in the common term h", default=0.0)
    l2: float = setting(NON_NEGATIVE, "weight of |x|^2 / 2 in the common term h", default=0.0)
    regularisation: float = setting(
        NON_NEGATIVE, "strong convexity of every agent's loss", default=0.003
    )
    feature_bound: float = setting(
        POSITIVE, "radius of the ball that inputs are scaled into", default=2.0
    )
    step_size: float | None = setting(
        POSITIVE,
        "of a local step; default: the fastest contraction, or 0.1 for a module",
        default=None,
        symbol="gamma",
    )
    clip_norm: float | None = setting(
        POSITIVE, f"{CLIP}; default: the bound of the loss, or 1.0 for a module", default=None
    )


@dataclass(frozen=True, kw_only=True)
class SolverSettings(Settings):
    """Settings that only Fed-PLT without noise has."""

    solver: str = setting(
        choice(*STEPPING, "accelerated", "newton", "quasi_newton"),
        "of an agent in a round",
        default="gradient",
    )
    batch_size: int | None = setting(
        COUNT, "records of a step of the stochastic solver", default=None
    )


@dataclass(frozen=True, kw_only=True)
class NoiselessSplitting(SolverSettings, Splitting):
    """Fed-PLT without privacy."""


@dataclass(frozen=True, kw_only=True)
class SplittingJob(RecordJob[Splitting]):
    """Regularised logistic regression by Fed-PLT: odd against even classes; the unit is a record.

    Inputs are scaled into a ball. The loss therefore has a known sensitivity, and no gradient is
    clipped.

    Args:
        model: builds a module, which separates all classes and whose gradients are clipped for each
            record; None for the regression above.
    """

    centre: ClassVar[float] = CENTRE

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
            own = dict(OWN_SPLITTING)
            if not method.private:
                del own["clip_norm"]
            if given.get("solver", "gradient") not in STEPPING:
                del own["step_size"]
            given = own | dict(given)
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
        from ...training import Logistic, ModuleLoss

        chosen = self.chosen
        if self.model is not None:
            return ModuleLoss(model=self.model, regularisation=chosen.regularisation)
        return Logistic(regularisation=chosen.regularisation, feature_bound=chosen.feature_bound)

    @cached_property
    def data(self) -> AgentData:
        """The records of the agents."""
        import torch

        from ...training import AgentData

        inputs, targets = self._seen(self.source.features, self.source.labels)
        owned = [torch.from_numpy(rows) for rows in self.source.clients]
        return AgentData.of([(inputs[rows], targets[rows]) for rows in owned])

    def _seen(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets in the form that the loss takes."""
        import torch

        if self.model is not None:
            return features.double(), labels
        return _inputs(features), torch.where(labels % 2 == 0, 1.0, -1.0).double()

    def loop(self, level: float | None, seed: int | None) -> FederatedSplitting:
        """Return the loop with a noise scale."""
        from ...systems.fed_plt.proximal import ElasticNet
        from ...training import FederatedSplitting

        chosen, loss = self.chosen, self.loss
        return FederatedSplitting(
            loss=loss,
            records=self.data.records,
            dimension=loss.dimension(self.data),
            penalty=chosen.penalty,
            solver=self._solver(level),
            regulariser=ElasticNet(chosen.l1, chosen.l2) if chosen.l1 or chosen.l2 else None,
            participation=self._participation(),
            constants=None if self.method.private else loss.curvature(self.data),
            seed=seed,
        )

    def _solver(self, level: float | None) -> LocalSolver:
        """Return an agent's solver: the noisy one if there is a noise scale."""
        from ...training import LocalSolver

        chosen = self.chosen
        common: dict[str, Any] = {"steps": chosen.local_steps, "step_size": chosen.step_size}
        if not isinstance(chosen, NoiselessSplitting):
            common |= {"noise_scale": positive(noise_scale=level), "clip_norm": chosen.clip_norm}
            return LocalSolver(method="noisy", **common)
        if chosen.clip_norm is not None:
            rule = "be left out, since this run is not private"
            refuse("clip_norm", chosen.clip_norm, rule, "use --method fed-plt")
        return LocalSolver(method=chosen.solver, batch_size=chosen.batch_size, **common)

    def _participation(self) -> float | FixedSize:
        chosen = self.chosen
        if chosen.cohort is None:
            return chosen.participation
        if chosen.participation != 1.0:
            rule = "be left out, since cohort states how agents are drawn"
            refuse("participation", chosen.participation, rule, "give one of the two")
        return FixedSize(chosen.cohort, population=self.source.population)

    def scores(self, loop: FederatedSplitting, state: SplittingState) -> dict[str, float]:
        """Return the accuracy of the coordinator's model."""
        from ...training import ModuleLoss

        if not len(self.source.test_labels):
            return {}
        inputs, truth = self._seen(self.source.test_features, self.source.test_labels)
        point, loss = loop.consensus(state), self.loss
        if isinstance(loss, ModuleLoss):
            predicted = loss.flat.logits(point, inputs).argmax(1)
        else:
            predicted = (inputs @ point).sign()
        return {"accuracy": float((predicted == truth).double().mean())}

    def directions(self, inputs: Array, bare: FederatedData) -> Array:
        """Return the gradient of an even class at its canary's agent, shape (m, N d)."""
        directions = np.zeros((len(inputs), bare.population, inputs.shape[1]))
        for agent, rows in enumerate(bare.clients):
            directions[rows, agent] = -inputs[rows]
        return directions.reshape(len(inputs), -1)


def _inputs(features: Tensor) -> Tensor:
    """Return the inputs in float64, minus the centre, with a final 1 for the intercept."""
    import torch

    flat = features.flatten(1).double() - CENTRE
    return torch.cat([flat, flat.new_ones(len(flat), 1)], 1)


register(
    Method(
        "fed-plt",
        "Fed-PLT",
        Splitting,
        knob("noise_scale", "tau of the noise of a step"),
        Unit.RECORD,
        SplittingJob,
    ),
    Method(
        "fed-plt-noiseless",
        "Fed-PLT without noise",
        NoiselessSplitting,
        None,
        Unit.RECORD,
        SplittingJob,
        "fed-plt",
    ),
    declares=(Splitting, SolverSettings),
)
