"""dp-accounting's events as JSON, and the answer of its accountant for a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import dp_accounting as dpa
from dp_accounting import rdp

from ..errors import ConversionError, LedgerError, ParameterError
from ..mechanisms import Mechanism
from ..mechanisms.clear import WithoutNoise
from ..relations import Adjacency
from ..sampling import Poisson
from .dp_answers import uncertified
from .dp_events import MAX_DEPTH, from_event
from .dp_runs import adjacency_of, relation_of, to_event
from .dp_states import kind_named, rebuilt

__all__ = ["adjacency_named", "event_from_json", "peer_epsilon", "runs_of"]


def event_from_json(data: Any) -> dpa.DpEvent:
    """Return the event of plain JSON values, written in one of three ways.

    Args:
        data: ``{"type": ..., fields}``, or ``DpEvent.to_named_tuple`` as an object or a list.

    Raises:
        LedgerError: not an event of a supported class. No class is imported by name.
    """
    try:
        return rebuilt(_plain(data))
    except (TypeError, ValueError) as problem:
        raise LedgerError(f"not an event: {str(problem)[:200]}") from problem


def _plain(data: Any, depth: int = 0) -> Any:
    """Return any of the three forms of an event in the first form."""
    if depth > MAX_DEPTH:
        raise LedgerError(f"an event is nested deeper than {MAX_DEPTH} levels")
    # Inner events are lists as well: only [module, class, ...] names one.
    if isinstance(data, list) and _names_a_class(data[:2]):
        data = _of_a_list(data)
    if isinstance(data, dict):
        return {name: _plain(value, depth + 1) for name, value in _typed(data).items()}
    return [_plain(item, depth + 1) for item in data] if isinstance(data, list) else data


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    """Return fields with the class under "type", from either of the two ways of naming it."""
    if "class_name" not in data:
        return data
    if "type" in data:
        names = f"type {str(data['type'])[:80]!r} and class_name {str(data['class_name'])[:80]!r}"
        raise LedgerError(f"an event must have one of the two names, got {names}")
    rest = {k: v for k, v in data.items() if k not in ("module_name", "class_name")}
    return {"type": data["class_name"], **rest}


def _of_a_list(data: list[Any]) -> dict[str, Any]:
    """Return [module, class, value, ...] with the values by name."""
    kind = kind_named(data[1])
    names = [] if kind is None else [each.name for each in kind.__attrs_attrs__]
    if kind is None or len(names) != len(data) - 2:
        raise LedgerError(f"an unsupported event: {str(data[1])[:80]!r}")
    return {"type": data[1], **dict(zip(names, data[2:], strict=True))}


def _names_a_class(pair: list[Any]) -> bool:
    texts = len(pair) == 2 and all(isinstance(each, str) for each in pair)
    return texts and pair[0].split(".")[0] == "dp_accounting"


def runs_of(event: Any) -> Callable[[Adjacency | str | None], Mechanism]:
    """Return a function that gives the run of an event under an adjacency; see ``from_event``.

    For an event with a release without noise, it gives only that release: no other part can make it
    worse.

    Raises:
        ConversionError: not an event.
    """
    if not isinstance(event, dpa.DpEvent):
        raise ConversionError(f"not a DpEvent: {type(event).__name__}")

    def run(adjacency: Adjacency | str | None) -> Mechanism:
        try:
            return from_event(event, adjacency=adjacency)
        except ConversionError:
            chance = _in_clear(event)
            if chance == 0.0:
                raise
            clear = WithoutNoise()
            return clear if chance == 1.0 else clear.sampled(Poisson(chance))

    return run


def _in_clear(event: Any, depth: int = 0) -> float:
    """Return the probability that an event shows a unit without any noise; 0 if unknown."""
    if depth > MAX_DEPTH:
        return 0.0
    match event:
        case dpa.NonPrivateDpEvent():
            return 1.0
        case dpa.GaussianDpEvent() | dpa.LaplaceDpEvent():
            return float(event.noise_multiplier == 0.0)
        case dpa.SingleEpochTreeAggregationDpEvent():
            return float(event.noise_multiplier == 0.0)
        case dpa.RandomizedResponseDpEvent():
            return float(event.noise_parameter == 0.0 and event.num_buckets > 1)
        case dpa.PoissonSampledDpEvent():
            return float(event.sampling_probability) * _in_clear(event.event, depth + 1)
        case dpa.SampledWithoutReplacementDpEvent():
            share = event.sample_size / event.source_dataset_size
            return float(share) * _in_clear(event.event, depth + 1)
        case dpa.SelfComposedDpEvent():
            return _in_clear(event.event, depth + 1)
        case dpa.ComposedDpEvent():
            return max((_in_clear(each, depth + 1) for each in event.events), default=0.0)
    return 0.0


def adjacency_named(relation: object) -> Adjacency:
    """Return the adjacency of a neighbouring relation's name.

    Raises:
        ParameterError: an unknown name.
    """
    try:
        return adjacency_of(dpa.NeighboringRelation[str(relation)])
    except KeyError:
        raise ParameterError(
            f"neighboring_relation must be a name of NeighboringRelation, got {str(relation)[:40]}"
        ) from None


OPACUS_ORDERS = (*(1.0 + x / 10.0 for x in range(1, 100)), *map(float, range(12, 64)))
"""The default orders of Opacus's accountant."""


def peer_epsilon(
    run: Mechanism,
    delta: float,
    adjacency: Adjacency,
    orders: Sequence[float] | None = None,
) -> float | None:
    """Return the epsilon of dp-accounting's ``RdpAccountant``; None if it has none.

    Flower and others print this number. Under REPLACE_ONE it assumes that a sum moves by C, not 2
    C.

    Args:
        run: the run.
        delta: the delta of the epsilon.
        adjacency: how neighbouring data sets differ.
        orders: of the Renyi divergences; None for its defaults.
    """
    # Its warnings about orders would confuse the reader of an audit.
    log = logging.getLogger("absl")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with uncertified():
            accountant = rdp.RdpAccountant(
                None if orders is None else list(orders),
                neighboring_relation=relation_of(adjacency),
            )
            accountant.compose(to_event(run, adjacency=adjacency))
            return float(accountant.get_epsilon(delta))
    except Exception:
        # This number of another library is only a remark, so any error just omits it.
        return None
    finally:
        log.setLevel(level)
