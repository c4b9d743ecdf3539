"""Exact Gaussian laws: distances, affine maps, mixtures, and the privacy loss between two laws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ..errors import integer, non_negative, open_unit, refuse

Array = NDArray[np.float64]

_ROUNDING = 1e-9
"""Relative size of a negative eigenvalue, or of an asymmetry, that rounding may leave."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Normal:
    """A Gaussian law, or a batch of laws.

    Args:
        mean: shape (..., d).
        covariance: shape (..., d, d), symmetric and positive semidefinite.

    Raises:
        ParameterError: shapes that do not match, entries that are not finite (an iteration that
            diverged), or a matrix that is not a covariance.
    """

    mean: Array
    covariance: Array

    def __post_init__(self) -> None:
        mean, covariance = as_vectors(mean=self.mean), np.asarray(self.covariance, np.float64)
        size = mean.shape[-1]
        if covariance.shape != (*mean.shape, size):
            refuse("covariance", covariance.shape, f"have shape {(*mean.shape, size)}")
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            refuse(
                "mean, covariance", "an entry that is not finite", "be finite", "use smaller steps"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", _semidefinite(covariance))

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return int(self.mean.shape[-1])


def point(mean: object) -> Normal:
    """Return the law of a known vector, shape (d,): covariance 0."""
    at = as_vectors(mean=mean)
    return Normal(mean=at, covariance=np.zeros((*at.shape, at.shape[-1])))


def as_vectors(**named: object) -> Array:
    """Return the named value as an array of floats with at least one axis."""
    ((name, value),) = named.items()
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        refuse(name, value, "be an array of numbers")
    if array.ndim == 0 or array.shape[-1] == 0:
        refuse(name, value, "have at least one entry along its last axis")
    return array


def transposed(matrices: Array) -> Array:
    """Swap the last two axes."""
    return np.swapaxes(matrices, -1, -2)


def _semidefinite(covariance: Array) -> Array:
    scale = np.max(np.abs(covariance), axis=(-2, -1), initial=0.0)
    skew = np.max(np.abs(covariance - transposed(covariance)), axis=(-2, -1), initial=0.0)
    if np.any(skew > _ROUNDING * scale):
        refuse("covariance", float(np.max(skew)), "be symmetric")
    # The remaining asymmetry is rounding, and the eigenvalues need a symmetric matrix.
    even = (covariance + transposed(covariance)) / 2.0
    if np.any(np.linalg.eigvalsh(even)[..., 0] < -_ROUNDING * scale):
        refuse("covariance", covariance, "be positive semidefinite")
    return np.asarray(even)


def root(covariance: Array) -> Array:
    """Return the symmetric square root; eigenvalues below 0 by rounding count as 0."""
    values, vectors = np.linalg.eigh(covariance)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return np.asarray(scaled @ transposed(vectors))


def bures(first: Array, second: Array) -> Array:
    """Return the W2 distance of two centred Gaussians, shape (...), from their covariances.

    It is min over orthogonal U of |A^(1/2) - B^(1/2) U| in the Frobenius norm (Bhatia, Jain and Lim
    2019), where U is the polar factor of B^(1/2) A^(1/2). With this formula the rounding error of
    the distance is that of the roots. The usual formula has the square root of that error.
    """
    a, b = np.broadcast_arrays(root(first), root(second))
    left, _, right = np.linalg.svd(b @ a)
    # The polar factor is the product of both bases; the singular values drop out.
    return np.asarray(np.linalg.norm(a - b @ (left @ right), axis=(-2, -1)))


def w2(first: Normal, second: Normal) -> Array:
    """Return the 2-Wasserstein distance of Gaussian laws, shape (...) of the batch.

    For laws that are not Gaussian the same formula of their first two moments is a lower bound
    (Gelbrich 1990).
    """
    apart = np.linalg.norm(first.mean - second.mean, axis=-1)
    return np.asarray(np.hypot(apart, bures(first.covariance, second.covariance)))


@dataclass(frozen=True, kw_only=True, eq=False)
class AffineMap:
    """x -> matrix x + offset + N(0, noise), the noise independent of x.

    Args:
        matrix: shape (d, d).
        offset: shape (d,).
        noise: covariance, shape (d, d).
    """

    matrix: Array
    offset: Array
    noise: Array

    def apply(self, law: Normal) -> Normal:
        """Return the law of the image."""
        return Normal(
            mean=law.mean @ self.matrix.T + self.offset,
            covariance=self.matrix @ law.covariance @ self.matrix.T + self.noise,
        )

    def then(self, following: AffineMap) -> AffineMap:
        """Return this map followed by another, whose noise is independent of this map's noise."""
        after = following.matrix
        return AffineMap(
            matrix=after @ self.matrix,
            offset=after @ self.offset + following.offset,
            noise=after @ self.noise @ after.T + following.noise,
        )

    def power(self, count: int) -> AffineMap:
        """Return ``count`` applications as one map, by repeated squaring; exact."""
        left = integer(0, count=count)
        size = len(self.offset)
        result = AffineMap(matrix=np.eye(size), offset=np.zeros(size), noise=np.zeros((size, size)))
        square = self
        while left:
            result = result.then(square) if left & 1 else result
            # The last square is not used, and may overflow.
            square = square.then(square) if left > 1 else square
            left >>= 1
        return result

    def stationary(self) -> Normal:
        """Return the law that the map leaves unchanged.

        Raises:
            ParameterError: the map has an eigenvalue of absolute value 1 or more.
        """
        # Few programs need this, and the import is slow.
        from scipy.linalg import solve_discrete_lyapunov

        radius = float(np.max(np.abs(np.linalg.eigvals(self.matrix))))
        # Otherwise the noise would accumulate without bound.
        if radius >= 1.0:
            refuse("step", radius, "have a spectral radius below 1", "take smaller steps")
        covariance = solve_discrete_lyapunov(self.matrix, self.noise)
        mean = np.linalg.solve(np.eye(len(self.offset)) - self.matrix, self.offset)
        # The solver's rounding leaves a small asymmetry.
        return Normal(
            mean=np.asarray(mean, np.float64), covariance=(covariance + covariance.T) / 2.0
        )


def gdp(difference: object, covariance: object) -> float:
    """Return mu of two Gaussian laws with one covariance: N(0, S) against N(difference, S).

    mu = sqrt(difference' S^-1 difference); every divergence of the two laws is that of N(mu, 1) and
    N(0, 1). It is infinite if the difference is not in the range of S.

    Args:
        difference: difference of the means, shape (d,).
        covariance: shape (d, d).
    """
    law = Normal(mean=as_vectors(difference=difference), covariance=np.asarray(covariance))
    values, vectors = np.linalg.eigh(law.covariance)
    along = vectors.T @ law.mean
    tiny = len(values) * np.finfo(np.float64).eps
    # Eigenvalues of the size of rounding errors are directions without noise.
    silent = values <= tiny * max(float(values[-1]), 0.0)
    # A difference in a noiseless direction is detected with certainty.
    if np.any(np.abs(along[silent]) > 16.0 * tiny * np.linalg.norm(along)):
        return math.inf
    return float(np.sqrt(np.sum(along[~silent] ** 2 / values[~silent])))


def shown(moved: Array, variances: Array, vectors: Array, difference: float | Array) -> float:
    """Return mu of an upload in a basis where its noise is independent by coordinate.

    Args:
        moved: shift of each coordinate by a unit of gradient.
        variances: variances of the noise in each coordinate.
        vectors: the basis, shape (d, d).
        difference: difference of two gradients, shape (d,), or its norm: then the direction with
            the largest mu is used.
    """
    # 0 / 0 if neither data nor noise move a coordinate, which then gives no information.
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(moved == 0.0, 0.0, np.abs(moved) / np.sqrt(variances))
    if np.ndim(difference) == 0:
        return float(non_negative(difference=difference) * np.max(each))
    along = np.abs(vectors.T @ as_vectors(difference=difference))
    # Directions that the difference does not have: infinity times 0 would be NaN.
    seen = along > 0.0
    return float(np.linalg.norm(each[seen] * along[seen])) if seen.any() else 0.0


def delta(mu: float, epsilon: float) -> float:
    """Return the delta of N(mu, 1) against N(0, 1) at an epsilon, a closed form.

    Args:
        mu: at least 0; infinity gives 1.
        epsilon: at least 0.
    """
    at = non_negative(epsilon=epsilon)
    if mu == 0.0:
        return 0.0
    if mu == math.inf:
        return 1.0
    above = float(log_ndtr(mu / 2.0 - at / mu))
    below = at + float(log_ndtr(-mu / 2.0 - at / mu))
    # exp(above) - exp(below), without cancellation if they are close.
    return 0.0 if below >= above else -math.exp(above) * math.expm1(below - above)


def epsilon(mu: float, delta_at: float) -> float:
    """Return the epsilon at which N(mu, 1) against N(0, 1) has the delta ``delta_at``.

    Bisection to the last bit; the upper end is returned. It is 0 for a mu of 0.
    """
    wanted = open_unit(delta_at=delta_at)
    if mu == math.inf:
        return math.inf
    low, high = 0.0, 1.0
    if delta(mu, low) <= wanted:
        return 0.0
    # Delta is decreasing, so doubling finds an upper end.
    while delta(mu, high) > wanted:
        low, high = high, 2.0 * high
    # Until no double lies between the two.
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if delta(mu, middle) > wanted else (low, middle)
    return high
