"""The figures of FA-HMC's simulations and their cells."""

from __future__ import annotations

from ..base import Figure, FigureCell

STEP_SIZES = {
    10: (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.28),
    1000: (0.001, 0.01, 0.05, 0.1, 0.2, 0.5),
}
"""Dimension -> tried step sizes of Figure 1."""
LEAPFROGS = (2, 3, 5, 10)
"""Tried K, besides 1 and the paper's rule."""
ROUNDS = (10, 100, 10_000, 2_000_000)
"""Rounds whose ME Figure 1 has; the last is the paper's length."""
LOCALS = (1, 2, 5, 10, 20, 40, 70, 100)
"""T of Figure 1(c)."""
DIMENSIONS = (2, *range(50, 1001, 50))
"""Dimensions of Figure 2."""
VARIANCES = (4.0, 2.0)
"""Variance of the second half of Figure 2's nodes: 4 gives the posterior that the paper prints."""

EXACT = "changes no cell, since the laws are computed exactly"
OPEN = (
    "The paper takes data, noise and K from Mangoubi and Vishnoi (2018) and names no prior and no "
    "start. The records here are our own choice: inputs uniform on the unit sphere, prior N(0, I), "
    "labels drawn from the model, start 0. The laws are those of the posterior's expansion to "
    "second order at its mode. See docs/papers/fa_hmc.md."
)


def _cell(name: str, seconds: float, **settings: object) -> FigureCell:
    return FigureCell(name=name, seconds=seconds, quick_seconds=seconds, settings=settings)


def _figure_1(part: str, shows: str, dimension: int, noisy: bool, seconds: float) -> Figure:
    return Figure(
        name=f"fa-hmc/figure-1{part}",
        shows=shows,
        work="fa_hmc.simulations:figure_1",
        cells=tuple(
            _cell(f"step-{step:g}", seconds, dimension=dimension, step_size=step, noisy=noisy)
            for step in STEP_SIZES[dimension]
        ),
        megabytes=100 if dimension == 10 else 200,
        quick=EXACT,
        remark=OPEN,
    )


FIGURES = (
    _figure_1("a", "error by step size and K, exact gradients, d = 1000", 1000, False, 6.0),
    _figure_1("b", "error by step size and K, noisy gradients, d = 1000", 1000, True, 6.0),
    Figure(
        name="fa-hmc/figure-1c",
        shows="error by local iterations T and rounds, K = 100, noisy gradients, d = 1000",
        work="fa_hmc.simulations:figure_1c",
        cells=tuple(_cell(f"T-{local}", 2.5, local_iterations=local) for local in LOCALS),
        megabytes=200,
        quick=EXACT,
        remark=OPEN,
    ),
    _figure_1("d", "error by step size and K, noisy gradients, d = 10", 10, True, 1.0),
    Figure(
        name="fa-hmc/figure-2",
        shows="square of the rounds to W2 squared = 0.1 by dimension",
        work="fa_hmc.simulations:figure_2",
        cells=tuple(
            _cell(f"variance-{variance:g}", 1.0, variance=variance) for variance in VARIANCES
        ),
        megabytes=100,
        quick=EXACT,
        remark=(
            "The paper prints variance 2, and a posterior that follows from 4. The start, which it "
            "does not name, is 0."
        ),
    ),
)
