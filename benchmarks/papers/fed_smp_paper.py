"""The planned runs of Fed-SMP, and the facts that distinguish runs."""

import json
from pathlib import Path
from typing import Any

from fedprivacy.reproductions.fed_smp.tables import PAPER, PAPER_BY_NOISE, ROUNDS, SHARES, bare

RESULTS = Path(__file__).parent / "results" / "fed_smp.json"
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
