"""Agents' records and losses, for all agents at once.

A batch of points has shape (..., agents, dimension): one row for each agent, with an optional
leading dimension of independent runs. No function here loops over agents.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.nn.functional as functional
from torch import Tensor

from ...errors import integer, non_negative, positive, refuse, require
from ...mechanisms.noise import check_readable
from ...rounding import THOUSANDS
from ...training.layers import checked_module
from ...training.likelihoods import check_function
from ...training.models import ModelFactory
from ...training.optimise import FlatModel

INWARD = 1.0 - THOUSANDS
"""Scaled records end this factor inside their bound, as a margin for rounding."""

_SHORTEST = 1e-140
"""Inputs of a smaller norm count as zero: their squares underflow, so clipping would not work."""


@dataclass(frozen=True, eq=False)
class AgentData:
    """The agents' records, padded if agents hold different numbers of records.

    Args:
        features: float64, shape (..., agents, records, ...). For linear models an input is a vector
            of length ``dimension``. The leading dimension, if any, is of runs.
        targets: shape (..., agents, records); -1 and 1 for two classes.
        sizes: number of each agent's records, the rest is padding; None if no record is padding.

    Raises:
        ParameterError: an agent without records, shapes that do not fit, entries that are not
            finite.
    """

    features: Tensor
    targets: Tensor
    sizes: tuple[int, ...] | None = None
    _bounded: dict[float, AgentData] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_tensors()
        sizes = self.sizes or (self.targets.shape[-1],) * self.targets.shape[-2]
        agents, records = self.targets.shape[-2:]
        rule = f"have one entry per agent, {agents} in all"
        require(len(sizes) == agents, "sizes", sizes, rule)
        for agent, size in enumerate(sizes):
            name, rule = f"sizes[{agent}]", f"be at most the {records} records passed"
            found = integer(1, "leave out agents without data", **{name: size})
            require(found <= records, name, size, rule)
        object.__setattr__(self, "sizes", tuple(map(int, sizes)))
        for name in ("features", "targets"):
            value = getattr(self, name)
            finite = not value.is_floating_point() or torch.isfinite(value).all()
            require(finite, name, "entries that are not finite", "be finite")

    def _check_tensors(self) -> None:
        """Refuse arguments that are not tensors, or have a wrong dtype or shape, or no agent."""
        for name in ("features", "targets"):
            value = getattr(self, name)
            given, way_out = isinstance(value, Tensor), "AgentData.of converts arrays"
            require(given, name, type(value).__name__, "be a tensor", way_out)
            check_readable(name, value)
        kind, rule = self.features.dtype, "be of dtype float64"
        require(kind is torch.float64, "features", str(kind), rule, "use .double()")
        numbers = self.targets.dtype is not torch.bool
        require(numbers, "targets", "bool", "be numbers", "use .long(), or -1.0 and 1.0")
        lead = self.targets.dim()
        fits = lead in (2, 3) and self.features.shape[:lead] == self.targets.shape
        shapes = tuple(self.features.shape), tuple(self.targets.shape)
        rule = (
            "have shapes (runs, agents, records, ...) and (runs, agents, records), or the same "
            "without runs"
        )
        require(fits, "features, targets", shapes, rule)
        agents, way_out = self.targets.shape[-2], "pass the records of at least one agent"
        require(agents, "agents", 0, "be at least 1", way_out)

    @classmethod
    def of(cls, agents: Sequence[tuple[Any, Any]]) -> AgentData:
        """Return the data of agents given one by one as (features, targets).

        Args:
            agents: array-likes of shapes (records, ...) and (records,).

        Raises:
            ParameterError: no agent, or an agent without records.
        """
        require(agents, "agents", agents, "contain at least one agent")
        inputs, targets = list[Tensor](), list[Tensor]()
        for agent, pair in enumerate(agents):
            try:
                features, own = pair
                inputs.append(torch.as_tensor(features, dtype=torch.float64))
                targets.append(torch.as_tensor(own))
            except (TypeError, ValueError) as problem:
                rule = "be a pair of features and targets, arrays of numbers"
                refuse(f"agents[{agent}]", str(problem), rule, "all rows must have one length")
            shape, first = tuple(inputs[-1].shape[1:]), tuple(inputs[0].shape[1:])
            rule = f"contain features of shape (records, {', '.join(map(str, first))})"
            alike = shape == first and targets[-1].dim() == targets[0].dim() > 0
            require(
                alike,
                f"agents[{agent}]",
                tuple(inputs[-1].shape),
                rule,
                "like those of the first agent",
            )
        sizes = tuple(map(len, targets))
        for agent, counts in enumerate(zip(map(len, inputs), sizes, strict=True)):
            fits = counts[0] == counts[1] > 0
            rule = "contain equal numbers of features and targets, at least one"
            require(fits, f"agents[{agent}]", counts, rule, "leave out agents without data")
        return cls(_padded(inputs), _padded(targets), sizes)

    @property
    def agents(self) -> int:
        """Number of agents."""
        return self.targets.shape[-2]

    @property
    def runs(self) -> int | None:
        """Length of the dimension of runs; None if all runs share the records."""
        return self.targets.shape[0] if self.targets.dim() == 3 else None

    @property
    def records(self) -> tuple[int, ...]:
        """Number of each agent's records."""
        assert self.sizes is not None
        return self.sizes

    @cached_property
    def weights(self) -> Tensor:
        """1 / q_i on agent i's records, 0 on padding: shape (agents, records)."""
        sizes = torch.tensor(self.records, device=self.targets.device)[:, None]
        inside = torch.arange(self.targets.shape[-1], device=self.targets.device) < sizes
        return torch.where(inside, 1.0 / sizes.double(), 0.0)

    @cached_property
    def gram_norm(self) -> float:
        """Largest eigenvalue of an agent's mean of a a^T over its records a."""
        inner = self.features.transpose(-1, -2) @ (self.features * self.weights[..., None])
        return float(torch.linalg.eigvalsh(inner)[..., -1].max())

    def bounded(self, norm: float) -> AgentData:
        """Return the data with every input scaled down to at most ``norm``, one by one.

        The scaling of a record depends only on that record, so it does not weaken the record's
        privacy.
        """
        limit = positive(feature_bound=norm)
        if limit not in self._bounded:
            long = torch.linalg.vector_norm(self.features, dim=-1, keepdim=True)
            scale = torch.clamp(limit * INWARD / long, max=1.0)
            # 0 / 0 for a record of zeros, which is within every bound.
            inside = replace(self, features=torch.where(long > 0.0, self.features * scale, 0.0))
            self._bounded[limit] = inside
        return self._bounded[limit]

    def taken(self, rows: Tensor, weights: Tensor) -> AgentData:
        """Return a batch of each agent's records.

        Args:
            rows: record numbers, shape (..., agents, width).
            weights: weights of the records in the batch's mean, same shape.
        """
        lead = rows.shape[:-1]
        inputs = self.features.expand(*lead, *self.features.shape[self.targets.dim() - 1 :])
        index = rows.reshape(*rows.shape, *[1] * (inputs.dim() - rows.dim()))
        index = index.expand(*rows.shape, *inputs.shape[rows.dim() :])
        features = inputs.gather(rows.dim() - 1, index)
        targets = self.targets.expand(*lead, -1).gather(-1, rows)
        return _Batch(features, targets, weights)

    def only(self, agents: Tensor) -> AgentData:
        """Return the data of some agents.

        Args:
            agents: their numbers, shape (chosen,).
        """
        at = self.targets.dim() - 2
        return _Batch(
            self.features.index_select(at, agents),
            self.targets.index_select(at, agents),
            self.weights.index_select(0, agents),
        )


class _Batch(AgentData):
    """Records with their own weights, without a second check."""

    def __init__(self, features: Tensor, targets: Tensor, weights: Tensor) -> None:
        # Bypasses the frozen class; the records were checked when their data were created.
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "sizes", None)
        object.__setattr__(self, "_bounded", {})
        # Replaces the cached property: a batch has its own weights.
        self.__dict__["weights"] = weights


def _padded(columns: list[Tensor]) -> Tensor:
    """Return agents' columns stacked, filled up to the longest column."""
    long = max(map(len, columns))
    # Padding repeats a real record, which is finite, with weight 0.
    ends = (one[-1:].expand(long - len(one), *one.shape[1:]) for one in columns)
    return torch.stack([torch.cat(parts) for parts in zip(columns, ends, strict=True)])


class AgentLoss(ABC):
    """Loss that every agent minimises: the mean over its records, plus a regulariser."""

    contracts_clipped: ClassVar[bool] = False
    """Whether ``curvature`` also holds if each record's gradient is clipped.

    This is true for a convex loss whose strong convexity comes only from the regulariser, which is
    not clipped.
    """

    @abstractmethod
    def dimension(self, data: AgentData) -> int:
        """Return the length of a point.

        Raises:
            ParameterError: the data do not fit the loss.
        """

    @abstractmethod
    def gradient(self, points: Tensor, data: AgentData, clip_norm: float | None = None) -> Tensor:
        """Return the gradient of each agent's loss, shape of ``points``.

        Args:
            points: float64, shape (..., agents, dimension).
            data: the records; their weights are those of the mean.
            clip_norm: norm that each record's gradient is clipped to, without the regulariser's
                part. A record whose gradient is not finite counts as 0.
        """

    def hessian(self, points: Tensor, data: AgentData) -> Tensor:
        """Return the Hessian of each agent's loss, shape (..., agents, dimension, dimension).

        The Newton solver needs it; a loss without it cannot use that solver.
        """
        refuse("loss", type(self).__name__, "have a hessian", "use another solver")

    def prepared(self, data: AgentData) -> AgentData:
        """Return the data in the form that the loss's guarantees require."""
        return data

    def curvature(self, data: AgentData | None = None) -> tuple[float, float] | None:
        """Return (strong convexity, smoothness) of every agent's loss, or None if not known.

        Args:
            data: None for constants that hold for all records, as privacy requires.
        """
        return None

    def sensitivity(self, records: int) -> float | None:
        """Return the largest change of an agent's gradient at any point if a record is replaced.

        None if the loss itself has no such bound.
        """
        return None

    def start(self, generator: torch.Generator) -> Tensor | None:
        """Return the starting point, shape (dimension,); None for 0."""
        return None


@dataclass(frozen=True, kw_only=True)
class LinearLoss(AgentLoss):
    """A convex loss of one linear output a.x, plus regularisation |x|^2 / 2.

    A derived class with its own link overrides ``slope`` or ``bend``. It must then also override
    ``link_smoothness`` and ``sensitivity``, because theorems use them. A derived class with its own
    gradient has no sensitivity and does not contract under clipping, unless it declares otherwise.

    Args:
        regularisation: at least 0; it is the source of strong convexity, and clipping does not
            change it.
        feature_bound: R: inputs of larger norm are scaled down to it. Needed for privacy: without
            it the loss has no constants that are independent of the data.

    Raises:
        ParameterError: a value out of its range; a link that is not convex, or exceeds its stated
            smoothness or sensitivity, as tested at some outputs for ``link_targets``.
    """

    regularisation: float = 0.0
    feature_bound: float | None = None

    contracts_clipped: ClassVar[bool] = True
    link_smoothness: ClassVar[float]
    """Largest second derivative of the loss in the output."""
    link_targets: ClassVar[tuple[float, ...] | None] = (-1.0, 1.0)
    """The extreme targets that records may have, for which the link is tested.

    None if no constant depends on the targets; the link is tested for -1 and 1 then.
    """

    def __post_init__(self) -> None:
        non_negative(regularisation=self.regularisation)
        if self.feature_bound is not None:
            positive(feature_bound=self.feature_bound)
            fits, rule = self.feature_bound <= 1e150, "be at most 1e150"
            way_out = "rescale the features, since its square overflows"
            require(fits, "feature_bound", self.feature_bound, rule, way_out)
        self._check_link()

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a new link with the inherited constants of another link."""
        super().__init_subclass__(**options)

        def place(*names: str) -> int:
            """Return the first class that defines one of the names; a mixin may be before ours."""
            found = [k for k, one in enumerate(cls.__mro__) if set(names) & vars(one).keys()]
            return min(found, default=len(cls.__mro__))

        link = place("slope", "bend")
        missing = [name for name in ("link_smoothness", "sensitivity") if place(name) > link]
        if any("link_smoothness" in vars(one) for one in cls.__mro__[1:]) and missing:
            rule = f"define its own {' and '.join(missing)}, since its link differs"
            refuse("class", cls.__name__, rule, "sensitivity may return None")
        sums = place("gradient", "_sum", "prepared")
        if place("sensitivity") > sums:
            cls.sensitivity = AgentLoss.sensitivity  # type: ignore[method-assign]
        if place("contracts_clipped") > sums:
            cls.contracts_clipped = False

    def _check_link(self) -> None:
        """Refuse a link that visibly contradicts its declared properties."""
        outputs = torch.linspace(-40.0, 40.0, 8001, dtype=torch.float64)
        targets = self.link_targets or (-1.0, 1.0)
        slopes = torch.stack([self.slope(outputs, torch.full_like(outputs, b)) for b in targets])
        bent = torch.diff(slopes) / torch.diff(outputs)
        name, slack = f"{type(self).__name__}.slope", 1e-9
        least, most = float(bent.min()), float(bent.max())
        rule = "increase with the output, as for a convex loss"
        require(least >= -slack, name, f"falling by {-least:.3g}", rule)
        rule = f"increase by at most link_smoothness = {self.link_smoothness:g}"
        require(most <= self.link_smoothness + slack, name, f"rising by {most:.3g}", rule)
        if self.feature_bound is None or (own := self.sensitivity(1)) is None:
            return
        # A record's gradient is slope times input, and two records' inputs may be opposite.
        apart = 2.0 * float(slopes.abs().max()) * self.feature_bound
        rule = f"keep the distance of two records' gradients within the sensitivity, {own:g}"
        require(apart <= own * (1.0 + slack), name, f"{apart:.3g} apart", rule)

    @abstractmethod
    def slope(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the derivative of a record's loss in its output."""

    @abstractmethod
    def bend(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the second derivative of a record's loss in its output."""

    def dimension(self, data: AgentData) -> int:
        """Return the length of an input vector."""
        if data.features.dim() != data.targets.dim() + 1:
            refuse("features", tuple(data.features.shape), "contain one vector per record")
        return data.features.shape[-1]

    def gradient(self, points: Tensor, data: AgentData, clip_norm: float | None = None) -> Tensor:
        """Return each agent's gradient; see ``AgentLoss``."""
        # Runs that share their records are rows of one product.
        if points.dim() > 2 and data.targets.dim() == 2:
            rows = points.movedim(0, -2)
            weights, targets = data.weights[..., None, :], data.targets[..., None, :]
            found = self._sum(rows, data.features, targets, weights, clip_norm).movedim(-2, 0)
        else:
            weights, targets = data.weights.unsqueeze(-2), data.targets.unsqueeze(-2)
            rows = points.unsqueeze(-2)
            found = self._sum(rows, data.features, targets, weights, clip_norm).squeeze(-2)
        return found + self.regularisation * points if self.regularisation else found

    def hessian(self, points: Tensor, data: AgentData) -> Tensor:
        """Return each agent's Hessian; see ``AgentLoss``."""
        inputs = data.features
        outputs = (inputs @ points[..., None])[..., 0]
        weighted = inputs * (self.bend(outputs, data.targets) * data.weights)[..., None]
        own = self.regularisation * torch.eye(points.shape[-1], dtype=points.dtype)
        return inputs.transpose(-1, -2) @ weighted + own.to(points.device)

    def _sum(
        self, rows: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, clip: float | None
    ) -> Tensor:
        """Return the weighted sums of the records' gradients at several points of each agent."""
        slopes = self.slope(rows @ inputs.transpose(-1, -2), targets)
        if clip is not None:
            # A record's gradient is slope times input, so clipping its norm means clipping the
            # slope.
            long = torch.linalg.vector_norm(inputs, dim=-1)[..., None, :]
            limit = torch.where(long > _SHORTEST, clip / long, 0.0)
            # A NaN slope counts as 0.
            slopes = torch.minimum(torch.maximum(slopes, -limit), limit).nan_to_num(0.0)
        return (slopes * weights) @ inputs

    def prepared(self, data: AgentData) -> AgentData:
        """Return the data with inputs scaled down to the bound."""
        return data if self.feature_bound is None else data.bounded(self.feature_bound)

    def curvature(self, data: AgentData | None = None) -> tuple[float, float] | None:
        """Return (regularisation, link smoothness * size of inputs^2 + regularisation)."""
        if self.feature_bound is not None:
            size = self.feature_bound**2
        elif data is not None:
            size = data.gram_norm
        else:
            return None
        return self.regularisation, self.link_smoothness * size + self.regularisation


@dataclass(frozen=True, kw_only=True)
class Logistic(LinearLoss):
    """Logistic regression on targets -1 and 1: log(1 + exp(-b a.x)) + regularisation |x|^2 / 2.

    The gradient of a record is -b a / (1 + exp(b a.x)), of norm below |a| <= R at every x. So
    replacing one of q records moves the mean's gradient by less than 2 R / q. In two dimensions or
    more that is the supremum: take two records nearly orthogonal to a far x and opposite to each
    other.
    """

    link_smoothness: ClassVar[float] = 0.25

    def slope(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return -b / (1 + exp(b times the output))."""
        # Not in the targets' type: the negative of an unsigned 1 would be 255.
        opposite = -targets.to(outputs.dtype)
        return opposite * torch.sigmoid(opposite * outputs)

    def bend(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the variance of a target: the product of the two classes' probabilities."""
        return torch.sigmoid(outputs) * torch.sigmoid(-outputs)

    def dimension(self, data: AgentData) -> int:
        """Return the length of an input vector."""
        if not bool((data.targets.abs() == 1).all()):
            refuse("targets", "other values", "be -1 or 1", "map the two classes to -1 and 1")
        return super().dimension(data)

    def sensitivity(self, records: int) -> float | None:
        """Return 2 R / records, None without a feature bound."""
        return None if self.feature_bound is None else 2.0 * self.feature_bound / records


@dataclass(frozen=True, kw_only=True)
class LeastSquares(LinearLoss):
    """Least squares: (a.x - b)^2 / 2 + regularisation |x|^2 / 2.

    Its gradients have no bound, so it has no sensitivity of the loss itself: privacy needs a clip
    norm.
    """

    link_smoothness: ClassVar[float] = 1.0
    link_targets: ClassVar[tuple[float, ...] | None] = None

    def slope(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the output less the target."""
        return outputs - targets

    def bend(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(outputs)


@dataclass(frozen=True, kw_only=True)
class ModuleLoss(AgentLoss):
    """Any torch module and any differentiable loss of its outputs; agents are one vmap.

    Its curvature and sensitivity are unknown. Penalty, step size and local steps must therefore be
    given, and privacy needs a clip norm, whose steps are composed one by one.

    Args:
        model: builds the module; it must have no buffers.
        criterion: gets outputs and targets of one record with a batch dimension of 1 and returns a
            number; None for the cross-entropy of integer targets.
        regularisation: factor of |x|^2 / 2, at least 0.
    """

    model: ModelFactory
    criterion: Callable[[Tensor, Tensor], Tensor] | None = None
    regularisation: float = 0.0
    _outputs: dict[tuple[object, ...], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        non_negative(regularisation=self.regularisation)

    @cached_property
    def flat(self) -> FlatModel:
        """The module as a function of a flat vector."""
        # The build uses torch's generator, which belongs to the caller.
        with torch.random.fork_rng(devices=[]):
            return self._build()

    def _build(self) -> FlatModel:
        return FlatModel(checked_module(self.model()).double(), torch.device("cpu"))

    def dimension(self, data: AgentData) -> int:
        """Return the number of the module's parameters.

        Raises:
            ParameterError: the module or the criterion cannot be differentiated on a record of
                these shapes, or there are more classes than outputs.
        """
        known = (*data.features.shape[data.targets.dim() :], data.targets.dtype)
        if known not in self._outputs:
            self._outputs[known] = self._tried(data)
        classes = self._outputs[known]
        if self.criterion is None and not bool(
            ((data.targets >= 0) & (data.targets < classes)).all()
        ):
            refuse("targets", "others", f"be classes from 0 to {classes - 1}, as many as outputs")
        return self.flat.dimension

    def _tried(self, data: AgentData) -> int:
        """Try the gradient on two artificial records; return the number of outputs."""
        point = self.flat.flatten()
        features = point.new_full((2, *data.features.shape[data.targets.dim() :]), 0.5)
        targets, weights = data.targets.new_zeros(2), point.new_ones(2)
        parts = (point, features, targets, weights)
        with torch.random.fork_rng(devices=[]):
            check_function(
                "model, criterion",
                lambda x: self._record(x, features[0], targets[0]),
                point,
                shape=(),
                then=lambda: torch.vmap(
                    lambda x, a, b, w: self._clipped(x, a, b, w, 1.0), randomness="different"
                )(*(part[None] for part in parts)),
            )
            outputs = self.flat.logits(point, features[:1].clone())
        if not bool((features == 0.5).all()):
            refuse("model", "other inputs", "not change its inputs", "work on a clone")
        return outputs.shape[-1] if outputs.dim() else 1

    def start(self, generator: torch.Generator) -> Tensor | None:
        """Return newly initialised parameters."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            return self._build().flatten()

    def gradient(self, points: Tensor, data: AgentData, clip_norm: float | None = None) -> Tensor:
        """Return each agent's gradient; see ``AgentLoss``."""
        # ``flat`` is built here, since a module cannot be built inside vmap.
        one, _ = self._mean if clip_norm is None else self._clipped, self.flat
        over_agents = torch.vmap(
            lambda x, features, targets, weights: one(x, features, targets, weights, clip_norm),
            # Random layers draw separately for each agent.
            randomness="different",
        )
        weights = data.weights
        if points.dim() > 2:
            shared = None if data.targets.dim() == 2 else 0
            dims = (0, shared, shared, None if weights.dim() == 2 else 0)
            over_agents = torch.vmap(over_agents, in_dims=dims, randomness="different")
        # A copy, because a module may write to its parameters.
        found = over_agents(points.clone(), data.features, data.targets, weights)
        return torch.as_tensor(found).detach() + self.regularisation * points

    def _record(self, point: Tensor, features: Tensor, target: Tensor) -> Tensor:
        outputs = self.flat.logits(point, features[None])
        if self.criterion is None:
            return functional.cross_entropy(outputs, target[None].long())
        return self.criterion(outputs, target[None])

    def _mean(
        self, point: Tensor, features: Tensor, targets: Tensor, weights: Tensor, _: float | None
    ) -> Tensor:
        def loss(x: Tensor) -> Tensor:
            every = torch.vmap(lambda a, b: self._record(x, a, b), randomness="different")
            return torch.as_tensor(every(features, targets)) @ weights

        return torch.as_tensor(torch.func.grad(loss)(point))

    def _clipped(
        self, point: Tensor, features: Tensor, targets: Tensor, weights: Tensor, clip: float | None
    ) -> Tensor:
        each = torch.vmap(torch.func.grad(self._record), (None, 0, 0), randomness="different")
        gradients = torch.as_tensor(each(point, features, targets))
        norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
        factor = torch.clamp((math.inf if clip is None else clip) / norms, max=1.0)
        # 0 / 0 for a gradient of 0; a gradient that is not finite counts as 0.
        kept = torch.isfinite(norms) & (norms > 0.0)
        return weights @ torch.where(kept, gradients * factor, 0.0)
