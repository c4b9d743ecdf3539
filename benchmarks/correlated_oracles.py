"""Compare sensitivities and errors of factors with jax_privacy's and pfl's.

The other libraries need separate environments. This script runs them there, case by case, and
compares; it keeps the largest relative differences. For pfl it also keeps the true sensitivity of a
round that its mechanism counts as 1.

    python benchmarks/correlated_oracles.py --peer PYTHON_OF_JAX_PRIVACY --pfl PYTHON_OF_PFL
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE / "results" / "correlated_oracles.json"
ROUNDS = (64, 500, 2000)
RULES = ((1, 1), (20, 3), (50, 10))
"""(separation, participations)."""


def answered(cases: list[dict]) -> list[float]:
    """Return the other library's numbers; runs in its environment."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import buffered_toeplitz, sensitivity, toeplitz

    found = []
    for case in cases:
        if case["ask"] == "toeplitz":
            args = case["gap"], case["most"], case["rounds"]
            square = toeplitz.minsep_sensitivity_squared(jnp.array(case["column"]), *args)
            found.append(float(square) ** 0.5)
        elif case["ask"] == "error":
            each = toeplitz.per_query_error(
                strategy_coef=jnp.array(case["column"]), n=case["rounds"]
            )
            found.append(float(jnp.mean(each)) ** 0.5)
        elif case["ask"] == "buffers":
            blt = buffered_toeplitz.BufferedToeplitz.build(case["decays"], case["scales"])
            found.append(float(buffered_toeplitz.sensitivity_squared(blt, case["rounds"])) ** 0.5)
        elif case["ask"] == "epochs":
            matrix = jnp.array(case["matrix"])
            found.append(float(sensitivity.fixed_epoch_sensitivity(matrix, case["epochs"])))
        else:
            matrix = jnp.array(case["matrix"])
            bound = sensitivity.get_min_sep_sensitivity_upper_bound(
                matrix, case["gap"], case["most"]
            )
            found.append(float(bound))
    return found


BANDED = ((16, 4), (64, 8), (64, 16))
"""(rounds, bands) of the best banded matrices."""


def factorised() -> list[list[float]]:
    """Return pfl's least squared errors and its matrices; runs in its environment."""
    import numpy as np
    import pfl.internal.ops.pytorch_ops as ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism, FTRLMatrixFactorizer

    set_framework_module(ops)
    found = []
    for rounds, bands in BANDED:
        sums = np.tril(np.ones((rounds, rounds)))
        mask = BandedMatrixFactorizationMechanism._get_banded_matrix_mask(rounds, bands)
        gram = np.asarray(FTRLMatrixFactorizer(sums, mask).optimize(), dtype=np.float64)
        error = float(np.trace(sums.T @ sums @ np.linalg.inv(gram)))
        # The mechanism itself also computes its matrix from the Gram matrix.
        found.append([error, np.linalg.cholesky(gram).tolist()])
    return found


def of_pfl(python: str) -> dict[str, dict[str, float]]:
    """Return pfl's and our errors, and the certified sensitivity of its matrices."""
    import numpy as np

    from fedprivacy import factors

    found = {}
    for (rounds, bands), (error, matrix) in zip(
        BANDED, _answer(python, "--factorised", ""), strict=True
    ):
        best = factors.optimised_matrix(rounds=rounds, bands=bands)
        noise = np.tril(np.ones((rounds, rounds))) @ best.noise_matrix(rounds)
        once = factors.SingleParticipation()
        found[f"{rounds} rounds, {bands} bands"] = {
            "squared error, pfl": error,
            "ours": float(np.sum(noise**2)),
            "our sensitivity": best.sensitivity(rounds, once).upper,
            "pfl's, counted as 1": factors.Matrix(np.array(matrix)).sensitivity(rounds, once).lower,
        }
    return found


def _answer(python: str, flag: str, given: str) -> list:
    """Return the output of this script in another environment."""
    done = subprocess.run(
        [python, __file__, flag],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": ""},
    )
    return json.loads(done.stdout.splitlines()[-1])


def asked() -> tuple[list[dict], list[float]]:
    """Return the cases and our numbers."""
    import numpy as np

    from fedprivacy import factors

    cases: list[dict] = []
    ours: list[float] = []
    for rounds in ROUNDS:
        for factor in (
            factors.SquareRootToeplitz(),
            factors.Banded(16),
            factors.BandedInverse(16),
            factors.BufferedToeplitz(4),
        ):
            name = f"{type(factor).__name__}, {rounds}"
            column = factor.coefficients(rounds).tolist()
            for gap, most in RULES:
                rule = factors.MinimumSeparation(gap, at_most=most)
                cases.append(
                    {
                        "name": name,
                        "ask": "toeplitz",
                        "column": column,
                        "gap": gap,
                        "most": most,
                        "rounds": rounds,
                    }
                )
                ours.append(factor.sensitivity(rounds, rule).upper)
            once = factors.SingleParticipation()
            scale = factor.sensitivity(rounds, once).upper
            error = factors.errors(factor, rounds, once).root_mean_square / scale
            cases.append({"name": name, "ask": "error", "column": column, "rounds": rounds})
            ours.append(error)
        buffers = factors.BufferedToeplitz(4)
        scales, decays = (part.tolist() for part in buffers.parameters(rounds))
        cases.append(
            {
                "name": f"BLT, {rounds}",
                "ask": "buffers",
                "scales": scales,
                "decays": decays,
                "rounds": rounds,
            }
        )
        ours.append(buffers.sensitivity(rounds, factors.SingleParticipation()).upper)
    rng = np.random.default_rng(1)
    for size in (12, 60):
        matrix = np.tril(rng.random((size, size))) + np.eye(size)
        held = factors.Matrix(matrix)
        cases.append(
            {"name": f"dense, {size}", "ask": "epochs", "matrix": matrix.tolist(), "epochs": 4}
        )
        ours.append(held.sensitivity(size, factors.FixedEpochs(size // 4)).upper)
        rule = factors.MinimumSeparation(size // 4, at_most=4)
        cases.append(
            {
                "name": f"dense, {size}",
                "ask": "bound",
                "matrix": matrix.tolist(),
                "gap": size // 4,
                "most": 4,
            }
        )
        ours.append(held.sensitivity(size, rule).upper)
    return cases, ours


def main() -> None:
    """Compare with both libraries and keep the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="the python of jax_privacy's environment")
    parser.add_argument("--pfl", help="the python of pfl's environment")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--factorised", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.factorised:
        print(json.dumps(factorised()))
        return
    if given.answer:
        print(json.dumps(answered(json.load(sys.stdin))))
        return
    cases, ours = asked()
    theirs = _answer(given.peer, "--answer", json.dumps(cases))
    worst: dict[str, float] = {}
    for case, mine, its in zip(cases, ours, theirs, strict=True):
        gap = mine / its - 1.0
        print(f"{case['name']:28} {case['ask']:9} {mine:14.10f} {its:14.10f} {gap:9.1e}")
        worst[case["ask"]] = max(worst.get(case["ask"], 0.0), abs(gap), key=abs)
    kept: dict[str, object] = {"cases": len(cases), "largest difference": worst}
    kept["pfl, best banded matrices"] = of_pfl(given.pfl)
    print(json.dumps(kept["pfl, best banded matrices"], indent=1))
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
