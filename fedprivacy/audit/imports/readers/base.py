"""The form of a reader: one program's field names, and what they mean there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..draft import Draft
from ..fields import Fields, plain_name


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


def federated(fields: Fields) -> bool:
    """Return whether a file is about clients, so that its noise may be theirs or the server's."""
    for one in fields.every:
        words = {*one.name.split("_")}
        if isinstance(one.value, str):
            words |= {*plain_name(one.value[:100]).split("_")} & _ALGORITHMS
        if words & _FEDERATED:
            return True
    return False


_ALGORITHMS = {"federated", "fedavg", "fedprox", "fedavgm", "fedsgd", "scaffold", "fedadam"}
_FEDERATED = {"client", "clients", "server", "fl", "users", "silo", "silos", "site", "sites"}
_FEDERATED |= {"party", "parties", "collaborators", "collaborator", "hospitals", "aggregator"}
_FEDERATED |= {"rounds", "round", "frac", "aggregation", "participants", "nodes", "guest", "host"}
_FEDERATED |= {"supernodes", "cohort", *_ALGORITHMS}


def named(fields: Fields, *names: str) -> str:
    """Return the places of the fields that made a reader recognise a file, in words."""
    found = [field.place for field in fields.every if field.name in names]
    return f"because of {', '.join(repr(place) for place in found[:2])}"
