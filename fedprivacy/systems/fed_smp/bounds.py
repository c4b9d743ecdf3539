"""Fed-SMP (Hu, Guo and Gong), Theorem 2: what sparsification and noise do to convergence.

``docs/theory/averaging.md`` has the hypotheses that the printed theorem leaves out, and a setting
in which it is false without them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...errors import count, listed, moderate, moderate_or_zero, refuse
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
    """k of d coordinates, kept in one way: phi, zeta' over the variance, the step's factor."""

    error: float
    biased: float
    step: float


def fed_smp_bound(
    *,
    kept: int,
    dimension: int,
    cohort: int,
    local_steps: int,
    rounds: int,
    smoothness: float,
    gap: float,
    gradient_variance: float,
    dissimilarity: float,
    heterogeneity: float,
    step_size: float,
    noise_multiplier: float,
    clip_norm: float,
    sparsifier: str = "rand_k",
    gamma: float = 1.0 / 3.0,
    update_norm: float | None = None,
) -> ConvergenceBound:
    """Return Theorem 2's bound on the mean over the rounds of the squared gradient norm.

    For top_k the proof needs 1 - k/d <= gamma, and so two thirds of the coordinates with the
    paper's gamma = 1/3; the theorem does not say so, and is false without. A step of its proof
    that drops a correlation is mended by gamma (1 - 1/(cohort * local_steps)) in gamma's place
    where there is more than one local step.

    Args:
        kept: k, coordinates that a round keeps.
        dimension: d.
        cohort: r, clients in a round.
        local_steps: tau.
        rounds: T.
        smoothness: L.
        gap: objective at the start minus its infimum.
        gradient_variance: zeta^2, mean over the clients of their gradients' variance.
        dissimilarity: beta^2, at least 1.
        heterogeneity: kappa^2.
        step_size: eta_l.
        noise_multiplier: sigma; the account of a budget gives it, whatever k is.
        clip_norm: C; the theorem needs it to exceed the norm of every sparsified update.
        sparsifier: "rand_k" (scaled by d/k) or "top_k".
        gamma: for top_k, the proof's free constant in (0, 1/2).
        update_norm: a bound on updates before sparsification. If given, ``clip_norm`` is checked
            against it: rand_k can make them d/k times as long.

    Returns:
        A ConvergenceBound with the terms "optimisation", "sparsification" and "privacy noise".

    Raises:
        ParameterError: a value out of range, or a condition of the theorem that fails.
    """
    k, d = count(kept=kept), count(dimension=dimension)
    if k > d:
        refuse("kept", k, f"be at most dimension = {d}")
    r, tau = count(cohort=cohort), count(local_steps=local_steps)
    shape = _shape(sparsifier, k, d, gamma, _draws(r, tau))
    smooth, beta = moderate(smoothness=smoothness), moderate(dissimilarity=dissimilarity)
    if beta < 1.0:
        refuse("dissimilarity", beta, "be at least 1", "the paper's Assumption 3")
    eta = moderate(step_size=step_size)
    largest = _largest_step(smooth * tau, shape, beta)
    if eta > largest * (1.0 + 1e-12):
        refuse("step_size", eta, f"be at most {largest:.6g}", "the theorem's condition")
    clip = _clip(clip_norm, update_norm, sparsifier, d / k)
    zeta, kappa = (
        moderate_or_zero(gradient_variance=gradient_variance),
        moderate_or_zero(heterogeneity=heterogeneity),
    )
    step = eta * tau
    noise = k * (clip * moderate_or_zero(noise_multiplier=noise_multiplier) / r) ** 2
    start = 8.0 * moderate_or_zero(gap=gap) / (count(rounds=rounds) * step)
    drift = 8.0 * step * smooth
    terms = (
        ("optimisation", start + drift * (3.0 * kappa + 2.0 * zeta)),
        ("sparsification", (drift * (2.0 * kappa + zeta) + shape.biased * zeta) * shape.error),
        ("privacy noise", 4.0 * smooth * noise / step),
    )
    checked = [f"step_size <= {largest:.6g}", f"dissimilarity = {beta:g} >= 1"]
    if sparsifier == "top_k":
        checked.append(f"1 - k/d = {shape.error:.6g} within gamma = {gamma:.6g}, with room")
    return ConvergenceBound(
        value=math.fsum(value for _, value in terms),
        theorem=f"Hu et al., Theorem 2, {sparsifier}",
        checked=tuple(checked),
        assumed=(*_ASSUMED, _TOP_K) if sparsifier == "top_k" else _ASSUMED,
        terms=terms,
    )


def preferred_kept(
    *,
    dimension: int,
    cohort: int,
    local_steps: int,
    smoothness: float,
    gradient_variance: float,
    dissimilarity: float,
    heterogeneity: float,
    step_size: float,
    noise_multiplier: float,
    clip_norm: float | None = None,
    update_norm: float | None = None,
    sparsifier: str = "rand_k",
    gamma: float = 1.0 / 3.0,
) -> int:
    """Return the k that minimises Theorem 2's bound within a privacy budget.

    The budget gives the noise multiplier (``fedprivacy.calibrate``), the same for every k. With
    ``clip_norm`` fixed, rand_k balances the two errors near sqrt(A d / B), where A = 8 eta tau L
    (2 kappa^2 + zeta^2) and B = 4 L C^2 sigma^2 / (eta tau r^2); the bound of top_k is linear in k,
    so it prefers all coordinates or the fewest that it allows. With ``update_norm`` instead, the
    clip norm is the least that the theorem allows at each k; then rand_k prefers all coordinates,
    because scaling by d/k costs more noise than dropping coordinates saves.

    Arguments and errors are those of ``fed_smp_bound``, of which exactly one of ``clip_norm`` and
    ``update_norm`` is given.
    """
    if (clip_norm is None) == (update_norm is None):
        refuse("clip_norm", clip_norm, "be given if and only if update_norm is left out")
    d, r, tau = (
        count(dimension=dimension),
        count(cohort=cohort),
        count(local_steps=local_steps),
    )

    def value(k: int) -> float:
        stretch = d / k if sparsifier == "rand_k" else 1.0
        clip = clip_norm if update_norm is None else stretch * moderate(update_norm=update_norm)
        return fed_smp_bound(
            kept=k,
            dimension=d,
            cohort=r,
            local_steps=tau,
            rounds=1,
            smoothness=smoothness,
            gap=0.0,
            gradient_variance=gradient_variance,
            dissimilarity=dissimilarity,
            heterogeneity=heterogeneity,
            step_size=step_size,
            noise_multiplier=noise_multiplier,
            clip_norm=clip,  # type: ignore[arg-type]
            sparsifier=sparsifier,
            gamma=gamma,
        ).value

    value(d)
    first = _fewest(
        d, _draws(r, tau), sparsifier, gamma, dissimilarity * smoothness * tau * step_size
    )
    balanced = _balance(
        d,
        compression=8.0 * step_size * tau * (2.0 * heterogeneity + gradient_variance),
        privacy=4.0 * ((clip_norm or 0.0) * noise_multiplier / r) ** 2 / (step_size * tau),
    )
    candidates = {first, d, *(min(max(k, first), d) for k in balanced)}
    return min(sorted(candidates, reverse=True), key=value)


def _fewest(d: int, draws: int, sparsifier: str, gamma: float, step: float) -> int:
    """Return the least k that the theorem's conditions allow; they hold for every larger one."""

    def allowed(k: int) -> bool:
        try:
            shape = _shape(sparsifier, k, d, gamma, draws)
        except ValueError:
            return False
        return step <= shape.step / (8.0 * (1.0 + shape.error)) * (1.0 + 1e-12)

    low, high = 0, d
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return high


def _draws(cohort: int, local_steps: int) -> int:
    """Return how many noises a mean update averages; 1 where none meets a later gradient."""
    return cohort * local_steps if local_steps > 1 else 1


def _balance(d: int, *, compression: float, privacy: float) -> tuple[int, ...]:
    """Return the whole numbers around sqrt(compression * d / privacy), at most d."""
    if not privacy > 0.0:
        return (d,)
    at = min(math.sqrt(compression * d / privacy), float(d))
    return math.floor(at), math.ceil(at)


def _shape(sparsifier: str, k: int, d: int, gamma: float, draws: int) -> _Shape:
    """Return what the theorem makes of k; ``draws`` is what ``_draws`` returns."""
    if sparsifier not in SPARSIFIERS:
        refuse("sparsifier", sparsifier, f"be one of {listed(SPARSIFIERS)}")
    if sparsifier == "rand_k":
        return _Shape(d / k - 1.0, 0.0, 1.0 / 3.0)
    if not 0.0 < moderate(gamma=gamma) < 0.5:
        refuse("gamma", gamma, "lie strictly between 0 and 1/2")
    error = 1.0 - k / d
    most = gamma * (1.0 - 1.0 / draws) if draws > 1 else gamma
    if error > most * (1.0 + 1e-12):
        refuse("kept", k, f"be at least {math.ceil(d * (1.0 - most))}", "Theorem 2 needs it")
    return _Shape(error, 4.0 / gamma, 1.0 - 2.0 * gamma)


def _largest_step(scale: float, shape: _Shape, beta: float) -> float:
    """Return the largest step size; ``scale`` is tau L."""
    limits = (
        shape.step / (8.0 * (1.0 + shape.error) * beta),
        0.25 / math.sqrt(4.0 * beta + 2.0),
        1.0 / 12.0,
    )
    return min(limits) / scale


def _clip(clip_norm: float, update_norm: float | None, sparsifier: str, ratio: float) -> float:
    clip = moderate(clip_norm=clip_norm)
    if update_norm is not None:
        least = moderate(update_norm=update_norm) * (ratio if sparsifier == "rand_k" else 1.0)
        if clip < least:
            refuse("clip_norm", clip, f"be at least {least:.6g}", "else updates may be clipped")
    return clip
