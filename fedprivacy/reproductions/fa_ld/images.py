"""FA-LD's figures on images and their cells."""

from __future__ import annotations

from collections.abc import Iterator

from ..base import Figure, FigureCell

ROUNDS, QUICK_ROUNDS, EVERY, BATCH, TEMPERATURE = 1000, 20, 10, 200, 0.05
"""Rounds, the same with ``quick``, rounds between draws, records in a batch, temperature."""
STEP_SIZES = {
    1: (1.2e-5, 2.4e-5, 4.8e-5, 9.6e-5),
    10: (1.5e-6, 3e-6, 6e-6),
    20: (3e-6, 6e-6, 1.2e-5),
    50: (1.5e-6, 3e-6),
    100: (7.5e-7, 1.5e-6, 3e-6),
}
"""K -> the step sizes that were best for a score, with those between."""
SECONDS = 0.012
"""Processor seconds of a local step of ten clients."""
LOADING = 4.0


def _cells(kind: str) -> Iterator[FigureCell]:
    for local_steps, sizes in STEP_SIZES.items():
        for size in sizes:
            chain = f"K-{local_steps}-step-{size:g}"
            pace = 0.01 + SECONDS * local_steps
            yield FigureCell(
                name=chain,
                seconds=LOADING + ROUNDS * pace,
                quick_seconds=LOADING + QUICK_ROUNDS * pace,
                settings={
                    "method": "fa-ld",
                    "chain": chain,
                    "local_steps": local_steps,
                    "step_size": size,
                    "batch": BATCH,
                    "temperature": TEMPERATURE,
                    "hidden": None,
                    "rounds": ROUNDS,
                    "quick_rounds": QUICK_ROUNDS,
                    "every": EVERY,
                    "kind": kind,
                },
            )


def _figure(number: int, shows: str, kind: str) -> Figure:
    return Figure(
        name=f"fa-ld/figure-{number}",
        shows=shows,
        work="chains:scored",
        cells=tuple(_cells(kind)),
        megabytes=700,
        quick=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}, with a warm-up of half of them",
        data=("fashion-mnist", "mnist"),
        remark=(
            "The paper tunes its step sizes and names none; the cells have those that were best "
            "in docs/papers/fa_ld.md. Figure 3 and 4 share their chains. One chain; the paper "
            "prints curves and no numbers."
        ),
    )


FIGURES = (
    _figure(3, "scores of a logistic regression by local steps K", "all"),
    _figure(4, "the same with a warm-up of 500 rounds", "warm"),
)
