"""Write the tables of docs/comparison.md from the numbers of one run of ``accounting.py --json``.

python benchmarks/accounting_page.py [FILE]

FILE is copied to ``results/accounting.json``; without FILE that file is used.
"""

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

from papers.pages import put
from tables import milliseconds, ratio, table

HERE = Path(__file__).parent
KEPT = HERE / "results" / "accounting.json"
PAGE = "../comparison.md"
"""Relative to the papers' pages."""
LOOSE = ("dp-accounting PLD default", "dp-accounting RDP", "opacus RDP", "autodp RDP")


def main(file: Path | None) -> None:
    """Write every table between its markers."""
    if file is not None:
        shutil.copyfile(file, KEPT)
    run: dict[str, Any] = json.loads(KEPT.read_text())
    put(PAGE, "sampled", sampled(run["sampled"]))
    put(PAGE, "exponent", f"Our cost grows like T^{run['exponent']:.2f} from 1e2 to 1e6 rounds.")
    put(PAGE, "calibration", answers(run["calibration"], "budget", "noise multiplier"))
    others = run["gaussian"] + run["mixed"] + run["cohorts"]
    put(PAGE, "others", answers(others, "question", "answer"))
    put(PAGE, "single", answers(run.get("single", []), "question", "answer"))
    rows = [
        [one["way"], str(one["rounds"]), f"{1e3 * one['seconds_each']:.3f}"]
        for one in run["training"]
    ]
    put(PAGE, "rounds", table(["", "rounds", "ms a round"], rows))
    put(PAGE, "memory", memory(run))
    put(PAGE, "below", below(run["below"]))


def sampled(questions: list[dict[str, Any]]) -> str:
    """Return the table of sampled Gaussians: excess over our lower end, and times ours."""
    head = ["", "epsilon", "width", "ms", "dp-accounting PLD, default", "within 1e-3"]
    head += ["its RDP", "Opacus RDP", "autodp RDP", "Opacus PRV", "at 5e-4"]
    head += ["prv-accountant", "at 5e-4"]
    rows = []
    for asked in questions:
        found = {one["way"]: one for one in asked["answers"]}
        ours = asked["answers"][0]

        def cell(name: str, found: dict[str, Any] = found, ours: dict[str, Any] = ours) -> str:
            one = next((found[way] for way in found if way.startswith(name)), None)
            if one is None:
                return "-"
            if "high" not in one:
                return str(one.get("failed", "-"))
            excess, times = one["high"] - ours["low"], one["cpu"] / ours["cpu"]
            return f"{excess:+.1e}, {ratio(times)} x"

        close = next((way for way in found if "coarsest within" in way), "none")
        names = [LOOSE[0], close, *LOOSE[1:], "opacus PRV default", "opacus PRV 0.0005"]
        names += ["prv-accountant PRV default", "prv-accountant PRV 0.0005"]
        question = asked["question"].removeprefix("gaussian, ").removesuffix(", add_remove")
        width, low = ours["high"] - ours["low"], ours["low"]
        rows.append(
            [
                question.removesuffix(", delta 1e-05"),
                f"{low:.7g}",
                f"{width:.0e}",
                milliseconds(ours["cpu"]),
                *map(cell, names),
            ]
        )
    return table(head, rows)


def answers(questions: list[dict[str, Any]], what: str, answer: str) -> str:
    """Return a row for each library and question."""
    rows = []
    for asked in questions:
        ours = asked["answers"][0]["cpu"]
        for one in asked["answers"]:
            if "high" not in one:
                rows.append([asked["question"], one["way"], str(one["failed"]), "-", ""])
                continue
            times = "1" if one is asked["answers"][0] else ratio(one["cpu"] / ours)
            value = f"{one['high']:.7g}" if math.isfinite(one["high"]) else "inf"
            rows.append([asked["question"], one["way"], value, milliseconds(one["cpu"]), times])
    return table([what, "", answer, "ms", "x"], rows)


def memory(run: dict[str, Any]) -> str:
    """Return the memory of a call, and the peaks of the run."""
    mine = [one["resident_mb"] for one in run["memory"]]
    peaks = ", ".join(f"{name} {size:,.0f}" for name, size in run["peaks"].items())
    return f"ours: {min(mine):.0f} to {max(mine):.0f}; {peaks}."


def below(cases: list[dict[str, Any]]) -> str:
    """Return each library's worst case below an attained end, and the number of cases."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        kinds.setdefault(case["way"], []).append(case)
    rows = []
    for way, found in sorted(kinds.items()):
        worst = max(found, key=lambda case: case["short"])
        numbers = [f"{worst['said']:.7g}", f"{worst['attained']:.7g}", str(len(found))]
        rows.append([way, worst["question"], *numbers])
    head = ["", "the worst of its kind", "said", "attained", "cases"]
    return f"{len(cases)} in all:\n\n" + table(head, rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
