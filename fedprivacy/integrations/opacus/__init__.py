"""Opacus 1.6, live: an accountant of ours inside its engine, and its steps in our ledger.

Opacus tells an accountant a noise multiplier and a rate, not how batches are drawn. So the data
loader is looked at: what it draws is priced as what it is, or refused. The only part that imports
opacus for more than its accountants' numbers.
"""

from ...errors import needs

with needs("fedprivacy.integrations.opacus", "'fedprivacy[train]' opacus", "torch", "opacus"):
    import opacus.accountants  # noqa: F401
    import torch  # noqa: F401

    from .accountant import NAME, CertifiedAccountant, register
    from .books import StepBooks, keep_books
    from .loaders import scheme_of

__all__ = ["NAME", "CertifiedAccountant", "StepBooks", "keep_books", "register", "scheme_of"]
