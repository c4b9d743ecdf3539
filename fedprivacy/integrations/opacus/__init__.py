"""Opacus 1.6, live: our accountant in its engine, and its steps in our ledger.

Opacus passes a noise multiplier and a rate to an accountant, but not the way of drawing batches.
These modules therefore inspect the data loader. Its draws get the price of their actual scheme, or
are refused. No other part imports opacus for more than the numbers of its accountants.
"""

from ...errors import needs

with needs("fedprivacy.integrations.opacus", "'fedprivacy[train]' opacus", "torch", "opacus"):
    import opacus.accountants  # noqa: F401
    import torch  # noqa: F401

    from .accountant import NAME, CertifiedAccountant, register
    from .books import StepBooks, keep_books
    from .loaders import scheme_of
    from .plain import PoissonAccountant, get_noise_multiplier

__all__ = [
    "NAME",
    "CertifiedAccountant",
    "PoissonAccountant",
    "StepBooks",
    "get_noise_multiplier",
    "keep_books",
    "register",
    "scheme_of",
]
