"""Noisy gradient descent: one private local solve, for Fed-PLT and others."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from ..errors import UnsupportedCombination, natural, positive, validate_fields
from ..loss import Atoms, Confined, Curve, Gdp, MostOf
from ..loss.curves.confined import MOST
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import plain_fields, registered
from ..relations import Adjacency, Facts
from ..rounding import TENS, THOUSANDS, rounded_up
from ..theory.hidden_state import (
    hidden_state_factor,
    projected_factor,
    projected_gap,
    pushed_to_walls,
    shown_on_a_ball,
)
from .base import ROUNDING
from .gaussian import MU_GDP
from .upload import (
    OWN_SENSITIVITY,
    QUADRATIC,
    SENSITIVE,
    SWITCHING,
    Upload,
    both_or_neither,
    contracted,
    finite,
    known_ratio,
    switching,
)

DEPENDS_ON = (
    "number of agents",
    "records of every agent (q_i)",
    "bound of the features, or other numbers that determine the sensitivity",
    "penalty and regularisation, which determine convexity and smoothness",
)
"""Public numbers of Fed-PLT that no field holds."""

CONSTANT = (
    "gradients that are equal at every point and differ by the sensitivity, like clipped ones"
)


CURVED = (
    "the loss has curvatures between strong_convexity and smoothness everywhere on the ball, for "
    "all data; no code checks this"
)
IN_THE_MIDDLE = "quadratics of one curvature and opposite drifts, from the middle of the ball"
SHARES = (0.1, 0.5, 0.9)
"""Probabilities of a half-space at the surface of the ball, where an opposite drift seldom ends."""
LOST = (1e-10, 1e-14, 1e-20)
"""Probabilities that an iterate leaves the ball. A smaller one shows less, at smaller deltas."""
IN_BALL = "every step ends with the projection on the stated ball, and the start lies in it"


@registered
@dataclass(frozen=True, kw_only=True)
class NoisyGradientDescent(Upload):
    """One local solve x <- x - step_size gradient + N(0, noise_std^2), ``steps`` times.

    The unit is a record, the observer knows the start, and only the end is released. With strong
    convexity and smoothness, T6 accounts for every observer. T6 needs contractive steps for all
    data, and a ``sensitivity`` that is the loss's own. Clipping gradients destroys contraction:
    omit both, and the steps are composed.

    With ``radius`` each step ends with a projection on a ball: T16. A convex loss is then enough,
    and mu stays below 2 sqrt(2 radius step_size sensitivity) / noise_std for any number of steps.
    The start lies in the ball. A smooth loss that is not convex has a negative ``strong_convexity``
    (-``smoothness`` if gradients are clipped in any way). Its mu has a limit too, a larger one.

    For Fed-PLT's local problem, noise_std = sqrt(2 step_size) tau. Strong convexity and smoothness
    are those of f_i plus 1 / rho.

    Args:
        step_size: above 0; with ``smoothness`` below 2 / ``smoothness``.
        noise_std: std of the noise of each step on each coordinate, above 0.
        sensitivity: largest distance of the gradients of two data sets that differ in one record,
            over all points; 2 C / q for the mean of q gradients clipped to C.
        strong_convexity: of the function whose gradient is taken, above 0; with ``radius`` 0 for a
            convex function, and the least curvature if it is negative; None to compose.
        smoothness: of the same function, at least ``strong_convexity`` in size; None to compose.
        steps: number of steps.
        radius: of the ball that every step is projected on; None for no projection.
        dimension: number of coordinates; with ``radius`` a lower end needs it.

    Raises:
        ParameterError: a value out of its range, or only one of convexity and smoothness is given.
    """

    step_size: float
    noise_std: float
    sensitivity: float
    strong_convexity: float | None = None
    smoothness: float | None = None
    steps: int
    radius: float | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        validate_fields(self, positive, "step_size", "noise_std", "sensitivity")
        validate_fields(self, natural, "steps")
        validate_fields(self, natural, "dimension", or_none=True)
        validate_fields(self, positive, "radius", or_none=True)
        # Check now: a step that does not contract is refused before any accounting.
        if self._convexity is not None and self.radius is None:
            contracted(1.0, 1, self.step_size, self._convexity)
        elif self._convexity is not None:
            projected_gap(self.step_size, *self._convexity)

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, and what they follow from."""
        return plain_fields(self) | dict.fromkeys(DEPENDS_ON)

    @property
    def _convexity(self) -> tuple[float, float] | None:
        return both_or_neither(self.strong_convexity, self.smoothness)

    @cached_property
    def step_multiplier(self) -> float:
        """Noise std of one step over the change of the step by replacing a record."""
        moved = self.step_size * self.sensitivity
        # A smaller product has lost digits.
        fits = sys.float_info.min <= moved < math.inf
        return finite(self.noise_std / moved if fits else math.inf)

    @property
    def contracts(self) -> bool:
        """Whether T6 or T16 applies: smooth, and strongly convex or on a ball."""
        return self._convexity is not None

    @property
    def _largest_multiplier(self) -> float:
        return self.step_multiplier

    @cached_property
    def step_noise_std(self) -> float:
        """``noise_std``."""
        return self.noise_std

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the ratio of one step: the noise on the gradient over half its sensitivity.

        Ledgers state 2 C / q for the mean of q gradients as C, and the noise of their sum. Without
        clipping, which needs convexity, they state the sensitivity itself and the noise on the
        gradient. If neither fits, the meaning of the recorded values is unknown.
        """
        ratio = self.noise_std / self.step_size / self.sensitivity
        if self._convexity is not None and clip_norm == self.sensitivity:
            return known_ratio(ratio)
        # If C was meant, 2 C over the sensitivity is a number of records.
        records = 2.0 * clip_norm / self.sensitivity
        # From 2^53 on, every double is an integer.
        whole = abs(records - round(records)) <= ROUNDING * records if records < 2**53 else True
        return known_ratio(2.0 * ratio) if self._convexity is None or whole else frozenset()

    def rescaled(self, fraction: float) -> NoisyGradientDescent | None:
        """Return the solve with the fraction of its noise."""
        noise = self.noise_std * fraction
        return replace(self, noise_std=noise) if noise > 0.0 else None

    @property
    def quadratic(self) -> Gdp:
        """Curve attained by a quadratic of the smallest curvature and a constant drift.

        It is attained from any start.

        Raises:
            UnsupportedCombination: no convexity is given.
        """
        if self._convexity is None or self.radius is not None:
            given = (self.strong_convexity, self.smoothness, self.radius)
            raise UnsupportedCombination(
                "a quadratic attains T6 only with strong_convexity and smoothness and without "
                f"radius, got {given}"
            )
        return contracted(self.step_multiplier, self.steps, self.step_size, self._convexity)[1]

    def _replaced(self, facts: Facts) -> PrivacyLoss:
        if self._convexity is None:
            return self._composed(facts)
        if self.radius is not None:
            return self._projected(self.radius, facts)
        curve, attained = contracted(
            self.step_multiplier, self.steps, self.step_size, self._convexity
        )
        theorem = "T6: contractive steps from a known start, released at their end"
        witness = Witness(attained, QUADRATIC, free=True)
        turning = switching(self.step_multiplier, self.steps, self.step_size, self._convexity)
        # Both are attained. Take the larger one.
        if turning is not None and turning.mu > attained.mu:
            witness = Witness(turning, SWITCHING, free=True)
        return PrivacyLoss(curve, facts, witness, (theorem,), (OWN_SENSITIVITY, SENSITIVE))

    def _projected(self, radius: float, facts: Facts) -> PrivacyLoss:
        """Return T16's curve, or that of a shared start if it is less; and what quadratics show."""
        assert self._convexity is not None
        gap, multiplier = projected_gap(self.step_size, *self._convexity), self.step_multiplier
        factor = math.sqrt(self.steps) if gap <= 0.0 else hidden_state_factor(gap, self.steps)
        # The diameter over the change of one step, rounded up; it may underflow.
        reach = rounded_up(2.0 * radius / (self.step_size * self.sensitivity), TENS)
        if reach < math.inf:
            near = max(reach, sys.float_info.min)
            factor = min(factor, projected_factor(gap, self.steps, near))
        theorem = "T16: steps projected on a ball, released at their end"
        stated = OWN_SENSITIVITY if gap >= 0.0 else CURVED
        assumptions = (stated, SENSITIVE, IN_BALL)
        curve = Gdp(factor / multiplier)
        shown = self._on_ball(radius, self._convexity)
        witness = None if shown is None else Witness(shown, IN_THE_MIDDLE, alone=True, free=True)
        return PrivacyLoss(curve, facts, witness, (theorem,), assumptions)

    def _on_ball(self, radius: float, convexity: tuple[float, float]) -> Curve | None:
        """Return what quadratics show that seldom meet the ball's surface; None if that is 0."""
        low, high = (Fraction(self.step_size) * Fraction(one) for one in convexity)
        # Beyond 1 an iterate changes sides in every step.
        if self.dimension is None or low > 1:
            return None
        # Rounded inwards: every curvature between the two is one of the class.
        steep = 1.0 if high >= 1 else float(high) * (1.0 - THOUSANDS)
        gaps = max(float(low) * (1.0 + THOUSANDS), 0.0), steep
        rest = self.step_multiplier, radius / self.noise_std, self.dimension
        found = [shown_on_a_ball(gaps, self.steps, *rest, lost) for lost in LOST]
        if steep == 1.0:
            # With this curvature the last step hides all others.
            found.append(shown_on_a_ball((1.0, 1.0), 1, *rest, LOST[-1]))
        # Closer means show less.
        curves: list[Curve] = [
            Confined(min(one.mu, MOST), one.reach, one.lost) for one in found if one and one.mu
        ]
        if low <= 0:
            curves += self._at_walls(steep, rest)
        return MostOf(tuple(curves)) if len(curves) > 1 else next(iter(curves), None)

    def _at_walls(self, steep: float, rest: tuple[float, float, int]) -> list[Curve]:
        """Return what functions show that push the iterates to opposite points of the ball."""
        walls = [
            [pushed_to_walls(steep, self.steps, *rest, lost, share) for lost in LOST]
            for share in SHARES
        ]
        return [_of_a_set(*max(filter(None, each), key=_ratio)) for each in walls if any(each)]

    def _composed(self, facts: Facts) -> PrivacyLoss:
        """Return the composed steps; gradients that do not depend on the point attain them."""
        curve = Gdp(math.sqrt(self.steps) / self.step_multiplier)
        theorem = f"{MU_GDP}, local steps composed"
        # A ball keeps gradients of one direction from adding up.
        witness = None if self.radius is not None else Witness(curve, CONSTANT, free=True)
        return PrivacyLoss(curve, facts, witness, (theorem,), (SENSITIVE,))


def _ratio(chances: tuple[float, float]) -> float:
    return chances[0] / chances[1]


def _of_a_set(p: float, q: float) -> Atoms:
    """Return the pair of a set and the rest; p is lowered and q raised by more than rounding."""
    p, q = p * (1.0 - 1e-12), q * (1.0 + 1e-12)
    rest = math.log1p(-p) - math.log1p(-q)
    return Atoms(((rest, 1.0 - p), (math.log(p / q), p)))
