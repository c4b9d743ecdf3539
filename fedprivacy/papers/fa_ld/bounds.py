"""FA-LD's convergence theorems (Deng et al.) as functions, with checked conditions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import closed_unit, integer, non_negative, positive, probability, refuse, require
from ...systems.fa_ld.law import DecayingSteps
from ...theory.gaussian import Array, as_vectors
from ...theory.targets import Averaging, GaussianTarget
from ..statement import Statement

_ASSUMED = (
    "every f^c is m-strongly convex and L-smooth (5.1, 5.2)",
    "stochastic gradients are unbiased with variance at most sigma^2 d (5.3)",
    "|theta_0 - theta_*|^2 <= d D^2",
)


@dataclass(frozen=True, kw_only=True)
class LangevinProblem:
    """Constants of a problem that FA-LD's theorems need.

    Args:
        dimension: d.
        strong_convexity: m, above 0.
        smoothness: L, at least m.
        smallest_weight: min p_c, in (0, 1].
        clients: N.
        start_distance: D, with |theta_0 - theta_*|^2 <= d D^2.
        heterogeneity: gamma = max_c |gradient of f^c at theta_*|.
        gradient_std: sigma, with the gradients' variance at most sigma^2 d.
        temperature: tau.

    Raises:
        ParameterError: a value out of its range.
    """

    dimension: int
    strong_convexity: float
    smoothness: float
    smallest_weight: float
    clients: int
    start_distance: float
    heterogeneity: float = 0.0
    gradient_std: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        integer(1, dimension=self.dimension)
        DecayingSteps(strong_convexity=self.strong_convexity, smoothness=self.smoothness)
        probability(smallest_weight=self.smallest_weight)
        if self.smallest_weight * integer(1, clients=self.clients) > 1.0 + 1e-9:
            refuse("smallest_weight", self.smallest_weight, f"be at most 1 / {self.clients}")
        non_negative(start_distance=self.start_distance)
        non_negative(heterogeneity=self.heterogeneity)
        non_negative(gradient_std=self.gradient_std)
        positive(temperature=self.temperature)

    @classmethod
    def of(
        cls, target: GaussianTarget, start: Array, *, temperature: float = 1.0
    ) -> LangevinProblem:
        """Return the problem of a Gaussian target with exact gradients from a known start."""
        apart = float(np.linalg.norm(as_vectors(start=start) - target.mean))
        return cls(
            dimension=target.dimension,
            strong_convexity=target.strong_convexity,
            smoothness=target.smoothness,
            smallest_weight=float(np.min(target.shares)),
            clients=target.clients,
            start_distance=apart / math.sqrt(target.dimension),
            heterogeneity=target.heterogeneity,
            temperature=temperature,
        )

    @property
    def condition_number(self) -> float:
        """Condition number kappa = L / m."""
        return self.smoothness / self.strong_convexity

    def hottest(self, correlation: float) -> float:
        """Return max_c T_{c,rho}, T_{c,rho} = tau (rho^2 + (1 - rho^2) / p_c)."""
        shared = closed_unit(correlation=correlation) ** 2
        return self.temperature * (shared + (1.0 - shared) / self.smallest_weight)

    def h(self, correlation: float = 0.0) -> float:
        """Return H_rho = D^2 + max_c T_{c,rho} / m + gamma^2 / (m^2 d) + sigma^2 / m^2."""
        m = self.strong_convexity
        mixed = self.heterogeneity**2 / self.dimension + self.gradient_std**2
        return self.start_distance**2 + self.hottest(correlation) / m + mixed / m**2

    @property
    def _start(self) -> float:
        near = self.start_distance + math.sqrt(self.temperature / self.strong_convexity)
        return math.sqrt(2.0 * self.dimension) * near

    def _bias(self, step_size: float, local_steps: int, correlation: float) -> float:
        kappa, m = self.condition_number, self.strong_convexity
        drift = (integer(1, local_steps=local_steps) - 1) ** 2 + kappa
        return (
            30.0 * kappa * math.sqrt(step_size * m * self.dimension * drift * self.h(correlation))
        )

    def _step(self, step_size: float) -> str:
        limit = 1.0 / (2.0 * self.smoothness)
        if positive(step_size=step_size) > limit:
            refuse(
                "step_size", step_size, f"be at most 1 / (2 L) = {limit:g}", "the theorem's range"
            )
        return f"step_size <= 1 / (2 L) = {limit:g}"


def constant_step_bound(
    problem: LangevinProblem,
    *,
    step_size: float,
    local_steps: int,
    iterations: int,
    correlation: float = 0.0,
) -> Statement:
    """Return Theorem 5.9's bound on W2 after ``iterations`` local steps; 5.7 at correlation 0.

    (1 - eta m / 4)^k sqrt(2 d) (D + sqrt(tau / m)) + 30 kappa sqrt(eta m d ((K-1)^2 + kappa) H).

    Args:
        problem: constants of the target.
        step_size: eta, at most 1 / (2 L).
        local_steps: K.
        iterations: k, total number of local steps.
        correlation: rho.

    Raises:
        ParameterError: a step size above the theorem's range.
    """
    checked = problem._step(step_size)
    # A power by its logarithm keeps the digits of a base near 1.
    decay = math.log1p(-step_size * problem.strong_convexity / 4.0)
    left = math.exp(integer(0, iterations=iterations) * decay)
    name = "Theorem 5.9 (B.8)" if correlation else "Theorem 5.7 (B.6)"
    return Statement(
        value=left * problem._start + problem._bias(step_size, local_steps, correlation),
        theorem=f"FA-LD {name}, full devices",
        checked=(checked, "rho in [0, 1]"),
        assumed=_ASSUMED,
    )


def decaying_step_bound(
    problem: LangevinProblem, *, local_steps: int, iterations: int
) -> Statement:
    """Return Theorem 5.8's bound on W2 with steps 1 / (2 L + m k / 12), rho = 0, full devices.

    The bound is 45 kappa sqrt(((K-1)^2 + kappa) H_0 eta_k m d). Its proof bounds the clients'
    divergence under the condition that eta at the last averaging is at most 2 eta_k. For these
    steps this means K - 1 <= 24 kappa. The theorem's statement omits this condition; it is checked
    here.

    Raises:
        ParameterError: more local steps than the proof covers.
    """
    most = 24.0 * problem.condition_number
    if integer(1, local_steps=local_steps) - 1 > most:
        refuse("local_steps", local_steps, f"be at most 24 kappa + 1 = {most + 1:g}")
    steps = DecayingSteps(strong_convexity=problem.strong_convexity, smoothness=problem.smoothness)
    last = float(steps.at(integer(0, iterations=iterations), 1)[0])
    return Statement(
        # 45 is 1.5 times the 30 of a constant step's bias.
        value=1.5 * problem._bias(last, local_steps, 0.0),
        theorem="FA-LD Theorem 5.8 (B.7), full devices, rho = 0",
        checked=("step sizes are 1 / (2 L + m k / 12)", f"K - 1 <= 24 kappa = {most:g}"),
        assumed=_ASSUMED,
    )


def partial_participation_bound(
    problem: LangevinProblem,
    *,
    step_size: float,
    local_steps: int,
    iterations: int,
    cohort: int,
    averaging: Averaging | str,
    correlation: float = 0.0,
) -> Statement:
    """Return Theorem 5.10's bound on W2 with the constant of its full version C.3.

    It is Theorem 5.9's two terms plus 2 sqrt(C_K d tau / (S m) (rho^2 + N (1 - rho^2)) C_S). Here
    C_K = eta m K / (1 - exp(-eta m K / 2)) and C_S is 1 for scheme I, (N - S) / (N - 1) for II.

    Args:
        problem: constants of the target.
        step_size: eta, at most 1 / (2 L).
        local_steps: K.
        iterations: k, total number of local steps.
        cohort: S.
        averaging: "I" or "II"; scheme II requires equal weights.
        correlation: rho.

    Raises:
        ParameterError: a step size above the range, a cohort larger than N under scheme II, or full
            averaging.
    """
    full = constant_step_bound(
        problem,
        step_size=step_size,
        local_steps=local_steps,
        iterations=iterations,
        correlation=correlation,
    )
    drawn, clients = integer(1, cohort=cohort), problem.clients
    if averaging not in (Averaging.I, Averaging.II):
        refuse("averaging", averaging, "be 'I' or 'II'", "constant_step_bound is for full devices")
    left_out = 1.0
    if averaging == Averaging.II:
        require(drawn <= clients, "cohort", drawn, f"be at most the number of clients = {clients}")
        left_out = (clients - drawn) / (clients - 1) if clients > 1 else 0.0
    m, shared = problem.strong_convexity, correlation**2
    pace = step_size * m * local_steps
    noise = problem.dimension * problem.temperature / (drawn * m)
    noise *= pace / -math.expm1(-pace / 2.0) * (shared + clients * (1.0 - shared)) * left_out
    equal = ("weights are equal",) if averaging == Averaging.II else ()
    return Statement(
        value=full.value + 2.0 * math.sqrt(noise),
        theorem=f"FA-LD Theorem 5.10 (C.3), scheme {averaging}",
        checked=full.checked,
        assumed=(*full.assumed, *equal),
    )


def iterations_needed(
    problem: LangevinProblem, *, accuracy: float, local_steps: int, correlation: float = 0.0
) -> tuple[float, Statement]:
    """Return a step size and the number of local steps to an accuracy by Theorem 5.9.

    Section 5.3.1: the step size makes the bias half of ``accuracy`` (or is 1 / (2 L)), and the
    iterations make the transient the other half.

    Returns:
        (step size, Statement whose value is the number of local steps, an integer).
    """
    half = positive(accuracy=accuracy) / 2.0
    m, unit = problem.strong_convexity, problem._bias(1.0, local_steps, correlation)
    step = min((half / unit) ** 2, 1.0 / (2.0 * problem.smoothness))
    decay = -math.log1p(-step * m / 4.0)
    # A start that is close enough needs no steps.
    steps = max(0, math.ceil(math.log(max(problem._start / half, 1.0)) / decay))
    return step, Statement(
        value=float(steps),
        theorem="FA-LD Theorem 5.9, solved for the accuracy (section 5.3.1)",
        checked=(problem._step(step),),
        assumed=_ASSUMED,
    )


def optimal_local_steps(problem: LangevinProblem) -> Statement:
    """Return the K with the fewest rounds in Theorem 5.9, of the order sqrt(kappa).

    At the step size of ``iterations_needed`` the bound's rounds are proportional to ((K - 1)^2 +
    kappa) / K, smallest at sqrt(1 + kappa). The better integer neighbour is returned. It minimises
    the *bound*: the chain itself may be faster with a larger K, see ``w2_curve``.
    """
    kappa = problem.condition_number
    low = max(1, math.floor(math.sqrt(1.0 + kappa)))
    best = min((low, low + 1), key=lambda k: ((k - 1) ** 2 + kappa) / k)
    return Statement(
        value=float(best),
        theorem="FA-LD section 5.3.1, optimal choice of K",
        checked=("m <= L",),
        assumed=_ASSUMED,
    )
