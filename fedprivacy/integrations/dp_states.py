"""Events of dp-accounting as plain JSON values, and back without importing by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dp_accounting as dpa
from dp_accounting import dp_event

from ..errors import LedgerError
from .dp_events import MAX_DEPTH, later


def _plain_list(events: list[dpa.DpEvent]) -> list[Any]:
    return [plain(event) for event in events]


def plain(event: dpa.DpEvent) -> dict[str, Any]:
    """Return a supported event as plain JSON values."""
    content = {name: to(getattr(event, name)) for name, (to, _) in FIELDS[type(event)].items()}
    return {"type": type(event).__name__, **content}


def rebuilt(data: Any, depth: int = 0) -> dpa.DpEvent:
    """Return the event of plain JSON values from an untrusted source.

    Raises:
        LedgerError: anything but the names and fields of the supported classes.
    """
    if depth > MAX_DEPTH:
        raise LedgerError(f"an event is nested deeper than {MAX_DEPTH} levels")
    kind = kind_named(data.get("type")) if isinstance(data, dict) else None
    # Exactly these fields: a missing one would silently take its default.
    if kind is None or set(data) != {"type", *FIELDS[kind]}:
        # Cut to 80 characters: an untrusted state may have any length.
        raise LedgerError(f"accountant state is not readable: not an event: {data!r:.80}")
    known = FIELDS[kind].items()
    return kind(**{name: back(data[name], depth + 1) for name, (_, back) in known})


def kind_named(name: Any) -> Any:
    """Return the event class of a name; None if no supported class has it."""
    return next((kind for kind in FIELDS if kind.__name__ == name), None)


def _rebuilt_list(data: Any, depth: int) -> list[dpa.DpEvent]:
    if not isinstance(data, list):
        raise LedgerError(f"accountant state is not readable: not a list: {data!r:.80}")
    return [rebuilt(item, depth) for item in data]


def _as_it_is(data: Any, _depth: int) -> Any:
    return data


def _steps(counts: Any) -> Any:
    return [int(count) for count in counts] if isinstance(counts, list | tuple) else int(counts)


_Field = tuple[Callable[[Any], Any], Callable[[Any, int], Any]]
_FLOAT: _Field = (float, _as_it_is)
_INT: _Field = (int, _as_it_is)
_EVENT: _Field = (plain, rebuilt)
_FLOATS: _Field = (lambda values: [float(value) for value in values], _as_it_is)
_STEPS: _Field = (_steps, _as_it_is)
_MAYBE: _Field = (lambda value: None if value is None else int(value), _as_it_is)


FIELDS: dict[type, dict[str, _Field]] = {
    dpa.NoOpDpEvent: {},
    dpa.NonPrivateDpEvent: {},
    dpa.GaussianDpEvent: {"noise_multiplier": _FLOAT},
    dpa.LaplaceDpEvent: {"noise_multiplier": _FLOAT},
    dpa.SelfComposedDpEvent: {"event": _EVENT, "count": _INT},
    dpa.ComposedDpEvent: {"events": (_plain_list, _rebuilt_list)},
    dpa.PoissonSampledDpEvent: {"sampling_probability": _FLOAT, "event": _EVENT},
    dpa.SampledWithoutReplacementDpEvent: {
        "source_dataset_size": _INT,
        "sample_size": _INT,
        "event": _EVENT,
    },
    dpa.TruncatedSubsampledGaussianDpEvent: {
        "dataset_size": _INT,
        "sampling_probability": _FLOAT,
        "truncated_batch_size": _INT,
        "noise_multiplier": _FLOAT,
    },
    dpa.RandomizedResponseDpEvent: {"noise_parameter": _FLOAT, "num_buckets": _INT},
    dp_event.DiscreteLaplaceDpEvent: {"noise_parameter": _FLOAT, "sensitivity": _INT},
    dp_event.MixtureOfGaussiansDpEvent: {
        "standard_deviation": _FLOAT,
        "sensitivities": _FLOATS,
        "sampling_probs": _FLOATS,
    },
    dpa.ZCDpEvent: {"rho": _FLOAT, "xi": _FLOAT},
    dpa.SingleEpochTreeAggregationDpEvent: {"noise_multiplier": _FLOAT, "step_counts": _STEPS},
    dp_event.RepeatAndSelectDpEvent: {"event": _EVENT, "mean": _FLOAT, "shape": _FLOAT},
    **later(
        EpsilonDeltaDpEvent={"epsilon": _FLOAT, "delta": _FLOAT},
        DiscreteGaussianDpEvent={"sigma": _FLOAT, "sensitivity": _FLOAT, "dimension": _MAYBE},
        ExponentialMechanismDpEvent={"epsilon": _FLOAT},
        PermuteAndFlipDpEvent={"epsilon": _FLOAT},
    ),
}
"""Event class -> field -> (to JSON, back). Numbers are checked when the event is read."""
