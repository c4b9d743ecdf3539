"""Posteriors of records split over clients, and the gradients of their clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import integer, non_negative, positive, refuse, require
from ..mechanisms.rounded import STEP_GRID
from ..rounding import THOUSANDS
from .data import FederatedData
from .likelihoods import Likelihood, LogLikelihood, Model, NetworkLikelihood, SoftmaxRegression
from .optimise import part_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_PROBED = 1e-3
"""Relative slack of a curvature that is estimated from two points."""

WORKSPACE = 2**25
"""Largest number of values held at once for inputs, or for per-record gradients under clipping."""


class Local(Protocol):
    """Clients at work in one round, in coordinates chosen by the target.

    ``points`` has shape (chains, seats, d): row j of a chain is the client in its j-th seat.
    """

    points: Any

    def parts(self, points: Any, factor: float) -> tuple[Any, Any]:
        """Return ``factor`` times each client's (stochastic) gradient in two parts, in doubles.

        The first part depends on the client's data and must not be overwritten. The second is the
        public part: a factor, or an array of factors, of the points; None if it is zero. Only the
        first part receives noise.
        """

    def normal(self, generator: np.random.Generator) -> Any:
        """Return standard normal noise of the shape of ``points``, a new array."""

    def shared(self, generator: np.random.Generator) -> Any:
        """Return standard normal noise for each chain, shared by all of its clients."""

    def spread(self, each: Array) -> Array:
        """Return seats' values, shape (chains or 1, seats, 1 or d), in the target's form."""

    def scaled(self, each: Array) -> Any:
        """Return a result of ``spread`` as a factor of points."""

    def finish(self, points: Any) -> Tensor:
        """Return points in the parameters' own coordinates, shape (chains, seats, d)."""

    def outward(self, directions: Any) -> Tensor:
        """Return directions, such as gradients, in the parameters' own coordinates."""

    def inward(self, directions: Tensor) -> Any:
        """Return directions in the coordinates of ``points``."""


class Spread(NamedTuple):
    """Stds of the noise in one step, from the seats' mechanisms.

    Args:
        stds: shape (chains or 1, seats, 1 or d); one number if all are equal.
        least: the smallest std; 0 only if no seat draws noise.
        grid: spacing of the released values, in stds.
    """

    stds: Array | float
    least: float
    grid: float = STEP_GRID

    @classmethod
    def of(cls, stds: Array, local: Local) -> Spread:
        """Return stds of seats, shape (chains or 1, seats, 1 or d), in the form of ``local``."""
        least = float(stds.min())
        return cls(least if least == stds.max() else local.spread(stds), least)


class Target(Protocol):
    """f = sum_c p_c f^c split over clients; its samples have density exp(-f / temperature)."""

    @property
    def shares(self) -> Array:
        """The clients' weights p_c, shape (N,), above 0, sum to 1."""

    @property
    def dimension(self) -> int:
        """Number of parameters d."""

    @property
    def sensitivity(self) -> float | None:
        """Largest distance between the gradients of two records; None without privacy."""

    @property
    def curvature(self) -> tuple[float, float]:
        """Upper bound on the common strong convexity and lower bound on the smoothness of all f^c.

        Only public knowledge is used, no protected data. Infinity and 0 mean that the target knows
        no bound.
        """

    @property
    def clip_norm(self) -> float | None:
        """Norm that records' gradients are clipped to; None without clipping."""

    @property
    def start(self) -> Tensor:
        """Default start of the chains, shape (d,); public."""

    def batch_sizes(self, fraction: float) -> tuple[Indices, Array]:
        """Return the size of each client's batch, and its fraction of the client's records."""

    def local(
        self, clients: Indices, starts: Tensor, fraction: float, generator: np.random.Generator
    ) -> Local:
        """Return the clients of a round, shape (chains or 1, seats), at their chains' starts."""


def checked_shares(weights: Any, clients: int) -> Array:
    """Return weights above 0 that sum to 1, one for each client.

    Raises:
        ParameterError: a weight is not above 0, the sum is not 1, or their number is wrong.
    """
    shares = np.asarray(weights, dtype=np.float64).reshape(-1)
    fits = shares.shape == (clients,) and np.all(shares > 0.0)
    require(fits, "weights", shares.tolist(), f"be {clients} numbers above 0")
    whole = math.isclose(math.fsum(shares), 1.0, rel_tol=1e-9)
    require(whole, "weights", math.fsum(shares), "sum to 1", "divide them by their sum")
    return shares


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """Likelihood of records and a Gaussian prior, split over clients.

    f is the negative log-likelihood of all records plus the negative log-prior. Client c's function
    f^c is 1 / p_c times the negative log-likelihood of its records, plus the negative log-prior. So
    sum_c p_c f^c = f.

    Args:
        model: a ``Likelihood``, a ``SoftmaxRegression``, or a result of ``classifier``.
        data: the clients and their records.
        prior_precision: precision of every parameter's prior, centred at 0; 0 for a flat prior.
        clip_norm: norm that each record's gradient is clipped to; two gradients then differ by at
            most twice this norm. The chain then samples from the distribution defined by the
            clipped gradients, no longer from the posterior.
        own_sensitivity: largest distance between two records' gradients, instead of ``clip_norm``.
            It is a property of the likelihood and of the range of the records. With neither there
            is no privacy.
        weights: p_c; the clients' shares of the records if None. They change the noise of a client,
            not the target. They are public, not part of the protected data.
        device: device of the computation.

    Raises:
        ParameterError: weights that do not sum to 1, both a clip norm and a sensitivity, or a value
            out of its range; a likelihood that does not return one real number for each record, or
            cannot be differentiated.
    """

    model: Model
    data: FederatedData
    prior_precision: float = 1.0
    clip_norm: float | None = None
    own_sensitivity: float | None = None
    weights: Any = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        non_negative(prior_precision=self.prior_precision)
        kept = isinstance(self.data, FederatedData)
        way_out = "pass FederatedData, or use Posterior.of"
        require(kept, "data", type(self.data).__name__, "be FederatedData", way_out)
        if self.clip_norm is not None and self.own_sensitivity is not None:
            given = (self.clip_norm, self.own_sensitivity)
            refuse("clip_norm, own_sensitivity", given, "be given one without the other")
        for name in ("clip_norm", "own_sensitivity"):
            if getattr(self, name) is not None:
                positive(**{name: getattr(self, name)})
        # Checked here, before the first round.
        _ = self.shares
        if isinstance(self.model, Likelihood):
            self._try(self.model)
        elif isinstance(self.model, SoftmaxRegression):
            self._check_classes(self.model)

    def _check_classes(self, model: SoftmaxRegression) -> None:
        """Refuse records that do not fit the features and classes of a softmax regression."""
        size = self.data.features[0].numel()
        rule = f"have {model.features} numbers per record, the features of the model"
        require(size == model.features, "data", f"{size} numbers per record", rule)
        labelled = len(self.data.labels) == len(self.data.features)
        require(labelled, "labels", len(self.data.labels), "be given, one per record")
        rule = f"have at most {model.classes} classes, those of the model"
        require(self.data.classes <= model.classes, "labels", f"{self.data.classes} classes", rule)

    def _try(self, model: Likelihood) -> None:
        """Evaluate a likelihood on zeros of the records' shapes, with the last class as label."""
        inputs, targets = (part.to(self.device) for part in self.data.example())
        last = self.data.classes - 1 if isinstance(model, NetworkLikelihood) else 0
        made = targets.new_full((2, *targets.shape[1:]), last)
        model.check(inputs.new_zeros((2, *inputs.shape[1:])), made, self.clip_norm)

    @classmethod
    def of(
        cls,
        log_likelihood: Callable[..., Tensor],
        *,
        clients: Sequence[Any],
        dimension: int,
        prior_precision: float = 1.0,
        clip_norm: float | None = None,
        own_sensitivity: float | None = None,
        weights: Any = None,
    ) -> Posterior:
        """Return a posterior for any likelihood and any records.

        Args:
            log_likelihood: takes parameters, shape (dimension,), inputs, shape (records, ...), and
                targets, shape (records, ...); returns the log-likelihood of each record, shape
                (records,). Without targets it takes the first two.
            clients: (inputs, targets) of each client, arrays or tensors, or only the inputs; the
                first axis is the records.
            dimension: number of parameters.
            prior_precision: see ``Posterior``, as for the next three.
            clip_norm: norm that records' gradients are clipped to.
            own_sensitivity: sensitivity of the likelihood's gradients.
            weights: weights of the clients.

        Raises:
            ParameterError: clients whose records do not agree, or a function that does not return
                one number for each record or cannot be differentiated.
        """
        many = isinstance(clients, Sequence) and not isinstance(clients, str)
        rule, way_out = "be a sequence with one entry per client", "list(clients.values())"
        require(many, "clients", type(clients).__name__, rule, way_out)
        pairs = len(clients) > 0 and isinstance(clients[0], tuple | list)
        data = _federated(clients if pairs else [(inputs, None) for inputs in clients])
        likelihood = log_likelihood if pairs else _without_targets(log_likelihood)
        return cls(
            model=Likelihood(likelihood, dimension),
            data=data,
            prior_precision=prior_precision,
            clip_norm=clip_norm,
            own_sensitivity=own_sensitivity,
            weights=weights,
        )

    @cached_property
    def counts(self) -> Indices:
        """Number of records of each client, shape (N,)."""
        return np.array([len(rows) for rows in self.data.clients], dtype=np.int64)

    @cached_property
    def shares(self) -> Array:
        """The clients' weights."""
        weights = self.counts / self.counts.sum() if self.weights is None else self.weights
        return checked_shares(weights, self.data.population)

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return self.model.dimension

    @property
    def sensitivity(self) -> float | None:
        """Twice the clip norm, or the likelihood's own."""
        return self.own_sensitivity if self.clip_norm is None else 2.0 * self.clip_norm

    @property
    def curvature(self) -> tuple[float, float]:
        """Bounds on the curvature that hold for every data set, as visible from the likelihood.

        For a softmax regression it is the prior's curvature, because adding a constant to all
        classes' scores changes no probability. For other likelihoods it is the curvature of records
        of zeros.
        """
        prior = self.prior_precision
        if isinstance(self.model, SoftmaxRegression):
            return prior, prior
        if not isinstance(self.model, Likelihood):
            return math.inf, 0.0
        slopes = self._of_zeros(self.model)
        each = torch.from_numpy(self.counts / self.shares)[:, None] * slopes
        # Single precision loses some digits in a difference of gradients.
        least, most = float(each.min()), float(each.max())
        slack = _PROBED * max(abs(least), abs(most))
        return prior + least + slack, prior + most - slack

    def _of_zeros(self, model: Likelihood) -> Tensor:
        """Return slopes of the gradient of a record of zeros, each between two random points."""
        generator = torch.Generator().manual_seed(0)
        inputs, targets = (part.to(self.device) for part in self.data.example())
        points = torch.randn(8, self.dimension, generator=generator).to(self.start)
        features = inputs.new_zeros((8, 1, *inputs.shape[1:]))
        labels = targets.new_zeros((8, 1, *targets.shape[1:]))
        mask = points.new_ones((8, 1))
        gradients = model.gradient_sums(points, features, labels, mask, None)
        moved, grown = (part[:4].double() - part[4:].double() for part in (points, gradients))
        return ((moved * grown).sum(1) / moved.square().sum(1)).cpu()

    @property
    def start(self) -> Tensor:
        """Zero, the mean of the prior."""
        return torch.zeros(self.dimension, dtype=self.data.features.dtype, device=self.device)

    def batch_sizes(self, fraction: float) -> tuple[Indices, Array]:
        """Return the number of records in a batch, rounded up, and the resulting fractions."""
        # A product that rounds up past an integer must not add a record.
        sizes = np.ceil(fraction * self.counts * (1.0 - THOUSANDS)).astype(np.int64)
        return sizes, sizes / self.counts

    def local(
        self, clients: Indices, starts: Tensor, fraction: float, generator: np.random.Generator
    ) -> RecordsLocal:
        """Return the clients at work."""
        everyone = np.broadcast_to(clients, (len(starts), clients.shape[1]))
        return RecordsLocal(self, everyone, starts, fraction, generator)


def _federated(clients: Sequence[tuple[Any, Any]]) -> FederatedData:
    """Return clients' (inputs, targets) as one data set."""
    integer(1, clients=len(clients))
    parts = [[torch.as_tensor(each) for each in one if each is not None] for one in clients]
    for number, part in enumerate(parts):
        _check_columns(f"clients[{number}]", part, len(parts[0]))
    sizes = [len(part[0]) for part in parts]
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    columns = dict(zip(("features", "labels"), zip(*parts, strict=True), strict=False))
    known = {name: torch.cat(column) for name, column in columns.items()}
    return FederatedData(clients=tuple(rows), **known)  # type: ignore[arg-type]


def _check_columns(name: str, columns: list[Tensor], wanted: int) -> None:
    shapes, lengths = [tuple(values.shape) for values in columns], set(map(len, columns))
    fits = len(columns) == wanted and len(lengths) == 1
    require(fits, name, shapes, "have one target for every input")


def _without_targets(function: Callable[[Tensor, Tensor], Tensor]) -> LogLikelihood:
    return lambda parameters, inputs, _: function(parameters, inputs)


class RecordsLocal:
    """Clients that hold records and draw a fresh batch of them for every gradient."""

    def __init__(
        self,
        posterior: Posterior,
        clients: Indices,
        starts: Tensor,
        fraction: float,
        generator: np.random.Generator,
    ) -> None:
        """See ``Local`` and ``Target.local``."""
        self._posterior, self._generator = posterior, generator
        self._seats = clients.reshape(-1)
        self._batches = posterior.batch_sizes(fraction)[0]
        self._whole = bool(np.all(self._batches == posterior.counts))
        # A batch represents all records of its client, and a client its share of all records.
        weight = self._batches / posterior.counts * posterior.shares
        self._scale = self._doubles(1.0 / weight[self._seats])[:, None]
        # A row for every seat: the clients of a chain separate in their first step.
        self.points: Tensor = starts[:, None, :].double().repeat(1, clients.shape[1], 1)

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._posterior.device, self._posterior.start.dtype)

    def _doubles(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._posterior.device, torch.float64)

    def parts(self, points: Tensor, factor: float) -> tuple[Tensor, float | None]:
        """Return gradients from fresh batches, without replacement, and the prior's factor.

        Both use double precision, like the points until ``finish``. Rounding a private sum before
        noise is added would increase its sensitivity.
        """
        flat = points.reshape(len(self._seats), -1)
        # With whole data every step uses the same rows, so they are made once.
        rows, mask = self._everything if self._whole else self._drawn()
        # A few seats at a time, so that memory stays bounded for every size of the cohort.
        few = max(1, WORKSPACE // self._width(rows.shape[1]))
        parts = [
            self._sums(flat[at : at + few], rows[at : at + few], mask[at : at + few])
            for at in range(0, len(flat), few)
        ]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        own = (whole * (factor * self._scale)).view_as(points)
        # A flat prior has no gradient.
        return own, factor * self._posterior.prior_precision or None

    def _width(self, records: int) -> int:
        """Return the number of values in memory for one seat."""
        post = self._posterior
        size = post.data.features[0].numel()
        # Clipping a general likelihood keeps every record's gradient in memory; closed forms do
        # not.
        one_by_one = post.clip_norm is not None and isinstance(post.model, Likelihood)
        return records * (size + (post.dimension if one_by_one else 0))

    def _sums(self, points: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        post = self._posterior
        records = (post.data.features, post.data.labels)
        features, labels = (part_of(rows, part).to(post.device) for part in records)
        # Clipping bounds the effect of rounding; a stated sensitivity does not. Doubles keep it
        # small.
        kind = torch.float64 if post.own_sensitivity is not None else post.start.dtype
        points, mask = points.to(kind), mask.to(kind)
        features = features.to(kind) if features.is_floating_point() else features
        return post.model.gradient_sums(points, features, labels, mask, post.clip_norm).double()

    @cached_property
    def _everything(self) -> tuple[Tensor, Tensor]:
        return self._padded([self._posterior.data.clients[c] for c in self._seats])

    def _drawn(self) -> tuple[Tensor, Tensor]:
        return self._padded([self._batch(int(c)) for c in self._seats])

    def _batch(self, client: int) -> Indices:
        own = self._posterior.data.clients[client]
        size = int(self._batches[client])
        # A batch is a set, so the order of its records is not drawn.
        return own[self._generator.choice(len(own), size, replace=False, shuffle=False)]

    def _padded(self, batches: list[Indices]) -> tuple[Tensor, Tensor]:
        """Return row numbers and their weights, shape (seats, records)."""
        rows = np.empty(self._mask.shape, np.int64)
        for row, batch in zip(rows, batches, strict=True):
            row[: len(batch)] = batch
            row[len(batch) :] = batch[-1]  # a record of the same seat, with weight 0
        return torch.from_numpy(rows), self._mask

    @cached_property
    def _mask(self) -> Tensor:
        """1 for a record of a batch, 0 for padding, shape (seats, records)."""
        sizes = self._batches[self._seats]
        return self._tensor(np.arange(sizes.max()) < sizes[:, None])

    def normal(self, generator: np.random.Generator) -> Tensor:
        """Return noise of the shape of the points."""
        return self._noise(generator, tuple(self.points.shape))

    def shared(self, generator: np.random.Generator) -> Tensor:
        """Return each chain's noise."""
        return self._noise(generator, (len(self.points), 1, self.points.shape[2]))

    def _noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        # This noise gives no privacy, so single precision suffices.
        single = self._posterior.start.dtype == torch.float32
        noise = generator.standard_normal(shape, dtype=np.float32 if single else np.float64)
        return self._doubles(noise)

    def spread(self, each: Array) -> Array:
        """Return the values of the seats unchanged."""
        return each

    def scaled(self, each: Array) -> Tensor:
        """Return the values of the seats as a tensor."""
        return self._doubles(each)

    def finish(self, points: Tensor) -> Tensor:
        """Return the points with their noise, in the precision of the start."""
        return points.to(self._posterior.start.dtype)

    def outward(self, directions: Tensor) -> Tensor:
        """Return directions in the precision of the start: there is only one set of coordinates."""
        return self.finish(directions)

    def inward(self, directions: Tensor) -> Tensor:
        """Return directions in double precision."""
        return directions.double()
