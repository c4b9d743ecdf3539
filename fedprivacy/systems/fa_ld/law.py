"""FA-LD (Deng et al.): exact laws on Gaussian targets, its convergence theorems, its privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import (
    integer,
    natural,
    non_negative,
    positive,
    probability,
    refuse,
    require,
    validate_fields,
)
from ...theory import gaussian
from ...theory.gaussian import Array, Normal, as_vectors, transposed
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
    "DecayingSteps",
    "GaussianTarget",
    "LangevinChain",
    "batch_noise",
    "final_gdp",
    "rounds_to_accuracy",
    "transcript_gdp",
    "upload_gdp",
    "w2_curve",
]


@dataclass(frozen=True, kw_only=True)
class DecayingSteps(StepSizes):
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

    def sizes(self, first: int, count: int) -> tuple[float, ...]:
        """See ``StepSizes``."""
        return tuple(self.at(first, count).tolist())

    def at(self, first: int, count: int) -> Array:
        """Return eta_first, ..., shape (count,)."""
        index = np.arange(first, first + count, dtype=np.float64)
        return np.asarray(1.0 / (2.0 * self.smoothness + self.strong_convexity * index / 12.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class LangevinChain(Chain):
    """FA-LD (Algorithm 1) on a Gaussian target: every law by its moments, any K, rho and p_c.

    A client's local step is x - eta (H_c (x - b_c) + z) + sqrt(2 eta tau) (rho shared + sqrt((1 -
    rho^2) / p_c) own), where z is the gradient's noise.

    Args:
        step_size: eta, above 0, or ``DecayingSteps``.
        local_steps: K.
        correlation: rho in [0, 1].
        temperature: tau, above 0.
        gradient_covariance: covariance of z, shape (N, d, d); None for exact gradients. Laws are
            Gaussian only if z is; for batches see ``batch_noise``.
        target: see ``Chain``.
        averaging: see ``Chain``.
        cohort: see ``Chain``.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float | DecayingSteps
    local_steps: int = 1
    temperature: float = 1.0
    gradient_covariance: Array | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.step_size, DecayingSteps):
            object.__setattr__(self, "step_size", positive(step_size=self.step_size))
        validate_fields(self, natural, "local_steps")
        validate_fields(self, positive, "temperature")
        if self.gradient_covariance is None:
            return
        batch = Normal(mean=self.target.centres, covariance=self.gradient_covariance)
        object.__setattr__(self, "gradient_covariance", batch.covariance)

    @property
    def steps_a_round(self) -> int:
        """K local steps."""
        return self.local_steps

    def local_round(self, index: int) -> LocalRound:
        """Return the K local steps of round ``index`` as one map: closed form for one step size."""
        values = self.target.spectra[0]
        if isinstance(self.step_size, DecayingSteps):
            left, noise, squares = _products(values, np.array(self.steps_of(index)))
        else:
            left, noise, squares = _powers(values, self.step_size, self.local_steps)
        shared = 2.0 * self.temperature * self.correlation**2
        # Not 1 - rho^2, which loses digits near 1.
        private = 2.0 * self.temperature * (1.0 - self.correlation) * (1.0 + self.correlation)
        return LocalRound(
            target=self.target,
            contraction=left,
            common=shared * noise,
            own=private * np.einsum("ggii->gi", noise),
            gradient=self._gradient(squares),
        )

    def _gradient(self, squares: Array) -> Array | None:
        """Return the accumulated gradient noise of each client, shape (N, d, d)."""
        if self.gradient_covariance is None:
            return None
        kinds = self.target.kinds[1]
        vectors = self.target.spectra[1][kinds]
        turned = transposed(vectors) @ self.gradient_covariance @ vectors
        weights = np.einsum("ggik->gik", squares)[kinds]
        return np.asarray(vectors @ (weights * turned) @ transposed(vectors))


def _powers(values: Array, step: float, count: int) -> tuple[Array, Array, Array]:
    """Return (1 - eta l)^K, and sum_j eta (...)^j, sum_j eta^2 (...)^j of products of two factors.

    Shapes are (G, d), and (G, G, d, d) twice. The geometric sums are (1 - z^K) / (1 - z) with z the
    product of the factors; 1 - z is formed without cancellation.
    """
    factor = 1.0 - step * values
    one, two = values[:, None, :, None], values[None, :, None, :]
    gap = step * (one + two) - (step * one) * (step * two)
    product = (1.0 - step * one) * (1.0 - step * two)
    # Both forms are computed everywhere; the unsuitable one is dropped, with its warnings.
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = -np.expm1(count * np.log1p(-np.minimum(gap, 1.0))) / gap
        turning = (1.0 - product**count) / gap
    # If the product is 1, the sum is the number of its terms.
    sums = np.where(gap == 0.0, float(count), np.where(gap < 1.0, rising, turning))
    return np.asarray(factor**count), step * sums, step**2 * sums


def _products(values: Array, steps: Array) -> tuple[Array, Array, Array]:
    """Return the values of ``_powers`` for K different steps, by their products."""
    factors = 1.0 - steps[:, None, None] * values
    # A step's noise is multiplied by the factors of all later steps.
    after = np.ones((len(steps) + 1, *values.shape))
    after[:-1] = np.cumprod(factors[::-1], axis=0)[::-1]
    tail = after[1:]
    noise = np.einsum("j,jgi,jhk->ghik", steps, tail, tail, optimize=True)
    squares = np.einsum("j,jgi,jhk->ghik", steps**2, tail, tail, optimize=True)
    return np.asarray(after[0]), np.asarray(noise), np.asarray(squares)


def batch_noise(gradients: Array, batch: int, weight: float) -> Array:
    """Return the covariance of a batch's gradient of f^c, shape (d, d).

    ``batch`` of n records are drawn without replacement. The estimate is the batch's sum times n /
    (batch weight). The covariance is valid at every parameter if the records' gradients differ by
    constants (quadratic losses with one curvature). The estimate is not Gaussian. Laws with this
    covariance have exact moments, and their W2 is a lower bound.

    Args:
        gradients: gradients of the records' losses at any one parameter, shape (n, d).
        batch: records in a batch, from 1 to n.
        weight: p_c.
    """
    records = as_vectors(gradients=gradients)
    count, drawn = len(records), integer(1, batch=batch)
    require(drawn <= count, "batch", drawn, f"be at most the number of records = {count}")
    if drawn == count:
        return np.zeros((records.shape[1],) * 2)
    apart = records - records.mean(axis=0)
    spread = apart.T @ apart / (count - 1)
    scale = count * (count - drawn) / drawn / probability(weight=weight) ** 2
    return np.asarray(scale * spread)


def _privately(chain: LangevinChain, client: int) -> tuple[Array, Array]:
    """Return a client's eigenvalues and eigenvectors; refuse gradients with noise."""
    if chain.gradient_covariance is not None:
        refuse(
            "gradient_covariance",
            "given",
            "be None",
            "random batches are not Gaussian; account them",
        )
    return chain.target.spectrum(client)


def _shift_and_noise(chain: LangevinChain, client: int, index: int) -> tuple[Array, Array]:
    """Return, by eigenvalue, the shift of the upload per unit of gradient, and its own variance."""
    values, _ = _privately(chain, client)
    local, kind = chain.local_round(index), chain.target.kinds[1][client]
    moved = (1.0 - local.contraction[kind]) / values / chain.target.shares[client]
    return moved, local.own[kind] / chain.target.shares[client]


def upload_gdp(
    chain: LangevinChain, *, client: int, difference: float | Array, index: int = 0
) -> float:
    """Return mu of one upload if replacing a record changes the gradient by a constant.

    For quadratic losses the sum of the client's gradients changes by ``difference`` at every
    parameter. The observer knows the round's start and the shared noise. The upload is then
    Gaussian with the same covariance under both data sets, so mu is exact. For a constant step it
    equals T6's value with c = 1 - eta x curvature.

    Args:
        chain: a chain with exact gradients; its averaging has no effect.
        client: client of the upload.
        difference: difference of the two records' gradients, shape (d,), or its norm: then the
            direction with the largest mu is used.
        index: the round, which matters for decaying steps.

    Returns:
        mu; infinity at correlation 1.
    """
    moved, noise = _shift_and_noise(chain, client, index)
    return gaussian.shown(moved, noise, _privately(chain, client)[1], difference)


def transcript_gdp(
    chain: LangevinChain, *, client: int, difference: float | Array, rounds: int
) -> float:
    """Return mu of a client's ``rounds`` uploads together; arguments as in ``upload_gdp``.

    Given all earlier uploads, an upload shifts by the same vector between both data sets' chains.
    So the log-likelihood ratio of the transcript is a sum of Gaussians, and mu^2 adds up, exactly.
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
    """Return mu of only the last global iterate, for the pair given by ``difference``.

    It is exact for this pair of quadratic data sets, so it is a lower bound of the mechanism's
    loss. All noise counts, because this observer knows none of the noise. It needs full
    participation and exact gradients.

    Args:
        chain: homogeneous, with full averaging.
        start: law of the first iterate, the same for both data sets.
        client: client that holds the record.
        difference: difference of the two records' gradients, shape (d,).
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
