"""The known facts of a run, from a ledger or another record, with doubts, ready for pricing.

A budget, a meter and an audit use this package to evaluate a ledger.
"""

from .defects import Defect, Validity, conditions, judged_with, qualified, qualifiers, worth
from .evidence import RunEvidence, priced_evidence
from .noiseless import Noiseless
from .repricing import as_observed, as_released, in_sequence

__all__ = [
    "Defect",
    "Noiseless",
    "RunEvidence",
    "Validity",
    "as_observed",
    "as_released",
    "conditions",
    "in_sequence",
    "judged_with",
    "priced_evidence",
    "qualified",
    "qualifiers",
    "worth",
]
