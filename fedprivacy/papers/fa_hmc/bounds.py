"""FA-HMC's convergence theorems (Liang et al.) as functions, with checked conditions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ...errors import closed_unit, integer, non_negative, positive, refuse
from ...rounding import THOUSANDS, rounded_up
from ...systems.fa_hmc.law import DynamicSteps
from ..statement import Statement

_ASSUMED = (
    "every f^(c) is mu-strongly convex, L-smooth and L_H Hessian smooth (3.1 to 3.3)",
    "stochastic gradients have variance at most sigma_g^2 L d (3.4)",
)
_RATE = (
    "the paper does not state the constant C (of L, L/mu, L_H^2/L^3), so the value is only a rate"
)


@dataclass(frozen=True, kw_only=True)
class HamiltonianProblem:
    """Constants of a problem that FA-HMC's theorems need.

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
        closed_unit(correlation=self.correlation)
        non_negative(gradient_std=self.gradient_std)
        integer(1, leapfrog_steps=self.leapfrog_steps)
        integer(1, iterations=self.iterations)

    @cached_property
    def momentum(self) -> float:
        """Amount of own momentum: (1 - rho) N."""
        return (1.0 - self.correlation) * len(self.weights)

    @cached_property
    def gradient(self) -> float:
        """Noise of the averaged gradient: sum_c w_c^2 sigma_g^2."""
        return math.fsum(w * w for w in self.weights) * self.gradient_std**2

    def _stable(self, step_size: float) -> str:
        limit = 1.0 / (self.leapfrog_steps * math.sqrt(self.smoothness))
        # Steps chosen to meet the limit may exceed it by a rounding error.
        if positive(step_size=step_size) > rounded_up(limit, THOUSANDS):
            refuse("step_size", step_size, f"be at most 1 / (K sqrt(L)) = {limit:g}")
        return f"step_size <= 1 / (K sqrt(L)) = {limit:g}"

    def _trajectory(self, accuracy: float, constant: float) -> float:
        """Return gamma = (K eta)^2 of Theorem 4.1."""
        d, t = self.dimension, self.iterations
        candidates = [1.0 / self.smoothness, accuracy / (math.sqrt(d) * t)]
        # A quantity of 0 sets no limit.
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
    """Return Theorem 4.4's right-hand side, for E |theta - theta_pi|^2 after some iterations.

    (1 - mu (K eta)^2 / 4)^t start + eta^2 Delta with Delta = C_1 T^2 K^2 (B (K eta)^2 / L + (1 -
    rho) N d) + C_2 K sum_c w_c^2 sigma_g^2 d.

    Args:
        problem: constants of the problem.
        step_size: eta, constant, at most 1 / (K sqrt(L)).
        iterations: t + 1, total number of HMC iterations.
        start: E |theta_0 - theta_0^pi|^2.
        gradient_bound: B = sum_c w_c sup_t E |gradient of f^(c) at client c's iterate|^2.
        constants: C_1 and C_2, which the paper does not specify.

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

    The number is d log(d / accuracy^2) / accuracy^2 (T^2 (gamma + (1 - rho) N) + sum_c w_c^2
    sigma_g^2 / K). Divided by T it is the number of rounds. Here gamma = (K eta)^2 is constant
    times the smallest of 1 / L, accuracy / (sqrt(d) T), accuracy^2 / (d T^2 (1 - rho) N) and
    accuracy^2 K / (d sum w_c^2 sigma_g^2).

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

    Its setting is gamma = (K eta)^2 = constant min(1 / L, e / (T sqrt(d))). The momentum is shared
    up to 1 - rho = O(gamma / N), and the gradient noise is sigma_g^2 = O(K gamma). Both are checked
    with ``constant`` as their constant. Divided by T the value is the number of rounds.

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


def ideal_lower_rate(*, dimension: int, iterations: int, accuracy: float) -> Statement:
    """Return Theorem C.1's number of iterations, T sqrt(d) log(d / e) / e.

    The theorem gives a task within its assumptions: two kinds of clients with Gaussian targets of
    different curvature and centre. On it FA-HMC with exact dynamics and shared momentum needs this
    number of iterations, up to a constant, to reach W2 = e, for every length of its trajectories.
    Divided by T it is the number of rounds, which does not depend on T.

    The printed proof has a gap. It adds the momenta of T iterations as if they were the same for
    both kinds of clients, which is false for T > 1. Only the variance depends on that step, and the
    exact law, without that step, follows the rate.

    Args:
        dimension: d.
        iterations: T, between two communications.
        accuracy: wanted W2, below sqrt(d).

    Raises:
        ParameterError: a value out of its range.
    """
    size, local = integer(1, dimension=dimension), integer(1, iterations=iterations)
    wanted = positive(accuracy=accuracy)
    _logarithm(size, wanted)
    return Statement(
        value=local * math.sqrt(size) * math.log(size / wanted) / wanted,
        theorem="FA-HMC Theorem C.1",
        checked=("accuracy^2 < d",),
        assumed=(
            "the task is that of the theorem, with clients of different curvature and centre",
            "the start is N(0, sigma^2 I), momentum is shared, trajectories are exact",
            _RATE,
        ),
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

    Stage s has (K eta_s)^2 = (K eta)^2 / 2^(s-1) and 2^(s-1) t_1 iterations, where (K eta)^2 =
    start / (8 c_d Delta L), t_1 = T ceil(-log 8 / (T log(1 - mu (K eta)^2 / 4))) and Delta = d (T^2
    (gamma + (1 - rho) N) + sum_c w_c^2 sigma_g^2 / K).

    The printed proposition halves the squared step and uses log 8. The last remark of its proof has
    other constants (a = 2 instead of a = 4). With the recursion of the statement the printed
    constants halve the squared error in every stage.

    Args:
        problem: constants of the problem.
        start: D = E |theta_0 - theta_0^pi|^2.
        accuracy: wanted W2; gamma depends on it.
        stages: number of stages, at least 1.
        log_factor: c_d; if None, log(d)^2 as in the paper, but at least 1.

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
