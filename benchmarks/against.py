"""Time questions of real runs beside the package at another commit, in turns, in one run.

    python benchmarks/against.py --base 49f03f22
    python benchmarks/against.py --base 49f03f22 --only import,rounds --repeat 5
    python benchmarks/against.py --base 49f03f22 --save

The base is checked out into a folder of its own and asked with this interpreter. Each question is
asked by a new process, base and now in turn, so no cache answers and both see the same load. The
table has the least processor seconds, the peak memory and the ratio. Every question varies its
input with the number of the turn; both sides get the same input. ``--save`` writes the table to
``results/against.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from against_questions import EVERY_MODULE, HEAD, QUESTIONS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "against.md"
COLUMNS = "| question | base s | now s | ratio | base MB | now MB | largest change |\n"


def ask(tree: Path, folder: Path, question: str, turn: int, limit: float) -> list[float] | None:
    """Return (value, processor seconds, MB) of one question, None after the time limit."""
    own = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    own["PYTHONDONTWRITEBYTECODE"] = ""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HEAD + question, str(turn), str(folder)]
    try:
        found = subprocess.run(
            command,
            env=os.environ | own,
            cwd=tree,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return None
    if found.returncode:
        print(f"{tree}: {found.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    value: list[float] = json.loads(found.stdout.splitlines()[-1])
    return value


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="49f03f22", help="the other commit")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each question")
    parser.add_argument("--only", default="", help="parts of the names of questions, by commas")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one question")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    wanted = [part for part in given.only.split(",") if part]
    chosen = {n: q for n, q in QUESTIONS.items() if not wanted or any(w in n for w in wanted)}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        git = ["git", "-C", str(ROOT)]
        subprocess.run(
            [*git, "worktree", "add", "-q", "--detach", str(base), given.base], check=True
        )
        try:
            sides = [(base, Path(folder) / "of-base"), (ROOT, Path(folder) / "of-now")]
            # The first process of each side compiles its files, which no question should count.
            for tree, own in sides:
                ask(tree, own, EVERY_MODULE, 0, given.limit)
            lines = [COLUMNS + "|---|---|---|---|---|---|---|"]
            print(lines[0])
            for name, question in chosen.items():
                lines.append(row(name, question, sides, given))
                print(lines[-1], flush=True)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(base)], check=True)
    if given.save:
        RESULTS.write_text("\n".join(lines) + "\n")


def row(name: str, question: str, sides: list[tuple[Path, Path]], given: argparse.Namespace) -> str:
    """Return one line of the table; a side that fails once or is late is not asked again."""
    turns: list[list[list[float] | None]] = []
    for turn in range(given.repeat):
        late = [any(pair[k] is None for pair in turns) for k in (0, 1)]
        turns.append(
            [None if late[k] else ask(*sides[k], question, turn, given.limit) for k in (0, 1)]
        )
    late = [any(pair[k] is None for pair in turns) for k in (0, 1)]
    seconds, memory = (
        [None if late[k] else min(pair[k][column] for pair in turns if pair[k]) for k in (0, 1)]
        for column in (1, 2)
    )
    both = [pair for pair in turns if pair[0] and pair[1]]
    change = max((abs(now[0] - then[0]) for then, now in both), default=None)
    none = f"none in {given.limit:g}"
    ratio = "-" if None in seconds else f"{seconds[0] / seconds[1]:.2f}"
    cells = [name, *(none if s is None else f"{s:.3f}" for s in seconds), ratio]
    cells += ["-" if m is None else f"{m:.0f}" for m in memory]
    return "| " + " | ".join([*cells, "-" if change is None else f"{change:.1e}"]) + " |"


if __name__ == "__main__":
    main()
