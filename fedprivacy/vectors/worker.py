"""A process that asks one adapter: it reads cases and writes answers, one line of JSON each.

It runs as a script and imports only the standard library, so an adapter may live in an environment
without fedprivacy: ``python worker.py mine.py SECONDS MEGABYTES KINDS``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ANSWERS = ("upper", "lower", "bounds", "estimate")
"""What an adapter may say that its answers are."""


def load(name: str) -> Any:
    """Return the module of a file or of a dotted name."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    # An adapter may import modules of its folder, as a script may.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("_adapter", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(module: Any, asks: list[str]) -> dict[str, Any]:
    """Return what the adapter says about itself, or the rule that it breaks."""
    answers = getattr(module, "ANSWERS", None)
    if answers not in ANSWERS:
        return {"error": f"ANSWERS must be one of {', '.join(ANSWERS)}, got {answers!r}"}
    kinds = [ask for ask in asks if callable(getattr(module, ask, None))]
    if not kinds:
        return {"error": f"an adapter must have a function of one of these names: {asks}"}
    said = {name: str(getattr(module, name.upper(), "")) for name in ("name", "version")}
    return {**said, "answers": answers, "asks": kinds}


def answer(module: Any, answers: str, question: dict[str, Any]) -> dict[str, Any]:
    """Return the ends that an adapter gives, or why it gives none."""
    function = getattr(module, question["ask"], None)
    if not callable(function):
        return {"refused": f"no function {question['ask']}"}
    try:
        found = function(question)
        ends = (
            found if answers == "bounds" else (found, None) if answers == "lower" else (None, found)
        )
        low, high = (None if end is None else float(end) for end in ends)
    except (NotImplementedError, *getattr(module, "REFUSES", ())) as problem:
        return {"refused": _line(problem)}
    except Exception as problem:  # any other exception of a library is a crash of its answer
        return {"crashed": _line(problem)}
    if any(end is not None and math.isnan(end) for end in (low, high)):
        return {"crashed": "the answer is NaN"}
    return {"low": low, "high": high}


def _line(problem: BaseException) -> str:
    first = (str(problem).splitlines() or [""])[0]
    return f"{type(problem).__name__}: {first}"[:200].removesuffix(": ")


def limit(megabytes: int) -> None:
    """Limit the address space of this process, where the system can."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def timed(module: Any, answers: str, question: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return an answer and its processor time; after too much of that the process is ended."""
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    found = answer(module, answers, question)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return {**found, "seconds": time.process_time() - begun}


def main() -> None:
    """Serve questions until the input ends."""
    # An adapter that is edited twice in a second would be taken from its old bytecode.
    sys.dont_write_bytecode = True
    # Not this folder, whose modules are the package's, but the user's.
    sys.path[0] = os.getcwd()
    name, seconds, megabytes, kinds = sys.argv[1:]
    # What an adapter prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    limit(int(megabytes))
    try:
        module = load(name)
        first = described(module, kinds.split(","))
    except BaseException as problem:  # also SystemExit of a script that is no adapter
        first = {"error": f"the adapter cannot be imported: {_line(problem)}"}
    print(json.dumps(first), file=out, flush=True)
    if "error" in first:
        return
    for line in sys.stdin:
        found = timed(module, first["answers"], json.loads(line), float(seconds))
        print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main()
