"""FA-HMC's section 5.2 (Liang et al., Figure 2) exactly: does rounds squared grow linearly in d?

    python benchmarks/papers/fa_hmc.py            writes results/fa_hmc.json
    python benchmarks/papers/fa_hmc.py --check    recomputes the smallest cells and compares

Half of the nodes have N(20 1_d, I_d), the other half N(1_d, v I_d). The paper prints 2 I_d for the
second and N(16.2 1_d, 1.6 I_d) for the whole posterior, which is what v = 4 gives (standard
deviation 2); v = 2 gives N(13.67, 1.33). Both are run. The start, which the paper leaves out, is 0;
the momentum is the same everywhere (rho = 1). Coordinates are alike and independent, so one
coordinate to W2 = sqrt(0.1 / d) is d of them to W2^2 = 0.1.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np

from fedprivacy.theory.gaussian import point, w2
from fedprivacy.theory.hamiltonian import GaussianTarget, HamiltonianChain, rounds_to_accuracy

RESULTS = Path(__file__).parent / "results" / "fa_hmc.json"
SQUARED = 0.1
DIMENSIONS = (2, *range(50, 1001, 50))


def target(variance: float) -> GaussianTarget:
    return GaussianTarget(
        hessians=np.array([[[1.0]], [[1.0 / variance]]]), centres=np.array([[20.0], [1.0]])
    )


def chain(variance: float, dimension: int) -> HamiltonianChain:
    return HamiltonianChain(
        target=target(variance),
        step_size=0.02 / dimension**0.25,
        leapfrog_steps=5,
        iterations=10,
        correlation=1.0,
    )


def rounds(variance: float, dimension: int) -> int | None:
    wanted = math.sqrt(SQUARED / dimension)
    return rounds_to_accuracy(chain(variance, dimension), point([0.0]), wanted)


def figure_2(variance: float) -> dict[str, object]:
    posterior = target(variance).law()
    found = {dimension: rounds(variance, dimension) for dimension in DIMENSIONS}
    squares = np.array([float(r or 0) ** 2 for r in found.values()])
    sizes = np.array(DIMENSIONS, float)
    slope = float(np.polyfit(np.log(sizes[1:]), np.log(squares[1:]), 1)[0])
    with_log = sizes * np.log(sizes / SQUARED) ** 2
    limits = {
        str(d): d
        * float(w2(chain(variance, d).local_round(0).average.stationary(), posterior)) ** 2
        for d in (2, 1000)
    }
    return {
        "posterior": {
            "mean": float(posterior.mean[0]),
            "variance": float(posterior.covariance[0, 0]),
        },
        "rounds": {str(d): r for d, r in found.items()},
        "slope of log(rounds^2) in log d, from d = 50": slope,
        "correlation of rounds^2 with d": float(np.corrcoef(sizes, squares)[0, 1]),
        "correlation of rounds^2 with d log(d/0.1)^2": float(np.corrcoef(with_log, squares)[0, 1]),
        "rounds^2 over d log(d/0.1)^2, least and largest from d = 50": [
            float((squares / with_log)[1:].min()),
            float((squares / with_log)[1:].max()),
        ],
        "W2 squared that remains for ever": limits,
    }


def check() -> None:
    """Recompute the cells that cost least and compare them with what is kept."""
    kept = json.loads(RESULTS.read_text())
    for name, variance in (("variance 4", 4.0), ("variance 2", 2.0)):
        for dimension in (2, 50, 1000):
            assert rounds(variance, dimension) == kept[name]["rounds"][str(dimension)]
    print("fa_hmc: the smallest cells came out as kept")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        check()
    else:
        made = {f"variance {v:g}": figure_2(v) for v in (4.0, 2.0)}
        RESULTS.write_text(json.dumps(made, indent=1) + "\n")
