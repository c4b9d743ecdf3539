"""Output of this package with ``--json``: a result without the run behind it."""

from __future__ import annotations

from typing import Any

from ....outputs import printable
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from .base import Reader

KIND = "output of fedprivacy"


def _recognises(fields: Fields, data: Any) -> bool:
    keys = set(data) if isinstance(data, dict) else set()
    audit = {"verdict", "claim"} <= keys and bool(keys & {"bounds", "void_bounds", "numbers"})
    bound = {"quantity", "given", "upper", "lower"} <= keys
    trained = {"method", "ledger", "budget"} <= keys
    return audit or bound or trained or {"parameter", "bound"} <= keys or {"rows", "judged"} <= keys


def _read(fields: Fields, name: str) -> Draft:
    ledger = fields.one("ledger")
    source = next((one for one in fields.every if one.place == "source.name" and one.value), None)
    where = ledger or source
    file = f" ({printable(str(where.value))[:80]})" if where is not None else ""
    refuse_unauditable(
        name, KIND, f"it is a result and not the record of a run; audit its source{file}"
    )


READER = Reader(KIND, _recognises, _read)
