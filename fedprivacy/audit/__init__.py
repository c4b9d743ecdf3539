"""Audits: re-account a run, judge a claim, write the report.

``fp.audit`` is both this module and its function ``audit``: the module can be called.
"""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

from .accounting import Audit, account, audit
from .attacks import Attack, attack, plan
from .canaries import planted
from .conformance import Conformance
from .crosschecking import Crosscheck, crosscheck
from .each import RunAudit, each
from .reporting import RunSummary, report
from .verification import verify

__all__ = [
    "Attack",
    "Audit",
    "Conformance",
    "Crosscheck",
    "RunAudit",
    "RunSummary",
    "account",
    "attack",
    "audit",
    "crosscheck",
    "each",
    "plan",
    "planted",
    "report",
    "verify",
]


class _CallableModule(ModuleType):
    """A module that calls its function ``audit`` when it is called."""

    def __call__(self, *args: Any, **named: Any) -> Audit:
        return audit(*args, **named)


sys.modules[__name__].__class__ = _CallableModule
__signature__ = signature(audit)
