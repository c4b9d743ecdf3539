"""The figures of FA-LD's simulations, their cells, and what the paper says about them."""

from __future__ import annotations

from ..base import Figure, FigureCell

ALPHAS = (0.0, 1.0, 10.0, 100.0, 1000.0)
LOCAL = (1, 10, 100, 300, 1000, 3000, 10_000, 30_000)
CORRELATIONS = (0.0, 0.5, 0.9, 1.0)
WAYS = (("full", None), ("I", 40), ("II", 40), ("I", 30), ("II", 30))
"""Averaging and cohort of Figure 2."""
STEP_SIZES = (1e-6, 3e-7, 1e-7, 3e-8)
"""Step sizes of Figure 2, which the paper does not name."""

MADE = (
    "1000 records of a client, drawn as in the paper, and start 0: the paper names neither. W2 is "
    "exact, and not estimated from 300 chains."
)
EXACT = "changes no cell, since the laws are computed exactly"


def _cell(name: str, seconds: float, **settings: object) -> FigureCell:
    return FigureCell(name=name, seconds=seconds, quick_seconds=seconds, settings=settings)


FIGURES = (
    Figure(
        name="fa-ld/figure-1a",
        shows="rounds to W2 = 1e-3 by local steps K, for five levels of heterogeneity alpha",
        work="fa_ld.simulations:figure_1a",
        cells=tuple(
            _cell(f"alpha-{alpha:g}", 1.0, alpha=alpha, local_steps=list(LOCAL)) for alpha in ALPHAS
        ),
        megabytes=100,
        quick=EXACT,
        remark=MADE,
    ),
    Figure(
        name="fa-ld/figure-1b",
        shows="W2 by rounds, K = 10, for five levels of heterogeneity alpha",
        work="fa_ld.simulations:figure_1b",
        cells=tuple(_cell(f"alpha-{alpha:g}", 1.0, alpha=alpha) for alpha in ALPHAS),
        megabytes=100,
        quick=EXACT,
        remark=MADE,
    ),
    Figure(
        name="fa-ld/figure-1c",
        shows="W2 by rounds, K = 100, for the correlation rho of the clients' noise",
        work="fa_ld.simulations:figure_1c",
        cells=tuple(
            _cell(f"{prefix}rho-{rho:g}", 1.0, target=target, correlation=rho)
            for target, prefix in (("paper", ""), ("unequal", "unequal-"))
            for rho in CORRELATIONS
        ),
        megabytes=100,
        quick=EXACT,
        remark=f"{MADE} The cells named unequal have unequal Hessians, which the paper does not.",
    ),
    Figure(
        name="fa-ld/figure-1d",
        shows="density of the target",
        work="fa_ld.simulations:figure_1d",
        cells=(_cell("target", 1.0),),
        megabytes=100,
        quick=EXACT,
        remark=MADE,
    ),
    Figure(
        name="fa-ld/figure-1e",
        shows="density of FA-LD after 960 rounds, K = 10, and its difference from the target's",
        work="fa_ld.simulations:figure_1e",
        cells=(
            _cell("exact-law", 1.0, density="law"),
            _cell("300-chains", 12.0, density="chains"),
            _cell("300-draws-of-the-target", 1.0, density="target"),
        ),
        megabytes=100,
        quick=EXACT,
        remark=(
            f"{MADE} The paper names no number of rounds and no way to draw the density; here it "
            "is a kernel estimate with Scott's bandwidth. 300 draws of the target show its own "
            "error."
        ),
    ),
    Figure(
        name="fa-ld/figure-2",
        shows="W2 by rounds, K = 100, for schemes I and II, cohorts of 30 and 40, and step sizes",
        work="fa_ld.simulations:figure_2",
        cells=tuple(
            _cell(
                f"{way if cohort is None else f'{way}-{cohort}'}-step-{step:g}",
                1.0,
                averaging=way,
                cohort=cohort,
                step_size=step,
            )
            for way, cohort in WAYS
            for step in STEP_SIZES
        ),
        megabytes=100,
        quick=EXACT,
        remark=f"{MADE} With cohorts it is W2 of the exact moments, a lower bound.",
    ),
)
