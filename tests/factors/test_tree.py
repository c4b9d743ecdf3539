"""Tests of ``fedprivacy.factors.tree``."""

import math

import numpy as np
import pytest

from fedprivacy import factors
from fedprivacy.errors import UnsupportedCombination
from tests.mechanisms.test_correlated import noise_of


def test_one_row_alone_draws_nothing():
    with pytest.raises(UnsupportedCombination, match="rounds before"):
        noise_of(factors.Tree()).noise(np.zeros(3))


def test_memory_is_what_is_promised():
    for factor, most in (
        (factors.Banded(5), 4),
        (factors.BufferedToeplitz(4), 4),
        (factors.BandedInverse(5), 4),
        (factors.Tree(), math.ceil(math.log2(1000)) + 1),
        (factors.Identity(), 0),
    ):
        assert factor.slots(1000) <= most
