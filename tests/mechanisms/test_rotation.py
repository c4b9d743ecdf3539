"""Tests of ``fedprivacy.mechanisms.rotation``."""

import numpy as np
import pytest

from fedprivacy.mechanisms.rotation import hadamard, padded


def test_hadamard_is_orthonormal_and_its_own_inverse():
    for power in (0, 1, 3, 7, 10):
        value = np.random.default_rng(power).normal(size=1 << power)
        there = hadamard(value)
        assert np.allclose(hadamard(there), value, atol=1e-12)
        assert there @ there == pytest.approx(value @ value)
    assert [padded(n) for n in (1, 2, 3, 1000, 1024)] == [1, 2, 4, 1024, 1024]
