"""A process that runs one library: it reads jobs and writes answers, one line of JSON each.

Times are of this process: "cpu" is processor time, on which other work on the machine has less
effect, and "wall" is wall-clock time.
"""

import contextlib
import importlib
import json
import os
import resource
import sys
import time
import tracemalloc
import warnings

import libraries
from questions import moved

MEGABYTE = 1 << 20


def peak() -> float:
    """Return the largest resident memory until now, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(job, share):
    question = moved(job["question"], share) if share else job["question"]
    wall, cpu = time.perf_counter(), time.process_time()
    ends = libraries.answer(job["library"], job["method"], question, job["option"])
    return ends, time.process_time() - cpu, time.perf_counter() - wall


def traced(job):
    """Return the largest total memory of numpy and Python at one time, in megabytes."""
    tracemalloc.start()
    timed(job, 0.0)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return held / MEGABYTE


def serve(job):
    if job.get("trace"):
        return {"traced": traced(job)}
    shares = job["shares"]
    found = [timed(job, share) for share in shares]
    (low, high), *_ = [ends for ends, _, _ in found]
    cpu, wall = [c for _, c, _ in found], [w for _, _, w in found]
    return {"low": low, "high": high, "cpu": cpu, "wall": wall, "peak": peak()}


def failure(problem):
    if isinstance(problem, libraries.CannotSay):
        return {"silent": True}
    if isinstance(problem, MemoryError):
        return {"failed": "out of memory"}
    return {"failed": f"{type(problem).__name__}: {problem}"[:160]}


def main():
    library, limit = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (limit * MEGABYTE, limit * MEGABYTE))
    warnings.filterwarnings("ignore")
    start = time.perf_counter()
    try:
        for module in libraries.MODULES[library]:
            importlib.import_module(module)
        first = {"import_seconds": time.perf_counter() - start, "baseline": peak()}
    except ImportError as problem:
        first = {"missing": str(problem)}
    print(json.dumps(first), file=out, flush=True)
    for line in sys.stdin:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                said = serve(json.loads(line))
        except Exception as problem:
            said = failure(problem)
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
