"""APPFL (1.12): configurations with ``use_dp``.

The Laplace scale of a local model is ``2 * clip_value * learning rate / epsilon``, whatever the
number of parameters and of local steps. Batch gradients are clipped only if ``clip_grad`` is true.
With ``dp_mechanism: opacus`` clients train with Opacus's ``make_private``, on Poisson batches.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..trace import Sampling
from .base import Reader, named

KIND = "APPFL configuration"


def _recognises(fields: Fields, data: Any) -> bool:
    own = fields.has("dp_mechanism", "num_global_epochs")
    return fields.has("use_dp") and (own or {"clip_grad", "clip_value"} <= fields.names())


def _read(fields: Fields, name: str) -> Draft:
    tool = f"{KIND} (appfl 1.12), {named(fields, 'use_dp')}"
    if not fields.flag("use_dp"):
        refuse_unauditable(name, tool, "use_dp is not true, so no noise is added")
    if fields.text("dp_mechanism") == "opacus":
        return _opacus(Draft(fields, tool))
    if not fields.flag("clip_grad"):
        refuse_unauditable(
            name, tool, "clip_grad is not true, so the contribution of a client is unbounded"
        )
    epsilon = fields.number("epsilon")
    refuse_unauditable(
        name,
        tool,
        f"its noise for epsilon {'unknown' if epsilon is None else f'{epsilon:g}'} counts one step "
        "and one coordinate; the dimension of the model and the local steps of each round, which "
        "multiply it, are not in the file",
    )


def _opacus(draft: Draft) -> Draft:
    fields = draft.fields
    noise = draft.take("noise_multiplier", "noise_multiplier")
    if noise is None or fields.number("max_grad_norm") is None:
        draft.ask("noise_multiplier", "dp_config needs noise_multiplier and max_grad_norm")
    draft.claims(("target_epsilon",), ("delta", "target_delta"))
    fields.all("num_global_epochs", "num_local_steps", "num_local_epochs", "train_batch_size")
    draft.know("unit", Unit.RECORD, "the unit is a record, because clients train with Opacus")
    draft.know("sampling", Sampling.POISSON, "make_private draws batches by Poisson sampling")
    draft.ask("sampling_probability", "batch size over the number of records of the client")
    why = "steps of one client in all: global epochs times its local steps"
    draft.ask("rounds", why, limits=False)
    return draft


READER = Reader(KIND, _recognises, _read)
