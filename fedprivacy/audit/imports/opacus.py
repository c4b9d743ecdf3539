"""Opacus: the state of its accountant, as JSON or in a torch checkpoint.

The history holds (noise multiplier, sample rate, steps) for groups of equal steps. It records
neither the sampling (``PrivacyEngine`` uses Poisson sampling by default) nor the adjacency, so the
user must state both. The unit is a record.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...errors import integer
from ...integrations.opacus_state import steps_in_no_pass
from ...outputs import printable
from ...relations import Unit
from .content import as_type, unreadable
from .fields import plain_name
from .trace import Origin, Rounds, Sampling, Trace, in_order

KIND = "Opacus accountant state"
INSIDE = "privacy_accountant_state_dict"
"""Key of the state in a checkpoint of ``PrivacyEngine.save_checkpoint``."""

MAX_PICKLE = 16 * 2**20
"""Largest part of a checkpoint without its tensors, in bytes."""

_Noise = Annotated[float, msgspec.Meta(ge=0)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Steps = Annotated[int, msgspec.Meta(ge=1, le=10**15)]


class OpacusState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of ``accountant.state_dict()``. States of this package also hold the sampling."""

    history: list[tuple[_Noise, _Rate, _Steps]]
    mechanism: str = "not stated"
    scheme: str | None = None
    passes: list[tuple[_Noise, _Steps]] | None = None
    void: str | None = None
    unstepped: int | None = None


def recognises(data: Any) -> bool:
    """Return whether plain values are an Opacus state, its history, or a checkpoint with one."""
    if isinstance(data, list):
        # A bare history is a list of triples. The check is strict, because any JSON may be a list.
        return (
            bool(data)
            and all(isinstance(each, list | tuple) and len(each) == 3 for each in data)
            and any(_may_be_steps(each) for each in data)
        )
    if not isinstance(data, dict):
        return False
    # Many programs call a training's losses its history, so the values decide.
    history = data.get("history")
    return INSIDE in data or (isinstance(history, list) and (not history or recognises(history)))


def _may_be_steps(each: Any) -> bool:
    """Return whether a triple may be a noise, a rate and steps; a curve has other triples."""
    numbers = all(isinstance(number, int | float) for number in each)
    return not numbers or (each[0] < 1e6 and each[1] <= 1 and float(each[2]).is_integer())


def outside(data: dict[Any, Any]) -> dict[Any, Any]:
    """Return the parts of a state that are none of its fields."""
    return {key: each for key, each in data.items() if key not in OpacusState.__struct_fields__}


def read(data: Any, origin: Origin) -> Trace:
    """Return the trace of a state.

    Raises:
        ConversionError: if the values are no state, or hold no steps.
    """
    name, whole = origin.name or KIND, {"history": data} if isinstance(data, list) else data
    if whole.keys() >= {INSIDE, "history"}:
        unreadable(
            name, f"two histories, one of them in {INSIDE!r}; it is unknown which of them ran"
        )
    inside = whole.get(INSIDE, whole)
    other = _strange(inside, name) if isinstance(inside, dict) else []
    state = as_type(_whole_steps(inside, other), OpacusState, name)
    if not state.history:
        unreadable(name, "its history is empty: no step was recorded")
    if state.void:
        unreadable(name, f"void: {state.void[:120]}; the releases are unknown")
    if state.passes and state.scheme is None:
        unreadable(name, "passes without the scheme that drew them")
    facts = {"its own accountant": state.mechanism[:40]}
    if other:
        facts["fields that are not read"] = printable(", ".join(other)[:300])
    if state.scheme is not None:
        facts["its batches"] = state.scheme[:120]
    return Trace(origin, in_order(_rounds(state, name)), unit=Unit.RECORD, other_facts=facts)


_DELICATE = {"noise", "sigma", "std", "clip", "clipping", "sampling", "sample", "sampler", "norm"}
"""Words of fields beside a history that may contradict it."""


def _strange(state: dict[Any, Any], name: str) -> list[str]:
    """Return the fields that are not of a state; refuse those that may contradict it."""
    other = [str(key) for key in state if key not in OpacusState.__struct_fields__]
    delicate = [key for key in other if {*plain_name(key).split("_")} & _DELICATE]
    if delicate:
        unreadable(
            name,
            "read as the state of an Opacus accountant, because of 'history'; "
            f"{str(delicate)[:120]} are no fields of a state and may contradict it; pass only it",
        )
    return other


def _whole_steps(state: Any, other: list[str]) -> Any:
    """Return a state without other fields, and with steps such as 100.0 as integers."""
    if not isinstance(state, dict):
        return state
    history = state.get("history")
    kept = {key: value for key, value in state.items() if str(key) not in other}
    if isinstance(history, list):
        kept["history"] = [_triple(each) for each in history]
    return kept


def _triple(each: Any) -> Any:
    if not isinstance(each, list | tuple) or len(each) != 3:
        return each
    steps = each[2]
    return [*each[:2], int(steps) if isinstance(steps, float) and steps.is_integer() else steps]


def _rounds(state: OpacusState, name: str) -> Iterator[tuple[Rounds, int]]:
    """Yield kinds of rounds. A state of this package gives the sampling; its passes are rounds."""
    if state.scheme is None:
        yield from ((Rounds(noise, rate=rate), steps) for noise, rate, steps in state.history)
        return
    kind, known = _scheme(state.scheme, name)
    if kind == "Shuffled":
        passes = state.passes or []
        length = integer(1, rounds_per_epoch=known.get("rounds_per_epoch", 1))
        _check_rates(state, 1.0 / length, name)
        free = steps_in_no_pass(state.history, passes, length)
        if free is not None:
            unreadable(name, free)
        # A record is in at most one step of a pass, and perhaps in none if the pass ended early.
        for noise, begun in passes:
            yield Rounds(noise, Sampling.SHUFFLED, per_epoch=1, partial=True), begun
        return
    facts: dict[str, Any] = {"sampling": _SAMPLING[kind], "population": known.get("population")}
    facts["cohort"] = known.get("size", known.get("draws"))
    share = known.get("probability")
    if share is not None:
        _check_rates(state, share, name)
    yield from ((Rounds(noise, rate=share, **facts), steps) for noise, _, steps in state.history)


def _check_rates(state: OpacusState, share: float, name: str) -> None:
    """Refuse steps with another rate than that of the scheme."""
    for _, rate, _ in state.history:
        if not math.isclose(rate, share, rel_tol=1e-6):
            unreadable(name, f"a rate of {rate:g} differs from the scheme {str(state.scheme)[:80]}")


_SAMPLING = {
    "Poisson": Sampling.POISSON,
    "FixedSize": Sampling.FIXED,
    "WithReplacement": Sampling.WITH_REPLACEMENT,
}


def _scheme(text: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and numbers of a scheme written by ``repr``; no code is evaluated."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        unreadable(name, f"unknown scheme: {text[:80]!r}")
    pairs = [one.split("=") for one in found["fields"].split(", ")]
    if len({key for key, _ in pairs}) < len(pairs):
        unreadable(name, f"a field occurs twice: {text[:80]!r}")
    return found["kind"], {
        key: json.loads(value.lower()) for key, value in pairs if value != "None"
    }


# Numbers as in JSON, and only finite ones.
_NUMBER = r"(?:(?:0|[1-9]\d{0,17})(?:\.\d{1,25})?(?:e-\d{2,3})?|None|True|False)"
_WRITTEN = re.compile(
    r"(?P<kind>Poisson|FixedSize|WithReplacement|Shuffled)"
    rf"\((?P<fields>[a-z_]+={_NUMBER}(?:, [a-z_]+={_NUMBER})*)\)",
    re.ASCII,
)


def from_checkpoint(path: Path) -> Any:
    """Return the state in a torch checkpoint; only tensors and plain values are unpickled.

    Raises:
        ConversionError: if the file is no checkpoint of this kind, or torch is not installed.
    """
    _check_zip(path)
    try:
        import torch
    except ImportError:
        unreadable(path.name, "a torch checkpoint needs torch; install fedprivacy[train]")
    try:
        # Only tensors and plain values are unpickled. The weights are mapped, not read into memory.
        data = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except Exception as error:
        # A damaged or hostile file may raise any error in torch's restricted unpickler.
        unreadable(path.name, f"not a checkpoint that holds tensors and plain values: {error}")
    if not recognises(data):
        unreadable(
            path.name, f"it contains no accountant's state (neither {INSIDE!r} nor 'history')"
        )
    # The rest of the checkpoint, including the model, is dropped here.
    return {INSIDE: data.get(INSIDE, data)}


def _check_zip(path: Path) -> None:
    """Refuse an archive whose pickle is long, or that is compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        unreadable(path.name, f"not a torch checkpoint: {error}")
    for part in parts:
        # torch stores archives uncompressed. A compressed one may expand to any size.
        if part.compress_type != zipfile.ZIP_STORED:
            unreadable(path.name, "a compressed archive, not a torch checkpoint")
        if part.filename.endswith(".pkl") and part.file_size > MAX_PICKLE:
            unreadable(path.name, f"more than {MAX_PICKLE} bytes in addition to its tensors")
