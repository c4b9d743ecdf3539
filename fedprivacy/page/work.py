"""The tasks of the page, by name. A child process runs one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from . import auditing, comparing, plan
from .messages import Message

TASKS: dict[str, Callable[[dict[str, str], list[Path]], Iterator[Message]]] = {
    "plan": plan.answer,
    "audit": auditing.answer,
    "compare": comparing.answer,
}
"""Name -> function of the form's fields and the paths of its files."""
