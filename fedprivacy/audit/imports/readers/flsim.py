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
from ..words import unclear
from .base import Reader, named

KIND = "FLSim configuration"

_MARKS = ("privacy_setting", "users_per_round")


def _recognises(fields: Fields, data: Any) -> bool:
    own = fields.has("active_user_selector", "aggregation_type", "trainer")
    known = fields.has("noise_multiplier") or not unclear(fields)
    return known and (fields.has("privacy_setting") or (fields.has("users_per_round") and own))


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (flsim 0.1), {named(fields, *_MARKS)}")
    if not fields.has("noise_multiplier"):
        refuse_unauditable(name, draft.tool, "it has no noise_multiplier")
    _check_bases(fields, draft, name)
    if any(_of_client(one.place) for one in fields.all("privacy_setting", "noise_multiplier")):
        return _records(draft)
    noise = draft.take("noise_multiplier", "noise_multiplier")
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    cohort = draft.take("cohort", "users_per_round", whole=True)
    users = draft.take("population", "num_users", "num_total_users", whole=True)
    epochs = _epochs(fields)
    kind = fields.text("aggregation_type")
    if noise and kind not in ("", "average", "aggregationtype.average"):
        draft.ask("denominator", f"aggregation_type {kind[:30]} divides by weights of the users")
    if fields.number("clipping_value") is None and noise:
        draft.ask("noise_multiplier", f"{noise} in the file, but no clipping_value is recorded")
    draft.know("unit", Unit.CLIENT, "the unit is a client, because FLSim clips a user's update")
    _rounds(draft, cohort, users, epochs)
    trainer = next((str(one.value) for one in fields.all("base") if "async" in str(one.value)), "")
    if trainer and noise:
        draft.ask("rounds", f"{trainer} releases a model for every buffer of updates: how many")
        draft.ask("noise_multiplier", f"{trainer} weights updates by their age")
    return draft


def _rounds(draft: Draft, cohort: int | None, users: int | None, epochs: float | None) -> None:
    """Take the rounds from the epochs, or ask for them."""
    if cohort and users is not None and epochs is not None:
        rounds = math.ceil(users / cohort) * epochs
        because = f"{epochs:g} epochs of {users} users, {cohort} a round, are {rounds:g} rounds"
        if float(rounds).is_integer() and rounds >= 1:
            draft.know("rounds", int(rounds), because)
    if "rounds" not in draft.facts:
        draft.ask("rounds", f"epochs = {epochs} needs num_users and users_per_round")


_PRIVATE_BASES = ("base_sync_dp_server", "base_sync_ftrl_server", "base_dp_client")


def _check_bases(fields: Fields, draft: Draft, name: str) -> None:
    """Refuse settings of parts that add no noise."""
    bases = {one.parent: str(one.value) for one in fields.all("base")}
    for one in fields.every:
        part, _, last = one.place.rpartition(".")
        base = bases.get(part, _PRIVATE_BASES[0])
        of_part = part.rpartition(".")[2] in ("server", "client")
        if last == "privacy_setting" and of_part and base not in _PRIVATE_BASES:
            why = f"{base} adds no noise; {' and '.join(_PRIVATE_BASES[::2])} do"
            refuse_unauditable(name, draft.tool, why)


def _of_client(place: str) -> bool:
    return "client" in place.lower().split(".")


def _records(draft: Draft) -> Draft:
    """Read a ``base_dp_client``: clients take noisy steps, and the unit is a record."""
    draft.take("noise_multiplier", "noise_multiplier")
    draft.fields.all("epochs", "users_per_round", "clipping_value", "aggregation_type")
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    because = "the unit is a record, because the privacy_setting of clients clips its gradient"
    draft.know("unit", Unit.RECORD, because)
    why = "steps of one client in all: its rounds times its local steps"
    draft.ask("rounds", why, limits=False)
    return draft


def _epochs(fields: Fields) -> float | int | None:
    """Return the epochs next to ``users_per_round``; those of a client are local."""
    parts = {one.parent for one in fields.all("users_per_round")}
    epochs = [one for one in fields.all("epochs") if one.parent in parts]
    found = {one.number for one in epochs}
    return found.pop() if len(found) == 1 else None


READER = Reader(KIND, _recognises, _read)
