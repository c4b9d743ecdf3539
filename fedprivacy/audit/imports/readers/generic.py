"""Any other file with a noise: numbers by name at any depth, and questions about everything else.

A name with two meanings is never read: ``sigma`` may be the std of the noise or its multiplier. In
a federated file a multiplier may be of one client's share, of the sum, or of the average, and a
fraction may be a probability or the part of a fixed cohort. The user states these facts.
"""

from __future__ import annotations

from typing import Any

from ..counts import steps_of
from ..draft import Draft
from ..fields import Field, Fields
from ..words import (
    BATCH,
    CLIENT_RATE,
    CLIPS,
    COHORT,
    EPOCHS,
    NOISE,
    POPULATION,
    RECORDS,
    ROUNDS,
    STEPS,
    bare,
    federated,
    generative,
    private,
    trains,
    unclear,
)
from .base import Reader

KIND = "file of another program"


def _recognises(fields: Fields, data: Any) -> bool:
    noisy = fields.has(*NOISE) or (unclear(fields) != [] and private(fields))
    # Other programs multiply other noise.
    other = len(fields.every) > 1 and bare(fields) and not trains(fields)
    return noisy and not generative(fields) and not other


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, KIND, anywhere=False)
    draft.take("noise_multiplier", *NOISE)
    found = unclear(fields)
    if found:
        draft.ask("noise_multiplier", _readings(fields, found))
    if federated(fields):
        _of_clients(draft)
    else:
        _of_one(draft)
    return draft


def _of_one(draft: Draft) -> None:
    """Read the rounds of a file about one training."""
    fields = draft.fields
    draft.take("rounds", *STEPS, whole=True)
    epochs, batch, size = (fields.number(*names) for names in (EPOCHS, BATCH, RECORDS))
    stepless = not fields.has(*STEPS)
    if epochs and batch and size and batch <= size and stepless:
        draft.ask("rounds", steps_of(epochs, batch / size))
    if draft.noise and bare(fields) and stepless:
        why = "it names neither a clip norm nor privacy"
        draft.ask("noise_multiplier", f"{draft.noise} in the file, but {why}")
    if draft.noise:
        because = "noise_multiplier is read as the std of the noise in the sum over the clip norm"
        draft.inferred.append(because)


def _of_clients(draft: Draft) -> None:
    """Ask for the noise and the rounds of a federated file."""
    fields = draft.fields
    if draft.noise:
        draft.ask(
            "noise_multiplier",
            f"{draft.noise} in the file may be of one client's share, of the sum or of the "
            "average; state the noise of the sum",
        )
    rounds = fields.number(*ROUNDS)
    count = "" if rounds is None else f"{rounds} rounds in the file; "
    why = f"{count}state the noisy sums that were released, with local steps if they are seen"
    if draft.noise != 0:
        draft.ask("rounds", why)
    fields.all(*ROUNDS, *COHORT, *POPULATION, *CLIENT_RATE)


def _readings(fields: Fields, found: list[Field]) -> str:
    """Return what fields with two meanings may say, in words."""
    several = ", ".join(str(one) for one in found[:3])
    which = ": which one is the noise of the sum? Each" if len(found) > 1 else ""
    why = f"{several}{which} may be a std, a variance, a scale or a multiplier"
    clip = fields.number(*CLIPS)
    numbers = [number for one in found[:3] if (number := one.number) is not None]
    if clip is None or clip <= 0 or not numbers:
        return why
    stds = " or ".join(f"{number / clip:.6g}" for number in numbers)
    plain = " or ".join(f"{number:g}" for number in numbers)
    if stds == plain:
        return f"{why}; with the clip norm 1 a multiplier and a std are the same number"
    return f"{why}; state {plain} for a multiplier, {stds} for a std with the clip norm {clip:g}"


READER = Reader(KIND, _recognises, _read)
