"""Printed values of Fed-SMP's paper, the planned runs, and the facts that distinguish runs."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "fed_smp.json"
ROUNDS, NOISE = 180, 1.4
"""Rounds and noise multiplier of Table I."""
PAPER = {
    "top_k-0.001": (77.18, 0.48),
    "rand_k-0.001": (27.16, 10.20),
    "top_k-0.005": (80.76, 0.27),
    "rand_k-0.005": (56.04, 5.22),
    "top_k-0.01": (80.76, 0.47),
    "rand_k-0.01": (65.61, 1.04),
    "top_k-0.1": (80.49, 0.23),
    "rand_k-0.1": (77.59, 0.53),
    "top_k-0.2": (80.16, 0.09),
    "rand_k-0.2": (79.12, 0.40),
    "top_k-0.4": (80.26, 0.25),
    "rand_k-0.4": (79.88, 0.37),
    "top_k-0.8": (79.77, 1.00),
    "rand_k-0.8": (79.82, 0.35),
    "dp-fedavg": (72.72, 3.72),
    "fedavg": (86.98, 0.12),
}
"""Best test accuracy in Table I, per cent: mean and standard deviation of five seeds."""
SAID = {"fedavg": 86.61, "dp-fedavg": 71.40}
"""The same two numbers in the paper's section 6.3."""
TARGET = 0.72
"""Target accuracy of Figure 2's count of uploads."""
NOISES = {1.0: 2.02, 1.4: 1.01, 2.0: 0.58, 2.5: 0.44}
"""The noise multipliers of Tables IV and V, from the paper's epsilons (published_numbers)."""
PAPER_BY_NOISE = {
    "rand_k": {
        0.005: (60.02, 56.04, 54.13, 51.72),
        0.01: (67.77, 65.61, 61.90, 59.08),
        0.1: (77.76, 77.59, 75.80, 74.54),
        0.4: (81.50, 79.88, 69.62, 52.69),
        0.8: (81.89, 79.82, 53.39, 29.26),
    },
    "top_k": {
        0.001: (78.11, 77.18, 76.42, 74.55),
        0.005: (81.10, 80.76, 78.76, 76.90),
        0.01: (81.62, 80.76, 78.44, 75.77),
        0.1: (82.04, 80.49, 75.04, 67.79),
        0.8: (81.71, 80.16, 56.02, 28.55),
    },
}
"""Tables IV and V: by compression ratio, for each of ``NOISES``."""


SHARES = (0.001, 0.005, 0.01, 0.1, 0.2, 0.4, 0.8)


def bare(label: str) -> str:
    """Return a run's name with rand-k without the factor, as in the paper's rows."""
    return label.replace("rand_k", "rand_k_unscaled")


AS_PAPER = tuple(map(bare, PAPER))
"""Table I, rand-k without the factor."""
NO_NOISE = tuple(f"fedavg-{label}" for label in AS_PAPER if "fed" not in label)
"""FedAvg-rand-k and FedAvg-top-k of Figure 3."""
PLAN = {
    "cnn": tuple(
        dict.fromkeys(
            [
                *((label, 1) for label in (*PAPER, *AS_PAPER)),
                *((label, seed) for seed in (2, 3) for label in AS_PAPER),
                *(
                    (bare(f"{kind}-{ratio:g}@{noise:g}"), 1)
                    for noise in (2.5, 2.0)
                    for kind, ratios in PAPER_BY_NOISE.items()
                    for ratio in ratios
                ),
                *((label, 1) for label in NO_NOISE),
                *((label, seed) for seed in (2, 3) for label in NO_NOISE),
            ]
        )
    ),
    "2nn": tuple(
        (f"{noise}{method}-{share:g}", 1)
        for method in ("rand_k", "rand_k_unscaled", "top_k")
        for share in SHARES
        for noise in ("", "fedavg-")
    ),
}
"""Runs with standardised inputs on the paper's network, the most informative first; and those of
Figure 3 on the small one.
"""


def told_whole(one: dict[str, Any]) -> bool:
    """Return whether a run has all values of Figure 3: one that overflowed has no last loss."""
    lost = one["first_non_finite_round"] is not None
    return bool(one["model"] == "cnn" or one["training_loss"] is not None or lost)


def key(one: dict[str, Any]) -> tuple[str, str, str, int, int, bool]:
    """Return the key of a run, in the order of the results; old runs had no guard."""
    named = one["model"], one["inputs"], one["run"], one["seed"]
    return *named, one["rounds_planned"], one.get("guard", False)


def like_the_papers(one: dict[str, Any]) -> bool:
    """Return whether a run has the paper's length and no guard."""
    return key(one)[4:] == (ROUNDS, False)


def known_runs() -> list[dict[str, Any]]:
    """Return the runs in the results that are like the paper's."""
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    return list(filter(like_the_papers, content["runs"]))
