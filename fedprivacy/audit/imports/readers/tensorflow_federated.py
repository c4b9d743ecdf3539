"""TensorFlow Federated: flags of a run with ``DifferentiallyPrivateFactory``.

``noise_multiplier`` is the std of the noise in the sum over the clip, for fixed and for adaptive
clipping. The sum is divided by the fixed number ``clients_per_round``.
"""

from __future__ import annotations

from typing import Any

from ....relations import Unit
from ..draft import Draft
from ..fields import Fields
from ..words import federated
from .base import Reader, named

KIND = "TensorFlow Federated flags"

_MARKS: tuple[str, ...] = ("uniform_weighting", "client_epochs_per_round", "clients_per_thread")
_MARKS += ("target_unclipped_quantile", "adaptive_clip_learning_rate")
_MARKS += ("clipped_count_budget_allocation", "max_elements_per_client")


def _recognises(fields: Fields, data: Any) -> bool:
    # Other programs clip by a quantile too.
    own = fields.has(*{*_MARKS} - {"target_unclipped_quantile"}) or federated(fields)
    return own and fields.has(*_MARKS) and fields.has("noise_multiplier")


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (tensorflow-federated), {named(fields, *_MARKS)}")
    noise = draft.take("noise_multiplier", "noise_multiplier")
    draft.take("rounds", "total_rounds", "num_rounds", "rounds", whole=True)
    draft.take("cohort", "clients_per_round", whole=True)
    draft.take("population", "num_clients", "total_clients", "population", whole=True)
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    fields.all("clip", "l2_norm_clip", "clipping_norm", "target_unclipped_quantile")
    fields.all("clients_per_thread", "client_epochs_per_round")
    # Its noise multiplier is that of the update and of the count of clipped updates together.
    fields.all("adaptive_clip_learning_rate", "clipped_count_budget_allocation")
    draft.know("unit", Unit.CLIENT, "the unit is a client, because a client's update is clipped")
    if not fields.flag("uniform_weighting") and noise != 0:
        draft.ask(
            "noise_multiplier",
            f"{noise} in the file holds if all clients have equal weights; uniform_weighting is "
            "not recorded as true",
        )
    return draft


READER = Reader(KIND, _recognises, _read)
