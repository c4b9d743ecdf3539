"""A bound in the wrong direction is a type error: ``make check`` needs every ignore below.

mypy reports an ignore that hides no error, so this file fails once an error is no longer found.
"""

from __future__ import annotations

from fedprivacy.accountants.base import Answer
from fedprivacy.loss import MaxLoss
from fedprivacy.loss.strategies.queries import Interval
from fedprivacy.rounding import Down, Up, rounded_down, rounded_up

LOW, HIGH = rounded_down(1.0), rounded_up(1.0)

MaxLoss(LOW, HIGH)
MaxLoss(HIGH, HIGH)  # type: ignore[arg-type]
MaxLoss(LOW, LOW)  # type: ignore[arg-type]
Interval(LOW, HIGH, "method")
Interval(HIGH, LOW, "method")  # type: ignore[arg-type]
Answer(LOW)  # type: ignore[arg-type]
Answer(HIGH, low=HIGH)  # type: ignore[arg-type]


def certified(value: float) -> Up:
    """Return a number without rounding."""
    return value  # type: ignore[return-value]


def turned(value: Up) -> Down:
    """Return an upper bound as a lower one."""
    return value  # type: ignore[return-value]
