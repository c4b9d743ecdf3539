"""Tests of ``fedprivacy.mechanisms.shifted``."""

import math
from fractions import Fraction

import numpy as np

from fedprivacy.mechanisms.shifted import sums_above


def test_sums_are_bounded_beyond_what_is_held():
    """Against exact binomial tails in integers, with truncated and moved ones."""
    steps, chance = np.full(60, 3), 2.0**-12
    above = sums_above(steps, np.full(60, chance))
    for k in range(0, 180, 7):
        least = -(-k // 3)
        exact = sum(math.comb(60, j) * 4095 ** (60 - j) for j in range(least, 61))
        assert Fraction(float(above[min(k, len(above) - 1)])) >= Fraction(exact, 4096**60)
