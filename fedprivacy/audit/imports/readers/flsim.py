"""FLSim (0.1): configurations with ``privacy_setting``.

The noise multiplier refers to the sum of the clipped updates. ``epochs`` counts passes over the
users, of ``num_users / users_per_round`` rounds each. How users are drawn is the type of the active
user selector.
"""

from __future__ import annotations

import math
from typing import Any

from ....relations import Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from .base import Reader, named

KIND = "FLSim configuration"

_MARKS = ("privacy_setting", "users_per_round")


def _recognises(fields: Fields, data: Any) -> bool:
    return fields.has(*_MARKS)


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (flsim 0.1), {named(fields, *_MARKS)}")
    if not fields.has("noise_multiplier"):
        refuse_unauditable(name, draft.tool, "it has no noise_multiplier")
    noise = draft.take("noise_multiplier", "noise_multiplier")
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    cohort = draft.take("cohort", "users_per_round", whole=True)
    users = draft.take("population", "num_users", "num_total_users", whole=True)
    epochs = fields.number("epochs")
    kind = fields.text("aggregation_type")
    if noise and kind not in ("", "average", "aggregationtype.average"):
        draft.ask("denominator", f"aggregation_type {kind[:30]} divides by weights of the users")
    if fields.number("clipping_value") is None and noise:
        draft.ask("noise_multiplier", f"{noise} in the file, but no clipping_value is recorded")
    draft.know("unit", Unit.CLIENT, "the unit is a client, because FLSim clips a user's update")
    if None not in (cohort, users, epochs) and cohort:
        rounds = math.ceil(users / cohort) * epochs
        because = f"{epochs:g} epochs of {users} users, {cohort} a round, are {rounds:g} rounds"
        if float(rounds).is_integer() and rounds >= 1:
            draft.know("rounds", int(rounds), because)
    if "rounds" not in draft.facts:
        draft.ask("rounds", f"epochs = {epochs} needs num_users and users_per_round")
    return draft


READER = Reader(KIND, _recognises, _read)
