"""FA-HMC's figures on images and their cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..base import Figure, FigureCell

ROUNDS, QUICK_ROUNDS, BATCH, HIDDEN = 200, 2, 1000, (512, 512)
"""Rounds, the same with ``quick``, records in a batch, and the network's layers."""
PACES = {False: 0.03, True: 0.45}
"""Processor seconds of a gradient of ten clients: logistic regression, and the network."""
LOADING = 4.0
LEAPFROGS = ((1, 50), (10, 50), (50, 50), (100, 50))
"""(K, T) of Figures 3, 5 and 6."""
LOCALS = {
    "regression": ((10, 1), (10, 10), (10, 20), (10, 50), (10, 100)),
    "network": ((10, 1), (10, 10), (10, 50)),
}
"""(K, T) of Figure 4, and of Figures 5 and 7."""
SHORTER = ((1, 1), (1, 10), (1, 20), (1, 100), (50, 1), (50, 10), (50, 20), (100, 1))
"""(K, T) that the documentation has in place of T = 50."""
STEP_SIZES = {1: 6.4e-3, 10: 1.6e-3, 50: 4e-4, 100: 2e-4}
"""K -> a step size near the best of up to T = 20; T = 50 and 100 are not tuned."""


def _cells(pairs: Iterable[tuple[int, int]], deep: bool) -> Iterator[FigureCell]:
    for leapfrogs, iterations in dict.fromkeys(pairs):
        largest = 3.2e-3 if deep and leapfrogs == 1 else STEP_SIZES[leapfrogs]
        for size in (largest, largest / 2.0):
            chain = f"K-{leapfrogs}-T-{iterations}-step-{size:g}"
            gradients = iterations * (2 * leapfrogs - 1)
            yield FigureCell(
                name=chain,
                seconds=LOADING + ROUNDS * gradients * PACES[deep],
                quick_seconds=LOADING + QUICK_ROUNDS * gradients * PACES[deep],
                settings={
                    "method": "fa-hmc",
                    "chain": f"{'network-' if deep else ''}{chain}",
                    "leapfrog_steps": leapfrogs,
                    "iterations": iterations,
                    "step_size": size,
                    "batch": BATCH,
                    "hidden": list(HIDDEN) if deep else None,
                    "rounds": ROUNDS,
                    "quick_rounds": QUICK_ROUNDS,
                    "every": 1,
                    "kind": "all",
                },
            )


def _figure(
    number: int,
    shows: str,
    pairs: Iterable[tuple[int, int]],
    data: tuple[str, ...],
    deep: bool = False,
) -> Figure:
    return Figure(
        name=f"fa-hmc/figure-{number}",
        shows=shows,
        work="chains:scored",
        cells=tuple(_cells(pairs, deep)),
        megabytes=1300 if deep else 700,
        quick=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}",
        data=data,
        remark=(
            "The paper tunes its step sizes and names none; two are given for every K, near the "
            "best of docs/papers/fa_ld.md and fa_hmc.md, and T = 50 and 100 are not tuned. The "
            "momentum is shared (rho = 1), the temperature 1. One chain; the paper prints curves "
            "and no numbers."
        ),
    )


FASHION, OTHERS = ("fashion-mnist",), ("kmnist", "cifar2")
FIGURES = (
    _figure(3, "scores by leapfrog steps K, logistic regression", (*LEAPFROGS, *SHORTER), FASHION),
    _figure(4, "scores by local iterations T, logistic regression", LOCALS["regression"], FASHION),
    _figure(
        5,
        "scores by K and by T, a network",
        (*LEAPFROGS, *LOCALS["network"], *SHORTER),
        FASHION,
        deep=True,
    ),
    _figure(6, "scores by K on KMNIST and two classes of CIFAR-10", LEAPFROGS, OTHERS),
    _figure(7, "scores by T on KMNIST and two classes of CIFAR-10", LOCALS["network"], OTHERS),
)
