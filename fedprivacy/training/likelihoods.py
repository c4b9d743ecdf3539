"""Likelihoods of records, and sums of their clipped gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from ..errors import integer, refuse, require
from .models import ModelFactory
from .optimise import FlatModel, has_slope, type_and_shape

MARGIN = 1.0 - 1e-5
"""Factor on the clip norm, as a margin for the single precision of gradients."""


_LEAST = 1e-15
"""Shorter residuals count as zero: their squares underflow in single precision."""

_RECORDS, _BLOCK = 512, 1 << 16
"""Records of a seat, and numbers of several seats, converted to double precision at once."""


class Model(Protocol):
    """A likelihood of records, as needed by the samplers."""

    @property
    def dimension(self) -> int:
        """Number of parameters d."""

    def gradient_sums(
        self, points: Tensor, features: Tensor, labels: Tensor, mask: Tensor, clip: float | None
    ) -> Tensor:
        """Return sums of the records' gradients of minus the log-likelihood, shape (seats, d).

        Clipped gradients are added up in double precision. Replacing one record changes their sum
        by at most twice the clip norm, rounding included, up to 100,000 records (n^2 2^-53 and the
        rounding of norms are within ``MARGIN``).

        Args:
            points: parameters of each seat, shape (seats, d).
            features: shape (seats, records, ...).
            labels: shape (seats, records).
            mask: 1 for a record, 0 for padding, shape (seats, records).
            clip: norm that each record's gradient is clipped to; None for no clipping.
        """


LogLikelihood = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(parameters (d,), features (records, ...), labels (records,)) -> shape (records,)."""


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Any log-likelihood per record that torch can differentiate.

    With clipping, the gradient of each record is computed separately (vectorised), which keeps
    ``records x d`` numbers in memory.

    Args:
        function: (parameters, features, labels) -> log-likelihood of each record; the value of a
            record must depend only on that record.
        dimension: number of parameters d.
    """

    function: LogLikelihood
    dimension: int

    def __post_init__(self) -> None:
        integer(1, dimension=self.dimension)

    def gradient_sums(
        self, points: Tensor, features: Tensor, labels: Tensor, mask: Tensor, clip: float | None
    ) -> Tensor:
        """See ``Model``."""
        # A copy, because the function may write to its parameters.
        points = points.clone()
        if clip is None:
            total = torch.vmap(torch.func.grad(self._total))
            return torch.as_tensor(total(points, features, labels, mask))
        one = torch.vmap(torch.func.grad(self._single), in_dims=(None, 0, 0))
        each = torch.vmap(one)(points, features, labels)
        factor = clip_factor(norms_of(each), clip) * mask
        # A record with factor 0 must not spread its NaN: 0 times infinity is NaN.
        kept = torch.where(factor[..., None] > 0.0, each, 0.0)
        return _summed(factor[..., None], kept)[:, 0]

    def check(self, features: Tensor, labels: Tensor, clip: float | None) -> None:
        """Check the function on two records of no client, in the same way as later calls.

        Raises:
            ParameterError: it does not return one number for each record, or cannot be
                differentiated.
        """
        point, mask = features.new_zeros(self.dimension), features.new_ones((1, 2))
        check_function(
            "log_likelihood",
            lambda x: self.function(x, features, labels),
            point,
            shape=(2,),
            then=lambda: self.gradient_sums(point[None], features[None], labels[None], mask, clip),
        )

    def _total(self, point: Tensor, features: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return -(self.function(point, features, labels) * mask).sum()

    def _single(self, point: Tensor, features: Tensor, label: Tensor) -> Tensor:
        return -self.function(point, features[None], label[None])[0]


def check_function(
    name: str,
    function: Callable[[Tensor], object],
    point: Tensor,
    *,
    shape: tuple[int, ...],
    then: Callable[[], object],
) -> None:
    """Check a caller's function of parameters, before the first round.

    Args:
        name: name of the caller's argument.
        function: the function, on records that belong to no client.
        point: parameters, shape (d,).
        shape: shape of the value that it must return.
        then: further check, run if the value fits.

    Raises:
        ParameterError: it raises, writes to its parameters, or returns a value other than real
            numbers of this shape that torch can differentiate.
    """
    before, here, found = point.clone(), point.clone().requires_grad_(), None
    try:
        found = function(here)
        fits = isinstance(found, Tensor) and found.shape == shape and has_slope(found)
        if fits:
            then()
    except Exception as error:
        first, *_ = [*str(error).splitlines(), ""]
        raised = f"{type(error).__name__}: {first}"
        way_out = "it runs under torch.vmap; do not write to parameters, branch on values "
        way_out += "or draw random numbers, and use distributions of torch with validate_args=False"
        refuse(name, raised, "be a differentiable function of tensors", way_out)
    kept = torch.equal(here.detach(), before)
    require(kept, name, "other ones", "not change its parameters")
    rule = f"return shape {shape} for {'two records' if shape else 'a record'}, real numbers "
    rule += "that torch can differentiate"
    require(
        fits,
        name,
        type_and_shape(found),
        rule,
        "sum over the columns of a record, not over records",
    )


def classifier(model: ModelFactory, *, device: str = "cpu") -> NetworkLikelihood:
    """Return the likelihood of a torch module's classes: softmax of its output."""
    return NetworkLikelihood(FlatModel(model(), torch.device(device)))


class NetworkLikelihood(Likelihood):
    """A module as a likelihood; made by ``classifier``."""

    def __init__(self, flat: FlatModel) -> None:
        """See ``classifier``."""
        super().__init__(self._log_likelihood, flat.dimension)
        # Set with object.__setattr__, because the dataclass is frozen.
        object.__setattr__(self, "flat", flat)

    def logits(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Return the module's output, shape (records, classes)."""
        flat: FlatModel = self.flat  # type: ignore[attr-defined]
        return flat.logits(parameters, features)

    def _log_likelihood(self, parameters: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        return -functional.cross_entropy(
            self.logits(parameters, features), labels, reduction="none"
        )


def norms_of(rows: Tensor) -> Tensor:
    """Return the norms along the last axis, in double precision.

    A single-precision sum of squares, added one by one, has rounding errors of the same sign. For a
    million equal numbers the norm is too small by a relative 7e-4, so a gradient clipped with it is
    too long.
    """
    return torch.as_tensor(torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64))


def clip_factor(norms: Tensor, clip: float) -> Tensor:
    """Return the clipping factor for each norm; 0 for a norm that is not finite, or nearly so.

    A record whose gradient overflows gets factor 0: if the run stopped, the stop would reveal the
    record. A factor too small to have full precision is also set to 0.
    """
    factor = (MARGIN * clip / norms).clamp(max=1.0)
    exact = torch.isfinite(norms) & (factor >= torch.finfo(norms.dtype).tiny)
    return torch.where(exact, factor, 0.0)


def _summed(left: Tensor, right: Tensor) -> Tensor:
    """Return left' right of each seat in double precision, in blocks that fit a cache.

    Args:
        left: shape (seats, records, a).
        right: shape (seats, records, b).
    """
    seats, records, wide = len(left), left.shape[1], left.shape[2] + right.shape[2]
    total = left.new_zeros((seats, left.shape[2], right.shape[2]), dtype=torch.float64)
    few = max(1, _BLOCK // max(1, wide * min(records, _RECORDS)))
    for seat in range(0, seats, few):
        here = slice(seat, seat + few)
        for at in range(0, records, _RECORDS):
            some = slice(at, at + _RECORDS)
            part = left[here, some].double().transpose(1, 2)
            total[here].baddbmm_(part, right[here, some].double())
    return total


@dataclass(frozen=True)
class SoftmaxRegression:
    """Multinomial logistic regression with an intercept; records' gradients in closed form.

    Parameters are the flat weights, shape (classes, features), then the intercepts, as in
    ``models.logistic``. A record's gradient is (probabilities - label) times (inputs, 1). Its norm
    is the product of the two norms, so clipping needs no separate gradient for each record.

    Args:
        features: length of one flattened input.
        classes: number of classes.
    """

    features: int
    classes: int

    def __post_init__(self) -> None:
        integer(1, features=self.features)
        integer(2, classes=self.classes)

    @property
    def dimension(self) -> int:
        """(features + 1) x classes."""
        return (self.features + 1) * self.classes

    def logits(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Return the scores, shape (..., records, classes), for parameters of shape (..., d)."""
        weights = parameters[..., : self.features * self.classes]
        weights = weights.reshape(*parameters.shape[:-1], self.classes, self.features)
        intercepts = parameters[..., self.features * self.classes :]
        return torch.as_tensor(features @ weights.transpose(-1, -2) + intercepts[..., None, :])

    def gradient_sums(
        self, points: Tensor, features: Tensor, labels: Tensor, mask: Tensor, clip: float | None
    ) -> Tensor:
        """See ``Model``."""
        inputs = features.flatten(2)
        apart = self.logits(points, inputs).softmax(-1)
        less_one = apart.new_full((1, 1, 1), -1.0).expand(*labels.shape, 1)
        # The gradient in the scores is the probabilities, less 1 at the label.
        apart.scatter_add_(-1, labels[..., None], less_one)
        factor = mask
        if clip is not None:
            # The intercept's input is 1, which is part of the norm.
            long = norms_of(inputs).square().add(1.0).sqrt()
            wide = norms_of(apart)
            factor = mask * clip_factor(torch.where(wide > _LEAST, wide * long, math.inf), clip)
        # If the factor is 0, the product may be NaN.
        apart = torch.where(factor[..., None] > 0.0, apart * factor[..., None], 0.0)
        if clip is None:
            slopes, totals = apart.transpose(-1, -2) @ inputs, apart.sum(1)
        else:
            slopes, totals = _summed(apart, inputs), apart.double().sum(1)
        return torch.cat([slopes.flatten(1), totals], dim=1)
