"""File locks, complete writes and clear error messages.

``portalocker`` locks by ``flock`` on POSIX systems. Windows lets no other reader into a locked file
and renames no open file. There a second file, ``<name>.lock``, is locked in place of the ledger,
and a new ledger is closed while it gets its name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from ..errors import LedgerError
from ..outputs import BINARY as BINARY
from ..outputs import WINDOWS
from ..outputs import sync as sync


@contextmanager
def ledger_errors(path: Path, what: str) -> Iterator[None]:
    """Turn system errors into errors of this package."""
    try:
        yield
    except FileExistsError as error:
        raise LedgerError(
            f"{path} exists and is never overwritten; name a new file, or continue this one "
            "with Ledger.open(path, resume=True)"
        ) from error
    except OSError as error:
        raise LedgerError(f"{path}: could not {what}: {error.strerror or error}") from error


def open_lock_file(path: Path) -> int:
    """Open the file that is locked in place of ``path``: the same name with ``.lock``.

    It is never removed, because another process may just have opened it to lock it.
    """
    place = path.with_name(path.name + ".lock")
    return os.open(place, os.O_RDWR | os.O_CREAT | BINARY | NO_LINK, 0o644)


def lock(fd: int, path: Path) -> None:
    """Take the exclusive lock, or raise LedgerError; ``unlock_and_close`` frees it."""
    # Imported when a ledger is written: reading needs no lock.
    import portalocker

    locked = fd
    if WINDOWS:
        locked = _LOCK_FILES[fd] = open_lock_file(path)
    try:
        # No waiting, because two writers of one ledger are a mistake.
        portalocker.lock(locked, portalocker.LOCK_EX | portalocker.LOCK_NB)
    except portalocker.AlreadyLocked as error:
        raise LedgerError(
            f"{path} is being written by another ledger object or process; wait for it to end, "
            "or read without resume. If the writer was killed, a child process that it forked "
            "may still hold the lock; end this process too"
        ) from error


def unlock_and_close(fd: int, writer: int) -> None:
    """Close an open file; in the process that locked it, also free the lock.

    Closing the file is not enough: children that were forked meanwhile would keep the lock. A child
    must not unlock a file that its parent still writes.
    """
    lock_file = _LOCK_FILES.pop(fd, None)
    # Closing also frees the lock if no child has the file, so an error here has no effect.
    with suppress(OSError):
        if os.getpid() == writer:
            import portalocker

            portalocker.unlock(fd if lock_file is None else lock_file)
    os.close(fd)
    if lock_file is not None:
        os.close(lock_file)


_LOCK_FILES: dict[int, int] = {}
"""Open file -> the open file that is locked in its place, on Windows."""


def publish(fd: int, temporary: Path, path: Path) -> None:
    """Give a complete, locked file its name. Raise FileExistsError if the name is taken.

    Args:
        fd: the open file; it stays open, or is opened again under its number.
        temporary: its name so far.
        path: its new name.
    """
    if WINDOWS:
        _rename_closed(fd, temporary, path)
        return
    try:
        # Unlike a rename, a link fails if the name is taken, so no file is overwritten.
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if path.exists():
            # File systems without links need a rename, with a short gap after this check.
            raise FileExistsError(f"{path} already exists") from error
        os.rename(temporary, path)


def _rename_closed(fd: int, temporary: Path, path: Path) -> None:
    # Closed: the number now stands for the other file, so that no third file can get it.
    os.dup2(_LOCK_FILES[fd], fd)
    # On Windows, a rename also fails if the name is taken after this check.
    if path.exists():
        raise FileExistsError(f"{path} already exists")
    os.rename(temporary, path)
    again = os.open(path, os.O_RDWR | os.O_APPEND | BINARY)
    try:
        os.dup2(again, fd)
    finally:
        os.close(again)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, or raise OSError."""
    rest = memoryview(data)
    # The system may write only a part, for example on a nearly full disk.
    while rest:
        rest = rest[os.write(fd, rest) :]


NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Open neither a link nor, waiting, a pipe, where the system can say so."""

Stamp = tuple[int, int, int]
"""Size of a file, and the times of its last content change and last status change."""


def stamp(fd: int) -> Stamp:
    """Return values that change when another program writes to an open file."""
    now = os.fstat(fd)
    # Two times, because setting the first one back changes the second one.
    return now.st_size, now.st_mtime_ns, now.st_ctime_ns


def digest_of(fd: int) -> str:
    """Return the SHA-256 of an open file, in hexadecimal, without moving its position."""
    found, at = sha256(), 0
    while block := _read_at(fd, at):
        found.update(block)
        at += len(block)
    return found.hexdigest()


def _read_at(fd: int, at: int) -> bytes:
    """Return some bytes of an open file from a place on; its position stays where it is."""
    if hasattr(os, "pread"):
        return os.pread(fd, _BLOCK, at)
    # Windows has no call that does both.
    here = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, at, os.SEEK_SET)
    try:
        return os.read(fd, _BLOCK)
    finally:
        os.lseek(fd, here, os.SEEK_SET)


_BLOCK = 2**20


def replaced_on_disk(fd: int, path: Path) -> str:
    """Return why an open file is no longer the file with its name; empty if it is.

    Readers find a ledger by its name. Writes to a file that was removed or replaced by a copy would
    reach no reader.
    """
    # Device and inode identify a file, whatever its name.
    mine = os.fstat(fd)
    try:
        named = os.stat(path)
    except OSError:
        return "the file was removed or renamed"
    same = (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
    return "" if same else "another file replaced it"
