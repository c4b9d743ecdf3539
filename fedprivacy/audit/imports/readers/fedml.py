"""FedML (0.9): configurations with ``enable_dp``.

``ldp`` and ``cdp`` add noise calibrated to ``epsilon``, ``delta`` and a ``sensitivity`` that no
clip enforces: the Gaussian std is ``sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon``. ``cdp``
clips local models only if ``max_grad_norm`` is set, and averages with weights by examples.
"""

from __future__ import annotations

import math
from typing import Any

from ....relations import Observer, Unit
from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from ..words import NOISE, UNCLEAR
from .base import Reader, named

KIND = "FedML configuration"

_MARKS = ("enable_dp", "dp_solution_type", "mechanism_type", "client_num_per_round", "comm_round")


def _recognises(fields: Fields, data: Any) -> bool:
    solution = fields.has("dp_solution_type") or {"enable_dp", "mechanism_type"} <= fields.names()
    # Other programs count rounds in the same words.
    noisy = fields.has("enable_dp") or not fields.has(*NOISE, *UNCLEAR)
    return solution or (noisy and {"client_num_per_round", "comm_round"} <= fields.names())


def _read(fields: Fields, name: str) -> Draft:
    draft = Draft(fields, f"{KIND} (fedml 0.9), {named(fields, *_MARKS)}")
    if not fields.flag("enable_dp"):
        refuse_unauditable(name, draft.tool, "enable_dp is not true, so no noise is added")
    kind = fields.text("mechanism_type")
    if kind == "laplace":
        refuse_unauditable(
            name,
            draft.tool,
            "Laplace noise is added to every coordinate, but the sum of their changes is "
            "unbounded: neither a clip norm nor the dimension is recorded",
        )
    draft.take("rounds", "comm_round", whole=True)
    draft.take("population", "client_num_in_total", whole=True)
    draft.take("cohort", "client_num_per_round", whole=True)
    draft.claims(("epsilon",), ("delta",))
    draft.know("unit", Unit.CLIENT, "the unit is a client, because its whole model is noised")
    solution = fields.text("dp_solution_type")
    if solution == "ldp":
        because = "the server sees the noisy model of one client, so no cohort hides it"
        draft.know("observer", Observer.SERVER, because)
    draft.ask("noise_multiplier", _why(fields, solution))
    return draft


def _why(fields: Fields, solution: str) -> str:
    """Return why the multiplier is not in the file, with the std of the noise if it is known."""
    sensitivity, epsilon, delta = (fields.number(n) for n in ("sensitivity", "epsilon", "delta"))
    fields.all("noise_multiplier", "clipping_norm", "train_data_num_in_total")
    tied = solution in ("ldp", "cdp")
    if not (tied and sensitivity and epsilon and delta and 0 < delta < 1):
        return f"how {solution or 'this solution'} ties its noise to a clip is not known here"
    std = sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon
    clip = fields.number("max_grad_norm", "clipping_norm")
    if clip is None:
        return (
            f"FedML adds noise of std {std:.4g} to each coordinate and ties it to no clip norm; "
            f"no clip norm is recorded, so state {std:.4g} over the largest norm that your code "
            "allows"
        )
    return (
        f"FedML adds noise of std {std:.4g} to the average, whose weights follow the "
        f"examples; state {std:.4g} over ({clip:g} * the largest weight)"
    )


READER = Reader(KIND, _recognises, _read)
