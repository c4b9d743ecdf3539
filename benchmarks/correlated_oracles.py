"""Sensitivities and errors of factors beside another library's: jax_privacy's matrix module.

The other library needs an environment of its own. This script asks it there, case by case, and
compares; the largest relative differences are kept.

    python benchmarks/correlated_oracles.py --peer PATH/TO/ITS/PYTHON
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
    """Ask both and keep the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="the other environment's python")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        print(json.dumps(answered(json.load(sys.stdin))))
        return
    cases, ours = asked()
    done = subprocess.run(
        [given.peer, __file__, "--answer"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": ""},
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    worst: dict[str, float] = {}
    for case, mine, its in zip(cases, ours, theirs, strict=True):
        gap = mine / its - 1.0
        print(f"{case['name']:28} {case['ask']:9} {mine:14.10f} {its:14.10f} {gap:9.1e}")
        worst[case["ask"]] = max(worst.get(case["ask"], 0.0), abs(gap), key=abs)
    KEPT.write_text(json.dumps({"cases": len(cases), "largest difference": worst}, indent=1) + "\n")


if __name__ == "__main__":
    main()
