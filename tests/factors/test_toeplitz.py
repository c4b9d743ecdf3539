"""Tests of ``fedprivacy.factors.toeplitz``."""

import math

import pytest

from fedprivacy import factors
from fedprivacy.errors import ParameterError
from tests.mechanisms.test_correlated import drawn, noise_of


def test_rounding_that_is_not_paid_for_stops_the_stream():
    run = noise_of(factors.Banded(5))
    _, memory = drawn(run, 1000)
    assert 2 * math.sqrt(memory.drift) < 1e-3 * 2.0**-20 * run.sensitivity.lower
    spoilt = type(memory)(3, memory.vectors * 1e12, memory.errors)
    with pytest.raises(
        ParameterError, match=r"rounding error of the noise must be at most .*, the margin"
    ):
        run.stream.draw(spoilt)
