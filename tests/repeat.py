"""Run the fast tests many times: in other orders, on 1, 2 and 4 workers, some under load.

    python tests/repeat.py [--runs 30] [--first 0] [--vary-randomness] [PYTEST OPTIONS]

Run k shuffles modules, and the tests in each, by seed k; hashes of texts are seeded by k + 1. Every
fourth run has four busy processes next to it. Each run is a line; what failed is in its log, under
build/repeat. The exit code is 1 if anything failed.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build" / "repeat"
WORKERS = (1, 2, 4)
BUSY = 4
"""Processes of the load."""
EVERY = 4
"""One run of so many is under load."""

# It ends with the process that started it, whatever ends that one.
LOAD = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**5))"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def load(processes):
    """Keep so many processes busy."""
    started = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def busy_in(number):
    """Return how many busy processes a run has next to it."""
    return BUSY * (number % EVERY == EVERY - 1)


def command(number, options, vary):
    """Return the words of run ``number``."""
    words = [sys.executable, "-m", "pytest", "-m", "not slow", "-rfE"]
    words += ["-n", str(WORKERS[number % len(WORKERS)]), "--dist", "worksteal"]
    words += ["--random-order", f"--random-order-seed={number}"]
    return [*words, *([f"--randomness={number}"] if vary else []), *options]


def counted(text):
    """Return how many tests passed, and how many failed or had an error."""
    ends = dict.fromkeys(("passed", "failed", "error"), 0)
    for count, what in re.findall(
        r"(\d+) (passed|failed|error)", text.rstrip().rpartition("\n")[2]
    ):
        ends[what] = int(count)
    return ends["passed"], ends["failed"] + ends["error"]


def once(number, options, vary):
    """Return whether all tests of a run passed; print a line."""
    busy, begun = busy_in(number), time.monotonic()
    env = {**os.environ, **ONE_THREAD, "PYTHONHASHSEED": str(number + 1)}
    with load(busy):
        done = subprocess.run(
            [*command(number, options, vary), "-o", "addopts="],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    (LOGS / f"{number}.log").write_text(done.stdout)
    passed, failed = counted(done.stdout)
    minutes = (time.monotonic() - begun) / 60.0
    run = f"run {number:3}: {WORKERS[number % len(WORKERS)]} workers, {busy} busy processes"
    print(f"{run}, {passed} passed, {failed} failed, {minutes:.1f} min", flush=True)
    for line in re.findall(r"^(?:FAILED|ERROR) .*$", done.stdout, re.M):
        print("   ", line[:200], flush=True)
    # Where pytest itself fails no test does.
    if done.returncode and not failed:
        print(f"    pytest ended with {done.returncode}: {LOGS / f'{number}.log'}", flush=True)
    return done.returncode == 0


def main():
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    parser.add_argument(
        "--vary-randomness",
        action="store_true",
        help="other draws in every run; a test whose chance of failing is stated may fail by it",
    )
    given, options = parser.parse_known_args()
    if importlib.util.find_spec("random_order") is None:
        parser.error("pytest-random-order is not installed: pip install -e '.[train,test]'")
    LOGS.mkdir(parents=True, exist_ok=True)
    numbers = range(given.first, given.first + given.runs)
    failed = [n for n in numbers if not once(n, options, given.vary_randomness)]
    print(
        f"{given.runs - len(failed)} of {given.runs} runs passed" + f": not {failed}" * bool(failed)
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
