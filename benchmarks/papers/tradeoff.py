"""The privacy of every point in FA-LD's, FA-HMC's and Fed-PLT's figures, with its accuracy.

    python benchmarks/papers/tradeoff.py                 writes results/tradeoff.json (minutes)
    python benchmarks/papers/tradeoff.py --check         recomputes the smallest cells and compares
    python benchmarks/papers/tradeoff.py --figures DIR   draws the results, as PNG
    python benchmarks/papers/simulated_page.py           writes its tables on the pages

FA-LD: the targets of Figures 1 and 2, the step size 1e-7 and given total steps T, over K and rho.
All records, a neighbour's included, lie in an ellipse of ``REACH`` standard deviations around 0.
FA-HMC: the same targets, over step size, K, T, rounds and the noise on gradients, which determines
the privacy for K > 1. For every K it keeps the settings that are Pareto-optimal in W2 and epsilon.
Fed-PLT: Table VII's noise levels, N = 100 agents, n = 5, 250 records, N_e = 5.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Callable
from decimal import ROUND_CEILING
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from drawn import Cells, near, redrawn

import fedprivacy as fp
from fedprivacy.bound import shown
from fedprivacy.outputs import whole_file
from fedprivacy.papers.fa_ld.grid import langevin_settings
from fedprivacy.papers.fed_plt.grid import Regression
from fedprivacy.reproductions.fa_ld.simulations import (
    CLIENTS,
    SEEDS,
    SPREAD,
    START,
    STEP,
    paper_target,
    records,
    unequal_target,
)
from fedprivacy.systems.fa_hmc.law import HamiltonianChain
from fedprivacy.systems.fa_ld.law import GaussianTarget, LangevinChain, transcript_gdp
from fedprivacy.systems.fed_plt.bounds import asymptotic_error, convergence, local_noise
from fedprivacy.theory.gaussian import epsilon as gaussian_epsilon
from fedprivacy.theory.gaussian import w2
from fedprivacy.theory.splitting_privacy import PrivateSplitting, attained

RESULTS = Path(__file__).parent / "results" / "tradeoff.json"
DELTA = 1e-5
ASK: dict[str, Any] = {"delta": DELTA, "adjacency": "replace_one", "observer": "server"}
REACH = {0.0: 5.0, 1.0: 9.0}
"""alpha -> largest distance of a record from 0, in standard deviations."""

TARGETS = {
    "paper, alpha 0": (paper_target, 0.0),
    "paper, alpha 1": (paper_target, 1.0),
    "unequal, alpha 1": (unequal_target, 1.0),
}
TOTALS, LOCAL, CORRELATIONS = (1000, 3000, 10_000, 30_000), (1, 10, 100, 1000), (0.0, 0.5, 0.9)
BUDGETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)

GRID: dict[str, tuple[Any, ...]] = {
    "rounds": (1, 3, 10, 30, 100, 300, 1000),
    "step_size": (3e-8, 1e-7, 3e-7, 1e-6, 3e-6),
    "correlation": (0.0, 0.5),
    "local_steps": (1, 10, 100, 1000),
    "temperature": (1.0, 2.0, 5.0),
}
"""Settings of FA-LD in the search within a budget."""

LEAPFROG, ITERATIONS, HMC_ROUNDS = (1, 3, 10), (1, 10, 100), (1, 10, 100)
ETAS = tuple(math.sqrt(2.0 * step) for step in (1e-7, 3e-7, 1e-6, 3e-6))
NOISES = (0.0, 1.0, 10.0, 30.0)
"""FA-HMC's grid: K, T, rounds, step sizes, and z, the noise on gradients in reaches of a record."""

LEAST = {"rounds": 1, "correlation": 0.0, "local_steps": 1, "T": 1, "z": 0.0}
"""Lower limits of parameters: a best value at a limit is not at an edge."""

HMC_TARGETS = ("paper, alpha 0", "unequal, alpha 1")

VARIANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
AGENTS, DIMENSION, HELD, LOCAL_STEPS, CONVEXITY = 100, 5, 250, 5, 0.5
SPLITTINGS = {"feature norm 10": (10.0, 0.322), "feature norm 2": (2.0, 1.0)}
"""name -> bound on an input's norm, penalty."""

ROUNDS, RUNS = (10, 100, 1000), 5
RUN = {
    "data": "made up",
    "seeds": {"records of FA-LD and FA-HMC": SEEDS["records"], "records of Fed-PLT": 20240913}
    | {"runs of Fed-PLT": 2},
    "runs": RUNS,
    "rounds": {"FA-LD": list(TOTALS), "FA-HMC": list(HMC_ROUNDS), "Fed-PLT": list(ROUNDS)},
}
"""Settings of the runs, as named in the results; FA-LD's and FA-HMC's laws are exact."""


def sensitivity(alpha: float) -> float:
    """Return the largest distance of two records' gradients S^-1 x: 2 REACH |S^(-1/2)|."""
    return 2.0 * REACH[alpha] * math.sqrt(float(np.linalg.norm(np.linalg.inv(SPREAD), 2)))


def sensitivities(target: GaussianTarget, alpha: float) -> list[float]:
    """Return one for each client; a client with four times the spread has a fourth."""
    scales = target.hessians[:, 0, 0] / target.hessians[0, 0, 0]
    return [float(sensitivity(alpha) * scale) for scale in scales]


def width(target: GaussianTarget) -> float:
    """Return a target's total standard deviation: W2 of a point at its mean."""
    return math.sqrt(float(np.trace(target.law().covariance)))


def exact_mu(chain: LangevinChain, alpha: float, rounds: int) -> float:
    """Return the exact mu of the transcript for a record of this quadratic problem, its worst pair.

    mu^2 is a sum over the eigenvectors of S^-1, with eigenvalues l. The terms are weights that do
    not depend on the records times the squared parts of the difference. The ellipse bounds these by
    sum part^2 / l <= (2 REACH)^2. So the worst difference lies along one eigenvector.
    """
    values, vectors = np.linalg.eigh(np.linalg.inv(SPREAD))
    mus = []
    for client in (0, 1):
        scale = chain.target.hessians[client][0, 0] / chain.target.hessians[0][0, 0]
        for value, vector in zip(values, vectors.T, strict=True):
            change = scale * 2.0 * REACH[alpha] * math.sqrt(value) * vector
            mus.append(transcript_gdp(chain, client=client, difference=change, rounds=rounds))
    return max(mus)


def edges(grid: dict[str, tuple[Any, ...]], setting: dict[str, Any]) -> list[str]:
    """Return the parameters whose best value lies at an end of the tried range."""
    return [name for name, tried in grid.items() if setting[name] in _ends(tried, LEAST.get(name))]


def _ends(tried: tuple[Any, ...], least: float | None) -> set[Any]:
    return {min(tried), max(tried)} - {least}


def figure_1() -> dict[str, list[dict[str, float]]]:
    """Epsilon and W2 over T, K and rho."""
    made = {}
    for name, (make, alpha) in TARGETS.items():
        target = make(alpha)
        made[name] = [
            row
            for total in TOTALS
            for steps in sorted({k for k in LOCAL if total % k == 0} | {total})
            for row in at_total(target, alpha, total, steps)
        ]
    return made


def at_total(
    target: GaussianTarget, alpha: float, total: int, steps: int
) -> list[dict[str, float]]:
    """Return one row for each rho."""
    rounds, rows = total // steps, []
    settings = langevin_settings(
        target,
        gradient_sensitivity=sensitivities(target, alpha),
        rounds=rounds,
        step_size=STEP,
        correlation=CORRELATIONS,
        local_steps=steps,
    )
    for label, (run, costs) in settings:
        rho = label["correlation"]
        chain = LangevinChain(target=target, step_size=STEP, local_steps=steps, correlation=rho)
        exact = gaussian_epsilon(exact_mu(chain, alpha, rounds), DELTA)
        certified = fp.epsilon(run, **ASK).upper
        assert exact <= certified
        row = {"T": total, "K": steps, "rho": rho, "exact": exact, "w2": costs["w2"]}
        six = {key: float(f"{v:.6g}") for key, v in row.items()}
        rows.append({**six, "epsilon": raised(certified)})
    return rows


def raised(epsilon: float) -> float:
    """Return a certified upper end, rounded up to six digits."""
    return float(shown(epsilon, 6, ROUND_CEILING))


COHORTS: dict[str, tuple[int | None, ...]] = {"I": (30, 40), "II": (30, 40, None)}
"""Cohorts by scheme; None means all clients."""


def figure_2() -> list[dict[str, Any]]:
    """Return rows with cohorts, K = 100, T = 10,000, alpha = 0: W2 of the moments, and at most."""
    sizes = (STEP, 0.1 * STEP)
    return [
        row
        for way, cohorts in COHORTS.items()
        for row in with_cohorts(way, cohorts, sizes, CORRELATIONS)
    ]


def with_cohorts(
    way: str,
    cohorts: tuple[int | None, ...],
    sizes: tuple[float, ...],
    correlations: tuple[float, ...],
) -> list[dict[str, Any]]:
    """Return rows of Figure 2 for one scheme."""
    settings = langevin_settings(
        paper_target(0.0),
        gradient_sensitivity=sensitivity(0.0),
        rounds=100,
        step_size=sizes,
        correlation=correlations,
        local_steps=100,
        cohort=cohorts,
        averaging=way,
    )
    return [
        {
            "scheme": label.get("scheme", way if "cohort" in label else "full"),
            **{key: label[key] for key in ("step_size", "correlation")},
            "cohort": label.get("cohort", CLIENTS),
            "epsilon": raised(fp.epsilon(run, **ASK).upper),
            "w2": float(f"{costs['w2']:.6g}"),
            "w2_at_most": float(f"{costs['w2_at_most']:.6g}"),
        }
        for label, (run, costs) in settings
    ]


def hamiltonian_grid(leapfrog: int) -> dict[str, tuple[Any, ...]]:
    """Return the grid: one leapfrog step is private by momentum, more only by gradient noise."""
    noises = NOISES if leapfrog == 1 else NOISES[1:]
    return {"eta": ETAS, "T": ITERATIONS, "rounds": HMC_ROUNDS, "z": noises}


def hamiltonian(name: str, leapfrog: int) -> list[dict[str, float]]:
    """Return FA-HMC's Pareto-optimal settings in epsilon and W2, with K leapfrog steps."""
    make, alpha = TARGETS[name]
    target = make(alpha)
    reach, limit = max(sensitivities(target, alpha)), 2.0 / math.sqrt(target.smoothness)
    rows = [
        hamiltonian_row(target, reach, eta, leapfrog, iterations, rounds, noise)
        for eta in ETAS
        for iterations in ITERATIONS
        for rounds in HMC_ROUNDS
        for noise in hamiltonian_grid(leapfrog)["z"]
        if eta < limit
    ]
    rows.sort(key=lambda row: (row["epsilon"], row["w2"]))
    kept: list[dict[str, float]] = []
    for row in rows:
        if not kept or row["w2"] < kept[-1]["w2"]:
            kept.append(row)
    return kept


def hamiltonian_row(
    target: GaussianTarget,
    reach: float,
    eta: float,
    leapfrog: int,
    iterations: int,
    rounds: int,
    noise: float,
) -> dict[str, float]:
    """Return epsilon and W2 of one setting: the account uses the noise of the law."""
    client = fp.FederatedHamiltonian(
        step_size=eta,
        leapfrog_steps=leapfrog,
        iterations=iterations,
        correlation=0.0,
        weight=1.0 / CLIENTS,
        batch_fraction=1.0,
        gradient_sensitivity=reach,
        gradient_noise_multiplier=noise,
    )
    chain = HamiltonianChain(
        target=target,
        step_size=eta,
        leapfrog_steps=leapfrog,
        iterations=iterations,
        correlation=0.0,
        gradient_std=client.gradient_noise_std,
    )
    apart = float(w2(chain.law(START, rounds), target.law()))
    facts = {"eta": eta, "K": leapfrog, "T": iterations, "rounds": rounds, "z": noise}
    epsilon = raised(fp.epsilon(client * rounds, **ASK).upper)
    return {**facts, "w2": float(f"{apart:.6g}"), "epsilon": epsilon}


def searched(name: str) -> dict[str, Any]:
    """Return for each budget the smallest W2 over step size, K, rounds and temperature."""
    make, alpha = TARGETS[name]
    target = make(alpha)
    settings = langevin_settings(
        target,
        gradient_sensitivity=sensitivities(target, alpha),
        **GRID,
    )
    found = fp.pareto(settings, **ASK)
    best = {f"{budget:g}": found.best("w2", epsilon=budget) for budget in BUDGETS}
    return {
        budget: None if one is None else {**one.label, "epsilon": one.epsilon, "w2": one.cost("w2")}
        for budget, one in best.items()
    }


def splitting(bound: float, penalty: float, variance: float, rounds: int) -> fp.SplittingRun:
    """Regularised logistic regression with inputs of at most this norm, gamma the fastest."""
    smoothness = CONVEXITY + 0.25 * bound**2
    return fp.SplittingRun(
        sensitivity=2.0 * bound / HELD,
        strong_convexity=CONVEXITY,
        smoothness=smoothness,
        penalty=penalty,
        step_size=2.0 / (CONVEXITY + smoothness + 2.0 / penalty),
        noise_scale=math.sqrt(variance),
        local_steps=LOCAL_STEPS,
        rounds=rounds,
    )


def epsilons(run: fp.SplittingRun) -> dict[str, Any]:
    """Return certified epsilons for the coordinator and the final models, and the published one."""
    setting, wrong = dataclasses.asdict(run), 1e-6 * DELTA
    pair = attained(PrivateSplitting(**setting), "final", wrong)
    claims = {
        seen: fp.published.fed_plt_proposition_4(**setting, delta=DELTA, observer=seen)
        for seen in ("server", "final")
    }
    return {
        "server": fp.epsilon(run, **ASK).upper,
        "final models": fp.epsilon(run, **{**ASK, "observer": "final"}).upper,
        "final models at least": gaussian_epsilon(pair.mu, DELTA + wrong),
        "published": claims["server"].epsilon,
        "verdicts": {seen: str(claim.verdict) for seen, claim in claims.items()},
    }


def predicted_error(run: fp.SplittingRun) -> float | None:
    """Return the bound on the error of all models; None if the rounds may not converge."""
    shape: dict[str, Any] = {
        "strong_convexity": run.strong_convexity,
        "smoothness": run.smoothness,
        "penalty": run.penalty,
        "local_steps": run.local_steps,
        "step_size": run.step_size,
    }
    rate = convergence(**shape)
    if not rate.stable:
        return None
    noise = local_noise(**shape, noise_scale=run.noise_scale, coordinates=AGENTS * DIMENSION)
    return asymptotic_error(rate, noise)


def measured_errors(bound: float, penalty: float, variance: float) -> dict[str, float]:
    """Distances to the optimum, means over rounds 41 to 60 and some runs."""
    import torch
    from fed_plt import asymptotic_errors, optimum, random_data

    from fedprivacy.reproductions.fed_plt.algorithms import Problem
    from fedprivacy.training import FederatedSplitting, LocalSolver, Logistic

    torch.set_num_threads(1)
    data = random_data(RUNS, DIMENSION, RUN["seeds"]["records of Fed-PLT"]).bounded(bound)
    problem = Problem(Logistic(regularisation=CONVEXITY), data, RUNS)
    run = splitting(bound, penalty, variance, 1)
    loop = FederatedSplitting(
        loss=Logistic(regularisation=CONVEXITY, feature_bound=bound),
        records=data.records,
        dimension=DIMENSION,
        penalty=penalty,
        solver=LocalSolver(
            method="noisy",
            steps=LOCAL_STEPS,
            noise_scale=run.noise_scale,
            step_size=run.step_size,
        ),
        runs=RUNS,
        seed=RUN["seeds"]["runs of Fed-PLT"],
    )
    return asymptotic_errors(loop, problem, optimum(problem))


def table_vii() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, (bound, penalty) in SPLITTINGS.items():
        for variance in VARIANCES:
            run = splitting(bound, penalty, variance, 1)
            made.setdefault(name, {})[f"{variance:g}"] = {
                "measured": measured_errors(bound, penalty, variance),
                "predicted": predicted_error(run),
                "rounds": {
                    str(rounds): epsilons(splitting(bound, penalty, variance, rounds))
                    for rounds in ROUNDS
                },
            }
            print(name, variance, flush=True)
    return made


def all_hamiltonian() -> dict[str, dict[str, list[dict[str, float]]]]:
    """FA-HMC's settings of every target and K."""
    return {name: {str(k): hamiltonian(name, k) for k in LEAPFROG} for name in HMC_TARGETS}


def everything() -> dict[str, Any]:
    for alpha, reach in REACH.items():
        held = np.concatenate(records(alpha))
        assert np.einsum("ni,ij,nj->n", held, np.linalg.inv(SPREAD), held).max() <= reach**2
    return {
        "run": RUN,
        "setting": {
            "delta": DELTA,
            "step": STEP,
            "start": START.mean.tolist(),
            "reach": {str(alpha): reach for alpha, reach in REACH.items()},
            "gradient sensitivity": {str(alpha): sensitivity(alpha) for alpha in REACH},
            "splitting": {name: list(values) for name, values in SPLITTINGS.items()},
            "standard deviation": {name: width(make(a)) for name, (make, a) in TARGETS.items()},
        },
        "figure 1": figure_1(),
        "figure 2": figure_2(),
        "best": {name: searched(name) for name in TARGETS},
        "FA-HMC": all_hamiltonian(),
        "table VII": table_vii(),
        "choices": choices(),
    }


@dataclasses.dataclass(frozen=True)
class PaperProblem:
    """The problem of Figure 1 for ``fp.choose``."""

    target: GaussianTarget
    gradient_sensitivity: float


CHOSEN_K, CHOSEN_VARIANCES = (10, 100, 1000), (0.01, 0.1, 1.0)
"""Local steps of FA-LD at T = 10,000, and Fed-PLT's noise at norm 2 and 100 rounds."""


def choices() -> list[dict[str, Any]]:
    """Compare ``fp.choose`` with the papers' settings at the same certified epsilon."""
    langevin = [chosen_langevin(steps) for steps in CHOSEN_K]
    return langevin + [chosen_splitting(variance) for variance in CHOSEN_VARIANCES]


def chosen_langevin(steps: int) -> dict[str, Any]:
    """Return the comparison for one K of FA-LD's Figure 1, alpha = 0, rho = 0."""
    setting = {"step_size": STEP, "local_steps": steps, "rounds": 10_000 // steps}
    setting |= {"temperature": 1.0, "correlation": 0.0}
    problem = PaperProblem(paper_target(0.0), sensitivity(0.0))
    ((_, (run, costs)),) = langevin_settings(
        problem.target, gradient_sensitivity=problem.gradient_sensitivity, **setting
    )
    return compared("fa-ld", setting, run, costs["w2"], problem)


def chosen_splitting(variance: float) -> dict[str, Any]:
    """Return the comparison for one noise of Fed-PLT's Table VII, by the bound on the error."""
    bound, penalty = SPLITTINGS["feature norm 2"]
    run = splitting(bound, penalty, variance, 100)
    error = predicted_error(run)
    assert error is not None
    setting = {"penalty": penalty, "local_steps": LOCAL_STEPS, "noise_scale": run.noise_scale}
    problem = Regression(feature_bound=bound)
    return compared("fed-plt", {**setting, "rounds": 100}, run, error, problem)


def compared(
    system: str, setting: dict[str, Any], run: fp.Mechanism, error: float, problem: Any
) -> dict[str, Any]:
    """Return a paper's setting, the setting that ``fp.choose`` finds, and both errors."""
    epsilon = fp.epsilon(run, **ASK).upper
    # No limit on the time, so that the result is the same on any machine.
    found = fp.choose(
        system, epsilon=epsilon, delta=DELTA, problem=problem, observer="server", deadline=1e6
    )
    assert found.bound.upper <= epsilon
    return {
        "system": system,
        "setting": setting,
        "epsilon": raised(epsilon),
        "error": float(f"{error:.4g}"),
        "chosen": found.settings,
        "chosen error": float(f"{found.cost:.4g}"),
        "at an edge": list(found.edges),
        "factor": float(f"{error / found.cost:.3g}"),
    }


PARTS: dict[str, Callable[[], Any]] = {
    "FA-HMC": all_hamiltonian,
    "table VII": table_vii,
    "choices": choices,
}
"""Parts that may be computed separately."""


def tables(kept: dict[str, Any]) -> dict[str, Cells]:
    """Return the cells that may be drawn for a check."""
    first = {
        f"{name}, T {row['T']:g}, K {row['K']:g}": partial(
            agrees, kept, name, int(row["T"]), int(row["K"])
        )
        for name in TARGETS
        for row in kept["figure 1"][name]
    }
    seventh = {
        f"{name}, tau^2 {variance}, K {rounds}": partial(
            agrees_in_table_vii, name, float(variance), int(rounds), old
        )
        for name in SPLITTINGS
        for variance, row in kept["table VII"][name].items()
        for rounds, old in row["rounds"].items()
    }
    moved = {
        f"{name}, K {leapfrog}, row {number}": partial(agrees_in_hamiltonian, name, row)
        for name in HMC_TARGETS
        for leapfrog in LEAPFROG
        for number, row in enumerate(kept["FA-HMC"][name][str(leapfrog)])
    }
    second = {
        f"row {number}": partial(agrees_in_figure_2, row)
        for number, row in enumerate(kept["figure 2"])
    }
    best = {name: partial(agrees_in_budgets, name, old) for name, old in kept["best"].items()}
    errors = {
        f"{name}, tau^2 {variance}": partial(agrees_in_errors, name, float(variance), row)
        for name in SPLITTINGS
        for variance, row in kept["table VII"][name].items()
    }
    found = {"figure 1": first, "figure 2": second, "budgets": best, "FA-HMC": moved}
    return {**found, "table VII": seventh, "table VII, errors": errors}


def agrees(kept: dict[str, Any], name: str, total: int, steps: int) -> bool:
    """Return whether rows of Figure 1 reproduce."""
    make, alpha = TARGETS[name]
    old = [row for row in kept["figure 1"][name] if (row["T"], row["K"]) == (total, steps)]
    return near(at_total(make(alpha), alpha, total, steps), old, 1e-5)


def agrees_in_figure_2(row: dict[str, Any]) -> bool:
    """Return whether a row of Figure 2 reproduces."""
    way = "II" if row["scheme"] == "full" else row["scheme"]
    fresh = with_cohorts(way, COHORTS[way], (row["step_size"],), (row["correlation"],))
    return any(near(one, row, 1e-5) for one in fresh)


def agrees_in_budgets(name: str, old: dict[str, Any]) -> bool:
    """Return whether a target's best settings are found again."""
    return near(searched(name), old, 1e-5)


def agrees_in_errors(name: str, variance: float, row: dict[str, Any]) -> bool:
    """Return whether Table VII's errors, measured and predicted, reproduce."""
    bound, penalty = SPLITTINGS[name]
    fresh = measured_errors(bound, penalty, variance)
    predicted = predicted_error(splitting(bound, penalty, variance, 1))
    return near(fresh, row["measured"], 1e-3) and near(predicted, row["predicted"], 1e-5)


def agrees_in_hamiltonian(name: str, row: dict[str, Any]) -> bool:
    """Return whether a setting of FA-HMC reproduces."""
    make, alpha = TARGETS[name]
    target = make(alpha)
    facts = (row["eta"], int(row["K"]), int(row["T"]), int(row["rounds"]), row["z"])
    return near(hamiltonian_row(target, max(sensitivities(target, alpha)), *facts), row, 1e-5)


def agrees_in_table_vii(name: str, variance: float, rounds: int, old: dict[str, Any]) -> bool:
    """Return whether a row of Table VII reproduces."""
    bound, penalty = SPLITTINGS[name]
    return near(epsilons(splitting(bound, penalty, variance, rounds)), old, 1e-5)


def check() -> None:
    """Recompute the cheapest cells and compare them with the recorded ones."""
    kept = json.loads(RESULTS.read_text())
    assert kept["run"] == RUN, "the results are of another run"
    for name in ("paper, alpha 0", "unequal, alpha 1"):
        make, alpha = TARGETS[name]
        fresh = at_total(make(alpha), alpha, 1000, 100)
        old = [r for r in kept["figure 1"][name] if (r["T"], r["K"]) == (1000, 100)]
        same(fresh, old)
    for name, (bound, penalty) in SPLITTINGS.items():
        same(
            epsilons(splitting(bound, penalty, 1e-2, 10)),
            kept["table VII"][name]["0.01"]["rounds"]["10"],
        )
    fresh = measured_errors(*SPLITTINGS["feature norm 2"], 1e-2)
    same(fresh, kept["table VII"]["feature norm 2"]["0.01"]["measured"], 1e-3)
    print("tradeoff: the smallest cells came out as kept")
    assert redrawn(tables(kept)), "a drawn cell differs"


def same(fresh: Any, old: Any, tolerance: float = 1e-5) -> None:
    if isinstance(fresh, list):
        assert len(fresh) == len(old), (fresh, old)
        for one, other in zip(fresh, old, strict=True):
            same(one, other, tolerance)
    elif isinstance(fresh, dict):
        assert fresh.keys() == old.keys(), (fresh, old)
        for key, value in fresh.items():
            same(value, old[key], tolerance)
    elif isinstance(fresh, float):
        assert math.isclose(fresh, old, rel_tol=tolerance), (fresh, old)
    else:
        assert fresh == old, (fresh, old)


def draw(folder: Path) -> None:
    """Draw epsilon against W2 at rho = 0, and epsilon against Fed-PLT's error."""
    from matplotlib.figure import Figure

    kept = json.loads(RESULTS.read_text())
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True, sharex=True)
    for axes, (name, rows) in zip(panels, kept["figure 1"].items(), strict=True):
        for colour, steps in zip(("C0", "C1", "C2", "C3", "C4"), (*LOCAL, None), strict=True):
            chosen = [
                row
                for row in rows
                if row["rho"] == 0.0 and row["K"] == (row["T"] if steps is None else steps)
            ]
            w2 = [row["w2"] for row in chosen]
            style: dict[str, Any] = {"marker": "o", "markersize": 3, "color": colour}
            certified, exact = ([row[key] for row in chosen] for key in ("epsilon", "exact"))
            axes.loglog(certified, w2, "-", label=f"K = {steps or 'T'}", **style)
            axes.loglog(exact, w2, ":", **style)
        axes.set(title=name, xlabel="epsilon")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("W2")
    panels[2].plot([], [], ":", color="0.3", label="exact")
    panels[2].legend(fontsize=7, loc="lower left")
    figure.savefig(folder / "tradeoff_fa_ld.png", dpi=72)
    draw_hamiltonian(kept, folder)
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True, sharex=True)
    for axes, (name, rows) in zip(panels, kept["table VII"].items(), strict=True):
        errors = [row["measured"]["all_models"] for row in rows.values()]
        for what, line in (("server", "-"), ("final models", "--"), ("published", ":")):
            for rounds, colour in zip(ROUNDS, ("C0", "C1", "C2"), strict=True):
                at = [row["rounds"][str(rounds)][what] for row in rows.values()]
                axes.loglog(at, errors, line, color=colour, label=f"{what}, K = {rounds}")
        axes.set(title=name, xlabel="epsilon")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("distance of all models to the optimum")
    handles, words = panels[0].get_legend_handles_labels()
    figure.legend(handles, words, fontsize=7, loc="outside right upper", frameon=False)
    figure.savefig(folder / "tradeoff_fed_plt.png", dpi=72)


def draw_hamiltonian(kept: dict[str, Any], folder: Path) -> None:
    """Draw FA-HMC's smallest W2 within a certified epsilon, for every K."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True, sharex=True)
    for axes, name in zip(panels, HMC_TARGETS, strict=True):
        for colour, leapfrog in zip(("C0", "C1", "C2"), LEAPFROG, strict=True):
            rows = [row for row in kept["FA-HMC"][name][str(leapfrog)] if row["epsilon"] < 1e3]
            epsilons, distances = ([row[key] for row in rows] for key in ("epsilon", "w2"))
            axes.step(epsilons, distances, where="post", color=colour, label=f"K = {leapfrog}")
        axes.set(title=name, xlabel="certified epsilon", xscale="log", yscale="log")
        axes.set_xlim(0.1, 1e3)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("W2")
    panels[1].legend(fontsize=8, loc="upper right")
    figure.savefig(folder / "tradeoff_fa_hmc.png", dpi=72)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=list(PARTS), help="compute this part, leave the rest")
    parser.add_argument("--figures", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.check:
        check()
    elif options.figures is not None:
        draw(options.figures)
    elif options.only:
        kept = json.loads(RESULTS.read_text()) | {options.only: PARTS[options.only]()}
        whole_file(RESULTS, json.dumps(kept, indent=1) + "\n")
    else:
        whole_file(RESULTS, json.dumps(everything(), indent=1) + "\n")


if __name__ == "__main__":
    main()
