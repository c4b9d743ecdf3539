"""Statements of parameters, in TOML or JSON, from a paper, a README or a configuration.

``SCHEMA`` is published with this file as ``statement.schema.json``.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from ...errors import claimed
from ...outputs import printable
from ...relations import Adjacency, Observer, Unit
from .content import as_type, unreadable
from .fields import as_number, cannot_bear, plain_name
from .trace import Denominator, Origin, Rounds, Sampling, Trace, multiplier_of

KIND = "statement of parameters"

_Count = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
_Shares = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Noise = Annotated[float, msgspec.Meta(ge=0)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Epsilon = Annotated[float, msgspec.Meta(ge=0)]
_Delta = Annotated[float, msgspec.Meta(gt=0, lt=1)]


def _says(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run in numbers: rounds of one kind, and the claim."""

    rounds: Annotated[_Count, _says("how many rounds released noisy sums")]
    noise_multiplier: Annotated[
        _Noise | None, _says("std of the noise in the sum over the clip norm of one unit")
    ] = None
    noise_std: Annotated[_Noise | None, _says("std of the noise in the sum; with clip_norm")] = None
    clip_norm: Annotated[
        _Positive | None, _says("norm that the contribution of one unit is clipped to")
    ] = None
    sensitivity: Annotated[
        _Positive | None,
        _says(
            "what the claim's own arithmetic took for the clip norm; used to explain a claim only"
        ),
    ] = None
    sampling: Annotated[
        Sampling | None, _says("how the units of a round were drawn, as implemented")
    ] = None
    sampling_probability: Annotated[
        _Rate | None, _says("probability of a unit to take part in a round")
    ] = None
    cohort: Annotated[_Count | None, _says("how many units take part in a round")] = None
    population: Annotated[_Count | None, _says("how many units there are")] = None
    rounds_per_epoch: Annotated[_Count | None, _says("rounds in an epoch")] = None
    steps_per_round: Annotated[_Count | None, _says("how many noisy sums each round released")] = (
        None
    )
    missing_shares: Annotated[
        _Shares | None, _says("how many of the cohort's shares of the noise did not arrive")
    ] = None
    denominator: Annotated[Denominator | None, _says("what noisy sums were divided by")] = None
    trials: Annotated[_Count | None, _says("how many runs were made on these data")] = None
    unit: Annotated[Unit | None, _says("whose data is one unit")] = None
    adjacency: Annotated[Adjacency | None, _says("how neighbouring data sets differ")] = None
    observer: Annotated[Observer | None, _says("who looks")] = None
    epsilon: Annotated[_Epsilon | None, _says("the epsilon that is claimed")] = None
    delta: Annotated[_Delta | None, _says("the delta that is claimed")] = None
    description: Annotated[str | None, _says("of what; free text")] = None


def schema() -> dict[str, Any]:
    """Return the JSON schema of a statement."""
    (found,), parts = msgspec.json.schema_components([Statement], ref_template="#/$defs/{name}")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | found | {"$defs": parts}


def recognises(data: Any) -> bool:
    """Return whether plain values are a statement."""
    if not isinstance(data, dict) or data.keys().isdisjoint(_NOISE):
        return False
    known = {*Statement.__struct_fields__}
    # A part of another file's settings may bear on privacy, so such a file is a configuration.
    flat = not any(isinstance(value, dict) for value in data.values())
    return "rounds" in data and (data.keys() <= known or (flat and bool(data.keys() & _OWN)))


_NOISE = {"noise_multiplier", "noise_std"}
_OWN = {"sampling_probability", "rounds_per_epoch", "steps_per_round", "missing_shares"}
_OWN |= {"noise_std", "denominator", "cohort", "adjacency", "observer"}
"""Fields whose names only this package uses."""
_CALLED = {"sample_rate": "sampling_probability", "steps": "rounds", "max_grad_norm": "clip_norm"}
_CALLED |= {"sampling_rate": "sampling_probability", "l2_norm_clip": "clip_norm"}
_CALLED |= {"clients": "population", "target_epsilon": "epsilon", "target_delta": "delta"}
"""Other programs' names of fields."""


def read(data: Any, origin: Origin) -> Trace:
    """Return the trace of a statement.

    Raises:
        ConversionError: if the values are no statement.
        ParameterError: if a value breaks its rule.
    """
    # A trace from values has no file name.
    name = origin.name or KIND
    data, unused = _in_our_words(data)
    strange = sorted(map(str, data.keys() - set(Statement.__struct_fields__)))
    if strange:
        listed = ", ".join(_with_ours(each) for each in strange[:12])
        unreadable(name, f"no fields of a statement: {listed}; see docs/auditing.md, Statements")
    # Epsilon and delta may be swapped, which a check of the type does not detect.
    if isinstance(data.get("delta"), int | float) and data["delta"] >= 1.0:
        claimed(0.0, data["delta"])
    statement: Any = as_type(data, Statement, name)
    noise = multiplier_of(
        statement.noise_multiplier, statement.noise_std, statement.clip_norm, "the statement"
    )
    rounds = Rounds(
        noise,
        statement.sampling,
        statement.sampling_probability,
        statement.cohort,
        statement.population,
        statement.rounds_per_epoch,
        statement.steps_per_round,
        statement.missing_shares,
    )
    return Trace(
        origin,
        ((rounds, statement.rounds),),
        unit=statement.unit,
        adjacency=statement.adjacency,
        observer=statement.observer,
        claim=None
        if None in (statement.epsilon, statement.delta)
        else (statement.epsilon, statement.delta),
        half=_half(statement),
        other_facts=_other_facts(statement.description, unused),
        sensitivity=_in_clip_norms(statement),
        denominator=statement.denominator,
        trials=statement.trials,
    )


def _in_our_words(data: dict[Any, Any]) -> tuple[dict[Any, Any], list[str]]:
    """Return a statement with our names of its fields, and the fields that bear on no privacy."""
    found = {name: value for name, value in data.items() if name in Statement.__struct_fields__}
    unused = []
    for name, value in data.items():
        ours = _CALLED.get(plain_name(name))
        if name in found:
            continue
        if ours is not None and ours not in found:
            found[ours] = value
        elif cannot_bear(name) and not isinstance(value, dict | list):
            unused.append(str(name))
        else:
            found[name] = value
    # YAML takes 1e-5 for a text.
    numbers = {name: as_number(value) for name, value in found.items() if name not in _TEXTS}
    texts = {name for name, value in found.items() if isinstance(value, str)}
    return found | {name: numbers[name] for name in texts if numbers.get(name) is not None}, unused


_TEXTS = {"sampling", "denominator", "unit", "adjacency", "observer", "description"}


def _other_facts(description: str | None, unused: list[str]) -> dict[str, str]:
    # Untrusted free text is shortened for the report.
    facts = {} if description is None else {"description": description[:500]}
    if unused:
        facts["fields that are not read"] = printable(", ".join(unused)[:300])
    return facts


def _with_ours(name: str) -> str:
    """Return a strange field, with the name that it has here if it is known."""
    word = plain_name(name)
    near = get_close_matches(word, Statement.__struct_fields__, 1, 0.8)
    ours = _CALLED.get(word) or next(iter(near), None)
    return f"{name!r:.40}" + (f" (here {ours})" if ours else "")


def _half(statement: Any) -> dict[str, float]:
    """Return the stated half of a claim, which the user completes."""
    known = {"epsilon": statement.epsilon, "delta": statement.delta}
    given = {name: value for name, value in known.items() if value is not None}
    return given if len(given) == 1 else {}


def _in_clip_norms(statement: Any) -> float | None:
    if statement.sensitivity is None:
        return None
    return float(
        statement.sensitivity / (1.0 if statement.clip_norm is None else statement.clip_norm)
    )
