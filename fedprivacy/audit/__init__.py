"""Audits: re-account a run, judge a claim, write the report."""

from .account import Audit, account, audit
from .attacks import Attack, attack, plan
from .canaries import planted
from .conformance import Conformance
from .crosscheck import Crosscheck, crosscheck
from .report import RunSummary, report
from .verify import verify

__all__ = [
    "Attack",
    "Audit",
    "Conformance",
    "Crosscheck",
    "RunSummary",
    "account",
    "attack",
    "audit",
    "crosscheck",
    "plan",
    "planted",
    "report",
    "verify",
]
