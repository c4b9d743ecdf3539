"""Write the tables of docs/papers/fed_plt.md from results/fed_plt.json and the paper's.

python benchmarks/papers/fed_plt_page.py
"""

import json
from collections.abc import Iterator
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Any

from pages import put, table

from fedprivacy.bound import shown
from fedprivacy.reproductions.fed_plt.tables import COSTS, PAPER
from fedprivacy.reproductions.fed_plt.tables import theirs as printed

HERE = Path(__file__).parent
ALL = ("FedPD", "FedLin", "TAMUNA", "LED", "5GCS", "Fed-PLT")
Named = tuple[str, str]
"""A table's name and its text."""


def k(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def both(ours: float | None, theirs: float | None) -> str:
    return f"{k(ours)} ({k(theirs)})"


def inside(cell: Any, text: str) -> str:
    """Return a cell's text; a cell whose tuning ended at the edge of its grid is refused."""
    return f"refused: {cell['edges'][0]} at its grid's edge" if cell and cell["edges"] else text


def alone(cells: dict[str, Any], name: str) -> Any:
    """Return the cell of an algorithm tuned only in its step, or None."""
    return cells.get(f"{name}, step only")


def compared(found: dict[str, Any]) -> Iterator[Named]:
    paper, rows = PAPER, []
    for name in ALL:
        row = [name]
        for kind, theirs in zip(("convex", "nonconvex"), paper["II"][name], strict=True):
            cell, step = found["II"][kind][name], alone(found["II"][kind], name)
            spread = f"{cell['rounds']:.1f} ± {cell['rounds_sd']:.1f}"
            told = k(step["time"]) if step else "-"
            row += [spread, inside(cell, k(cell["time"])), inside(step, told), k(theirs)]
        rows.append(row)
    head = ["", "rounds, convex", "time", "time, step only", "paper"]
    yield "II", table([*head, "rounds, non-convex", "time", "time, step only", "paper"], rows)
    names = [name for name in (*ALL, "FedPD, step only", "LED, step only") if name in found["III"]]
    # Table III has Table II's convex cells at other costs.
    tuned = found["II"]["convex"]
    rows = []
    for name in names:
        times = zip(found["III"][name].values(), printed("III", name), strict=True)
        rows.append([name, *(inside(tuned[name], both(*pair)) for pair in times)])
    yield "III", table(["", *(f"$t_C = {cost:g}$" for cost in COSTS)], rows)
    ways = ["gradient", "gradient, partial", "accelerated", "accelerated, partial"]
    rows = []
    for name, theirs in paper["IV"].items():
        cells = [found["IV"][name].get(way) for way in ways]
        times = [
            inside(c, both(c["time"], t)) if c else "-" for c, t in zip(cells, theirs, strict=True)
        ]
        rows.append([name, *times])
    yield "IV", table(["", *ways], rows)
    rows = []
    for name in (*ALL, "FedPD, step only", "LED, step only"):
        if cell := found["V"].get(name):
            times = zip(cell["time"].values(), paper["V"][name.partition(",")[0]], strict=True)
            told = (inside(cell, both(ours, its)) for ours, its in times)
            rows.append([name, f"{cell['rounds']:.1f}", *told])
    yield "V", table(["", "rounds", "$t_C = 2$", "20", "200", "2000"], rows)


def runs(found: dict[str, Any]) -> str:
    """Return the number of runs of every table, as text."""
    told = []
    for name in ("II", "III", "IV", "V", "VI", "VII", "VIII", "IX"):
        counts = sorted(set(counted(found["II"]["convex"] if name == "III" else found[name])))
        told.append(f"{name}: {' and '.join(map(str, counts))}")
    short = [
        f" Of {key.replace(', 1 local steps', ', 1 local step')} {one['converged']} reach the "
        "target, and times are theirs."
        for key, one in sorted(found["cells"].items())
        if one.get("converged", 0) < one["runs"] and "converged" in one
    ]
    return f"Runs of a cell, by table. {'; '.join(told)}.{''.join(short)}"


def counted(part: Any) -> Iterator[int]:
    """Yield the numbers of runs in a part of the results."""
    if isinstance(part, dict):
        if "runs" in part:
            yield part["runs"]
        for one in part.values():
            yield from counted(one)


def swept(found: dict[str, Any]) -> Iterator[Named]:
    paper = PAPER
    rows = [[p + " %", inside(c, both(c["time"], paper["VI"][p]))] for p, c in found["VI"].items()]
    yield "VI", table(["active", "time"], rows)
    rows = [[p, f"{c['rounds']:.1f}", both(c["time"], paper["VIII"][p])]
            for p, c in found["VIII"].items()]  # fmt: skip
    yield "VIII", table([r"$\rho$", "rounds", "time"], rows)
    rows = []
    # At the parameters tuned for Table II.
    tuned = found["II"]["convex"]["Fed-PLT"]
    for steps, cell in found["IX"].items():
        times = zip(cell["time"].values(), paper["IX"][steps], strict=True)
        told = (inside(tuned, both(ours, its)) for ours, its in times)
        rows.append([steps, f"{cell['rounds']:.1f}", *told])
    yield "IX", table(["$N_e$", "rounds", "$t_C = 0.1$", "1", "10", "100"], rows)


def noise(found: dict[str, Any]) -> Iterator[Named]:
    rows = []
    for variance, cell in found["VII"].items():
        error = f"{cell['all_models']:.3g} ({PAPER['VII'][variance]:.3g})"
        row = [f"{float(variance):g}", error, f"{cell['mean_model']:.2g}"]
        for account in cell["accounts"]:
            sound = shown(account["sound"], 4, ROUND_CEILING)
            row += [f"{account['published']:.4g}", sound]
        rows.append(row)
    pairs = [f"{what}, $K = {n}$" for n in (10, 100, 1000) for what in ("printed", "sound")]
    yield "VII", table([r"$\tau^2$", "all models", "mean model", *pairs], rows)


def main() -> None:
    found = json.loads((HERE / "results" / "fed_plt.json").read_text())
    for name, text in (*compared(found), *swept(found), *noise(found)):
        put("fed_plt.md", f"table {name}", text)
    put("fed_plt.md", "runs", runs(found))


if __name__ == "__main__":
    main()
