"""Outputs: files whole or not at all, never over a ledger; text that a terminal cannot obey."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from .errors import refuse, require

BEGINNING = b'{"kind":"header","format":"fedprivacy ledger",'
"""How a ledger of any schema begins."""
BINARY = getattr(os, "O_BINARY", 0)
"""Windows would write line ends otherwise; elsewhere there is no such flag."""
TEMPORARY = ".tmp"
"""Behind the name of a file, while it is written."""


def whole_file(path: str | PathLike[str], content: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file so that a crash leaves either the old one or the new one.

    Args:
        path: file to replace; ``path + ".tmp"`` is used on the way.
        content: all of it; text is written as UTF-8.
        mode: who may read and write it, less what the process's mask takes away.

    Raises:
        OSError: it cannot be written; the error names the file.
        ParameterError: a ledger is in its place, or a pipe, a device or a folder.
    """
    target, temporary = writable(path)
    whole = content.encode() if isinstance(content, str) else content
    with named(target):
        # What a crash left, or a link that was laid there, is not written through.
        temporary.unlink(missing_ok=True)
        try:
            # The mode from the start: others cannot read it even for a moment.
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(whole)
                file.flush()
                # On disk before it has the name, or a crash may leave an empty file under it.
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        # The name must outlive a crash too.
        sync_folder(target.parent)


def writable(path: str | PathLike[str]) -> tuple[Path, Path]:
    """Return where ``whole_file`` writes, and the name that it uses on the way.

    Raises:
        ParameterError: a ledger is in either place, or a pipe, a device or a folder in the first.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY)
    free(target, temporary)
    # A new name would take the place of a device such as /dev/null, for every program.
    if target.exists() and not target.is_file():
        refuse("output", str(target), "be a file or a new name", _ELSEWHERE)
    return target, temporary


def path_of(**named: object) -> Path:
    """Return one ``name=path`` of a file as a path.

    Raises:
        ParameterError: it is none.
    """
    ((name, path),) = named.items()
    # Bytes, which the system takes, name no file of ours; a zero byte ends a name.
    text = os.fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(text, str) or "\0" in text or Path(text).name in ("", ".."):
        refuse(name, path if text is None else text, "be the path of a file", "name one")
    return Path(text)


def in_folder(**named: object) -> Path:
    """Return one ``name=path`` as a path; asked before much is done for what is written there.

    Raises:
        ParameterError: it is no file's path, or its folder is not there.
    """
    target = path_of(**named)
    ((name, path),) = named.items()
    # Written out: that the folder . is missing would help nobody.
    folder = target.absolute().parent
    rule, way_out = "be in a folder that is there", f"make the folder {folder}"
    require(folder.is_dir(), name, str(path), rule, way_out)
    return target


def free(*targets: str | PathLike[str], besides: Iterable[str | PathLike[str]] = ()) -> None:
    """Refuse to write over a ledger, or over a file that was read; every writer of files asks.

    Args:
        targets: what is about to be written, temporary names included.
        besides: other files that are not to be overwritten.

    Raises:
        ParameterError: a target begins like a ledger, or is one of ``besides``.
    """
    for target in map(Path, targets):
        for other in map(Path, besides):
            if _same(target, other):
                refuse("output", str(target), "be another file than what is read", _ELSEWHERE)
        # By content: a ledger that was renamed is one all the same.
        if target.is_file() and _begins_like_a_ledger(target):
            rule = "be no ledger: the record of what was spent is never overwritten"
            refuse("output", str(target), rule, _ELSEWHERE)


def _same(one: Path, other: Path) -> bool:
    # By inode: links and other spellings of a path lead to the same file.
    return one.exists() and other.exists() and one.samefile(other)


_ELSEWHERE = "name another file"


def _begins_like_a_ledger(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Put a folder's list of names on disk. Windows cannot open a folder, and does so by itself."""
    if os.name == "nt":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let the system's errors name the file; those of a full disk do not."""
    try:
        yield
    except OSError as error:
        told = f"could not be written ({error.strerror or error})"
        raise type(error)(error.errno, told, str(path)) from error


def printable(text: object) -> str:
    """Return text as one line: what is no printable character stands as its escape.

    Files are untrusted: a sequence in one of their strings could clear a screen and write another
    verdict on it, and a line end could add one.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
