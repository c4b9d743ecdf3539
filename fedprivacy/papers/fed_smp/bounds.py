"""Fed-SMP (Hu, Guo and Gong), Theorem 2: the effect of sparsification and noise on convergence.

``docs/theory/averaging.md`` lists hypotheses that the printed theorem omits, with a counterexample
to the printed theorem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import count, listed, moderate, refuse, require
from ...rounding import THOUSANDS, rounded_up
from ...systems.settings import MODERATE, MODERATE_OR_ZERO, SIZE, Settings, setting
from ..averaging.bounds import ConvergenceBound

SPARSIFIERS = ("rand_k", "top_k")

_ASSUMED = (
    "every client's loss has an L-Lipschitz gradient (Assumption 1)",
    "stochastic gradients are unbiased with the stated mean variance, their noise independent "
    "between clients (Assumption 2)",
    "the mean squared norm of the clients' gradients is at most dissimilarity times that of the "
    "mean gradient, plus heterogeneity (Assumption 3)",
    "no sparsified update is clipped",
)
_TOP_K = (
    "the public mask keeps at least the share k/d of the squared norm of the clients' mean update"
)


class _Shape(NamedTuple):
    """k of d coordinates: phi, zeta' over the variance, and the step's factor of a sparsifier."""

    error: float
    biased: float
    step: float


@dataclass(frozen=True, kw_only=True)
class SmpSetting(Settings):
    """Arguments of Theorem 2.

    Raises:
        ParameterError: a value out of its range, or an unknown sparsifier.
    """

    kept: int | None = setting(SIZE, "k, coordinates that a round keeps", default=None)
    dimension: int = setting(SIZE, "d")
    cohort: int = setting(SIZE, "r, clients in a round")
    local_steps: int = setting(SIZE, "tau")
    rounds: int = setting(SIZE, "T", default=1)
    smoothness: float = setting(MODERATE, "L")
    gap: float = setting(MODERATE_OR_ZERO, "objective at the start minus its infimum", default=0.0)
    gradient_variance: float = setting(
        MODERATE_OR_ZERO, "zeta^2, mean over the clients of their gradients' variance"
    )
    dissimilarity: float = setting(MODERATE, "beta^2, at least 1 (Assumption 3)")
    heterogeneity: float = setting(MODERATE_OR_ZERO, "kappa^2")
    step_size: float = setting(MODERATE, "eta_l")
    noise_multiplier: float = setting(
        MODERATE_OR_ZERO, "sigma; calibration to a budget gives it, independently of k"
    )
    clip_norm: float | None = setting(
        MODERATE, "C, above the norm of every sparsified update", default=None
    )
    update_norm: float | None = setting(
        MODERATE,
        "a bound on updates before sparsification, which C is checked against",
        default=None,
    )
    gamma: float = setting(MODERATE, "of top_k, any number in (0, 1/2)", default=1.0 / 3.0)
    sparsifier: str = "rand_k"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sparsifier not in SPARSIFIERS:
            refuse("sparsifier", self.sparsifier, f"be one of {listed(SPARSIFIERS)}")
        if self.kept is not None and self.kept > self.dimension:
            refuse("kept", self.kept, f"be at most dimension = {self.dimension}")
        if self.dissimilarity < 1.0:
            way_out = "the paper's Assumption 3"
            refuse("dissimilarity", self.dissimilarity, "be at least 1", way_out)

    @property
    def draws(self) -> int:
        """Number of noises in a mean update; 1 if no noise affects a later gradient."""
        return self.cohort * self.local_steps if self.local_steps > 1 else 1

    def shape(self, k: int) -> _Shape:
        """Return the theorem's constants for k kept coordinates.

        Raises:
            ParameterError: a condition on k or gamma that fails.
        """
        d, gamma = self.dimension, self.gamma
        if self.sparsifier == "rand_k":
            return _Shape(d / k - 1.0, 0.0, 1.0 / 3.0)
        require(gamma < 0.5, "gamma", gamma, "lie strictly between 0 and 1/2")
        error = 1.0 - k / d
        most = gamma * (1.0 - 1.0 / self.draws) if self.draws > 1 else gamma
        if error > rounded_up(most, THOUSANDS):
            refuse("kept", k, f"be at least {math.ceil(d * (1.0 - most))}", "Theorem 2 needs this")
        return _Shape(error, 4.0 / gamma, 1.0 - 2.0 * gamma)

    def stretch(self, k: int) -> float:
        """Return the largest growth factor of an update's norm with k kept coordinates."""
        return self.dimension / k if self.sparsifier == "rand_k" else 1.0


def fed_smp_bound(setting: SmpSetting) -> ConvergenceBound:
    """Return Theorem 2's bound on the mean over the rounds of the squared gradient norm.

    For top_k the proof needs 1 - k/d <= gamma, so two thirds of the coordinates with the paper's
    gamma = 1/3. The theorem omits this condition and is false without it. One step of its proof
    drops a correlation. With more than one local step the correction replaces gamma by gamma (1 -
    1/(cohort * local_steps)) in this condition.

    Returns:
        A ConvergenceBound with the terms "optimisation", "sparsification" and "privacy noise".

    Raises:
        ParameterError: no ``kept`` or ``clip_norm``, or a condition of the theorem that fails.
    """
    k = count(kept=setting.kept)
    shape, clip = setting.shape(k), _clip(setting, k)
    smooth, eta, tau = setting.smoothness, setting.step_size, setting.local_steps
    largest = _largest_step(smooth * tau, shape, setting.dissimilarity)
    if eta > rounded_up(largest, THOUSANDS):
        refuse("step_size", eta, f"be at most {largest:.6g}", "the theorem's condition")
    zeta, kappa = setting.gradient_variance, setting.heterogeneity
    step = eta * tau
    noise = k * (clip * setting.noise_multiplier / setting.cohort) ** 2
    start = 8.0 * setting.gap / (setting.rounds * step)
    drift = 8.0 * step * smooth
    terms = (
        ("optimisation", start + drift * (3.0 * kappa + 2.0 * zeta)),
        ("sparsification", (drift * (2.0 * kappa + zeta) + shape.biased * zeta) * shape.error),
        ("privacy noise", 4.0 * smooth * noise / step),
    )
    checked = [f"step_size <= {largest:.6g}", f"dissimilarity = {setting.dissimilarity:g} >= 1"]
    top = setting.sparsifier == "top_k"
    if top:
        checked.append(
            f"1 - k/d = {shape.error:.6g} within gamma = {setting.gamma:.6g}, with a margin"
        )
    return ConvergenceBound(
        value=math.fsum(value for _, value in terms),
        theorem=f"Hu et al., Theorem 2, {setting.sparsifier}",
        checked=tuple(checked),
        assumed=(*_ASSUMED, _TOP_K) if top else _ASSUMED,
        terms=terms,
    )


def preferred_kept(setting: SmpSetting) -> int:
    """Return the k that minimises Theorem 2's bound within a privacy budget.

    The budget determines the noise multiplier (``fedprivacy.calibrate``), the same for every k.
    With ``clip_norm`` fixed, rand_k balances the two errors near sqrt(A d / B), where A = 8 eta tau
    L (2 kappa^2 + zeta^2) and B = 4 L C^2 sigma^2 / (eta tau r^2). The bound of top_k is linear in
    k, so the best k is all coordinates or the fewest allowed. With ``update_norm`` instead, the
    clip norm is the least that the theorem allows at each k. Then all coordinates are best for
    rand_k, because scaling by d/k costs more noise than dropping coordinates saves.

    Args:
        setting: with exactly one of ``clip_norm`` and ``update_norm``; its ``kept`` is not used.

    Raises:
        ParameterError: both norms or none, or a condition of the theorem that fails.
    """
    if (setting.clip_norm is None) == (setting.update_norm is None):
        rule = "be given if and only if update_norm is left out"
        refuse("clip_norm", setting.clip_norm, rule)
    d = setting.dimension

    def value(k: int) -> float:
        clip = setting.clip_norm
        if setting.update_norm is not None:
            clip = setting.stretch(k) * setting.update_norm
        return fed_smp_bound(replace(setting, kept=k, clip_norm=clip)).value

    # All coordinates satisfy every condition on k, so an error here applies to all k.
    value(d)
    first, step = _fewest(setting), setting.step_size * setting.local_steps
    compression = 8.0 * step * (2.0 * setting.heterogeneity + setting.gradient_variance)
    # Without a fixed clip norm the two errors do not balance.
    clipped = (setting.clip_norm or 0.0) * setting.noise_multiplier / setting.cohort
    balanced = _balance(d, compression=compression, privacy=4.0 * clipped**2 / step)
    # Convex or linear in between, so the best k is at an end or where the two errors balance.
    candidates = {first, d, *(min(max(k, first), d) for k in balanced)}
    # Of equal values the largest k.
    return min(sorted(candidates, reverse=True), key=value)


def _fewest(setting: SmpSetting) -> int:
    """Return the least k that the theorem's conditions allow; they hold for every larger k."""
    step = setting.dissimilarity * setting.smoothness * setting.local_steps * setting.step_size

    def allowed(k: int) -> bool:
        try:
            shape = setting.shape(k)
        except ValueError:
            return False
        return step <= rounded_up(shape.step / (8.0 * (1.0 + shape.error)), THOUSANDS)

    low, high = 0, setting.dimension
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return high


def _balance(d: int, *, compression: float, privacy: float) -> tuple[int, ...]:
    """Return the integers around sqrt(compression * d / privacy), at most d."""
    # Without noise all coordinates are best.
    if not privacy > 0.0:
        return (d,)
    at = min(math.sqrt(compression * d / privacy), float(d))
    return math.floor(at), math.ceil(at)


def _largest_step(scale: float, shape: _Shape, beta: float) -> float:
    """Return the largest step size; ``scale`` is tau L."""
    limits = (
        shape.step / (8.0 * (1.0 + shape.error) * beta),
        0.25 / math.sqrt(4.0 * beta + 2.0),
        1.0 / 12.0,
    )
    return min(limits) / scale


def _clip(setting: SmpSetting, k: int) -> float:
    """Return the clip norm, which no sparsified update may exceed."""
    clip = moderate(clip_norm=setting.clip_norm)
    if setting.update_norm is not None:
        least = setting.update_norm * setting.stretch(k)
        if clip < least:
            refuse(
                "clip_norm", clip, f"be at least {least:.6g}", "otherwise updates may be clipped"
            )
    return clip
