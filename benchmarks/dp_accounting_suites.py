"""dp-accounting's own test suites with ``CertifiedAccountant`` in the place of its accountants.

``python -m benchmarks.dp_accounting_suites`` prints the table of docs/integrations.md and each
failure behind it. A failure that has no line here ends with exit status 1.
"""

from __future__ import annotations

import math
import re
import sys
import unittest
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import pld_privacy_accountant, pld_privacy_accountant_test
from dp_accounting.rdp import rdp_privacy_accountant, rdp_privacy_accountant_test

from fedprivacy.integrations.dp_accounting import CertifiedAccountant

ADD = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE


class Pld(CertifiedAccountant):
    """Ours, made as theirs is."""

    def __init__(self, neighboring_relation: Any = ADD, *_: Any, **__: Any) -> None:
        super().__init__(neighboring_relation, tolerance=1e-7)


class Rdp(CertifiedAccountant):
    """Ours, made as theirs is; it searches orders, and shows divergences where theirs would."""

    def __init__(
        self, orders: Sequence[float] | None = None, neighboring_relation: Any = ADD
    ) -> None:
        super().__init__(neighboring_relation, accountant="rdp")
        given = rdp_privacy_accountant.DEFAULT_RDP_ORDERS if orders is None else orders
        self._orders = np.array(given)

    @property
    def _rdp(self) -> np.ndarray:
        """Our divergences at their orders, of the worse orientation."""
        if not (self._composed.parts and self._composed.private):
            return np.full(len(self._orders), 0.0 if self._composed.private else np.inf)
        _, adjacency, observer = self._facts
        curve = self._composed.run.privacy_loss(adjacency, observer).curve
        return np.array([self._divergence(curve, float(order)) for order in self._orders])

    def _divergence(self, curve: Any, order: float) -> float:
        """Order 1 is a limit, and the infinite one the largest loss."""
        if math.isinf(order):
            return self.get_epsilon(0.0)
        order = max(order, 1.0 + 1e-6)
        return max(each.log_moment(order) for each in (curve, curve.swap())) / (order - 1.0)


SUITES = {
    "PLD": (pld_privacy_accountant_test, pld_privacy_accountant, "PLDAccountant", Pld),
    "RDP": (rdp_privacy_accountant_test, rdp_privacy_accountant, "RdpAccountant", Rdp),
}

CAUSES: list[tuple[str, str, str]] = []
"""(pattern of "test name: message", cause, whose); the first that fits counts."""


def run(name: str) -> tuple[int, dict[str, str]]:
    """Return how many tests a suite has, and the failing ones with their last line."""
    tests, module, attribute, ours = SUITES[name]
    theirs = getattr(module, attribute)
    setattr(module, attribute, ours)
    try:
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromModule(tests).run(result)
    finally:
        setattr(module, attribute, theirs)
    failed = {}
    for case, trace in result.failures + result.errors:
        failed[case._testMethodName] = trace.strip().splitlines()[-1]
    return result.testsRun - len(result.skipped), failed


def cause(test: str, message: str) -> tuple[str, str]:
    """Return why a test fails, and whose fault it is."""
    for pattern, why, whose in CAUSES:
        if re.search(pattern, f"{test}: {message}"):
            return why, whose
    return "unknown", "unknown"


def main() -> int:
    """Print the table and the failures."""
    lines: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in SUITES:
        total, failed = run(name)
        print(f"{name}: {total - len(failed)} of {total} pass")
        for test, message in sorted(failed.items()):
            lines[(name, *cause(test, message))].append(f"{test}: {message[:200]}")
    print("\n| suite | tests | what they ask | whose |\n|---|---|---|---|")
    for (name, why, whose), found in lines.items():
        print(f"| {name} | {len(found)} | {why} | {whose} |")
    for (name, why, _), found in lines.items():
        print(f"\n{name}, {why}:", *found, sep="\n  ")
    return int(Counter(why for _, why, _ in lines)["unknown"] > 0)


if __name__ == "__main__":
    sys.exit(main())
