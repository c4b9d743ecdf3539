"""Tests of ``fedprivacy.mechanisms.shifted``."""

import math
from fractions import Fraction

import numpy as np

from fedprivacy.loss import GaussianMix
from fedprivacy.mechanisms import conditional
from fedprivacy.mechanisms.conditional import Repeated
from fedprivacy.mechanisms.shifted import sums_above


def test_small_rows_before_a_large_one_are_not_lost():
    small, q, z = 1e-9, 0.1, 1.0
    matrix = np.array([[small, 0.0], [1.0, 1.0]])
    found = conditional._chances(matrix, np.array([1]), Repeated(q), z)
    # The noise's share of the log-odds is some seven stds of the small row: far above rounding.
    assert found[0, 0] > q * (1.0 + 5.0 * small)


def test_sums_are_bounded_beyond_what_is_held():
    """Against exact binomial tails in integers, with truncated and moved ones."""
    steps, chance = np.full(60, 3), 2.0**-12
    above = sums_above(steps, np.full(60, chance))
    for k in range(0, 180, 7):
        least = -(-k // 3)
        exact = sum(math.comb(60, j) * 4095 ** (60 - j) for j in range(least, 61))
        assert Fraction(float(above[min(k, len(above) - 1)])) >= Fraction(exact, 4096**60)


def test_entries_too_small_to_be_told_apart_still_count():
    matrix = np.array([[1e45, 0.0], [0.0, 1e-300]])
    rows = conditional.rows_of(matrix, Repeated(0.3), 1e45)
    assert all(isinstance(curve, GaussianMix) and len(curve.p) > 1 for curve, _ in rows)
