"""Test vectors for privacy accountants: questions with certified answers, and a runner.

``cases()`` returns the questions, ``run`` asks an adapter for an accountant and judges its answers.
The command is ``python -m fedprivacy.vectors run --adapter mine.py``; the page is docs/vectors.md.
"""

from .cases import VectorCase, cases
from .judging import Result, VectorOutcome, judge
from .runner import Adapter, run

__all__ = ["Adapter", "Result", "VectorCase", "VectorOutcome", "cases", "judge", "run"]
