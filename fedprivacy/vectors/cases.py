"""The cases on disk: questions in dp-accounting's vocabulary, and the certified ends of the answer.

``cases.json`` is the file that others read, and ``schema.json`` describes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import listed, refuse

PATH = Path(__file__).with_name("cases.json")
VERSION = 1
"""Version of the layout of the file."""

ASKS = ("epsilon", "delta", "noise_multiplier", "power", "advantage", "resumed")
"""The kinds of questions; an adapter has a function for each kind that it answers."""


@dataclass(frozen=True)
class VectorCase:
    """One question and its answer.

    Attributes:
        question: the plain JSON values that an adapter gets.
        lower: certified: no answer that is an upper bound may be smaller.
        upper: certified: the smallest number that is known to hold.
    """

    question: dict[str, Any]
    lower: float
    upper: float

    @property
    def id(self) -> str:
        """Name of the case; a published name keeps its question."""
        return str(self.question["id"])

    @property
    def family(self) -> str:
        """Group of the case, for scores."""
        return str(self.question["family"])

    @property
    def ask(self) -> str:
        """Kind of the question."""
        return str(self.question["ask"])


@cache
def document() -> dict[str, Any]:
    """Return the whole file: its version, the theorems, and the cases."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def cases(families: Iterable[str] = (), every: int = 1) -> tuple[VectorCase, ...]:
    """Return the cases.

    Args:
        families: names of the wanted families; none for all.
        every: 10 for every tenth case of a family, which is what a quick check asks.

    Raises:
        ParameterError: an unknown family.
    """
    found = [_case(one) for one in document()["cases"]]
    known = list(dict.fromkeys(case.family for case in found))
    wanted = list(families) or known
    for name in wanted:
        if name not in known:
            refuse("family", name, f"be one of {listed(known)}")
    groups = ([case for case in found if case.family == name] for name in wanted)
    return tuple(case for group in groups for case in group[::every])


def _case(data: dict[str, Any]) -> VectorCase:
    # Infinity is the string "inf", since JSON has no such number.
    return VectorCase(data, float(data["lower"]), float(data["upper"]))
