"""Fed-BioMed (6.4): training arguments with ``dp_args``.

``local`` trains with Opacus: ``sigma`` is the noise multiplier of each step. ``central`` adds noise
of std ``sigma * clip`` once, to each number of one node's model, while ``clip`` bounds the gradient
of each record. Nothing bounds the node's model.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..trace import Sampling
from .base import Reader, named

KIND = "Fed-BioMed training arguments"


def _recognises(fields: Fields, data: Any) -> bool:
    return fields.has("dp_args") and fields.has("sigma", "clip")


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (fedbiomed 6.4), {named(fields, 'dp_args')}")
    kind, sigma = fields.text("type"), fields.number("sigma")
    fields.all("clip", "epochs", "num_updates", "batch_size", "round_limit")
    draft.claims(("epsilon",), ("delta",))
    if kind == "central":
        draft.know("unit", Unit.CLIENT, "noise is added to the model of one node")
        draft.ask(
            "noise_multiplier",
            f"central noise of {sigma} clips is added to a node's model after training, but "
            "the change of that model is unbounded: the clip bounds gradients of records; state "
            "its std over the largest change of the model",
        )
        draft.ask("rounds", "rounds with the node", limits=False)
        return draft
    if kind != "local":
        refuse_unauditable(name, draft.tool, "dp_args has no type 'local' or 'central'")
    draft.take("noise_multiplier", "sigma")
    draft.know("unit", Unit.RECORD, "the unit is a record, because nodes train with Opacus")
    because = "PrivacyEngine.make_private draws batches by Poisson sampling by default"
    draft.know("sampling", Sampling.POISSON, because)
    draft.ask("sampling_probability", "batch size over the number of records of the node")
    why = "steps of one node in all: rounds times its local updates"
    draft.ask("rounds", why, limits=False)
    return draft


READER = Reader(KIND, _recognises, _read)
