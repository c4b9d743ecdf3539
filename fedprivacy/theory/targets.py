"""Gaussian targets split over clients, and one round of any chain that is linear on them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, wraps
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import closed_unit, integer, natural, positive, refuse, require, validate_fields
from ..rounding import THOUSANDS
from . import search
from .gaussian import AffineMap, Array, Normal, as_vectors, root, transposed, w2

T = TypeVar("T")


def once_if_equal(of_round: Callable[[Any, int], T]) -> Callable[[Any, int], T]:
    """Compute a property of a round only once if all rounds of the chain are equal."""
    name = f"{of_round.__name__} of every round"

    @wraps(of_round)
    def found(self: Any, index: int) -> T:
        if not self.homogeneous:
            return of_round(self, index)
        known: dict[str, T] = vars(self)
        if name not in known:
            known[name] = of_round(self, 0)
        return known[name]

    return found


class Averaging(StrEnum):
    """Computation of the next global iterate from the clients' iterates."""

    FULL = "full"
    """The weighted mean over all clients."""
    I = "I"  # noqa: E741
    """The mean over draws with replacement, client c with probability p_c.

    A client that is drawn twice counts its one run twice.
    """
    II = "II"
    """The plain mean over a cohort drawn uniformly without replacement; weights are equal."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianTarget:
    """f = sum_c p_c f^c with f^c(x) = (x - b_c)' H_c (x - b_c) / 2; density exp(-f / temperature).

    Args:
        hessians: H_c, shape (N, d, d), symmetric and positive definite.
        centres: b_c, shape (N, d).
        weights: p_c, shape (N,), above 0, sum to 1; equal if None.

    Raises:
        ParameterError: shapes that do not match, weights that do not sum to 1, or a Hessian that is
            not symmetric and positive definite.
    """

    hessians: Array
    centres: Array
    weights: Array | None = None

    def __post_init__(self) -> None:
        centres = as_vectors(centres=self.centres)
        require(centres.ndim == 2, "centres", centres.shape, "have shape (N, d)")
        clients, size = centres.shape
        hessians = np.asarray(self.hessians, np.float64)
        if hessians.shape != (clients, size, size):
            refuse("hessians", hessians.shape, f"have shape {(clients, size, size)}")
        object.__setattr__(self, "centres", centres)
        object.__setattr__(self, "hessians", hessians)
        object.__setattr__(self, "weights", self._shares(clients))
        if not np.allclose(hessians, transposed(hessians), rtol=THOUSANDS, atol=0.0):
            refuse("hessians", "a matrix that is not symmetric", "be symmetric")
        if not self.strong_convexity > 0.0:
            refuse("eigenvalues of the hessians", self.strong_convexity, "be above 0")

    def _shares(self, clients: int) -> Array:
        if self.weights is None:
            return np.full(clients, 1.0 / clients)
        shares = as_vectors(weights=self.weights)
        if shares.shape != (clients,) or not np.all(shares > 0.0):
            refuse("weights", shares, f"be {clients} numbers above 0")
        if not math.isclose(math.fsum(shares), 1.0, rel_tol=1e-9):
            refuse("weights", math.fsum(shares), "sum to 1", "divide them by their sum")
        return shares

    @classmethod
    def of_records(cls, records: Sequence[Array], covariance: Array) -> GaussianTarget:
        """Return the posterior of a mean whose clients hold ``records`` of known covariance.

        The loss of a record x is (theta - x)' S^-1 (theta - x) / 2. Client c's function is its sum
        over the client's records divided by p_c = n_c / n. With a flat prior the posterior is
        N(mean of all records, S / n) at temperature 1.

        Args:
            records: for each client an array of shape (n_c, d).
            covariance: S, shape (d, d).
        """
        counts = np.array([len(held) for held in records], np.float64)
        total = counts.sum()
        precision = np.linalg.inv(np.asarray(covariance, np.float64))
        # The inverse has a small asymmetry, which the check above would refuse.
        precision = total * (precision + precision.T) / 2.0
        return cls(
            hessians=np.repeat(precision[None], len(records), axis=0),
            centres=np.array([np.mean(held, axis=0) for held in records]),
            weights=counts / total,
        )

    @property
    def shares(self) -> Array:
        """The weights p_c, shape (N,)."""
        return np.asarray(self.weights)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.centres)

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return int(self.centres.shape[1])

    @cached_property
    def kinds(self) -> tuple[Array, NDArray[np.int64]]:
        """The distinct Hessians, shape (G, d, d), and the index of each client's Hessian."""
        # Clients with one Hessian share all their matrices, so the work grows with the number of
        # kinds.
        flat = self.hessians.reshape(self.clients, -1)
        _, first, kind = np.unique(flat, axis=0, return_index=True, return_inverse=True)
        return self.hessians[first], kind.reshape(-1)

    @cached_property
    def spectra(self) -> tuple[Array, Array]:
        """Eigenvalues (G, d) and eigenvectors (G, d, d) of the distinct Hessians."""
        values, vectors = np.linalg.eigh(self.kinds[0])
        return values, vectors

    def spectrum(self, client: int) -> tuple[Array, Array]:
        """Return eigenvalues (d,) and eigenvectors (d, d) of a client's Hessian."""
        known = 0 <= client < self.clients
        require(known, "client", client, f"be from 0 to {self.clients - 1}")
        kind = self.kinds[1][client]
        return self.spectra[0][kind], self.spectra[1][kind]

    @property
    def strong_convexity(self) -> float:
        """The smallest eigenvalue of all Hessians."""
        return float(np.min(self.spectra[0]))

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of all Hessians."""
        return float(np.max(self.spectra[0]))

    @cached_property
    def precision(self) -> Array:
        """Hessian of f, shape (d, d)."""
        return np.asarray(np.einsum("c,cij->ij", self.shares, self.hessians))

    @cached_property
    def mean(self) -> Array:
        """The minimiser of f, shape (d,)."""
        pull = np.einsum("c,cij,cj->i", self.shares, self.hessians, self.centres)
        return np.asarray(np.linalg.solve(self.precision, pull))

    @property
    def heterogeneity(self) -> float:
        """max_c |gradient of f^c at the minimiser of f|, the FA-LD paper's gamma."""
        gradients = np.einsum("cij,cj->ci", self.hessians, self.mean - self.centres)
        return float(np.max(np.linalg.norm(gradients, axis=1)))

    def law(self, temperature: float = 1.0) -> Normal:
        """Return the target N(minimiser, temperature x inverse Hessian of f)."""
        inverse = np.linalg.inv(self.precision)
        heat = positive(temperature=temperature)
        return Normal(mean=self.mean, covariance=heat * (inverse + inverse.T) / 2.0)


def in_basis(vectors: Array, diagonal: Array) -> Array:
    """Return V diag(values) V' for a batch of bases (..., d, d) and values (..., d)."""
    return np.asarray((vectors * diagonal[..., None, :]) @ transposed(vectors))


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalRound:
    """The clients' map between two averagings: b_c + F_c (x - b_c) + noise of two kinds.

    F_c and the noises are functions of the client's Hessian, given in its eigenbasis, for the G
    distinct Hessians.

    Args:
        target: target with the Hessians and centres.
        contraction: eigenvalues of F, shape (G, d).
        common: covariance of the noise that all clients share, shape (G, G, d, d). Its entry (i, k)
            belongs to eigenvector i of kind g and k of kind h, before multiplication by the two
            vectors' inner product.
        own: variances of a client's own noise times its weight, shape (G, d).
        gradient: covariance of the accumulated gradient noise at a client, shape (N, d, d), or
            None.
    """

    target: GaussianTarget
    contraction: Array
    common: Array
    own: Array
    gradient: Array | None = None

    @cached_property
    def maps(self) -> Array:
        """F_c of the distinct Hessians, shape (G, d, d)."""
        return in_basis(self.target.spectra[1], self.contraction)

    @cached_property
    def common_covariance(self) -> Array:
        """Covariance of the shared noise between two kinds of clients, shape (G, G, d, d)."""
        vectors = self.target.spectra[1]
        inner = transposed(vectors)[:, None] @ vectors[None]
        return np.asarray(vectors[:, None] @ (self.common * inner) @ transposed(vectors)[None])

    def sample(self, starts: Array, generator: np.random.Generator) -> Array:
        """Return draws of all clients' iterates after the round, in one step for every K.

        Args:
            starts: starts of independent chains, shape (R, d).
            generator: source of the noise.

        Returns:
            Shape (R, N, d); clients of one chain share the shared noise.
        """
        kinds = self.target.kinds[1]
        common, own, kept = self._factors
        drawn = generator.standard_normal((self.target.clients, *starts.shape))
        moved = starts @ transposed(self.maps)[kinds] + kept[:, None] + drawn @ own
        if self.gradient is not None:
            more = generator.standard_normal(drawn.shape)
            moved = moved + more @ root(self.gradient)
        # Without shared noise no random numbers are drawn for it.
        if np.any(self.common):
            shared = generator.standard_normal((len(starts), common.shape[1])) @ common
            moved = moved + shared[kinds]
        return np.asarray(np.moveaxis(moved, 0, 1))

    @cached_property
    def _factors(self) -> tuple[Array, Array, Array]:
        """Factors of the standard normals in ``sample``, and the constant term.

        Shared noise (G, G d, d), by columns of each kind; own noise (N, d, d), transposed; and (I -
        F_c) b_c, shape (N, d).
        """
        vectors, kinds = self.target.spectra[1], self.target.kinds[1]
        count, size = self.contraction.shape
        joined = np.moveaxis(self.common_covariance, 1, 2).reshape(count * size, -1)
        # One root for all kinds together, so that shared noise keeps its correlations.
        common = np.moveaxis(root(joined).reshape(-1, count, size), 1, 0)
        scale = np.sqrt(self.own[kinds] / self.target.shares[:, None])
        own = scale[:, :, None] * transposed(vectors)[kinds]
        centres = self.target.centres
        return common, own, centres - np.einsum("cij,cj->ci", self.maps[kinds], centres)

    @cached_property
    def _totals(self) -> Array:
        """Summed weights of the kinds, shape (G,)."""
        return np.asarray(np.bincount(self.target.kinds[1], self.target.shares), np.float64)

    @cached_property
    def average(self) -> AffineMap:
        """The weighted average over all clients, as a map of the round's start."""
        kinds = self.target.kinds[1]
        kept = self.target.centres - np.einsum("cij,cj->ci", self.maps[kinds], self.target.centres)
        common = np.einsum("g,h,ghij->ij", self._totals, self._totals, self.common_covariance)
        own = np.einsum("g,gij->ij", self._totals, in_basis(self.target.spectra[1], self.own))
        if self.gradient is not None:
            # The variance of a weighted mean of independent noises has squared weights.
            own = own + np.einsum("c,cij->ij", self.target.shares**2, self.gradient)
        return AffineMap(
            matrix=np.einsum("g,gij->ij", self._totals, self.maps),
            offset=self.target.shares @ kept,
            noise=common + own,
        )

    @cached_property
    def _own_spread(self) -> Array:
        """sum_c p_c x covariance of client c's noises, shape (d, d)."""
        kinds, shares = self.target.kinds[1], self.target.shares
        each = np.bincount(kinds, minlength=len(self._totals)).astype(np.float64)
        spread = np.einsum("g,gij->ij", each, in_basis(self.target.spectra[1], self.own))
        spread = spread + np.einsum("g,ggij->ij", self._totals, self.common_covariance)
        if self.gradient is None:
            return np.asarray(spread)
        return np.asarray(spread + np.einsum("c,cij->ij", shares, self.gradient))

    def dispersion(self, start: Normal) -> Array:
        """Return sum_c p_c E (x_c - average)(x_c - average)' at the end of the round, (d, d)."""
        kinds, shares = self.target.kinds[1], self.target.shares
        centres, after = self.target.centres, self.average.apply(start)
        means = centres + np.einsum("cij,cj->ci", self.maps[kinds], start.mean - centres)
        apart = means - after.mean
        each = self.maps @ start.covariance @ transposed(self.maps)
        moved = np.einsum("g,gij->ij", self._totals, each)
        between = np.einsum("c,ci,cj->ij", shares, apart, apart)
        return np.asarray(moved + self._own_spread + between - after.covariance)


class StepSizes(ABC):
    """Step sizes that differ from step to step."""

    @abstractmethod
    def sizes(self, first: int, count: int) -> tuple[float, ...]:
        """Return the sizes of ``count`` steps from step ``first`` on, counted from 0."""


class Stepped(ABC):
    """Process with the same number of steps in every round, of one size or of ``StepSizes``."""

    step_size: Any

    @property
    @abstractmethod
    def steps_a_round(self) -> int:
        """Number of steps in a round that may differ in size."""

    @property
    def homogeneous(self) -> bool:
        """Whether the step size is constant."""
        return not isinstance(self.step_size, StepSizes)

    def steps_of(self, index: int) -> tuple[float, ...]:
        """Return the step sizes of round ``index``, from 0."""
        count = self.steps_a_round
        if isinstance(self.step_size, StepSizes):
            return self.step_size.sizes(index * count, count)
        return (self.step_size,) * count


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain(Stepped):
    """A federated chain on a Gaussian target: local rounds, then averaging.

    Args:
        target: the split target.
        averaging: "full", "I" or "II".
        cohort: S, the number of draws or clients of a round under schemes I and II.
        correlation: rho in [0, 1], the correlation of the clients' noise.
    """

    target: GaussianTarget
    averaging: Averaging | str = Averaging.FULL
    cohort: int | None = None
    correlation: float = 0.0

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "averaging", Averaging(self.averaging))
        except ValueError:
            refuse("averaging", self.averaging, "be 'full', 'I' or 'II'")
        # An unused cohort could be mistaken for a used one.
        if (self.averaging is Averaging.FULL) != (self.cohort is None):
            refuse("cohort", self.cohort, "be given only for schemes I and II")
        validate_fields(self, natural, "cohort", or_none=True)
        if self.averaging is Averaging.II:
            self._check_cohort()
        closed_unit(correlation=self.correlation)

    def _check_cohort(self) -> None:
        clients, shares = self.target.clients, self.target.shares
        if self.cohort is not None and self.cohort > clients:
            refuse("cohort", self.cohort, f"be at most the number of clients = {clients}")
        if not np.allclose(shares, 1.0 / clients, rtol=1e-9):
            refuse("weights", shares, "be equal under scheme II", "use scheme I")

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Temperature of the chain's target."""

    @abstractmethod
    def local_round(self, index: int) -> LocalRound:
        """Return the clients' map in round ``index``, counted from 0."""

    @property
    def gaussian(self) -> bool:
        """Whether every global iterate is Gaussian; else it is a mixture with these moments."""
        return self._spread == 0.0

    @property
    def _spread(self) -> float:
        """Covariance that drawing a cohort adds, as a share of the clients' dispersion."""
        if self.cohort is None:
            return 0.0
        if self.averaging is Averaging.I:
            return 1.0 / self.cohort
        # The correction for a finite population: a sample of all clients adds no variance.
        clients = self.target.clients
        return (clients - self.cohort) / (self.cohort * (clients - 1)) if clients > 1 else 0.0

    def step(self, law: Normal, index: int) -> Normal:
        """Return mean and covariance of the global iterate after round ``index``."""
        local = self._round(index)
        after = local.average.apply(law)
        if self.gaussian:
            return after
        added = self._spread * local.dispersion(law)
        return Normal(mean=after.mean, covariance=after.covariance + added)

    @once_if_equal
    def _round(self, index: int) -> LocalRound:
        return self.local_round(index)

    def laws(self, start: Normal) -> Iterator[Normal]:
        """Yield mean and covariance of the global iterate after 0, 1, 2, ... rounds."""
        law, index = start, 0
        while True:
            yield law
            law = self.step(law, index)
            index += 1

    def law(self, start: Normal, rounds: int) -> Normal:
        """Return mean and covariance of the global iterate after ``rounds`` rounds.

        For a homogeneous chain of Gaussians this is one computation.
        """
        count = integer(0, rounds=rounds)
        if self.homogeneous and self.gaussian:
            # Affine maps compose exactly, so a power gives all rounds at once.
            return self._round(0).average.power(count).apply(start)
        law = start
        for index in range(count):
            law = self.step(law, index)
        return law


class Laws(Protocol):
    """Process with a law in every round, and a target."""

    @property
    def target(self) -> GaussianTarget:
        """The split target."""

    @property
    def temperature(self) -> float:
        """Temperature of its target."""

    def laws(self, start: Normal) -> Iterator[Normal]:
        """Yield mean and covariance after 0, 1, 2, ... rounds."""


def w2_curve(chain: Chain | Laws, start: Normal, rounds: int) -> Array:
    """Return W2 to the target after 0, 1, ..., ``rounds`` rounds, shape (rounds + 1,).

    It is exact if every position is Gaussian (``Chain.gaussian``; ``DebiasedLaws``). Otherwise it
    is W2 between the Gaussians with the exact moments, as in the papers' plots. That is a lower
    bound of the mixture's W2 (Gelbrich 1990).
    """
    laws = chain.laws(start)
    kept = [next(laws) for _ in range(integer(0, rounds=rounds) + 1)]
    stacked = Normal(
        mean=np.stack([law.mean for law in kept]),
        covariance=np.stack([law.covariance for law in kept]),
    )
    return w2(stacked, chain.target.law(chain.temperature))


def rounds_to_accuracy(
    chain: Chain, start: Normal, accuracy: float, limit: int = 1_000_000
) -> int | None:
    """Return the first round after which W2 (as in ``w2_curve``) is at most ``accuracy``.

    Rounds that certainly miss the accuracy are skipped. For a homogeneous full chain the global
    matrix is symmetric. W2 is then at least the distance of the means, which is at least the
    transient's length less the bias of the stationary mean.

    The search also ends early. Let the excess be the stationary law's W2 less the accuracy. Once
    the chain is closer to its stationary law than the excess, it stays closer, and no later round
    succeeds.

    Args:
        chain: any chain.
        start: law of the first global iterate.
        accuracy: above 0.
        limit: largest round that is checked.

    Returns:
        The round, 0 if the start is close enough; None if no round up to ``limit`` is.
    """
    wanted, target = positive(accuracy=accuracy), chain.target.law(chain.temperature)
    first, gone = _skipped(chain, start, target, wanted)
    law = chain.law(start, first)
    for index in range(first, integer(0, limit=limit) + 1):
        if float(w2(law, target)) <= wanted:
            return index
        # An occasional check suffices: it only saves useless rounds.
        if gone is not None and index % 64 == 0 and float(w2(law, gone[0])) < gone[1]:
            return None
        law = chain.step(law, index)
    return None


def _skipped(
    chain: Chain, start: Normal, target: Normal, accuracy: float
) -> tuple[int, tuple[Normal, float] | None]:
    """Return a round before which W2 exceeds the accuracy, and the condition for an early end."""
    if not (chain.homogeneous and chain.gaussian):
        return 0, None
    average = chain._round(0).average
    # Symmetric apart from rounding; eigh would read only one of the two triangles.
    values, vectors = np.linalg.eigh((average.matrix + average.matrix.T) / 2.0)
    # A map that does not contract has no stationary law.
    if np.max(np.abs(values)) >= 1.0:
        return 0, None
    limit = average.stationary()
    excess = float(w2(limit, target)) - accuracy
    enough = accuracy + float(np.linalg.norm(limit.mean - target.mean))
    transient = np.abs(vectors.T @ (start.mean - limit.mean))

    def inside(rounds: int) -> bool:
        return float(np.linalg.norm(np.abs(values) ** rounds * transient)) <= enough * (1 + 1e-9)

    # The transient shrinks with every round.
    return search.first(inside, 0), ((limit, excess) if excess > 0.0 else None)
