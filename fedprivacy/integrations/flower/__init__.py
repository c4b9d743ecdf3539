"""Flower: a strategy wrapper and a client mod that make an app private, and an accountant.

    # client_app.py
    app = ClientApp(mods=[private_mod])
    # server_app.py
    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0, weighted_by_key=EQUALLY),
        perturbation=fp.Gaussian(noise_multiplier=1.0, clip_norm=0.5, unit="client"),
        scheme=fp.Poisson(0.2), population=50,
        ledger="run.jsonl", budget=fp.Budget(8.0, 1e-5, adjacency="zero_out"),
    )

These names need the extra ``flower``: flwr 1.41 or later with its message API. The message format
(``wire``) and the model on disk (``saved``) do not need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import needs

if TYPE_CHECKING:
    from .accountant import Accountant
    from .client import private_mod
    from .strategy import EQUALLY, PrivateStrategy

_ROOM = {
    "Accountant": "accountant",
    "EQUALLY": "strategy",
    "PrivateStrategy": "strategy",
    "private_mod": "client",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(name, "'fedprivacy[flower]'", "flwr", "torch"):
        return getattr(import_module(f"{__name__}.{_ROOM[name]}"), name)


def __dir__() -> list[str]:
    return __all__


__all__ = ["EQUALLY", "Accountant", "PrivateStrategy", "private_mod"]
