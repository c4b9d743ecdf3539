"""APPFL (1.12): configurations with ``use_dp``.

The Laplace scale of a local model is ``2 * clip_value * learning rate / epsilon``, whatever the
number of parameters and of local steps. Batch gradients are clipped only if ``clip_grad`` is true.
"""

from __future__ import annotations

from typing import Any

from ..draft import Draft, hopeless
from ..fields import Fields
from .base import Reader, named

KIND = "APPFL configuration"


def _recognises(fields: Fields, data: Any) -> bool:
    return fields.has("use_dp")


def _read(fields: Fields, name: str) -> Draft:
    tool = f"{KIND} (appfl 1.12), {named(fields, 'use_dp')}"
    if not fields.flag("use_dp"):
        hopeless(name, tool, "use_dp is not true, so no noise is added")
    if not fields.flag("clip_grad"):
        hopeless(name, tool, "clip_grad is not true, so nothing bounds what one client sends")
    epsilon = fields.number("epsilon")
    hopeless(
        name,
        tool,
        f"its noise for epsilon {'unknown' if epsilon is None else f'{epsilon:g}'} counts one step "
        "and one coordinate; the dimension of the model and the local steps of each round, which "
        "multiply it, are not in the file",
    )


READER = Reader(KIND, _recognises, _read)
