"""Imported by the process that all children are copies of: it answers one question before them.

Every child then starts with the modules, the templates and the tables that a question needs.
"""

from __future__ import annotations

from . import plan
from .forms import EXAMPLE

ANSWERED = sum(1 for _ in plan.answer(EXAMPLE, []))
"""Number of messages of the first answer."""
