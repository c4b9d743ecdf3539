"""The papers' privacy formulas as they are printed, each judged by the account that holds."""

from .claim import Claim, judged

__all__ = ["Claim", "judged"]
