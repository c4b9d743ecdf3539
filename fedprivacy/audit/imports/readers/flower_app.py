"""Flower (flwr 1.35 to 1.42): the configuration of an app, as in its ``pyproject.toml``.

The central wrappers add noise of std ``noise_multiplier * clipping_norm / num_sampled_clients`` to
the average. The multiplier of the sum equals the configured one only if all sampled clients answer
and all have the same weight. The average of FedAvg has weights by number of examples. Both facts
are not in the file. ``LocalDpMod`` adds noise of std ``sensitivity * sqrt(2 ln(1.25 / delta)) /
epsilon`` to one client's update, and does not tie the sensitivity to the clip norm.
"""

from __future__ import annotations

import math
from typing import Any

from ....relations import Observer, Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..trace import Sampling
from ..words import unclear
from .base import Reader, named

KIND = "Flower app configuration"

_ROUNDS = ("num_server_rounds",)
_NOISE = ("noise_multiplier", "server_noise_multiplier")
_CLIP = ("clipping_norm", "clip_norm", "initial_clipping_norm")
_FRACTION = ("fraction_train", "fraction_fit")
_CLIENTS = ("num_supernodes", "num_total_clients", "num_clients")
_SAMPLED = ("num_sampled_clients",)
_OF_ONE = "steps of one client in all: server rounds times its local steps"
_ANSWERED = "in how many rounds one client answered; each one releases its update"


def _recognises(fields: Fields, data: Any) -> bool:
    flwr = isinstance(data, dict) and isinstance(data.get("tool"), dict) and "flwr" in data["tool"]
    return flwr or fields.has(*_ROUNDS, "num_sampled_clients", "num_supernodes")


def _read(fields: Fields, name: str) -> Draft:
    because = named(fields, "flwr", *_ROUNDS, *_SAMPLED)
    draft = Draft(fields, f"{KIND} (flwr 1.35 to 1.42), {because}")
    draft.take("rounds", *_ROUNDS, "num_rounds", whole=True)
    logged, planned = fields.number("logged_rounds"), draft.rounds
    if logged is not None and logged != planned:
        plan = "" if planned is None else f" of the {planned} in its configuration"
        draft.ask("rounds", f"the log shows {logged:g} rounds{plan}; state those that ran")
    draft.claims(("epsilon", "target_epsilon", "max_epsilon"), ("delta", "target_delta"))
    draft.know(
        "unit", Unit.CLIENT, "the unit is a client, because Flower's options clip its update"
    )
    if fields.has(*_RECORDS):
        _records(draft)
    elif fields.has(*_NOISE):
        _central(draft)
    elif fields.has("sensitivity"):
        _local(draft, name)
    elif unclear(fields):
        several = ", ".join(map(str, unclear(fields)[:3]))
        draft.ask(
            "noise_multiplier", f"{several} is no option of Flower; state the noise of the sum"
        )
        draft.ask("rounds", "noisy sums that were released; local steps count if they are noisy")
    else:
        refuse_unauditable(
            name, draft.tool, "it has no noise_multiplier, and no sensitivity of LocalDpMod"
        )
    return draft


_RECORDS = ("max_grad_norm", "max_per_sample_grad_norm")


def _records(draft: Draft) -> None:
    """Read an app whose clients train with Opacus: the unit is a record of one client."""
    fields = draft.fields
    draft.facts["unit"] = Unit.RECORD
    draft.inferred[:] = [
        f"the unit is a record, because {fields.all(*_RECORDS)[0].place[-40:]} clips its gradient"
    ]
    if draft.take("noise_multiplier", *_NOISE) is None:
        draft.ask("noise_multiplier", "Opacus may compute it from a target")
    draft.ask("rounds", _OF_ONE, limits=False)


def _central(draft: Draft) -> None:
    fields = draft.fields
    noise, clip = draft.take("noise_multiplier", *_NOISE), fields.number(*_CLIP)
    sampled = fields.number(*_SAMPLED)
    adaptive = fields.has("target_clipped_quantile", "clip_norm_lr", "clipped_count_stddev")
    _cohort(draft)
    if noise == 0:
        return
    of = "num_sampled_clients" if sampled is None else f"{sampled:g}"
    why = (
        f"Flower divides noise of {noise} clip norms by {of}, and the sum by the weights of the "
        f"answers. State {noise} if all {of} clients answered every round with equal weights; "
        f"with k answers of equal weight {noise} * k / {of}; with weights by examples {noise} / "
        f"({of} * the largest weight)"
        if noise is not None
        else ""
    )
    fewest = fields.number("fewest_answers")
    if fewest is not None:
        why += f"; the log shows a round with {fewest:g} answers"
    if adaptive:
        why += "; adaptive clipping also takes the noise from the next clip norm, which is smaller"
    if clip is None:
        why += "; no clipping norm is recorded"
    draft.ask("noise_multiplier", why)


def _cohort(draft: Draft) -> None:
    """Read the cohort: Flower draws a fixed number of the connected clients."""
    fields = draft.fields
    clients = draft.take("population", *_CLIENTS, whole=True)
    fraction, sampled = fields.number(*_FRACTION), fields.number(*_SAMPLED)
    fields.all("min_train_nodes", "min_fit_clients", "min_available_nodes", "min_available_clients")
    minima = [one.number for one in fields.all("min_train_nodes", "min_fit_clients")]
    least = max((value for value in minima if value is not None), default=2)
    if clients is not None and fields.has("sampled_clients"):
        _cohort_of_the_log(draft, clients)
        return
    if clients is None or fraction is None or not 0 <= fraction <= 1:
        return
    # As FedAvg computes it: the part of the clients, rounded down, and at least the minimum.
    size = max(int(clients * fraction), int(least))
    if sampled is not None and sampled != size:
        draft.ask(
            "cohort",
            f"{size} by the fraction and {sampled:g} by num_sampled_clients",
        )
        return
    if size >= clients:
        because = f"fraction {fraction:g} of {clients} clients: all take part in every round"
        draft.know("sampling", Sampling.EVERYONE, because)
        return
    draft.facts["cohort"] = size
    because = (
        f"fraction {fraction:g} of {clients} clients: cohorts of {size}, fixed size, because "
        "Flower samples so"
    )
    draft.know("sampling", Sampling.FIXED, because)


def _cohort_of_the_log(draft: Draft, clients: int) -> None:
    """Take the number of clients that the log says were sampled in every round."""
    drawn = draft.take("cohort", "sampled_clients", whole=True)
    if drawn is not None:
        kind = Sampling.EVERYONE if drawn == clients else Sampling.FIXED
        because = f"the log says that {drawn} of {clients} clients were sampled"
        draft.know("sampling", kind, because)


def _local(draft: Draft, name: str) -> None:
    fields = draft.fields
    clip, sensitivity = fields.number(*_CLIP), fields.number("sensitivity")
    epsilon, delta = fields.number("epsilon"), fields.number("delta")
    fields.all(*_CLIENTS, *_FRACTION)
    if clip is None or sensitivity is None or epsilon is None or delta is None:
        draft.ask("noise_multiplier", "LocalDpMod needs clipping_norm, sensitivity, epsilon, delta")
    elif min(clip, sensitivity, epsilon) <= 0 or not 0 < delta < 1:
        refuse_unauditable(
            name, draft.tool, "these values of LocalDpMod add no noise, or infinite noise"
        )
    else:
        std = sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon
        draft.know(
            "noise_multiplier",
            std / clip,
            f"LocalDpMod adds noise of std {std:.4g} to an update of norm {clip:g} at most "
            "(sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon); the number of examples and the "
            "metrics leave without noise, and are not counted",
        )
    draft.know(
        "observer",
        Observer.SERVER,
        "the server sees the noisy update of one client, so no cohort hides it",
    )
    fraction = fields.number(*_FRACTION)
    if fraction is None or fraction < 1:
        # A client that sits out some rounds releases less. How often is not in the file.
        draft.ask("rounds", _ANSWERED, limits=False)
    draft.know("sampling", Sampling.EVERYONE, "each counted round releases this client's update")


READER = Reader(KIND, _recognises, _read)
