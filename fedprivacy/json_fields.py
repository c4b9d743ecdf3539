"""Check that no JSON object contains a field twice.

Of two fields with one name, different readers take different ones, and so see different records.
"""

from __future__ import annotations

import json
from typing import Any


class RepeatedField(ValueError):
    """An object contains a field twice."""


def check_fields(text: bytes | str) -> None:
    """Refuse JSON if an object in it, at any depth, contains a field twice.

    Raises:
        RepeatedField: if an object does; the message names the field.
        ValueError: if the text is not JSON.
        RecursionError: if it is nested too deeply.
    """
    json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedField(f"{twice!r:.40} occurs twice")
