"""FA-LD (Deng et al.): exact on Gaussian targets, its convergence theorems, its privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import integer, non_negative, positive, probability, refuse
from . import gaussian
from .gaussian import Array, Normal, as_vectors, transposed
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
    "DecayingSteps",
    "GaussianTarget",
    "LangevinChain",
    "LangevinProblem",
    "batch_noise",
    "constant_step_bound",
    "decaying_step_bound",
    "final_gdp",
    "iterations_needed",
    "optimal_local_steps",
    "partial_participation_bound",
    "rounds_to_accuracy",
    "transcript_gdp",
    "upload_gdp",
    "w2_curve",
]


@dataclass(frozen=True, kw_only=True)
class DecayingSteps:
    """Step sizes eta_k = 1 / (2 L + m k / 12) of Theorem 5.8, k = 0, 1, 2, ...

    Args:
        strong_convexity: m, above 0.
        smoothness: L, at least m.
    """

    strong_convexity: float
    smoothness: float

    def __post_init__(self) -> None:
        positive(strong_convexity=self.strong_convexity)
        if positive(smoothness=self.smoothness) < self.strong_convexity:
            refuse("smoothness", self.smoothness, f"be at least {self.strong_convexity:g}")

    def at(self, first: int, count: int) -> Array:
        """Return eta_first, ..., shape (count,)."""
        index = np.arange(first, first + count, dtype=np.float64)
        return np.asarray(1.0 / (2.0 * self.smoothness + self.strong_convexity * index / 12.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class LangevinChain(Chain):
    """FA-LD (Algorithm 1) on a Gaussian target: every law by its moments, any K, rho and p_c.

    A client's local step is x - eta (H_c (x - b_c) + z) + sqrt(2 eta tau) (rho shared
    + sqrt((1 - rho^2) / p_c) own), z the gradient's noise.

    Args:
        step_size: eta, above 0, or ``DecayingSteps``.
        local_steps: K.
        correlation: rho in [0, 1].
        heat: temperature tau, above 0.
        gradient_covariance: of z, shape (N, d, d); None for exact gradients. Laws stay Gaussian
            only if z is; for batches see ``batch_noise``.
        target: see ``Chain``.
        averaging: see ``Chain``.
        cohort: see ``Chain``.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float | DecayingSteps
    local_steps: int = 1
    correlation: float = 0.0
    heat: float = 1.0
    gradient_covariance: Array | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.step_size, DecayingSteps):
            object.__setattr__(self, "step_size", positive(step_size=self.step_size))
        object.__setattr__(self, "local_steps", integer(1, local_steps=self.local_steps))
        object.__setattr__(self, "heat", positive(heat=self.heat))
        if non_negative(correlation=self.correlation) > 1.0:
            refuse("correlation", self.correlation, "be in [0, 1]")
        if self.gradient_covariance is None:
            return
        batch = Normal(mean=self.target.centres, covariance=self.gradient_covariance)
        object.__setattr__(self, "gradient_covariance", batch.covariance)

    @property
    def temperature(self) -> float:
        """Temperature tau."""
        return self.heat

    @property
    def homogeneous(self) -> bool:
        """Whether the step size is constant."""
        return not isinstance(self.step_size, DecayingSteps)

    def local_round(self, index: int) -> LocalRound:
        """Return the K local steps of round ``index`` as one map: closed form for one step size."""
        values = self.target.spectra[0]
        if isinstance(self.step_size, DecayingSteps):
            steps = self.step_size.at(index * self.local_steps, self.local_steps)
            left, noise, squares = _products(values, steps)
        else:
            left, noise, squares = _powers(values, self.step_size, self.local_steps)
        shared = 2.0 * self.heat * self.correlation**2
        private = 2.0 * self.heat * (1.0 - self.correlation) * (1.0 + self.correlation)
        return LocalRound(
            target=self.target,
            contraction=left,
            common=shared * noise,
            own=private * np.einsum("ggii->gi", noise),
            gradient=self._gradient(squares),
        )

    def _gradient(self, squares: Array) -> Array | None:
        """Return what gradient noise adds up to at each client, shape (N, d, d)."""
        if self.gradient_covariance is None:
            return None
        kinds = self.target.kinds[1]
        vectors = self.target.spectra[1][kinds]
        turned = transposed(vectors) @ self.gradient_covariance @ vectors
        weights = np.einsum("ggik->gik", squares)[kinds]
        return np.asarray(vectors @ (weights * turned) @ transposed(vectors))


def _powers(values: Array, step: float, count: int) -> tuple[Array, Array, Array]:
    """Return (1 - eta l)^K, and sum_j eta (...)^j, sum_j eta^2 (...)^j of products of two factors.

    Shapes (G, d), (G, G, d, d) twice. The geometric sums are (1 - z^K) / (1 - z) with z the product
    of the factors; 1 - z is formed without cancellation.
    """
    factor = 1.0 - step * values
    one, two = values[:, None, :, None], values[None, :, None, :]
    gap = step * (one + two) - (step * one) * (step * two)
    product = (1.0 - step * one) * (1.0 - step * two)
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = -np.expm1(count * np.log1p(-np.minimum(gap, 1.0))) / gap
        turning = (1.0 - product**count) / gap
    sums = np.where(gap == 0.0, float(count), np.where(gap < 1.0, rising, turning))
    return np.asarray(factor**count), step * sums, step**2 * sums


def _products(values: Array, steps: Array) -> tuple[Array, Array, Array]:
    """Return what ``_powers`` does for K different steps, by their products."""
    factors = 1.0 - steps[:, None, None] * values
    after = np.ones((len(steps) + 1, *values.shape))
    after[:-1] = np.cumprod(factors[::-1], axis=0)[::-1]
    tail = after[1:]
    noise = np.einsum("j,jgi,jhk->ghik", steps, tail, tail, optimize=True)
    squares = np.einsum("j,jgi,jhk->ghik", steps**2, tail, tail, optimize=True)
    return np.asarray(after[0]), np.asarray(noise), np.asarray(squares)


def batch_noise(gradients: Array, batch: int, weight: float) -> Array:
    """Return the covariance of a batch's gradient of f^c, shape (d, d).

    ``batch`` of n records are drawn without replacement; the estimate is the batch's sum times
    n / (batch weight). Valid at every parameter where the records' gradients differ by constants
    (quadratic losses with one curvature). The estimate is not Gaussian, so laws that use this
    covariance have exact moments and W2 is bounded from below.

    Args:
        gradients: of the records' losses at any one parameter, shape (n, d).
        batch: records in a batch, from 1 to n.
        weight: p_c.
    """
    records = as_vectors(gradients=gradients)
    count, drawn = len(records), integer(1, batch=batch)
    if drawn > count:
        refuse("batch", drawn, f"be at most the number of records = {count}")
    if drawn == count:
        return np.zeros((records.shape[1],) * 2)
    apart = records - records.mean(axis=0)
    spread = apart.T @ apart / (count - 1)
    scale = count * (count - drawn) / drawn / probability(weight=weight) ** 2
    return np.asarray(scale * spread)


def _privately(chain: LangevinChain, client: int) -> tuple[Array, Array]:
    """Return a client's eigenvalues and eigenvectors, of exact gradients only."""
    if chain.gradient_covariance is not None:
        refuse("gradient_covariance", "given", "be None", "batches are no Gaussian: account them")
    if not 0 <= client < chain.target.clients:
        refuse("client", client, f"be from 0 to {chain.target.clients - 1}")
    kind = chain.target.kinds[1][client]
    return chain.target.spectra[0][kind], chain.target.spectra[1][kind]


def _shift_and_noise(chain: LangevinChain, client: int, index: int) -> tuple[Array, Array]:
    """Return by eigenvalue how far a unit of gradient moves the upload, and its own variance."""
    values, _ = _privately(chain, client)
    local, kind = chain.local_round(index), chain.target.kinds[1][client]
    moved = (1.0 - local.contraction[kind]) / values / chain.target.shares[client]
    return moved, local.own[kind] / chain.target.shares[client]


def upload_gdp(
    chain: LangevinChain, *, client: int, difference: float | Array, index: int = 0
) -> float:
    """Return mu of one upload when a record's replacement moves its gradient by a constant.

    Quadratic losses: whatever the parameters, the sum of the client's gradients moves by
    ``difference``. The observer knows the round's start and the shared noise; the upload is then
    Gaussian with the same covariance under both data sets, so mu is exact. For a constant step
    it is T6's number with c = 1 - eta x curvature.

    Args:
        chain: with exact gradients; its averaging plays no part.
        client: whose upload.
        difference: of the two records' gradients, shape (d,), or its norm: then the direction
            that shows most is taken.
        index: the round, which matters for decaying steps.

    Returns:
        mu; infinity at correlation 1.
    """
    moved, noise = _shift_and_noise(chain, client, index)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(moved == 0.0, 0.0, np.abs(moved) / np.sqrt(noise))
    if np.ndim(difference) == 0:
        return float(non_negative(difference=difference) * np.max(each))
    along = np.abs(_privately(chain, client)[1].T @ as_vectors(difference=difference))
    seen = along > 0.0
    return float(np.linalg.norm(each[seen] * along[seen])) if seen.any() else 0.0


def transcript_gdp(
    chain: LangevinChain, *, client: int, difference: float | Array, rounds: int
) -> float:
    """Return mu of a client's ``rounds`` uploads together; arguments as in ``upload_gdp``.

    Given everything before it an upload moves by the same vector in both data sets' chains, so
    the log-likelihood ratio of the transcript is a sum of Gaussians: mu^2 adds up, exactly. With
    visible participation see ``gaussian.visited_delta``.
    """
    count = integer(1, rounds=rounds)
    if chain.homogeneous:
        return math.sqrt(count) * upload_gdp(chain, client=client, difference=difference)
    if np.ndim(difference) == 0:
        squares = np.zeros(chain.target.dimension)
        for index in range(count):
            moved, noise = _shift_and_noise(chain, client, index)
            squares += moved**2 / noise if np.all(noise > 0.0) else math.inf
        return float(non_negative(difference=difference) * math.sqrt(np.max(squares)))
    each = [
        upload_gdp(chain, client=client, difference=difference, index=index)
        for index in range(count)
    ]
    return math.hypot(*each)


def final_gdp(
    chain: LangevinChain, start: Normal, *, client: int, difference: Array, rounds: int
) -> float:
    """Return mu of the last global iterate alone, for the pair that ``difference`` describes.

    Exact for this pair of quadratic data sets, so a lower bound of the mechanism's loss. All
    noise counts: this observer knows none of it. Full participation and exact gradients.

    Args:
        chain: homogeneous, with full averaging.
        start: law of the first iterate, the same for both data sets.
        client: who holds the record.
        difference: of the two records' gradients, shape (d,).
        rounds: number of rounds.
    """
    values, vectors = _privately(chain, client)
    if not (chain.homogeneous and chain.averaging is Averaging.FULL):
        refuse("chain", chain.averaging, "be homogeneous with full averaging")
    local, kind = chain.local_round(0), chain.target.kinds[1][client]
    moved = in_basis(vectors, (1.0 - local.contraction[kind]) / values)
    average = local.average
    shift = gaussian.AffineMap(
        matrix=average.matrix,
        offset=-moved @ as_vectors(difference=difference),
        noise=average.noise,
    ).power(rounds)
    return gaussian.gdp(shift.offset, chain.law(start, rounds).covariance)


_ASSUMED = (
    "every f^c is m-strongly convex and L-smooth (5.1, 5.2)",
    "stochastic gradients are unbiased with variance at most sigma^2 d (5.3)",
    "|theta_0 - theta_*|^2 <= d D^2",
)


@dataclass(frozen=True, kw_only=True)
class LangevinProblem:
    """What FA-LD's theorems ask of a problem.

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
        if non_negative(correlation=correlation) > 1.0:
            refuse("correlation", correlation, "be in [0, 1]")
        shared = correlation**2
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
        iterations: k, local steps in all.
        correlation: rho.

    Raises:
        ParameterError: a step size above the theorem's range.
    """
    checked = problem._step(step_size)
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

    45 kappa sqrt(((K-1)^2 + kappa) H_0 eta_k m d). Its proof bounds the clients' divergence with
    eta at the last averaging at most 2 eta_k, which for these steps means K - 1 <= 24 kappa; the
    statement leaves that out, here it is checked.

    Raises:
        ParameterError: more local steps than the proof covers.
    """
    most = 24.0 * problem.condition_number
    if integer(1, local_steps=local_steps) - 1 > most:
        refuse("local_steps", local_steps, f"be at most 24 kappa + 1 = {most + 1:g}")
    steps = DecayingSteps(strong_convexity=problem.strong_convexity, smoothness=problem.smoothness)
    last = float(steps.at(integer(0, iterations=iterations), 1)[0])
    return Statement(
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

    Theorem 5.9's two terms and 2 sqrt(C_K d tau / (S m) (rho^2 + N (1 - rho^2)) C_S), where
    C_K = eta m K / (1 - exp(-eta m K / 2)) and C_S is 1 for scheme I, (N - S) / (N - 1) for II.

    Args:
        problem: constants of the target.
        step_size: eta, at most 1 / (2 L).
        local_steps: K.
        iterations: k, local steps in all.
        cohort: S.
        averaging: "I" or "II"; scheme II asks for equal weights.
        correlation: rho.

    Raises:
        ParameterError: a step size above the range, a cohort larger than N under scheme II, or
            full averaging.
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
        if drawn > clients:
            refuse("cohort", drawn, f"be at most the number of clients = {clients}")
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
    """Return a step size and the local steps after which Theorem 5.9 promises the accuracy.

    Section 5.3.1: the step size makes the bias half of ``accuracy`` (or is 1 / (2 L)), and the
    iterations make the transient the other half.

    Returns:
        (step size, Statement whose value is the number of local steps, a whole number).
    """
    half = positive(accuracy=accuracy) / 2.0
    m, unit = problem.strong_convexity, problem._bias(1.0, local_steps, correlation)
    step = min((half / unit) ** 2, 1.0 / (2.0 * problem.smoothness))
    decay = -math.log1p(-step * m / 4.0)
    steps = max(0, math.ceil(math.log(max(problem._start / half, 1.0)) / decay))
    return step, Statement(
        value=float(steps),
        theorem="FA-LD Theorem 5.9, solved for the accuracy (section 5.3.1)",
        checked=(problem._step(step),),
        assumed=_ASSUMED,
    )


def optimal_local_steps(problem: LangevinProblem) -> Statement:
    """Return the K that makes Theorem 5.9's number of rounds smallest, of the order sqrt(kappa).

    At the step size of ``iterations_needed`` the bound's rounds are proportional to
    ((K - 1)^2 + kappa) / K, smallest at sqrt(1 + kappa); the better neighbour is returned. It is
    what minimises the *bound*: the chain itself may do better with more, see ``w2_curve``.
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
