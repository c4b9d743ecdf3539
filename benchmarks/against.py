"""Time questions of real runs beside the package at another commit, in turns, in one run.

    python benchmarks/against.py --base 49f03f22
    python benchmarks/against.py --base 49f03f22 --only import,rounds --repeat 5

The base is checked out into a folder of its own and asked with this interpreter. Each question is
asked by a new process, base and now in turn, so no cache answers and both see the same load. The
table has the least processor seconds, the peak memory and the ratio. Every question varies its
input with the number of the turn; both sides get the same input.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEAD = """
import json, resource, sys, time
turn = int(sys.argv[1])
start = time.process_time()
import fedprivacy as fp
after_import = time.process_time()
def step(z, q=0.01):
    return fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(q))
def different(n, scheme=None):
    from fedprivacy.mechanisms.base import Run
    scheme = scheme or fp.Poisson(0.01)
    return Run(tuple(
        (fp.Gaussian(noise_multiplier=0.8 + (i + 0.1 * turn) / n, unit="client").sampled(scheme), 1)
        for i in range(n)
    ))
def report(value):
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([value, time.process_time() - start, used.ru_maxrss / 1024]))
"""
"""Begins every question: ``report`` prints a value, the seconds since ``start``, and the memory."""

_EVERY_MODULE = "import compileall\ncompileall.compile_dir('fedprivacy', quiet=1)\nreport(0.0)"

ASKED = "start = time.process_time()\n"

QUESTIONS = {
    "import": "report(0.0)",
    "sum of 3,000 different rounds": """
steps = [step(0.8 + (i + 0.1 * turn) / 3000) for i in range(3000)]
"""
    + ASKED
    + """
run = steps[0]
for one in steps[1:]:
    run = run + one
report(float(len(run.parts)))
""",
    **{
        f"epsilon of {n:,} different Poisson rounds": f"""
run = different({n})
"""
        + ASKED
        + """
report(fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper)
"""
        for n in (1_000, 3_000, 10_000)
    },
    "rdp of 1,000 different Poisson rounds": "run = different(1000)\n"
    + ASKED
    + 'report(fp.epsilon(run, delta=1e-5, adjacency="add_remove", accountant="rdp").upper)',
    "CSV audit of 2,000 Poisson rounds": """
import tempfile, pathlib
path = pathlib.Path(tempfile.mkdtemp()) / "rounds.csv"
rows = "".join(f"{i},{0.8 + (i * 7919 % 2000 + 0.1 * turn) / 2000}\\n" for i in range(2000))
path.write_text("round,noise_multiplier\\n" + rows)
"""
    + ASKED
    + """
found = fp.audit(path, claim=(3.0, 1e-5), adjacency="add_remove", sampling=fp.Poisson(0.01))
report(float(str(found.verdict) == "HOLDS"))
""",
    "Poisson, 100 rounds": "run = step(1.0 + 0.01 * turn) * 100\n"
    + ASKED
    + 'report(fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper)',
    "WithReplacement, zero_out, 100 rounds": """
run = fp.Gaussian(noise_multiplier=1.0 + 0.01 * turn).sampled(fp.WithReplacement(10, 1000)) * 100
"""
    + ASKED
    + 'report(fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper)',
    "RandomAllocation(1000) x 10, zero_out": """
run = fp.Gaussian(noise_multiplier=1.0 + 0.01 * turn).sampled(fp.RandomAllocation(1000)) * 10
"""
    + ASKED
    + 'report(fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper)',
    "Poisson x square root noise, delta 1e-15": """
run = fp.CorrelatedNoise(
    noise_multiplier=32.0 + 0.1 * turn,
    factor=fp.factors.SquareRootToeplitz(),
    rounds=64,
    participation=fp.FixedEpochs(1),
).sampled(fp.Poisson(1 / 64))
"""
    + ASKED
    + 'report(fp.epsilon(run, delta=1e-15, adjacency="zero_out").upper)',
}


def ask(tree: Path, question: str, turn: int, limit: float) -> list[float] | None:
    """Return (value, processor seconds, MB) of one question, None after the time limit."""
    own = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    own["PYTHONDONTWRITEBYTECODE"] = ""
    command = [sys.executable, "-c", HEAD + question, str(turn)]
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
        raise SystemExit(f"{tree}: {question}\n{found.stderr}")
    value: list[float] = json.loads(found.stdout.splitlines()[-1])
    return value


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="49f03f22", help="the other commit")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each question")
    parser.add_argument("--only", default="", help="parts of the names of questions, by commas")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one question")
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
            # The first process of each side compiles its files, which no question should count.
            for tree in (base, ROOT):
                ask(tree, _EVERY_MODULE, 0, given.limit)
            print("| question | base s | now s | ratio | base MB | now MB | largest change |")
            print("|---|---|---|---|---|---|---|")
            for name, question in chosen.items():
                print(row(name, question, base, given), flush=True)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(base)], check=True)


def row(name: str, question: str, base: Path, given: argparse.Namespace) -> str:
    """Return one line of the table."""
    turns = [
        [ask(tree, question, turn, given.limit) for tree in (base, ROOT)]
        for turn in range(given.repeat)
    ]
    late = [any(pair[k] is None for pair in turns) for k in (0, 1)]
    seconds, memory = (
        [min(pair[k][column] for pair in turns if pair[k]) if not late[k] else None for k in (0, 1)]
        for column in (1, 2)
    )
    both = [pair for pair in turns if pair[0] and pair[1]]
    change = max((abs(now[0] - then[0]) for then, now in both), default=None)
    over = f"over {given.limit:g}"
    ratio = "-" if None in seconds else f"{seconds[0] / seconds[1]:.2f}"
    cells = [name, *(over if s is None else f"{s:.3f}" for s in seconds), ratio]
    cells += ["-" if m is None else f"{m:.0f}" for m in memory]
    return "| " + " | ".join([*cells, "-" if change is None else f"{change:.1e}"]) + " |"


if __name__ == "__main__":
    main()
