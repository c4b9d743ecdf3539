"""Fed-PLT's tables, their cells, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..base import Figure, FigureCell

AGENTS, LOCAL_STEPS, RUNS, QUICK_RUNS = 100, 5, 100, 10
"""Agents, local steps, and the number of measured runs: the paper's, and with ``quick``."""
ALGORITHMS = ("FedPD", "FedLin", "TAMUNA", "LED", "5GCS", "Fed-PLT")
ALL = (*ALGORITHMS, "FedPD, step only", "LED, step only")
"""The algorithms; FedPD and LED also with only their step tuned."""
KINDS = ("convex", "nonconvex")
COSTS = (0.1, 1.0, 10.0, 100.0)
"""t_C of Tables III and IX, at t_G = 1."""
LARGE_COSTS = (2.0, 20.0, 200.0, 2000.0)
"""t_C of Table V, at t_G = 20."""
WAYS = {
    "TAMUNA": ("TAMUNA",),
    "5GCS": ("5GCS", "5GCS accelerated"),
    "Fed-PLT": ("Fed-PLT", "Fed-PLT accelerated"),
}
"""Algorithms of Table IV, with and without acceleration."""
ACTIVE = tuple(range(4 * AGENTS // 10, AGENTS + 1, AGENTS // 10))
"""Numbers of agents that take part in Table VI."""
VARIANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Table VII's noise."""
PENALTIES = (0.1, 1.0, 10.0)
"""rho of Table VIII."""
LOCAL = (1, 2, 5, 8, 10, 20)
"""N_e of Table IX."""

PAPER: dict[str, Any] = {
    "II": {
        "FedPD": [70.5, 223.5],
        "FedLin": [15.6, 31.2],
        "TAMUNA": [25.5, None],
        "LED": [51.0, 438.0],
        "5GCS": [57.0, 39.0],
        "Fed-PLT": [13.5, 21.0],
    },
    "III": {
        "FedPD": [23.97, 28.2, 70.5, 493.5],
        "FedLin": [3.72, 4.8, 15.6, 123.6],
        "TAMUNA": [8.67, 10.2, 25.5, 178.5],
        "LED": [17.34, 20.4, 51.0, 357.0],
        "5GCS": [19.38, 22.8, 57.0, 399.0],
        "Fed-PLT": [4.59, 5.4, 13.5, 94.5],
    },
    "IV": {
        "TAMUNA": [25.5, 53.25, None, None],
        "5GCS": [57.0, 22.5, 57.0, 23.25],
        "Fed-PLT": [13.5, 21.75, 15.0, 28.5],
    },
    "V": {
        "FedPD": [693.6, 816, 2040, 14280],
        "FedLin": [86.8, 112, 364, 2884],
        "TAMUNA": [244.8, 288, 720, 5040],
        "LED": [346.8, 408, 1020, 7140],
        "5GCS": [306, 360, 900, 6300],
        "Fed-PLT": [102, 120, 300, 2100],
    },
    "VI": {"40": 22.8, "50": 21.75, "60": 19.8, "70": 19.95, "80": 16.8, "90": 16.2, "100": 13.5},
    "VII": {
        "1e-06": 2.583e-2,
        "1e-05": 7.369e-2,
        "0.0001": 2.524e-1,
        "0.001": 7.920e-1,
        "0.01": 2.565,
        "0.1": 8.116,
        "1": 26.055,
        "10": 85.273,
    },
    "VIII": {"0.1": 184.5, "1": 58.5, "10": 243},
    "IX": {
        "1": [3.19, 5.8, 31.9, 292.9],
        "2": [3.15, 4.5, 18, 153],
        "5": [4.59, 5.4, 13.5, 94.5],
        "8": [6.48, 7.2, 14.4, 86.4],
        "10": [8.08, 8.8, 16, 88],
        "20": [16.08, 16.8, 24, 96],
    },
}
"""The paper's numbers: thousands of units of computation time, and errors in Table VII."""

SECONDS = {"FedPD": 12.0, "TAMUNA": 12.0, "5GCS": 13.0}
"""Processor seconds of a cell with 100 runs, tuning included; others need 7."""
DATA = (
    "The paper does not specify its data; here inputs, labels and the tuning are those of "
    "docs/papers/fed_plt.md, so orders and ratios can be compared, not times. Times are in "
    "thousands of units."
)
QUICK = f"{QUICK_RUNS} runs instead of {RUNS}; the tuning is the same"


def slug(name: str) -> str:
    """Return an algorithm's name as part of a cell's name."""
    return name.lower().replace(", ", "-").replace(" ", "-")


def theirs(table: str, name: str) -> Any:
    """Return the paper's numbers of an algorithm."""
    return PAPER[table][name.partition(",")[0].removesuffix(" accelerated")]


def by_cost(costs: tuple[float, ...], numbers: Any) -> dict[str, Any]:
    """Return the numbers by the cost of a communication."""
    return {f"time, t_C = {cost:g}": value for cost, value in zip(costs, numbers, strict=True)}


def _cell(
    name: str, printed: Mapping[str, float | None], seconds: float, **settings: Any
) -> FigureCell:
    shown = {key: value for key, value in printed.items() if value is not None}
    quick = max(0.6 * seconds, 2.0)
    return FigureCell(
        name=name, seconds=seconds, quick_seconds=quick, settings=settings, printed=shown
    )


def _seconds(name: str) -> float:
    return SECONDS.get(name.partition(",")[0].partition(" ")[0], 7.0)


def _table_2() -> Iterator[FigureCell]:
    for place, kind in enumerate(KINDS):
        for name in ALL:
            printed = {"time": theirs("II", name)[place]}
            settings = {"algorithm": name, "kind": kind, "dimension": 5, "active": None}
            yield _cell(f"{slug(name)}-{kind}", printed, _seconds(name), **settings)


def _table_3() -> Iterator[FigureCell]:
    for name in ALL:
        printed = by_cost(COSTS, theirs("III", name))
        settings = {"algorithm": name, "kind": "convex", "dimension": 5, "active": None}
        yield _cell(slug(name), printed, _seconds(name), **settings)


def _table_4() -> Iterator[FigureCell]:
    for ways in WAYS.values():
        for number, name in enumerate(ways):
            for half, active in ((0, None), (1, AGENTS // 2)):
                printed = {"time": theirs("IV", name)[2 * number + half]}
                settings = {"algorithm": name, "kind": "convex", "dimension": 5, "active": active}
                label = slug(name) + ("-half" if half else "")
                yield _cell(label, printed, 2.0 * _seconds(name), **settings)


def _table_5() -> Iterator[FigureCell]:
    for name in ALL:
        printed = by_cost(LARGE_COSTS, theirs("V", name))
        settings = {"algorithm": name, "kind": "convex", "dimension": 100, "active": None}
        yield _cell(slug(name), printed, 10.0 * _seconds(name), **settings)


def _table_6() -> Iterator[FigureCell]:
    for active in ACTIVE:
        share = str(100 * active // AGENTS)
        settings = {"algorithm": "Fed-PLT", "kind": "convex", "dimension": 5}
        settings |= {"active": None if active == AGENTS else active}
        yield _cell(f"active-{share}", {"time": PAPER["VI"][share]}, 20.0, **settings)


def _table_7() -> Iterator[FigureCell]:
    for variance in VARIANCES:
        printed = {"error of all models": PAPER["VII"][f"{variance:g}"]}
        yield _cell(f"variance-{variance:g}", printed, 14.0, variance=variance)


def _table_8() -> Iterator[FigureCell]:
    for penalty in PENALTIES:
        printed = {"time": PAPER["VIII"][f"{penalty:g}"]}
        yield _cell(f"rho-{penalty:g}", printed, 20.0, penalty=penalty)


def _table_9() -> Iterator[FigureCell]:
    for steps in LOCAL:
        printed = by_cost(COSTS, PAPER["IX"][str(steps)])
        yield _cell(f"local-steps-{steps}", printed, 12.0, local_steps=steps)


def _figure(
    number: int, shows: str, function: str, cells: Iterator[FigureCell], size: int
) -> Figure:
    return Figure(
        name=f"fed-plt/table-{number}",
        shows=shows,
        work=f"fed_plt.rows:{function}",
        cells=tuple(cells),
        megabytes=size,
        quick=QUICK,
        remark=DATA,
    )


FIGURES = (
    _figure(2, "time to the optimum, convex and non-convex", "table_2", _table_2(), 700),
    _figure(3, "time by the cost of a communication, convex", "table_3", _table_3(), 700),
    _figure(4, "time with half of the agents, and accelerated", "table_2", _table_4(), 700),
    _figure(5, "time in 100 dimensions by the cost of a communication", "table_5", _table_5(), 800),
    _figure(6, "time by the share of agents that take part", "table_2", _table_6(), 700),
    _figure(7, "error by the variance of the noise, with epsilon", "table_7", _table_7(), 700),
    _figure(8, "time by the penalty rho", "table_8", _table_8(), 700),
    _figure(9, "time by the number of local steps", "table_9", _table_9(), 700),
)
