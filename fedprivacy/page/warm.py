"""Imported by the process that all children are copies of: it answers some questions before them.

Every child then starts with the modules, the templates and the tables that a question needs.
"""

from __future__ import annotations

from . import plan
from .forms import EXAMPLE

CHANGES: tuple[dict[str, str], ...] = (
    {},
    {"sampling": "fixed", "adjacency": "zero_out"},
    {"knows": "budget", "epsilon": "2"},
)
"""Changed fields of the example in each question: each one needs tables of its own."""

for _changed in CHANGES:
    for _message in plan.answer({**EXAMPLE, **_changed}, []):
        # The interval has what several questions share; the rest of an answer takes much longer.
        if _changed and _message.get("put") == "plan-brief":
            break
