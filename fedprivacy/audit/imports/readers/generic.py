"""Any other file with a noise: numbers by name at any depth, and questions about everything else.

A name with two meanings is never read: ``sigma`` may be the std of the noise or its multiplier. In
a federated file a multiplier may be of one client's share, of the sum, or of the average, and a
fraction may be a probability or the part of a fixed cohort. The user states these facts.
"""

from __future__ import annotations

from typing import Any

from ....relations import Adjacency, Unit
from ..draft import Draft
from ..fields import Fields
from ..trace import Sampling
from .base import Reader, federated

KIND = "file of another program"

_NOISE = ("noise_multiplier", "noise_mult")
_UNCLEAR: tuple[str, ...] = ("sigma", "noise", "noise_std", "noise_stddev", "noise_scale", "std")
_UNCLEAR += ("stddev", "noise_level", "dp_sigma", "dp_noise", "noise_sigma", "z", "noise_variance")
_RATE = ("sample_rate", "sampling_rate", "sampling_probability")
_STEPS: tuple[str, ...] = ("steps", "num_steps", "total_steps", "train_steps", "max_steps")
_STEPS += ("num_iterations", "num_updates")
_ROUNDS = ("rounds", "num_rounds", "total_rounds", "global_rounds", "n_rounds", "comm_rounds")
_EPSILON = ("epsilon", "target_epsilon", "eps", "final_epsilon", "epsilon_spent")
_DELTA = ("delta", "target_delta")
_CLIENTS = ("clients", "num_clients", "n_clients", "num_users", "total_clients", "client_num")


def _recognises(fields: Fields, data: Any) -> bool:
    return fields.has(*_NOISE, *_UNCLEAR)


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, KIND, anywhere=False)
    draft.take("noise_multiplier", *_NOISE)
    draft.claims(_EPSILON, _DELTA)
    unclear = fields.all(*_UNCLEAR)
    if unclear:
        several = ", ".join(str(one) for one in unclear[:3])
        draft.ask(
            "noise_multiplier", f"{several} may be a std, a variance, a scale or a multiplier"
        )
    if federated(fields):
        if "noise_multiplier" in draft.facts and draft.facts["noise_multiplier"] != 0:
            draft.ask(
                "noise_multiplier",
                f"{draft.facts['noise_multiplier']} may be of one client's share, of the sum or of "
                "the average; state the noise of the sum",
            )
        fields.all(*_ROUNDS, *_CLIENTS, "clients_per_round", "client_fraction", "frac")
        draft.ask("rounds", "noisy sums that were released; local steps count if they are seen")
    else:
        draft.take("sampling_probability", *_RATE)
        draft.take("rounds", *_STEPS, whole=True)
        if draft.facts.get("noise_multiplier"):
            draft.inferred.append(
                "noise_multiplier is read as the std of the noise in the sum over the clip norm"
            )
    _own_words(draft)
    return draft


def _own_words(draft: Draft) -> None:
    """Read facts that are written in the words of this package."""
    for name, kind in (("adjacency", Adjacency), ("unit", Unit), ("sampling", Sampling)):
        found = {str(one.value).strip() for one in draft.fields.all(name)}
        if len(found) == 1 and (word := found.pop()) in list(kind):
            draft.facts[name] = kind(word)


READER = Reader(KIND, _recognises, _read)
