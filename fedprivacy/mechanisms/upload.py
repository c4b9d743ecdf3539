"""Base classes for mechanisms that release one client's iterate after noisy gradient steps."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedCombination, integer, positive, refuse
from ..loss import Atoms, Curve, Fold, GaussianMix, Gdp, Sampled
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Adjacency, Facts, Unit
from ..rounding import FEW, THOUSANDS, rounded_down, rounded_up
from ..sampling.traits import Traits
from ..theory.hidden_state import contraction_gap, hidden_state_factor, varying_steps_factor
from .base import Mechanism
from .noise import check_readable
from .rounded import HIDDEN_GRID, grid_for, noise_like, noisy_like

NO_NOISE = Atoms((), infinite=1.0, vanishing=1.0)
"""Curve of a release without noise, with no privacy at all."""

LINEAR = (
    "linear losses -<x, w>: one record's gradient is D/2 u or -D/2 u, every other's is -D/2 u, "
    "D the gradient sensitivity"
)
QUADRATIC = (
    "quadratic losses of curvature strong_convexity; the record changes the gradient by the "
    "sensitivity, equally in every step"
)
SWITCHING = (
    "a quadratic loss of curvature just below smoothness, with a distant optimum, so that "
    "every step crosses it; the record changes the gradient by the sensitivity, away from the "
    "optimum on both sides (a supremum, approached as the distance grows)"
)
OWN_SENSITIVITY = (
    "the sensitivity of the gradient is a property of the loss, without clipping; strong "
    "convexity and smoothness hold for all data"
)
SENSITIVE = "replacing one record changes a gradient by at most the stated sensitivity"

MAX_WITNESS = 2000
"""Longest law of a witness's shift that is evaluated."""

MAX_STEPS = 10**6
"""Most steps before an upload, because they are counted one by one."""

MAX_SHIFT = 2e4
"""Largest shift of a witness in stds; a larger shift shows no more."""

_DEPENDS_ON = (
    "number of clients",
    "records of every client",
    "clip norm or bound of a gradient",
    "dimension and number of classes of the model",
)
"""Public numbers that no field holds."""


class NoisySteps(Mechanism):
    """Noisy gradient steps on records; each adds Gaussian noise to every coordinate of a point."""

    protects = Unit.RECORD

    @cached_property
    @abstractmethod
    def step_noise_std(self) -> float:
        """Std of the noise that ``release`` adds to each coordinate."""

    def noise(self, like: Any, generator: Any = None) -> tuple[Any, float]:
        """Draw one step's private noise.

        Args:
            like: gives shape and device.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Returns:
            The noise on a grid, in doubles, and the std of the drawn noise on each coordinate.
        """
        std = self.step_noise_std
        if std == 0.0:
            return like * 0.0, 0.0
        return noise_like(like, std=std, grid=grid_for(std, std, 26), generator=generator), std

    def release(self, value: Any, generator: Any = None) -> Any:
        """Return ``value``, the point after one gradient step, with that step's private noise.

        The result is the nearest point of a grid with spacing 2^-26 of the noise. A tensor is then
        rounded to its type.

        Args:
            value: numpy array or torch tensor, any shape; noise is added to every entry.
            generator: see ``rounded.bits_of``; None is the only private choice.

        Raises:
            ParameterError: ``value`` has an entry that is not finite, or above 2^25 stds.
        """
        std = self.step_noise_std
        if std == 0.0:
            check_readable("value", value)
            return value + 0.0
        return noisy_like(value, std=std, grid=grid_for(std, std, 26), generator=generator)


class Upload(NoisySteps):
    """One client's iterate after noisy gradient steps; the observer sees only the iterate.

    The unit is a record of that client. Gradient sensitivities are suprema over replacing one
    record, so only ``replace_one`` is supported.
    """

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, and the sizes and bounds that a gradient depends on."""
        return super().public(adjacency) | dict.fromkeys(_DEPENDS_ON)

    @property
    def contracts(self) -> bool:
        """Whether steps are accounted together by T6, not composed one by one."""
        return False

    @property
    def _largest_multiplier(self) -> float:
        """Largest ratio over the steps: private noise over the change by replacing a record."""
        raise NotImplementedError

    def widening(self, dimension: int) -> float:
        """Return the noise factor that pays for the rounding of steps accounted together by T6.

        A rounded step brings two points closer to each other, up to an error of sqrt(d) spacings.
        T6 holds for it with a sensitivity increased by that error, and by the same amount again for
        its arithmetic in doubles (docs/theory/rounding.md). If noise and sensitivity grow by the
        same factor, the loss stays the same.

        Args:
            dimension: d, number of values in an upload.

        Returns:
            At least 1; 1 if steps are composed.

        Raises:
            ParameterError: the noise is so large compared with the sensitivity that rounding to
                2^-22 of it changes the result as much as a record does.
        """
        if not self.contracts:
            return 1.0
        share = 2.0 * HIDDEN_GRID * math.sqrt(dimension) * self._largest_multiplier
        if share > 0.25:
            way_out = "leave out strong_convexity and smoothness, so that the steps are composed"
            given, limit = self._largest_multiplier, 0.25 / share * self._largest_multiplier
            rule = f"be at most {limit:.6g}, for steps accounted by T6"
            refuse("noise over sensitivity", given, rule, way_out)
        # The last factor covers the rounding of this line.
        return rounded_up(1.0 / (1.0 - share), THOUSANDS)

    @abstractmethod
    def _replaced(self, facts: Facts) -> PrivacyLoss:
        """Return the loss under replace_one."""

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss under replace_one; refuse any other adjacency."""
        replacing_only(self, facts)
        return self._replaced(facts)


class SamplersUpload(Upload):
    """An upload of a sampler with gradients of batches that it draws itself."""

    gradient_sensitivity: float
    batch_fraction: float

    @property
    def _batches(self) -> tuple[str, ...]:
        """The theorem for batches; empty if the batch is the full data."""
        return () if self.batch_fraction == 1.0 else ("T1: batches without replacement",)

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return ``step_noise_std`` of the smallest step over half the gradient sensitivity."""
        return known_ratio(2.0 * self.step_noise_std / self.gradient_sensitivity)

    # Batches are drawn inside.
    traits = Traits(samples_its_unit=True)


def known_ratio(ratio: float) -> frozenset[float]:
    """Return a noise ratio for ``noise_ratios``; empty if it is 0 or not finite."""
    return frozenset({ratio} if 0.0 < ratio < math.inf else ())


def replacing_only(mechanism: Mechanism, facts: Facts) -> None:
    """Raise UnsupportedCombination unless the adjacency is replace_one."""
    if facts.adjacency is not Adjacency.REPLACE_ONE:
        raise UnsupportedCombination(
            f"{type(mechanism).__name__} covers only adjacency='replace_one' (its sensitivity "
            f"is that of a replaced record), not {str(facts.adjacency)!r}"
        )


def nothing_private(facts: Facts, reason: str) -> PrivacyLoss:
    """Return the loss of an upload without private noise: unbounded, shown by linear losses.

    Args:
        facts: unit, adjacency and observer.
        reason: why no noise is private.
    """
    return PrivacyLoss(
        NO_NOISE, facts, Witness(NO_NOISE, LINEAR, free=True), (reason,), (SENSITIVE,)
    )


def both_or_neither(
    strong_convexity: float | None, smoothness: float | None
) -> tuple[float, float] | None:
    """Return the two as a pair; None if neither is given.

    Raises:
        ParameterError: only one of them is given.
    """
    if strong_convexity is not None and smoothness is not None:
        return strong_convexity, smoothness
    if strong_convexity is not None or smoothness is not None:
        given = (strong_convexity, smoothness)
        refuse("strong_convexity, smoothness", given, "be given together or not at all")
    return None


def step_count(**named: object) -> int:
    """Return the named value as an integer from 1 to ``MAX_STEPS``."""
    ((name, value),) = named.items()
    found = integer(1, **named)
    if found > MAX_STEPS:
        refuse(name, value, f"be at most {MAX_STEPS:,}", "upload more often")
    return found


def finite(multiplier: float) -> float:
    """Return a finite noise multiplier; after an overflow the loss would be unknown.

    Raises:
        ParameterError: it is not finite.
    """
    if not multiplier < math.inf:
        refuse("noise over sensitivity", multiplier, "be finite", "rescale both")
    return multiplier


def larger(sensitivity: float, fraction: float) -> float | None:
    """Return the sensitivity that reduces noise to a fraction; None if no noise is left."""
    found = sensitivity / fraction if fraction > 0.0 else math.inf
    return found if 0.0 < found < math.inf else None


def checked_steps(step_size: object, steps: int) -> float | tuple[float, ...]:
    """Return one step size, or one per step; equal sizes are merged into one.

    Raises:
        ParameterError: a size is not above 0, or their number differs from ``steps``.
    """
    if not isinstance(step_size, tuple | list):
        return positive(step_size=step_size)
    sizes = tuple(positive(step_size=size) for size in step_size)
    if len(sizes) != steps:
        refuse("step_size", f"{len(sizes)} sizes", f"be one size or one per step, {steps} in all")
    # One size represents equal sizes, so that equal settings compare equal.
    return sizes if len(set(sizes)) > 1 else sizes[0]


def each_step(step_size: float | tuple[float, ...], steps: int) -> tuple[float, ...]:
    """Return the size of every step."""
    return step_size if isinstance(step_size, tuple) else (step_size,) * steps


def contracted(
    multiplier: float, steps: int, step_size: float, convexity: tuple[float, float]
) -> tuple[Gdp, Gdp]:
    """Return T6's curve of a block of contractive steps, and the curve that quadratics attain.

    Args:
        multiplier: noise std of one step over the change of the step by one record.
        steps: number of steps from a start that both data sets share.
        step_size: s.
        convexity: (strong convexity, smoothness) of the loss whose gradient is taken.

    Raises:
        ParameterError: the step does not contract.
    """
    gap = contraction_gap(step_size, *convexity)
    curve = Gdp(hidden_state_factor(gap, steps) / multiplier)
    slow = step_size * convexity[0]
    # The weakest curvature sets the contraction, and quadratics with it attain the curve.
    if slow == gap:
        return curve, curve
    return curve, Gdp(_shown_at_the_end(slow, steps) / multiplier)


def switching(
    multiplier: float, steps: int, step_size: float, convexity: tuple[float, float]
) -> Gdp | None:
    """Return the curve attained by a drift that changes sign with the iterates; None if none.

    Quadratics of curvature l, m < l < L, have slope 1 - s l < 0 if s l > 1. Iterates that start far
    away then change sides. Let a record's gradient be the sensitivity g or -g, depending on the
    side. These gradients add up over all steps, as in T6. The turn between the two sides needs
    curvatures between m and L only if these differ (docs/theory/splitting.md).

    Args:
        multiplier: see ``contracted``.
        steps: see ``contracted``.
        step_size: s.
        convexity: (m, L).
    """
    # Use fractions: rounding must not decide whether a gap is above 0 or below 1.
    low, high = map(Fraction, convexity)
    inside = high - (high - low) / 10**9
    gap = 2 - Fraction(step_size) * inside
    if low == high or not 0 < gap < 1:
        return None
    return Gdp(hidden_state_factor(float(gap), steps) / multiplier)


def varying(
    multiplier: float, sizes: Sequence[float], convexity: tuple[float, float]
) -> tuple[Gdp, Gdp]:
    """Return T6's curve of steps of different sizes, and the curve that quadratics attain.

    Args:
        multiplier: noise std of a step of size 1 over its change by one record. Both the change and
            the noise's variance are proportional to the size.
        sizes: the step sizes.
        convexity: (strong convexity m, smoothness) of the loss whose gradient is taken.

    Raises:
        ParameterError: a step does not contract.
    """
    gaps = {size: contraction_gap(size, *convexity) for size in set(sizes)}
    curve = Gdp(varying_steps_factor([1.0 - gaps[size] for size in sizes], sizes) / multiplier)
    if all(size * convexity[0] == gap for size, gap in gaps.items()):
        return curve, curve
    left, once, twice = 1.0, [], []
    for size in reversed(sizes):
        once.append(left * size)
        twice.append(left * left * size)
        left *= 1.0 - size * convexity[0]
    # Rounded down, because this is a lower end.
    shown = rounded_down(abs(math.fsum(once)) / math.sqrt(math.fsum(twice)), THOUSANDS)
    return curve, Gdp(shown / multiplier)


def _shown_at_the_end(gap: float, steps: int) -> float:
    """Return sum a^j / sqrt(sum a^2j), j below ``steps``, for a slope a = 1 - gap in (-1, 1)."""
    # expm1 keeps the digits of 1 - a^n for a near 1. For a <= 0 there is no logarithm.
    if gap < 1.0:
        log = math.log1p(-gap)
        once, twice = -math.expm1(steps * log), -math.expm1(2 * steps * log)
    else:
        falls = math.pow(1.0 - gap, steps)
        once, twice = 1.0 - falls, 1.0 - falls**2
    return once / gap / math.sqrt(twice / (gap * (2.0 - gap)))


def subsampled(multiplier: float, fraction: float) -> Curve:
    """Return one step's curve if a fixed fraction of the records is drawn (T1).

    Args:
        multiplier: noise std over the change of the step by replacing a drawn record.
        fraction: share of the records in a batch, drawn uniformly without replacement.
    """
    inner = Gdp(1.0 / multiplier)
    if fraction == 1.0:
        return inner
    once = Sampled(inner, fraction)
    return Fold(once, once)


def summed_witness(
    weights: Sequence[int], fraction: float, noise: float, sensitivity: float
) -> Witness | None:
    """Return the witness of linear losses if only the end of a block of steps is seen.

    With gradients that do not depend on the iterate, the block's end is a sum. The record is in the
    batch of query j with probability ``fraction`` and then moves the end by ``weights[j]``
    sensitivities. The result is a mixture of Gaussians against one Gaussian. Very small noise is
    replaced by more noise, which is post-processing.

    Args:
        weights: weight of each query's gradient at the end, integers above 0.
        fraction: share of the records in a batch.
        noise: std of the noise at the end.
        sensitivity: change of the end by a weight of 1, same unit as ``noise``.

    Returns:
        The witness; None if the mixture has too many parts.
    """
    noise = max(noise, sum(weights) * sensitivity / MAX_SHIFT)
    whole = Gdp(sum(weights) * sensitivity / noise)
    if fraction == 1.0:
        return Witness(whole, LINEAR, free=True)
    if len(weights) == 1:
        return Witness(Sampled(whole, fraction), LINEAR, free=True)
    law = _law(weights, fraction)
    if law is None:
        return None
    mixture = tuple((float(p), float(s)) for s, p in enumerate(law) if p > 0.0)
    return Witness(GaussianMix(noise / sensitivity, mixture, ((1.0, 0.0),)), LINEAR, free=True)


def _law(weights: Sequence[int], fraction: float) -> NDArray[np.float64] | None:
    """Return the law of the sum of ``weights``, each included with probability ``fraction``.

    Sums rarer than 1e-20 are moved to 0, and so is any mass that rounding may have added to the
    others. This only reduces the loss (T9: likelihood ratios increase with every mean). Return None
    if too many sums are left.
    """
    law = np.ones(1)
    for weight, count in sorted(Counter(weights).items()):
        counted = _binomial(count, fraction)
        # A longer law is never used, so skip the convolution.
        if weight * len(counted) + len(law) > 4 * MAX_WITNESS:
            return None
        # A weight's sums are its multiples, with zeros between them.
        spread = np.zeros(weight * (len(counted) - 1) + 1)
        spread[::weight] = counted
        law = _kept(np.convolve(law, spread))
    law[1:] *= 1.0 - FEW * (64 + len(weights))
    law[0] = 1.0 - math.fsum(law[1:])
    return law if len(law) <= MAX_WITNESS else None


def _binomial(count: int, fraction: float) -> NDArray[np.float64]:
    """Return the binomial law by repeated squaring, without probabilities below 1e-20.

    A law that grows too long is returned unfinished, because it is never used.
    """
    law, square = np.ones(1), np.array([1.0 - fraction, fraction])
    while count and len(square) <= 4 * MAX_WITNESS >= len(law):
        law = _kept(np.convolve(law, square)) if count & 1 else law
        count >>= 1
        square = _kept(np.convolve(square, square)) if count else square
    return np.ones(8 * MAX_WITNESS) if count else law


def _kept(law: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.trim_zeros(np.where(law < 1e-20, 0.0, law), "b")
