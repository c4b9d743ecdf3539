"""Output files, written whole or not at all, never over a ledger; and text for terminals."""

from __future__ import annotations

import errno
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from .errors import refuse, require

try:
    import fcntl
# Windows.
except ImportError:
    fcntl = None  # type: ignore[assignment]

BEGINNING = b'{"kind":"header","format":"fedprivacy ledger",'
"""First bytes of a ledger of any schema."""
BINARY = getattr(os, "O_BINARY", 0)
"""Stops Windows from translating line ends. Other systems have no such flag."""
WINDOWS = os.name == "nt"
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS, fsync leaves the content in the drive's cache. This call also empties the cache."""
TEMPORARY = ".tmp"
"""Suffix of a file's name while it is written."""


def whole_file(
    path: str | PathLike[str], content: bytes | memoryview | str, *, mode: int = 0o644
) -> None:
    """Write a file so that a crash leaves either the old file or the new file.

    Args:
        path: file to replace; ``path + ".tmp"`` is used for writing.
        content: the full content; text is written as UTF-8.
        mode: permissions, reduced by the process's umask.

    Raises:
        OSError: it cannot be written; the error names the file.
        ParameterError: the path is a ledger, a pipe, a device or a folder.
    """
    target, temporary = writable(path)
    whole = content.encode() if isinstance(content, str) else content
    with named(target):
        # Remove a leftover of a crash, or a link placed here, instead of writing through it.
        temporary.unlink(missing_ok=True)
        try:
            # Set the mode at creation, so that others can never read the file.
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(whole)
                file.flush()
                # Sync before the rename. Otherwise a crash may leave an empty file under the name.
                sync(file.fileno())
            os.replace(temporary, target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        # The name must survive a crash too.
        sync_folder(target.parent)


def writable(path: str | PathLike[str]) -> tuple[Path, Path]:
    """Return the target path of ``whole_file`` and its temporary path.

    Raises:
        ParameterError: either path is a ledger, or the target is a pipe, a device or a folder.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY)
    refuse_overwrite(target, temporary)
    # A rename would replace a device such as /dev/null for every program.
    if target.exists() and not target.is_file():
        refuse("output", str(target), "be a file or a new name", _ELSEWHERE)
    return target, temporary


def path_of(**named: object) -> Path:
    """Return one ``name=path`` of a file as a path.

    Raises:
        ParameterError: it is not the path of a file.
    """
    ((name, path),) = named.items()
    # The system accepts bytes, but this package does not. A zero byte ends a name.
    text = os.fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(text, str) or "\0" in text or Path(text).name in ("", ".."):
        refuse(name, path if text is None else text, "be the path of a file", "name one")
    # Windows opens a device of this name, whatever the folder and the suffix.
    if WINDOWS and Path(text).name.partition(".")[0].rstrip().upper() in _DEVICES:
        refuse(name, text, "not be the name of a device", "name another file")
    return Path(text)


_DEVICES = {"CON", "PRN", "AUX", "NUL"} | {
    f"{kind}{n}" for kind in ("COM", "LPT") for n in range(10)
}


def in_folder(**named: object) -> Path:
    """Return one ``name=path`` as a path; called before long work whose result is written there.

    Raises:
        ParameterError: it is not a file's path, or its folder does not exist.
    """
    target = path_of(**named)
    ((name, path),) = named.items()
    # Use the absolute path: "the folder . is missing" would not help.
    folder = target.absolute().parent
    rule, way_out = "be in an existing folder", f"create the folder {folder}"
    require(folder.is_dir(), name, str(path), rule, way_out)
    return target


def refuse_overwrite(
    *targets: str | PathLike[str], besides: Iterable[str | PathLike[str]] = ()
) -> None:
    """Refuse to overwrite a ledger or a file that was read; every writer of files calls this.

    Args:
        targets: files to be written, temporary names included.
        besides: other files that must not be overwritten.

    Raises:
        ParameterError: a target begins like a ledger, or is one of ``besides``.
    """
    for target in map(Path, targets):
        for other in map(Path, besides):
            if _same(target, other):
                refuse("output", str(target), "differ from the files that are read", _ELSEWHERE)
        # By content: a renamed ledger is still a ledger.
        if target.is_file() and _begins_like_a_ledger(target):
            rule = "not be a ledger, since the record of spent rounds is never overwritten"
            refuse("output", str(target), rule, _ELSEWHERE)


def _same(one: Path, other: Path) -> bool:
    # By inode: links and other spellings of a path refer to the same file.
    return one.exists() and other.exists() and one.samefile(other)


_ELSEWHERE = "name another file"


def _begins_like_a_ledger(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except OSError:
        return False


def sync(fd: int) -> None:
    """Write an open file to disk; return when it would survive a power failure."""
    if FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, FULL_SYNC)
            return
        except OSError as error:
            # Some file systems, for example of a network, have only fsync.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Write a folder's list of names to disk. Windows opens no folder, so nothing is done there."""
    if WINDOWS:
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        sync(fd)
    finally:
        os.close(fd)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file name to the system's errors; those of a full disk lack it."""
    try:
        yield
    except OSError as error:
        text = f"could not be written ({error.strerror or error})"
        raise type(error)(error.errno, text, str(path)) from error


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of text as lines whose columns begin at the same place.

    The first row names the columns. On a terminal that is too narrow, each row becomes a list with
    a line for each column. A file or a pipe has no width.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    if sum(widths) + 2 * (len(widths) - 1) > room:
        head, name = cells[0], max(map(len, cells[0]))
        return [
            f"{'  ' * (at > 0)}{column.ljust(name + 2 * (at == 0))}  {cell}".rstrip()
            for row in cells[1:]
            for at, (column, cell) in enumerate(zip(head, row, strict=True))
        ]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return ["  ".join(row).rstrip() for row in padded]


def printable(text: object) -> str:
    """Return text as one line, with every unprintable character escaped.

    Files are untrusted. A control sequence in a string could clear the screen and print another
    verdict. A line end could add one.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
