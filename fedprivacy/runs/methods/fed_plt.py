"""Fed-PLT: regularised regression by federated splitting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import positive, refuse
from ...relations import Unit
from ...systems.settings import COUNT, NON_NEGATIVE, POSITIVE, Settings, setting
from .base import Method, knob, register
from .canaries import Array
from .records import CLIP, RecordJob

if TYPE_CHECKING:
    from torch import Tensor

    from ...systems.fed_plt.agents import AgentData, Logistic, ModuleLoss
    from ...systems.fed_plt.loop import FederatedSplitting, SplittingState
    from ...training.data import FederatedData
    from ...training.models import ModelFactory

CENTRE = 0.3
"""Subtracted from every pixel before the inputs are scaled into their ball."""

OWN_SPLITTING = {"clip_norm": 1.0, "step_size": 0.1}
"""Starting values for a module: its curvature and sensitivity are unknown."""


@dataclass(frozen=True, kw_only=True)
class Splitting(Settings):
    """Fed-PLT. Its knob is the noise scale tau."""

    rounds: int = setting(COUNT, "number of rounds", default=40)
    local_steps: int = setting(COUNT, "N_e, steps of an agent in a round", default=5)
    penalty: float = setting(POSITIVE, "rho", default=3.0)
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
    )
    clip_norm: float | None = setting(
        POSITIVE, f"{CLIP}; default: the bound of the loss, or 1.0 for a module", default=None
    )


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
        from ...training import FederatedSplitting, LocalSolver

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
        from ...training import ModuleLoss

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
    declares=(Splitting,),
)
