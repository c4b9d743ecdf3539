"""FA-HMC's simulations (Liang et al., Figures 1 and 2) by exact laws, compared with chains.

    python benchmarks/papers/fa_hmc.py            writes results/fa_hmc.json
    python benchmarks/papers/fa_hmc.py --check    recomputes the smallest cells and compares

The laws are ``fedprivacy.reproductions.fa_hmc.simulations``, as of ``fedprivacy papers run``.
Chains on the logistic posterior itself are run for comparison.
"""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from drawn import Cells, Parted, near, redrawn
from scipy.special import expit

from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.fa_hmc.figures import DIMENSIONS, LOCALS, ROUNDS, STEP_SIZES
from fedprivacy.reproductions.fa_hmc.simulations import (
    CHAIN_SEED,
    CLIENTS,
    GRADIENT_STD,
    LOCAL,
    RECORDS,
    RECORDS_SEED,
    SHOWN,
    SQUARED,
    ExpansionLaws,
    LogisticExpansion,
    Marginals,
    chain_of,
    marginal_error,
    marginal_errors,
    rounds_needed,
    rule,
    sampled_error,
    slope,
    target_of,
    tried,
)
from fedprivacy.systems.fa_hmc.law import HamiltonianChain
from fedprivacy.theory.gaussian import point, w2

RESULTS = Path(__file__).parent / "results" / "fa_hmc.json"
SEEDS = {"records": RECORDS_SEED, "one chain": CHAIN_SEED, "1000 chains": 4, "draws of the law": 5}
SEEDS |= {"Metropolis": 6, "200 chains": 8}
RUN = {"data": "made up", "seeds": SEEDS, "rounds of exact laws": list(ROUNDS)}
"""Settings of the runs, as named in the results; each cell has its chains' rounds."""
REACH = 2.0
"""Bound on the distance of two records' gradients: inputs have norm 1, residuals are below 1."""


def figure_2(variance: float) -> dict[str, object]:
    posterior = target_of(variance).law()
    found = {dimension: rounds_needed(variance, dimension) for dimension in DIMENSIONS}
    squares = np.array([float(r or 0) ** 2 for r in found.values()])
    sizes = np.array(DIMENSIONS, float)
    with_log = sizes * np.log(sizes / SQUARED) ** 2
    limits = {
        str(d): d
        * float(w2(chain_of(variance, d).local_round(0).average.stationary(), posterior)) ** 2
        for d in (2, 1000)
    }
    return {
        "posterior": {
            "mean": float(posterior.mean[0]),
            "variance": float(posterior.covariance[0, 0]),
        },
        "rounds": {str(d): r for d, r in found.items()},
        "slope of log(rounds^2) in log d, from d = 50": slope(found),
        "correlation of rounds^2 with d": float(np.corrcoef(sizes, squares)[0, 1]),
        "correlation of rounds^2 with d log(d/0.1)^2": float(np.corrcoef(with_log, squares)[0, 1]),
        "rounds^2 over d log(d/0.1)^2, least and largest from d = 50": [
            float((squares / with_log)[1:].min()),
            float((squares / with_log)[1:].max()),
        ],
        "W2 squared that remains for ever": limits,
    }


def figure_1(dimension: int) -> dict[str, object]:
    """ME for each step size and K, exact and noisy gradients; the best of each method."""
    regression, made = LogisticExpansion(dimension), {}
    for name, std in (("exact gradients", 0.0), ("noisy gradients", GRADIENT_STD)):
        cells = {}
        for step in STEP_SIZES[dimension]:
            every = tried(step)
            cells[f"{step:g}"] = {str(k): marginal_errors(regression, step, k, std) for k in every}
        made[name] = {"step size, K, rounds": cells, "best": best(cells)}
    return made


def best(cells: dict[str, dict[str, dict[str, float]]]) -> dict[str, object]:
    """Return the least ME after each of ROUNDS: FA-LD, FA-HMC by the rule, and K tuned."""

    def least(rounds: str, wanted: object) -> list[object]:
        found = [
            (row[rounds], step, k)
            for step, rows in cells.items()
            for k, row in rows.items()
            if wanted(float(step), int(k))  # type: ignore[operator]
        ]
        return list(min(found))

    ways = {
        "FA-LD": lambda step, k: k == 1,
        "FA-HMC, K = pi / (3 eta)": lambda step, k: k == rule(step),
        "FA-HMC, K tuned": lambda step, k: k > 1,
    }
    return {name: {str(r): least(str(r), wanted) for r in ROUNDS} for name, wanted in ways.items()}


DRAWS = (10, 30, 100, 300, 1000, 3000)
"""Numbers of draws of one chain in Figure 1(c)."""


def figure_1c() -> dict[str, object]:
    """d = 1000, K = 100, eta = 0.01, noisy gradients: ME against T, and one chain's draws' ME."""
    regression = LogisticExpansion(1000)
    return {str(local): averaged(regression, local) for local in LOCALS}


def averaged(regression: LogisticExpansion, local: int) -> dict[str, dict[str, float]]:
    """Return one T of Figure 1(c)."""
    chain = ExpansionLaws(regression, 0.01, 100, GRADIENT_STD, local)
    path = chain.path(DRAWS[-1])
    return {
        "law": {str(r): chain.error(r) for r in SHOWN},
        "one chain's draws": {
            str(n): float(f"{sampled_error(path[:n], regression.law):.4g}") for n in DRAWS
        },
    }


SIMULATED = ((0.05, 1, 100), (0.05, 3, 30), (0.05, 20, 5))
"""Step size, K, rounds."""


def named(step_size: float, leapfrogs: int, total: int) -> str:
    """Return the name of a setting of chains in the results."""
    return f"step {step_size:g}, K {leapfrogs}, {total} rounds"


def simulated(step_size: float, leapfrogs: int, total: int) -> dict[str, object]:
    """1000 chains of Algorithm 3 in d = 10 on the expansion, noisy gradients, and exact laws."""
    from fedprivacy import training

    regression = LogisticExpansion(10)
    loop = training.HamiltonianSampling(
        target=training.GaussianPosterior(target=regression.target, sensitivity=REACH),
        step_size=step_size,
        leapfrog_steps=leapfrogs,
        iterations=LOCAL,
        correlation=1.0,
        gradient_noise_multiplier=GRADIENT_STD / (REACH * CLIENTS),
        chains=1000,
        seed=SEEDS["1000 chains"],
    )
    state = training.train(loop, loop.target, rounds=total).state
    law = ExpansionLaws(regression, step_size, leapfrogs, GRADIENT_STD).law(total)
    return compared(state.positions.numpy(), law, regression.law)


def compared(draws: np.ndarray, law: Marginals, aim: Marginals) -> dict[str, object]:
    """Return the draws' ME, the exact law's, and that of as many draws from the exact law."""
    generator = np.random.default_rng(SEEDS["draws of the law"])
    again = [
        sampled_error(law.mean + law.std * generator.standard_normal(draws.shape), aim)
        for _ in range(400)
    ]
    count = len(draws)
    return {
        "chains": sampled_error(draws, aim),
        "exact law": marginal_error(law, aim),
        "draws of the law, 1 and 99 per cent": np.percentile(again, [1, 99]).tolist(),
        "furthest mean, standard errors": float(
            np.max(np.abs(draws.mean(0) - law.mean) / law.std) * math.sqrt(count)
        ),
        "furthest variance, standard errors": float(
            np.max(np.abs(draws.var(0) / law.std**2 - 1.0)) * math.sqrt(count / 2.0)
        ),
    }


def logistic_target(regression: LogisticExpansion) -> object:
    """The logistic posterior itself, split over the clients; a record's reach is known."""
    import torch
    from torch.nn.functional import logsigmoid

    from fedprivacy import training

    inputs, labels = (torch.from_numpy(part) for part in regression.records)

    def likelihood(at: torch.Tensor, seen: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        return logsigmoid((2.0 * truth - 1.0) * (seen @ at))

    data = training.FederatedData(
        name="logistic",
        features=inputs,
        labels=labels.long(),
        clients=tuple(np.arange(RECORDS).reshape(CLIENTS, -1)),
        test_features=inputs,
        test_labels=labels.long(),
        num_classes=2,
    )
    return training.Posterior(
        model=training.Likelihood(likelihood, regression.dimension),
        data=data,
        prior_precision=1.0,
        own_sensitivity=REACH,
    )


def metropolis(regression: LogisticExpansion, chains: int = 500, kept: int = 20) -> np.ndarray:
    """Draws of the logistic posterior by Hamiltonian Monte Carlo with the accept step."""
    inputs, labels = regression.records
    generator, step, steps = np.random.default_rng(SEEDS["Metropolis"]), 0.04, 8

    def energy(at: np.ndarray) -> np.ndarray:
        scores = at @ inputs.T
        return (at**2).sum(1) / 2.0 + np.logaddexp(0.0, scores).sum(1) - scores @ labels

    def slope(at: np.ndarray) -> np.ndarray:
        return at + (expit(at @ inputs.T) - labels) @ inputs

    at, draws = np.tile(regression.mode, (chains, 1)), []
    for index in range(10 + kept):
        momentum = generator.standard_normal(at.shape)
        moved, pushed = at, momentum - step / 2.0 * slope(at)
        for left in range(steps, 0, -1):
            moved = moved + step * pushed
            pushed = pushed - (step if left > 1 else step / 2.0) * slope(moved)
        before, after = (momentum**2).sum(1) / 2.0, (pushed**2).sum(1) / 2.0
        gain = energy(at) + before - energy(moved) - after
        taken = np.log(generator.random(chains)) < gain
        at = np.where(taken[:, None], moved, at)
        if index >= 10:
            draws.append(at)
    return np.concatenate(draws)


ON_THE_POSTERIOR = ((0.1, 1, 30), (0.05, 3, 30), (0.1, 10, 4))
"""Step size, K, rounds."""


def on_the_posterior() -> dict[str, object]:
    """d = 10, the logistic posterior: ME of 200 chains' positions against Metropolis draws."""
    regression = LogisticExpansion(10)
    truth = np.sort(metropolis(regression), axis=0)
    expanded = Marginals(truth.mean(0), truth.std(0))
    made: dict[str, object] = {"expansion": marginal_error(expanded, regression.law)}
    return made | {named(*one): chains_on(regression, truth, *one) for one in ON_THE_POSTERIOR}


def apart() -> dict[str, float]:
    """Return the distance of the clients' modes from the posterior's, and its width, d = 10."""
    regression = LogisticExpansion(10)
    away = regression.own_modes - regression.mode
    return {
        "clients' modes, mean distance": float(np.linalg.norm(away, axis=1).mean()),
        "mean of clients' modes, distance a coordinate": float(np.abs(away.mean(0)).mean()),
        "standard deviation, mean": float(regression.law.std.mean()),
    }


def chains_on(
    regression: LogisticExpansion, truth: np.ndarray, step: float, leapfrogs: int, total: int
) -> dict[str, object]:
    """Return ME of 200 chains on the logistic posterior, whose sorted draws are given."""
    from fedprivacy import training

    loop = training.HamiltonianSampling(
        target=logistic_target(regression),  # type: ignore[arg-type]
        step_size=step,
        leapfrog_steps=leapfrogs,
        iterations=LOCAL,
        correlation=1.0,
        gradient_noise_multiplier=GRADIENT_STD / (REACH * CLIENTS),
        chains=200,
        seed=SEEDS["200 chains"],
    )
    state = training.train(loop, None, rounds=total).state
    drawn = np.sort(state.positions.numpy(), axis=0)
    wanted = np.quantile(truth, (np.arange(200) + 0.5) / 200, axis=0)
    law = ExpansionLaws(regression, step, leapfrogs, GRADIENT_STD).law(total)
    beside = compared(drawn, law, regression.law)
    return {**beside, "chains": float(np.mean(np.abs(drawn - wanted)))}


PRIVATE = (
    (0.1, 10, 10, 1.0, 0.25, 1),
    (0.1, 10, 10, 1.0, 0.25, 100),
    (0.1, 1, 10, 0.0, 0.0, 1),
    (0.02, 1, 10, 0.0, 0.0, 10),
    (0.02, 1, 10, 0.0, 0.0, 100),
    (0.1, 3, 1, 0.0, 4.0, 10),
    (0.1, 3, 1, 0.0, 8.0, 10),
    (0.1, 3, 1, 0.0, 8.0, 40),
    (0.1, 3, 1, 0.0, 16.0, 40),
)
"""Step size, K, T, rho, noise on gradients in reaches of a record, rounds."""


def privacy() -> list[dict[str, object]]:
    """Return sound epsilons (record level, delta 1e-5) and exact ME, d = 10, noise on gradients."""
    regression = LogisticExpansion(10)
    return [private_row(regression, *cell) for cell in PRIVATE]


def private_row(
    regression: LogisticExpansion,
    step: float,
    leapfrogs: int,
    local: int,
    rho: float,
    noise: float,
    rounds_: int,
) -> dict[str, object]:
    """Return epsilon and ME of one setting."""
    import fedprivacy as fp
    from fedprivacy import training

    loop = training.HamiltonianSampling(
        target=training.GaussianPosterior(target=regression.target, sensitivity=REACH),
        step_size=step,
        leapfrog_steps=leapfrogs,
        iterations=local,
        correlation=rho,
        gradient_noise_multiplier=noise,
    )
    bound = fp.epsilon(loop.run(rounds_), delta=1e-5, adjacency="replace_one")
    law = loop.exact.law(point(np.zeros(10)), rounds_)
    spread = Marginals(law.mean, np.sqrt(np.diag(law.covariance)))
    facts = {"step": step, "K": leapfrogs, "T": local, "rho": rho, "z": noise, "rounds": rounds_}
    ends = [math.floor(1e3 * bound.lower) / 1e3, math.ceil(1e3 * bound.upper) / 1e3]
    return {**facts, "epsilon": ends, "ME": float(f"{marginal_error(spread, regression.law):.4g}")}


PARTS = {
    "variance 4": lambda: figure_2(4.0),
    "variance 2": lambda: figure_2(2.0),
    "figure 1d, d = 10": lambda: figure_1(10),
    "figure 1d, chains": lambda: {named(*one): simulated(*one) for one in SIMULATED},
    "figure 1d, logistic posterior": on_the_posterior,
    "figure 1d, privacy": privacy,
    "figure 1d, clients' modes": apart,
    "figure 1a and 1b, d = 1000": lambda: figure_1(1000),
    "figure 1c, d = 1000": figure_1c,
}


def tables(kept: dict) -> dict[str, Cells]:
    """Return the cells that may be drawn for a check."""
    found: dict[str, dict] = {"figure 2": {}}
    for name, variance in (("variance 4", 4.0), ("variance 2", 2.0)):
        for dimension, old in kept[name]["rounds"].items():
            found["figure 2"][f"{name}, d = {dimension}"] = partial(
                agrees, variance, int(dimension), old
            )
    for figure, dimension in (("figure 1d, d = 10", 10), ("figure 1a and 1b, d = 1000", 1000)):
        found[figure] = {
            f"{name}, step {step}, K {leapfrogs}": partial(
                agrees_in_figure_1, dimension, std, float(step), int(leapfrogs), old
            )
            for name, std in (("exact gradients", 0.0), ("noisy gradients", GRADIENT_STD))
            for step, rows in kept[figure][name]["step size, K, rounds"].items()
            for leapfrogs, old in rows.items()
        }
    return found | by_chains(kept)


def by_chains(kept: dict) -> dict[str, Cells]:
    """Return the cells of Figure 1(c), of the chains and of the private settings for a check."""
    found: dict[str, dict] = {}
    name = "figure 1c, d = 1000"
    found[name] = {
        f"T {local}": partial(agrees_in_figure_1c, int(local), old)
        for local, old in kept[name].items()
    }
    for name, cells, make in (
        ("figure 1d, chains", SIMULATED, simulated),
        ("figure 1d, logistic posterior", ON_THE_POSTERIOR, again_on_the_posterior),
    ):
        found[name] = {
            named(*one): partial(comes_out, partial(make, *one), kept[name][named(*one)])
            for one in cells
        }
    name = "figure 1d, privacy"
    found[name] = {
        f"row {number}": partial(comes_out, partial(private_row, LogisticExpansion(10), *cell), old)
        for number, (cell, old) in enumerate(zip(PRIVATE, kept[name], strict=True))
    }
    return found


def comes_out(make: Callable[[], dict], old: dict) -> bool:
    """Return whether a cell agrees with the recorded one."""
    return near(make(), old, 1e-4)


def again_on_the_posterior(step: float, leapfrogs: int, total: int) -> dict[str, object]:
    """Return a cell of the logistic posterior, with the posterior's draws made again."""
    regression = LogisticExpansion(10)
    truth = np.sort(metropolis(regression), axis=0)
    return chains_on(regression, truth, step, leapfrogs, total)


def agrees_in_figure_1c(local: int, old: dict) -> bool:
    """Return whether a T of Figure 1(c) agrees with the recorded one.

    The chain is drawn along eigenvectors, whose signs depend on the machine. If only its draws
    differ, they are not compared.
    """
    fresh = averaged(LogisticExpansion(1000), local)
    if not near(fresh["law"], old["law"], 2e-3, 1e-9):
        return False
    if not near(fresh["one chain's draws"], old["one chain's draws"], 2e-3):
        raise Parted
    return True


def agrees(variance: float, dimension: int, old: object) -> bool:
    """Return whether a dimension of Figure 2 agrees with the recorded one."""
    return rounds_needed(variance, dimension) == old


def agrees_in_figure_1(
    dimension: int, std: float, step: float, leapfrogs: int, old: dict[str, float]
) -> bool:
    """Return whether a cell of Figure 1 agrees with the recorded one."""
    return near(
        marginal_errors(LogisticExpansion(dimension), step, leapfrogs, std), old, 2e-3, 1e-9
    )


def check() -> None:
    """Recompute the cheapest cells and compare them with the recorded ones."""
    kept = json.loads(RESULTS.read_text())
    assert kept["run"] == RUN, "the results are of another run"
    for name, variance in (("variance 4", 4.0), ("variance 2", 2.0)):
        for dimension in (2, 50, 1000):
            assert rounds_needed(variance, dimension) == kept[name]["rounds"][str(dimension)]
    regression = LogisticExpansion(10)
    compare_with_library(regression)
    old = kept["figure 1d, d = 10"]
    for name, std in (("exact gradients", 0.0), ("noisy gradients", GRADIENT_STD)):
        for step in (0.01, 0.1):
            for leapfrogs, row in old[name]["step size, K, rounds"][f"{step:g}"].items():
                for key, value in marginal_errors(regression, step, int(leapfrogs), std).items():
                    assert math.isclose(value, row[key], rel_tol=2e-3, abs_tol=1e-9)
    step, leapfrogs, total = SIMULATED[0]
    found = simulated(step, leapfrogs, total)["chains"]
    old = kept["figure 1d, chains"][named(*SIMULATED[0])]
    assert math.isclose(found, old["chains"], rel_tol=1e-6)
    low, high = old["draws of the law, 1 and 99 per cent"]
    assert low <= found <= high
    print("fa_hmc: the smallest cells came out as kept")
    assert redrawn(tables(kept)), "a drawn cell differs"


def compare_with_library(regression: LogisticExpansion) -> None:
    """Check that the laws of ``Rounds`` are those of ``HamiltonianChain``."""
    for step, leapfrogs, std in ((0.05, 20, 10.0), (0.05, 1, 0.0), (0.1, 3, 10.0)):
        chain = HamiltonianChain(
            target=regression.target,
            step_size=step,
            leapfrog_steps=leapfrogs,
            iterations=LOCAL,
            correlation=1.0,
            gradient_std=std,
        )
        for count in (1, 7):
            theirs = chain.law(point(np.zeros(regression.dimension)), count)
            ours = ExpansionLaws(regression, step, leapfrogs, std).law(count)
            assert np.allclose(ours.mean, theirs.mean, rtol=1e-9, atol=1e-12)
            assert np.allclose(ours.std**2, np.diag(theirs.covariance), rtol=1e-9)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    options = parser.parse_args()
    if options.check:
        check()
    else:
        made = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for part in PARTS if options.part == "all" else [options.part]:
            made |= {"run": RUN, part: PARTS[part]()}
            whole_file(RESULTS, json.dumps(made, indent=1) + "\n")
            print(part, "done", flush=True)
