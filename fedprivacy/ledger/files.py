"""Locks, whole writes and plain error messages. POSIX only."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import LedgerError


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except FileExistsError as error:
        raise LedgerError(
            f"{path} exists and is never overwritten; name a new file, or go on with this one by "
            "Ledger.open(path, resume=True)"
        ) from error
    except OSError as error:
        raise LedgerError(f"{path}: could not {what}: {error.strerror or error}") from error


def lock(fd: int, path: Path) -> None:
    """Take the exclusive lock, or raise LedgerError at once."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LedgerError(
            f"{path} is being written by another ledger object or process; wait for it to end, or "
            "read without resume"
        ) from error


def born(unborn: Path, path: Path) -> None:
    """Give a whole file its name; FileExistsError where something else has it."""
    try:
        os.link(unborn, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if path.exists():
            raise FileExistsError(path) from error
        os.rename(unborn, path)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, or raise OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync_folder(folder: Path) -> None:
    """Put a folder's list of names on disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
