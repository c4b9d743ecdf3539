"""jax-privacy (1 and 2): parameters of a DP Keras model, and training configurations.

The noise has std ``noise_multiplier * clipping_norm`` in the sum. A step sums
``gradient_accumulation_steps`` batches. ``fit`` draws Poisson batches only with
``poisson_sampling_in_fit``.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft
from ..fields import Fields
from ..trace import Sampling
from .base import Reader, named

KIND = "jax-privacy parameters"

_MARKS: tuple[str, ...] = ("gradient_accumulation_steps", "train_size", "poisson_sampling_in_fit")
_MARKS += ("rescale_to_unit_norm", "stop_training_at_epsilon")
_STEPS = ("train_steps", "num_updates")


def _recognises(fields: Fields, data: Any) -> bool:
    marks = fields.has("clipping_norm", "rescale_to_unit_norm") and fields.has(*_STEPS)
    return fields.has("poisson_sampling_in_fit") or (marks and fields.has(*_MARKS))


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (jax-privacy 1 and 2), {named(fields, *_MARKS)}")
    noise = draft.take("noise_multiplier", "noise_multiplier")
    draft.take("rounds", *_STEPS, whole=True)
    draft.claims(("epsilon", "stop_training_at_epsilon"), ("delta", "target_delta"))
    batch, size = fields.number("batch_size"), fields.number("train_size")
    gathered = fields.number("gradient_accumulation_steps")
    fields.all("microbatch_size", "rescale_to_unit_norm")
    draft.know("unit", Unit.RECORD, "the unit is a record, because its gradient is clipped")
    if noise is None:
        draft.ask("noise_multiplier", "jax-privacy computes it; state get_noise_multiplier()")
    elif fields.number("clipping_norm") is None:
        draft.ask("noise_multiplier", f"{noise} in the file, but no clipping_norm is recorded")
    if fields.all("gradient_accumulation_steps") and gathered != 1:
        # A record may be in several of the batches that one step sums.
        draft.ask("sampling", f"how the {gathered or 'several'} batches of one step were drawn")
        return draft
    if batch and size and 0 < batch <= size:
        draft.facts |= {"cohort": int(batch), "population": int(size)}
        draft.facts["sampling_probability"] = batch / size
        draft.inferred.append(f"a step has {batch:g} of {size:g} records")
    if fields.flag("poisson_sampling_in_fit"):
        draft.know("sampling", Sampling.POISSON, "poisson_sampling_in_fit draws Poisson batches")
        draft.facts.pop("cohort", None)
    return draft


READER = Reader(KIND, _recognises, _read)
