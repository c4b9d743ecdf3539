"""Processes that run the libraries: one each, with a limit of time and of memory for a call."""

import json
import os
import select
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from libraries import ASK
from questions import Question

WORKER = Path(__file__).parent / "worker.py"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MEMORY = 8_192
"""Megabytes of address space that a library may use."""


@dataclass(frozen=True)
class Way:
    """A library, one of its methods, and its own precision setting (None for the default)."""

    library: str
    method: str
    option: float | None = None
    label: str = ""

    @property
    def name(self) -> str:
        setting = self.label or ("" if self.option is None else f"{self.option:g}")
        return " ".join(word for word in (self.library, self.method, setting) if word)


@dataclass
class Answer:
    """A way's results and their cost; all lists have one entry for each call."""

    way: Way
    low: float | None = None
    high: float | None = None
    first: float | None = None
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    peak: float | None = None
    silent: bool = False
    failed: str = ""

    @property
    def seconds(self) -> float:
        """Median processor time of a call (of the only call, if there was one)."""
        return statistics.median(self.cpu)

    @property
    def answered(self) -> bool:
        return self.high is not None

    def as_json(self) -> dict[str, Any]:
        kept = {"low", "high", "first", "failed"}
        said = {key: value for key, value in asdict(self).items() if key in kept and value}
        said["way"] = self.way.name
        if self.cpu:
            said |= {"cpu": self.seconds, "wall": statistics.median(self.wall)}
            said |= {"calls": len(self.cpu)}
        return said


class Worker:
    """One process of one library; restarted after a call that ran out of time."""

    def __init__(self, library: str) -> None:
        command = [sys.executable, str(WORKER), library, str(MEMORY)]
        self._process = subprocess.Popen(
            command,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(ONE_THREAD, "1"),
        )
        self.start = self._read(120.0)

    def _read(self, limit: float) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], limit)[0]:
            return {"late": True}
        line = out.readline()
        return json.loads(line) if line else {"failed": "its process died", "died": True}

    def ask(self, job: dict[str, Any], limit: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        return self._read(limit)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def present(library: str) -> str:
    """Return the installed version, or an empty string."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


class Pool:
    """Asks several ways the same question in turn, so that a slow minute affects all equally.

    Args:
        limit: wall-clock seconds after which a call is stopped.
        libraries: libraries to run.
    """

    def __init__(self, limit: float, libraries: list[str]) -> None:
        self.limit = limit
        self.versions = {name: present(name) for name in libraries}
        self._workers: dict[str, Worker] = {}
        self.peaks: dict[str, float] = {}
        self._told: set[str] = set()
        self.log: list[tuple[Question, Answer]] = []
        """Every answer, for checks over all answers."""

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for library in list(self._workers):
            self._end(library)

    def has(self, library: str) -> bool:
        if self.versions.get(library):
            return True
        if library not in self._told:
            self._told.add(library)
            print(f"{library}: not asked or not installed, skipped")
        return False

    def worker(self, library: str) -> Worker:
        if library not in self._workers:
            self._workers[library] = Worker(library)
        return self._workers[library]

    def _end(self, library: str) -> None:
        self._workers.pop(library).end()

    def compare(
        self,
        question: Question,
        ways: list[Way],
        *,
        seconds: float = 5.0,
        calls: int = 5,
        limit: float | None = None,
    ) -> list[Answer]:
        """Return one answer for each way that is installed.

        After a first call the ways run in turn, ``calls`` times, as long as each stays below
        ``seconds`` in total. Several short calls are timed together.
        """
        answers = [Answer(way) for way in ways if self.has(way.library)]
        for answer in answers:
            self._call(question, answer, [0.0], limit)
            answer.first = answer.cpu[0] if answer.cpu else None
        repeated = [answer for answer in answers if answer.cpu]
        for turn in range(calls):
            for answer in repeated:
                one = answer.cpu[0]
                if sum(answer.cpu) + one < seconds:
                    times = max(1, min(10, int(0.05 / one)))
                    shares = [1e-9 * (1 + times * turn + k) for k in range(times)]
                    self._call(question, answer, shares, limit)
        for answer in answers:
            if len(answer.cpu) > 1:
                del answer.cpu[0], answer.wall[0]
        self.log += [(question, answer) for answer in answers if answer.answered]
        return answers

    def _call(
        self, question: Question, answer: Answer, shares: list[float], limit: float | None
    ) -> None:
        way = answer.way
        said = self._ask(way, question, {"shares": shares}, limit or self.limit)
        answer.failed = said.get("failed", answer.failed)
        answer.silent = said.get("silent", False)
        if "cpu" in said:
            answer.cpu += said["cpu"]
            answer.wall += said["wall"]
            if answer.high is None:
                answer.low, answer.high, answer.peak = said["low"], said["high"], said["peak"]
            baseline = self._workers[way.library].start["baseline"]
            grown = said["peak"] - baseline
            self.peaks[way.library] = max(self.peaks.get(way.library, 0.0), grown)

    def _ask(
        self, way: Way, question: Question, more: dict[str, Any], limit: float
    ) -> dict[str, Any]:
        worker = self.worker(way.library)
        if "missing" in worker.start:
            return {"failed": worker.start["missing"]}
        job = {"library": way.library, "method": way.method, "option": way.option}
        said = worker.ask(job | {"question": question} | more, limit)
        if said.get("late"):
            said = {"failed": f"no answer in {limit:g} s"}
            self._end(way.library)
        elif said.pop("died", False):
            self._end(way.library)
        return said

    def memory(self, question: Question, way: Way) -> tuple[float, float]:
        """Return the megabytes of one call in a fresh process: (resident, traced)."""
        if way.library in self._workers:
            self._end(way.library)
        said = self._ask(way, question, {"shares": [0.0]}, self.limit)
        resident = said["peak"] - self._workers[way.library].start["baseline"]
        traced = self._ask(way, question, {"trace": True}, self.limit)["traced"]
        return resident, traced

    def cold(self, question: Question, way: Way) -> tuple[float, float] | None:
        """Return seconds of (importing, a first call) in a fresh process."""
        if way.library in self._workers:
            self._end(way.library)
        said = self._ask(way, question, {"shares": [0.0]}, self.limit)
        if "wall" not in said:
            return None
        return self._workers[way.library].start["import_seconds"], said["wall"][0]


ALL = list(ASK)
