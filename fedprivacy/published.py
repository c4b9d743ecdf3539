"""The papers' privacy formulas as they are printed, each judged by the account that holds."""

from .questions.claim import Claim, judged
from .systems.fa_ld.claim import fa_ld_theorem_6_1
from .systems.fed_plt.claim import fed_plt_proposition_4
from .systems.fed_smp.claim import fed_smp_theorem_1
from .systems.fed_smp.moments import (
    Cohorts,
    Conversion,
    converted_epsilon,
    fed_smp_lemma_3,
    fed_smp_printed_epsilon,
    lemma_3_divergence,
)

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
