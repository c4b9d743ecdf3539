"""FA-HMC (Liang et al.): exact on Gaussian targets, its theorems, the privacy of its momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import integer, non_negative, positive, refuse
from .gaussian import Array, as_vectors
from .statement import Statement
from .targets import (
    Averaging,
    Chain,
    GaussianTarget,
    LocalRound,
    in_basis,
    rounds_to_accuracy,
    w2_curve,
)

__all__ = [
    "Averaging",
    "DynamicSteps",
    "GaussianTarget",
    "HamiltonianChain",
    "HamiltonianProblem",
    "convergence_rate",
    "dynamic_step_sizes",
    "iteration_rate",
    "momentum_gdp",
    "rounds_to_accuracy",
    "transcript_gdp",
    "upload_gdp",
    "vanilla_rate",
    "w2_curve",
]

_CLOSED = 64.0 * np.finfo(np.float64).eps
"""Angles this close to a multiple of pi, relative to the number of steps, count as on it."""


def leapfrog(curvature: Array, step_size: float, leapfrog_steps: int) -> tuple[Array, Array]:
    """Return how the end of a trajectory depends on its start: theta_K = C theta_0 + S p_0.

    On (theta, p) with potential curvature l theta^2 / 2 a leapfrog step turns by phi with
    cos phi = 1 - eta^2 l / 2, in scaled axes: C = cos(K phi) and
    S = sin(K phi) / sqrt(l (1 - eta^2 l / 4)). S is 0 where K phi is a multiple of pi.

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
    return np.cos(steps * turn), sine / np.sqrt(curvature * (1.0 - half) * (1.0 + half))


def _angle(curvature: Array, step_size: float) -> Array:
    """Return phi, by sin(phi / 2) = eta sqrt(l) / 2."""
    half = positive(step_size=step_size) * np.sqrt(curvature) / 2.0
    if np.any(half >= 1.0):
        limit = 2.0 / math.sqrt(float(np.max(curvature)))
        refuse("step_size", step_size, f"be below 2 / sqrt(L) = {limit:g}", "leapfrog is unstable")
    return np.asarray(2.0 * np.arcsin(half))


def momentum_gdp(
    curvature: float, step_size: float, leapfrog_steps: int, difference: float, std: float
) -> float:
    """Return mu of one trajectory's end when the gradient moves by a constant; closed form.

    mu_K = difference / (std sqrt(l)) sqrt(1 - eta^2 l / 4) |tan(K phi / 2)|; infinite at K phi = pi
    (an odd multiple), where the end does not depend on the momentum. For one step it is
    eta difference / (2 std), that of FA-LD with step eta^2 / 2.

    Args:
        curvature: l, of the quadratic potential along the difference.
        step_size: eta.
        leapfrog_steps: K.
        difference: norm of the gradients' difference, the same at every parameter.
        std: of the private momentum: sqrt((1 - rho) / w).
    """
    at = np.array([positive(curvature=curvature)])
    moved, spread = _displaced(at, step_size, leapfrog_steps)
    shift = float(moved[0]) * non_negative(difference=difference)
    noise = float(spread[0]) * non_negative(std=std)
    if shift == 0.0:
        return 0.0
    return math.inf if noise == 0.0 else shift / noise


def _displaced(curvature: Array, step_size: float, steps: int) -> tuple[Array, Array]:
    """Return (1 - C) / l, free of cancellation, and |S|."""
    angle = steps * _angle(curvature, step_size)
    sine = np.sin(angle / 2.0)
    whole = np.where(np.abs(sine) <= _CLOSED * steps, 0.0, 2.0 * sine**2)
    return whole / curvature, np.abs(leapfrog(curvature, step_size, steps)[1])


@dataclass(frozen=True, kw_only=True)
class DynamicSteps:
    """Step sizes by iteration: ``stages`` of (step size, iterations), the last one goes on.

    Args:
        stages: at least one pair.
    """

    stages: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        if not self.stages:
            refuse("stages", self.stages, "hold at least one pair (step size, iterations)")
        for step, count in self.stages:
            positive(step_size=step)
            integer(1, iterations=count)

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

    In an iteration every client draws the momentum sqrt(rho) shared + sqrt((1 - rho) / w_c) own
    and takes K leapfrog steps on f^c; after T iterations the clients are averaged. Every law is
    exact: a trajectory is a linear map.

    Args:
        step_size: eta, or ``DynamicSteps``; eta^2 L < 4.
        leapfrog_steps: K.
        iterations: T.
        correlation: rho in [0, 1], the common share of the momentum's *variance*.
        gradient_std: std of the Gaussian noise on each coordinate of each gradient query.
        gradient_reused: whether the gradient at the end of a step, noise included, also begins
            the next step (K queries count) or a fresh one is asked for (2 K - 1).
        target: see ``Chain``.
        averaging: see ``Chain``.
        cohort: see ``Chain``.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float | DynamicSteps
    leapfrog_steps: int = 1
    iterations: int = 1
    correlation: float = 0.0
    gradient_std: float = 0.0
    gradient_reused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.step_size, DynamicSteps):
            tried = [step for step, _ in self.step_size.stages]
        else:
            tried = [self.step_size]
        for step in tried:
            _angle(self.target.spectra[0], step)
        object.__setattr__(self, "leapfrog_steps", integer(1, leapfrog_steps=self.leapfrog_steps))
        object.__setattr__(self, "iterations", integer(1, iterations=self.iterations))
        non_negative(gradient_std=self.gradient_std)
        if non_negative(correlation=self.correlation) > 1.0:
            refuse("correlation", self.correlation, "be in [0, 1]")

    @property
    def temperature(self) -> float:
        """One: FA-HMC aims at exp(-f)."""
        return 1.0

    @property
    def homogeneous(self) -> bool:
        """Whether the step size is constant."""
        return not isinstance(self.step_size, DynamicSteps)

    def steps_of(self, index: int) -> list[float]:
        """Return the step sizes of the T iterations of round ``index``."""
        if not isinstance(self.step_size, DynamicSteps):
            return [self.step_size] * self.iterations
        first = index * self.iterations
        return [self.step_size.at(first + j) for j in range(self.iterations)]

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
        """Return the variance of theta_K that the gradients' noise makes, by eigenvalue."""
        if self.gradient_std == 0.0:
            return np.zeros_like(values)
        first, last = query_responses(values, step, self.leapfrog_steps)
        if self.gradient_reused:
            joined = first.copy()
            joined[1:] += last[:-1]
            total = np.sum(joined**2, axis=0)
        else:
            total = np.sum(first**2, axis=0) + np.sum(last**2, axis=0)
        return np.asarray(self.gradient_std**2 * total)


def query_responses(values: Array, step_size: float, steps: int) -> tuple[Array, Array]:
    """Return how theta_K answers to a unit of noise on each query's gradient.

    Args:
        values: curvatures, any shape.
        step_size: eta.
        steps: K.

    Returns:
        Two arrays of shape (K, ...): of the gradients that begin step k, and of those that end
        it. The very last one moves the momentum only: its response is 0.
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
    """Return mu of one upload when a record's replacement moves its gradient by a constant.

    Quadratic losses: the sum of the client's gradients moves by ``difference`` everywhere. The
    observer knows the round's start and the shared momentum; own momentum and noise on gradients
    both count. Exact. With K > 1 and losses that are *not* quadratic the momentum guarantees
    nothing: see the documentation.

    Args:
        chain: its averaging plays no part.
        client: whose upload.
        difference: of the two records' gradients, shape (d,), or its norm: then the direction
            that shows most is taken.
        index: the round, which matters for dynamic steps.
    """
    if not 0 <= client < chain.target.clients:
        refuse("client", client, f"be from 0 to {chain.target.clients - 1}")
    kind, weight = chain.target.kinds[1][client], chain.target.shares[client]
    values, vectors = chain.target.spectra[0][kind], chain.target.spectra[1][kind]
    moved, noise = np.zeros_like(values), np.zeros_like(values)
    for step in chain.steps_of(index):
        turned, pushed = leapfrog(values, step, chain.leapfrog_steps)
        moved = moved * turned + _displaced(values, step, chain.leapfrog_steps)[0]
        fresh = (1.0 - chain.correlation) / weight * pushed**2
        noise = noise * turned**2 + fresh + chain._query_variance(values, step)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(moved == 0.0, 0.0, np.abs(moved) / weight / np.sqrt(noise))
    if np.ndim(difference) == 0:
        return float(non_negative(difference=difference) * np.max(each))
    along = np.abs(vectors.T @ as_vectors(difference=difference))
    seen = along > 0.0
    return float(np.linalg.norm(each[seen] * along[seen])) if seen.any() else 0.0


def transcript_gdp(
    chain: HamiltonianChain, *, client: int, difference: float | Array, rounds: int
) -> float:
    """Return mu of a client's ``rounds`` uploads together, for a constant step size; exact."""
    if not chain.homogeneous:
        refuse("step_size", chain.step_size, "be constant", "add upload_gdp's squares up")
    once = upload_gdp(chain, client=client, difference=difference)
    return math.sqrt(integer(1, rounds=rounds)) * once


_ASSUMED = (
    "every f^(c) is mu-strongly convex, L-smooth and L_H Hessian smooth (3.1 to 3.3)",
    "stochastic gradients have variance at most sigma_g^2 L d (3.4)",
)
_RATE = "the paper leaves the constant C (of L, L/mu, L_H^2/L^3) unnamed: the value is a rate"


@dataclass(frozen=True, kw_only=True)
class HamiltonianProblem:
    """What FA-HMC's theorems ask of a problem.

    Args:
        dimension: d.
        strong_convexity: mu, above 0.
        smoothness: L, at least mu.
        weights: w_c, above 0, sum to 1.
        correlation: rho in [0, 1].
        gradient_std: sigma_g.
        leapfrog_steps: K.
        iterations: T.

    Raises:
        ParameterError: a value out of its range.
    """

    dimension: int
    strong_convexity: float
    smoothness: float
    weights: tuple[float, ...]
    correlation: float = 0.0
    gradient_std: float = 0.0
    leapfrog_steps: int = 1
    iterations: int = 1

    def __post_init__(self) -> None:
        integer(1, dimension=self.dimension)
        positive(strong_convexity=self.strong_convexity)
        if positive(smoothness=self.smoothness) < self.strong_convexity:
            refuse("smoothness", self.smoothness, f"be at least {self.strong_convexity:g}")
        if not self.weights or min(self.weights) <= 0.0:
            refuse("weights", self.weights, "be above 0")
        if not math.isclose(math.fsum(self.weights), 1.0, rel_tol=1e-9):
            refuse("weights", math.fsum(self.weights), "sum to 1", "divide them by their sum")
        if non_negative(correlation=self.correlation) > 1.0:
            refuse("correlation", self.correlation, "be in [0, 1]")
        non_negative(gradient_std=self.gradient_std)
        integer(1, leapfrog_steps=self.leapfrog_steps)
        integer(1, iterations=self.iterations)

    @cached_property
    def momentum(self) -> float:
        """How much own momentum there is: (1 - rho) N."""
        return (1.0 - self.correlation) * len(self.weights)

    @cached_property
    def gradient(self) -> float:
        """Noise of the averaged gradient: sum_c w_c^2 sigma_g^2."""
        return math.fsum(w * w for w in self.weights) * self.gradient_std**2

    def _stable(self, step_size: float) -> str:
        limit = 1.0 / (self.leapfrog_steps * math.sqrt(self.smoothness))
        if positive(step_size=step_size) > limit * (1.0 + 1e-12):
            refuse("step_size", step_size, f"be at most 1 / (K sqrt(L)) = {limit:g}")
        return f"step_size <= 1 / (K sqrt(L)) = {limit:g}"

    def _trajectory(self, accuracy: float, constant: float) -> float:
        """Return gamma = (K eta)^2 of Theorem 4.1."""
        d, t = self.dimension, self.iterations
        candidates = [1.0 / self.smoothness, accuracy / (math.sqrt(d) * t)]
        if self.momentum > 0.0:
            candidates.append(accuracy**2 / (d * t * t * self.momentum))
        if self.gradient > 0.0:
            candidates.append(accuracy**2 * self.leapfrog_steps / (d * self.gradient))
        return constant * min(candidates)


def convergence_rate(
    problem: HamiltonianProblem,
    *,
    step_size: float,
    iterations: int,
    start: float,
    gradient_bound: float,
    constants: tuple[float, float] = (1.0, 1.0),
) -> Statement:
    """Return Theorem 4.4's right-hand side: E |theta - theta_pi|^2 after so many iterations.

    (1 - mu (K eta)^2 / 4)^t start + eta^2 Delta with Delta = C_1 T^2 K^2 (B (K eta)^2 / L
    + (1 - rho) N d) + C_2 K sum_c w_c^2 sigma_g^2 d.

    Args:
        problem: constants of the problem.
        step_size: eta, constant, at most 1 / (K sqrt(L)).
        iterations: t + 1, HMC iterations in all.
        start: E |theta_0 - theta_0^pi|^2.
        gradient_bound: B = sum_c w_c sup_t E |gradient of f^(c) at client c's iterate|^2.
        constants: C_1 and C_2, which the paper leaves unnamed.

    Raises:
        ParameterError: a step size above the theorem's range.
    """
    checked = problem._stable(step_size)
    length, d = problem.leapfrog_steps * step_size, problem.dimension
    decay = math.log1p(-problem.strong_convexity * length**2 / 4.0)
    bias = non_negative(gradient_bound=gradient_bound) * length**2 / problem.smoothness
    drift = problem.iterations**2 * length**2 * (bias + problem.momentum * d)
    noise = problem.leapfrog_steps * step_size**2 * problem.gradient * d
    left = math.exp((integer(1, iterations=iterations) - 1) * decay)
    return Statement(
        value=left * non_negative(start=start) + constants[0] * drift + constants[1] * noise,
        theorem="FA-HMC Theorem 4.4",
        checked=(checked, "weights sum to 1", "rho in [0, 1]"),
        assumed=(*_ASSUMED, _RATE),
        bound=False,
    )


def iteration_rate(
    problem: HamiltonianProblem, *, accuracy: float, constant: float = 1.0
) -> tuple[float, Statement]:
    """Return Theorem 4.1's step size and its number of iterations, up to constants.

    d log(d / accuracy^2) / accuracy^2 (T^2 (gamma + (1 - rho) N) + sum_c w_c^2 sigma_g^2 / K);
    divided by T it is the number of rounds. gamma = (K eta)^2 = constant times the smallest of
    1 / L, accuracy / (sqrt(d) T), accuracy^2 / (d T^2 (1 - rho) N), accuracy^2 K / (d sum w_c^2
    sigma_g^2).

    Args:
        problem: constants of the problem.
        accuracy: wanted W2, below sqrt(d).
        constant: C.

    Returns:
        (step size, Statement whose value is the number of iterations).
    """
    size, wanted = problem.dimension, positive(accuracy=accuracy)
    logarithm = _logarithm(size, wanted)
    gamma = problem._trajectory(wanted, positive(constant=constant))
    noise = problem.iterations**2 * (gamma + problem.momentum)
    noise += problem.gradient / problem.leapfrog_steps
    return math.sqrt(gamma) / problem.leapfrog_steps, Statement(
        value=size * logarithm / wanted**2 * noise,
        theorem="FA-HMC Theorem 4.1",
        checked=("accuracy^2 < d",),
        assumed=(*_ASSUMED, "W2(start, target)^2 = O(d), sum_c w_c |gradient|^2 = O(d)", _RATE),
        bound=False,
    )


def _logarithm(dimension: int, accuracy: float) -> float:
    if accuracy**2 >= dimension:
        refuse("accuracy", accuracy, f"be below sqrt(d) = {math.sqrt(dimension):g}")
    return math.log(dimension / accuracy**2)


def vanilla_rate(
    problem: HamiltonianProblem, *, accuracy: float, constant: float = 1.0
) -> tuple[float, Statement]:
    """Return Proposition 4.3's step size and number of iterations T sqrt(d) log(d / e^2) / e.

    Its setting: gamma = (K eta)^2 = constant min(1 / L, e / (T sqrt(d))), with momentum shared up
    to 1 - rho = O(gamma / N) and gradient noise sigma_g^2 = O(K gamma); both are checked with
    ``constant`` as their constant. Divided by T it is the number of rounds.

    Raises:
        ParameterError: too little shared momentum or too much gradient noise for the setting.
    """
    size, wanted = problem.dimension, positive(accuracy=accuracy)
    reach = min(1.0 / problem.smoothness, wanted / (problem.iterations * math.sqrt(size)))
    gamma = positive(constant=constant) * reach
    if problem.momentum > constant * gamma:
        least = 1.0 - constant * gamma / len(problem.weights)
        refuse("correlation", problem.correlation, f"be at least 1 - C gamma / N = {least:g}")
    if problem.gradient_std**2 > constant * problem.leapfrog_steps * gamma:
        most = math.sqrt(constant * problem.leapfrog_steps * gamma)
        refuse("gradient_std", problem.gradient_std, f"be at most sqrt(C K gamma) = {most:g}")
    return math.sqrt(gamma) / problem.leapfrog_steps, Statement(
        value=problem.iterations * math.sqrt(size) * _logarithm(size, wanted) / wanted,
        theorem="FA-HMC Proposition 4.3",
        checked=("1 - rho <= C gamma / N", "sigma_g^2 <= C K gamma"),
        assumed=(*_ASSUMED, _RATE),
        bound=False,
    )


def dynamic_step_sizes(
    problem: HamiltonianProblem,
    *,
    start: float,
    accuracy: float,
    stages: int,
    log_factor: float | None = None,
) -> tuple[DynamicSteps, Statement]:
    """Return the step sizes of Proposition 4.5 (J.1) and its iterations, without the logarithm.

    Stage s has (K eta_s)^2 = (K eta)^2 / 2^(s-1) and 2^(s-1) t_1 iterations, where
    (K eta)^2 = start / (8 c_d Delta L), t_1 = T ceil(-log 8 / (T log(1 - mu (K eta)^2 / 4))) and
    Delta = d (T^2 (gamma + (1 - rho) N) + sum_c w_c^2 sigma_g^2 / K). The printed proposition
    halves the squared step and takes log 8, its proof's closing remark has other constants (a = 2
    where the printed ones are a = 4); with the recursion of the statement the printed ones halve
    the squared error in every stage.

    Args:
        problem: constants of the problem.
        start: D = E |theta_0 - theta_0^pi|^2.
        accuracy: wanted W2, which gamma asks for.
        stages: how many, at least 1.
        log_factor: c_d, log(d)^2 in the paper (at least 1 here) where None.

    Raises:
        ParameterError: a first step above the theorems' range 1 / (K sqrt(L)).
    """
    size = problem.dimension
    factor = max(1.0, math.log(size) ** 2) if log_factor is None else log_factor
    gamma = problem._trajectory(positive(accuracy=accuracy), 1.0)
    noise = problem.iterations**2 * (gamma + problem.momentum)
    total = size * (noise + problem.gradient / problem.leapfrog_steps)
    length = positive(start=start) / (
        8.0 * positive(log_factor=factor) * total * problem.smoothness
    )
    first = math.sqrt(length) / problem.leapfrog_steps
    checked = problem._stable(first)
    decay = -math.log1p(-problem.strong_convexity * length / 4.0)
    base = problem.iterations * math.ceil(math.log(8.0) / (problem.iterations * decay))
    pairs = tuple(
        (first / math.sqrt(2.0) ** s, base * 2**s) for s in range(integer(1, stages=stages))
    )
    return DynamicSteps(stages=pairs), Statement(
        value=factor * total / accuracy**2,
        theorem="FA-HMC Proposition 4.5 (J.1)",
        checked=(checked,),
        assumed=(*_ASSUMED, _RATE),
        bound=False,
    )
