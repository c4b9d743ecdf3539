"""Settings of a training with private gradients: Opacus (1.x) and libraries with the same words.

``noise_multiplier`` is the std of the noise in the sum over the clip norm of one record. Opacus
draws batches by Poisson sampling unless ``poisson_sampling`` is false; the other libraries leave
the batches to the loader. Settings that only have ``target_epsilon`` let the library compute the
noise, which is then not in the file.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ....relations import Unit
from ..counts import steps_of
from ..draft import Draft
from ..fields import Fields
from ..trace import Sampling
from ..words import EPOCHS, EPSILON, NOISE, RECORDS, STEPS, federated, generative, says
from .base import Reader, named

_TOOLS: dict[str, tuple[str, ...]] = {
    "private-transformers settings": ("per_example_max_grad_norm",),
    "dp-transformers settings": ("per_sample_max_grad_norm",),
    "fastDP settings": ("clipping_fn", "clipping_style", "origin_params"),
    "Opacus settings": ("max_grad_norm", "max_per_sample_grad_norm"),
    "DP-SGD settings": ("max_grad_norm",),
}
"""Library -> its own names of settings. Many trainers call the clip norm max_grad_norm."""
_OPACUS: tuple[str, ...] = ("max_per_sample_grad_norm", "poisson_sampling", "grad_sample_mode")
_OPACUS += ("secure_mode", "secure_rng", "make_private", "make_private_with_epsilon")
_SIZES = ("dataset_size", "train_size", "trainset_size", "num_train_samples", "sample_size")


def _recognises(kind: str, fields: Fields, data: Any) -> bool:
    marks = _TOOLS[kind]
    # In a federated file the noise may be a client's or the server's.
    if not fields.has(*marks) or federated(fields) or generative(fields):
        return False
    if kind == "Opacus settings" and not (fields.has(*_OPACUS) or says(fields, "opacus")):
        return False
    # Many programs have a sigma.
    noisy = fields.has("sigma") and fields.has(*{*marks} - {"max_grad_norm"})
    return noisy or fields.has("noise_multiplier", "target_epsilon")


def _read(kind: str, fields: Fields, name: str) -> Draft:
    library = kind.removesuffix(" settings")
    version = " (opacus 1)" if library == "Opacus" else ""
    draft = Draft(fields, f"{kind}{version}, {named(fields, *_TOOLS[kind])}", anywhere=False)
    _noise(draft, "the library" if library == "DP-SGD" else library)
    draft.take("sampling_probability", "sample_rate")
    draft.take("rounds", *STEPS, whole=True)
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    if library != "DP-SGD":
        because = f"the unit is a record, because {library} clips its gradient"
        draft.know("unit", Unit.RECORD, because)
    poisson = fields.flag("poisson_sampling")
    if poisson:
        draft.know("sampling", Sampling.POISSON, "poisson_sampling is true")
    elif poisson is False:
        draft.know("sampling", Sampling.SHUFFLED, "poisson_sampling is false: the loader shuffles")
    _steps(draft)
    mode = fields.text("clipping", "grad_clip_mode")
    if mode not in ("", "flat", "per_layer", "ghost"):
        draft.ask("noise_multiplier", f"clipping = {mode[:30]} is not understood here")
    return draft


def _noise(draft: Draft, library: str) -> None:
    fields = draft.fields
    noise = draft.take("noise_multiplier", "noise_multiplier")
    if noise is not None:
        if fields.has("target_epsilon"):
            because = "the noise is noise_multiplier, not one computed from target_epsilon"
            draft.inferred.append(because)
    elif fields.has("sigma"):
        draft.ask("noise_multiplier", "sigma may be the std of the noise or its multiplier")
    else:
        target = fields.number(*EPSILON) is not None
        said = next((f", {one}" for one in fields.all(*NOISE)), "")
        computes = f"; {library} computes it from a target" if target and not said else ""
        draft.ask("noise_multiplier", f"it is no number in the file{said}{computes}")


def _steps(draft: Draft) -> None:
    """Take the rate from the batch if the file has none, and ask for the steps that it lacks."""
    fields = draft.fields
    epochs = fields.number(*EPOCHS)
    batch, size = fields.number("batch_size"), fields.number(*_SIZES)
    # Opacus draws with one over the number of batches, which is this only if they are equal.
    if draft.rate is None and batch and size and batch <= size and size % batch == 0:
        draft.facts |= {"sampling_probability": batch / size, "population": int(size)}
        draft.inferred.append(f"a batch of {batch:g} of {size:g} records")
    if draft.rounds is None:
        records = fields.number(*RECORDS)
        share = batch / records if batch and records and batch <= records else None
        draft.ask("rounds", steps_of(epochs, draft.rate or share))


READERS = tuple(Reader(kind, partial(_recognises, kind), partial(_read, kind)) for kind in _TOOLS)
