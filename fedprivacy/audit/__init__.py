"""Audits: re-account a run, judge a claim, write the report."""

from .account import Audit, account, audit
from .attacks import Attack, attack, plan
from .report import RunRecord, report

__all__ = ["Attack", "Audit", "RunRecord", "account", "attack", "audit", "plan", "report"]
