"""The judgement of one answer, by the certified ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .cases import VectorCase

ROUNDING = 1e-9
"""Relative distance from an end that is called rounding, not a contradiction."""
NEAR = 1.01
"""An upper bound of at most this many times the certified one counts as contained."""
ESTIMATE = 0.01
"""Relative error that an estimate may have; a bound has none."""
_SMALL = 1e-6
"""An epsilon of this size counts as 0."""


class VectorOutcome(StrEnum):
    """What became of a case."""

    CONTAINED = "contained"
    WRONG = "wrong"
    LOOSE = "loose"
    REFUSED = "refused"
    CRASHED = "crashed"
    SLOW = "too slow"


@dataclass(frozen=True)
class Result:
    """The outcome of one case.

    Attributes:
        low: the answer as a lower bound, or None.
        high: the answer as an upper bound or an estimate, or None.
        factor: of a wrong or loose answer, the answer over the certified end; None otherwise.
        seconds: processor time of the answer.
        detail: the reason, in words.
    """

    case: VectorCase
    outcome: VectorOutcome
    low: float | None = None
    high: float | None = None
    factor: float | None = None
    seconds: float = 0.0
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        ends = {"low": self.low, "high": self.high, "factor": self.factor}
        shown = {k: "inf" if v == math.inf else v for k, v in ends.items() if v is not None}
        said = {"id": self.case.id, "family": self.case.family, "outcome": str(self.outcome)}
        return said | shown | {"seconds": round(self.seconds, 3), "detail": self.detail}


def judge(
    case: VectorCase,
    low: float | None,
    high: float | None,
    seconds: float = 0.0,
    error: float = 0.0,
) -> Result:
    """Return the result of an answer.

    An upper bound is wrong below the certified lower end, since data sets attain that. A lower
    bound is wrong above the certified upper end. An estimate is a ``high`` with an ``error``.

    Args:
        case: the question.
        low: the answer as a lower bound; None if it is none.
        high: the answer as an upper bound or an estimate; None if it is none.
        seconds: time that the answer took.
        error: relative error that the answer may have.
    """
    # A guarantee with a smaller number than 0 is also one with 0.
    low, high = (None if end is None else max(end, 0.0) for end in (low, high))
    slip = max(error, ROUNDING)

    def result(outcome: VectorOutcome, factor: float | None = None, detail: str = "") -> Result:
        return Result(case, outcome, low, high, factor, seconds, detail)

    if high is not None and high < case.lower * (1.0 - slip):
        detail = f"{high!r} is below {case.lower!r}, which two data sets attain"
        return result(VectorOutcome.WRONG, high / case.lower, detail)
    if low is not None and low > case.upper * (1.0 + slip):
        detail = f"{low!r} is a lower bound above the certified {case.upper!r}"
        return result(VectorOutcome.WRONG, _ratio(low, case.upper), detail)
    small = _SMALL if case.ask in ("epsilon", "resumed") else 0.0
    if high is not None and high > case.upper * NEAR + small:
        factor = _ratio(high, case.upper)
        return result(
            VectorOutcome.LOOSE, factor, f"{factor:.3g} times the certified {case.upper!r}"
        )
    return result(VectorOutcome.CONTAINED)


def _ratio(value: float, end: float) -> float:
    return value / end if end else math.inf
