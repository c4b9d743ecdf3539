"""Flower (1.35 and later): the result of ``PrivacyAccountant.state_dict()``, as JSON.

The noise multiplier is that of the sum, and the unit is a client. ``sample_size / population_size``
is the probability of Poisson sampling, or gives the cohort of sampling without replacement. A
``no-amplification`` state does not record how a part of the clients was drawn, so the user must
state it.
"""

from __future__ import annotations

from typing import Any

from ...integrations.flower_state import AccountantState, Config, Event
from ...relations import Adjacency, Unit
from .content import as_type, unreadable
from .trace import Origin, Rounds, Sampling, Trace, in_order

KIND = "Flower accountant state"

_SAMPLING = {
    "poisson": Sampling.POISSON,
    "without-replacement": Sampling.FIXED,
}
_ADJACENCY = {
    "add-or-remove-one": Adjacency.ADD_REMOVE,
    "replace-one": Adjacency.REPLACE_ONE,
}


def recognises(data: Any) -> bool:
    """Return whether plain values are a Flower state."""
    return isinstance(data, dict) and {"schema_version", "config", "compositions"} <= data.keys()


def read(data: Any, origin: Origin) -> Trace:
    """Return the trace of a state.

    Raises:
        ConversionError: if the values are no state, hold no releases, or contradict each other.
    """
    name = origin.name or KIND
    state = as_type(data, AccountantState, name)
    if not state.compositions:
        unreadable(name, "no release was composed or recorded")
    most, delta = state.config.max_epsilon, state.config.target_delta
    return Trace(
        origin,
        in_order((_rounds(one.event, state.config, name), one.count) for one in state.compositions),
        unit=Unit.CLIENT,
        adjacency=_ADJACENCY[state.config.neighboring_relation],
        claim=None if most is None else (most, delta),
        half={"delta": delta} if most is None else {},
        other_facts={"its own accountant": state.backend[:40], "its target delta": f"{delta:g}"},
        # The format does not guarantee an order, and accountants merge equal compositions.
        ordered=False,
    )


def _rounds(event: Event, config: Config, name: str) -> Rounds:
    # The claim used one of the two sizes, and the correct one is unknown.
    if event.population_size != config.population_size:
        sizes = f"{event.population_size} and {config.population_size}"
        unreadable(name, f"an event and the configuration have two population sizes, {sizes}")
    if event.sample_size > event.population_size:
        unreadable(name, f"{event.sample_size} of {event.population_size} cannot be sampled")
    sampling = _SAMPLING.get(config.sampling_method)
    if sampling is None and event.sample_size == event.population_size:
        sampling = Sampling.EVERYONE
    rate = event.sample_size / event.population_size
    return Rounds(
        event.noise_multiplier,
        sampling,
        # For a fixed cohort, this ratio is not the probability of an independent draw.
        rate if sampling is Sampling.POISSON else None,
        event.sample_size,
        event.population_size,
    )
