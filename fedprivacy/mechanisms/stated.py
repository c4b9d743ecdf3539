"""Mechanisms with a known guarantee and no other description."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ..errors import UnsupportedCombination, member, non_negative, positive, refuse, validate_fields
from ..loss import Curve, Gdp, RenyiLine, RenyiPoints, stated_pair
from ..loss.curves.stated import MAX_EPSILON
from ..privacy_loss import PrivacyLoss
from ..registry import registered
from ..relations import Adjacency, Facts, Observer, Unit
from ..rounding import rounded_up
from ..sampling.traits import Traits
from .base import UnitGiven

MAX_POINTS = 2000
"""Most points of one guarantee."""

Points = tuple[tuple[float, float], ...]
Check = Callable[[object, object], tuple[float, float]]


def _points(name: str, value: object, example: str, check: Check) -> Points:
    """Return checked pairs of numbers, sorted, without duplicates."""
    rule, way_out = "be one or more pairs of numbers", f"pass {name}={example}, for example"
    try:
        pairs = [tuple(pair) for pair in value]  # type: ignore[attr-defined]
    except TypeError:
        refuse(name, value, rule, way_out)
    if len(pairs) > MAX_POINTS:
        refuse(name, f"{len(pairs)} pairs", f"be at most {MAX_POINTS}", "leave some out")
    if not pairs or any(len(pair) != 2 for pair in pairs):
        refuse(name, value, rule, way_out)
    # Sorted and unique, so that equal guarantees compare equal.
    return tuple(sorted({check(first, second) for first, second in pairs}))


def _guarantee(epsilon: object, delta: object) -> tuple[float, float]:
    found, mass = non_negative(epsilon=epsilon), non_negative(delta=delta)
    if found > MAX_EPSILON:
        refuse("epsilon", found, f"be at most {MAX_EPSILON:g}", "leave out this guarantee")
    if mass >= 1.0:
        refuse("delta", mass, "be below 1", "leave it out, since every mechanism satisfies it")
    return found, mass


def _divergence(order: object, divergence: object) -> tuple[float, float]:
    way_out = "an infinite order is pure DP; state ApproximateDp(guarantees=((epsilon, 0.0),), ...)"
    found = positive(way_out, order=order)
    if found <= 1.0:
        refuse("order", found, "be above 1", "leave out this order")
    return found, non_negative("leave out this order", divergence=divergence)


@dataclass(frozen=True, kw_only=True)
class StatedGuarantee(UnitGiven):
    """Base of stated mechanisms: the adjacency and the unit of the guarantee."""

    adjacency: Adjacency | str
    unit: Unit | str | None = None
    zeroed_is_absent: bool = False
    observer: Observer | str = Observer.SERVER

    theorem: ClassVar[str]
    """Why the curve dominates."""

    def __post_init__(self) -> None:
        validate_fields(self, partial(member, Adjacency), "adjacency")
        validate_fields(self, partial(member, Observer), "observer")
        if self.observer is Observer.FINAL:
            rule = "be 'aggregate' or 'server'"
            refuse("observer", str(self.observer), rule, "a guarantee covers a whole release")
        if self.zeroed_is_absent and self.adjacency is not Adjacency.ZERO_OUT:
            given, rule = str(self.adjacency), "be False unless adjacency is 'zero_out'"
            refuse(
                "zeroed_is_absent",
                self.zeroed_is_absent,
                rule,
                f"it applies only to zero_out, not to {given!r}",
            )
        super().__post_init__()

    @property
    def traits(self) -> Traits:
        """What was stated. The number of participants may need to be secret."""
        secret = self.observer is Observer.AGGREGATE
        return Traits(zeroed_is_absent=self.zeroed_is_absent, secret_size=secret)

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """Curve that dominates every mechanism with this guarantee."""

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the guarantee, for the adjacency that it is about."""
        if facts.adjacency is not self.adjacency:
            name = type(self).__name__
            raise UnsupportedCombination(
                f"{name} was stated for adjacency={str(self.adjacency)!r}, not for "
                f"{str(facts.adjacency)!r}; account under {str(self.adjacency)!r}, or state a "
                f"guarantee for the other adjacency: {name}(..., "
                f"adjacency={str(facts.adjacency)!r})"
            )
        # An observer who sees participation needs a guarantee that covers it.
        if facts.observer is Observer.SERVER is not self.observer:
            raise UnsupportedCombination(
                f"this {type(self).__name__} was stated for observers who do not see the "
                "participants, not for the server; account for observer='aggregate', or state "
                "it with observer='server' if it holds for an observer who sees the "
                "participants"
            )
        assumed = [f"the {type(self).__name__} guarantee is true for all earlier releases"]
        if self.zeroed_is_absent:
            assumed.append("a unit that is zeroed out has the same release as an absent unit")
        return PrivacyLoss(self.curve, facts, None, (self.theorem,), tuple(assumed))


@registered
@dataclass(frozen=True, kw_only=True)
class ApproximateDp(StatedGuarantee):
    """Any mechanism that is (epsilon, delta)-DP at each of the given points.

    The account uses the mechanism with the largest loss, single and composed, among all that
    satisfy the guarantees (T12). For one point and many runs this is the optimal composition of
    Kairouz, Oh and Viswanath (2015). More points give a smaller loss. No data sets are known to
    attain it, so ``Bound.lower`` is 0. If delta is above 0 at every epsilon, there is no Renyi
    account.

    Args:
        guarantees: (epsilon, delta) pairs that all hold, for both orders of any two neighbours;
            epsilon in [0, 500], delta in [0, 1).
        adjacency: how neighbours differ; no other adjacency is supported.
        unit: "client" or "record"; optional.
        observer: "aggregate" if the guarantee assumes that participation is not observed.
        zeroed_is_absent: for "zero_out", whether a zeroed unit is known to release exactly the same
            as an absent unit. Sampling amplifies only mechanisms with this property. A guarantee by
            itself allows the mechanism to show who takes part. Then only the participation of the
            unit itself is hidden (T4).

    Raises:
        ParameterError: a value outside its range, or an unknown adjacency or unit.
    """

    guarantees: Points
    theorem: ClassVar[str] = "stated (epsilon, delta): the convex minorant's pair dominates (T12)"

    def __post_init__(self) -> None:
        super().__post_init__()
        points = _points("guarantees", self.guarantees, "((1.0, 1e-6),)", _guarantee)
        object.__setattr__(self, "guarantees", points)

    @property
    def curve(self) -> Curve:
        """The pair whose profile is the greatest convex function below the guarantees."""
        return stated_pair(self.guarantees)


@registered
@dataclass(frozen=True, kw_only=True)
class RenyiDp(StatedGuarantee):
    """Any mechanism with Renyi divergences of at most the given ones.

    The RDP accountant adds the divergences, with chords between orders and no value beyond the
    largest order. The PLD and advanced accountants cannot add them. They use the (epsilon, delta)
    guarantees that the divergences of *one* run imply (T12), which are loose for many runs. So use
    ``accountant="rdp"`` for long compositions; any accountant is fine for one run. Sampling that
    needs a symmetric curve (T1: ``replace_one``, and ``zero_out`` at a fixed size) is not
    supported.

    Args:
        divergences: (order, divergence) pairs that all hold, for both orders of any two neighbours;
            orders finite and above 1.
        adjacency, unit, observer, zeroed_is_absent: see ``ApproximateDp``, also for errors.
    """

    divergences: Points
    theorem: ClassVar[str] = (
        "stated Renyi divergences: chords of moments, implied (epsilon, delta) (T12)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        points = _points("divergences", self.divergences, "((2.0, 0.1), (8.0, 0.5))", _divergence)
        object.__setattr__(self, "divergences", points)

    @property
    def curve(self) -> RenyiPoints:
        """The curve with these moments, and the tails that they imply."""
        return RenyiPoints(self.divergences)


@registered
@dataclass(frozen=True, kw_only=True)
class GaussianDp(StatedGuarantee):
    """Any mechanism with at most the loss of one Gaussian shifted by mu standard deviations.

    Args:
        mu: above 0 (Dong, Roth and Su 2022: mu-GDP).
        adjacency, unit, observer, zeroed_is_absent: see ``ApproximateDp``, also for errors.
    """

    mu: float
    theorem: ClassVar[str] = (
        "stated mu-GDP: the Gaussian pair dominates, composed too (Dong, Roth, Su 2022)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_fields(self, positive, "mu")

    @property
    def curve(self) -> Curve:
        """The Gaussian pair."""
        return Gdp(self.mu)


@registered
@dataclass(frozen=True, kw_only=True)
class ConcentratedDp(StatedGuarantee):
    """Any mechanism with Renyi divergences of at most xi + rho a at every order a above 1.

    This is (xi, rho)-zCDP (Bun and Steinke 2016). As for ``RenyiDp``, the RDP accountant adds the
    divergences. The others use the (epsilon, delta) guarantees that they imply for one run. For
    these, one run of (xi n, rho n) is tighter than n runs of (xi, rho), and equally valid.

    Args:
        rho: at least 0.
        xi: at least 0; one of the two is above 0.
        adjacency, unit, observer, zeroed_is_absent: see ``ApproximateDp``, also for errors.
    """

    rho: float
    xi: float = 0.0
    theorem: ClassVar[str] = (
        "stated zCDP: divergences at every order, implied (epsilon, delta) (T12)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rho", "xi"):
            way_out = "leave out the guarantee"
            object.__setattr__(self, name, non_negative(way_out, **{name: getattr(self, name)}))
        if max(self.rho, self.xi) > 1e9:
            refuse("rho, xi", (self.rho, self.xi), "be at most 1e9", "a larger one has no meaning")
        if max(self.rho, self.xi) < 1e-30:
            refuse("rho, xi", (self.rho, self.xi), "not both be below 1e-30")

    @property
    def curve(self) -> Curve:
        """The line of divergences."""
        return RenyiLine(self.divergences, self.rho, self.xi)

    @property
    def divergences(self) -> Points:
        """(order, divergence) at the orders used for conversion, rounded up.

        The best order for log(1/delta) = L is 1 + sqrt(L / rho), so the orders cover L from 1e-6 to
        1e4. If rho is 0, larger orders are better.
        """
        # Without rho, or with a tiny rho, larger orders are better.
        scale = 1.0 / math.sqrt(max(self.rho, 1e-12))
        powers = scale * np.geomspace(1e-3, 1e2, 122)
        orders = np.unique(1.0 + powers).tolist()
        # Near 1 a power is lost to rounding, and 1 is not a valid order.
        found = ((a, rounded_up(self.xi + self.rho * a)) for a in orders if a > 1.0)
        return tuple(found)
