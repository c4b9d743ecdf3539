"""The papers' privacy formulas as they are printed, each judged by the account that holds.

The formulas are in ``fedprivacy.papers`` and are imported from there on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .questions.claim import Claim, judged

if TYPE_CHECKING:
    from .papers.fa_ld.claim import fa_ld_theorem_6_1
    from .papers.fed_plt.claim import fed_plt_proposition_4
    from .papers.fed_smp.claim import fed_smp_theorem_1
    from .papers.fed_smp.moments import (
        Cohorts,
        Conversion,
        converted_epsilon,
        fed_smp_lemma_3,
        fed_smp_printed_epsilon,
        lemma_3_divergence,
    )

_FORMULAS = {
    "fa_ld.claim": ("fa_ld_theorem_6_1",),
    "fed_plt.claim": ("fed_plt_proposition_4",),
    "fed_smp.claim": ("fed_smp_theorem_1",),
    "fed_smp.moments": (
        "Cohorts",
        "Conversion",
        "converted_epsilon",
        "fed_smp_lemma_3",
        "fed_smp_printed_epsilon",
        "lemma_3_divergence",
    ),
}
"""Module of ``fedprivacy.papers`` -> its names that are imported from here."""

_MODULE = {name: module for module, names in _FORMULAS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE:
        return getattr(import_module(f"fedprivacy.papers.{_MODULE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Claim",
    "Cohorts",
    "Conversion",
    "converted_epsilon",
    "fa_ld_theorem_6_1",
    "fed_plt_proposition_4",
    "fed_smp_lemma_3",
    "fed_smp_printed_epsilon",
    "fed_smp_theorem_1",
    "judged",
    "lemma_3_divergence",
]
