"""Accountants: add privacy losses up and answer with certified bounds."""

from .advanced import AdvancedCompositionAccountant
from .base import Accountant
from .game import GameAccountant
from .pld import PldAccountant
from .rdp import RdpAccountant

ACCOUNTANTS: dict[str, type[Accountant]] = {
    kind.name: kind for kind in (PldAccountant, RdpAccountant, AdvancedCompositionAccountant)
}
"""The accountants that serve every question, by name: what is compared side by side."""

BY_NAME: dict[str, type[Accountant]] = {**ACCOUNTANTS, GameAccountant.name: GameAccountant}
"""Every accountant by the name that ``fedprivacy.epsilon(accountant=...)`` takes."""

__all__ = [
    "ACCOUNTANTS",
    "BY_NAME",
    "Accountant",
    "AdvancedCompositionAccountant",
    "GameAccountant",
    "PldAccountant",
    "RdpAccountant",
]
