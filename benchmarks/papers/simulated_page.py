"""Write the tables of docs/papers/tradeoff.md and of Figure 1 in fa_hmc.md, from the results.

python benchmarks/papers/simulated_page.py
"""

import json
from collections.abc import Iterable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path
from typing import Any

from pages import put, table
from tradeoff import GRID, edges, hamiltonian_grid

from fedprivacy.bound import shown
from fedprivacy.reproductions.fa_hmc.figures import LEAPFROGS, STEP_SIZES

RESULTS = Path(__file__).parent / "results"
BUDGETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
Named = tuple[str, str]
"""A table's name and its text."""


def up(value: float, digits: int = 3) -> str:
    """Return an upper end."""
    return shown(value, digits, ROUND_CEILING)


def few(value: float, digits: int = 2) -> str:
    """Return a measured or exact number as a formula."""
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    digit, power = text.split("e")
    return f"${digit} \\cdot 10^{{{int(power)}}}$"


def tradeoff(kept: dict[str, Any]) -> Iterator[Named]:
    """Yield the tables of epsilon and accuracy."""
    yield "FA-LD, figure 1", figure_1(kept["figure 1"])
    yield "FA-LD, cohorts", cohorts(kept["figure 2"])
    rows = [
        [
            budget,
            few(one["step_size"]),
            str(one["local_steps"]),
            str(one["rounds"]),
            f"{one['temperature']:g}",
            up(one["epsilon"]),
            few(one["w2"]),
            ", ".join(CALLED[name] for name in edges(GRID, one)) or "-",
        ]
        for budget, one in kept["best"]["paper, alpha 0"].items()
    ]
    head = ["budget", "step size", "$K$", "rounds", "temperature", "epsilon", "$W_2$", "at an edge"]
    yield "FA-LD, within a budget", table(head, rows)
    yield "choices", choices(kept["choices"])
    yield "FA-HMC, W2 within a budget", hamiltonian(kept["FA-HMC"])
    for name, cells in kept["table VII"].items():
        yield f"Fed-PLT, {name}", table_vii(cells)


CALLED = {"step_size": "step size", "local_steps": "$K$"}
CALLED |= {name: name for name in ("rounds", "temperature", "correlation")}


def least(text: str, at_an_edge: object) -> str:
    """Return a smallest number as text; at its grid's edge only a bound of the smallest."""
    return f"≤ {text}" if at_an_edge else text


def choices(rows: list[dict[str, Any]]) -> str:
    """Return the table of the papers' settings and of those that ``fp.choose`` finds."""
    told = [
        [
            row["system"],
            named(row["setting"]),
            up(row["epsilon"]),
            few(row["error"]),
            named(row["chosen"]),
            few(row["chosen error"]),
            f"{row['factor']:g}",
            ", ".join(row["at an edge"]) or "-",
        ]
        for row in rows
    ]
    head = ["system", "the paper's setting", "epsilon", "error", "`fp.choose`", "error"]
    return table([*head, "factor", "at an edge"], told)


def named(settings: dict[str, Any]) -> str:
    """Return settings as text."""
    return ", ".join(f"{name} {value:.3g}" for name, value in settings.items())


def figure_1(kept: dict[str, list[dict[str, float]]]) -> str:
    """Return W2 and epsilon by K at T = 10,000 and rho = 0."""
    known = {
        (name, row["K"]): row
        for name, rows in kept.items()
        for row in rows
        if (row["T"], row["rho"]) == (10_000, 0.0)
    }
    rows = []
    for steps in (1, 10, 100, 1000, 10_000):
        first, second, unequal = (known[name, steps] for name in kept)
        distances = [few(one["w2"]) for one in (first, second, unequal)]
        ends = [" / ".join(up(one[key]) for one in (first, second)) for key in ("epsilon", "exact")]
        rows.append([f"{steps:,}", f"{10_000 // steps:,}", *distances, *ends])
    targets = ["paper, $\\alpha = 0$", "paper, $\\alpha = 1$", "unequal Hessians, $\\alpha = 1$"]
    head = ["$K$", "rounds", *(f"$W_2$, {target}" for target in targets)]
    ends = [f"{what} epsilon, $\\alpha = 0$ / 1" for what in ("certified", "exact")]
    return table([*head, *ends], rows)


def cohorts(kept: list[dict[str, Any]]) -> str:
    """Return W2 and epsilon by participation."""
    order = {"full": 0, "II": 1, "I": 2}
    own = [
        row
        for row in kept
        if row["step_size"] == 1e-7
        and row["correlation"] in (0.0, 0.9)
        and (row["scheme"] != "I" or row["cohort"] == 30)
        and (row["scheme"] != "full" or row["correlation"] == 0.0)
    ]
    own.sort(key=lambda row: (order[row["scheme"]], -row["cohort"], row["correlation"]))
    rows = [
        [
            f"{row['scheme'].replace('full', 'everybody')}, {row['cohort']}",
            f"{row['correlation']:g}",
            up(row["epsilon"]),
            few(row["w2"]),
            few(row["w2_at_most"]),
        ]
        for row in own
    ]
    head = ["scheme, cohort", "$\\rho$", "epsilon", "$W_2$ at least", "at most"]
    return table(head, rows)


def hamiltonian(kept: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    """Return FA-HMC's least W2 within a budget."""
    rows = []
    for name, by_steps in kept.items():
        for leapfrog, found in by_steps.items():
            grid = hamiltonian_grid(int(leapfrog))
            within = [
                min(
                    (row for row in found if row["epsilon"] <= budget),
                    key=lambda row: row["w2"],
                    default=None,
                )
                for budget in BUDGETS
            ]
            cells = [
                least(f"{row['w2']:.2g} ({up(row['epsilon'])})", edges(grid, row)) if row else "-"
                for row in within
            ]
            rows.append([name, leapfrog, *cells])
    head = ["target", "K", *(f"epsilon at most {budget:g}" for budget in BUDGETS)]
    return table(head, rows)


def table_vii(kept: dict[str, Any]) -> str:
    """Return Fed-PLT's error and epsilon after 10, 100 and 1000 rounds."""
    rows = []
    for variance in ("0.0001", "0.01", "1"):
        cell = kept[variance]
        ends = [
            " / ".join(
                shown(one[what], 3 if one[what] < 1000 else 4, way)
                for one in cell["rounds"].values()
            )
            for what, way in (
                ("published", ROUND_CEILING),
                ("server", ROUND_CEILING),
                ("final models", ROUND_CEILING),
                ("final models at least", ROUND_FLOOR),
            )
        ]
        rows.append([few(float(variance)), f"{cell['measured']['all_models']:.3g}", *ends])
    kinds = ["published", "sound, server", "final models at most", "final models at least"]
    return table(["$\\tau^2$", "error", *(f"{kind}, 10 / 100 / 1000" for kind in kinds)], rows)


TUNED = "FA-HMC, K tuned"


def fa_hmc(kept: dict[str, Any]) -> Iterator[Named]:
    """Yield the tables of FA-HMC's Figure 1."""
    parts = {
        "10, exact": ("figure 1d, d = 10", "exact gradients"),
        "10, noisy (d)": ("figure 1d, d = 10", "noisy gradients"),
        "1000, exact (a)": ("figure 1a and 1b, d = 1000", "exact gradients"),
        "1000, noisy (b)": ("figure 1a and 1b, d = 1000", "noisy gradients"),
    }
    rows = []
    for name, (figure, gradients) in parts.items():
        for method, found in kept[figure][gradients]["best"].items():
            steps = STEP_SIZES[int(name.partition(",")[0])]
            cells = [
                least(
                    f"{few(error, 3)} ({size}, {leapfrogs})",
                    float(size) in (steps[0], steps[-1])
                    or (method == TUNED and int(leapfrogs) == LEAPFROGS[-1]),
                )
                for error, size, leapfrogs in found.values()
            ]
            rows.append([name, method.replace("K = pi / (3 eta)", "$K = \\pi/(3\\eta)$"), *cells])
    head = ["$d$, gradients", "method", "10 rounds", "100", "10 000", "2 000 000"]
    yield "figure 1", table(head, rows)
    noisy = [row for row in rows if "noisy" in row[0]]
    short = [[*row[:2], *(cell.partition(" (")[0] for cell in row[2:])] for row in noisy]
    yield "figure 1, in short", table(head, short)
    yield (
        "figure 1, chains",
        table(
            ["setting", "chains", "exact law", "1000 draws of the law"],
            [[name, *compared(one)] for name, one in kept["figure 1d, chains"].items()],
        ),
    )
    rows = [
        [
            *(f"{one[key]:g}" for key in ("step", "K", "T", "rho", "z", "rounds")),
            # Rounded outwards during the computation.
            str(one["epsilon"]),
            f"{one['ME']:.3g}",
        ]
        for one in kept["figure 1d, privacy"]
    ]
    head = ["$\\eta$", "$K$", "$T$", "$\\rho$", "$z$", "rounds", "epsilon", "ME"]
    yield "figure 1, epsilon", table(head, rows)


def compared(one: dict[str, Any]) -> Iterable[str]:
    """Return ME of chains, of the exact law and of draws from it."""
    low, high = one["draws of the law, 1 and 99 per cent"]
    return f"{one['chains']:.4f}", f"{one['exact law']:.4f}", f"{low:.4f} to {high:.4f}"


def main() -> None:
    """Write all tables."""
    for page, make, source in (
        ("tradeoff.md", tradeoff, "tradeoff.json"),
        ("fa_hmc.md", fa_hmc, "fa_hmc.json"),
    ):
        for name, text in make(json.loads((RESULTS / source).read_text())):
            put(page, name, text)


if __name__ == "__main__":
    main()
