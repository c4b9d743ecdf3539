"""FA-LD's Figures 1 and 2 (Deng et al., section 7.1) by exact laws, compared with simulation.

    python benchmarks/papers/fa_ld.py            writes results/fa_ld.json
    python benchmarks/papers/fa_ld.py --check    recomputes the smallest cells and compares
    python benchmarks/papers/fa_ld.py --page     only writes Figure 1(a)'s table
    python benchmarks/papers/fa_ld.py --figure   draws Figures 1(d) and 1(e)

The computation is ``fedprivacy.reproductions.fa_ld.simulations``, as of ``fedprivacy papers run``.
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
from fedprivacy.reproductions.fa_ld.figures import ALPHAS, CORRELATIONS, LOCAL, STEP_SIZES, WAYS
from fedprivacy.reproductions.fa_ld.simulations import (
    ACCURACY,
    CLIENTS,
    RECORDS,
    ROUNDS,
    RUNS,
    SEEDS,
    START,
    STEP,
    TARGETS,
    around,
    chain_on,
    density,
    density_draws,
    density_law,
    paper_target,
    rounds_needed,
    simulated,
    smoothed,
    thinned,
    unequal_target,
    upload_mu,
)
from fedprivacy.reproductions.fa_ld.simulations import curve_1b as whole_1b
from fedprivacy.reproductions.fa_ld.simulations import curve_1c as whole_1c
from fedprivacy.reproductions.fa_ld.simulations import curve_2 as whole_2
from fedprivacy.systems.fa_ld.law import GaussianTarget, w2_curve

RESULTS = Path(__file__).parent / "results" / "fa_ld.json"
PLOT = Path(__file__).parents[2] / "docs" / "theory" / "fa_ld_density.png"
RUN = {"data": "made up", "seeds": SEEDS, "rounds": ROUNDS, "chains": RUNS}
"""Settings of the runs, as named in the results."""


def figure_1a(make: object = paper_target) -> dict[str, dict[str, int | None]]:
    """Rounds to W2 = 1e-3 for each alpha and K; None where it is never reached."""
    return {
        f"{alpha:g}": {str(k): rounds_needed(make(alpha), k) for k in LOCAL}  # type: ignore[operator]
        for alpha in ALPHAS
    }


def figure_1b() -> dict[str, dict[str, float]]:
    """W2 against rounds for each alpha, K = 10, rho = 0."""
    return {f"{alpha:g}": curve_1b(alpha) for alpha in ALPHAS}


def curve_1b(alpha: float) -> dict[str, float]:
    """Return a curve of Figure 1(b)."""
    return thinned(whole_1b(alpha))


def figure_1c() -> dict[str, dict[str, float]]:
    """W2 against rounds for each rho, K = 100, alpha = 0; for unequal Hessians too."""
    return {f"{name} {rho:g}": curve_1c(name, rho) for name in TARGETS for rho in CORRELATIONS}


def curve_1c(name: str, rho: float) -> dict[str, float]:
    """Return a curve of Figure 1(c)."""
    return thinned(whole_1c(name, rho))


def figure_2() -> dict[str, dict[str, float]]:
    """W2 against rounds by scheme, cohort and step size, K = 100, alpha = 0, rho = 0 and 1."""
    return {
        f"{way} {cohort or CLIENTS} step {step:g} rho {rho:g}": thinned(
            whole_2(way, cohort, step, rho)
        )
        for way, cohort in WAYS
        for step in STEP_SIZES
        for rho in (0.0, 1.0)
    }


DENSITIES = {"exact law": "law", "300 chains": "chains", "300 draws of the target": "target"}
"""Densities of Figure 1(e): the law of FA-LD, and kernel estimates."""


def density_apart(kind: str) -> float:
    """Return a density's largest difference from the target's, as a share of its peak."""
    law, target = density_law()
    points = around(target)
    truth = density(target, points)
    guess = density(law, points) if kind == "law" else smoothed(density_draws(kind), points)
    return float(f"{np.max(np.abs(guess - truth)) / np.max(truth):.6g}")


def figure(path: Path) -> None:
    """Draw Figures 1(d) and 1(e): the target's density, FA-LD's law, and kernel estimates."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    law, target = density_law()
    points = around(target)
    side = math.isqrt(len(points))
    drawn = {"1(d): the target": density(target, points)}
    drawn["exact law, 960 rounds"] = density(law, points)
    drawn["1(e): 300 chains, kernel"] = smoothed(density_draws("chains"), points)
    drawn["300 draws of 1(d), kernel"] = smoothed(density_draws("target"), points)
    whole, axes = pyplot.subplots(1, 4, figsize=(10, 2.7), sharex=True, sharey=True)
    levels = np.linspace(0.1, 1.0, 7) * drawn["1(d): the target"].max()
    across, up = (points[:, place].reshape(side, side) for place in (0, 1))
    for axis, (name, values) in zip(axes, drawn.items(), strict=True):
        axis.contourf(across, up, values.reshape(side, side), levels=levels, extend="max")
        axis.set_title(name, fontsize=9)
        axis.tick_params(labelsize=7)
    whole.tight_layout()
    whole.savefig(path, dpi=72)
    pyplot.close(whole)


def privacy_of_a_round() -> dict[str, float]:
    """Return mu of one upload for a record moved by one unit, missing in the paper's figures."""
    return {
        f"K {k} rho {rho:g}": upload_mu(k, rho)
        for rho in (0.0, 0.5, 0.9)
        for k in (1, 10, 100, 1000, 3000)
    }


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
        "figure 1e": {name: density_apart(kind) for name, kind in DENSITIES.items()},
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
        "figure 1e": {
            name: same(kept["figure 1e"][name], density_apart, kind)
            for name, kind in DENSITIES.items()
        },
        CHAINS: {"all of them": same(kept[CHAINS], simulated, 1.0)},
        "mu of an upload": {
            name: same(old, upload_mu, int(name.split()[1]), float(name.split()[3]))
            for name, old in uploads.items()
        },
    }


def agrees(make: Callable[[float], GaussianTarget], alpha: float, k: int, old: object) -> bool:
    """Return whether a cell of Figure 1(a) agrees with the recorded one."""
    return rounds_needed(make(alpha), k) == old


def agrees_in_figure_2(name: str, old: dict[str, float]) -> bool:
    """Return whether a curve of Figure 2 agrees with the recorded one."""
    way, cohort, _, step, _, rho = name.split()
    curve = whole_2(way, None if way == "full" else int(cohort), float(step), float(rho))
    return near(thinned(curve), old, 1e-5, 1e-12)


def check() -> None:
    """Recompute the cheapest cells and compare them with the recorded ones."""
    kept = json.loads(RESULTS.read_text())
    assert kept["run"] == RUN, "the results are of another run"
    assert rounds_needed(paper_target(1.0), 3000) == kept["figure 1a"]["1"]["3000"]
    assert (
        rounds_needed(unequal_target(1.0), 100) == kept["figure 1a, unequal Hessians"]["1"]["100"]
    )
    chain = chain_on(paper_target(0.0), 100, averaging="II", cohort=40)
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
    parser.add_argument("--figure", action="store_true", help="draw Figures 1(d) and 1(e)")
    options = parser.parse_args()
    if options.check:
        check()
    elif options.figure:
        figure(PLOT)
    else:
        if not options.page:
            whole_file(RESULTS, json.dumps(everything(), indent=1) + "\n")
        page(json.loads(RESULTS.read_text()))
