"""Child processes: each answers one request, with limits on time, memory and files.

Some children start before their request arrives, so that it need not wait for the start.

A child owns the folder of the files that it gets. It removes the folder when it has answered, and
also when the server dies, because its pipe then ends. The server never writes a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..vectors.worker import limit
from .messages import Message, failed
from .uploads import SentFile, receive
from .work import TASKS

SECONDS = 60.0
"""Limit by the clock and on the processor time of one answer."""
MEGABYTES = 4096
"""Limit on the address space of a child."""
AT_ONCE = min(max(2, os.cpu_count() or 1), 4)
"""Number of children that compute at the same time."""
SPARES = 2
"""Number of children that wait for the next requests."""
PAUSE = 0.1
"""Seconds after an answer until spare children start."""
WAITING = 64
"""Number of requests that may wait for a child."""
_LINE = 64 * 2**20
"""Longest message of a child, in bytes."""
_PRELOADED = ["fedprivacy.page.warm"]


class Busy(Exception):
    """Too many requests wait."""


@dataclass
class Jobs:
    """The children of one server; end them by ``close``.

    Args:
        seconds: see ``SECONDS``.
        megabytes: see ``MEGABYTES``.
    """

    seconds: float = SECONDS
    megabytes: int = MEGABYTES
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="fedprivacy-page-")))
    _waiting: int = 0
    _running: set[ChildProcess] = field(default_factory=set)
    _spares: list[ChildProcess] = field(default_factory=list)
    _closed: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)
        # A child is a copy of a process that has imported everything, so it starts at once.
        ways = multiprocessing.get_all_start_methods()
        way = "forkserver" if "forkserver" in ways else "spawn"
        self._context: Any = multiprocessing.get_context(way)
        if way == "forkserver":
            self._context.set_forkserver_preload(_PRELOADED)

    @contextlib.asynccontextmanager
    async def job(self) -> AsyncIterator[ChildProcess]:
        """Yield a new child once one may run, and end it afterwards.

        Raises:
            Busy: too many requests wait.
        """
        if self._waiting >= WAITING:
            raise Busy
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            job = self._ready()
            self._running.add(job)
            try:
                yield job
            finally:
                job.end()
                self._running.discard(job)
        finally:
            self._free.release()
            asyncio.get_running_loop().call_later(PAUSE, self._refill)

    def _new(self) -> ChildProcess:
        return ChildProcess(self._context, self.folder / str(next(self._numbers)), self)

    def _ready(self) -> ChildProcess:
        """Return a spare child, or a new one."""
        while self._spares:
            spare = self._spares.pop(0)
            if spare.alive:
                return spare
            spare.end()
        return self._new()

    def _refill(self) -> None:
        while not self._closed and len(self._spares) < SPARES:
            self._spares.append(self._new())

    def close(self) -> None:
        """End every child and remove all files."""
        self._closed = True
        for job in [*self._running, *self._spares]:
            job.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class ChildProcess:
    """One child process.

    Args:
        context: of ``multiprocessing``.
        folder: for its files; it exists only while the child runs.
        limits: holds the seconds and the megabytes of a child.
    """

    def __init__(self, context: Any, folder: Path, limits: Jobs) -> None:
        self._folder, self._seconds = folder, limits.seconds
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, str(folder), limits.seconds, limits.megabytes)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return bool(self._process.is_alive())

    async def send(self, content: bytes) -> None:
        """Send the request, or a part of a file.

        Raises:
            OSError: the child has ended; ``messages`` says why.
        """
        await asyncio.to_thread(self._pipe.send_bytes, content)

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages of the child as lines of JSON, the last one marked as done."""
        until = time.monotonic() + self._seconds
        while True:
            left = until - time.monotonic()
            try:
                line = await asyncio.wait_for(asyncio.to_thread(self._receive), max(left, 0.0))
            except TimeoutError:
                why = f"It was stopped after {self._seconds:g} seconds."
                for one in failed(f"{why} The command line has no limit."):
                    yield encoded(one)
                return
            if line is None:
                # Also a limit on the processor time ends a child without a word.
                for one in failed("The computation needed too much memory or time, and ended."):
                    yield encoded(one)
                return
            yield line
            if json.loads(line).get("done"):
                return

    def _receive(self) -> bytes | None:
        try:
            return self._pipe.recv_bytes(_LINE) + b"\n"
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        """End the child, whatever it does, and remove its files."""
        # The pipe is left to the thread that may still read from it.
        self._process.kill()
        self._process.join(5.0)
        shutil.rmtree(self._folder, ignore_errors=True)


def encoded(answer: Message) -> bytes:
    """Return a message as a line of JSON."""
    return json.dumps(answer, allow_nan=False).encode() + b"\n"


def serve(pipe: Connection, folder: str, seconds: float, megabytes: int) -> None:
    """Answer one request in a child process.

    Args:
        pipe: to the server.
        folder: for the files of the request; it is made here, and removed.
        seconds: limit on the processor time.
        megabytes: limit on the address space.
    """
    # Ctrl-C reaches every process of the terminal; the server ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Warnings of a computation are no answer, and have no reader here.
    warnings.simplefilter("ignore")
    place = Path(folder)
    complete = threading.Event()
    # Before the limits: a thread that has no memory to start in would be waited for.
    threading.Thread(target=_end_with, args=(pipe, place, complete), daemon=True).start()
    limit(megabytes)
    _limit_seconds(seconds)
    try:
        place.mkdir(mode=0o700, parents=True)
        # A temporary file of the computation goes with the folder.
        tempfile.tempdir = str(place)
        request = json.loads(pipe.recv_bytes())
        uploads = [SentFile(**one) for one in request["files"]]
        paths = receive(pipe, uploads, place)
        complete.set()
        for message in _answer(TASKS[request["task"]], request["fields"], paths):
            pipe.send_bytes(encoded(message)[:-1])
    # The server has ended, so no answer is awaited.
    except (EOFError, OSError):
        _clear_all(place)
    # The server sees the end of the pipe.
    except MemoryError:
        pass
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _answer(
    task: Callable[[dict[str, str], list[Path]], Iterator[Message]],
    fields: dict[str, str],
    paths: list[Path],
) -> Iterator[Message]:
    """Yield the messages of a task; an error that is no refusal is one too."""
    try:
        yield from task(fields, paths)
    except MemoryError:
        yield from failed("The computation needs more memory than a request may use.")
        return
    except OverflowError:
        yield from failed("A value is too large to compute with.")
        return
    except Exception as problem:  # a defect, shown without a traceback
        kind = type(problem).__name__
        yield from failed(f"This is a defect of fedprivacy ({kind}). Please report it.")
        return
    yield {"done": True}


def _limit_seconds(seconds: float) -> None:
    """Limit the processor time of this process, where the system can."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        resource = import_module("resource")
        # More than the clock allows, for several threads; the server looks at the clock.
        most = int(2 * seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))


def _end_with(pipe: Connection, folder: Path, complete: threading.Event) -> None:
    """Wait for the end of the server, then remove the files and end this process."""
    # Until all files are there, the end is noticed where they are read.
    complete.wait()
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    _clear_all(folder)
    os._exit(1)


def _clear_all(folder: Path) -> None:
    """Remove a child's folder, and the server's folder once it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
