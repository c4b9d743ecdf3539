"""Write the tables of docs/comparison.md from the numbers of one run of ``accounting.py --json``.

python benchmarks/accounting_page.py [FILE]

FILE is copied to ``results/accounting.json``; without FILE that file is used. Every answer of the
run is also written to ``results/accounting.md``.
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
LONG = "../../benchmarks/results/accounting.md"
"""Page and file of the tables, relative to the papers' pages; the page includes some of them."""


def main(file: Path | None) -> None:
    """Write the sentences of the page, and all tables next to the results."""
    if file is not None:
        shutil.copyfile(file, KEPT)
    run: dict[str, Any] = json.loads(KEPT.read_text())
    put(LONG, "sampled Gaussian, in short", sampled(run["sampled"], SHORT))
    put(PAGE, "exponent", f"Our cost grows like T^{run['exponent']:.2f} from 1e2 to 1e6 rounds.")
    put(LONG, "calibration, in short", calibrated(run["calibration"]))
    others = run["gaussian"] + run["mixed"] + run["cohorts"]
    few = run["gaussian"] + run["mixed"] + run["cohorts"][-1:]
    put(LONG, "other questions, in short", excesses(few))
    rows = [
        [one["way"], str(one["rounds"]), f"{1e3 * one['seconds_each']:.3f}"]
        for one in run["training"]
    ]
    put(PAGE, "memory", memory(run))
    put(LONG, "below", below(run["below"]))
    put(LONG, "sampled Gaussian", sampled(run["sampled"], ALL))
    put(LONG, "calibration", answers(run["calibration"], "budget", "noise multiplier"))
    put(LONG, "other questions", answers(others, "question", "answer"))
    put(LONG, "single questions", answers(run.get("single", []), "question", "answer"))
    put(LONG, "one more round", table(["", "rounds", "ms a round"], rows))


ALL = {
    "dp-accounting PLD, default": "dp-accounting PLD default",
    "within 1e-3": "coarsest within",
    "its RDP": "dp-accounting RDP",
    "Opacus RDP": "opacus RDP",
    "autodp RDP": "autodp RDP",
    "Opacus PRV": "opacus PRV default",
    "at 5e-4": "opacus PRV 0.0005",
    "prv-accountant": "prv-accountant PRV default",
    "prv-accountant at 5e-4": "prv-accountant PRV 0.0005",
}
"""Columns of the sampled Gaussian, and a part of the name of their answer."""
SHORT = {name: ALL[name] for name in (*list(ALL)[:2], "Opacus RDP", "Opacus PRV", "prv-accountant")}
"""The columns on the page."""


def sampled(questions: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Return the table of sampled Gaussians: excess over our lower end, and times ours."""
    rows = []
    for asked in questions:
        ours = asked["answers"][0]
        question = asked["question"].removeprefix("gaussian, ").removesuffix(", add_remove")
        rows.append(
            [
                question.removesuffix(", delta 1e-05"),
                f"{ours['low']:.7g}",
                f"{ours['high'] - ours['low']:.0e}",
                milliseconds(ours["cpu"]),
                *(cell(asked, part) for part in columns.values()),
            ]
        )
    return table(["", "epsilon", "width", "ms", *columns], rows)


def cell(asked: dict[str, Any], part: str) -> str:
    """Return the excess of an answer over our lower end, and its time as a multiple of ours."""
    ours = asked["answers"][0]
    one = next((one for one in asked["answers"] if part in one["way"]), None)
    if one is None:
        return "-"
    if "high" not in one:
        return str(one.get("failed", "-"))
    return f"{one['high'] - ours['low']:+.1e}, {ratio(one['cpu'] / ours['cpu'])} x"


def calibrated(questions: list[dict[str, Any]]) -> str:
    """Return the noise multipliers, a row for each library and a column for each budget."""
    rows = []
    for at, first in enumerate(questions[0]["answers"]):
        row = [first["way"]]
        for asked in questions:
            one, ours = asked["answers"][at], asked["answers"][0]
            times = ratio(one["cpu"] / ours["cpu"]) if "high" in one else ""
            row.append(f"{one['high']:.5g}, {times} x" if "high" in one else str(one["failed"]))
        rows.append(row)
    return table(["", *(asked["question"] for asked in questions)], rows)


def excesses(questions: list[dict[str, Any]]) -> str:
    """Return every library's answers, a column for each question."""
    names = dict.fromkeys(one["way"] for asked in questions for one in asked["answers"])
    rows = []
    for name in names:
        row = [name]
        for asked in questions:
            one = next((one for one in asked["answers"] if one["way"] == name), None)
            ours = asked["answers"][0]
            if one is None or "high" not in one:
                row.append("-" if one is None else str(one["failed"]))
            else:
                row.append(f"{one['high']:.7g}, {ratio(one['cpu'] / ours['cpu'])} x")
        rows.append(row)
    return table(["", *(asked["question"].partition(", delta")[0] for asked in questions)], rows)


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
