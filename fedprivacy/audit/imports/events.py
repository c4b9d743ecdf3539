"""dp-accounting: trees of events as JSON.

Three ways of writing one are read: ``{"type": "GaussianDpEvent", "noise_multiplier": 1.0}``, as
``CertifiedAccountant.state()`` has them; the named tuples of ``DpEvent.to_named_tuple`` as
objects, with ``module_name`` and ``class_name``; and the lists that ``json.dumps`` makes of them.
An event says nothing of the adjacency: it is asked for. The state knows it, and unit and observer.
"""

from __future__ import annotations

from typing import Any

from ...errors import member, require
from ...relations import Observer, Unit
from .trace import Origin, Trace

KIND = "dp-accounting event"

_ACCOUNTANT = {"integration", "neighboring_relation", "ledger"}


def recognises(data: Any) -> bool:
    """Return whether plain values are an event, or the state of our accountant of events."""
    if isinstance(data, list):
        # What ``json.dumps`` makes of a named tuple is a plain list: only the module's name tells.
        return len(data) >= 2 and str(data[0]).startswith("dp_accounting")
    if not isinstance(data, dict):
        return False
    return str(data.get("type", data.get("class_name", ""))).endswith("DpEvent") or (
        data.keys() >= _ACCOUNTANT
    )


def read(data: Any, origin: Origin) -> Trace:
    """Return the trace of an event.

    Raises:
        ConversionError: a class that is not read, or an event without a loss.
        LedgerError: not an event.
        ParameterError: a field breaks its rule.
    """
    # dp-accounting takes long to import, and other formats do without it.
    from ...integrations.event_json import adjacency_named, event_from_json, runs_of

    # A bare event knows no more than what was done.
    if not (isinstance(data, dict) and data.keys() >= _ACCOUNTANT):
        return Trace(origin, run=runs_of(event_from_json(data)))
    version = data.get("version", 1)
    require(version == 1, "version", version, "be 1", "upgrade fedprivacy")
    unit, observer = data.get("unit"), data.get("observer")
    return Trace(
        origin,
        unit=None if unit is None else member(Unit, unit=unit),
        adjacency=adjacency_named(data["neighboring_relation"]),
        observer=None if observer is None else member(Observer, observer=observer),
        run=runs_of(event_from_json(data["ledger"])),
    )
