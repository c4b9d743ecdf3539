"""What is known of a run, to be priced: facts of a ledger or of another record, and their doubts.

A budget, a meter and an audit ask the same of a ledger, here.
"""

from .defects import Defect, Numbers, conditions, judged_with, qualified, qualifiers, worth
from .evidence import Evidence, told
from .noiseless import Noiseless
from .repricing import as_observed, as_released, in_sequence

__all__ = [
    "Defect",
    "Evidence",
    "Noiseless",
    "Numbers",
    "as_observed",
    "as_released",
    "conditions",
    "in_sequence",
    "judged_with",
    "qualified",
    "qualifiers",
    "told",
    "worth",
]
