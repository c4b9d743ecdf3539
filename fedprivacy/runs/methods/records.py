"""What the methods share whose unit is a record: their job, and record canaries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...audit.canaries import AttackSettings, Planted, planted, random_directions
from ...errors import refuse
from ...factors.optimise import Progress
from ...mechanisms import Mechanism
from ...relations import Adjacency, Unit
from ...systems.settings import COUNT, SHARE, Settings, choice, setting
from .base import Method
from .canaries import LONG, Array, level_for, only

if TYPE_CHECKING:
    from torch import Tensor

    from ...training.chains import ChainState, SamplingLoop
    from ...training.data import FederatedData
    from ...training.likelihoods import SoftmaxRegression
    from ...training.models import ModelFactory
    from ...training.posterior import Posterior

S = TypeVar("S", bound=Settings)
C = TypeVar("C", bound="ChainSettings")

AGENTS = 10
"""Default number of clients for a data set."""

CLIP = "clip norm of a record's gradient"
"""Help of a clip norm."""


@dataclass(frozen=True, kw_only=True)
class ChainSettings(Settings):
    """Settings that the samplers share."""

    batch_fraction: float = setting(
        SHARE, "share of a client's records in a gradient", default=1.0, symbol="gamma"
    )
    averaging: str = setting(
        choice("full", "I", "II"),
        "full: the mean over all clients, weighted by their records; I: over cohort draws with "
        "replacement, by the same weights; II: over cohort clients, drawn without replacement",
        default="full",
    )
    cohort: int | None = setting(
        COUNT, "clients of a round under I and II", default=None, symbol="S"
    )
    weights: str | None = setting(
        choice("records", "equal"),
        "of the clients, which change their noise but not the posterior: by number of records, or "
        "equal; default: records, and equal under II",
        default=None,
        symbol="p_c",
    )
    thinning: int = setting(COUNT, "rounds from one kept draw to the next", default=1)


@dataclass(frozen=True, kw_only=True)
class RecordJob(ABC, Generic[S]):
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
    default_clients: ClassVar[int | None] = AGENTS

    attacked_clients: ClassVar[int | None] = None
    """Number of clients in an attack; None for the number of the data set."""
    centre: ClassVar[float] = 0.0
    """Number that the loss subtracts from every input."""

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
        chosen = {name: value for name, value in self.chosen.values().items() if value is not None}
        return {"clients": self.source.population, "records": self.units, **chosen}

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

    def planted(self, level: float | None, attack: AttackSettings) -> Planted:
        """Return the job with records whose labels are coins; see ``runs.planting``."""
        import torch

        size = self.source.features[0].numel()
        inputs = LONG * random_directions(attack.canaries, size, attack.generator)
        bare = only(self.source, inputs + self.centre)
        level = level_for(replace(self, source=bare), level, attack)

        def make(included: NDArray[np.bool_]) -> tuple[Any, Any]:
            # An even class if the coin is 1, an odd one if it is 0.
            labels = torch.as_tensor(~included).to(bare.labels.dtype)
            now = replace(self, source=replace(bare, labels=labels))
            return now.loop(level, None), now.handed

        directions = self.directions(np.hstack([inputs, np.ones((attack.canaries, 1))]), bare)
        claim = replace(self, source=bare).run(level)
        return Planted(planted(make, attack.rounds), directions, claim, self.adjacency)

    @property
    def handed(self) -> Any:
        """The data argument of the loop's ``step`` in an attack."""
        return self.data

    @property
    @abstractmethod
    def data(self) -> Any:
        """The data argument of the loop's ``step``; see ``Job``."""

    @abstractmethod
    def directions(self, inputs: Array, bare: FederatedData) -> Array:
        """Return the direction in which each canary moves what is released, shape (m, d)."""


@dataclass(frozen=True, kw_only=True)
class SamplingJob(RecordJob[C]):
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
        if "weights" in given:
            refuse("weights", given["weights"], "be left out, since the posterior has its own")
        chosen = cast(C, method.of(given))
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

    # With one client, the mean of the uploads, which a sampler publishes, is the upload itself.
    attacked_clients: ClassVar[int | None] = 1

    @property
    def handed(self) -> None:
        """No data: they belong to the target."""
        return None

    def directions(self, inputs: Array, bare: FederatedData) -> Array:
        """Return the gradient at class 0 minus that at class 1, shape (m, d)."""
        directions = np.zeros((len(inputs), bare.classes, inputs.shape[1]))
        directions[:, 0], directions[:, 1] = -inputs, inputs
        # The weights of all classes come first, then the intercepts: see ``SoftmaxRegression``.
        return np.hstack([directions[:, :, :-1].reshape(len(inputs), -1), directions[:, :, -1]])

    @cached_property
    def model(self) -> SoftmaxRegression:
        """The likelihood."""
        from ...training import SoftmaxRegression

        return SoftmaxRegression(self.source.features[0].numel(), self.source.classes)

    @cached_property
    def data(self) -> Posterior:
        """The target distribution."""
        from ...training import Posterior

        if self.own is not None:
            return self.own
        clients, equal = self.source.population, "equal" if self.chosen.averaging == "II" else None
        weights = [1.0 / clients] * clients if (self.chosen.weights or equal) == "equal" else None
        clip_norm = self.settings["clip_norm"]
        return Posterior(model=self.model, data=self.source, clip_norm=clip_norm, weights=weights)

    def _common(self, seed: int | None) -> dict[str, Any]:
        """Return the arguments that both samplers share."""
        names = ("correlation", "batch_fraction", "averaging", "cohort", "thinning")
        found: dict[str, Any] = {name: getattr(self.chosen, name) for name in names}
        draws = max(1, self.rounds // (2 * found["thinning"]))
        burn_in = self.rounds - draws * found["thinning"]
        if burn_in < 0:
            refuse("thinning", found["thinning"], f"be at most the number of rounds, {self.rounds}")
        return found | {"target": self.data, "seed": seed, "draws": draws, "burn_in": burn_in}

    def run(self, level: float) -> Mechanism:
        """Return the run of one chain."""
        run: Mechanism = self.loop(level, None).run(self.rounds)
        return run

    def scores(self, loop: SamplingLoop, state: ChainState) -> dict[str, float]:
        """Return accuracy, Brier score, calibration error and NLL of the posterior predictive.

        Before the first kept position, the scores are those of the position itself. For a user's
        posterior, the scores measure how well the draws mixed, once there are enough.
        """
        import torch

        from ...training import predictive, score

        del loop
        kept = torch.isfinite(state.draws).all(-1)
        if self.own is not None:
            return _mixing(state.draws[:, kept.all(0)])
        if not len(self.source.test_labels):
            return {}
        draws = state.draws if bool(kept.any()) else state.positions[:, None]
        features = self.source.test_features.flatten(1)
        found = score(predictive(self.model.logits, draws, features), self.source.test_labels)
        return {name.name: getattr(found, name.name) for name in fields(found)}


def _mixing(draws: Tensor) -> dict[str, float]:
    """Return the worst R-hat and effective sample size; empty if there are too few draws."""
    from ...training import diagnose

    # With a single chain, fewer draws would be refused.
    if draws.shape[1] < 8:
        return {}
    r_hat, draws_worth = diagnose(draws).worst
    return {"r_hat": r_hat, "effective_draws": draws_worth}
