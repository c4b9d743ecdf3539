"""Accountants: add privacy losses up and answer with certified bounds."""

from .advanced import AdvancedCompositionAccountant
from .base import Accountant
from .pld import PldAccountant
from .rdp import RdpAccountant

ACCOUNTANTS: dict[str, type[Accountant]] = {
    kind.name: kind for kind in (PldAccountant, RdpAccountant, AdvancedCompositionAccountant)
}
"""Every accountant by the name that ``fedprivacy.epsilon(accountant=...)`` takes."""

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "AdvancedCompositionAccountant",
    "PldAccountant",
    "RdpAccountant",
]
