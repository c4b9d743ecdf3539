"""How many units a run says there are, and whether a delta promises each of them anything.

A mechanism that publishes the data of one unit, chosen at random among n, is (0, 1/n)-private. So a
delta of 1/n or more does not exclude that somebody's data are published.
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
from ..relations import Unit


def units_of(run: object) -> int | None:
    """Return how many units there are at least, as a run's schemes say; None if they do not.

    Args:
        run: a mechanism, or anything else that can be accounted.
    """
    match run:
        case HeldMechanism():
            records = _population(run.scheme)
            # A client holds at most so many of the records.
            return None if records is None else -(-records // run.held)
        case SampledMechanism():
            return _population(run.scheme)
        # The scheme draws clients, and the unit is a record of one of them.
        case CohortMechanism():
            return units_of(run.inner)
        # Every unit is of one kind.
        case Parallel():
            known = [n for n in map(units_of, run.mechanisms) if n is not None]
            return sum(known) if known else None
        case Run():
            known = [n for n in map(units_of, run.holds) if n is not None]
            return max(known, default=None)
    return None


def _population(scheme: object) -> int | None:
    found = getattr(scheme, "population", None)
    return found if isinstance(found, int) else None


def allows_publishing(delta: float, units: float | None, unit: Unit | str | None = None) -> str:
    """Return that a delta allows to publish one unit's data; empty where it does not, or may not.

    Args:
        delta: of a budget, a claim or a question.
        units: how many there are; None where that is not known.
        unit: what they are; None for "unit".
    """
    # At delta = 1/n written in decimals the product may be rounded to either side of 1.
    if units is None or not (delta * units >= 1.0 or delta >= 1.0 / units):
        return ""
    name = unit or "unit"
    return (
        f"delta = {exactly(delta)} is not below 1 / {units:g} for {units:g} {name}s: it allows "
        f"to publish the whole data of one {name}"
    )


def remarks_on(run: Mechanism | object, delta: float) -> tuple[str, ...]:
    """Return what a number of a run depends on, as ``Bound.qualified`` has it: nothing mostly."""
    told = allows_publishing(delta, units_of(run), getattr(run, "protects", None))
    return (told,) if told else ()
