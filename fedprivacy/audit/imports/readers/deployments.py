"""Entries of the OpenDP and NIST registry of deployments: a result without the run behind it."""

from __future__ import annotations

from typing import Any

from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from .base import Reader, named

KIND = "entry of the registry of deployments"

_MARKS = ("dp_variant", "privacy_loss", "deployment_model", "privacy_parameters")


def _recognises(fields: Fields, data: Any) -> bool:
    return len(fields.names() & {*_MARKS}) >= 2


def _read(fields: Fields, name: str) -> Draft:
    tool = f"{KIND}, {named(fields, *_MARKS)}"
    stated = [
        f"{key} = {value:g}"
        for key in ("epsilon", "delta", "rho")
        if (value := fields.number(key)) is not None
    ]
    refuse_unauditable(
        name,
        tool,
        f"it states {', '.join(stated) or 'no parameters'} and neither noise nor rounds; audit the "
        "record of the run, or state --noise-multiplier, --rounds, --sampling and --adjacency",
    )


READER = Reader(KIND, _recognises, _read)
