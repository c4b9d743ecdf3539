"""Fields that make the batch of a step larger than the number that a rate would be taken from."""

from __future__ import annotations

import math
import re
from typing import Any

from .draft import Draft
from .fields import Field, as_number, of_a_test, words_in
from .trace import Sampling
from .words import BATCH, NOISE, RATE, REAL, RECORDS, federated

_GATHERS = re.compile(
    r"(?:^|_)(?:\w*accum\w*|virtual|iter_size|update_freq|n?_?acc_steps|grad_acc|world_size|n_?gpus?"
    r"|num_gpus?|(?:num_|n_)?(?:devices|processes|nodes|machines|replicas)|gpus|nproc\w*|n_procs?"
    r"|nnodes|batches_per_(?:step|update)|(?:grad_)?sync_(?:steps|every)|tpu_cores|data_parallel|batch_multiplier|accelerators)(?:_|$)"
)
"""Names of how many batches, or devices, a step sums."""
_DEVICES = {"devices", "gpus", "gpu", "ngpus", "accelerators"}
"""Names of devices, which a file may list by their numbers."""
_BATCHES = {"batch", "lot", "batchsize"}
_WHOLE = {"logical", "lot", "effective", "total", "expected", "virtual", "global"}
_WHOLE_BATCHES = {*BATCH, "expected_batch_size"}
_DRAWN = {"sampling_probability", "cohort", "rounds_per_epoch"}
_SLACK = 1.05


def check(draft: Draft) -> None:
    """Ask for the rate if a field may make the batch of a step larger than it was taken for."""
    if not draft.of_clients:
        _gathered(draft)
    _larger_batch(draft)
    _larger_share(draft)
    if not draft.of_clients:
        _other_rate(draft)
        _per_device(draft)
        _unequal(draft)


_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?) ?%", re.ASCII)
_DRAWING = {"sampling", "subsampling", "sample", "subsample", "participation", "fraction", "rate"}


def _share(one: Field) -> float | None:
    """Return the share that a field states: a number of at most 1, or a percentage."""
    text = _PERCENT.fullmatch(one.value.strip()) if isinstance(one.value, str) else None
    share = one.number if text is None else float(text[1]) / 100.0
    return share if share is not None and 0 < share <= 1 else None


def _other_rate(draft: Draft) -> None:
    """Ask for the rate if the file has a second one."""
    rate = draft.rate
    noises = {one.parent for one in draft.fields.every if one.name in NOISE}
    if rate is None:
        return
    for one in draft.fields.every:
        share, known = _share(one), _names_a_rate(one) or (one.name == "q" and one.parent in noises)
        other = share is not None and not rate / _SLACK <= share <= rate * _SLACK
        if known and other and draft.about_the_run(one) and not of_a_test(one):
            _ask(draft, f"{rate:g} in the file, and {one}")
            return


def _names_a_rate(one: Field) -> bool:
    words = one.words
    if one.name in RATE or any(words - REAL == words_in(name) for name in RATE):
        return True
    return isinstance(one.value, str) and "%" in one.value and bool(words & _DRAWING)


def _per_device(draft: Draft) -> None:
    """Ask for the rate if it may be that of one device, and the file does not count the devices."""
    every = [one for one in draft.fields.every if not of_a_test(one)]
    one = next((one for one in every if _of_a_device(one)), None)
    if one is None or _counts_devices(draft) or federated(draft.fields):
        return
    why = f"{one}, and the number of devices is not in the file"
    rate, size = draft.rate, _least(draft, RECORDS)
    if _known(draft):
        # A share of several such batches counts the devices.
        if not (rate and size and rate * size > _SLACK * (one.number or math.inf)):
            _ask(draft, why)
    else:
        draft.ask("sampling_probability", why)


def _unequal(draft: Draft) -> None:
    """Ask for the sampling if some records are drawn more often, or several times in a batch."""
    for one in draft.fields.every:
        words = one.words | (words_in(one.value) if isinstance(one.value, str) else set())
        drawn = words & {"sampling", "sampler", "batches", "batch"}
        weighted = drawn and words & {"weighted", "balanced"} and "random" not in words
        again = "replacement" in words and "without" not in words
        again = again and draft.sampling is not Sampling.WITH_REPLACEMENT
        if (weighted or (again and one.flag)) and not one.empty:
            draft.ask("sampling", f"{one}: some records may be drawn more often than others")
            return


def _counts_devices(draft: Draft) -> bool:
    """Return whether the file has the number of devices, which ``_gathered`` takes into account."""
    every = (one for one in draft.fields.every if _GATHERS.search(one.name))
    return any(one.words & _DEVICES and not of_a_test(one) for one in every)


def _multiple(one: Field) -> float:
    """Return how many batches a field lets a step sum; NaN if unknown, and 1 for another field."""
    words = one.words
    if not _GATHERS.search(one.name) or of_a_test(one):
        return 1.0
    # A virtual batch is a batch.
    if "virtual" in words and words & _BATCHES:
        return 1.0
    ids = _ids(one.value)
    if words & _DEVICES and ids is not None:
        return float(len(ids))
    values = one.value if isinstance(one.value, list) else [one.value]
    if str(one.value).strip().lower() in ("auto", "all", "-1", "true"):
        return math.nan
    return float(max([number for each in values if (number := as_number(each))], default=1.0))


def _ids(value: Any) -> list[Any] | None:
    """Return the members of a list, or of a text such as ``0,1``; None for one value."""
    if isinstance(value, list):
        return value
    ids = value.split(",") if isinstance(value, str) else []
    return ids if len(ids) > 1 else None


def _ask(draft: Draft, why: str) -> None:
    draft.ask("sampling_probability", why)
    for name in _DRAWN - {"sampling_probability"}:
        draft.facts.pop(name, None)
    # No number is offered whose rate may be several times larger.
    for name in _DRAWN:
        draft.suggested.pop(name, None)


def doubt(draft: Draft, fact: str, why: str) -> None:
    """Ask for a fact that something in the file puts in doubt, if the file gives it."""
    of_records = not draft.of_clients
    if fact == "trials":
        draft.ask("trials", why)
    elif fact == "claim_epsilon":
        draft.ask_claim(why)
    elif fact == "sampling_probability":
        # A field that shuffles contradicts a stated sampling, whatever the rate.
        if of_records and _known(draft) and draft.shuffles is None:
            _ask(draft, why)
    elif draft.facts.get(fact):
        draft.ask(fact, why)


def _known(draft: Draft) -> bool:
    """Return whether the file has a rate, or the numbers from which one would be offered."""
    if draft.sampling is Sampling.EVERYONE:
        return False
    offered = {} if federated(draft.fields) else draft.suggested
    return bool((draft.facts.keys() | offered.keys()) & _DRAWN)


def _least(draft: Draft, names: tuple[str, ...] | set[str]) -> float | None:
    every = [one for one in draft.fields.every if one.name in names and not of_a_test(one)]
    numbers = [number for one in every if (number := one.number)]
    return min(numbers, default=None)


def _gathered(draft: Draft) -> None:
    """Ask for the rate if a step sums several batches, or batches of several devices."""
    found = [one for one in draft.fields.every if not _multiple(one) <= 1.0]
    if not found:
        return
    rate = _rate_of_one_batch(draft)
    if _known(draft):
        _ask(draft, f"{found[0]} may multiply the batch of a step")
    whole = any(one.words & _WHOLE and _is_batch(one) for one in draft.fields.every)
    if rate and not whole and not federated(draft.fields):
        known = [many for one in found if not math.isnan(many := _multiple(one))]
        draft.enlarged = (found[0], min(1.0, rate * math.prod(known)) / _SLACK)


def _rate_of_one_batch(draft: Draft) -> float | None:
    """Return the rate in the file, or else the share of the records in its smallest batch."""
    rate: float | None = draft.rate
    of_a_device = {one.name for one in draft.fields.every if _of_a_device(one)}
    batch, size = _least(draft, {*BATCH} | of_a_device), _least(draft, RECORDS)
    return batch / size if rate is None and batch and size else rate


def _is_batch(one: Field) -> bool:
    words = one.words
    return bool(words & _BATCHES) and "norm" not in words and one.number is not None


def _of_a_device(one: Field) -> bool:
    words = one.words
    return _is_batch(one) and "per" in words and bool(words & {"device", "gpu"})


def _larger_batch(draft: Draft) -> None:
    """Ask for the rate if the batch in use may be the part of one that fits into memory."""
    taken = [one.number for one in draft.fields.used.values() if one.name == "batch_size"]
    least = min((value for value in taken if value is not None), default=None)
    if least is None or not _known(draft):
        return
    for one in draft.fields.every:
        if not _is_batch(one) or of_a_test(one):
            continue
        larger = _exceeds(draft, one, least)
        if larger or (_of_a_device(one) and not _counts_devices(draft)):
            _ask(draft, f"{one}, where the batch was taken for {least:g}")
            if larger:
                _enlarge(draft, one)
            return


def _exceeds(draft: Draft, one: Field, least: float) -> bool:
    """Return whether another batch is larger than the one in use."""
    taken = draft.fields.read(one) and one.name == "batch_size"
    return _number(one) > least and not taken


def _enlarge(draft: Draft, one: Field) -> None:
    """Note the batch of records if it may make the largest share."""
    size = _least(draft, RECORDS)
    if not size or draft.of_clients:
        return
    share = min(1.0, _number(one) / size) / _SLACK
    if draft.enlarged is None or draft.enlarged[1] < share:
        draft.enlarged = one, share


def _number(one: Field) -> float:
    return one.number or 0.0


def _larger_share(draft: Draft) -> None:
    """Ask for the rate if a batch is a larger share of the records than the rate in use."""
    every = [one for one in draft.fields.every if one.number and not of_a_test(one)]
    batch = max(filter(_is_whole_batch, every), key=_number, default=None)
    size = min((one for one in every if one.name in RECORDS), key=_number, default=None)
    if draft.of_clients or batch is None or size is None:
        return
    rate, share = draft.rate, _number(batch) / _number(size)
    if rate is None and share <= 1.0 and not federated(draft.fields):
        draft.least_rate = max(draft.least_rate, share / _SLACK)
    elif rate is not None and _SLACK * rate < share <= 1.0:
        _ask(draft, f"{rate:g} in the file, where {batch} and {size} make {share:.4g}")


def _is_whole_batch(one: Field) -> bool:
    named = one.name in _WHOLE_BATCHES or one.words & _WHOLE
    return bool(named) and _is_batch(one)
