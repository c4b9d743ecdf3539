"""FA-HMC (Liang et al.): exact laws on Gaussian targets, its theorems, its momentum's privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ...errors import integer, natural, non_negative, positive, refuse, require, validate_fields
from ...theory.gaussian import AffineMap, Array, Normal, shown
from ...theory.targets import (
    Averaging,
    Chain,
    GaussianTarget,
    LocalRound,
    StepSizes,
    in_basis,
    rounds_to_accuracy,
    w2_curve,
)

__all__ = [
    "Averaging",
    "DebiasedLaws",
    "DynamicSteps",
    "GaussianTarget",
    "HamiltonianChain",
    "momentum_gdp",
    "rounds_to_accuracy",
    "transcript_gdp",
    "upload_gdp",
    "w2_curve",
]

_CLOSED = 64.0 * np.finfo(np.float64).eps
"""Angles this close to a multiple of pi, relative to the number of steps, count as equal to it."""


def leapfrog(curvature: Array, step_size: float, leapfrog_steps: int) -> tuple[Array, Array]:
    """Return the coefficients of a trajectory's end: theta_K = C theta_0 + S p_0.

    On (theta, p) with potential curvature l theta^2 / 2 a leapfrog step is a rotation by phi in
    scaled axes, with cos phi = 1 - eta^2 l / 2. So C = cos(K phi) and S = sin(K phi) / sqrt(l (1 -
    eta^2 l / 4)). S is 0 if K phi is a multiple of pi.

    Args:
        curvature: l, above 0, any shape.
        step_size: eta, with eta^2 l < 4 (beyond it the integrator is unstable).
        leapfrog_steps: K.

    Raises:
        ParameterError: an unstable step.
    """
    turn, steps = _angle(curvature, step_size), integer(1, leapfrog_steps=leapfrog_steps)
    sine = np.sin(steps * turn)
    sine = np.where(np.abs(sine) <= _CLOSED * steps, 0.0, sine)
    half = step_size * np.sqrt(curvature) / 2.0
    # Not 1 - half^2, which loses digits near 1.
    return np.cos(steps * turn), sine / np.sqrt(curvature * (1.0 - half) * (1.0 + half))


def _angle(curvature: Array, step_size: float) -> Array:
    """Return phi, by sin(phi / 2) = eta sqrt(l) / 2."""
    # Computed from half the angle: the cosine of a small angle loses its digits.
    half = positive(step_size=step_size) * np.sqrt(curvature) / 2.0
    if np.any(half >= 1.0):
        limit = 2.0 / math.sqrt(float(np.max(curvature)))
        refuse(
            "step_size",
            step_size,
            f"be below 2 / sqrt(L) = {limit:g}",
            "leapfrog is unstable otherwise",
        )
    return np.asarray(2.0 * np.arcsin(half))


def momentum_gdp(
    curvature: float, step_size: float, leapfrog_steps: int, difference: float, std: float
) -> float:
    """Return mu of one trajectory's end if the gradient changes by a constant; closed form.

    mu_K = difference / (std sqrt(l)) sqrt(1 - eta^2 l / 4) |tan(K phi / 2)|. It is infinite if K
    phi is an odd multiple of pi, where the end does not depend on the momentum. For one step it is
    eta difference / (2 std), the value of FA-LD with step eta^2 / 2.

    Args:
        curvature: l, of the quadratic potential along the difference.
        step_size: eta.
        leapfrog_steps: K.
        difference: norm of the gradients' difference, the same at every parameter.
        std: std of the private momentum: sqrt((1 - rho) / w).
    """
    at = np.array([positive(curvature=curvature)])
    moved, spread = _displaced(at, step_size, leapfrog_steps)
    shift = float(moved[0]) * non_negative(difference=difference)
    noise = float(spread[0]) * non_negative(std=std)
    if shift == 0.0:
        return 0.0
    return math.inf if noise == 0.0 else shift / noise


def _displaced(curvature: Array, step_size: float, steps: int) -> tuple[Array, Array]:
    """Return (1 - C) / l, computed without cancellation, and |S|."""
    angle = steps * _angle(curvature, step_size)
    sine = np.sin(angle / 2.0)
    whole = np.where(np.abs(sine) <= _CLOSED * steps, 0.0, 2.0 * sine**2)
    return whole / curvature, np.abs(leapfrog(curvature, step_size, steps)[1])


@dataclass(frozen=True, kw_only=True)
class DynamicSteps(StepSizes):
    """Step sizes by iteration: ``stages`` of (step size, iterations); the last stage has no end.

    Args:
        stages: at least one pair.
    """

    stages: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        if not self.stages:
            refuse("stages", self.stages, "contain at least one pair (step size, iterations)")
        for step, count in self.stages:
            positive(step_size=step)
            integer(1, iterations=count)

    def sizes(self, first: int, count: int) -> tuple[float, ...]:
        """See ``StepSizes``."""
        return tuple(self.at(first + j) for j in range(count))

    def at(self, iteration: int) -> float:
        """Return the step size of an iteration, counted from 0."""
        left = integer(0, iteration=iteration)
        for step, count in self.stages:
            if left < count:
                return step
            left -= count
        return self.stages[-1][0]


@dataclass(frozen=True, kw_only=True, eq=False)
class HamiltonianChain(Chain):
    """FA-HMC (Algorithms 1 to 3, no Metropolis step) on a Gaussian target.

    In an iteration every client draws the momentum sqrt(rho) shared + sqrt((1 - rho) / w_c) own and
    takes K leapfrog steps on f^c. After T iterations the clients are averaged. Every law is exact,
    because a trajectory is a linear map.

    Args:
        step_size: eta, or ``DynamicSteps``; eta^2 L < 4.
        leapfrog_steps: K.
        iterations: T.
        correlation: rho, the common share of the momentum's *variance*.
        gradient_std: std of the Gaussian noise on each coordinate of each gradient query.
        gradient_reused: whether the gradient at the end of a step, noise included, is used again at
            the start of the next step (K queries count). Otherwise a new one is drawn (2 K - 1).
        target: see ``Chain``.
        averaging: see ``Chain``.
        cohort: see ``Chain``.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float | DynamicSteps
    leapfrog_steps: int = 1
    iterations: int = 1
    gradient_std: float = 0.0
    gradient_reused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.step_size, DynamicSteps):
            tried = [step for step, _ in self.step_size.stages]
        else:
            tried = [self.step_size]
        for step in tried:
            # Refuses steps that are unstable for any curvature of the target.
            _angle(self.target.spectra[0], step)
        validate_fields(self, natural, "leapfrog_steps", "iterations")
        non_negative(gradient_std=self.gradient_std)

    # FA-HMC samples from exp(-f).
    temperature = 1.0

    @property
    def steps_a_round(self) -> int:
        """T iterations."""
        return self.iterations

    def local_round(self, index: int) -> LocalRound:
        """Return the T iterations of round ``index`` as one map."""
        values = self.target.spectra[0]
        kinds, size = values.shape
        left = np.ones_like(values)
        momentum, queries = np.zeros((kinds, kinds, size, size)), np.zeros_like(values)
        for step in self.steps_of(index):
            turned, pushed = leapfrog(values, step, self.leapfrog_steps)
            kept = turned[:, None, :, None] * turned[None, :, None, :]
            momentum = momentum * kept + pushed[:, None, :, None] * pushed[None, :, None, :]
            queries = queries * turned**2 + self._query_variance(values, step)
            left = left * turned
        own = np.einsum("ggii->gi", momentum)
        return LocalRound(
            target=self.target,
            contraction=left,
            common=self.correlation * momentum,
            own=(1.0 - self.correlation) * own,
            gradient=self._spread_queries(queries),
        )

    def _spread_queries(self, queries: Array) -> Array | None:
        if self.gradient_std == 0.0:
            return None
        each = in_basis(self.target.spectra[1], queries)
        return np.asarray(each[self.target.kinds[1]])

    def _query_variance(self, values: Array, step: float) -> Array:
        """Return the variance of theta_K due to the gradients' noise, for each eigenvalue."""
        if self.gradient_std == 0.0:
            return np.zeros_like(values)
        first, last = query_responses(values, step, self.leapfrog_steps)
        if self.gradient_reused:
            joined = first.copy()
            # The end of a step and the start of the next are one query.
            joined[1:] += last[:-1]
            total = np.sum(joined**2, axis=0)
        else:
            total = np.sum(first**2, axis=0) + np.sum(last**2, axis=0)
        return np.asarray(self.gradient_std**2 * total)


@dataclass(frozen=True, kw_only=True, eq=False)
class DebiasedLaws:
    """De-biased FA-HMC (Algorithms B.1 and B.2) on a Gaussian target: every round's exact law.

    Client c follows H_c (x - y) + grad f(y), where y is the start of the round before. This is a
    leapfrog around y - H_c^-1 grad f(y). An affine map acts on the positions of two rounds
    together. In the first round grad f(y) is 0 and y is the start. ``DebiasedSampling`` describes
    the difference to B.2 in that round.

    Args:
        chain: the same chain without the correction; all clients take part.

    Raises:
        ParameterError: drawn cohorts, or noise on gradients. The first round's noise also enters
            the second round, and that law is not implemented.
    """

    chain: HamiltonianChain

    def __post_init__(self) -> None:
        if self.chain.cohort is not None:
            refuse("averaging", self.chain.averaging, "be 'full'")
        if self.chain.gradient_std > 0.0:
            refuse("gradient_std", self.chain.gradient_std, "be 0 for these laws")

    @property
    def target(self) -> GaussianTarget:
        """The split target."""
        return self.chain.target

    @property
    def temperature(self) -> float:
        """One."""
        return self.chain.temperature

    def joint(self, index: int) -> AffineMap:
        """Return round ``index`` >= 1 as a map of (position, the one before), shape (2 d,)."""
        target = self.target
        local, size = self.chain.local_round(index), target.dimension
        vectors, kinds = target.spectra[1], target.kinds[1]
        # For every kind of client: the step towards its mode, times its inverse Hessian.
        pull = in_basis(vectors, (1.0 - local.contraction) / target.spectra[0])
        pull = np.einsum("c,cij->ij", target.shares, pull[kinds]) @ target.precision
        kept = local.average.matrix
        matrix = np.block([[kept, np.eye(size) - kept - pull], [np.eye(size), np.zeros_like(kept)]])
        noise = np.zeros_like(matrix)
        noise[:size, :size] = local.average.noise
        offset = np.concatenate([pull @ target.mean, np.zeros(size)])
        return AffineMap(matrix=matrix, offset=offset, noise=noise)

    def first(self, start: Normal) -> Normal:
        """Return the law of (position after the first round, start): only momentum moves it."""
        added, spread = self.chain.local_round(0).average.noise, start.covariance
        covariance = np.block([[spread + added, spread], [spread, spread]])
        return Normal(mean=np.concatenate([start.mean, start.mean]), covariance=covariance)

    def laws(self, start: Normal) -> Iterator[Normal]:
        """Yield mean and covariance of the global position after 0, 1, 2, ... rounds."""
        yield start
        both, index = self.first(start), 1
        while True:
            yield self._position(both)
            both, index = self.joint(index).apply(both), index + 1

    def law(self, start: Normal, rounds: int) -> Normal:
        """Return the law after ``rounds`` rounds; with a constant step size in one computation."""
        count = integer(0, rounds=rounds)
        if count == 0 or not self.chain.homogeneous:
            return next(islice(self.laws(start), count, None))
        return self._position(self.joint(1).power(count - 1).apply(self.first(start)))

    def stationary(self) -> Normal:
        """Return the limit law of the rounds.

        Raises:
            ParameterError: they do not contract, or step sizes differ.
        """
        require(self.chain.homogeneous, "step_size", self.chain.step_size, "be constant")
        return self._position(self.joint(1).stationary())

    def _position(self, both: Normal) -> Normal:
        size = self.target.dimension
        return Normal(mean=both.mean[:size], covariance=both.covariance[:size, :size])


def query_responses(values: Array, step_size: float, steps: int) -> tuple[Array, Array]:
    """Return the response of theta_K to a unit of noise on each query's gradient.

    Args:
        values: curvatures, any shape.
        step_size: eta.
        steps: K.

    Returns:
        Two arrays of shape (K, ...): for the gradient at the start of step k, and for the gradient
            at its end. The very last gradient changes only the momentum, so its response is 0.
    """
    eta = step_size
    begin = [-(eta**2) / 2.0 * np.ones_like(values), -eta / 2.0 + eta**3 * values / 4.0]
    end = [np.zeros_like(values), -eta / 2.0 * np.ones_like(values)]
    answers: tuple[list[Array], list[Array]] = ([], [])
    for left in range(steps - 1, -1, -1):
        turned, pushed = (
            leapfrog(values, eta, left) if left else (np.ones_like(values), np.zeros_like(values))
        )
        answers[0].append(turned * begin[0] + pushed * begin[1])
        answers[1].append(turned * end[0] + pushed * end[1])
    return np.array(answers[0]), np.array(answers[1])


def upload_gdp(
    chain: HamiltonianChain, *, client: int, difference: float | Array, index: int = 0
) -> float:
    """Return mu of one upload if replacing a record changes the gradient by a constant.

    For quadratic losses the sum of the client's gradients changes by ``difference`` at every
    parameter. The observer knows the round's start and the shared momentum; own momentum and noise
    on gradients both count. The result is exact. With K > 1 and losses that are *not* quadratic the
    momentum gives no guarantee: see the documentation.

    Args:
        chain: the chain; its averaging has no effect.
        client: client of the upload.
        difference: difference of the two records' gradients, shape (d,), or its norm: then the
            direction with the largest mu is used.
        index: the round, which matters for dynamic steps.
    """
    values, vectors = chain.target.spectrum(client)
    weight = chain.target.shares[client]
    moved, noise = np.zeros_like(values), np.zeros_like(values)
    for step in chain.steps_of(index):
        # All later iterations rotate the shift of the earlier ones.
        turned, pushed = leapfrog(values, step, chain.leapfrog_steps)
        moved = moved * turned + _displaced(values, step, chain.leapfrog_steps)[0]
        fresh = (1.0 - chain.correlation) / weight * pushed**2
        noise = noise * turned**2 + fresh + chain._query_variance(values, step)
    return shown(moved / weight, noise, vectors, difference)


def transcript_gdp(
    chain: HamiltonianChain, *, client: int, difference: float | Array, rounds: int
) -> float:
    """Return mu of a client's ``rounds`` uploads together, for a constant step size; exact."""
    if not chain.homogeneous:
        refuse("step_size", chain.step_size, "be constant", "add the squares of upload_gdp")
    once = upload_gdp(chain, client=client, difference=difference)
    return math.sqrt(integer(1, rounds=rounds)) * once
