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

Needs the extra ``flower``: flwr 1.41 with its message API.
"""

from .accountant import Accountant
from .client import private_mod
from .strategy import EQUALLY, PrivateStrategy

__all__ = ["EQUALLY", "Accountant", "PrivateStrategy", "private_mod"]
