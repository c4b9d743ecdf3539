"""Findings of replays on neighbouring data sets, and tests with exact error probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammainc, gammaincc

Array = NDArray[np.float64]


class Finding(NamedTuple):
    """The result of one test.

    Attributes:
        name: name of the test.
        passed: whether the mechanism is as stated.
        measured: a distance, a standard deviation, or a p-value.
        allowed: the limit for ``measured``.
        detail: the test in words.
    """

    name: str
    passed: bool
    measured: float
    allowed: float
    detail: str


@dataclass(frozen=True)
class Conformance:
    """The results of all replays of a mechanism.

    Attributes:
        passed: whether every finding passed.
        findings: all findings.
        error_rate: a correct mechanism fails with probability at most this.
    """

    passed: bool
    findings: tuple[Finding, ...]
    error_rate: float

    @property
    def failures(self) -> tuple[str, ...]:
        """Names of the failed tests."""
        return tuple(dict.fromkeys(one.name for one in self.findings if not one.passed))

    def __str__(self) -> str:
        word = "conforms" if self.passed else f"does not conform: {', '.join(self.failures)}"
        lines = [f"{word} (wrongly accused with probability at most {self.error_rate:g})"]
        for one in self.findings:
            mark = "ok  " if one.passed else "FAIL"
            shown = f"{one.measured:.6g} against {one.allowed:.6g}"
            lines.append(f"  {mark} {one.name}: {shown}; {one.detail}")
        return "\n".join(lines)


def gaussian_ends(values: Array) -> float:
    """Return the two-sided p-value of the sum of squares, for standard normal values."""
    count, total = values.size / 2.0, float((values**2).sum()) / 2.0
    return 2.0 * float(min(gammainc(count, total), gammaincc(count, total)))


def shape_p_value(values: Array, cdf: Callable[[Array], Array]) -> float:
    """Return Massart's (1990) bound: P[sup |F_n - F| > t] <= 2 exp(-2 n t^2), for every n."""
    heights = cdf(np.sort(values.reshape(-1)))
    steps = np.arange(values.size + 1) / values.size
    # The empirical cdf jumps at each value, and both sides of the jump count.
    gap = max(float((steps[1:] - heights).max()), float((heights - steps[:-1]).max()))
    return min(1.0, 2.0 * math.exp(-2.0 * values.size * gap * gap))


def coin_p_value(heads: int, throws: int) -> float:
    """Return the two-sided p-value of this many heads of a fair coin."""
    more = max(heads, throws - heads)
    # Without a throw there is no evidence, and betainc has no value.
    return min(1.0, 2.0 * float(betainc(more, throws - more + 1, 0.5))) if more else 1.0


def agreement(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> list[float]:
    """Return p-values of how often two rows of fair coins agree, for each kind of coin."""
    same = (one == other).sum(axis=1)
    return [coin_p_value(int(count), one.shape[1]) for count in same]
