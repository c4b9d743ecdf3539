"""dp-accounting: trees of events as JSON.

Three forms are supported. ``{"type": "GaussianDpEvent", "noise_multiplier": 1.0}`` is the form of
``CertifiedAccountant.state()``. The second form is the named tuples of ``DpEvent.to_named_tuple``
as objects, with ``module_name`` and ``class_name``. The third is the lists that ``json.dumps``
makes from these tuples. An event does not state the adjacency, so the user must give it. The state
of an accountant records adjacency, unit and observer.
"""

from __future__ import annotations

from typing import Any

from ...errors import member, require
from ...relations import Observer, Unit
from .trace import Origin, Trace

KIND = "dp-accounting event"

_ACCOUNTANT = {"integration", "neighboring_relation", "ledger"}


def recognises(data: Any) -> bool:
    """Return whether plain values are an event, or the state of this package's event accountant."""
    if isinstance(data, list):
        # ``json.dumps`` turns a named tuple into a plain list, so only the module name identifies
        # it.
        return len(data) >= 2 and str(data[0]).startswith("dp_accounting")
    if not isinstance(data, dict):
        return False
    return str(data.get("type", data.get("class_name", ""))).endswith("DpEvent") or (
        data.keys() >= _ACCOUNTANT
    )


def read(data: Any, origin: Origin) -> Trace:
    """Return the trace of an event.

    Raises:
        ConversionError: if the class is not supported, or the event has no privacy loss.
        LedgerError: if the values are no event.
        ParameterError: if a field breaks its rule.
    """
    # dp-accounting takes long to import, and other formats do not need it.
    from ...integrations.event_json import adjacency_named, event_from_json, runs_of

    # A bare event records only the mechanism.
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
