"""Accountants: add privacy losses up and answer with certified bounds."""

from .advanced import AdvancedCompositionAccountant
from .base import Accountant
from .game import GameAccountant
from .pld import PldAccountant
from .rdp import RdpAccountant

ACCOUNTANTS: dict[str, type[Accountant]] = {
    kind.name: kind for kind in (PldAccountant, RdpAccountant, AdvancedCompositionAccountant)
}
"""The accountants for every question, by name. Tables compare these."""

BY_NAME: dict[str, type[Accountant]] = {**ACCOUNTANTS, GameAccountant.name: GameAccountant}
"""Every accountant by its name in ``fedprivacy.epsilon(accountant=...)``."""

__all__ = [
    "ACCOUNTANTS",
    "BY_NAME",
    "Accountant",
    "AdvancedCompositionAccountant",
    "GameAccountant",
    "PldAccountant",
    "RdpAccountant",
]
