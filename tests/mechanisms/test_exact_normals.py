"""Tests of ``fedprivacy.mechanisms.exact_normals``."""

import numpy as np
import pytest
from mpmath import mp

from fedprivacy.mechanisms.exact_normals import StoredDraws
from fedprivacy.mechanisms.rounded import NORMAL, noisy_scaled
from tests.mechanisms.test_rounded import seeded


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(60):
        yield


def test_a_total_in_single_precision_is_divided_in_double():
    """What the division rounds belongs to the total: 2^-24 of it would be some spacings here."""
    total = np.full(64, 1.0 / 3.0, dtype=np.float32)
    drawn = [
        noisy_scaled(each, stds=1e-3, deviates=StoredDraws(NORMAL, seeded(3)))
        for each in (total, total.astype(np.float64))
    ]
    assert np.array_equal(*drawn)
