"""Asks an adapter every case, in a separate process with limits of time and memory."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import integer, positive, refuse
from .cases import ASKS, VectorCase
from .judging import ESTIMATE, Result, VectorOutcome, judge

WORKER = Path(__file__).with_name("worker.py")
SECONDS, MEGABYTES = 30.0, 8192
_START = 300.0
"""Seconds that an adapter may take to be imported."""
_WAIT = 10.0
"""Limit by the clock over that of processor time: for a process that sleeps."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Adapter:
    """A process that answers; a process that hangs or dies is replaced.

    Args:
        adapter: a file (``mine.py``) or the dotted name of a module.
        python: the interpreter, if the accountant is installed elsewhere. It needs no fedprivacy.
        seconds: limit on the processor time of one answer. By the clock it may take 10 times that.
        megabytes: limit on the address space of the process.

    Raises:
        ParameterError: the adapter cannot be imported, or breaks a rule of adapters.
    """

    def __init__(
        self,
        adapter: str,
        *,
        python: str = sys.executable,
        seconds: float = SECONDS,
        megabytes: int = MEGABYTES,
    ) -> None:
        self.adapter = adapter
        self.seconds = positive(seconds=seconds)
        self._command = [
            python,
            str(WORKER),
            adapter,
            str(self.seconds),
            str(integer(1, megabytes=megabytes)),
            ",".join(ASKS),
        ]
        if adapter.endswith(".py") and not Path(adapter).is_file():
            refuse("adapter", adapter, "be an existing file, or the name of a module")
        self._process = self._started()
        self.described: dict[str, Any] = self._read(_START) or {"error": "it takes too long"}
        if "error" in self.described:
            self.close()
            refuse("adapter", adapter, "follow docs/vectors.md", self.described["error"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            text=True,
            encoding="utf-8",
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1"),
        )

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """Return the next line of the process; None if none comes in time."""
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], seconds)[0]:
            return None
        line = out.readline()
        found: dict[str, Any] = json.loads(line) if line else {"died": True, "error": "it ended"}
        return found

    def _restart(self) -> None:
        self.close()
        self._process = self._started()
        self._read(_START)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def ask(self, case: VectorCase) -> Result:
        """Return the result of one case."""
        said = self._answer(case)
        if said is None or said.get("died"):
            code = self._process.poll() if said is None else self._process.wait()
            self._restart()
            if said is None or code == -signal.SIGPROF:
                detail = f"no answer in {self.seconds:g} s"
                return Result(case, VectorOutcome.SLOW, seconds=self.seconds, detail=detail)
            return Result(case, VectorOutcome.CRASHED, detail="its process died")
        seconds = said["seconds"]
        for outcome in (VectorOutcome.REFUSED, VectorOutcome.CRASHED):
            if outcome in said:
                return Result(case, outcome, seconds=seconds, detail=said[outcome])
        error = ESTIMATE if self.described["answers"] == "estimate" else 0.0
        return judge(case, said["low"], said["high"], seconds, error)

    def _answer(self, case: VectorCase) -> dict[str, Any] | None:
        # The answer stays here: an adapter must not see it.
        hidden = ("lower", "upper", "tightness", "theorems", "certificate")
        question = {key: value for key, value in case.question.items() if key not in hidden}
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(question) + "\n")
        except BrokenPipeError:
            return {"died": True}
        return self._read(_WAIT * self.seconds)


def run(
    adapter: str,
    cases: Iterable[VectorCase],
    *,
    python: str = sys.executable,
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
) -> Iterator[Result]:
    """Yield the result of every case; see ``Adapter`` for the arguments and errors."""
    with Adapter(adapter, python=python, seconds=seconds, megabytes=megabytes) as asked:
        yield from map(asked.ask, cases)
