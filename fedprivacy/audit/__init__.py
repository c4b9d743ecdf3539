"""Audits: re-account a run, judge a claim, write the report."""

from .account import Audit, account, audit
from .report import RunRecord, report

__all__ = ["Audit", "RunRecord", "account", "audit", "report"]
