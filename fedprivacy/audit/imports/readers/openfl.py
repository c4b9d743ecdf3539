"""OpenFL (1.9): the configuration of its global differential privacy, and plans.

``differential_privacy`` holds ``noise_multiplier``, ``clip_norm``, ``clip_frequency``,
``sample_rate`` and ``delta``. Collaborators are drawn by Poisson sampling at ``sample_rate``. The
average divides by the number of drawn collaborators, and the noise by the expected number.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..trace import Sampling
from ..words import unclear
from .base import Reader, named

KIND = "OpenFL configuration"

_MARKS = ("clip_frequency", "rounds_to_train", "task_runner")


def _recognises(fields: Fields, data: Any) -> bool:
    return fields.has(*_MARKS) and (fields.has("noise_multiplier") or not unclear(fields))


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (openfl 1.9), {named(fields, *_MARKS)}")
    if not fields.has("noise_multiplier"):
        refuse_unauditable(name, draft.tool, "it has no noise_multiplier, and a plan adds no noise")
    noise = draft.take("noise_multiplier", "noise_multiplier")
    draft.take("sampling_probability", "sample_rate")
    draft.take("rounds", "rounds_to_train", whole=True)
    draft.claims((), ("delta",))
    if not fields.has("clip_frequency"):
        draft.ask("noise_multiplier", f"{noise} in the file; state it of the released sums")
        draft.ask("rounds", "noisy sums that were released; local steps count if they are noisy")
        return draft
    draft.know("unit", Unit.CLIENT, "the unit is a client: OpenFL clips a collaborator's update")
    draft.know("sampling", Sampling.POISSON, "OpenFL draws collaborators by Poisson sampling")
    if noise != 0:
        draft.ask(
            "noise_multiplier",
            f"OpenFL divides noise of {noise} clip norms by the expected cohort, and the sum by "
            f"the drawn one. State {noise} times the smallest cohort over the expected one",
        )
    return draft


READER = Reader(KIND, _recognises, _read)
