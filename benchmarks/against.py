"""Time questions of real runs here and at another commit, in turns, in one run.

    python benchmarks/against.py --base 49f03f22
    python benchmarks/against.py --base 49f03f22 --only import,rounds --repeat 5
    python benchmarks/against.py --base 49f03f22 --save

The base is checked out into a folder and installed into a separate environment, with the pins of
this commit. A new process asks each question, base and now in turn, so no cache answers and both
see the same load. The table has the least processor seconds, the peak memory and the ratio. Every
question varies its input with the number of the turn; both sides get the same input. ``--save``
writes the rows into the table of ``results/against.md``; rows that were not asked stay.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from against_questions import EVERY_MODULE, HEAD, QUESTIONS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "against.md"
COLUMNS = "| question | base s | now s | ratio | base MB | now MB | largest change |\n"


class Side(NamedTuple):
    """One of the two sides: its source, the interpreter of its environment, a folder for files."""

    tree: Path
    python: str
    folder: Path

    def ask(self, question: str, turn: int, limit: float) -> list[float] | None:
        """Return (value, processor seconds, MB) of one question, None after the limit."""
        own = {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": ""}
        own |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.folder.mkdir(exist_ok=True)
        command = [self.python, "-c", HEAD + question, str(turn), str(self.folder)]
        # In processor time, so that other work on the machine ends no question.
        most = (math.ceil(limit), math.ceil(limit) + 5)
        found = subprocess.run(
            command,
            env=os.environ | own,
            cwd=self.tree,
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, most),
        )
        if found.returncode == -signal.SIGXCPU:
            return None
        if found.returncode:
            print(f"{self.tree}: {found.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            return None
        value: list[float] = json.loads(found.stdout.splitlines()[-1])
        return value


def base_of(commit: str, folder: Path) -> Side:
    """Check a commit out, install it into an environment of its own, and return it."""
    tree, home = folder / "base", folder / "environment"
    git = ["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach"]
    subprocess.run([*git, str(tree), commit], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = str(home / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    # The checker of certificates needs python-flint.
    subprocess.run([*install, str(tree), "python-flint"], check=True)
    return Side(tree, python, folder / "of-base")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="49f03f22", help="the other commit")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each question")
    parser.add_argument("--only", default="", help="parts of the names of questions, by commas")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="processor seconds for one question"
    )
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    wanted = [part for part in given.only.split(",") if part]
    chosen = {n: q for n, q in QUESTIONS.items() if not wanted or any(w in n for w in wanted)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            base = base_of(given.base, folder)
            sides = [base, Side(ROOT, sys.executable, folder / "of-now")]
            # The first process of each side compiles its files, which no question should count.
            for side in sides:
                side.ask(EVERY_MODULE, 0, given.limit)
            lines = [COLUMNS + "|---|---|---|---|---|---|---|"]
            print(lines[0])
            for name, question in chosen.items():
                lines.append(row(name, question, sides, given))
                print(lines[-1], flush=True)
        finally:
            remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force"]
            subprocess.run([*remove, str(folder / "base")], check=True)
    if given.save:
        RESULTS.write_text(merged(RESULTS.read_text() if RESULTS.exists() else "", lines))


def merged(table: str, lines: list[str]) -> str:
    """Return the table with new rows in place of those of the same questions, in their order."""
    rows = {line.split(" | ")[0]: line for line in [*table.splitlines()[2:], *lines[1:]]}
    every = [rows[f"| {name}"] for name in QUESTIONS if f"| {name}" in rows]
    return "\n".join([lines[0], *every]) + "\n"


def row(name: str, question: str, sides: list[Side], given: argparse.Namespace) -> str:
    """Return one line of the table; a side that fails or is late once is not asked again."""
    turns: list[list[list[float] | None]] = []
    for turn in range(given.repeat):
        late = [any(pair[k] is None for pair in turns) for k in (0, 1)]
        asked = zip(sides, late, strict=True)
        turns.append(
            [None if gone else one.ask(question, turn, given.limit) for one, gone in asked]
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
