"""FA-LD's Figures 1 and 2 (Deng et al., section 7.1) by exact laws, compared with simulation.

The paper does not specify the records of a client, the start and Figure 2's step sizes. 1000
records reproduce its gamma (squared; 4e11 at alpha = 1). The start is 0, and the step sizes are
given in ``figures``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...systems.fa_ld.law import (
    GaussianTarget,
    LangevinChain,
    rounds_to_accuracy,
    upload_gdp,
    w2_curve,
)
from ...theory.gaussian import Array, Normal, point, w2
from ..base import CellRun, Values

CLIENTS, RECORDS, ACCURACY, STEP, RUNS = 50, 1000, 1e-3, 1e-7, 300
SPREAD = np.array([[5.0, -2.0], [-2.0, 1.0]])
START = point([0.0, 0.0])
SEEDS = {"records": 20_240_611, "300 chains": 1, "estimates": 7}
ROUNDS = {"figure 1a, at most": 200_000, "figure 1b": 1500, "300 chains": 960}
ROUNDS |= {"figure 1c": 150, "figure 2": 1000}
SHOWN = {"1b": (10, 100, 500, 1500), "1c": (10, 50, 150), "2": (10, 100, 1000)}
"""Rounds whose W2 ``papers run`` prints, by figure."""


def records(alpha: float, seed: int = 1) -> list[Array]:
    """Return every client's records; their mean is drawn from N(0, alpha I)."""
    generator = np.random.default_rng(SEEDS["records"] + seed - 1)
    centres = math.sqrt(alpha) * generator.normal(size=(CLIENTS, 2))
    return [generator.multivariate_normal(centre, SPREAD, RECORDS) for centre in centres]


def paper_target(alpha: float, seed: int = 1) -> GaussianTarget:
    """Return the paper's target: all clients have the Hessian n times the inverse of SPREAD."""
    return GaussianTarget.of_records(records(alpha, seed), SPREAD)


def unequal_target(alpha: float, seed: int = 1) -> GaussianTarget:
    """Return the target with the same records, but four times the spread at every other client."""
    same = paper_target(alpha, seed)
    scale = np.where(np.arange(CLIENTS) % 2 == 0, 1.0, 0.25)
    return GaussianTarget(
        hessians=same.hessians * scale[:, None, None], centres=same.centres, weights=same.shares
    )


TARGETS: dict[str, Callable[..., GaussianTarget]] = {
    "paper": paper_target,
    "unequal": unequal_target,
}
"""The paper's target, and one with unequal Hessians."""


def chain_on(target: GaussianTarget, local_steps: int, **settings: Any) -> LangevinChain:
    """Return FA-LD on a target, with the paper's step size unless another is given."""
    return LangevinChain(target=target, local_steps=local_steps, **{"step_size": STEP, **settings})


def rounds_needed(target: GaussianTarget, local_steps: int, **settings: float) -> int | None:
    """Return the rounds to W2 = 1e-3, Figure 1(a); None if it is never reached."""
    chain = chain_on(target, local_steps, **settings)
    return rounds_to_accuracy(chain, START, ACCURACY, limit=ROUNDS["figure 1a, at most"])


def thinned(curve: Array) -> dict[str, float]:
    """Return the curve at about forty rounds, evenly spaced in the logarithm."""
    last = len(curve) - 1
    at = sorted({0, last, *(round(last ** (j / 40)) for j in range(41))})
    return {str(r): float(f"{curve[r]:.6g}") for r in at}


def curve_1b(alpha: float, seed: int = 1) -> Array:
    """Return W2 by round in Figure 1(b): K = 10, rho = 0."""
    return w2_curve(chain_on(paper_target(alpha, seed), 10), START, ROUNDS["figure 1b"])


def curve_1c(name: str, rho: float, seed: int = 1) -> Array:
    """Return W2 by round in Figure 1(c): K = 100, alpha = 0; also for unequal Hessians."""
    chain = chain_on(TARGETS[name](0.0, seed), 100, correlation=rho)
    return w2_curve(chain, START, ROUNDS["figure 1c"])


def curve_2(averaging: str, cohort: int | None, step: float, rho: float, seed: int = 1) -> Array:
    """Return W2 by round in Figure 2: K = 100, alpha = 0."""
    settings = {"step_size": step, "correlation": rho, "averaging": averaging, "cohort": cohort}
    chain = chain_on(paper_target(0.0, seed), 100, **settings)
    return w2_curve(chain, START, ROUNDS["figure 2"])


def upload_mu(local_steps: int, rho: float) -> float:
    """Return mu of one upload for a record moved by one unit, missing in the paper's figures."""
    change = float(np.linalg.norm(np.linalg.inv(SPREAD), 2))
    chain = chain_on(paper_target(0.0), local_steps, correlation=rho)
    return upload_gdp(chain, client=0, difference=change)


def simulated(alpha: float, seed: int = 1) -> dict[str, dict[str, float]]:
    """Run 300 chains of Algorithm 1, K = 10, and estimate W2 as in the paper."""
    target, total = paper_target(alpha, seed), ROUNDS["300 chains"]
    chain = chain_on(target, 10)
    exact, law = w2_curve(chain, START, total), target.law()
    found = {}
    for index, theta in enumerate(positions(chain, total, seed), start=1):
        if index % (total // 8) == 0:
            fitted = Normal(mean=theta.mean(axis=0), covariance=np.cov(theta.T))
            found[str(index)] = {
                "300 chains": float(w2(fitted, law)),
                "exact": float(exact[index]),
                **spread_of_estimate(chain, index, seed),
            }
    return found


def positions(chain: LangevinChain, rounds: int, seed: int = 1) -> Any:
    """Yield the positions of 300 chains after every round, shape (300, 2); equal Hessians."""
    target, generator = chain.target, np.random.default_rng(SEEDS["300 chains"] + seed - 1)
    noise = np.sqrt(2.0 * STEP / target.shares)[:, None]
    pull = STEP * np.einsum("cij,cj->ci", target.hessians, target.centres)
    left = np.eye(2) - STEP * target.hessians[0]
    theta = np.zeros((RUNS, 2))
    for _ in range(rounds):
        local: Array = np.broadcast_to(theta[:, None], (RUNS, CLIENTS, 2))
        for _ in range(chain.local_steps):
            local = local @ left + pull + noise * generator.standard_normal((RUNS, CLIENTS, 2))
        theta = np.einsum("c,mci->mi", target.shares, local)
        yield theta


def spread_of_estimate(chain: LangevinChain, index: int, seed: int = 1) -> dict[str, float]:
    """Return the 1st and 99th percentile of the estimate for 300 exact draws of the same law."""
    law, target = chain.law(START, index), chain.target.law()
    generator, made = np.random.default_rng(SEEDS["estimates"] + seed - 1), []
    factor = np.linalg.cholesky(law.covariance)
    for _ in range(2000):
        draws = law.mean + generator.standard_normal((RUNS, 2)) @ factor.T
        made.append(float(w2(Normal(mean=draws.mean(axis=0), covariance=np.cov(draws.T)), target)))
    low, high = np.percentile(made, [1, 99])
    return {"1 per cent": float(low), "99 per cent": float(high)}


def density_law(seed: int = 1) -> tuple[Normal, Normal]:
    """Return the law of Figure 1(e), K = 10, rho = 0, alpha = 0, and the target, Figure 1(d)."""
    chain = chain_on(paper_target(0.0, seed), 10)
    return chain.law(START, ROUNDS["300 chains"]), chain.target.law()


def density_draws(kind: str, seed: int = 1) -> Array:
    """Return 300 draws, shape (300, 2): of the chains after their last round, or of the target."""
    target = paper_target(0.0, seed)
    if kind == "chains":
        *_, last = positions(chain_on(target, 10), ROUNDS["300 chains"], seed)
        return np.asarray(last)
    law, generator = target.law(), np.random.default_rng(SEEDS["estimates"] + seed - 1)
    factor = np.linalg.cholesky(law.covariance)
    return law.mean + generator.standard_normal((RUNS, 2)) @ factor.T


def density(law: Normal, points: Array) -> Array:
    """Return a Gaussian density at points of shape (n, 2)."""
    apart = points - law.mean
    inverse = np.linalg.inv(law.covariance)
    height = 1.0 / (2.0 * math.pi * math.sqrt(float(np.linalg.det(law.covariance))))
    squares: Array = np.einsum("ni,ij,nj->n", apart, inverse, apart)
    return height * np.exp(-squares / 2.0)


def smoothed(draws: Array, points: Array) -> Array:
    """Return a kernel density estimate of draws at points, with Scott's bandwidth."""
    from scipy.stats import gaussian_kde

    found: Array = gaussian_kde(draws.T)(points.T)
    return found


def around(law: Normal, width: float = 4.0, count: int = 81) -> Array:
    """Return the points of a grid of some standard deviations around a law, shape (n, 2)."""
    reach = width * np.sqrt(np.diag(law.covariance))
    axes = [np.linspace(m - r, m + r, count) for m, r in zip(law.mean, reach, strict=True)]
    return np.stack([part.ravel() for part in np.meshgrid(*axes)], axis=1)


# ---- cells


def figure_1a(job: CellRun) -> Values:
    """Return the rounds to W2 = 1e-3 for every K of one alpha."""
    target = paper_target(job.cell.settings["alpha"], job.seed)
    found: Values = {}
    steps = job.cell.settings["local_steps"]
    for number, local_steps in enumerate(steps, start=1):
        found[f"rounds, K = {local_steps}"] = rounds_needed(target, local_steps)
        job.tick(number / len(steps))
    return found


def figure_1b(job: CellRun) -> Values:
    """Return W2 after some rounds for one alpha."""
    return _at(curve_1b(job.cell.settings["alpha"], job.seed), SHOWN["1b"])


def figure_1c(job: CellRun) -> Values:
    """Return W2 after some rounds for one rho."""
    asked = job.cell.settings
    return _at(curve_1c(asked["target"], asked["correlation"], job.seed), SHOWN["1c"])


def figure_2(job: CellRun) -> Values:
    """Return W2 after some rounds for one scheme and step size, rho = 0."""
    asked = job.cell.settings
    curve = curve_2(asked["averaging"], asked["cohort"], asked["step_size"], 0.0, job.seed)
    return _at(curve, SHOWN["2"])


def figure_1d(job: CellRun) -> Values:
    """Return the numbers of the target's density."""
    return _moments(density_law(job.seed)[1])


def figure_1e(job: CellRun) -> Values:
    """Return the numbers of a density and its largest difference from the target's."""
    law, target = density_law(job.seed)
    kind, points = job.cell.settings["density"], around(target)
    truth = density(target, points)
    if kind == "law":
        found, guess = law, density(law, points)
    else:
        draws = density_draws(kind, job.seed)
        found = Normal(mean=draws.mean(axis=0), covariance=np.cov(draws.T))
        guess = smoothed(draws, points)
    apart = float(np.max(np.abs(guess - truth)) / np.max(truth))
    return {
        "largest difference of the densities, share of the peak": apart,
        "W2 to the target": float(w2(found, target)),
        **_moments(found),
    }


def _moments(law: Normal) -> Values:
    first, second = np.sqrt(np.diag(law.covariance))
    return {
        "mean, first coordinate": float(law.mean[0]),
        "mean, second coordinate": float(law.mean[1]),
        "standard deviation, first coordinate": float(first),
        "standard deviation, second coordinate": float(second),
        "correlation": float(law.covariance[0, 1] / (first * second)),
    }


def _at(curve: Array, rounds: tuple[int, ...]) -> Values:
    return {f"W2, round {number}": float(curve[number]) for number in rounds}
