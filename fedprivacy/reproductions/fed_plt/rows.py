"""The cells of Fed-PLT's tables: tuning, runs to the target, errors with noise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ...systems.fed_plt.agents import Logistic
from ...systems.fed_plt.loop import FederatedSplitting
from ...systems.fed_plt.solvers import LocalSolver
from ..base import CellRun, Values
from .algorithms import Problem
from .measuring import (
    BOUND,
    REGULARISATION,
    SEED,
    FedPlt,
    accounts,
    asymptotic_errors,
    edges,
    optimum,
    problem_of,
    searches,
    speed,
    summary,
    tuned,
)
from .tables import AGENTS, COSTS, LARGE_COSTS, LOCAL_STEPS, QUICK_RUNS, RUNS, by_cost, slug

TUNING_RUNS = 2
"""Runs for tuning, on data sets that are not measured."""
LARGE_RUNS, LARGE_TUNING_AGENTS = 10, 25
"""With n = 100: runs measured at a time, and agents of the one data set for tuning."""


def time_of(name: str, row: dict[str, Any], gradient: float, communication: float) -> float | None:
    """Return the mean computation time, in thousands; None if no run reaches the target."""
    steps, rounds = row["local_steps"], row["rounds"]
    if rounds is None:
        return None
    if name == "FedLin":
        steps, communication = steps + rounds, 2.0 * communication
    return float((steps * gradient + communication * rounds) * row["agents"] / 1e3)


def recorded(algorithm: Any, rounds: Tensor, steps: Tensor, active: int | None = None) -> Any:
    """Return the record of an algorithm's runs: means over the runs that converge, parameters."""
    return summary(rounds, steps) | {
        "agents": AGENTS if active is None else active,
        "parameters": {
            key: value for key, value in vars(algorithm).items() if isinstance(value, float)
        },
    }


def noisy_loop(penalty: float, variance: float, problem: Problem) -> FederatedSplitting:
    """Return the loop of a row of Table VII."""
    return FederatedSplitting(
        loss=Logistic(regularisation=REGULARISATION, feature_bound=BOUND),
        records=problem.data.records,
        dimension=5,
        penalty=penalty,
        solver=LocalSolver(method="noisy", steps=LOCAL_STEPS, noise_scale=math.sqrt(variance)),
        runs=problem.runs,
        seed=2,
    )


def bounded(problem: Problem) -> tuple[Problem, Tensor]:
    """Return Table VII's problem, with inputs scaled down, and its optimum."""
    scaled = replace(problem, data=problem.data.bounded(BOUND))
    return scaled, optimum(scaled)


# ---- cells


def table_2(job: CellRun) -> Values:
    """Return rounds and time at t_C = 10 of one algorithm; also for Tables IV and VI."""
    name = job.cell.settings["algorithm"]
    row = _row(job, **job.cell.settings)
    return {"time": time_of(name, row, 1.0, 10.0), **_rounds(row)}


def table_3(job: CellRun) -> Values:
    """Return the time of one algorithm by the cost of a communication."""
    name = job.cell.settings["algorithm"]
    row = _row(job, **job.cell.settings)
    return _times(name, row, 1.0, COSTS) | _rounds(row)


def table_5(job: CellRun) -> Values:
    """Return the same in 100 dimensions, at t_G = 20."""
    name = job.cell.settings["algorithm"]
    row = _row(job, **job.cell.settings)
    return _times(name, row, 20.0, LARGE_COSTS) | _rounds(row)


def table_7(job: CellRun) -> Values:
    """Return errors with noise of one variance, and epsilon printed and certified."""
    variance, penalty = job.cell.settings["variance"], _tuned(job)["penalty"]
    problem, best = bounded(_problem("convex", 5, _runs(job), _seed(job)))
    errors = asymptotic_errors(noisy_loop(penalty, variance, problem), problem, best)
    found: Values = {
        "error of all models": errors["all_models"],
        "error of the mean model": errors["mean_model"],
    }
    for row in accounts(variance, penalty):
        found[f"epsilon of Proposition 4, K = {row['rounds']}"] = row["published"]
        found[f"certified epsilon, K = {row['rounds']}"] = row["sound"]
    return found


def table_8(job: CellRun) -> Values:
    """Return rounds and time of Fed-PLT with one penalty."""
    row = _measured(job, FedPlt(job.cell.settings["penalty"]))
    return {"time": time_of("Fed-PLT", row, 1.0, 10.0), **_rounds(row)}


def table_9(job: CellRun) -> Values:
    """Return the time of Fed-PLT with one number of local steps, tuned for five."""
    settings = _tuned(job)
    row = _measured(job, FedPlt(**settings, local_steps=job.cell.settings["local_steps"]))
    return _times("Fed-PLT", row, 1.0, COSTS) | _rounds(row)


def _runs(job: CellRun) -> int:
    return QUICK_RUNS if job.quick else RUNS


def _seed(job: CellRun) -> int:
    return SEED + 1_000_000 * (job.seed - 1)


def _times(name: str, row: dict[str, Any], gradient: float, costs: tuple[float, ...]) -> Values:
    return dict(by_cost(costs, [time_of(name, row, gradient, cost) for cost in costs]))


def _rounds(row: dict[str, Any]) -> Values:
    """Return the rounds, and the parameters whose best value is at an end of the range."""
    found: Values = {"rounds": row["rounds"], "rounds, standard deviation": row["rounds_sd"]}
    found["runs that reach the target"] = row["converged"]
    for name in row.get("edges", ()):
        found[f"{name}, at an end of its range"] = row["parameters"][name]
    return found


@cache
def _problem(kind: str, dimension: int, runs: int, seed: int, agents: int = AGENTS) -> Problem:
    return problem_of(kind, dimension, runs, seed, agents)


def _row(
    job: CellRun, algorithm: str, kind: str, dimension: int, active: int | None
) -> dict[str, Any]:
    """Return the runs of an algorithm, with the parameters tuned for them."""
    label = f"{slug(algorithm)}-{kind}-{dimension}-{active or AGENTS}"
    make, ranges = searches(kind, active)[algorithm]

    def tuning() -> dict[str, float]:
        runs, agents = (1, LARGE_TUNING_AGENTS) if dimension > 5 else (TUNING_RUNS, AGENTS)
        problem = _problem(kind, dimension, runs, _seed(job) + 1, agents)
        best = tuned(make, ranges, problem, lambda share: job.tick(0.7 * share))
        return {name: getattr(best, name) for name in ranges}

    made = make(**job.kept(f"tuned-{label}", tuning))

    def measure() -> Any:
        if dimension > 5:
            return _in_parts(job, label, made)
        found = speed(made, _problem(kind, dimension, _runs(job), _seed(job)), seed=_seed(job))
        return recorded(made, found.rounds, found.local_steps, active)

    row: dict[str, Any] = job.kept(f"runs-{label}", measure)
    return row | {"edges": edges(ranges, row["parameters"])}


def _in_parts(job: CellRun, label: str, algorithm: Any) -> Any:
    """Return the runs in 100 dimensions, ten at a time: all of them need 20 GB of memory."""
    parts, count = [], _runs(job) // LARGE_RUNS
    for number in range(count):
        part = partial(_part, algorithm, _seed(job) + 100 * number)
        parts.append(job.kept(f"part-{number}-{label}", part))
        job.tick(0.7 + 0.3 * (number + 1) / count)
    # A run that does not reach the target has no number of rounds.
    rounds, steps = (
        torch.tensor([math.inf if one is None else one for part in parts for one in part[at]])
        for at in (0, 1)
    )
    return recorded(algorithm, rounds, steps)


def _part(algorithm: Any, seed: int) -> list[list[float | None]]:
    found = speed(algorithm, problem_of("convex", 100, LARGE_RUNS, seed), seed=seed)
    rounds = [one if math.isfinite(one) else None for one in found.rounds.tolist()]
    return [rounds, found.local_steps.tolist()]


def _tuned(job: CellRun) -> dict[str, Any]:
    """Return Fed-PLT's parameters as tuned for Table II."""
    parameters = _row(job, "Fed-PLT", "convex", 5, None)["parameters"]
    return {name: parameters[name] for name in ("penalty", "step_share")}


def _measured(job: CellRun, algorithm: FedPlt) -> dict[str, Any]:
    problem = _problem("convex", 5, _runs(job), _seed(job))
    found = speed(algorithm, problem, seed=_seed(job))
    row: dict[str, Any] = recorded(algorithm, found.rounds, found.local_steps)
    return row
