"""The number of units in a run, and whether a delta is small enough for them.

A mechanism that publishes the data of one of n units, chosen at random, is (0, 1/n)-private. A
delta of 1/n or more therefore does not exclude that the data of a unit are published.
"""

from __future__ import annotations

from ..bound import exactly
from ..mechanisms import (
    CohortMechanism,
    HeldMechanism,
    Mechanism,
    Parallel,
    Run,
    SampledMechanism,
)
from ..mechanisms.base import mechanisms_in
from ..mechanisms.schedules import schedule_of
from ..relations import Unit


def units_of(run: object) -> int | None:
    """Return a lower bound on the number of units from a run's schemes; None if unknown.

    Args:
        run: a mechanism, or anything else that can be accounted.
    """
    match run:
        case HeldMechanism():
            records = _population(run.scheme)
            # A client holds at most ``held`` of the records.
            return None if records is None else -(-records // run.held)
        case SampledMechanism():
            return _population(run.scheme)
        # The scheme draws clients, and the unit is a record of one client.
        case CohortMechanism():
            return units_of(run.inner)
        # Every unit belongs to one kind.
        case Parallel():
            known = [n for n in map(units_of, run.mechanisms) if n is not None]
            return sum(known) if known else None
        case Run() if (schedule := schedule_of(run)) is not None:
            return _population(schedule.rounds[0].scheme)
        case Run():
            known = [n for n in map(units_of, mechanisms_in(run)) if n is not None]
            return max(known, default=None)
    return None


def _population(scheme: object) -> int | None:
    found = getattr(scheme, "population", None)
    return found if isinstance(found, int) else None


def allows_publishing(delta: float, units: float | None, unit: Unit | str | None = None) -> str:
    """Return a remark if a delta allows publishing the data of one unit; otherwise "".

    Args:
        delta: of a budget, a claim or a question.
        units: the number of units; None if unknown.
        unit: the name of a unit; None for "unit".
    """
    # For delta = 1/n in decimals, rounding may put the product on either side of 1.
    if units is None or not (delta * units >= 1.0 or delta >= 1.0 / units):
        return ""
    name = unit or "unit"
    return (
        f"delta = {exactly(delta)} is not below 1 / {units:g} for {units:g} {name}s: a "
        f"mechanism that publishes all data of one {name} satisfies it"
    )


def remarks_on(run: Mechanism | object, delta: float) -> tuple[str, ...]:
    """Return the conditions on the epsilon of a run, as in ``Bound.qualified``; usually empty."""
    text = allows_publishing(delta, units_of(run), getattr(run, "protects", None))
    return (text,) if text else ()
