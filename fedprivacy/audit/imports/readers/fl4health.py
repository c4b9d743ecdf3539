"""FL4Health (0.4): configurations of client-level and instance-level private averaging.

At the client level, noise of std ``server_noise_multiplier * clipping_bound`` is added to the
unweighted sum of the clipped updates. With adaptive clipping the multiplier covers the update and
the clipping bits together, and the noise is relative to the next bound: the strategy moves the
bound before it draws noise. With weighted averaging the multiplier refers to the weighted sum.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..words import unclear
from .base import Reader, named

KIND = "FL4Health configuration"

_OF_CLIENTS = ("noise_multiplier", "client_noise_multiplier")
"""Names of the noise of a client's training in a configuration, and in a program."""
_MARKS = ("n_server_rounds", "server_noise_multiplier")


def _recognises(fields: Fields, data: Any) -> bool:
    known = fields.has(*_OF_CLIENTS) or not unclear(fields)
    return fields.has("server_noise_multiplier") or (fields.has("n_server_rounds") and known)


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (fl4health 0.4), {named(fields, *_MARKS)}")
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    if fields.has("server_noise_multiplier"):
        _client_level(draft)
    elif fields.has(*_OF_CLIENTS):
        _instance_level(draft)
    else:
        refuse_unauditable(name, draft.tool, "it has no noise multiplier")
    return draft


def _client_level(draft: Draft) -> None:
    fields = draft.fields
    noise = draft.take("noise_multiplier", "server_noise_multiplier")
    draft.take("rounds", "n_server_rounds", whole=True)
    draft.take("population", "n_clients", whole=True)
    draft.take("sampling_probability", "client_sampling_rate", "client_sampling")
    draft.know("unit", Unit.CLIENT, "the unit is a client, because the server noises the sum")
    if noise != 0:
        draft.by_answers = "FL4Health divides by the number of clients that answered"
    weighted = fields.flag("weighted_averaging", "weighted_aggregation")
    if weighted is None or fields.number("clipping_bound") is None:
        missing = "weighted_averaging" if weighted is None else "a clipping bound"
        draft.ask("noise_multiplier", f"{noise} in the file, but {missing} is not recorded")
    elif weighted:
        draft.ask(
            "noise_multiplier",
            f"{noise} in the file is of a sum weighted by examples; state it over the largest "
            "weighted update that one client can send",
        )
    adaptive = fields.flag("adaptive_clipping")
    if adaptive is not None:
        # Without adaptive clipping these have no effect.
        fields.all("clipping_bit_noise_multiplier", "clipping_quantile", "clipping_learning_rate")
    if adaptive and noise != 0:
        draft.ask(
            "noise_multiplier",
            f"{noise} in the file is relative to the next clipping bound, because FL4Health moves "
            f"the bound before it draws noise. State {noise} times the smallest ratio of a bound "
            "to the one before, or that number if no bound fell",
        )


def _instance_level(draft: Draft) -> None:
    fields = draft.fields
    draft.take("noise_multiplier", *_OF_CLIENTS)
    clip = fields.number("clipping_bound", "client_clipping", "max_grad_norm")
    fields.all("batch_size", "local_epochs", "local_steps", "n_server_rounds", "n_clients")
    draft.know("unit", Unit.RECORD, "the unit is a record, because clients train with Opacus")
    why = "steps of one client in all: server rounds times its local steps"
    draft.ask("rounds", why, limits=False)
    if clip is None:
        draft.ask("noise_multiplier", "no clipping bound is recorded")


READER = Reader(KIND, _recognises, _read)
