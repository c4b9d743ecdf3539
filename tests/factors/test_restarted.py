"""Tests of ``fedprivacy.factors.restarted``."""

from fedprivacy import factors
from tests.factors.test_participation import truth


def test_blocks_are_never_far_from_what_they_move():
    """All patterns of 11 rounds in blocks; the bound is exact where blocks hold whole steps."""
    for inner, every in ((factors.SquareRootToeplitz(), 4), (factors.Banded(2), 4)):
        factor = factors.Restarted(inner, every)
        for rule in (factors.MinimumSeparation(2), factors.FixedEpochs(2, at_most=3)):
            lower, upper = factor.sensitivity(12, rule)
            worst = truth(factor.matrix(12), rule)
            assert lower <= worst * (1 + 1e-15) <= upper * (1 + 2e-15)
            assert upper < (1.35 if rule.at_most else 1 + 1e-12) * worst
