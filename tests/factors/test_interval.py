"""Tests of ``fedprivacy.factors.interval``."""

import numpy as np
import pytest

from fedprivacy.factors import interval


@pytest.mark.parametrize(("rounds", "gap", "count"), [(20, 3, 5), (50, 4, 12), (100, 1, 63)])
def test_some_columns_are_summed_as_one_by_one(rounds, gap, count):
    column = np.random.default_rng(0).random(rounds)
    one_by_one = sum(np.concatenate([np.zeros(j * gap), column])[:rounds] for j in range(count))
    np.testing.assert_allclose(interval.comb(column, gap, count), one_by_one, rtol=1e-13)
