"""Convergence rate of Fed-PLT, and the error that its noise causes.

Bastianello, Liu and Johansson, "Enhancing privacy in federated learning through local training":
Lemmas 2, 3 and 8, Propositions 1 to 3, Corollary 1. N agents minimise sum f_i + h, where every f_i
is l-strongly convex and L-smooth and h is convex. Notation of the docstrings: rho is the penalty,
gamma the step size, N_e the local steps of a round, z_bar and x_bar the fixed point.

Two printed constants are wrong and are replaced (docs/theory/splitting.md gives the numbers). The
proximal step of f_i moves by 1 / (1 + rho l) of its argument, not by 1 / (l + 1 / rho). Accelerated
gradient descent contracts distances by the square root of the printed factor, which applies to
their squares. ``as_printed=True`` evaluates the paper's constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ...errors import integer, member, non_negative, open_unit, positive, probability, require
from ...theory import search
from ...theory.hidden_state import contraction_gap

LOSSES = "every f_i is strong_convexity-strongly convex and smoothness-smooth; h is convex"
SHARED = "all agents use one penalty, and local solvers that contract at least as fast as stated"
ACTIVE = "agents take part independently of each other, of the past and of the noise"


SMALLEST = 1e-300
"""Replacement for an entry 0 of S, which is allowed because powers of S grow with its entries."""


class Solver(StrEnum):
    """Method of an agent for its local problem."""

    GRADIENT = "gradient"
    """Gradient descent with a constant step; noisy and stochastic descent contract equally."""
    ACCELERATED = "accelerated"
    """Nesterov's method with the constant momentum of a strongly convex function."""


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """One round of Fed-PLT as a 2 x 2 matrix over the distances to the fixed point.

    (|x_k+1 - x_bar|, |z_k+1 - z_bar|) is at most ``matrix`` times (|x_k - x_bar|, |z_k - z_bar|),
    entry by entry, if all agents take part and there is no noise.

    Attributes:
        matrix: S, entries at least 0.
        local_contraction: contraction factor of a local solve, for the distance to its solution.
        splitting_contraction: zeta of Lemma 3.
        assumptions: assumptions of the rate that no computation can check.
    """

    matrix: tuple[tuple[float, float], tuple[float, float]]
    local_contraction: float
    splitting_contraction: float
    assumptions: tuple[str, ...]

    @property
    def norm(self) -> float:
        """Largest singular value of S: the contraction factor that Proposition 2 needs."""
        return float(np.linalg.norm(self.array, 2))

    @property
    def spectral_radius(self) -> float:
        """Largest eigenvalue of S: the rate in the limit of many rounds."""
        return _radius(*self.matrix[0], *self.matrix[1])

    @property
    def stable(self) -> bool:
        """Whether the iterates converge for every start."""
        return self.spectral_radius < 1.0

    @property
    def array(self) -> NDArray[np.float64]:
        """S, shape (2, 2)."""
        return np.array(self.matrix)

    def rounds(self, accuracy: float) -> int:
        """Return a number of rounds after which all distances are ``accuracy`` of their start.

        Raises:
            ParameterError: S is not stable, or ``accuracy`` does not lie in (0, 1).
        """
        wanted = math.log(open_unit(accuracy=accuracy))
        radius, spread = self._perron()
        # The first k with spread r^k <= accuracy; both logarithms are below 0.
        return max(1, math.ceil((wanted - math.log(spread)) / math.log(radius)))

    def remaining(self, rounds: int) -> float:
        """Return a bound on the distance after some rounds, relative to the distance of the start.

        Raises:
            ParameterError: S is not stable, or ``rounds`` is not an integer of at least 0.
        """
        radius, spread = self._perron()
        return spread * radius ** integer(0, rounds=rounds)

    def _perron(self) -> tuple[float, float]:
        """Return r and c = |w| / min(w) with Perron's vector w of S: |S^k| is at most r^k c.

        S^k y <= r^k max(y / w) w, entry by entry.
        """
        self._check_stable()
        (a, b), (c, d) = np.maximum(self.array, SMALLEST).tolist()
        radius = _radius(a, b, c, d)
        perron = (b, radius - a)
        return radius, math.hypot(*perron) / min(perron)

    def _check_stable(self) -> None:
        rule = "be below 1 for Fed-PLT to converge"
        way_out = "use more local steps (fewest_local_steps) or another penalty"
        require(self.stable, "spectral_radius", self.spectral_radius, rule, way_out)


def splitting_contraction(*, strong_convexity: float, smoothness: float, penalty: float) -> float:
    """Return zeta, the contraction factor of Peaceman-Rachford splitting (Lemma 3).

    Giselsson and Boyd 2017, Theorem 2: max(|1 - rho L| / (1 + rho L), |1 - rho l| / (1 + rho l)).

    Raises:
        ParameterError: a value not above 0, or ``strong_convexity`` above ``smoothness``.
    """
    low, high = _curvatures(strong_convexity, smoothness)
    rho = positive(penalty=penalty)
    return max(abs(1.0 - rho * h) / (1.0 + rho * h) for h in (low, high))


def local_contraction(
    *,
    strong_convexity: float,
    smoothness: float,
    penalty: float,
    local_steps: int,
    step_size: float | None = None,
    solver: Solver | str = Solver.GRADIENT,
    as_printed: bool = False,
) -> float:
    """Return the contraction factor of N_e local steps, for the distance to the local solution.

    Gradient descent: max(|1 - gamma m|, |1 - gamma M|)^N_e with m = l + 1 / rho, M = L + 1 / rho.
    Accelerated: sqrt((1 + M / m) (1 - sqrt(m / M))^N_e), from the decrease of f(u) - f* + m |s -
    u*|^2 / 2 (d'Aspremont, Scieur and Taylor 2021, Theorem 4.14), where the returned point w is an
    average of u and s. The paper omits the square root. A quadratic is a counterexample from N_e >
    (M / m)^1.5 on.

    Args:
        strong_convexity: l of every f_i, above 0.
        smoothness: L of every f_i.
        penalty: rho, above 0.
        local_steps: N_e, at least 1.
        step_size: gamma, in (0, 2 / (L + 1 / rho)); only for gradient descent. None for the
            fastest, 2 / (m + M).
        solver: "gradient" or "accelerated".
        as_printed: without the square root.

    Raises:
        ParameterError: a value out of its range.
    """
    low, high = _curvatures(strong_convexity, smoothness)
    inverse = 1.0 / positive(penalty=penalty)
    low, high, times = low + inverse, high + inverse, integer(1, local_steps=local_steps)
    if member(Solver, solver=solver) is Solver.ACCELERATED:
        rule = "be None for the accelerated solver"
        require(step_size is None, "step_size", step_size, rule, "it sets its own step size")
        squared = (1.0 + high / low) * (1.0 - math.sqrt(low / high)) ** times
        return squared if as_printed else math.sqrt(squared)
    step = 2.0 / (low + high) if step_size is None else step_size
    return (1.0 - contraction_gap(step, low, high)) ** times


def convergence(
    *,
    strong_convexity: float,
    smoothness: float,
    penalty: float,
    local_steps: int,
    step_size: float | None = None,
    solver: Solver | str = Solver.GRADIENT,
    as_printed: bool = False,
) -> Convergence:
    """Return one round's matrix S (Proposition 1; Proposition 3 for the accelerated solver).

    With q the local contraction, zeta that of the splitting and k = 1 / (1 + rho l), the Lipschitz
    constant of the proximal step,

        S = [[q, (1 + q) k], [2 q, zeta + 2 q k]].

    The paper prints 1 / (l + 1 / rho) = rho k for k, which is too small if rho < 1.

    Raises:
        ParameterError: see ``local_contraction``.
    """
    q = local_contraction(
        strong_convexity=strong_convexity,
        smoothness=smoothness,
        penalty=penalty,
        local_steps=local_steps,
        step_size=step_size,
        solver=solver,
        as_printed=as_printed,
    )
    zeta = splitting_contraction(
        strong_convexity=strong_convexity, smoothness=smoothness, penalty=penalty
    )
    k = (penalty if as_printed else 1.0) / (1.0 + penalty * strong_convexity)
    return Convergence(
        matrix=((q, (1.0 + q) * k), (2.0 * q, zeta + 2.0 * q * k)),
        local_contraction=q,
        splitting_contraction=zeta,
        assumptions=(LOSSES, SHARED),
    )


def largest_stable_contraction(
    *, strong_convexity: float, smoothness: float, penalty: float
) -> float:
    """Return the local contraction below which S is stable (Lemma 7, in closed form).

    S has entries of at least 0, so it is stable iff det(I - S) > 0 and q < 1. This is (1 - q) (1 -
    zeta) > 4 q k, that is q < (1 - zeta) / (1 - zeta + 4 k).

    Raises:
        ParameterError: see ``splitting_contraction``.
    """
    zeta = splitting_contraction(
        strong_convexity=strong_convexity, smoothness=smoothness, penalty=penalty
    )
    return (1.0 - zeta) / (1.0 - zeta + 4.0 / (1.0 + penalty * strong_convexity))


def fewest_local_steps(
    *,
    strong_convexity: float,
    smoothness: float,
    penalty: float,
    step_size: float | None = None,
    solver: Solver | str = Solver.GRADIENT,
) -> int:
    """Return the boundary of stability: the smallest N_e for which S is stable.

    Raises:
        ParameterError: see ``local_contraction``.
    """
    limit = largest_stable_contraction(
        strong_convexity=strong_convexity, smoothness=smoothness, penalty=penalty
    )

    def stable(steps: int) -> bool:
        found = local_contraction(
            strong_convexity=strong_convexity,
            smoothness=smoothness,
            penalty=penalty,
            local_steps=steps,
            step_size=step_size,
            solver=solver,
        )
        return found < limit

    # The contraction falls with every step.
    return search.first(stable, 1)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A setting of Fed-PLT, and its predicted cost.

    Attributes:
        penalty: rho.
        step_size: gamma; None for the accelerated solver.
        local_steps: N_e.
        fewest_local_steps: the boundary: S is stable from this N_e on, at this rho and gamma.
        rounds: number of rounds that suffices for the accuracy.
        time: (N_e t_G + t_C) times the rounds, in the units of the costs.
        convergence: S and its norms.
    """

    penalty: float
    step_size: float | None
    local_steps: int
    fewest_local_steps: int
    rounds: int
    time: float
    convergence: Convergence


def find_parameters(
    *,
    strong_convexity: float,
    smoothness: float,
    gradient_cost: float,
    round_cost: float,
    accuracy: float = 1e-5,
    local_steps: int | None = None,
    penalty: float | None = None,
    solver: Solver | str = Solver.GRADIENT,
) -> Parameters:
    """Return the stable (rho, gamma, N_e) of least predicted computation time.

    The time is (N_e t_G + t_C) times the rounds after which all distances are ``accuracy`` of their
    start; gamma is the fastest for its rho. The search for rho uses a logarithmic grid around 1 /
    sqrt(l L), refined twice around the best value. The search for N_e starts at the boundary of
    stability. It ends when even exact local solutions could not compensate for more steps.

    Args:
        strong_convexity: l, above 0.
        smoothness: L, at least l.
        gradient_cost: t_G, time of one local step, above 0.
        round_cost: t_C, time of one round's communication, at least 0.
        accuracy: wanted ratio of final to initial distances, in (0, 1).
        local_steps: N_e; None to search for it.
        penalty: rho; None to search for it.
        solver: "gradient" or "accelerated".

    Raises:
        ParameterError: a value out of its range; no stable setting with the given ones.
    """
    low, high = _curvatures(strong_convexity, smoothness)
    costs = (positive(gradient_cost=gradient_cost), non_negative(round_cost=round_cost))
    kind = member(Solver, solver=solver)
    wanted = None if local_steps is None else integer(1, local_steps=local_steps)

    def cheapest(penalties: Iterable[float], *known: Parameters) -> Parameters:
        found = (_best_steps(low, high, rho, costs, accuracy, wanted, kind) for rho in penalties)
        settings = [*filter(None, found), *known]
        rule, way_out = "be large enough to make S stable", "leave it out or increase it"
        require(settings, "local_steps", wanted, rule, way_out)
        return min(settings, key=lambda each: each.time)

    if penalty is not None:
        return cheapest([positive(penalty=penalty)])
    centre, width = 1.0 / math.sqrt(low * high), math.log(10.0 * high / low)
    best: tuple[Parameters, ...] = ()
    for _ in range(3):
        grid = centre * np.exp(np.linspace(-width, width, 33))
        # The best setting is kept, because a finer grid may not contain its point.
        best = (cheapest(grid.tolist(), *best),)
        # A little wider than this grid's spacing, so that the finer grids cover all values in
        # between.
        centre, width = best[0].penalty, width / 12.0
    return best[0]


def _best_steps(
    low: float,
    high: float,
    rho: float,
    costs: tuple[float, float],
    accuracy: float,
    wanted: int | None,
    solver: Solver,
) -> Parameters | None:
    """Return the cheapest stable N_e at a penalty, or None if the wanted one is not stable."""
    gradient, communication = costs
    fewest = fewest_local_steps(strong_convexity=low, smoothness=high, penalty=rho, solver=solver)
    step = 2.0 / (low + high + 2.0 / rho) if solver is Solver.GRADIENT else None

    def priced(steps: int) -> Parameters:
        rate = convergence(
            strong_convexity=low, smoothness=high, penalty=rho, local_steps=steps, solver=solver
        )
        rounds = rate.rounds(accuracy)
        return Parameters(
            penalty=rho,
            step_size=step,
            local_steps=steps,
            fewest_local_steps=fewest,
            rounds=rounds,
            time=(steps * gradient + communication) * rounds,
            convergence=rate,
        )

    if wanted is not None:
        return priced(wanted) if wanted >= fewest else None
    zeta = splitting_contraction(strong_convexity=low, smoothness=high, penalty=rho)
    # Exact local solutions would need this many rounds: their rate is zeta.
    floor = max(1.0, math.log(accuracy) / math.log(zeta)) if zeta > 0.0 else 1.0
    best, steps = priced(fewest), fewest
    # With growing increments: a few steps among many hardly change the time.
    while ((steps := steps + max(1, steps // 16)) * gradient + communication) * floor < best.time:
        best = min(best, priced(steps), key=lambda each: each.time)
    return best


@dataclass(frozen=True, kw_only=True)
class ParticipationRate:
    """Proposition 2: E|distance| <= factor (rate^k |start| + (1 - rate^k) / (1 - rate) nu).

    Attributes:
        rate: sigma = sqrt(1 - p_min + p_min |S|^2), below 1.
        factor: sqrt(p_max / p_min).
        assumptions: assumptions of the rate.
    """

    rate: float
    factor: float
    assumptions: tuple[str, ...]

    def error(self, rounds: int, start: float, noise: float = 0.0) -> float:
        """Return the bound on the expected distance after ``rounds``.

        Args:
            rounds: k, at least 0.
            start: distance of the start, at least 0.
            noise: nu, expected norm of a round's additive error, at least 0.
        """
        left = self.rate ** integer(0, rounds=rounds)
        return self.factor * (
            left * non_negative(start=start)
            + (1.0 - left) / (1.0 - self.rate) * non_negative(noise=noise)
        )

    def asymptotic_error(self, noise: float) -> float:
        """Return the bound in the limit of many rounds."""
        return self.factor * non_negative(noise=noise) / (1.0 - self.rate)


def participation_rate(
    of: Convergence, probabilities: Sequence[float] | float = 1.0
) -> ParticipationRate:
    """Return Proposition 2's rate if agent i takes part with probability p_i.

    Conditions: Assumption 2 of the paper, and |S| < 1 in the Euclidean norm. The second condition
    is stronger than stability; the paper's Proposition 1 uses it without stating it.

    Raises:
        ParameterError: a probability outside (0, 1], or |S| of at least 1.
    """
    listed = [probabilities] if isinstance(probabilities, int | float) else list(probabilities)
    require(listed, "probabilities", listed, "name at least one agent")
    p = [probability(probabilities=each) for each in listed]
    way_out = (
        "use more local steps or a larger penalty; a spectral radius below 1 is not sufficient"
    )
    require(of.norm < 1.0, "norm of S", of.norm, "be below 1 for Proposition 2", way_out)
    # The agent with the smallest probability determines the rate.
    low = min(p)
    rate = math.sqrt(1.0 - low + low * of.norm**2)
    return ParticipationRate(
        rate=rate, factor=math.sqrt(max(p) / low), assumptions=(*of.assumptions, ACTIVE)
    )


def local_noise(
    *,
    noise_scale: float,
    step_size: float,
    strong_convexity: float,
    smoothness: float,
    penalty: float,
    local_steps: int,
    coordinates: int,
    as_printed: bool = False,
) -> float:
    """Return a bound on the RMS distance between a noisy and a noiseless local solve.

    Each step adds N(0, 2 gamma tau^2) to each of n N coordinates. The noise of a step is
    independent of all earlier values, so squares add: tau sqrt(2 gamma n N (1 - c^2N_e) / (1 -
    c^2)). The paper adds norms: tau sqrt(2 gamma n N) (1 - c^N_e) / (1 - c), which is larger.

    Args:
        noise_scale: tau, at least 0.
        step_size: gamma, in (0, 2 / (L + 1 / rho)).
        strong_convexity: l of every f_i.
        smoothness: L of every f_i.
        penalty: rho.
        local_steps: N_e.
        coordinates: n N, of all agents' models together.
        as_printed: the paper's bound.

    Raises:
        ParameterError: a value out of its range.
    """
    low, high = _curvatures(strong_convexity, smoothness)
    inverse, times = 1.0 / positive(penalty=penalty), integer(1, local_steps=local_steps)
    c = 1.0 - contraction_gap(step_size, low + inverse, high + inverse)
    step = non_negative(noise_scale=noise_scale) * math.sqrt(
        2.0 * step_size * integer(1, coordinates=coordinates)
    )
    if as_printed:
        return step * (1.0 - c**times) / (1.0 - c)
    return step * math.sqrt((1.0 - c ** (2 * times)) / (1.0 - c * c))


def asymptotic_error(of: Convergence, noise: float) -> float:
    """Return a bound on the RMS distance of (x, z) to the fixed point in the limit, all active.

    This is Corollary 1 with squares instead of norms. A round adds an error of root mean square at
    most ``noise`` to x and at most twice that to z. So in the limit the two distances are at most
    (I - S)^-1 (1, 2) ``noise``. It only needs S to be stable. ``participation_rate`` with sqrt(5)
    ``noise`` is the paper's form, which also covers random participation.

    Args:
        of: the noiseless round.
        noise: result of ``local_noise``.

    Raises:
        ParameterError: S is not stable.
    """
    of._check_stable()
    both = np.linalg.solve(np.eye(2) - of.array, np.array([1.0, 2.0]))
    return float(np.linalg.norm(both)) * non_negative(noise=noise)


def _radius(a: float, b: float, c: float, d: float) -> float:
    """Return the larger eigenvalue of ((a, b), (c, d)), entries at least 0."""
    # The root is real, because entries are at least 0.
    return 0.5 * (a + d + math.sqrt((a - d) ** 2 + 4.0 * b * c))


def _curvatures(strong_convexity: float, smoothness: float) -> tuple[float, float]:
    low = positive(
        "Fed-PLT is analysed for strongly convex losses", strong_convexity=strong_convexity
    )
    high = positive(smoothness=smoothness)
    require(low <= high, "strong_convexity", low, f"be at most smoothness = {high:g}")
    return low, high
