"""The methods of ``fedprivacy train``: one file for each, in the order of the help."""

from . import fedavg, dp_fedavg, dp_ftrl, scaffold, fed_smp, fa_ld, fa_hmc, fed_plt  # noqa: I001
from .base import (
    DECLARED,
    METHODS,
    Method,
    method_named,
    names,
    register,
    settings_in_words,
    tables,
    users,
)

__all__ = [
    "DECLARED",
    "METHODS",
    "Method",
    "dp_fedavg",
    "dp_ftrl",
    "fa_hmc",
    "fa_ld",
    "fed_plt",
    "fed_smp",
    "fedavg",
    "method_named",
    "names",
    "register",
    "scaffold",
    "settings_in_words",
    "tables",
    "users",
]
