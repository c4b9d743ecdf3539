"""FA-LD's Figures 1 and 2 (Deng et al., section 7.1) by exact laws, compared with simulation.

    python benchmarks/papers/fa_ld.py            writes results/fa_ld.json
    python benchmarks/papers/fa_ld.py --check    recomputes the smallest cells and compares
    python benchmarks/papers/fa_ld.py --page     only writes Figure 1(a)'s table

The paper does not specify the records of a client, the start and Figure 2's step sizes. 1000
records reproduce its gamma (squared; 4e11 at alpha = 1). The start is 0, and the step sizes are
given here.
"""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from drawn import Cells, near, redrawn
from pages import put, table

from fedprivacy.outputs import whole_file
from fedprivacy.papers.fa_ld.bounds import LangevinProblem, optimal_local_steps
from fedprivacy.systems.fa_ld.law import (
    GaussianTarget,
    LangevinChain,
    rounds_to_accuracy,
    upload_gdp,
    w2_curve,
)
from fedprivacy.theory.gaussian import Normal, point, w2

RESULTS = Path(__file__).parent / "results" / "fa_ld.json"
CLIENTS, RECORDS, ACCURACY, STEP, RUNS = 50, 1000, 1e-3, 1e-7, 300
SPREAD = np.array([[5.0, -2.0], [-2.0, 1.0]])
ALPHAS = (0.0, 1.0, 10.0, 100.0, 1000.0)
LOCAL = (1, 10, 100, 300, 1000, 3000, 10_000, 30_000)
START = point([0.0, 0.0])
SEEDS = {"records": 20_240_611, "300 chains": 1, "estimates": 7}
ROUNDS = {"figure 1a, at most": 200_000, "figure 1b": 1500, "300 chains": 960}
ROUNDS |= {"figure 1c": 150, "figure 2": 1000}
RUN = {"data": "made up", "seeds": SEEDS, "rounds": ROUNDS, "chains": RUNS}
"""Settings of the runs, as named in the results."""


def records(alpha: float) -> list[np.ndarray]:
    generator = np.random.default_rng(SEEDS["records"])
    centres = math.sqrt(alpha) * generator.normal(size=(CLIENTS, 2))
    return [generator.multivariate_normal(centre, SPREAD, RECORDS) for centre in centres]


def paper_target(alpha: float) -> GaussianTarget:
    """Every client's function has the same Hessian: n times the inverse of SPREAD."""
    return GaussianTarget.of_records(records(alpha), SPREAD)


def unequal_target(alpha: float) -> GaussianTarget:
    """Return the target with the same records, but four times the spread at every other client."""
    same = paper_target(alpha)
    scale = np.where(np.arange(CLIENTS) % 2 == 0, 1.0, 0.25)
    return GaussianTarget(
        hessians=same.hessians * scale[:, None, None], centres=same.centres, weights=same.shares
    )


def rounds(target: GaussianTarget, local_steps: int, **settings: float) -> int | None:
    chain = LangevinChain(target=target, step_size=STEP, local_steps=local_steps, **settings)
    return rounds_to_accuracy(chain, START, ACCURACY, limit=ROUNDS["figure 1a, at most"])


def figure_1a(make: object = paper_target) -> dict[str, dict[str, int | None]]:
    """Rounds to W2 = 1e-3 for each alpha and K; None where it is never reached."""
    return {
        f"{alpha:g}": {str(k): rounds(make(alpha), k) for k in LOCAL}  # type: ignore[operator]
        for alpha in ALPHAS
    }


def seen(curve: np.ndarray) -> dict[str, float]:
    """Return the curve at about forty rounds, evenly spaced in the logarithm."""
    last = len(curve) - 1
    at = sorted({0, last, *(round(last ** (j / 40)) for j in range(41))})
    return {str(r): float(f"{curve[r]:.6g}") for r in at}


def figure_1b() -> dict[str, dict[str, float]]:
    """W2 against rounds for each alpha, K = 10, rho = 0."""
    return {f"{alpha:g}": curve_1b(alpha) for alpha in ALPHAS}


def curve_1b(alpha: float) -> dict[str, float]:
    """Return a curve of Figure 1(b)."""
    chain = LangevinChain(target=paper_target(alpha), step_size=STEP, local_steps=10)
    return seen(w2_curve(chain, START, ROUNDS["figure 1b"]))


MAKERS = {"paper": paper_target, "unequal": unequal_target}


def figure_1c() -> dict[str, dict[str, float]]:
    """W2 against rounds for each rho, K = 100, alpha = 0; for unequal Hessians too."""
    correlations = (0.0, 0.5, 0.9, 1.0)
    return {f"{name} {rho:g}": curve_1c(name, rho) for name in MAKERS for rho in correlations}


def curve_1c(name: str, rho: float) -> dict[str, float]:
    """Return a curve of Figure 1(c)."""
    target = MAKERS[name](0.0)
    chain = LangevinChain(target=target, step_size=STEP, local_steps=100, correlation=rho)
    return seen(w2_curve(chain, START, ROUNDS["figure 1c"]))


def figure_2() -> dict[str, dict[str, float]]:
    """W2 against rounds by scheme, cohort and step size, K = 100, alpha = 0, rho = 0 and 1."""
    target, made = paper_target(0.0), {}
    cells = [("full", None), ("I", 40), ("II", 40), ("I", 30), ("II", 30)]
    for way, cohort in cells:
        for step in (1e-6, 3e-7, 1e-7, 3e-8):
            for rho in (0.0, 1.0):
                chain = LangevinChain(
                    target=target,
                    step_size=step,
                    local_steps=100,
                    correlation=rho,
                    averaging=way,
                    cohort=cohort,
                )
                name = f"{way} {cohort or CLIENTS} step {step:g} rho {rho:g}"
                made[name] = seen(w2_curve(chain, START, ROUNDS["figure 2"]))
    return made


def privacy_of_a_round() -> dict[str, float]:
    """Return mu of one upload for a record moved by one unit, missing in the paper's figures."""
    return {
        f"K {k} rho {rho:g}": upload_mu(k, rho)
        for rho in (0.0, 0.5, 0.9)
        for k in (1, 10, 100, 1000, 3000)
    }


def upload_mu(k: int, rho: float) -> float:
    """Return mu of one upload."""
    change = float(np.linalg.norm(np.linalg.inv(SPREAD), 2))
    chain = LangevinChain(target=paper_target(0.0), step_size=STEP, local_steps=k, correlation=rho)
    return upload_gdp(chain, client=0, difference=change)


def simulated(alpha: float) -> dict[str, dict[str, float]]:
    """Run 300 chains of Algorithm 1, K = 10, and estimate W2 as in the paper."""
    target, total = paper_target(alpha), ROUNDS["300 chains"]
    generator = np.random.default_rng(SEEDS["300 chains"])
    chain = LangevinChain(target=target, step_size=STEP, local_steps=10)
    exact, law = w2_curve(chain, START, total), target.law()
    theta, found = np.zeros((RUNS, 2)), {}
    noise = np.sqrt(2.0 * STEP / target.shares)[:, None]
    hessian = target.hessians[0]
    pull = STEP * np.einsum("cij,cj->ci", target.hessians, target.centres)
    left = np.eye(2) - STEP * hessian
    for index in range(1, total + 1):
        local = np.broadcast_to(theta[:, None], (RUNS, CLIENTS, 2))
        for _ in range(10):
            local = local @ left + pull + noise * generator.standard_normal((RUNS, CLIENTS, 2))
        theta = np.einsum("c,mci->mi", target.shares, local)
        if index % (total // 8) == 0:
            fitted = Normal(mean=theta.mean(axis=0), covariance=np.cov(theta.T))
            found[str(index)] = {
                "300 chains": float(w2(fitted, law)),
                "exact": float(exact[index]),
                **spread_of_estimate(chain, index),
            }
    return found


def spread_of_estimate(chain: LangevinChain, index: int) -> dict[str, float]:
    """Return the 1st and 99th percentile of the estimate for 300 exact draws of the same law."""
    law, target = chain.law(START, index), chain.target.law()
    generator, made = np.random.default_rng(SEEDS["estimates"]), []
    factor = np.linalg.cholesky(law.covariance)
    for _ in range(2000):
        draws = law.mean + generator.standard_normal((RUNS, 2)) @ factor.T
        made.append(float(w2(Normal(mean=draws.mean(axis=0), covariance=np.cov(draws.T)), target)))
    low, high = np.percentile(made, [1, 99])
    return {"1 per cent": float(low), "99 per cent": float(high)}


def everything() -> dict[str, object]:
    problem = LangevinProblem.of(paper_target(1.0), np.zeros(2))
    return {
        "run": RUN,
        "setting": {
            "clients": CLIENTS,
            "records of a client": RECORDS,
            "step": STEP,
            "accuracy": ACCURACY,
            "L": problem.smoothness,
            "m": problem.strong_convexity,
            "K that the theorem's bound prefers": optimal_local_steps(problem).value,
            "gamma squared": {
                f"{alpha:g}": paper_target(alpha).heterogeneity ** 2 for alpha in ALPHAS
            },
        },
        "figure 1a": figure_1a(),
        "figure 1a, unequal Hessians": figure_1a(unequal_target),
        "figure 1b": figure_1b(),
        CHAINS: simulated(1.0),
        "figure 1c": figure_1c(),
        "figure 2": figure_2(),
        "mu of an upload": privacy_of_a_round(),
    }


def page(kept: dict) -> None:
    """Write Figure 1(a)'s table."""
    steps = [k for k in map(str, LOCAL) if k not in ("300", "30000")]
    rows = [[alpha, *(str(own[k]) for k in steps)] for alpha, own in kept["figure 1a"].items()]
    head = ["$\\alpha$", "$K = 1$", *(f"{int(k):,}" for k in steps[1:])]
    put("fa_ld.md", "FA-LD, figure 1a", table(head, rows))


def tables(kept: dict) -> dict[str, Cells]:
    """Return the cells that may be drawn for a check."""
    found: dict[str, dict] = {}
    for name, make in (("", paper_target), (", unequal Hessians", unequal_target)):
        old = kept[f"figure 1a{name}"]
        found[f"figure 1a{name}"] = {
            f"alpha {alpha:g}, K {k}": partial(agrees, make, alpha, k, old[f"{alpha:g}"][str(k)])
            for alpha in ALPHAS
            for k in LOCAL
        }
    found["figure 2"] = {
        name: partial(agrees_in_figure_2, name, old) for name, old in kept["figure 2"].items()
    }
    return found | exact(kept)


CHAINS = "figure 1b, 300 chains, alpha 1"


def exact(kept: dict) -> dict[str, Cells]:
    """Return the cells of Figures 1(b), 1(c), the chains and an upload's mu for a check."""

    def same(old: object, make: Callable[..., object], *asked: object) -> Callable[[], bool]:
        return lambda: near(make(*asked), old, 1e-5, 1e-12)

    first, second, uploads = (kept[name] for name in ("figure 1b", "figure 1c", "mu of an upload"))
    return {
        "figure 1b": {
            f"alpha {alpha}": same(old, curve_1b, float(alpha)) for alpha, old in first.items()
        },
        "figure 1c": {
            name: same(old, curve_1c, name.split()[0], float(name.split()[1]))
            for name, old in second.items()
        },
        CHAINS: {"all of them": same(kept[CHAINS], simulated, 1.0)},
        "mu of an upload": {
            name: same(old, upload_mu, int(name.split()[1]), float(name.split()[3]))
            for name, old in uploads.items()
        },
    }


def agrees(make: Callable[[float], GaussianTarget], alpha: float, k: int, old: object) -> bool:
    """Return whether a cell of Figure 1(a) agrees with the recorded one."""
    return rounds(make(alpha), k) == old


def agrees_in_figure_2(name: str, old: dict[str, float]) -> bool:
    """Return whether a curve of Figure 2 agrees with the recorded one."""
    way, cohort, _, step, _, rho = name.split()
    chain = LangevinChain(
        target=paper_target(0.0),
        step_size=float(step),
        local_steps=100,
        correlation=float(rho),
        averaging=way,
        cohort=None if way == "full" else int(cohort),
    )
    return near(seen(w2_curve(chain, START, ROUNDS["figure 2"])), old, 1e-5, 1e-12)


def check() -> None:
    """Recompute the cheapest cells and compare them with the recorded ones."""
    kept = json.loads(RESULTS.read_text())
    assert kept["run"] == RUN, "the results are of another run"
    assert rounds(paper_target(1.0), 3000) == kept["figure 1a"]["1"]["3000"]
    assert rounds(unequal_target(1.0), 100) == kept["figure 1a, unequal Hessians"]["1"]["100"]
    chain = LangevinChain(
        target=paper_target(0.0), step_size=1e-7, local_steps=100, averaging="II", cohort=40
    )
    found, old = w2_curve(chain, START, 100), kept["figure 2"]["II 40 step 1e-07 rho 0"]
    for index, value in old.items():
        assert int(index) > 100 or math.isclose(found[int(index)], value, rel_tol=1e-5)
    print("fa_ld: the smallest cells came out as kept")
    assert redrawn(tables(kept)), "a drawn cell differs"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.check:
        check()
    else:
        if not options.page:
            whole_file(RESULTS, json.dumps(everything(), indent=1) + "\n")
        page(json.loads(RESULTS.read_text()))
