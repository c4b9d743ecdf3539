"""Print the tables of docs/papers/fed_plt.md from results/fed_plt.json, beside the paper's.

python benchmarks/papers/fed_plt_page.py
"""

import json
import sys
from collections.abc import Iterator
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tables import table  # noqa: E402

from fedprivacy.bound import shown  # noqa: E402

ALL = ("FedPD", "FedLin", "TAMUNA", "LED", "5GCS", "Fed-PLT")


def k(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def both(ours: float | None, theirs: float | None) -> str:
    return f"{k(ours)} ({k(theirs)})"


def compared(found: dict[str, Any]) -> Iterator[str]:
    paper, rows = found["paper"], []
    for name in ALL:
        cells = [found["II"][kind][name] for kind in ("convex", "nonconvex")]
        times = [both(c["time"], t) for c, t in zip(cells, paper["II"][name], strict=True)]
        spread = f"{cells[0]['rounds']:.1f} ± {cells[0]['rounds_sd']:.1f}"
        rows.append([name, spread, times[0], f"{cells[1]['rounds']:.1f}", times[1]])
    head = ["", "rounds, convex", "time", "rounds, non-convex", "time"]
    yield "II\n\n" + table(head, rows)
    costs = ["0.1", "1.0", "10.0", "100.0"]
    rows = [[name, *(k(found["III"][name][c]) for c in costs)] for name in ALL]
    yield "III\n\n" + table(["", *(f"t_C = {float(c):g}" for c in costs)], rows)
    ways = ["gradient", "gradient, partial", "accelerated", "accelerated, partial"]
    rows = []
    for name, theirs in paper["IV"].items():
        cells = [found["IV"][name].get(way) for way in ways]
        times = [both(c["time"], t) if c else "-" for c, t in zip(cells, theirs, strict=True)]
        rows.append([name, *times])
    yield "IV\n\n" + table(["", *ways], rows)
    if "V" not in found:
        return
    rows = []
    for name in ALL:
        cell = found["V"][name]
        times = zip(cell["time"].values(), paper["V"][name], strict=True)
        rows.append([name, f"{cell['rounds']:.1f}", *(both(o, t) for o, t in times)])
    yield "V\n\n" + table(["", "rounds", "t_C = 2", "20", "200", "2000"], rows)


def swept(found: dict[str, Any]) -> Iterator[str]:
    paper = found["paper"]
    rows = [[p + " %", both(c["time"], paper["VI"][p])] for p, c in found["VI"].items()]
    yield "VI\n\n" + table(["active", "time"], rows)
    rows = [[p, f"{c['rounds']:.1f}", both(c["time"], paper["VIII"][p])]
            for p, c in found["VIII"].items()]  # fmt: skip
    yield "VIII\n\n" + table(["rho", "rounds", "time"], rows)
    rows = []
    for steps, cell in found["IX"].items():
        times = zip(cell["time"].values(), paper["IX"][steps], strict=True)
        rows.append([steps, f"{cell['rounds']:.1f}", *(both(o, t) for o, t in times)])
    yield "IX\n\n" + table(["N_e", "rounds", "t_C = 0.1", "1", "10", "100"], rows)


def noise(found: dict[str, Any]) -> Iterator[str]:
    rows = []
    for variance, cell in found["VII"].items():
        error = f"{cell['all_models']:.3g} ({found['paper']['VII'][variance]:.3g})"
        row = [f"{float(variance):g}", error, f"{cell['mean_model']:.2g}"]
        for account in cell["accounts"]:
            sound = shown(account["sound"], 4, ROUND_CEILING)
            row += [f"{account['published']:.4g}", sound]
        rows.append(row)
    pairs = [f"{what}, K = {n}" for n in (10, 100, 1000) for what in ("printed", "sound")]
    yield "VII\n\n" + table(["tau²", "all models", "mean model", *pairs], rows)


def main() -> None:
    found = json.loads((HERE / "results" / "fed_plt.json").read_text())
    for text in (*compared(found), *swept(found), *noise(found)):
        print(text + "\n")


if __name__ == "__main__":
    main()
