"""Files that the browser sends: their names and sizes are checked before their content is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ..errors import ParameterError, refuse, whole
from ..outputs import path_of

MAX_FILES = 20
"""Largest number of files of one request."""
MAX_BYTES = 64 * 2**20
"""Largest size of all files of one request together."""
MAX_NAME = 100


@dataclass(frozen=True)
class SentFile:
    """A file that is about to be sent: its name, and its size in bytes."""

    name: str
    size: int


def checked(files: object) -> list[SentFile]:
    """Return the files of a request.

    Raises:
        ParameterError: they are no list of names and sizes, too many, too large, or two have one
            name.
    """
    if not isinstance(files, list) or len(files) > MAX_FILES:
        refuse("files", type(files).__name__, f"be a list of at most {MAX_FILES} files")
    found = [_one(each) for each in files]
    names = [each.name for each in found]
    if len({*names}) < len(names):
        refuse("files", names, "have different names", "rename one of them")
    if sum(each.size for each in found) > MAX_BYTES:
        raise ParameterError(
            f"The files must have at most {MAX_BYTES >> 20} MiB together. Use the command line "
            "for larger files: fedprivacy audit FILE"
        )
    return found


def _one(file: object) -> SentFile:
    if not isinstance(file, dict) or not isinstance(file.get("name"), str):
        refuse("files", type(file).__name__, "have a name and a size")
    return SentFile(plain_name(file["name"]), whole(size=file.get("size")))


def plain_name(name: str) -> str:
    """Return the name of a file without folders and without marks that a system could obey."""
    last = re.split(r"[/\\]", name)[-1][-MAX_NAME:]
    # A name of dots is a folder, and a name that begins with one is hidden.
    return re.sub(r"[^\w. ()+=-]", "_", last).lstrip(". ") or "file"


def receive(pipe: Connection, uploads: list[SentFile], folder: Path) -> list[Path]:
    """Write the files that come through a pipe, one after the other, and return their paths.

    Raises:
        EOFError: the sender stopped before the end.
    """
    paths, rest = [], b""
    for each in uploads:
        path = path_of(file=folder / each.name)
        left = each.size
        with open(path, "xb") as file:
            while left:
                piece = rest or pipe.recv_bytes()
                now, rest = piece[:left], piece[left:]
                file.write(now)
                left -= len(now)
        paths.append(path)
    return paths
