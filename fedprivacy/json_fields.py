"""JSON whose objects have every field once.

Of two fields of one name each reader takes another one, so that two readers see two records.
"""

from __future__ import annotations

import json
from typing import Any


class RepeatedField(ValueError):
    """An object has a field twice."""


def check_fields(text: bytes | str) -> None:
    """Refuse JSON in which an object, at any depth, has a field twice.

    Raises:
        RepeatedField: one has; the message names the field.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedField(f"{twice!r:.40} is there twice")
