"""Proximal operators of the regulariser h that all agents share, prox of step * h.

An operator is a function of a point, shape (..., dimension), and a step above 0. It returns argmin
over x of h(x) + |x - point|^2 / (2 step). Any function with this interface can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import non_negative, refuse, require

Prox = Callable[[Tensor, float], Tensor]
"""Gets a point of shape (..., dimension) and a step, returns a point of the same shape."""


@dataclass(frozen=True)
class L2:
    """h(x) = weight |x|^2 / 2: the point shrinks by 1 / (1 + step weight)."""

    weight: float

    def __post_init__(self) -> None:
        non_negative(weight=self.weight)

    def __call__(self, point: Tensor, step: float) -> Tensor:
        """Return the scaled point."""
        return point / (1.0 + step * self.weight)


@dataclass(frozen=True)
class L1:
    """h(x) = weight |x|_1: every coordinate goes towards 0 by step weight."""

    weight: float

    def __post_init__(self) -> None:
        non_negative(weight=self.weight)

    def __call__(self, point: Tensor, step: float) -> Tensor:
        """Return the point with every coordinate closer to 0."""
        return point.sign() * (point.abs() - step * self.weight).clamp(min=0.0)


@dataclass(frozen=True)
class ElasticNet:
    """h(x) = l1 |x|_1 + l2 |x|^2 / 2: the operator of the first term, then that of the second."""

    l1: float
    l2: float

    def __call__(self, point: Tensor, step: float) -> Tensor:
        """Return the smaller point."""
        return L2(self.l2)(L1(self.l1)(point, step), step)


@dataclass(frozen=True)
class Box:
    """h(x) = 0 if every coordinate lies between low and high, else infinite."""

    low: float
    high: float

    def __post_init__(self) -> None:
        require(self.low <= self.high, "low, high", (self.low, self.high), "be sorted")

    def __call__(self, point: Tensor, step: float) -> Tensor:
        """Return the nearest point of the box."""
        return point.clamp(self.low, self.high)


@dataclass(frozen=True)
class Group:
    """h(x) = weight times the sum over groups of coordinates of the group's Euclidean norm.

    Args:
        weight: at least 0.
        groups: coordinates of each group, none in two groups; a coordinate in no group is
            unchanged.
    """

    weight: float
    groups: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        non_negative(weight=self.weight)
        every = [coordinate for group in self.groups for coordinate in group]
        once = len(set(every)) == len(every)
        require(once, "groups", self.groups, "contain every coordinate at most once")

    def __call__(self, point: Tensor, step: float) -> Tensor:
        """Return the point with every group shrunk towards 0 by step weight."""
        result = point.clone()
        for group in self.groups:
            part = point[..., list(group)]
            size = torch.linalg.vector_norm(part, dim=-1, keepdim=True)
            # A group of zeros stays zero, without a division by 0.
            kept = (1.0 - step * self.weight / size.clamp(min=1e-300)).clamp(min=0.0)
            result[..., list(group)] = part * kept
        return result


def checked_prox(prox: Prox | None, point: Tensor, step: float) -> Tensor:
    """Return the result of a proximal operator, or the point itself without an operator.

    Raises:
        ParameterError: not a tensor of the point's shape, or entries that are not finite.
    """
    if prox is None:
        return point
    found = prox(point, step)
    if not isinstance(found, Tensor) or found.shape != point.shape:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        refuse(
            "regulariser", shape, f"return a tensor of the shape of its input, {tuple(point.shape)}"
        )
    # If the point is already not finite, the regulariser is not at fault.
    finite = not bool(torch.isfinite(point).all()) or bool(torch.isfinite(found).all())
    rule = "return a finite point for a finite one"
    require(finite, "regulariser", "NaN or infinity", rule)
    return found.to(point.dtype)
