"""pfl (0.6): arguments of a simulation with a central privacy mechanism.

The noise is calibrated to ``central_epsilon`` for ``noise_cohort_size`` users, and then multiplied
by ``cohort_size / noise_cohort_size``. The multiplier itself is not among the arguments.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..vocabulary import words_of
from .base import Reader, named

KIND = "pfl arguments"

_MARKS = words_of(
    """
    central_privacy_mechanism central_privacy_clip_bound central_privacy_clipping_bound
    central_epsilon noise_cohort_size central_num_iterations
    """
)


def _recognises(fields: Fields, data: Any) -> bool:
    accountant = {"num_compositions", "noise_scale"} <= fields.names()
    return accountant or fields.has(*_MARKS)


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (pfl 0.6), {named(fields, *_MARKS)}")
    if fields.text("central_privacy_mechanism") in ("none", "null", "no_privacy"):
        why = "central_privacy_mechanism is none, and the noise of single users is not recorded"
        refuse_unauditable(name, draft.tool, why)
    draft.take("rounds", "central_num_iterations", "num_compositions", whole=True)
    draft.take("population", "population", whole=True)
    draft.take("sampling_probability", "sampling_probability")
    cohort = draft.take("cohort", "cohort_size", whole=True)
    draft.claims(("central_epsilon", "epsilon"), ("central_delta", "delta"))
    draft.know("unit", Unit.CLIENT, "the unit is a client, because pfl clips a user's update")
    _noise(draft, cohort)
    return draft


def _noise(draft: Draft, cohort: float | None) -> None:
    """Take the noise that a simulation adds, or ask for it if one of its two factors is missing."""
    fields = draft.fields
    clip = fields.number(
        "central_privacy_clip_bound", "central_privacy_clipping_bound", "clipping_bound"
    )
    parameter, scale = fields.number("noise_parameter"), fields.number("noise_scale")
    hypothetical = fields.number("noise_cohort_size")
    if hypothetical and cohort and scale is None:
        scale = cohort / hypothetical
    if parameter is not None and scale is not None and scale > 0:
        added = parameter * scale
        because = f"the added noise is noise_parameter {parameter:g} times noise_scale {scale:g}"
        draft.know("noise_multiplier", added, because)
        return
    _ask_for_noise(draft, scale, clip)
    if hypothetical and cohort and "sampling_probability" not in draft.facts:
        why = f"cohort_size over the users of the data; pfl accounts cohorts of {hypothetical:g}"
        draft.ask("sampling_probability", f"{why} in a population that a simulation does not have")


def _ask_for_noise(draft: Draft, scale: float | None, clip: float | None) -> None:
    """Ask for the noise multiplier, with the part of it that the arguments state."""
    factor = "noise_scale" if scale is None else f"{scale:g}"
    draft.ask(
        "noise_multiplier",
        f"pfl computes it from epsilon; state the accountant's noise_parameter times {factor}"
        + (", the part of the noise that a simulation adds" if scale != 1 else "")
        + ("; no clip bound is recorded" if clip is None else ""),
    )


READER = Reader(KIND, _recognises, _read)
