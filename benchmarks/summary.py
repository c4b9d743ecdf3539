"""Markdown tables from the numbers of accounting.py --json.

python benchmarks/summary.py benchmarks/results/accounting.json
"""

import json
import sys
from pathlib import Path
from typing import Any

from tables import milliseconds, number, ratio, table

OURS = "fedprivacy pld"
COLUMNS = {
    "dp-accounting PLD, default": "dp-accounting PLD default",
    "within 1e-3": "coarsest within 1e-3",
    "its RDP": "dp-accounting RDP",
    "Opacus RDP": "opacus RDP",
    "autodp RDP": "autodp RDP",
    "Opacus PRV": "opacus PRV default",
    "at 5e-4": "opacus PRV 0.0005",
    "prv-accountant": "prv-accountant PRV default",
    "at 5e-4 ": "prv-accountant PRV 0.0005",
}
"""Title of a column -> end of a way's name."""


def ours_of(row: dict[str, Any]) -> dict[str, Any]:
    return next(said for said in row["answers"] if said["way"] == OURS)


def cell(row: dict[str, Any], name: str) -> str:
    """Return "+excess, times ours" of the way whose name has this ending."""
    ours = ours_of(row)
    for said in row["answers"]:
        if said["way"].endswith(name):
            if "high" not in said:
                return said.get("failed", "-")
            excess, times = said["high"] - ours["low"], ratio(said["cpu"] / ours["cpu"])
            return f"{excess:+.1e}, {times} x"
    return "-"


def sampled(rows: list[dict[str, Any]]) -> str:
    """Return our interval and time, and every peer's excess and time in units of ours."""
    lines = []
    for row in rows:
        ours = ours_of(row)
        name = row["question"].removeprefix("gaussian, ").removesuffix(", delta 1e-05, add_remove")
        width = f"{ours['high'] - ours['low']:.0e}"
        mine = [name, f"{ours['high']:.7g}", width, milliseconds(ours["cpu"])]
        lines.append([*mine, *(cell(row, end) for end in COLUMNS.values())])
    return table(["", "epsilon", "width", "ms", *COLUMNS], lines)


def others(rows: list[dict[str, Any]]) -> str:
    """Return a block for each question: the answers, and the times."""
    lines = []
    for row in rows:
        ours = ours_of(row)
        for said in row["answers"]:
            if "high" in said:
                times = [milliseconds(said["cpu"]), ratio(said["cpu"] / ours["cpu"])]
                lines.append([row["question"], said["way"], number(said["high"]), *times])
            else:
                lines.append([row["question"], said["way"], said.get("failed", "-")])
    return table(["question", "", "answer", "ms", "x ours"], lines)


def below(cases: list[dict[str, Any]]) -> str:
    """Return the answers below an attained end."""
    lines = [
        [case["way"], case["question"], number(case["said"]), number(case["attained"])]
        for case in cases
    ]
    return table(["", "question", "said", "attained"], lines)


def main() -> None:
    data = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(sampled(data["sampled"]))
    for section in ("calibration", "gaussian", "mixed", "cohorts"):
        print(f"\n{section}\n\n{others(data.get(section, []))}")
    print(f"\n{below(data.get('below', []))}")


if __name__ == "__main__":
    main()
