"""Facts about the set of losses of a curve, each computed when it is first read."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from .max_loss import UNKNOWN, MaxLoss

T = TypeVar("T")

_Given: TypeAlias = T | Callable[[], T]
"""A value, or a function without arguments that computes it."""


class Support:
    """The losses of a curve. Every argument is a value, or a function that computes it.

    Args:
        largest: the largest loss of P against Q, and P's mass at infinite loss.
        swapped_largest: the same of Q against P; by default not known, or that of a symmetric
            curve.
        symmetric: whether the curve is known to equal its own swap.
        exact: whether ``tails`` is exact up to floating point, for both sides.
        amplifiable: whether ``tails`` from below are those of a pair with P and Q at most lowered.
            Then mixing P with Q keeps them valid from below. With a raised Q they would not be
            valid. By default this is ``exact``.
        above_only: whether no number is certified from below, so that only upper ends exist.
        mesh: a step that divides all losses; inf if all losses are 0, 0 if there is no step.
        cover: a mu such that N(mu, 1) against N(0, 1) dominates the curve, or inf.
        by_step: whether a law is computed for every step of a lattice, at a high cost.
    """

    def __init__(
        self,
        *,
        largest: _Given[MaxLoss] = UNKNOWN,
        swapped_largest: _Given[MaxLoss] | None = None,
        symmetric: _Given[bool] = False,
        exact: _Given[bool] = True,
        amplifiable: _Given[bool] | None = None,
        above_only: _Given[bool] = False,
        mesh: _Given[float] = 0.0,
        cover: _Given[float] = math.inf,
        by_step: bool = False,
    ) -> None:
        self._largest, self._swapped_largest = largest, swapped_largest
        self._symmetric, self._exact, self._amplifiable = symmetric, exact, amplifiable
        self._above_only, self._mesh, self._cover = above_only, mesh, cover
        self.by_step = by_step

    @functools.cached_property
    def largest(self) -> MaxLoss:
        """The largest loss of P against Q, and P's mass at infinite loss."""
        return _value(self._largest)

    @functools.cached_property
    def swapped_largest(self) -> MaxLoss:
        """The largest loss of Q against P, and Q's mass at infinite loss."""
        if self._swapped_largest is not None:
            return _value(self._swapped_largest)
        # A symmetric pair equals its own reverse.
        return self.largest if self.symmetric else UNKNOWN

    @functools.cached_property
    def symmetric(self) -> bool:
        """Whether the curve is known to equal its own swap."""
        return _value(self._symmetric)

    @functools.cached_property
    def exact(self) -> bool:
        """Whether the tails are exact, for both sides."""
        return _value(self._exact)

    @functools.cached_property
    def amplifiable(self) -> bool:
        """Whether mixing P with Q keeps the tails from below valid."""
        return self.exact if self._amplifiable is None else _value(self._amplifiable)

    @functools.cached_property
    def above_only(self) -> bool:
        """Whether only upper ends exist."""
        return _value(self._above_only)

    @functools.cached_property
    def mesh(self) -> float:
        """A step that divides all losses; inf if all losses are 0, 0 if there is no step."""
        return _value(self._mesh)

    @functools.cached_property
    def cover(self) -> float:
        """A mu such that N(mu, 1) against N(0, 1) dominates the curve, or inf."""
        return _value(self._cover)


def _value(given: T | Callable[[], T]) -> T:
    return given() if callable(given) else given
