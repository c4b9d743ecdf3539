"""The form of a reader: one program's field names, and what they mean there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..draft import Draft
from ..fields import Fields


@dataclass(frozen=True)
class Reader:
    """A reader of one program's configurations or results.

    Attributes:
        kind: name of the format, for the result and for messages.
        recognises: whether the fields of a file are this program's.
        read: returns the draft of the run. It raises ConversionError if no statement of the user
            could complete the file.
    """

    kind: str
    recognises: Callable[[Fields, Any], bool]
    read: Callable[[Fields, str], Draft]


def named(fields: Fields, *names: str) -> str:
    """Return the places of the fields that made a reader recognise a file, in words."""
    found = [field.place for field in fields.every if field.name in names]
    return f"because of {', '.join(repr(place) for place in found[:2])}"
