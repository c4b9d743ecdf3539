"""FA-HMC's simulations (Liang et al., Figures 1 and 2) by exact laws.

Figure 1 is a Bayesian logistic regression, 1000 records with 20 clients, in d = 10 and 1000. Exact
laws are those of its expansion to second order at the mode, for each client. Chains on the logistic
posterior itself are run for comparison. The paper does not specify the records, the prior and the
start. Here inputs are uniform on the unit sphere, the prior is N(0, I), labels are drawn from the
model, and the start is 0.

Figure 2 asks whether the square of the rounds grows linearly in d. Half of the nodes have N(20 1_d,
I_d), the other half N(1_d, v I_d). The paper prints 2 I_d for the second half and N(16.2 1_d, 1.6
I_d) for the whole posterior. The latter follows from v = 4 (standard deviation 2); v = 2 gives
N(13.67, 1.33). Both are run. The start, which the paper does not specify, is 0; the momentum is
fully shared (rho = 1). Coordinates are identical and independent, so W2 = sqrt(0.1 / d) for one
coordinate means W2^2 = 0.1 for d coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import expit, ndtr, ndtri

from ...systems.fa_hmc.law import (
    GaussianTarget,
    HamiltonianChain,
    leapfrog,
    query_responses,
    rounds_to_accuracy,
)
from ...theory.gaussian import Array, point
from ..base import CellRun, Values
from .figures import DIMENSIONS, LEAPFROGS, ROUNDS

SQUARED = 0.1
CLIENTS, RECORDS, GRADIENT_STD, LOCAL = 20, 1000, 10.0, 10
RECORDS_SEED, CHAIN_SEED = 20_240_612, 3
SHOWN = (1, 2, 3, 5, 10, 100, 2_000_000)
"""Rounds whose ME Figure 1(c) has."""


def mode_of(inputs: Array, labels: Array, times: float = 1.0) -> Array:
    """Return the mode for the prior N(0, I) and each record ``times`` times, by Newton."""
    at = np.zeros(inputs.shape[1])
    for _ in range(20):
        odds = expit(inputs @ at)
        hessian = times * (inputs.T * (odds * (1.0 - odds))) @ inputs + np.eye(len(at))
        at = at - np.linalg.solve(hessian, at + times * inputs.T @ (odds - labels))
    return at


@dataclass(frozen=True, eq=False)
class LogisticExpansion:
    """The logistic posterior and its clients' expansions, in one dimension d.

    Args:
        dimension: d.
        seed: seed of the records; 1 gives those of the documentation.
    """

    dimension: int
    seed: int = 1

    @cached_property
    def records(self) -> tuple[Array, Array]:
        """Inputs (1000, d) of norm 1, and labels."""
        generator = np.random.default_rng(RECORDS_SEED + self.seed - 1)
        inputs = generator.standard_normal((RECORDS, self.dimension))
        inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
        odds = expit(inputs @ generator.standard_normal(self.dimension))
        return inputs, (generator.random(RECORDS) < odds).astype(float)

    @cached_property
    def mode(self) -> Array:
        """The posterior's mode."""
        return mode_of(*self.records)

    @property
    def own_modes(self) -> Array:
        """The modes of the clients' own functions, shape (N, d)."""
        inputs, labels = (np.split(part, CLIENTS) for part in self.records)
        pairs = zip(inputs, labels, strict=True)
        return np.array([mode_of(*pair, CLIENTS) for pair in pairs])

    @cached_property
    def factors(self) -> tuple[Array, Array, Array]:
        """Clients' curvature beyond the prior's: bases (N, d, r), values (N, r); centres (N, d)."""
        inputs, labels = self.records
        odds = expit(inputs @ self.mode)
        each = (np.sqrt(CLIENTS * odds * (1.0 - odds))[:, None] * inputs).reshape(
            CLIENTS, -1, self.dimension
        )
        _, values, bases = np.linalg.svd(each, full_matrices=False)
        bases, values = bases.swapaxes(1, 2), values**2
        residuals = (odds - labels)[:, None] * inputs
        slopes = self.mode + CLIENTS * residuals.reshape(CLIENTS, -1, self.dimension).sum(1)
        inside = np.einsum("cdr,cd->cr", bases, slopes) * (1.0 / (1.0 + values) - 1.0)
        centres = self.mode - slopes - np.einsum("cdr,cr->cd", bases, inside)
        return bases, values, centres

    @cached_property
    def target(self) -> GaussianTarget:
        """The expansion, for the library's oracle; for small dimensions."""
        bases, values, centres = self.factors
        beyond = np.einsum("cir,cr,cjr->cij", bases, values, bases)
        return GaussianTarget(
            hessians=np.eye(self.dimension) + (beyond + beyond.swapaxes(1, 2)) / 2.0,
            centres=centres,
        )

    @cached_property
    def law(self) -> Marginals:
        """Return the target law: the expansion's posterior, as marginals."""
        bases, values, _ = self.factors
        stacked = np.concatenate(list(bases), axis=1) * np.sqrt(values.ravel() / CLIENTS)
        inverse = np.linalg.inv(np.eye(self.dimension) + stacked @ stacked.T)
        return Marginals(self.mode, np.sqrt(np.diag(inverse)))


@dataclass(frozen=True, eq=False)
class ExpansionLaws:
    """The averaged iterate's exact laws, shared momentum: x -> A x + b + noise, A symmetric.

    The formulas are those of ``HamiltonianChain``. The clients' Hessians are the identity plus 50
    directions each, which makes d = 1000 affordable. The check compares the two at d = 10.
    """

    regression: LogisticExpansion
    step_size: float
    leapfrog_steps: int
    gradient_std: float
    iterations: int = LOCAL

    def _average(self, rest: float, inside: Array) -> Array:
        """Mean over clients of a function of H_c: its value at 1, and in the directions."""
        bases = self._joined
        return rest * np.eye(len(bases)) + (bases * ((inside - rest) / CLIENTS)) @ bases.T

    @cached_property
    def _joined(self) -> Array:
        return np.concatenate(list(self.regression.factors[0]), axis=1)

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        curvature = np.append(1.0 + self.regression.factors[1].ravel(), 1.0)
        return leapfrog(curvature, self.step_size, self.leapfrog_steps)

    @cached_property
    def map(self) -> tuple[Array, Array, Array]:
        """Eigenvalues and eigenvectors of A, and b."""
        left = self._spectrum[0] ** self.iterations
        values, vectors = np.linalg.eigh(self._average(left[-1], left[:-1]))
        bases, _, centres = self.regression.factors
        along = np.einsum("cdr,cd->cr", bases, centres)
        beyond = (left[:-1] - left[-1]).reshape(along.shape) * along
        kept = left[-1] * centres + np.einsum("cdr,cr->cd", bases, beyond)
        return values, vectors, (centres - kept).mean(0)

    @cached_property
    def noise(self) -> Array:
        """Covariance of the noise of a round: shared momenta, and noise on gradients."""
        turned, pushed = self._spectrum
        each = pushed * turned ** np.arange(self.iterations)[:, None]
        rest, beyond = each[:, -1], (each[:, :-1] - each[:, -1:]) / CLIENTS
        bases = self._joined
        crossed = (bases.T @ bases) * (beyond.T @ beyond)
        crossed[np.diag_indices_from(crossed)] += 2.0 * rest @ beyond
        made = np.sum(rest**2) * np.eye(len(bases)) + bases @ crossed @ bases.T
        if self.gradient_std:
            queries = self._queries
            made = made + self._average(queries[-1], queries[:-1]) / CLIENTS
        return made

    @cached_property
    def _queries(self) -> Array:
        curvature = np.append(1.0 + self.regression.factors[1].ravel(), 1.0)
        first, last = query_responses(curvature, self.step_size, self.leapfrog_steps)
        once = self.gradient_std**2 * (np.sum(first**2, axis=0) + np.sum(last**2, axis=0))
        powers = self._spectrum[0] ** (2 * np.arange(self.iterations)[:, None])
        found: Array = once * powers.sum(0)
        return found

    @cached_property
    def _heat(self) -> Array:
        """The noise's covariance in A's eigenbasis."""
        vectors = self.map[1]
        return vectors.T @ self.noise @ vectors

    def law(self, rounds: float) -> Marginals:
        """Return the marginal laws after this number of rounds from 0."""
        values, vectors, offset = self.map
        mean = vectors @ ((vectors.T @ offset) * _sum_of_powers(values, rounds))
        inside = self._heat * _sum_of_powers(np.multiply.outer(values, values), rounds)
        return Marginals(mean, np.sqrt(np.sum((vectors @ inside) * vectors, axis=1)))

    def error(self, rounds: float) -> float:
        """Return the marginal error after these rounds, which is the same on any machine."""
        return float(f"{marginal_error(self.law(rounds), self.regression.law):.4g}")

    def path(self, rounds: int) -> Array:
        """One chain's positions, shape (rounds, d), drawn from the exact transitions."""
        values, vectors, offset = self.map
        heat, turn = np.linalg.eigh(self._heat)
        root = (turn * np.sqrt(np.maximum(heat, 0.0))) @ turn.T
        generator = np.random.default_rng(CHAIN_SEED)
        drawn = generator.standard_normal((rounds, len(values))) @ root
        drawn += vectors.T @ offset
        at = np.zeros(len(values))
        for index in range(rounds):
            at = drawn[index] = values * at + drawn[index]
        found: Array = drawn @ vectors.T
        return found


def _sum_of_powers(base: Array, count: float) -> Array:
    """1 + base + ... + base^(count - 1); bases are below 1 in size."""
    left = np.zeros_like(base) if math.isinf(count) else np.abs(base) ** count
    sign = 1.0 if math.isinf(count) or count % 2 == 0 else np.sign(base)
    return (1.0 - sign * left) / (1.0 - base)


@dataclass(frozen=True, eq=False)
class Marginals:
    """Gaussian laws of the coordinates, shapes (d,)."""

    mean: Array
    std: Array


def marginal_error(first: Marginals, second: Marginals) -> float:
    """Return the paper's ME: mean over coordinates of the marginals' W1; exact for Gaussians."""
    shift, spread = np.abs(first.mean - second.mean), np.abs(first.std - second.std)
    ratio = shift / np.maximum(spread, 1e-300)
    folded = spread * math.sqrt(2.0 / math.pi) * np.exp(-(ratio**2) / 2.0)
    return float(np.mean(folded + shift * (1.0 - 2.0 * ndtr(-ratio))))


def sampled_error(draws: Array, law: Marginals) -> float:
    """Return ME of draws, shape (n, d), against Gaussian marginals at the n middle quantiles."""
    heights = ndtri((np.arange(len(draws)) + 0.5) / len(draws))
    return float(np.mean(np.abs(np.sort(draws, axis=0) - law.mean - law.std * heights[:, None])))


def target_of(variance: float) -> GaussianTarget:
    """Return Figure 2's target for one coordinate."""
    return GaussianTarget(
        hessians=np.array([[[1.0]], [[1.0 / variance]]]), centres=np.array([[20.0], [1.0]])
    )


def chain_of(variance: float, dimension: int) -> HamiltonianChain:
    """Return Figure 2's chain for one coordinate."""
    return HamiltonianChain(
        target=target_of(variance),
        step_size=0.02 / dimension**0.25,
        leapfrog_steps=5,
        iterations=10,
        correlation=1.0,
    )


def rounds_needed(variance: float, dimension: int) -> int | None:
    """Return Figure 2's rounds in a dimension; None if the accuracy is never reached."""
    wanted = math.sqrt(SQUARED / dimension)
    return rounds_to_accuracy(chain_of(variance, dimension), point([0.0]), wanted)


def rule(step_size: float) -> int:
    """Return the paper's K = floor(pi / (3 eta)), at least 2."""
    return max(2, math.floor(math.pi / (3.0 * step_size)))


def marginal_errors(
    regression: LogisticExpansion, step_size: float, leapfrogs: int, std: float
) -> dict[str, float]:
    """ME after each of ROUNDS, T = 10."""
    chain = ExpansionLaws(regression, step_size, leapfrogs, std)
    return {str(r): chain.error(r) for r in ROUNDS}


def tried(step_size: float) -> list[int]:
    """Return the K that are tried with a step size."""
    longest = rule(step_size)
    return sorted({1, longest, *(k for k in LEAPFROGS if k < longest)})


def slope(rounds: dict[int, int | None]) -> float:
    """Return the slope of log(rounds^2) in log d, from d = 50."""
    squares = [2.0 * math.log(rounds[d] or 0) for d in DIMENSIONS[1:]]
    return float(np.polyfit(np.log(DIMENSIONS[1:]), squares, 1)[0])


# ---- cells


@cache
def _expansion(dimension: int, seed: int) -> LogisticExpansion:
    return LogisticExpansion(dimension, seed)


def figure_1(job: CellRun) -> Values:
    """Return the marginal error by K after the paper's number of rounds, for one step size."""
    asked = job.cell.settings
    regression = _expansion(asked["dimension"], job.seed)
    std, step = (GRADIENT_STD if asked["noisy"] else 0.0), asked["step_size"]
    found: Values = {}
    for number, leapfrogs in enumerate(tried(step), start=1):
        name = "FA-LD" if leapfrogs == 1 else f"K = {leapfrogs}"
        errors = marginal_errors(regression, step, leapfrogs, std)
        for rounds in (ROUNDS[1], ROUNDS[-1]):
            found[f"ME, {name}, round {rounds}"] = errors[str(rounds)]
        job.tick(number / len(tried(step)))
    return found


def figure_1c(job: CellRun) -> Values:
    """Return the marginal error by rounds, for one T."""
    regression = _expansion(1000, job.seed)
    chain = ExpansionLaws(
        regression, 0.01, 100, GRADIENT_STD, job.cell.settings["local_iterations"]
    )
    return {f"ME, round {rounds}": chain.error(rounds) for rounds in SHOWN}


def figure_2(job: CellRun) -> Values:
    """Return the rounds in every dimension, and the growth of their square."""
    variance = job.cell.settings["variance"]
    found = {d: rounds_needed(variance, d) for d in DIMENSIONS}
    values: Values = {f"rounds, d = {d}": found[d] for d in (2, 50, 100, 200, 500, 1000)}
    return values | {"slope of log(rounds^2) in log d, from d = 50": slope(found)}
